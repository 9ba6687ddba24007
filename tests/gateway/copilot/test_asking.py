"""What a session asks its clients: tools, permissions, questions, hooks; and clients that cannot answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actors.testing.model import call, say
from tests.gateway.copilot.kit import QUIET, SHOUT, Client, World, opened

ANSWER = "session.tools.handlePendingToolCall"
DECIDE = "session.permissions.handlePendingPermissionRequest"


def tool_text(world: World) -> str:
    """Return the last tool result that the model was given."""
    return next(m.content for m in reversed(world.model.requests[-1].messages) if m.role == "tool")


async def started(client: Client, tools: list[dict[str, Any]], **options: Any) -> str:
    """Create a session with tools and send the message that makes the model call one."""
    session = await client.create(tools=tools, **options)
    await client.call("session.send", sessionId=session, prompt="go")
    return session


async def test_an_approved_tool_runs_in_the_program(tmp_path: Path) -> None:
    async with opened(tmp_path, [call("shout", {"text": "a"}), say("done")]) as world:
        client = await world.client()
        session = await started(client, [SHOUT])
        asked = await client.event("permission.requested")
        assert asked["permissionRequest"]["kind"] == "custom-tool"
        assert client.of("external_tool.requested") == []
        decision = {"sessionId": session, "requestId": asked["requestId"], "result": {"kind": "approve-once"}}
        assert await client.call(DECIDE, **decision) == {"success": True}
        assert await client.call(DECIDE, **decision) == {"success": False}
        request = (await client.event("external_tool.requested"))["requestId"]
        given = {"sessionId": session, "requestId": request, "result": {"textResultForLlm": "A"}}
        assert await client.call(ANSWER, **given) == {"success": True}
        assert await client.call(ANSWER, **given) == {"success": False}
        await client.event("session.idle")
        assert tool_text(world) == "A"
        order = client.types(stored=False)
        wanted = ["permission.completed", "tool.execution_start", "external_tool.requested"]
        wanted += ["external_tool.completed", "tool.execution_complete", "assistant.turn_end"]
        assert sorted(wanted, key=order.index) == wanted


async def test_a_rejected_tool_does_not_run_and_the_run_goes_on(tmp_path: Path) -> None:
    async with opened(tmp_path, [call("shout"), say("well")]) as world:
        client = await world.client()
        session = await started(client, [SHOUT])
        request = (await client.event("permission.requested"))["requestId"]
        await client.call(
            DECIDE, sessionId=session, requestId=request, result={"kind": "reject", "feedback": "no!"}
        )
        await client.event("session.idle")
        assert client.of("external_tool.requested") == []
        assert client.of("permission.completed")[0]["result"]["kind"] == "denied-interactively-by-user"
        assert "no!" in tool_text(world)


async def test_without_a_permission_handler_the_call_is_denied_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path, [call("shout"), say("well")]) as world:
        client = await world.client()
        session = (await client.call("session.create", requestPermission=False, tools=[SHOUT]))["sessionId"]
        assert await client.ask(session, "go") == "well"
        kind = client.of("permission.completed")[0]["result"]["kind"]
        assert kind == "denied-no-approval-rule-and-could-not-request-from-user"


async def test_a_session_rule_or_approve_all_ends_the_questions(tmp_path: Path) -> None:
    script = [call("shout"), say("1"), call("shout"), say("2")]
    async with opened(tmp_path, script) as world:
        client = await world.client()
        session = await started(client, [SHOUT])
        request = (await client.event("permission.requested"))["requestId"]
        await client.call(
            DECIDE, sessionId=session, requestId=request, result={"kind": "approve-for-session"}
        )
        for count in (1, 2):
            asked = (await client.event("external_tool.requested", count))["requestId"]
            await client.call(ANSWER, sessionId=session, requestId=asked, result="x")
            await client.event("session.idle", count)
            if count == 1:
                await client.call("session.permissions.setApproveAll", sessionId=session)
                await client.call("session.send", sessionId=session, prompt="again")
        assert len(client.of("permission.requested")) == 1


@pytest.mark.parametrize("kind", ["failure", "rejected", "denied", "timeout"])
async def test_a_result_that_is_no_success_fails_the_call_and_reaches_the_model(
    tmp_path: Path, kind: str
) -> None:
    async with opened(tmp_path, [call("shout"), say("ok")]) as world:
        client = await world.client()
        session = await started(client, [QUIET])
        request = (await client.event("external_tool.requested"))["requestId"]
        result = {"textResultForLlm": "went wrong", "resultType": kind}
        await client.call(ANSWER, sessionId=session, requestId=request, result=result)
        await client.event("session.idle")
        assert client.of("tool.execution_complete")[0]["success"] is False
        assert "went wrong" in tool_text(world)


async def test_a_handler_that_raises_is_a_failed_result(tmp_path: Path) -> None:
    async with opened(tmp_path, [call("shout"), say("ok")]) as world:
        client = await world.client()
        session = await started(client, [QUIET])
        request = (await client.event("external_tool.requested"))["requestId"]
        await client.call(ANSWER, sessionId=session, requestId=request, error="ValueError: boom")
        await client.event("session.idle")
        assert "boom" in tool_text(world)


@pytest.mark.parametrize(("kind", "model_calls"), [("success", 1), ("failure", 2)])
async def test_a_terminal_tool_ends_the_run_only_when_it_succeeds(
    tmp_path: Path, kind: str, model_calls: int
) -> None:
    async with opened(tmp_path, [call("shout"), say("ok")]) as world:
        client = await world.client()
        session = await started(client, [{**QUIET, "isTerminal": True}])
        request = (await client.event("external_tool.requested"))["requestId"]
        result = {"textResultForLlm": "end", "resultType": kind}
        await client.call(ANSWER, sessionId=session, requestId=request, result=result)
        await client.event("session.idle")
        assert len(world.model.requests) == model_calls


async def test_abort_during_a_tool_interrupts_it_and_a_late_answer_is_no_success(tmp_path: Path) -> None:
    async with opened(tmp_path, [call("shout"), say("next")]) as world:
        client = await world.client()
        session = await started(client, [QUIET])
        request = (await client.event("external_tool.requested"))["requestId"]
        await client.call("session.abort", sessionId=session)
        await client.event("external_tool.completed")
        await client.event("session.idle")
        assert await client.call(ANSWER, sessionId=session, requestId=request, result="late") == {
            "success": False
        }
        assert await client.ask(session, "go on") == "next"
        assert tool_text(world)


async def test_another_client_can_answer_what_a_vanished_one_was_asked(tmp_path: Path) -> None:
    async with opened(tmp_path, [call("shout"), say("done")]) as world:
        first = await world.client()
        session = await started(first, [QUIET])
        request = (await first.event("external_tool.requested"))["requestId"]
        await first.stream.aclose()
        second = await world.client()
        await second.call("session.resume", sessionId=session, tools=[QUIET], continuePendingWork=True)
        assert await second.call(ANSWER, sessionId=session, requestId=request, result="late but fine") == {
            "success": True
        }
        await second.event("session.idle")
        assert tool_text(world) == "late but fine"


async def test_two_clients_see_the_same_events_and_one_answer_counts(tmp_path: Path) -> None:
    async with opened(tmp_path, [call("shout"), say("done")]) as world:
        first, second = await world.client(), await world.client()
        session = await first.create(tools=[QUIET])
        await second.call("session.resume", sessionId=session, disableResume=True)
        await first.call("session.send", sessionId=session, prompt="go")
        request = (await second.event("external_tool.requested"))["requestId"]
        answers = [
            await client.call(ANSWER, sessionId=session, requestId=request, result="x")
            for client in (first, second)
        ]
        assert answers == [{"success": True}, {"success": False}]
        await second.event("session.idle")
        await first.event("session.idle")
        assert first.types()[1:] == second.types()


async def test_the_model_can_ask_the_person(tmp_path: Path) -> None:
    question = {"question": "Colour?", "choices": ["red", "blue"]}
    async with opened(tmp_path, [call("ask_user", question), say("done")]) as world:
        client = await world.client()
        await started(client, [], requestUserInput=True)
        (request,) = await client.wait(
            lambda: [c for c in client.calls if c["method"] == "userInput.request"]
        )
        assert request["params"]["choices"] == ["red", "blue"]
        await client.reply(request, {"answer": "blue", "wasFreeform": False})
        await client.event("session.idle")
        assert tool_text(world) == "blue"


async def hooks(client: Client, answers: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Answer hook calls, of each type in order, until the session is idle; return them."""
    seen: list[dict[str, Any]] = []
    while not client.of("session.idle"):
        await client.wait(lambda: len(client.calls) > len(seen) or client.of("session.idle"))
        for request in client.calls[len(seen) :]:
            seen.append(request)
            if request["method"] != "hooks.invoke":
                continue
            waiting = answers.get(request["params"]["hookType"], [])
            await client.reply(request, {"output": waiting.pop(0) if waiting else None})
    return [each["params"] for each in seen if each["method"] == "hooks.invoke"]


