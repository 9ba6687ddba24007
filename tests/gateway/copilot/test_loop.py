"""The loop as a client sees it: turns, idle, queue, steering, abort, errors, autopilot, and what is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from actors.models.provider import ModelError
from actors.testing.model import call, calls, fail, hang, say, until, wait
from tests.gateway.copilot.kit import QUIET, Refused, opened

TURN = ["assistant.turn_start", "assistant.message", "assistant.turn_end"]


async def test_a_plain_answer_is_one_turn_and_idle_comes_last(tmp_path: Path) -> None:
    async with opened(tmp_path, ["hello"]) as world:
        client = await world.client()
        session = await client.create()
        assert await client.ask(session, "hi") == "hello"
        assert client.types() == ["session.start", "user.message", *TURN]
        assert client.types(stored=False)[-1] == "session.idle"
        usage = client.of("session.usage_info")[0]
        assert min(usage["currentTokens"], usage["tokenLimit"], usage["messagesLength"]) > 0
        assert client.of("assistant.usage")[0]["model"]


async def test_turns_equal_model_calls_and_no_call_is_hidden(tmp_path: Path) -> None:
    script = [call("think", {"thought": "a"}), call("think", {"thought": "b"}), call("nowhere"), say("done")]
    async with opened(tmp_path, script) as world:
        client = await world.client()
        session = await client.create()
        assert await client.ask(session, "go") == "done"
        assert len(world.model.requests) == 4
        types = [line["type"] for line in await world.lines(session)]
        assert types.count("assistant.turn_start") == types.count("assistant.turn_end") == 4
        assert [each["success"] for each in client.of("tool.execution_complete")] == [True, True, False]


async def test_deltas_come_only_when_asked_for_and_make_up_the_message(tmp_path: Path) -> None:
    async with opened(tmp_path, lambda _: say("one two three", chunks=4)) as world:
        client = await world.client()
        quiet, loud = await client.create(), await client.create(streaming=True)
        await client.ask(quiet, "hi")
        assert client.of("assistant.message_delta") == []
        await client.ask(loud, "hi")
        deltas, message = client.of("assistant.message_delta"), client.of("assistant.message")[-1]
        assert len(deltas) > 1
        assert "".join(each["deltaContent"] for each in deltas) == message["content"]
        assert {each["messageId"] for each in deltas} == {message["messageId"]}


async def test_ids_are_unique_and_stored_events_are_a_chain(tmp_path: Path) -> None:
    async with opened(tmp_path, [call("think", {"thought": "a"}), say("x"), say("y")]) as world:
        client = await world.client()
        session = await client.create(streaming=True)
        await client.ask(session, "1")
        await client.ask(session, "2")
        ids = [event["id"] for event in client.events]
        assert len(set(ids)) == len(ids)
        assert all(event["timestamp"] for event in client.events)
        previous = None
        for line in await world.lines(session):
            assert line["parentId"] == previous
            previous = line["id"]


async def test_what_is_read_back_is_what_the_file_holds(tmp_path: Path) -> None:
    async with opened(tmp_path, [say("x")]) as world:
        client = await world.client()
        session = await client.create(streaming=True)
        await client.ask(session, "1")
        events = (await client.call("session.getMessages", sessionId=session))["events"]
        assert events == await world.lines(session)
        assert events[0]["type"] == "session.start"
        assert not any(event.get("ephemeral") for event in events)


async def test_send_answers_before_the_model_does(tmp_path: Path) -> None:
    async with opened(tmp_path, [hang()]) as world:
        client = await world.client()
        session = await client.create()
        message = (await client.call("session.send", sessionId=session, prompt="hi"))["messageId"]
        assert (await client.event("user.message"))["messageId"] == message
        assert client.types(stored=False).count("pending_messages.modified") == 2


async def test_sends_while_busy_run_in_order_with_one_idle(tmp_path: Path) -> None:
    gate = trio.Event()
    async with opened(tmp_path, [until(gate) + say("1"), say("2"), say("3")]) as world:
        client = await world.client()
        session = await client.create()
        await client.call_many(session, ["a", "b", "c"])
        queue = await client.call("session.queue.pendingItems", sessionId=session)
        assert [item["displayText"] for item in queue["items"]] == ["b", "c"]
        gate.set()
        await client.event("session.idle")
        assert [(each["content"], each["delivery"]) for each in client.of("user.message")] == [
            ("a", "idle"),
            ("b", "queued"),
            ("c", "queued"),
        ]
        assert len(client.of("session.idle")) == 1


async def test_steering_is_seen_by_the_next_call_before_what_is_queued(tmp_path: Path) -> None:
    gate = trio.Event()
    async with opened(tmp_path, [until(gate) + call("think", {"thought": "a"}), say("2"), say("3")]) as world:
        client = await world.client()
        session = await client.create()
        await client.call_many(session, ["a", "later"])
        await client.call("session.send", sessionId=session, prompt="now", mode="immediate")
        gate.set()
        await client.event("session.idle")
        assert [each["delivery"] for each in client.of("user.message")] == ["idle", "steering", "queued"]
        assert world.model.requests[1].messages[-1].content == "now"
        with pytest.raises(Refused):
            await client.call(
                "session.send", sessionId=session, prompt="x", mode="immediate", responseFormat={}
            )


async def test_abort_while_streaming_clears_the_queue_and_the_next_send_works(tmp_path: Path) -> None:
    async with opened(tmp_path, [say("par") + hang(), say("next")]) as world:
        client = await world.client()
        session = await client.create(streaming=True)
        await client.call_many(session, ["a", "dropped"])
        await client.event("assistant.message_delta")
        assert (await client.call("session.abort", sessionId=session)) == {"success": True}
        assert (await client.call("session.abort", sessionId=session)) == {"success": True}
        await client.call("session.send", sessionId=session, prompt="b")
        await client.event("session.idle", 2)
        assert [each.get("aborted") for each in client.of("session.idle")] == [True, None]
        assert [each["content"] for each in client.of("user.message")] == ["a", "b"]
        assert client.types().count("assistant.turn_start") == client.types().count("assistant.turn_end") == 2
        assert client.types().index("abort") > client.types().index("assistant.turn_end")


async def test_abort_when_idle_is_a_success_without_events(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        client = await world.client()
        session = await client.create()
        assert (await client.call("session.abort", sessionId=session)) == {"success": True}
        await client.call("session.queue.clear", sessionId=session)
        assert client.types(stored=False) == ["session.start"]


async def test_a_failed_model_gives_an_error_then_idle_and_what_waits_still_runs(tmp_path: Path) -> None:
    error = ModelError("no", kind="authentication", provider="scripted", model="x", status=401)
    async with opened(tmp_path, [wait(0.05) + fail(error), say("fine")]) as world:
        client = await world.client()
        session = await client.create()
        await client.call_many(session, ["a", "b"])
        await client.event("session.idle")
        assert client.of("session.error")[0]["statusCode"] == 401
        assert client.of("assistant.message")[-1]["content"] == "fine"
        types = client.types(stored=False)
        assert types.count("session.idle") == 1
        assert types[types.index("session.error") + 1] == "assistant.turn_end"


async def test_autopilot_nudges_until_the_task_is_complete(tmp_path: Path) -> None:
    script = [say("planning"), call("task_complete", {"summary": "built"})]
    async with opened(tmp_path, script) as world:
        client = await world.client()
        session = await client.create()
        await client.call("session.send", sessionId=session, prompt="build", agentMode="autopilot")
        await client.event("session.idle")
        assert client.of("session.task_complete") == [{"summary": "built", "success": True}]
        assert [each.get("isAutopilotContinuation") for each in client.of("user.message")] == [None, True]
        assert "session.task_complete" in [line["type"] for line in await world.lines(session)]


async def test_autopilot_stops_after_its_last_continuation(tmp_path: Path) -> None:
    async with opened(tmp_path, lambda _: say("still planning")) as world:
        client = await world.client()
        session = await client.create(autopilot={"maxContinues": 2})
        await client.call("session.mode.set", sessionId=session, mode="autopilot")
        await client.call("session.send", sessionId=session, prompt="build")
        await client.event("session.idle")
        assert len(world.model.requests) == 3


async def test_interactive_sessions_are_never_nudged(tmp_path: Path) -> None:
    async with opened(tmp_path, [say("no")]) as world:
        client = await world.client()
        assert await client.ask(await client.create(), "x") == "no"
        assert len(world.model.requests) == 1


async def test_parallel_calls_that_end_in_reverse_are_listed_in_request_order(tmp_path: Path) -> None:
    both = calls([call("shout", {"n": 1}, id="c1"), call("shout", {"n": 2}, id="c2")])
    async with opened(tmp_path, [both, say("done")]) as world:
        client = await world.client()
        session = await client.create(tools=[QUIET])
        await client.call("session.send", sessionId=session, prompt="go")
        await client.event("external_tool.requested", 2)
        asked: list[dict[str, Any]] = client.of("external_tool.requested")
        for each in sorted(asked, key=lambda one: str(one["toolCallId"]), reverse=True):
            await client.call(
                "session.tools.handlePendingToolCall",
                sessionId=session,
                requestId=each["requestId"],
                result=f"result {each['arguments']['n']}",
            )
        await client.event("session.idle")
        results = [m.content for m in world.model.requests[1].messages if m.role == "tool"]
        assert results == ["result 1", "result 2"]
