"""What a client may rely on, whichever door answers: the same suite through the front and through Quart."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio

from actors.errors import Conflict, Invalid, NotFound, Overloaded
from actors.kernel.address import Address
from actors.kernel.errors import ActorStopped, MailboxFull
from gateway.dialect import OPENAI, RUN_BODY, SQUADS
from gateway.http import Reply, Request
from gateway.route import Route, Scope, command, query
from gateway.settings import Settings
from tests.gateway.kit import row, serving

POST = b"POST /api/echo/1 HTTP/1.1\r\nHost: localhost\r\n"


class Title(msgspec.Struct):
    title: str = ""
    count: int = 0


async def show_title(request: Request, _: Any) -> Reply:
    return Reply({"title": request.body.title, "count": request.body.count})


class Fails:
    """A handler that raises what it is given, one after the other, and then answers."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls = 0

    async def __call__(self, request: Request, _: Any) -> Reply:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return Reply({"calls": self.calls})


ROWS: tuple[Route, ...] = (
    row("GET", "/api/echo/{id}"),
    row("POST", "/api/echo/{id}"),
    row("GET", "/api/files/{path...}"),
    row("PATCH", "/api/title", show_title, Scope.WRITE, body=Title),
    row("POST", "/api/run", show_title, Scope.WRITE, body=Title, body_rule=RUN_BODY),
    row("POST", "/api/v1/title", show_title, Scope.WRITE, body=Title, dialect=SQUADS),
    row("POST", "/v1/title", show_title, Scope.WRITE, body=Title, dialect=OPENAI),
    row("POST", "/api/large", body_limit=3000),
    row("GET", "/health", scope=Scope.PUBLIC),
)


async def test_a_handler_gets_method_decoded_path_parameters_and_query(door: Settings) -> None:
    async with serving(ROWS, door) as server:
        answer = await server.request("GET", "/api/echo/a%2Fb%20%C3%A9?x=1&x=2&y=%26")
    assert answer.status == 200
    assert answer.json["params"] == {"id": "a/b é"}
    assert answer.json["query"] == {"x": ["1", "2"], "y": ["&"]}


async def test_a_rest_parameter_takes_slashes(door: Settings) -> None:
    async with serving(ROWS, door) as server:
        answer = await server.request("GET", "/api/files/a/b%2Fc/d")
    assert answer.json["params"] == {"path": "a/b/c/d"}


async def test_success_is_json_with_a_final_newline_and_no_charset(door: Settings) -> None:
    async def nothing(_: Request, __: Any) -> Reply:
        return Reply()

    async with serving([row("GET", "/api/null", nothing)], door) as server:
        answer = await server.request("GET", "/api/null")
    assert answer.body == b"null\n"
    assert answer.headers["content-type"] == "application/json"
    assert "date" in answer.headers


OPENAI_UNKNOWN = {"message": "Not Found", "type": "invalid_request_error", "param": None, "code": "not_found"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/nowhere", {"message": "Not Found"}),
        ("/nowhere", {"message": "Not Found"}),
        ("/api/echo/", {"message": "Not Found"}),
        ("/api/v1/nowhere", {"error": {"code": "NOT_FOUND", "message": "Not Found"}}),
        ("/v1/nowhere", {"error": OPENAI_UNKNOWN}),
    ],
)
async def test_an_unknown_path_is_refused_in_its_prefix_dialect(door: Settings, path: str, body: Any) -> None:
    async with serving(ROWS, door) as server:
        answer = await server.request("GET", path)
    assert (answer.status, answer.json) == (404, body)


async def test_a_wrong_method_names_the_right_ones(door: Settings) -> None:
    async with serving(ROWS, door) as server:
        answer = await server.request("DELETE", "/api/echo/1")
    assert (answer.status, answer.json) == (405, {"message": "Method Not Allowed"})
    assert answer.headers["allow"] == "GET, HEAD, POST"


