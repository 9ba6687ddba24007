"""Coming and going: activation, passivation, stopping, watching, timers and the end of a system."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
import trio.testing

from actors.kernel import (
    Actor,
    ActorStopped,
    Address,
    AskCycle,
    Bounds,
    Context,
    Exit,
    Kind,
    Ref,
    Request,
    Terminated,
    Timer,
    open_system,
)


class Do(Request[Any], frozen=True):
    what: str
    argument: Any = None


class Sleeper(Actor[Any]):
    def __init__(self, log: list[Any]) -> None:
        self.log = log
        self.count = 0
        self.timers: list[Timer] = []

    async def on_start(self, ctx: Context[Any]) -> None:
        await trio.lowlevel.checkpoint()
        self.log.append("start")

    async def receive(self, message: Any, ctx: Context[Any]) -> object:
        match message:
            case Do("watch", ref):
                ctx.watch(ref)
                ctx.watch(ref)
            case Do("unwatch", ref):
                ctx.unwatch(ref)
            case Do("after", seconds):
                self.timers.append(ctx.after(seconds, Do("tick")))
            case Do("cancel timers"):
                for timer in self.timers:
                    timer.cancel()
            case Do("passivate"):
                ctx.passivate()
            case Do("work"):
                ctx.start_work(trio.sleep_forever, done=lambda outcome: Do("worked", outcome))
            case Do("hang"):
                await trio.sleep_forever()
            case Do("hold", until):
                await until.wait()
            case Do("stop self"):
                await ctx.ref.stop(1)
            case Terminated() | Do("tick") | Do("worked"):
                self.log.append(message)
            case _:
                self.count += 1
                return self.count
        return None


A, B = Address("sleeper", "a"), Address("sleeper", "b")


def kinds(log: list[Any], idle_after: float = float("inf")) -> dict[str, Kind]:
    return {"sleeper": Kind(lambda _: Sleeper(log), idle_after=idle_after, bounds=Bounds(mail=1000))}


async def test_a_ref_alone_activates_nothing() -> None:
    async with open_system(kinds([])) as system:
        ref = system.ref(A)
        assert not system.is_active(A)
        assert ref == system.ref(A)
        assert len({ref, system.ref(A), system.ref(B)}) == 2
        ref.tell(Do("x"))
        assert system.is_active(A)
        assert system.addresses("sleeper") == [A]
        assert system.addresses("other") == []


async def test_a_burst_of_first_messages_makes_one_activation() -> None:
    log: list[Any] = []
    async with open_system(kinds(log)) as system:
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(system.ref(A).ask, Do("x"))
        assert await system.ref(A).ask(Do("x")) == 101
    assert log == ["start"]


async def test_an_idle_actor_is_passivated_and_its_ref_goes_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    log: list[Any] = []
    async with open_system(kinds(log, idle_after=10)) as system:
        ref = system.ref(A)
        assert await ref.ask(Do("x")) == 1
        await trio.sleep(6)
        assert await ref.ask(Do("x")) == 2
        await trio.sleep(9.9)
        assert system.is_active(A)
        await trio.sleep(0.2)
        assert not system.is_active(A)
        assert await ref.ask(Do("x")) == 1
        assert system.statistics().passivations == 1
    assert log == ["start", "start"]


async def test_k9_asks_at_the_very_edge_of_the_idle_limit_are_all_answered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    answered = 0
    async with open_system(kinds([], idle_after=10)) as system:
        ref = system.ref(A)
        for number in range(100):
            await ref.ask(Do("x"))
            await trio.sleep(10 + (number - 50) * 1e-9)
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(ref.ask, Do("x"))
                ref.tell(Do("x"))
            answered += 1
        statistics = system.statistics()
    assert answered == 100
    assert statistics.passivations > 0
    assert statistics.dead_letters == 0


@pytest.mark.parametrize("reason", ["work", "after", "watch"])
async def test_what_lives_in_memory_only_keeps_an_actor_active(
    reason: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_system(kinds([], idle_after=10)) as system:
        arguments = {"after": 1000, "watch": system.ref(B)}
        await system.ref(B).ask(Do("work"))
        await system.ref(A).ask(Do(reason, arguments.get(reason)))
        await trio.sleep(500)
        assert system.is_active(A)


async def test_an_actor_passivates_itself_when_nothing_waits() -> None:
    log: list[Any] = []
    async with open_system(kinds(log)) as system:
        ref = system.ref(A)
        ref.tell(Do("passivate"))
        assert await ref.ask(Do("x")) == 1, "mail that waits is handled first"
        await trio.testing.wait_all_tasks_blocked()
        assert not system.is_active(A)
        assert await ref.ask(Do("x")) == 1


async def test_a_wish_to_be_passivated_waits_for_work(autojump_clock: trio.testing.MockClock) -> None:
    log: list[Any] = []
    async with open_system(kinds(log)) as system:
        ref = system.ref(A)
        await ref.ask(Do("work"))
        await ref.ask(Do("passivate"))
        await trio.testing.wait_all_tasks_blocked()
        assert system.is_active(A)
        system.killswitch.trip("enough")
        assert await ref.wait_terminated() == Exit("passivated")
        assert len(log) == 2, "the outcome was heard first"


async def test_k12_stop_is_idempotent_and_ends(autojump_clock: trio.testing.MockClock) -> None:
    async with open_system(kinds([])) as system, trio.open_nursery() as nursery:
        ref = system.ref(A)
        assert await ref.stop(1) == Exit("stopped", "not active")
        assert system.statistics().activations == 0
        await ref.ask(Do("x"))
        exits: list[Exit] = []

        async def stop() -> None:
            exits.append(await ref.stop(1))

        for _ in range(3):
            nursery.start_soon(stop)
        await trio.testing.wait_all_tasks_blocked()
        assert exits == [Exit("stopped")] * 3
        assert await ref.stop(1) == Exit("stopped", "not active")


async def test_k12_a_handler_that_hangs_is_cancelled_after_the_grace(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_system(kinds([])) as system, trio.open_nursery() as nursery:
        ref = system.ref(A)

        async def ask() -> None:
            with pytest.raises(ActorStopped, match="did not stop within 7 s"):
                await ref.ask(Do("hang"))

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        before = trio.current_time()
        assert await ref.stop(7) == Exit("cancelled", "did not stop within 7 s")
        assert trio.current_time() - before == pytest.approx(7)


async def test_k4_requests_left_over_by_a_stop_are_answered_and_later_ones_activate_anew() -> None:
    until = trio.Event()
    async with open_system(kinds([])) as system, trio.open_nursery() as nursery:
        ref = system.ref(A)
        refused = 0

        async def ask() -> None:
            nonlocal refused
            with pytest.raises(ActorStopped):
                await ref.ask(Do("x"))
            refused += 1

        nursery.start_soon(ref.ask, Do("hold", until))
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(10):
            nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(2):
            nursery.start_soon(ref.stop, 1)
        await trio.testing.wait_all_tasks_blocked()
        until.set()
        await trio.testing.wait_all_tasks_blocked()
        assert refused == 10
        assert await ref.ask(Do("x")) == 1


async def test_an_actor_may_not_wait_for_its_own_end() -> None:
    async with open_system(kinds([])) as system:
        with pytest.raises(AskCycle):
            await system.ref(A).ask(Do("stop self"))


async def test_a_watcher_hears_of_the_end_once() -> None:
    log: list[Any] = []
    async with open_system(kinds(log)) as system:
        watcher, watched = system.ref(A), system.ref(B)
        await watched.ask(Do("x"))
        await watcher.ask(Do("watch", watched))
        await watched.stop(1)
        await trio.testing.wait_all_tasks_blocked()
        assert log[2:] == [Terminated(B, Exit("stopped"))]


async def test_a_watcher_of_what_is_gone_hears_it_at_once() -> None:
    log: list[Any] = []
    async with open_system(kinds(log)) as system:
        await system.ref(A).ask(Do("watch", system.ref(B)))
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(log[-1], Terminated)
        assert log[-1].address == B


async def test_who_has_unwatched_hears_nothing() -> None:
    log: list[Any] = []
    async with open_system(kinds(log)) as system:
        watcher, watched = system.ref(A), system.ref(B)
        await watched.ask(Do("x"))
        await watcher.ask(Do("watch", watched))
        await watcher.ask(Do("unwatch", watched))
        await watched.stop(1)
        await trio.testing.wait_all_tasks_blocked()
    assert log == ["start", "start"]


async def test_timers_come_in_order_and_can_be_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    log: list[Any] = []
    async with open_system(kinds(log)) as system:
        ref = system.ref(A)
        for seconds in (30, 10, 20):
            await ref.ask(Do("after", seconds))
        await trio.sleep(15)
        assert log == ["start", Do("tick")]
        await trio.sleep(10)
        assert len(log) == 3
        await ref.ask(Do("cancel timers"))
        await trio.sleep(100)
        assert len(log) == 3


async def test_timers_end_with_their_actor(autojump_clock: trio.testing.MockClock) -> None:
    log: list[Any] = []
    async with open_system(kinds(log)) as system:
        ref = system.ref(A)
        await ref.ask(Do("after", 10))
        await ref.stop(1)
        await ref.ask(Do("x"))
        await trio.sleep(100)
    assert log == ["start", "start"]


async def test_many_cancelled_timers_leave_no_garbage(autojump_clock: trio.testing.MockClock) -> None:
    async with open_system(kinds([])) as system:
        timers = [system.timers.at(1e6, lambda: None) for _ in range(1000)]
        for timer in timers:
            timer.cancel()
            timer.cancel()
        assert system.timers.count() < 100


async def test_closing_asks_first_and_cancels_after_the_grace(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    log: list[Any] = []
    async with open_system(kinds(log), grace=3) as system:
        polite, hung = system.ref(A), system.ref(B)
        await polite.ask(Do("work"))
        hung.tell(Do("hang"))
        await trio.testing.wait_all_tasks_blocked()
        before = trio.current_time()
    assert trio.current_time() - before == pytest.approx(3)
    assert log[2].what == "worked"
    (record,) = caplog.records
    assert (record.levelno, record.__dict__["addresses"]) == (logging.WARNING, ["sleeper/b"])


async def test_a_closing_system_activates_nothing() -> None:
    async with open_system(kinds([])) as system:
        ref = system.ref(A)
        await ref.ask(Do("x"))
        await system.close(1)
        with pytest.raises(ActorStopped, match="closing"):
            await ref.ask(Do("x"))
        assert system.statistics().actors == 0


async def test_k4_a_cancelled_system_answers_everyone() -> None:
    errors = 0
    async with trio.open_nursery() as nursery:

        async def ask(ref: Ref[Any]) -> None:
            nonlocal errors
            with pytest.raises(ActorStopped):
                await ref.ask(Do("hang"))
            errors += 1

        with trio.CancelScope() as scope:
            async with open_system(kinds([])) as system:
                for key in ("1", "2"):
                    for _ in range(2):
                        nursery.start_soon(ask, system.ref(Address("sleeper", key)))
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
                await trio.lowlevel.checkpoint()
    assert errors == 4


async def test_k7_a_kernel_under_cancellation_ends() -> None:
    with trio.move_on_after(0) as scope:
        async with open_system(kinds([])) as system:
            await system.ref(A).ask(Do("x"))
            await trio.sleep_forever()
    assert scope.cancelled_caught


def test_addresses_parse_what_they_print() -> None:
    assert Address.parse(str(A.child("x"))) == Address("sleeper", "a/x")
    assert sorted([B, A]) == [A, B]
    for text in ("", "kind", "/key", "kind/"):
        with pytest.raises(ValueError, match="kind/key"):
            Address.parse(text)
