"""The ``api`` and ``openapi`` toolsets of agent files, and reading documents and curl commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.errors import Invalid
from actors.tools.egress import Reach
from actors.tools.http_api.curl import call_from_curl
from actors.tools.http_api.openapi import calls_from_openapi, parse_document
from actors.tools.http_api.request import build_request
from actors.tools.registry import Deps
from actors.tools.tool import ToolError
from tests.apitools.target import target
from tests.tools.kit import build, call, context_in

NEAR = Deps(reach=Reach(["127.0.0.1"]))
DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "servers": [{"url": "/v1"}],
    "paths": {
        "/orders/{id}": {
            "parameters": [{"name": "id", "in": "path", "schema": {"type": "string"}}],
            "get": {
                "operationId": "getOrder",
                "summary": "Read an order",
                "parameters": [
                    {
                        "name": "expand",
                        "in": "query",
                        "schema": {"type": "array", "items": {"type": "string"}},
                    },
                    {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
                ],
            },
            "put": {
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Order"}}},
                },
                "parameters": [{"name": "dry", "in": "query", "schema": {"type": "boolean"}}],
            },
        },
        "/batch": {
            "post": {
                "operationId": "batch",
                "requestBody": {"content": {"application/json": {"schema": {"type": "array"}}}},
            }
        },
    },
    "components": {
        "schemas": {
            "Order": {
                "type": "object",
                "required": ["qty"],
                "properties": {
                    "qty": {"type": "integer"},
                    "parent": {"$ref": "#/components/schemas/Order"},
                },
            }
        }
    },
}


async def test_the_api_toolset_fills_its_endpoint_and_headers(tmp_path: Path) -> None:
    async with target() as server:
        toolset = build(
            "api",
            NEAR,
            api_config={
                "name": "weather",
                "instruction": "Current weather.",
                "endpoint": server.url("/v1/${city}?units=si"),
                "args": {"city": {"type": "string"}, "day": {"type": "integer"}},
                "required": ["city"],
                "headers": {"Authorization": "Bearer ${env.TOKEN}"},
            },
        )
        context = context_in(tmp_path, env={"TOKEN": "t-123456"})
        result = await call(toolset, "weather", context, city="서울/강남", day="2")
        missing = await call(toolset, "weather", context)
    assert result.output == '{"status":200,"body":{"ok":true}}'
    assert server.seen[0].target == "/v1/%EC%84%9C%EC%9A%B8%2F%EA%B0%95%EB%82%A8?units=si&day=2"
    assert server.seen[0].headers["authorization"] == "Bearer t-123456"
    assert missing.is_error
    assert msgspec.json.decode(missing.output)["field"] == "city"
    assert len(server.seen) == 1


async def test_the_api_toolset_keeps_away_from_private_addresses(tmp_path: Path) -> None:
    async with target() as server:
        config = {"name": "x", "endpoint": server.url("/ok")}
        blocked = await call(build("api", api_config=config), "x", context_in(tmp_path))
        allowed = await call(
            build("api", api_config=config, allow_private_ips=True), "x", context_in(tmp_path)
        )
    assert '"kind":"blocked"' in blocked.output
    assert allowed.output.startswith('{"status":200')


def test_a_required_argument_must_be_declared() -> None:
    with pytest.raises(Invalid, match="nope"):
        build("api", api_config={"name": "x", "endpoint": "https://x.test/", "required": ["nope"]})


async def test_the_openapi_toolset_offers_each_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with target() as server:
        monkeypatch.setattr(
            server, "_plain", lambda path, _: http_json(DOCUMENT if path == "/openapi.json" else {"ok": True})
        )
        toolset = build("openapi", NEAR, url=server.url("/openapi.json"))
        await toolset.start()
        names = [tool.definition.name for tool in toolset.tools()]
        await call(
            toolset, "getOrder", context_in(tmp_path), **{"id": "a b", "expand": ["x", "y"], "X-Trace": "7"}
        )
        await call(toolset, names[1], context_in(tmp_path), id="1", body_qty=2, dry=True)
        await call(toolset, "batch", context_in(tmp_path), body=[1, 2])
    assert names == ["getOrder", "put__orders_id", "batch"]
    read, written, batch = server.seen[1:]
    assert (read.method, read.target, read.headers["x-trace"]) == (
        "GET",
        "/v1/orders/a%20b?expand=x&expand=y",
        "7",
    )
    assert (written.method, written.target, written.body) == ("PUT", "/v1/orders/1?dry=true", b'{"qty":2}')
    assert (batch.target, batch.body) == ("/v1/batch", b"[1,2]")


async def test_a_document_that_cannot_be_had_says_so() -> None:
    async with target() as server:
        with pytest.raises(ToolError, match="status 404"):
            await build("openapi", NEAR, url=server.url("/missing")).start()
        with pytest.raises(Invalid):
            await build("openapi", NEAR, url=server.url("/ok")).start()


def http_json(value: Any) -> bytes:
    body = msgspec.json.encode(value)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def test_documents_may_be_yaml_and_schemas_may_contain_themselves() -> None:
    text = msgspec.yaml.encode(DOCUMENT)
    calls = calls_from_openapi(parse_document(text), "https://shop.test/api/openapi.json")
    assert [each.url for each in calls] == ["https://shop.test/v1/orders/{id}"] * 2 + [
        "https://shop.test/v1/batch"
    ]
    assert calls[1].parameters["required"] == ["id", "body_qty"]


@pytest.mark.parametrize(
    "text",
    [
        b"swagger: '2.0'\npaths: {}",
        b"[]",
        b"{",
        b"openapi: 3.0.0",
        b"a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
        b"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n"
        b"f: [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\nopenapi: 3.0.0\npaths: {}",
    ],
)
def test_what_is_no_document_is_refused(text: bytes) -> None:
    with pytest.raises(Invalid):
        parse_document(text)


@pytest.mark.parametrize("ref", ["http://evil.test/x.json", "#/nowhere", "#/paths/~1a/get/parameters/0"])
def test_references_outside_nowhere_and_in_circles_are_refused(ref: str) -> None:
    document = {
        "openapi": "3.0.0",
        "servers": [{"url": "https://x.test"}],
        "paths": {"/a": {"get": {"parameters": [{"$ref": ref}]}}},
    }
    with pytest.raises(Invalid):
        calls_from_openapi(document)


@pytest.mark.parametrize(
    ("command", "method", "url", "auth"),
    [
        ("curl https://x.test/a", "GET", "https://x.test/a", ""),
        ("curl -sSL 'https://x.test/a?b=1'", "GET", "https://x.test/a?b=1", ""),
        ("curl -XPOST https://x.test/a", "POST", "https://x.test/a", ""),
        ("curl --request=DELETE --url https://x.test/a", "DELETE", "https://x.test/a", ""),
        ("curl -u me:pass x.test/a", "GET", "http://x.test/a", "Basic"),
        ("curl -H 'Authorization: Basic bWU6cGFzcw==' https://x.test/a", "GET", "https://x.test/a", "Basic"),
        ("curl -d a=1 -d b=2 https://x.test/a", "POST", "https://x.test/a", ""),
        ("curl --json '{\"a\":1}' \\\n https://x.test/a", "POST", "https://x.test/a", ""),
    ],
)
def test_curl_commands_become_calls(command: str, method: str, url: str, auth: str) -> None:
    made = call_from_curl(command)
    assert (made.method, made.url, made.auth_type) == (method, url, auth)
    if auth:
        assert made.credentials == "me:pass"
    assert build_request(made, {}).method == method


@pytest.mark.parametrize(
    "command",
    ["", "wget https://x.test", "curl", "curl 'https://x.test", "curl -F a=@/etc/passwd https://x.test",
     "curl -d @/etc/passwd https://x.test", "curl -x http://proxy https://x.test", "curl a.test b.test",
     "curl -X", "curl -X TRACE https://x.test", "curl --nonsense https://x.test"],
)  # fmt: skip
def test_curl_commands_without_a_counterpart_are_refused(command: str) -> None:
    with pytest.raises(Invalid):
        call_from_curl(command)