async def test_head_is_get_without_the_body(door: Settings) -> None:
    async with serving(ROWS, door) as server, server.connect() as connection:
        got = await connection.request("GET", "/api/echo/1")
        head = await connection.request("HEAD", "/api/echo/1")
        assert head.status == 200
        assert int(head.headers["content-length"]) == len(got.body) + 1  # "HEAD" in place of "GET"
        assert (await connection.request("GET", "/api/echo/1")).status == 200


async def test_a_connection_is_kept_and_pipelined_requests_are_answered_in_order(door: Settings) -> None:
    async with serving(ROWS, door) as server, server.connect() as connection:
        for n in range(20):
            head = f"POST /api/echo/{n} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {n}\r\n\r\n"
            await connection.send(head.encode() + b"x" * n)
        for n in range(20):
            answer = await connection.answer()
            assert (answer.json["params"], answer.json["size"]) == ({"id": str(n)}, n)


async def test_a_chunked_body_arrives_whole_however_it_is_cut(door: Settings) -> None:
    async with serving(ROWS, door) as server, server.connect() as connection:
        await connection.send(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        for piece in (b"5\r", b"\nhel", b"lo\r\n3\r\nab", b"c\r\n0\r\n", b"\r\n"):
            await connection.send(piece)
            await trio.sleep(0.001)
        assert (await connection.answer()).json["size"] == 8


# --- body limits --------------------------------------------------------------------------------------------


async def test_the_limit_is_the_last_size_accepted(door: Settings) -> None:
    settings = msgspec.structs.replace(door, max_request_size=1000)
    async with serving(ROWS, settings) as server:
        assert (await server.request("POST", "/api/echo/1", b"x" * 1000)).json["size"] == 1000
        over = await server.request("POST", "/api/echo/1", b"x" * 1001)
        assert (over.status, over.json) == (413, {"message": "Request Entity Too Large"})
        assert (await server.request("POST", "/api/large", b"x" * 3000)).json["size"] == 3000
        assert (await server.request("POST", "/api/large", b"x" * 3001)).status == 413


async def test_a_claimed_length_over_the_limit_is_refused_before_the_body_and_the_token(
    door: Settings,
) -> None:
    settings = msgspec.structs.replace(door, max_request_size=1000, auth_token="secret")
    async with serving(ROWS, settings) as server, server.connect() as connection:
        await connection.send(POST + b"Content-Length: 99999999\r\n\r\n")
        assert (await connection.answer()).status == 413


async def test_a_chunked_body_is_cut_at_the_limit_not_at_its_end(door: Settings) -> None:
    settings = msgspec.structs.replace(door, max_request_size=1000)
    async with serving(ROWS, settings) as server, server.connect() as connection:
        await connection.send(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(3):
            await connection.send(b"200\r\n" + b"x" * 512 + b"\r\n")
        answer = await connection.answer()  # the client has not finished, and never will
        assert (answer.status, answer.json) == (413, {"message": "Request Entity Too Large"})


async def test_a_body_that_does_not_arrive_is_given_up(door: Settings) -> None:
    settings = msgspec.structs.replace(door, body_seconds=0.05)
    async with serving(ROWS, settings) as server, server.connect() as connection:
        await connection.send(POST + b"Content-Length: 10\r\n\r\nabc")
        assert (await connection.answer()).status == 408


async def test_a_client_that_waits_for_100_continue_is_told_to_go_on(door: Settings) -> None:
    async with serving(ROWS, door) as server, server.connect() as connection:
        await connection.send(POST + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert (await connection.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        await connection.send(b"abc")
        assert (await connection.answer()).json["size"] == 3


# --- reading bodies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "title"),
    [
        (b"", ""),
        (b'{"title":"a"}', "a"),
        (b'{"TITLE":"a","unknown":[1]}', "a"),
        (b'{"title":null}', ""),
        (b'{"title":"a"} trailing {"title":"b"}', "a"),
        (b'{"title":"a"}{"title":"b"}', "a"),
        (b"null", ""),
        (b'{"title":"lone \\ud83d half"}', "lone � half"),
        (b'{"title":"bad \xff byte"}', "bad � byte"),
    ],
)
async def test_a_docker_agent_body_is_read_leniently(door: Settings, body: bytes, title: str) -> None:
    async with serving(ROWS, door) as server:
        answer = await server.request("PATCH", "/api/title", body)
    assert (answer.status, answer.json) == (200, {"title": title, "count": 0})


SYNTAX = "invalid request body: code=400, message=Syntax error: offset="
TYPE = "invalid request body: code=400, message=Unmarshal type error: expected=int, got=string, field=count"
MEDIA = "invalid request body: code=415, message=Unsupported Media Type"


@pytest.mark.parametrize(
    ("body", "content_type", "message"),
    [
        (b"{", "application/json", SYNTAX),
        (b"[" * 100_000, "application/json", SYNTAX),
        (b'{"count":"x"}', "application/json; charset=utf-8", TYPE),
        (b"a=b", "text/plain", MEDIA),
        (b"{}", "application/x-www-form-urlencoded", MEDIA),
    ],
)
async def test_a_bad_docker_agent_body_says_what_is_wrong(
    door: Settings, body: bytes, content_type: str, message: str
) -> None:
    async with serving(ROWS, door) as server:
        answer = await server.request("PATCH", "/api/title", body, Content_Type=content_type)
    assert answer.status == 400
    assert answer.json["message"].startswith(message)


async def test_the_run_route_reads_any_content_type_and_wants_a_body(door: Settings) -> None:
    async with serving(ROWS, door) as server:
        any_type = await server.request("POST", "/api/run", b'{"title":"a"}', Content_Type="text/plain")
        empty = await server.request("POST", "/api/run")
    assert (any_type.status, any_type.json["title"]) == (200, "a")
    assert (empty.status, empty.json) == (400, {"message": "invalid request body: EOF"})


@pytest.mark.parametrize("body", [b"", b"{", b'{"count":"x"}', b'{"a":' * 50_000 + b"1" + b"}" * 50_000])
async def test_a_bad_squads_body_is_a_bad_request(door: Settings, body: bytes) -> None:
    async with serving(ROWS, door) as server:
        answer = await server.request("POST", "/api/v1/title", body)
    assert (answer.status, answer.json["error"]["code"]) == (400, "BAD_REQUEST")
    assert answer.json["error"]["message"].startswith("invalid input: ")


async def test_a_strict_body_must_be_json(door: Settings) -> None:
    async with serving(ROWS, door) as server:
        answer = await server.request("POST", "/v1/title", b"{}", Content_Type="text/plain")
    assert (answer.status, answer.json["error"]["code"]) == (415, "unsupported_media_type")


# --- credentials --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("authorization", "message"),
    [
        (None, "missing Authorization header"),
        ("Basic c2VjcmV0", "invalid Authorization header format"),
        ("bearer secret", "invalid Authorization header format"),
        ("Bearer wrong", "invalid token"),
        ("Bearer secret ", None),
        ("Bearer secret", None),
    ],
)
async def test_a_token_guards_every_path_known_or_not(
    door: Settings, authorization: str | None, message: str | None
) -> None:
    settings = msgspec.structs.replace(door, auth_token="secret")
    headers: dict[str, Any] = {} if authorization is None else {"Authorization": authorization}
    async with serving(ROWS, settings) as server:
        for path, status in (("/api/echo/1", 200), ("/api/nowhere", 404)):
            answer = await server.request("GET", path, **headers)
            if message is None:
                assert answer.status == status
            else:
                assert (answer.status, answer.json) == (401, {"message": message})
        assert (await server.request("GET", "/health")).status == 200


async def test_the_token_is_checked_before_the_body_is_read(door: Settings) -> None:
    settings = msgspec.structs.replace(door, auth_token="secret")
    async with serving(ROWS, settings) as server, server.connect() as connection:
        await connection.send(POST + b"Content-Length: 100\r\n\r\n")
        assert (await connection.answer()).status == 401


# --- hostile pages ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "evil@127.0.0.1", "localhost/x"],
)
@pytest.mark.parametrize("path", ["/api/echo/1", "/health", "/nowhere"])
async def test_a_foreign_host_is_refused_on_a_loopback_listener(door: Settings, host: str, path: str) -> None:
    async with serving(ROWS, door) as server:
        answer = await server.request("GET", path, host=host)
    assert answer.status in (400, 403)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:8080", "[::1]:80", "127.9.9.9", "a.localhost"]
)
async def test_a_loopback_host_is_accepted(door: Settings, host: str) -> None:
    async with serving(ROWS, door) as server:
        assert (await server.request("GET", "/health", host=host)).status == 200


