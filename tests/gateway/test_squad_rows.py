"""What holds for every endpoint of the squads API, derived from its row: who may, what is refused, and how."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.dialect import SQUADS
from gateway.openapi import document
from gateway.route import Route, Scope
from gateway.routes import TABLE
from gateway.settings import Settings
from tests.gateway.kit import QUICK, Answer
from tests.gateway.squad_endpoints import ENDPOINTS, PAGE, page
from tests.gateway.squad_kit import BASE, ROUTES, Api, failed, open_api
from tests.gateway.test_websocket import upgrade_bytes

ROWS = tuple(row for row in ROUTES if not row.path.startswith(BASE + "/auth"))
UNDER_A_SQUAD = tuple(row for row in ROWS if row.path.startswith(BASE + "/squads/{id}"))
GUARDED = Settings(require_auth=True, master_key="m", grace_seconds=QUICK.grace_seconds)
TESTS = Path(__file__).parents[1]


def key_of(row: Route) -> tuple[str, str]:
    return ("WS" if row.socket else row.method, row.path.removeprefix(BASE))


def filled(row: Route, squad_id: str = "s") -> str:
    """Return the row's path with something for every name, and a query that fits."""
    path = re.sub(r"\{(\w+)\}", lambda found: squad_id if found[1] == "id" else "none", row.path)
    return path + ("?query=x&path=x" if row.params is not None else "")


def fitting(row: Route) -> bytes:
    """Return a body that fits the row's type, made of its schema."""
    if row.body is None:
        return b""
    schema = msgspec.json.schema(row.body)
    return msgspec.json.encode(_example(schema, schema))


def _example(schema: dict[str, Any], root: dict[str, Any]) -> object:
    if "$ref" in schema:
        return _example(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return _example(schema["anyOf"][0], root)
    if schema.get("type") == "object":
        return {name: _example(schema["properties"][name], root) for name in schema.get("required", ())}
    if schema.get("type") == "array":
        return [_example(schema["items"], root)]
    examples = {"string": "/x", "boolean": True, "integer": 1, "number": 1.0}
    return examples[schema["type"]]


async def ask(api: Api, row: Route, path: str, body: bytes, **headers: str) -> Answer:
    async with api.server.connect() as connection:
        if row.socket is not None:
            await connection.send(upgrade_bytes(path, **headers))
            return await connection.answer()
        return await connection.request(row.method, path, body, **headers)


def test_there_are_95_and_each_served_one_is_in_the_table_with_its_scope() -> None:
    assert [each.number for each in ENDPOINTS] == list(range(1, 96))
    assert len({(each.method, each.path) for each in ENDPOINTS}) == 95
    served = {key_of(row): row for row in TABLE.routes if row.path.startswith(BASE)}
    names = re.compile(r"\{\w+\}")
    paths = {(method, names.sub("{}", path)) for method, path in served}
    for each in ENDPOINTS:
        if each.test:
            assert served[each.method, each.path].scope.value == each.scope, each
        else:
            assert (each.method, names.sub("{}", each.path)) not in paths, f"{each} is served: name its test"


def test_every_row_speaks_the_squads_dialect_and_is_listed() -> None:
    listed = {(each.method, each.path) for each in ENDPOINTS}
    for row in ROWS:
        assert row.dialect is SQUADS
        assert row.scope is not Scope.PUBLIC
        assert row.documented == (key_of(row) in listed), row.path


def test_the_page_is_up_to_date_and_names_tests_that_exist() -> None:
    assert PAGE.read_text() == page(), "run python -m tests.gateway.squad_endpoints"
    for each in ENDPOINTS:
        if each.test:
            file, _, name = each.test.partition("::")
            tree = ast.parse((TESTS / file).read_text())
            assert name in {node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef)}, each


def test_the_description_has_every_served_endpoint_under_its_tag() -> None:
    paths = document(TABLE.routes, "1.0")["paths"]
    for each in ENDPOINTS:
        if each.test:
            method = "get" if each.method == "WS" else each.method.lower()
            tags = paths[BASE + each.path][method]["tags"]
            assert tags == ["Squad Templates" if 68 <= each.number <= 74 else "Squads"]


async def test_without_a_credential_no_row_answers(tmp_path: Path) -> None:
    async with open_api(tmp_path, limits=GUARDED) as api:
        for row in ROWS:
            failed(await ask(api, row, filled(row), fitting(row)), 401, "UNAUTHORIZED")


async def test_without_its_scope_no_row_answers_whatever_other_scopes_there_are(tmp_path: Path) -> None:
    async with open_api(tmp_path, limits=GUARDED) as api:
        reads = await api.runtime.keys.issue("r", ["agent_read"])
        writes = await api.runtime.keys.issue("w", ["agent_write"])
        for row in ROWS:
            other = writes if row.scope is Scope.READ else reads
            failed(await ask(api, row, filled(row), fitting(row), X_API_Key=other.text), 403, "FORBIDDEN")


