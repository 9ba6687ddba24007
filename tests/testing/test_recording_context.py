"""One actor in a recording context, and probes in place of the others."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from actors.errors import NotFound
from actors.kernel import Actor, Address, Context, Failed, Finished, Request, Stopped
from actors.testing.context import RecordingContext
from actors.testing.probe import Probe


class Do(Request[Any], frozen=True):
    what: str


OTHER = Address("other", "1")


async def compute(value: int) -> int:
    await trio.lowlevel.checkpoint()
    return 10 // value


class Subject(Actor[Any]):
    async def receive(self, message: Any, ctx: Context[Any]) -> object:
        match message:
            case Do("ask"):
                return await ctx.resolve(OTHER).ask(Do("question"))
            case Do("work"):
                return ctx.start_work(compute, 2, done=lambda outcome: outcome)
            case Do("failing work"):
                return ctx.start_work(compute, 0, done=lambda outcome: outcome)
            case Do("later"):
                ctx.after(5, Do("tick")).cancel()
                return ctx.after(6, Do("tock"))
            case Do("spawn"):
                return await ctx.spawn(Subject, "child")
            case Do("watch"):
                ctx.watch(ctx.resolve(OTHER))
                return ctx.ref.tell("to myself")
            case _:
                return ctx.passivate()


@pytest.fixture
def ctx() -> RecordingContext[Any]:
    return RecordingContext(Address("subject", "1"))


async def test_asks_are_answered_by_the_tests_probe(ctx: RecordingContext[Any]) -> None:
    probe = ctx.probes[OTHER] = Probe(OTHER, lambda request: f"answer to {request.what}")
    assert await Subject().receive(Do("ask"), ctx) == "answer to question"
    assert probe.received == [Do("question")]


async def test_a_probe_refuses_as_told(ctx: RecordingContext[Any]) -> None:
    def refuse(_: Any) -> Any:
        raise NotFound("no")

    ctx.probes[OTHER] = Probe(OTHER, refuse)
    with pytest.raises(NotFound):
        await Subject().receive(Do("ask"), ctx)


async def test_work_runs_when_the_test_says_so(ctx: RecordingContext[Any]) -> None:
    await Subject().receive(Do("work"), ctx)
    await Subject().receive(Do("failing work"), ctx)
    first, second = ctx.works
    assert await first.run() == Finished(5)
    assert first.stopped("why") == Stopped("why")
    outcome = await second.run()
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ZeroDivisionError)
    ctx.gate.close()
    assert not first.work.gate.is_open


async def test_effects_are_recorded(ctx: RecordingContext[Any]) -> None:
    subject = Subject()
    for what in ("later", "spawn", "watch", "end"):
        await subject.receive(Do(what), ctx)
    assert [(seconds, timer.pending) for seconds, _, timer in ctx.timers] == [(5, False), (6, True)]
    assert isinstance(ctx.spawned["child"], Subject)
    assert ctx.watched == {OTHER}
    assert isinstance(ctx.ref, Probe)
    assert ctx.ref.received == ["to myself"]
    assert ctx.passivated


async def test_a_probe_waits_for_messages() -> None:
    probe = Probe()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(probe.send, 1)
        nursery.start_soon(probe.send, 2)
        assert sorted(await probe.wait_received(2)) == [1, 2]
    assert (await probe.stop(0)).reason == "stopped"
    assert probe.stopped