async def test_a_configured_host_is_accepted(door: Settings) -> None:
    settings = msgspec.structs.replace(door, allowed_hosts=("agents.example",))
    async with serving(ROWS, settings) as server:
        assert (await server.request("GET", "/health", host="agents.example:443")).status == 200


async def test_two_hosts_and_a_target_with_another_host_are_refused(door: Settings) -> None:
    end = b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    async with serving(ROWS, door) as server:
        two = await server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n")
        other = await server.raw(b"GET http://evil/health" + end)
        same = await server.raw(b"GET http://localhost/health" + end)
    assert two.startswith(b"HTTP/1.1 400 ")
    assert other.startswith(b"HTTP/1.1 400 ")
    assert same.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://evil.example", 403),
        ("null", 403),
        ("http://localhost:1", 403),
        ("http://localhost", 200),
        ("https://console.example", 200),
    ],
)
async def test_a_foreign_page_cannot_change_state(door: Settings, origin: str, status: int) -> None:
    settings = msgspec.structs.replace(door, allowed_origins=("https://console.example",))
    async with serving(ROWS, settings) as server:
        assert (await server.request("POST", "/api/echo/1", Origin=origin)).status == status
        assert (await server.request("GET", "/api/echo/1", Origin=origin)).status == 200


# --- failures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "status", "message"),
    [
        (NotFound("no such session"), 404, "no such session"),
        (Conflict("session is already processing a request"), 409, "session is already processing a request"),
        (Invalid("message is required"), 400, "message is required"),
        (trio.TooSlowError(), 504, "the operation took too long"),
    ],
)
async def test_an_expected_failure_is_an_answer(
    door: Settings, failure: Exception, status: int, message: str
) -> None:
    async with serving([row("GET", "/api/fail", Fails(failure))], door) as server:
        answer = await server.request("GET", "/api/fail")
    assert (answer.status, answer.json) == (status, {"message": message})