async def test_with_its_scope_every_row_gets_past_the_door(tmp_path: Path) -> None:
    async with open_api(tmp_path, limits=GUARDED) as api:
        keys = {
            Scope.READ: await api.runtime.keys.issue("r", ["agent_read"]),
            Scope.WRITE: await api.runtime.keys.issue("w", ["agent_write"]),
            Scope.ADMIN: await api.runtime.keys.issue("a", ["admin"]),
        }
        for row in ROWS:
            path = (
                filled(row).replace("/squads/events", "/squads/events?types=x").replace("/ws", "/ws?types=x")
            )
            answer = await ask(api, row, path, fitting(row), X_API_Key=keys[row.scope].text)
            assert answer.status not in (401, 403, 500), (row.path, answer)


async def test_an_unknown_squad_is_not_found_under_every_path(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        for row in UNDER_A_SQUAD:
            failed(await ask(api, row, filled(row, "nobody"), fitting(row)), 404, "NOT_FOUND")


async def test_an_unknown_thing_of_a_squad_is_not_found(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        squad_id = await api.squad()
        for row in UNDER_A_SQUAD:
            if row.path.count("{") > 1:
                failed(await ask(api, row, filled(row, squad_id), fitting(row)), 404, "NOT_FOUND")


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"7", b"{", b"\xff", b"{}x", b"[" * 300], ids=repr)
async def test_a_body_that_is_no_object_is_refused_by_every_row_that_takes_one(
    tmp_path: Path, body: bytes
) -> None:
    async with open_api(tmp_path) as api:
        squad_id = await api.squad()
        for row in ROWS:
            if row.body is not None:
                failed(await ask(api, row, filled(row, squad_id), body), 400, "BAD_REQUEST")


async def test_an_empty_body_is_refused_except_where_it_is_optional(tmp_path: Path) -> None:
    numbers = {7, 8, 2, 4, 6, 11, 14, 17, 19, 24, 27, 28, 30, 42, 45, 49, 64, 70, 73, 74}
    required = {(each.method, each.path) for each in ENDPOINTS if each.number in numbers}
    async with open_api(tmp_path) as api:
        squad_id = await api.squad()
        for row in ROWS:
            if row.body is not None and row.documented:
                answer = await ask(api, row, filled(row, squad_id), b"")
                if key_of(row) in required:
                    failed(answer, 400, "BAD_REQUEST")
                else:
                    assert answer.status != 400, row.path


async def test_a_field_of_a_wrong_type_is_refused(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        squad_id = await api.squad()
        for row in ROWS:
            if row.body is None:
                continue
            schema = msgspec.json.schema(row.body)
            properties = (
                schema["$defs"][schema["$ref"].rpartition("/")[2]]["properties"] if "$ref" in schema else {}
            )
            for name in properties:
                given = {**msgspec.json.decode(fitting(row)), name: [[7.5]]}
                answer = await ask(api, row, filled(row, squad_id), msgspec.json.encode(given))
                failed(answer, 400, "BAD_REQUEST")


async def test_a_query_of_a_wrong_type_is_refused(tmp_path: Path) -> None:
    queries = {
        "keepWorkspace": "/squads/{id}",
        "force": "/squads/{id}/tasks/t",
        "status": "/squads/{id}/tasks",
        "limit": "/squads/{id}/history",
        "offset": "/squads/{id}/executions",
        "afterSeq": "/squads/{id}/history/e/events",
        "minLevel": "/squads/{id}/history/e/logs",
        "period": "/squads/{id}/analytics",
        "caseSensitive": "/squads/{id}/memory/search",
    }
    async with open_api(tmp_path) as api:
        squad_id = await api.squad()
        for name, path in queries.items():
            method = "DELETE" if name in ("keepWorkspace", "force") else "GET"
            for value in ("maybe", "-1.5", "%00"):
                found = path.replace("{id}", squad_id) + f"?{name}={value}"
                failed(await api.ask(method, found), 400, "BAD_REQUEST")
        assert len(await api.get("/squads")) == 1, "nothing was deleted"


async def test_an_unknown_path_below_the_prefix_is_refused_in_the_squads_words(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        failed(await api.ask("GET", "/nothing"), 404, "NOT_FOUND")
        answer = await api.ask("PUT", "/squads")
        failed(answer, 405, "METHOD_NOT_ALLOWED")
        assert answer.headers["allow"] == "GET, HEAD, POST"


async def test_a_literal_segment_is_never_read_as_a_squad(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        assert await api.get("/squads/tasks/summary") == []
        failed(await api.ask("POST", "/squads/restore", {}), 400, "BAD_REQUEST")
        failed(await api.ask("GET", "/squads/ws"), 426)
