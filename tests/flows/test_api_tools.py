"""API tools over the real server: the resource's rules, test runs, imports, history and runs that use them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.testing.model import call, say
from tests.apitools.target import Target, target
from tests.flows.kit import Api, open_api

BASE = "/api/v1/api-tools"
SCHEMA = {"type": "object", "properties": {"order_id": {"type": "string"}}}


def body(url: str = "https://api.example.com/orders", **changes: Any) -> dict[str, Any]:
    configuration = {"url": url, "method": "GET", **changes.pop("api_configuration", {})}
    return {"name": "get_order", "input_schema": SCHEMA, "api_configuration": configuration, **changes}


@asynccontextmanager
async def served(folder: Path, *answers: Any) -> AsyncGenerator[tuple[Api, Target]]:
    async with target() as server, open_api(folder, list(answers), reachable_hosts=("127.0.0.0/8",)) as api:
        yield api, server


@pytest.mark.parametrize("base", [BASE, "/v3/tools"])
async def test_a_minimal_tool_gets_the_defaults(tmp_path: Path, base: str) -> None:
    async with open_api(tmp_path) as api:
        answer = await api.post(base, body())
        assert answer.status == 201
        made = answer.json
        assert made["response_mode"] == "wait"
        assert made["description"] is None
        assert made["allow_interruption_during_execution"] is False
        assert made["api_configuration"] == {
            "url": "https://api.example.com/orders",
            "method": "GET",
            "headers": {},
            "timeout_seconds": 30,
            "has_auth_credentials": False,
        }
        assert made["created_at"] > 1_700_000_000_000
        assert (await api.get(f"{base}/{made['id']}")).json == made


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "has space"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"name": "도구"}, "name"),
        ({"input_schema": None}, "input_schema"),
        ({"input_schema": {}}, "input_schema.type"),
        ({"input_schema": {"type": "string"}}, "input_schema.type"),
        ({"input_schema": {"type": "object", "required": ["a"]}}, "input_schema.required"),
        (
            {"input_schema": {"type": "object", "properties": {"a": {"$ref": "http://x/"}}}},
            "input_schema.properties.a.$ref",
        ),
        ({"response_mode": "async"}, "response_mode"),
        ({"surprise": 1}, "surprise"),
        ({"description": "x" * 4001}, "description"),
        ({"api_configuration": {"method": "HEAD"}}, "api_configuration.method"),
        ({"api_configuration": {"method": "get"}}, "api_configuration.method"),
        ({"api_configuration": {"method": None}}, "api_configuration.method"),
        ({"api_configuration": {"headers": []}}, "api_configuration.headers"),
        ({"api_configuration": {"headers": {"Host": "x"}}}, "api_configuration.headers"),
        ({"api_configuration": {"headers": {"X": "a\r\nB: c"}}}, "api_configuration.headers"),
        ({"api_configuration": {"timeout_seconds": 0}}, "api_configuration.timeout_seconds"),
        ({"api_configuration": {"timeout_seconds": 121}}, "api_configuration.timeout_seconds"),
        ({"api_configuration": {"url": "file:///etc/passwd"}}, "api_configuration.url"),
        ({"api_configuration": {"url": "ftp://x/"}}, "api_configuration.url"),
        ({"api_configuration": {"url": "https://u:p@x/"}}, "api_configuration.url"),
        ({"api_configuration": {"url": "https://x/{nope}"}}, "api_configuration.url"),
        ({"api_configuration": {"url": "https://{order_id}/"}}, "api_configuration.url"),
        ({"api_configuration": {"auth_type": "Digest"}}, "api_configuration.auth_type"),
        ({"api_configuration": {"auth_type": "Bearer"}}, "api_configuration.auth_credentials"),
        (
            {
                "api_configuration": {
                    "auth_type": "Bearer",
                    "auth_credentials": "t",
                    "headers": {"authorization": "x"},
                }
            },
            "api_configuration.headers",
        ),
    ],
)
async def test_what_is_wrong_is_named_in_the_details(
    tmp_path: Path, changes: dict[str, Any], field: str
) -> None:
    async with open_api(tmp_path) as api:
        answer = await api.post(BASE, body(**changes))
        assert answer.status == 400
        error = answer.json["error"]
        assert error["code"] == "BAD_REQUEST"
        assert error["details"]["field"] == field
        if field == "api_configuration.method":
            assert error["details"]["allowed_values"] == ["GET", "POST", "PUT", "PATCH", "DELETE"]
        assert (await api.get(BASE)).json["total_count"] == 0


async def test_a_patch_keeps_what_it_leaves_out(tmp_path: Path) -> None:
    async with served(tmp_path) as (api, server):
        auth = {"auth_type": "Bearer", "auth_credentials": "CANARY-77"}
        made = (await api.post(BASE, body(server.url("/ok"), description="d", api_configuration=auth))).json
        path = f"{BASE}/{made['id']}"
        assert made["api_configuration"]["has_auth_credentials"] is True
        assert "CANARY" not in str(made)
        assert (await api.patch(path, {})).json == made
        for name in ("name", "input_schema", "api_configuration", "allow_interruption_during_execution"):
            assert (await api.patch(path, {name: None})).json["error"]["details"]["field"] == name
        assert (await api.patch(path, {"description": None})).json["description"] is None
        changed = (await api.patch(path, {"api_configuration": {"timeout_seconds": 3}})).json
        assert changed["api_configuration"]["timeout_seconds"] == 3
        tried = await api.post(f"{path}/test", {"arguments": {"order_id": "ORD-1234"}})
        assert server.seen[0].target == "/ok?order_id=ORD-1234"
        assert server.seen[0].headers["authorization"] == "Bearer CANARY-77"
        assert tried.json["model_text"] == '{"status":200,"body":{"ok":true}}'
        assert tried.json["request"]["headers"]["authorization"] == "***"
        assert "CANARY" not in str(tried.json)
        gone = (await api.patch(path, {"api_configuration": {"auth_type": None}})).json
        assert gone["api_configuration"]["has_auth_credentials"] is False


async def test_the_seeds_post_example_arrives_as_written(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"branchName": {"type": "string"}}}
    async with served(tmp_path, call("lookup_store_hours", {"branchName": "강남점"}), say("open")) as (
        api,
        server,
    ):
        given = body(
            server.url("/hours"),
            name="lookup_store_hours",
            input_schema=schema,
            api_configuration={"method": "POST"},
        )
        made = (await api.post(BASE, given)).json
        attached = await api.call("PUT", f"{BASE}/attachments/agents/my/root", {"tool_ids": [made["id"]]})
        assert attached.json == {"tool_ids": [made["id"]]}
        session = await api.create(safety_policy="autonomous")
        await api.turn(session, "강남점 운영 시간")
        (seen,) = server.seen
        assert (seen.method, seen.target, seen.headers["content-type"]) == (
            "POST",
            "/hours",
            "application/json",
        )
        assert seen.body.decode() == '{"branchName":"강남점"}'
        calls = (await api.get(f"{session}/tool-calls")).json
        assert calls["total_count"] == 1
        record = calls["items"][0]
        assert (record["state"], record["tool_id"], record["request"]["body"]) == (
            "succeeded",
            made["id"],
            '{"branchName":"강남점"}',
        )
        assert (await api.get(f"{BASE}/{made['id']}/calls")).json["items"] == calls["items"]
        used = await api.delete(f"{BASE}/{made['id']}")
        assert (used.status, used.json["error"]["code"]) == (409, "TOOL_IN_USE")
        await api.call("PUT", f"{BASE}/attachments/agents/my/root", {"tool_ids": []})
        assert (await api.delete(f"{BASE}/{made['id']}")).status == 204
        assert (await api.get(f"{BASE}/{made['id']}")).status == 404


async def test_a_slow_background_call_does_not_delay_the_turn(tmp_path: Path) -> None:
    async with served(tmp_path, call("notify"), say("on we go")) as (api, server):
        given = body(server.url("/gated"), name="notify", response_mode="fire_and_forget")
        made = (await api.post(BASE, given)).json
        session = await api.create(safety_policy="autonomous")
        await api.call(
            "PUT", f"{BASE}/attachments/sessions/{session.rpartition('/')[2]}", {"tool_ids": [made["id"]]}
        )
        with trio.fail_after(3):
            await api.turn(session, "go")
        assert (await api.get(f"{session}/tool-calls")).json["items"][0]["state"] == "pending"
        server.release.set()
        await api.runtime.api_tools.caller.drain()
        done = (await api.get(f"{session}/tool-calls")).json["items"][0]
        assert (done["state"], done["delivered_to_model"]) == ("succeeded", False)


async def test_pages_of_tools_join_and_search_by_name(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        for number in range(5):
            await api.post(BASE, body(name=f"tool_{number}"))
        await api.post(BASE, body(name="toolx9"))
        seen: list[str] = []
        cursor = ""
        while True:
            page = (await api.get(f"{BASE}?limit=2&sort_order=asc&cursor={cursor}")).json
            seen += [each["name"] for each in page["items"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert sorted(seen) == [*(f"tool_{number}" for number in range(5)), "toolx9"]
        assert (await api.get(f"{BASE}?q=ool_")).json["total_count"] == 5
        for bad in ("limit=0", "limit=101", "cursor=zzz", "sort_order=up"):
            assert (await api.get(f"{BASE}?{bad}")).status == 400


async def test_imports_are_drafts_that_can_be_saved(tmp_path: Path) -> None:
    curl = """curl -X POST 'https://x.test/v1/orders?lang=ko' -H 'Authorization: Bearer T' \\
      -H 'X-Team: blue' -d '{"qty": 2, "tags": ["a"]}'"""
    document = {
        "openapi": "3.0.3",
        "servers": [{"url": "https://pets.test/v1"}],
        "paths": {
            "/pets/{petId}": {
                "parameters": [
                    {
                        "name": "petId",
                        "in": "path",
                        "required": True,
                        "schema": {"$ref": "#/components/schemas/Id"},
                    }
                ],
                "get": {"operationId": "getPet", "summary": "One pet"},
                "delete": {"operationId": "deletePet"},
            }
        },
        "components": {"schemas": {"Id": {"type": "integer"}}},
    }
    async with open_api(tmp_path) as api:
        (draft,) = (await api.post(f"{BASE}/import", {"curl": curl})).json["drafts"]
        assert draft["api_configuration"]["url"] == "https://x.test/v1/orders?lang=ko"
        assert draft["api_configuration"]["auth_credentials"] == "T"
        assert draft["input_schema"]["properties"]["qty"] == {"type": "integer", "default": 2}
        (pet,) = (await api.post(f"{BASE}/import", {"openapi": document, "operation_id": "getPet"})).json[
            "drafts"
        ]
        assert pet["input_schema"]["properties"] == {"petId": {"type": "integer"}}
        assert len((await api.post(f"{BASE}/import", {"openapi": document})).json["drafts"]) == 2
        assert (await api.get(BASE)).json["total_count"] == 0
        for each in (draft, pet):
            assert (await api.post(BASE, each)).status == 201
        for bad in (
            {},
            {"curl": "wget x"},
            {"openapi": "swagger: '2.0'"},
            {"openapi": document, "operation_id": "x"},
        ):
            assert (await api.post(f"{BASE}/import", bad)).status == 400


async def test_private_targets_are_blocked_unless_the_operator_allows_them(tmp_path: Path) -> None:
    async with target() as server, open_api(tmp_path) as api:
        made = (await api.post(BASE, body(server.url("/ok")))).json
        tried = (await api.post(f"{BASE}/{made['id']}/test", {})).json
        assert '"kind":"blocked"' in tried["model_text"]
        assert tried["state"] == "rejected"
        assert server.seen == []


async def test_unknown_agents_sessions_and_tools_are_not_found(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        for path in ("agents/nobody", "agents/my/nobody", "sessions/nobody"):
            assert (await api.call("PUT", f"{BASE}/attachments/{path}", {"tool_ids": []})).status == 404
        assert (await api.call("PUT", f"{BASE}/attachments/agents/my", {"tool_ids": ["nope"]})).status == 404
        for path in (f"{BASE}/nope", f"{BASE}/nope/calls", "/api/sessions/nope/tool-calls"):
            assert (await api.get(path)).status == 404
