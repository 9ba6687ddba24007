"""Credentials on a real server: how they come, what they grant, and what a web page cannot do with a cookie."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from actors.auth.keys import Keys
from actors.auth.messages import ScopeName
from actors.auth.queries import KeyRows
from actors.journal.memory import open_memory
from gateway.dialect import SQUADS
from gateway.http import Request
from gateway.route import Scope, SocketRunner, socket
from gateway.routes import TABLE
from gateway.routes.auth import ROUTES as AUTH
from gateway.settings import Settings
from gateway.websocket import Socket
from tests.gateway.kit import Answer, Server, row, serving

MASTER = "the master key"
UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec_WebSocket_Version": "13",
    "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


class World:
    """Stands for a runtime: it has the keys and nothing else."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys


async def greet(_: Request, __: Any) -> SocketRunner:
    async def run(connection: Socket) -> None:
        await connection.send("hello")

    return run


ROWS = (
    *AUTH,
    row("GET", "/api/v1/squads", scope=Scope.READ, dialect=SQUADS),
    row("POST", "/api/v1/squads", scope=Scope.WRITE, dialect=SQUADS),
    row("POST", "/api/v1/squads/workspace/validate", scope=Scope.READ, dialect=SQUADS),
    row("GET", "/api/v1/squad-discussions/{id}", dialect=SQUADS),
    row("GET", "/api/v1/squad-templates", dialect=SQUADS),
    row("POST", "/api/v1/squad-registry/install", scope=Scope.WRITE, dialect=SQUADS),
    row("GET", "/api/v1/other", dialect=SQUADS),
    row("GET", "/api/sessions"),
    socket("/api/v1/squads/ws", Scope.READ, greet, summary="a socket", dialect=SQUADS),
)


@asynccontextmanager
async def open_server(door: Settings, **options: Any) -> AsyncGenerator[Server]:
    given = {"require_auth": True, "master_key": MASTER, **options}
    async with open_memory() as log:
        log.register(KeyRows())
        runtime = World(Keys(log, lambda: 1000.0))
        async with serving(ROWS, msgspec.structs.replace(door, **given), runtime=runtime) as server:
            yield server


async def issue(server: Server, *scopes: str) -> str:
    body = msgspec.json.encode({"name": "test", "scopes": scopes})
    answer = await server.request("POST", "/api/v1/auth/keys", body, X_API_Key=MASTER)
    assert answer.status == 201
    key: str = answer.json["key"]
    return key


async def login(server: Server, key: str) -> str:
    body = msgspec.json.encode({"apiKey": key})
    answer = await server.request("POST", "/api/v1/auth/login", body)
    assert answer.status == 200
    return answer.headers["set-cookie"].partition(";")[0]


def failed(answer: Answer, status: int, code: str) -> bool:
    assert (answer.status, answer.json["error"]["code"]) == (status, code)
    return bool(answer.json["error"]["message"])


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X_API_Key": "wrong"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic d3Jvbmc="},
        {"Cookie": "aigo_session=wrong"},
        {"X_API_Key": "wrong", "Authorization": f"Bearer {MASTER}"},
    ],
    ids=repr,
)
async def test_without_a_good_credential_the_answer_is_401(door: Settings, headers: dict[str, str]) -> None:
    async with open_server(door) as server:
        answer = await server.request("GET", "/api/v1/squads", b"", **headers)
        assert failed(answer, 401, "UNAUTHORIZED")
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_key_works_as_header_as_bearer_token_and_as_cookie(door: Settings) -> None:
    async with open_server(door) as server:
        key = await issue(server, "agent_read")
        cookie = await login(server, key)
        for headers in (
            {"X_API_Key": key},
            {"Authorization": f"Bearer {key}"},
            {"Cookie": f"theme=dark; {cookie}"},
        ):
            assert (await server.request("GET", "/api/v1/squads", b"", **headers)).status == 200


async def test_the_login_cookie_cannot_be_read_by_scripts_and_stays_on_its_site(door: Settings) -> None:
    async with open_server(door) as server:
        body = msgspec.json.encode({"apiKey": MASTER})
        answer = await server.request("POST", "/api/v1/auth/login", body)
        parts = answer.headers["set-cookie"].split("; ")
        assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(parts)
        assert MASTER not in answer.headers["set-cookie"]
        assert failed(
            await server.request("POST", "/api/v1/auth/login", b'{"apiKey":"x"}'), 401, "UNAUTHORIZED"
        )


