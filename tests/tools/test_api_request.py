"""From arguments to the request: every placement, every spelling, every refusal."""

from __future__ import annotations

from typing import Any

import pytest

from actors.tools.http_api.call import ApiCall, BadArguments, BuiltRequest
from actors.tools.http_api.request import build_request

URL = "https://api.example.com/orders"


def schema(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


S, INT, N, B = ({"type": kind} for kind in ("string", "integer", "number", "boolean"))
LIST = {"type": "array"}
OBJECT = {"type": "object"}


def build(
    method: Any = "GET", url: str = URL, arguments: dict[str, Any] | None = None, /, **changes: Any
) -> BuiltRequest:
    variables = changes.pop("variables", {})
    return build_request(ApiCall(name="t", method=method, url=url, **changes), arguments or {}, variables)


@pytest.mark.parametrize(
    ("url", "arguments", "expected"),
    [
        (URL, {"order_id": "ORD-1234"}, f"{URL}?order_id=ORD-1234"),
        (f"{URL}?locale=ko", {"order_id": "ORD-1234"}, f"{URL}?locale=ko&order_id=ORD-1234"),
        (f"{URL}?a=1#frag", {"b": "2"}, f"{URL}?a=1&b=2"),
        (f"{URL}#frag", {}, URL),
        (f"{URL}?", {"b": "2"}, f"{URL}?b=2"),
        (f"{URL}?a=1&", {"b": "2"}, f"{URL}?a=1&b=2"),
        (f"{URL}?key=1&tag=a", {"q": "b c&d", "tag": "z"}, f"{URL}?key=1&tag=a&q=b%20c%26d&tag=z"),
        (f"{URL}?key=1&tag=a", {}, f"{URL}?key=1&tag=a"),
        (f"{URL}?x=%E2%82%AC+1", {"b": "2"}, f"{URL}?x=%E2%82%AC+1&b=2"),
        (URL, {"q": "강남점 A&B+C"}, f"{URL}?q=%EA%B0%95%EB%82%A8%EC%A0%90%20A%26B%2BC"),
        (URL, {"q": "#/?="}, f"{URL}?q=%23%2F%3F%3D"),
        (URL, {"tag": ["a", "b c", 3, True]}, f"{URL}?tag=a&tag=b%20c&tag=3&tag=true"),
        (URL, {"tag": []}, URL),
        (URL, {"tag": [{"a": 1}, [2]]}, f"{URL}?tag=%7B%22a%22%3A1%7D&tag=%5B2%5D"),
        (URL, {"filter": {"a": 1}}, f"{URL}?filter=%7B%22a%22%3A1%7D"),
        (URL, {"a": True, "b": False, "c": 0, "d": 1.0, "e": 1e21}, f"{URL}?a=true&b=false&c=0&d=1.0&e=1e21"),
        (URL, {"e": ""}, f"{URL}?e="),
        (URL, {"n": None}, URL),
        (URL, {"키": "1", "a[]": "2"}, f"{URL}?%ED%82%A4=1&a%5B%5D=2"),
        (URL, {"q": "{{call_id}}"}, f"{URL}?q=%7B%7Bcall_id%7D%7D"),
        (URL, {"q": "a\r\nHost: x"}, f"{URL}?q=a%0D%0AHost%3A%20x"),
    ],
)
def test_get_puts_arguments_after_the_urls_own_query(
    url: str, arguments: dict[str, Any], expected: str
) -> None:
    request = build("GET", url, arguments, variables={"call_id": "secret"})
    assert request.url == expected
    assert request.body is None
    assert not {"content-type", "content-length"} & set(request.headers)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        ({}, "{}"),
        ({"branchName": "강남점"}, '{"branchName":"강남점"}'),
        ({"a": {"b": [{"c": 1}, {"d": None}]}}, '{"a":{"b":[{"c":1},{"d":null}]}}'),
        (
            {"t": True, "z": 0, "o": 1.0, "e": 1e21, "n": None, "s": "", "d": "2026-01-02"},
            '{"t":true,"z":0,"o":1.0,"e":1e21,"n":null,"s":"","d":"2026-01-02"}',
        ),
    ],
)
def test_other_methods_send_a_json_object(method: str, arguments: dict[str, Any], body: str) -> None:
    request = build(method, f"{URL}?locale=ko", arguments)
    assert request.url == f"{URL}?locale=ko"
    assert (request.body or b"").decode() == body
    assert request.headers["content-type"] == "application/json"


def test_declared_arguments_come_first_and_in_the_schemas_order() -> None:
    request = build("POST", URL, {"x": 1, "b": "2", "a": "3"}, parameters=schema(a=S, b=S))
    assert request.body == b'{"a":"3","b":"2","x":1}'


