"""Work, gates and the kill switch: slow things beside the mailbox."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from actors.kernel import (
    Actor,
    Address,
    Context,
    Control,
    Failed,
    Finished,
    Gate,
    KillSwitch,
    Kind,
    Outcome,
    Request,
    Stopped,
    Work,
    open_system,
)


class Start(Request[Work], frozen=True):
    run: Callable[[], Awaitable[Any]]
    gate: Gate | None = None


class Ended(Control, frozen=True):
    outcome: Outcome[Any]


class Owner(Actor[Any]):
    def __init__(self, outcomes: list[Outcome[Any]], switches: list[KillSwitch] | None = None) -> None:
        self.outcomes = outcomes
        self.switches = switches

    async def on_start(self, ctx: Context[Any]) -> None:
        if self.switches is not None:
            self.switches.append(ctx.killswitch)

    async def receive(self, message: Any, ctx: Context[Any]) -> object:
        match message:
            case Start(run, gate):
                return ctx.start_work(run, done=Ended, gate=gate)
            case Ended(outcome):
                self.outcomes.append(outcome)
                return None
            case "gate":
                return ctx.gate
            case _:
                return "pong"


class Ping(Request[str], frozen=True): ...


OWNER = Address("owner", "1")


def kinds(outcomes: list[Outcome[Any]], switches: list[KillSwitch] | None = None) -> dict[str, Kind]:
    return {"owner": Kind(lambda _: Owner(outcomes, switches))}


async def test_the_end_of_work_comes_back_as_a_message() -> None:
    outcomes: list[Outcome[Any]] = []

    async def compute() -> int:
        await trio.lowlevel.checkpoint()
        return 42

    async with open_system(kinds(outcomes)) as system:
        await system.ref(OWNER).ask(Start(compute))
        await trio.testing.wait_all_tasks_blocked()
        assert outcomes == [Finished(42)]
        assert system.statistics().works == 0


async def test_the_actor_answers_while_its_work_goes_on() -> None:
    async with open_system(kinds([])) as system:
        ref = system.ref(OWNER)
        work = await ref.ask(Start(trio.sleep_forever))
        assert await ref.ask(Ping()) == "pong"
        assert system.statistics().works == 1
        work.cancel("enough")


async def test_a_bug_in_work_is_an_outcome_and_no_crash(caplog: pytest.LogCaptureFixture) -> None:
    outcomes: list[Outcome[Any]] = []

    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("a bug")

    async with open_system(kinds(outcomes)) as system:
        ref = system.ref(OWNER)
        await ref.ask(Start(fail))
        await trio.testing.wait_all_tasks_blocked()
        (outcome,) = outcomes
        assert isinstance(outcome, Failed)
        assert str(outcome.error) == "a bug"
        assert await ref.ask(Ping()) == "pong"
        assert system.statistics().crashes == 0
    (record,) = caplog.records
    assert (record.levelno, record.__dict__["incident"]) == (logging.ERROR, outcome.incident)


async def test_k8_cancelled_work_reports_its_reason_once_it_has_unwound() -> None:
    outcomes: list[Outcome[Any]] = []
    unwound = False

    async def wait() -> None:
        nonlocal unwound
        try:
            await trio.sleep_forever()
        finally:
            assert outcomes == []
            unwound = True

    async with open_system(kinds(outcomes)) as system:
        work = await system.ref(OWNER).ask(Start(wait))
        await trio.testing.wait_all_tasks_blocked()
        work.cancel("skipped by its owner")
        work.cancel("a later reason")
        await trio.testing.wait_all_tasks_blocked()
    assert unwound
    assert outcomes == [Stopped("skipped by its owner")]


async def test_k8_a_graceful_stop_lets_the_actor_hear_how_its_work_ended() -> None:
    outcomes: list[Outcome[Any]] = []
    async with open_system(kinds(outcomes)) as system:
        ref = system.ref(OWNER)
        await ref.ask(Start(trio.sleep_forever))
        await trio.testing.wait_all_tasks_blocked()
        assert (await ref.stop(5)).reason == "stopped"
        assert outcomes == [Stopped("its actor stops")]


async def test_work_cannot_outlive_its_actor(autojump_clock: trio.testing.MockClock) -> None:
    alive = 0

    async def linger() -> None:
        nonlocal alive
        alive += 1
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 3):
                await trio.sleep(3)
            alive -= 1

    async with open_system(kinds([])) as system:
        ref = system.ref(OWNER)
        for _ in range(3):
            await ref.ask(Start(linger))
        await trio.testing.wait_all_tasks_blocked()
        before = trio.current_time()
        exit_ = await ref.stop(1)
        assert exit_.reason == "cancelled"
        assert alive == 0
        assert trio.current_time() - before == pytest.approx(3)


async def test_k11_the_next_activation_begins_after_the_work_of_the_last_is_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    overlapping = 0

    async def exclusive() -> None:
        nonlocal overlapping
        overlapping += 1
        assert overlapping == 1
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 3):
                await trio.sleep(3)
            overlapping -= 1

    async with open_system(kinds([])) as system, trio.open_nursery() as nursery:
        ref = system.ref(OWNER)
        await ref.ask(Start(exclusive))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(ref.stop, 1)
        await trio.sleep(2)
        await ref.ask(Start(exclusive))
        await trio.testing.wait_all_tasks_blocked()
        assert system.statistics().activations == 2
        assert overlapping == 1


async def test_k14_the_switch_stops_work_started_before_and_after(
    autojump_clock: trio.testing.MockClock,
) -> None:
    outcomes: list[Outcome[Any]] = []
    begun = 0

    async def begin() -> None:
        nonlocal begun
        begun += 1
        await trio.sleep_forever()

    async with open_system(kinds(outcomes)) as system:
        for key in ("1", "2"):
            await system.ref(Address("owner", key)).ask(Start(begin))
        await trio.testing.wait_all_tasks_blocked()
        assert begun == 2
        assert system.killswitch.trip("emergency") == 2
        ref = system.ref(OWNER)
        await ref.ask(Start(begin))
        await trio.testing.wait_all_tasks_blocked()
        assert begun == 2, "not even the first step of work started afterwards runs"
        assert outcomes == [Stopped("emergency")] * 3
        assert await ref.ask(Ping()) == "pong", "the actors live on"
        system.killswitch.reset()
        await ref.ask(Start(begin))
        await trio.testing.wait_all_tasks_blocked()
        assert (begun, system.statistics().works) == (3, 1)


async def test_k14_an_actors_own_switch_spares_the_others() -> None:
    outcomes: list[Outcome[Any]] = []
    switches: list[KillSwitch] = []
    async with open_system(kinds(outcomes, switches)) as system:
        for key in ("1", "2"):
            await system.ref(Address("owner", key)).ask(Start(trio.sleep_forever))
        assert switches[0].trip("this one only") == 1
        await trio.testing.wait_all_tasks_blocked()
        assert outcomes == [Stopped("this one only")]
        assert system.statistics().works == 1


async def test_k14_a_scope_of_a_tripped_switch_is_born_cancelled() -> None:
    root = KillSwitch()
    child = KillSwitch(root)
    with child.scope() as scope:
        assert root.trip("stop") == 1
        await trio.sleep_forever()
    assert scope.cancelled_caught
    with child.scope() as scope:
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert child.reason == "stop"
    root.reset()
    with child.scope() as scope:
        await trio.lowlevel.checkpoint()
    assert not scope.cancelled_caught
    assert (child.reason, root.trip("again")) == (None, 0)


async def test_a_gate_holds_work_at_its_next_step_only() -> None:
    steps = 0
    outcomes: list[Outcome[Any]] = []
    step, gate = trio.Event(), Gate()

    async def run() -> str:
        nonlocal steps
        while steps < 2:
            await gate.wait_open()
            steps += 1
            await step.wait()
        return "done"

    async with open_system(kinds(outcomes)) as system:
        work = await system.ref(OWNER).ask(Start(run, gate))
        assert work.gate is gate
        await trio.testing.wait_all_tasks_blocked()
        gate.close()
        step.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (steps, outcomes) == (1, []), "the step in progress ended, the next one waits"
        gate.open()
        await trio.testing.wait_all_tasks_blocked()
    assert outcomes == [Finished("done")]


async def test_a_gate_is_passable_when_its_ancestors_are() -> None:
    grandparent = Gate()
    parent = Gate(grandparent)
    gate = Gate(parent)
    passed = trio.Event()

    async def wait() -> None:
        await gate.wait_open()
        passed.set()

    for each in (grandparent, parent, gate):
        each.close()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        for each in (gate, grandparent, parent):
            await trio.testing.wait_all_tasks_blocked()
            assert not passed.is_set()
            assert not gate.is_open
            each.open()
        await trio.testing.wait_all_tasks_blocked()
        assert passed.is_set()
        assert gate.is_open


async def test_the_gate_of_work_is_a_child_of_its_actors_gate() -> None:
    async with open_system(kinds([])) as system:
        ref = system.ref(OWNER)
        work = await ref.ask(Start(trio.sleep_forever))
        gate: Gate = await ref.ask("gate")  # type: ignore[arg-type]
        gate.close()
        assert not work.gate.is_open


async def test_a_done_that_fails_is_the_actors_crash(autojump_clock: trio.testing.MockClock) -> None:
    def fail(outcome: Outcome[Any]) -> Any:
        raise RuntimeError(outcome)

    class Careless(Actor[Any]):
        async def receive(self, message: Any, ctx: Context[Any]) -> object:
            ctx.start_work(trio.lowlevel.checkpoint, done=fail)
            return None

    async with open_system({"careless": Kind(lambda _: Careless())}) as system:
        await system.ref(Address("careless", "1")).ask(Ping())
        await trio.sleep(1)
        assert system.statistics().restarts == 1