async def test_scopes_do_not_imply_each_other(door: Settings) -> None:
    async with open_server(door) as server:
        reads, writes = await issue(server, "agent_read"), await issue(server, "agent_write")
        cases = {
            ("GET", "/api/v1/squads"): (200, 403),
            ("POST", "/api/v1/squads"): (403, 200),
            ("POST", "/api/v1/squads/workspace/validate"): (200, 403),
            ("GET", "/api/sessions"): (200, 403),
        }
        for (method, path), expected in cases.items():
            found = tuple(
                [(await server.request(method, path, X_API_Key=key)).status for key in (reads, writes)]
            )
            assert found == expected, path
        assert failed(await server.request("POST", "/api/v1/squads", X_API_Key=reads), 403, "FORBIDDEN")


async def test_only_admin_keys_see_and_make_keys(door: Settings) -> None:
    async with open_server(door) as server:
        admin, reads = await issue(server, "admin"), await issue(server, "agent_read", "agent_write")
        for method in ("GET", "POST"):
            answer = await server.request(method, "/api/v1/auth/keys", X_API_Key=reads)
            assert failed(answer, 403, "FORBIDDEN")
        listed = (await server.request("GET", "/api/v1/auth/keys", X_API_Key=admin)).json
        assert [each["scopes"] for each in listed] == [["admin"], ["agent_read", "agent_write"]]
        assert all(each.keys() == {"id", "name", "scopes", "createdAt"} for each in listed)


async def test_revoking_a_key_ends_it_and_the_logins_made_with_it(door: Settings) -> None:
    async with open_server(door) as server:
        key = await issue(server, "agent_read")
        cookie = await login(server, key)
        [listed] = (await server.request("GET", "/api/v1/auth/keys", X_API_Key=MASTER)).json
        path = f"/api/v1/auth/keys/{listed['id']}"
        assert (await server.request("DELETE", path, X_API_Key=MASTER)).json == {"success": True}
        for headers in ({"X_API_Key": key}, {"Cookie": cookie}):
            assert failed(await server.request("GET", "/api/v1/squads", b"", **headers), 401, "UNAUTHORIZED")
        assert failed(await server.request("DELETE", path, X_API_Key=MASTER), 404, "NOT_FOUND")


async def test_logging_out_ends_the_login_on_the_server(door: Settings) -> None:
    async with open_server(door) as server:
        cookie = await login(server, MASTER)
        answer = await server.request("POST", "/api/v1/auth/logout", Cookie=cookie)
        assert "Max-Age=0" in answer.headers["set-cookie"]
        assert failed(await server.request("GET", "/api/v1/squads", Cookie=cookie), 401, "UNAUTHORIZED")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://localhost"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec_Fetch_Site": "same-origin"}, 200),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
    ],
    ids=repr,
)
async def test_another_page_cannot_change_state_with_the_cookie(
    door: Settings, headers: dict[str, str], status: int
) -> None:
    async with open_server(door) as server:
        cookie = await login(server, MASTER)
        answer = await server.request("POST", "/api/v1/squads", b"", Cookie=cookie, **headers)
        assert answer.status == status


async def test_another_page_may_follow_a_link_with_the_cookie(door: Settings) -> None:
    async with open_server(door) as server:
        cookie = await login(server, MASTER)
        answer = await server.request("GET", "/api/v1/squads", Cookie=cookie, Sec_Fetch_Site="cross-site")
        assert answer.status == 200


async def test_a_socket_is_refused_before_it_exists(door: Settings) -> None:
    async with open_server(door) as server:
        writes = await issue(server, "agent_write")
        path = "/api/v1/squads/ws"
        assert failed(await server.request("GET", path, b"", **UPGRADE), 401, "UNAUTHORIZED")
        assert failed(await server.request("GET", path, b"", X_API_Key=writes, **UPGRADE), 403, "FORBIDDEN")
        async with server.websocket(path, X_API_Key=MASTER) as websocket:
            assert await websocket.get_message() == "hello"


async def test_on_loopback_no_credential_is_needed_unless_required(door: Settings) -> None:
    async with open_server(door, require_auth=False) as server:
        assert (await server.request("GET", "/api/v1/squads")).status == 200
        assert (await server.request("POST", "/api/v1/squads", X_API_Key="anything")).status == 200


async def test_the_shared_token_opens_both_apis_each_with_its_own_words(door: Settings) -> None:
    async with open_server(door, auth_token="t", master_key="") as server:
        for path in ("/api/sessions", "/api/v1/squads"):
            assert (await server.request("GET", path, Authorization="Bearer t")).status == 200
        assert (await server.request("GET", "/api/sessions")).json == {
            "message": "missing Authorization header"
        }
        refused = await server.request("GET", "/api/sessions", Authorization="Bearer x")
        assert refused.json == {"message": "invalid token"}
        assert failed(await server.request("GET", "/api/v1/squads"), 401, "UNAUTHORIZED")