async def test_a_failures_own_code_is_shown_where_the_contract_wants_it(door: Settings) -> None:
    failure = NotFound("session not found", code="unknown_session")
    async with serving([row("GET", "/api/fail", Fails(failure))], door) as server:
        answer = await server.request("GET", "/api/fail")
    assert answer.body == b'{"code":"unknown_session","message":"session not found"}\n'


async def test_an_error_prefix_is_put_before_the_message(door: Settings) -> None:
    rows = [row("GET", "/api/fail", Fails(NotFound("session not found")), error_prefix="failed to delete: ")]
    async with serving(rows, door) as server:
        answer = await server.request("GET", "/api/fail")
    assert answer.json == {"message": "failed to delete: session not found"}


@pytest.mark.parametrize(
    "failure", [MailboxFull(Address("session", "a"), "mail"), Overloaded("queue full", 2.4)]
)
async def test_a_full_mailbox_asks_to_come_again(door: Settings, failure: Overloaded) -> None:
    async with serving([row("GET", "/api/fail", Fails(failure))], door) as server:
        answer = await server.request("GET", "/api/fail")
    assert answer.status == 429
    assert int(answer.headers["retry-after"]) >= failure.retry_after


async def test_a_stopped_actor_is_resolved_once_more(door: Settings) -> None:
    stopped = [ActorStopped(Address("session", "a"), "passivated") for _ in range(3)]
    once, always = Fails(stopped[0]), Fails(*stopped[1:])
    async with serving([row("GET", "/api/once", once), row("GET", "/api/always", always)], door) as server:
        assert (await server.request("GET", "/api/once")).json == {"calls": 2}
        assert (await server.request("GET", "/api/always")).status == 503
    assert always.calls == 2


