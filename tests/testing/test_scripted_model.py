from __future__ import annotations

import pytest
import trio
import trio.testing

from actors.models.provider import (
    Completed,
    Message,
    ModelError,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from actors.testing.model import (
    ScriptedModel,
    ScriptExhaustedError,
    batch,
    call,
    calls,
    fail,
    hang,
    reason,
    say,
    until,
    wait,
)
from actors.testing.strict import check_history

USER = Message("user", "hello")


def request(*messages: Message) -> ModelRequest:
    return ModelRequest(model="m", messages=messages or (USER,))


async def collect(model: ScriptedModel, asked: ModelRequest | None = None) -> list[list[ModelEvent]]:
    async with model.open_stream(asked or request()) as stream:
        return [list(events) async for events in stream]


async def test_say_arrives_in_chunks_and_is_assembled() -> None:
    model = ScriptedModel([say("abcdef", chunks=3)])
    batches = await collect(model)
    assert batches[:-1] == [[TextDelta("ab")], [TextDelta("cd")], [TextDelta("ef")]]
    assert batches[-1] == [
        Completed(Message("assistant", "abcdef"), "stop", Usage(10, 5), model="m", response_id="response_1")
    ]
    assert model.outcomes == ["completed"]


async def test_calls_are_numbered_and_finish_is_tool_calls() -> None:
    model = ScriptedModel(
        [reason("hm", signature="s") + calls([("a", {"x": 1}), call("b", "{bad", id="mine")])]
    )
    batches = await collect(model)
    assert batches[0] == [ReasoningDelta("hm")]
    assert batches[1] == [ToolCallDelta(0, "call_1", "a", '{"x":1}')]
    done = batches[-1][0]
    assert isinstance(done, Completed)
    assert done.finish == "tool_calls"
    assert done.message.tool_calls == (ToolCall("call_1", "a", '{"x":1}'), ToolCall("mine", "b", "{bad"))
    assert (done.message.reasoning, done.message.reasoning_signature) == ("hm", "s")


async def test_function_script_sees_the_request() -> None:
    model = ScriptedModel(lambda asked: asked.messages[-1].content.upper())
    assert (await collect(model))[0] == [TextDelta("HELLO")]
    assert model.requests == [request()]


async def test_ending_overrides_finish_and_usage() -> None:
    model = ScriptedModel([(say("x") + call("t")).ending("length", Usage(1, 2))])
    done = (await collect(model))[-1][0]
    assert isinstance(done, Completed)
    assert (done.finish, done.usage) == ("length", Usage(1, 2))


async def test_fail_after_text_raises_in_iteration() -> None:
    model = ScriptedModel([say("par") + fail(ModelError("x", kind="overloaded"))])
    seen: list[ModelEvent] = []

    async def read() -> None:
        async with model.open_stream(request()) as stream:
            async for events in stream:
                seen.extend(events)

    with pytest.raises(ModelError, match="x"):
        await read()
    assert seen == [TextDelta("par")]
    assert model.outcomes == ["failed"]


async def test_script_that_runs_out_says_which_call() -> None:
    model = ScriptedModel([say("one")])
    await collect(model)
    with pytest.raises(ScriptExhaustedError, match="model call 2"):
        await collect(model)
    model.extend("two")
    assert (await collect(model))[0] == [TextDelta("two")]


async def test_waits_are_on_the_trio_clock(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel([say("ab", chunks=2, every=5) + wait(3)])
    await collect(model)
    assert trio.current_time() == pytest.approx(8, abs=0.01)


async def test_hang_ends_only_by_cancellation(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel([say("a") + hang()])
    with trio.move_on_after(100) as scope:
        await collect(model)
    assert scope.cancelled_caught
    assert model.outcomes == ["abandoned"]


async def test_until_lets_the_test_step_the_model() -> None:
    gate = trio.Event()
    model = ScriptedModel([say("a") + until(gate) + say("b")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(collect, model)
        await model.wait_requests(1)
        await trio.testing.wait_all_tasks_blocked()
        assert model.running == 1
        gate.set()
    assert model.outcomes == ["completed"]


async def test_batch_keeps_events_together() -> None:
    model = ScriptedModel([batch(TextDelta("a"), TextDelta("b"))])
    assert (await collect(model))[0] == [TextDelta("a"), TextDelta("b")]


CALLING = Message("assistant", tool_calls=(ToolCall("1", "t", "{}"), ToolCall("2", "t", "{}")))


def result(call_id: str) -> Message:
    return Message("tool", "ok", tool_call_id=call_id)


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ((Message("system", "s"),), "no user message"),
        ((USER, Message("assistant", "")), "empty message"),
        ((Message("user", ""),), "empty message"),
        ((Message("user", "a\0b"),), "NUL"),
        ((Message("user", "a\ud83db"),), "UTF-8"),
        ((USER, CALLING, result("1")), "at the end: 2"),
        ((USER, CALLING, result("1"), USER, result("2")), "before it: 2"),
        ((USER, CALLING, result("1"), result("1"), result("2")), "no open tool call"),
        ((USER, result("9")), "no open tool call"),
        (
            (USER, Message("assistant", tool_calls=(ToolCall("1", "t"), ToolCall("1", "t"))), result("1")),
            "twice",
        ),
        ((Message("user", "x", tool_calls=(ToolCall("1", "t"),)), result("1")), "outside"),
        ((USER, Message("assistant", tool_calls=(ToolCall("", "t"),)), result("")), "without id"),
    ],
)
async def test_strict_model_refuses_what_vendors_refuse(messages: tuple[Message, ...], problem: str) -> None:
    with pytest.raises(ModelError, match=problem) as caught:
        await collect(ScriptedModel([say("x")]), request(*messages))
    assert caught.value.status == 400


def test_strict_check_accepts_results_in_any_order() -> None:
    check_history(
        (Message("system", "s"), USER, CALLING, result("2"), result("1"), Message("assistant", "ok"))
    )