async def test_a_hidden_page_is_refused_under_all_its_prefixes_and_nowhere_else(door: Settings) -> None:
    paths = {
        "/api/v1/squads": "GET",
        "/api/v1/%73quads": "GET",
        "/api/v1/squads/no/such/path": "GET",
        "/api/v1/squad-discussions/d": "GET",
        "/api/v1/squad-templates": "GET",
        "/api/v1/squad-registry/install": "POST",
        "/api/v1/squads/ws": "GET",
    }
    async with open_server(door, hidden_pages=("/squad",)) as server:
        for path, method in paths.items():
            answer = await server.request(method, path, X_API_Key=MASTER)
            assert failed(answer, 403, "FEATURE_HIDDEN"), path
        assert (await server.request("GET", "/api/v1/other", X_API_Key=MASTER)).status == 200
        assert failed(await server.request("GET", "/api/v1/squads"), 401, "UNAUTHORIZED")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"name":"x"}', b'{"name":1,"scopes":["admin"]}', b'{"name":"x","scopes":["root"]}',
     b'{"name":"x","scopes":[]}', b'{"name":"x","scopes":["admin"],"more":1}'],
)  # fmt: skip
async def test_a_malformed_key_request_makes_no_key(door: Settings, body: bytes) -> None:
    async with open_server(door) as server:
        answer = await server.request("POST", "/api/v1/auth/keys", body, X_API_Key=MASTER)
        assert answer.status == 400
        assert (await server.request("GET", "/api/v1/auth/keys", X_API_Key=MASTER)).json == []


async def test_no_row_of_any_api_answers_without_a_credential_or_without_its_scope(door: Settings) -> None:
    """What the endpoint is asked for never gets to a handler: the runtime has nothing but keys."""
    settings = msgspec.structs.replace(door, require_auth=True, master_key=MASTER)
    async with open_memory() as log:
        log.register(KeyRows())
        keys = Keys(log, lambda: 1.0)
        scopes: tuple[ScopeName, ...] = ("agent_read", "agent_write")
        held = {scope: (await keys.issue("k", [scope])).text for scope in scopes}
        async with serving(TABLE.routes, settings, runtime=World(keys)) as server:
            for each in TABLE.routes:
                if each.scope is Scope.PUBLIC:
                    continue
                path = re.sub(r"\{[^}]*\}", "x", each.path)
                upgrade = UPGRADE if each.socket else {}
                wrong = [text for scope, text in held.items() if scope != each.scope.value]
                assert (await server.request(each.method, path, b"", **upgrade)).status == 401, path
                for text in wrong:
                    answer = await server.request(each.method, path, b"", X_API_Key=text, **upgrade)
                    assert answer.status == 403, path


@pytest.mark.parametrize("name", ["apiKey", "api_key", "key", "token", "access_token", "aigo_session"])
async def test_a_credential_in_the_url_counts_for_nothing(door: Settings, name: str) -> None:
    async with open_server(door) as server:
        answer = await server.request("GET", f"/api/v1/squads?{name}={quote(MASTER)}")
        assert failed(answer, 401, "UNAUTHORIZED")


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}],
    ids=repr,
)
async def test_another_page_cannot_open_a_socket_with_the_cookie(
    door: Settings, headers: dict[str, str]
) -> None:
    async with open_server(door) as server:
        cookie = await login(server, MASTER)
        path = "/api/v1/squads/ws"
        answer = await server.request("GET", path, b"", Cookie=cookie, **UPGRADE, **headers)
        assert failed(answer, 403, "FORBIDDEN")
        async with server.websocket(path, Cookie=cookie) as websocket:
            assert await websocket.get_message() == "hello"


async def test_a_credential_is_in_no_answer_no_figure_and_no_log(
    door: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with open_server(door) as server:
        key = await issue(server, "admin")
        wrong = "grk_" + "canary" * 6
        seen = b""
        for headers in (
            {"X_API_Key": wrong},
            {"Authorization": f"Bearer {wrong}"},
            {"Cookie": f"aigo_session={wrong}"},
        ):
            seen += (await server.request("GET", "/api/v1/squads", b"", **headers)).body
        for body in ({"apiKey": wrong}, {"apiKey": [wrong]}, {"name": wrong, "scopes": [7]}):
            for path in ("login", "keys"):
                data = msgspec.json.encode(body)
                seen += (await server.request("POST", f"/api/v1/auth/{path}", data, X_API_Key=key)).body
        seen += (await server.request("GET", "/api/v1/auth/keys", X_API_Key=key)).body
        seen += server.endpoint.metrics.render()
    for secret in (key, wrong, MASTER):
        assert secret.encode() not in seen
        assert secret not in caplog.text