@pytest.mark.parametrize(
    "failure", [ValueError("secret text"), ExceptionGroup("g", [KeyError("secret text")])]
)
async def test_a_bug_is_a_500_without_details_and_is_logged_by_incident(
    door: Settings, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving([row("GET", "/api/fail", Fails(failure)), *ROWS], door) as server:
        answer = await server.request("GET", "/api/fail")
        assert (await server.request("GET", "/health")).status == 200
    assert (answer.status, answer.json) == (500, {"message": "Internal Server Error"})
    assert answer.headers["x-incident-id"] in caplog.text


async def test_a_header_with_a_line_end_never_reaches_the_wire(door: Settings) -> None:
    async def forge(_: Request, __: Any) -> Reply:
        return Reply({}, headers=(("X-Name", "a\r\nSet-Cookie: b"),))

    async with serving([row("GET", "/api/forge", forge), *ROWS], door) as server:
        ask = b"GET /api/forge HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert b"Set-Cookie" not in await server.raw(ask)
        assert (await server.request("GET", "/health")).status == 200


# --- rows ---------------------------------------------------------------------------------------------------


async def test_a_command_row_asks_one_actor_and_renders_its_reply(door: Settings) -> None:
    class Ref:
        async def ask(self, message: str) -> str:
            return message.upper()

    def find(request: Request, runtime: dict[str, Ref]) -> Ref:
        return runtime[request.path_params["id"]]

    rows = [
        command(
            "POST",
            "/api/actors/{id}",
            Scope.WRITE,
            lambda request: request.body.title,
            to=find,
            body=Title,
            status=201,
            render=lambda reply, request: {"said": reply, "to": request.path_params["id"]},
            summary="Say something",
        )
    ]
    async with serving(rows, door, runtime={"a": Ref()}) as server:
        answer = await server.request("POST", "/api/actors/a", b'{"title":"hello"}')
    assert (answer.status, answer.json) == (201, {"said": "HELLO", "to": "a"})


async def test_a_query_row_answers_what_is_read(door: Settings) -> None:
    async def read(request: Request, runtime: dict[str, int]) -> int:
        return runtime[request.path_params["name"]]

    rows = [query("/api/values/{name}", Scope.READ, read, summary="A value")]
    async with serving(rows, door, runtime={"a": 7}) as server:
        assert (await server.request("GET", "/api/values/a")).json == 7


class Page(msgspec.Struct):
    id: str
    limit: int = 10
    tag: tuple[str, ...] = ()


async def test_path_and_query_are_converted_to_the_rows_types(door: Settings) -> None:
    async def show(request: Request, _: Any) -> Reply:
        return Reply(request.params)

    async with serving([row("GET", "/api/pages/{id}", show, params=Page)], door) as server:
        good = await server.request("GET", "/api/pages/7?limit=3&tag=a&tag=b&id=9&unknown=1")
        bad = await server.request("GET", "/api/pages/7?limit=many")
    assert good.json == {"id": "7", "limit": 3, "tag": ["a", "b"]}
    assert bad.status == 400


async def test_requests_are_counted_by_template_not_by_path(door: Settings) -> None:
    async with serving(ROWS, door) as server:
        for n in range(3):
            await server.request("GET", f"/api/echo/{n}")
        text = server.endpoint.metrics.render().decode()
    labels = '{method="GET",route="/api/echo/{id}",status="200"}'
    assert f"greenroom_http_request_seconds_count{labels} 3.0" in text
    assert "echo/1" not in text