@pytest.mark.parametrize(
    ("wanted", "given", "sent"),
    [
        (INT, "5", 5),
        (INT, 5.0, 5),
        (N, "2.5", 2.5),
        (B, "true", True),
        (S, 5, "5"),
        ({"type": ["integer", "null"]}, None, None),
        ({"type": "string", "nullable": True}, None, None),
        ({"type": "array", "items": INT}, ["1", 2], [1, 2]),
        ({"type": "object", "properties": {"n": INT}}, {"n": "7"}, {"n": 7}),
        ({"anyOf": [INT, S]}, "5", "5"),
        ({"enum": ["a", "b"]}, "b", "b"),
    ],
)
def test_arguments_are_converted_without_loss(wanted: Any, given: Any, sent: Any) -> None:
    import msgspec

    request = build("POST", URL, {"v": given}, parameters=schema(v=wanted))
    value = msgspec.json.decode(request.body or b"")["v"]
    assert (value, type(value)) == (sent, type(sent))


@pytest.mark.parametrize(
    ("wanted", "given", "at"),
    [
        (INT, "five", "v"),
        (INT, 1.5, "v"),
        (INT, True, "v"),
        (B, 1, "v"),
        (B, "yes", "v"),
        (S, ["x"], "v"),
        (S, None, "v"),
        (LIST, "x", "v"),
        (OBJECT, [], "v"),
        ({"type": "array", "items": INT}, [1, "x"], "v[1]"),
        ({"type": "object", "properties": {"n": INT}, "required": ["n"]}, {}, "v.n"),
        ({"enum": ["a"]}, "b", "v"),
        ({"type": "integer", "maximum": 3}, 4, "v"),
        ({"type": "string", "minLength": 2}, "a", "v"),
        ({"type": "string", "pattern": "^[0-9]+$"}, "a", "v"),
    ],
)
def test_an_argument_that_does_not_fit_is_named(wanted: Any, given: Any, at: str) -> None:
    with pytest.raises(BadArguments) as caught:
        build("POST", URL, {"v": given}, parameters=schema(v=wanted))
    assert caught.value.at == at


def test_a_missing_argument_takes_its_default_or_is_refused_or_left_out() -> None:
    parameters = schema("id", id=S, page={"type": "integer", "default": 1}, note=S)
    assert build("GET", URL, {"id": "x"}, parameters=parameters).url == f"{URL}?id=x&page=1"
    with pytest.raises(BadArguments, match="'id' is required"):
        build("GET", URL, {}, parameters=parameters)


def test_unknown_arguments_are_dropped_only_where_the_schema_closes_the_object() -> None:
    closed = {**schema(a=S), "additionalProperties": False}
    assert build("POST", URL, {"a": "1", "x": 2}, parameters=closed).body == b'{"a":"1"}'


def test_a_path_argument_is_one_encoded_segment_and_not_sent_again() -> None:
    url = "https://h.test/users/{id}/posts"
    parameters = schema("id", id=S, q=S)
    assert build("GET", url, {"id": "a/b ?\r\n", "q": "1"}, parameters=parameters).url == (
        "https://h.test/users/a%2Fb%20%3F%0D%0A/posts?q=1"
    )
    assert build("POST", url, {"id": "7", "q": "1"}, parameters=parameters).body == b'{"q":"1"}'
    for bad in ("..", ".", ""):
        with pytest.raises(BadArguments):
            build("GET", url, {"id": bad}, parameters=parameters)


def test_variables_fill_urls_and_headers_and_unset_ones_stay() -> None:
    request = build(
        "GET",
        "https://h.test/{{city}}/{{unset}}",
        {},
        headers={"X-Call": "{{city}}", "X-None": "{{unset}}"},
        variables={"city": "서울 1"},
    )
    assert request.url == "https://h.test/%EC%84%9C%EC%9A%B8%201/{{unset}}"
    assert request.headers["x-none"] == "{{unset}}"
    assert request.headers["x-call"].encode("latin-1").decode() == "서울 1"
    with pytest.raises(BadArguments, match="line break"):
        build("GET", URL, {}, headers={"X": "{{v}}"}, variables={"v": "a\nb"})


def test_credentials_make_the_authorization_header() -> None:
    bearer = build("GET", URL, {}, auth_type="Bearer", credentials="t0ken-value")
    basic = build("GET", URL, {}, auth_type="Basic", credentials="user:passw0rd")
    assert bearer.headers["authorization"] == "Bearer t0ken-value"
    assert basic.headers["authorization"] == "Basic dXNlcjpwYXNzdzByZA=="
    assert {"t0ken-value"} <= set(bearer.secrets)
    assert {"user:passw0rd", "passw0rd", "dXNlcjpwYXNzdzByZA=="} <= set(basic.secrets)


def test_configured_headers_win_whatever_their_case() -> None:
    request = build("POST", URL, {}, headers={"ACCEPT": "text/csv", "content-TYPE": "application/vnd.x+json"})
    assert request.headers["accept"] == "text/csv"
    assert request.headers["content-type"] == "application/vnd.x+json"


def test_what_is_too_large_is_not_sent() -> None:
    with pytest.raises(BadArguments) as url:
        build("GET", URL, {"q": "x" * 9000})
    with pytest.raises(BadArguments) as body:
        build("POST", URL, {"q": "x" * (1 << 20)})
    assert (url.value.kind, body.value.kind) == ("too_large", "too_large")


def test_half_a_character_is_refused() -> None:
    for method in ("GET", "POST"):
        with pytest.raises(BadArguments):
            build(method, URL, {"q": "\ud800"})