async def test_a_hook_denies_a_tool_and_the_model_reads_why(tmp_path: Path) -> None:
    async with opened(tmp_path, [call("shout"), say("ok")]) as world:
        client = await world.client()
        await started(client, [QUIET], hooks=True)
        seen = await hooks(
            client, {"preToolUse": [{"permissionDecision": "deny", "permissionDecisionReason": "no"}]}
        )
        assert {"sessionStart", "userPromptSubmitted", "preToolUse", "agentStop"} == {
            e["hookType"] for e in seen
        }
        assert all({"sessionId", "timestamp", "cwd"} <= set(each["input"]) for each in seen)
        assert client.of("external_tool.requested") == []
        assert "Reason: no" in tool_text(world)


async def test_hooks_change_arguments_and_results(tmp_path: Path) -> None:
    changes = {
        "preToolUse": [{"modifiedArgs": {"thought": "new"}}],
        "postToolUse": [{"modifiedResult": "mine"}],
    }
    async with opened(tmp_path, [call("think", {"thought": "old"}), say("ok")]) as world:
        client = await world.client()
        await started(client, [], hooks=True)
        await hooks(client, changes)
        assert client.of("tool.execution_start")[0]["arguments"] == {"thought": "new"}
        assert tool_text(world) == "mine"


async def test_a_stop_hook_that_blocks_gives_one_more_turn(tmp_path: Path) -> None:
    async with opened(tmp_path, [say("a"), say("b")]) as world:
        client = await world.client()
        await started(client, [], hooks=True)
        seen = await hooks(client, {"agentStop": [{"decision": "block", "reason": "check again"}]})
        stops = [each["input"]["stop_hook_active"] for each in seen if each["hookType"] == "agentStop"]
        assert stops == [False, True]
        assert world.model.requests[1].messages[-1].content == "check again"
