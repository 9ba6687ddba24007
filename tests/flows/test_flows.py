"""Flows over the real server: the rules at save, and runs that speak, call, branch and end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.testing.model import say, wait
from tests.apitools.target import Target, target
from tests.flows.kit import Api, open_api

FLOWS, TOOLS = "/api/v1/flows", "/api/v1/api-tools"
VARIABLE = {"variable_name": "outcome", "json_path": "$.ok"}


def node(node_id: str, kind: str, **data: Any) -> dict[str, Any]:
    return {"id": node_id, "type": kind, "position": {"x": 0, "y": 0}, "data": data}


def edge(source: str, to: str, kind: str = "fallback", **more: Any) -> dict[str, Any]:
    return {"source": source, "target": to, "condition": {"type": kind, **more}}


def equation(variable: str, value: Any, operator: str = "==") -> dict[str, Any]:
    return {"equations": [{"variable": variable, "operator": operator, "value": value}], "operator": "&&"}


def branching(tool_id: str, **data: Any) -> dict[str, Any]:
    """Call the tool, then branch by a variable it sets; failures end in ``sorry``."""
    return {
        "nodes": [
            node("start", "begin"),
            node("call", "tool", **{"tool_id": tool_id, "response_variables": [VARIABLE], **data}),
            node("check", "condition"),
            node("yes", "endCall"),
            node("no", "endCall"),
            node("sorry", "endCall"),
        ],
        "edges": [
            edge("start", "call"),
            edge("call", "check", "ai", prompt="it worked"),
            edge("call", "sorry"),
            edge("check", "yes", "logic", **equation("outcome", True)),
            edge("check", "no"),
        ],
    }


@asynccontextmanager
async def served(folder: Path, *answers: Any) -> AsyncGenerator[tuple[Api, Target]]:
    async with target() as server, open_api(folder, list(answers), reachable_hosts=("127.0.0.1",)) as api:
        yield api, server


async def tool(api: Api, url: str, mode: str = "wait") -> str:
    configuration = {"url": url, "method": "GET"}
    given = {
        "name": "t",
        "input_schema": {"type": "object"},
        "api_configuration": configuration,
        "response_mode": mode,
    }
    return str((await api.post(TOOLS, given)).json["id"])


async def settled(api: Api, run: dict[str, Any]) -> dict[str, Any]:
    """Return a run once it waits or is over."""
    with trio.fail_after(5):
        while run["state"] == "running":
            await trio.sleep(0.01)
            run = (await api.get(f"/api/v1/flow-runs/{run['id']}")).json
    return run


async def run_of(api: Api, graph: dict[str, Any], **body: Any) -> dict[str, Any]:
    saved = await api.post(FLOWS, {"name": "f", "flow": graph})
    assert saved.status == 201, saved.json
    started = await api.post(f"{FLOWS}/{saved.json['id']}/runs", body)
    assert started.status == 201, started.json
    return await settled(api, started.json)


@pytest.mark.parametrize(
    ("path", "end"),
    [("/ok", "yes"), ("/numbers", "no"), ("/down", "sorry"), ("/broken", "sorry"), ("/reset", "sorry")],
)
async def test_a_tool_node_branches_by_its_answer_and_falls_back_on_failure(
    tmp_path: Path, path: str, end: str
) -> None:
    async with served(tmp_path) as (api, server):
        run = await run_of(api, branching(await tool(api, server.url(path))))
        assert (run["state"], run["node_id"]) == ("ended", end)
        assert run["variables"] == ({"outcome": True} if end == "yes" else {})
        record = (await api.get(f"/api/sessions/{run['session_id']}/tool-calls")).json["items"][0]
        assert record["node_id"] == "call"


async def test_background_tools_cannot_set_variables_or_branch(tmp_path: Path) -> None:
    async with served(tmp_path) as (api, server):
        tool_id = await tool(api, server.url("/ok"), "fire_and_forget")
        graph = branching(tool_id)
        refused = await api.post(FLOWS, {"name": "f", "flow": graph})
        assert (refused.status, refused.json["error"]["code"]) == (400, "FLOW_INVALID")
        found = {(each["rule"], each["node_id"]) for each in refused.json["error"]["details"]["errors"]}
        assert found == {("F3", "call"), ("F4", "call")}
        for path in (f"{FLOWS}/validate", "/v3/agents/validate-flow"):
            report = (await api.post(path, {"flow": graph})).json
            assert report["valid"] is False
            assert {(each["rule"], each["node_id"]) for each in report["errors"]} == found
        assert (await api.get(FLOWS)).json["total_count"] == 0


def broken(tool_id: str) -> dict[str, tuple[dict[str, Any], str, str]]:
    """Return graphs with one fault each: graph, rule, node."""
    good = branching(tool_id)

    def with_nodes(*nodes: dict[str, Any]) -> dict[str, Any]:
        changed = {each["id"]: each for each in (*good["nodes"], *nodes)}
        return {**good, "nodes": list(changed.values())}

    def with_edges(*edges: dict[str, Any]) -> dict[str, Any]:
        return {**good, "edges": [*good["edges"], *edges]}

    return {
        "no tool": (branching(""), "F1", "call"),
        "unknown tool": (branching("nope"), "F1", "call"),
        "own mode": (branching(tool_id, response_mode="wait"), "F2", "call"),
        "logic at the tool": (
            with_edges(edge("call", "no", "logic", **equation("outcome", 1))),
            "F9",
            "call",
        ),
        "two begins": (with_nodes(node("again", "begin")), "F11", "again"),
        "no position": (with_nodes({"id": "yes", "type": "endCall"}), "F11", "yes"),
        "into begin": (with_edges(edge("check", "start", "logic", **equation("x", 1))), "F11", "start"),
        "out of end": (with_edges(edge("yes", "no")), "F11", "yes"),
        "bad path": (
            branching(tool_id, response_variables=[{"variable_name": "a", "json_path": "$..a"}]),
            "node",
            "call",
        ),
        "bad name": (
            branching(tool_id, response_variables=[{"variable_name": "camelCase", "json_path": "$"}]),
            "node",
            "call",
        ),
        "dangling": (with_edges(edge("check", "nowhere", "logic", **equation("x", 1))), "shape", "check"),
        "old graph": ({"nodes": [], "edges": [], "flowData": {}}, "shape", ""),
        "inline secret": (
            with_nodes(
                node(
                    "call",
                    "api",
                    api_configuration={"url": "https://x/", "method": "GET", "auth_credentials": "s"},
                )
            ),
            "F10",
            "call",
        ),
    }


@pytest.mark.parametrize("fault", broken("t"))
async def test_a_broken_flow_is_refused_with_its_rule_and_node(tmp_path: Path, fault: str) -> None:
    async with served(tmp_path) as (api, server):
        graph, rule, node_id = broken(await tool(api, server.url("/ok")))[fault]
        report = (await api.post(f"{FLOWS}/validate", {"flow": graph})).json
        assert report["valid"] is False
        assert (rule, node_id) in {(each["rule"], each["node_id"]) for each in report["errors"]}
        assert (await api.post(FLOWS, {"name": "f", "flow": graph})).status == 400


async def test_a_tool_cannot_become_background_while_a_flow_needs_its_answer(tmp_path: Path) -> None:
    async with served(tmp_path) as (api, server):
        tool_id = await tool(api, server.url("/ok"))
        flow = (await api.post(FLOWS, {"name": "orders", "flow": branching(tool_id)})).json
        change = {"response_mode": "fire_and_forget"}
        refused = await api.patch(f"{TOOLS}/{tool_id}", change)
        assert refused.status == 409
        assert "orders" in refused.json["error"]["message"]
        assert "call" in refused.json["error"]["message"]
        assert (await api.delete(f"{TOOLS}/{tool_id}")).status == 409
        plain = {
            "nodes": [node("start", "begin"), node("call", "tool", tool_id=tool_id), node("end", "endCall")],
            "edges": [edge("start", "call"), edge("call", "end")],
        }
        path = f"{FLOWS}/{flow['id']}"
        stale = await api.patch(path, {"flow": plain, "expected_flow_revision": 7})
        assert (stale.status, stale.json["error"]["code"]) == (409, "REVISION_CONFLICT")
        assert (await api.patch(path, {"flow": plain, "expected_flow_revision": 1})).json[
            "flow_revision"
        ] == 2
        assert (await api.patch(f"{TOOLS}/{tool_id}", change)).json["response_mode"] == "fire_and_forget"


async def test_a_background_node_goes_on_at_once(tmp_path: Path) -> None:
    async with served(tmp_path) as (api, server):
        tool_id = await tool(api, server.url("/gated"), "fire_and_forget")
        graph = {
            "nodes": [node("start", "begin"), node("call", "tool", tool_id=tool_id), node("end", "endCall")],
            "edges": [edge("start", "call"), edge("call", "end")],
        }
        run = await run_of(api, graph)
        assert (run["state"], run["node_id"]) == ("ended", "end")
        server.release.set()
        await api.runtime.api_tools.caller.drain()


async def test_a_conversation_waits_routes_and_fills_in_variables(tmp_path: Path) -> None:
    graph = {
        "nodes": [
            node("start", "begin"),
            node("ask", "conversation", prompt="Greet {{customer}} and ask for the order number."),
            node(
                "look",
                "api",
                api_configuration={
                    "url": "{{base}}/orders",
                    "method": "POST",
                    "body": {"who": "{{customer}}"},
                },
            ),
            node("bye", "endCall", prompt="Say goodbye."),
            node("sorry", "endCall"),
        ],
        "edges": [
            edge("start", "ask"),
            edge("ask", "look", "ai", prompt="an order number was given"),
            edge("look", "bye", "ai", prompt="it worked"),
            edge("look", "sorry"),
        ],
    }
    answers = (say("Hello Kim!"), say("0"), say("Which number, please?"), say("1"), say("Goodbye."))
    async with served(tmp_path, *answers) as (api, server):
        session = (await api.create()).rpartition("/")[2]
        graph["nodes"][2]["data"]["api_configuration"]["url"] = server.url("/orders")
        run = await run_of(api, graph, session_id=session, variables={"customer": "Kim"})
        assert (run["state"], run["node_id"], run["reply"]) == ("waiting", "ask", "Hello Kim!")
        assert "Greet Kim and ask" in api.model.requests[0].messages[-1].content
        path = f"/api/v1/flow-runs/{run['id']}"
        run = await settled(api, (await api.post(f"{path}/input", {"content": "uh"})).json)
        assert (run["state"], run["node_id"], run["reply"]) == ("waiting", "ask", "Which number, please?")
        run = await settled(api, (await api.post(f"{path}/input", {"content": "ORD-1"})).json)
        assert (run["state"], run["node_id"], run["reply"]) == ("ended", "bye", "Goodbye.")
        assert run["trail"] == ["start", "ask", "look"]
        assert server.seen[0].body == b'{"who":"Kim"}'
        assert (await api.post(f"{path}/input", {"content": "more"})).status == 409


async def test_a_run_is_cancelled_while_it_calls_and_while_it_waits(tmp_path: Path) -> None:
    async with served(tmp_path, say("hi")) as (api, server):
        tool_id = await tool(api, server.url("/hang"))
        flow = (await api.post(FLOWS, {"name": "f", "flow": branching(tool_id)})).json
        run = (await api.post(f"{FLOWS}/{flow['id']}/runs", {})).json
        with trio.fail_after(5):
            while not server.seen:
                await trio.sleep(0.01)
        await api.post(f"/api/v1/flow-runs/{run['id']}/cancel")
        assert (await settled(api, run))["state"] == "cancelled"
        with trio.fail_after(1):
            await server.gone.wait()
        talk = {
            "nodes": [node("start", "begin"), node("ask", "conversation", prompt="Hi")],
            "edges": [edge("start", "ask")],
        }
        waiting = await run_of(api, talk)
        assert waiting["state"] == "waiting"
        assert (await api.post(f"/api/v1/flow-runs/{waiting['id']}/cancel")).json["state"] == "cancelled"
        assert (await api.get("/api/v1/flow-runs/nope")).status == 404


async def test_cancelling_a_flow_cancels_what_its_agent_is_saying(tmp_path: Path) -> None:
    talk = {
        "nodes": [node("start", "begin"), node("ask", "conversation", prompt="Hi")],
        "edges": [edge("start", "ask")],
    }
    async with served(tmp_path, wait(60) + say("late")) as (api, _):
        flow = (await api.post(FLOWS, {"name": "f", "flow": talk})).json
        run = (await api.post(f"{FLOWS}/{flow['id']}/runs", {})).json
        session = api.runtime.session(run["session_id"])
        with trio.fail_after(5):
            while not (await session.view()).streaming or not api.model.requests:
                await trio.sleep(0.01)
            await api.post(f"/api/v1/flow-runs/{run['id']}/cancel")
            assert (await settled(api, run))["state"] == "cancelled"
            while (await session.view()).streaming:
                await trio.sleep(0.01)


async def test_missing_fallbacks_and_unreachable_nodes_are_advice_only(tmp_path: Path) -> None:
    async with served(tmp_path) as (api, server):
        graph = branching(await tool(api, server.url("/ok")))
        graph["edges"] = [each for each in graph["edges"] if each["target"] != "sorry"]
        reports = {
            level: (await api.post(f"{FLOWS}/validate", {"flow": graph, "level": level})).json
            for level in ("critical", "runtime", "all")
        }
        assert all(report["valid"] for report in reports.values())
        rules = {level: [each["rule"] for each in report["advisories"]] for level, report in reports.items()}
        assert rules == {
            "critical": [],
            "runtime": ["unconnected_fallback_transition"],
            "all": ["unconnected_fallback_transition", "unreachable_node"],
        }
