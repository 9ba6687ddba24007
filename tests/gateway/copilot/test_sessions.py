"""Sessions across clients, doors and restarts: resume, delete, options, what is lent."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.testing.model import call, say
from tests.gateway.copilot.kit import QUIET, Refused, opened


async def test_a_restarted_server_resumes_with_the_whole_history(tmp_path: Path) -> None:
    async with opened(tmp_path, [say("blue")], database=True) as world:
        client = await world.client()
        session = await client.create()
        await client.ask(session, "My colour is blue")
        before = await world.lines(session)
    async with opened(tmp_path, [say("blue!")], database=True) as world:
        client = await world.client()
        await client.call("session.resume", sessionId=session)
        resumed = await client.event("session.resume")
        assert (resumed["sessionWasActive"], resumed["eventCount"]) == (False, len(before))
        await client.ask(session, "Which colour?")
        assert "My colour is blue" in [m.content for m in world.model.requests[0].messages]
        assert (await world.lines(session))[: len(before)] == before


async def test_an_events_file_that_was_damaged_is_made_again(tmp_path: Path) -> None:
    async with opened(tmp_path, [say("x")], database=True) as world:
        client = await world.client()
        session = await client.create()
        await client.ask(session, "hi")
        before = await world.lines(session)
    path = tmp_path / "session-state" / session / "events.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    async with opened(tmp_path, database=True) as world:
        client = await world.client()
        await client.call("session.resume", sessionId=session, disableResume=True)
        assert await world.lines(session) == before


async def test_a_pending_call_of_a_dead_server_is_interrupted_and_late_answers_fail(tmp_path: Path) -> None:
    async with opened(tmp_path, [call("shout")], database=True) as world:
        client = await world.client()
        session = await client.create(tools=[QUIET])
        await client.call("session.send", sessionId=session, prompt="go")
        request = (await client.event("external_tool.requested"))["requestId"]
    async with opened(tmp_path, [say("ok")], database=True) as world:
        client = await world.client()
        await client.call("session.resume", sessionId=session, tools=[QUIET])
        late = await client.call(
            "session.tools.handlePendingToolCall", sessionId=session, requestId=request, result="x"
        )
        assert late == {"success": False}
        assert await client.ask(session, "still there?") == "ok"


async def test_unknown_left_and_deleted_sessions_are_refused(tmp_path: Path) -> None:
    async with opened(tmp_path, [say("x")]) as world:
        client = await world.client()
        with pytest.raises(Refused, match="not found"):
            await client.call("session.resume", sessionId="nowhere")
        session = await client.create()
        await client.ask(session, "hi")
        assert await client.call("session.detach", sessionId=session) == {"success": True}
        assert await client.call("session.destroy", sessionId=session) == {"success": True}
        for method in ("session.send", "session.getMessages"):
            with pytest.raises(Refused, match="not found"):
                await client.call(method, sessionId=session, prompt="x")
        assert (await client.call("session.delete", sessionId=session))["success"] is True
        assert (await client.call("session.delete", sessionId=session))["success"] is False
        assert not (world.directory / session).exists()
        with pytest.raises(Refused, match="not found"):
            await client.call("session.resume", sessionId=session)


async def test_an_id_that_is_no_file_name_leaves_the_disk_alone(tmp_path: Path) -> None:
    async with opened(tmp_path, [say("x")]) as world:
        client = await world.client()
        session = await client.create(sessionId="../../evil")
        assert await client.ask(session, "hi") == "x"
        await world.door.files.settled()
        assert list(tmp_path.parent.glob("**/evil*")) == []


async def test_a_session_of_another_door_can_be_resumed_and_ours_is_listed_there(tmp_path: Path) -> None:
    async with opened(tmp_path, [say("by the library"), say("by the client")]) as world:
        handle = await world.runtime.create_session(title="t")
        assert await handle.ask("first") == "by the library"
        client = await world.client()
        await client.call("session.resume", sessionId=handle.id)
        assert await client.ask(handle.id, "second") == "by the client"
        assert [m.content for m in (await handle.view()).messages if m.role == "user"] == ["first", "second"]
        listed = (await client.call("session.list"))["sessions"]
        assert [each["sessionId"] for each in listed] == [handle.id]


async def test_the_system_message_and_filters_shape_what_the_model_gets(tmp_path: Path) -> None:
    async with opened(tmp_path, lambda _: say("x")) as world:
        client = await world.client()
        both = await client.create(systemMessage={"mode": "append", "content": "Be kind."}, tools=[QUIET])
        await client.ask(both, "hi")
        first = world.model.requests[-1]
        assert "Help." in first.messages[0].content
        assert "Be kind." in first.messages[0].content
        assert {tool.name for tool in first.tools} == {"shout", "think", "shell"} | {
            tool.name
            for tool in first.tools
            if tool.name.startswith(("shell", "run", "list", "view", "stop"))
        }
        only = await client.create(
            systemMessage={"mode": "replace", "content": "Mine."}, tools=[QUIET], availableTools=["custom:*"]
        )
        await client.ask(only, "hi")
        second = world.model.requests[-1]
        assert "Help." not in second.messages[0].content
        assert [tool.name for tool in second.tools] == ["shout"]


async def test_a_custom_agent_works_under_its_own_id_with_its_own_tools(tmp_path: Path) -> None:
    script = [
        call("transfer_task", {"agent": "helper", "task": "t", "expected_output": "o"}),
        say("helped"),
        say("done"),
    ]
    helper = {"name": "helper", "prompt": "You help.", "tools": ["shout"]}
    async with opened(tmp_path, script) as world:
        client = await world.client()
        session = await client.create(
            customAgents=[helper], tools=[QUIET], defaultAgent={"excludedTools": ["shout"]}
        )
        assert await client.ask(session, "go") == "done"
        main, sub = ({tool.name for tool in request.tools} for request in world.model.requests[:2])
        assert "shout" not in main
        assert sub == {"shout"}
        events = [event for event in client.events if "agentId" in event]
        assert events[0]["type"] == "subagent.started"
        assert events[-1]["type"] == "subagent.completed"
        assert "helped" in [event["data"].get("content") for event in events]
        roots = [event for event in client.events if "agentId" not in event]
        assert len([each for each in roots if each["type"] == "assistant.turn_start"]) == 2


async def test_a_model_that_is_not_here_is_replaced_by_the_agents_own(tmp_path: Path) -> None:
    async with opened(tmp_path, [say("x"), say("y")]) as world:
        client = await world.client()
        session = await client.create(model="some-vendors-model")
        assert await client.ask(session, "hi") == "x"
        await client.call("session.model.switchTo", sessionId=session, modelId="scripted/other")
        assert client.of("session.model_change")[0]["newModel"] == "scripted/other"
        await client.ask(session, "again")
        assert world.model.requests[-1].model == "other"
