"""Crashes: what restarts, what survives, what escalates."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
import trio.testing

from actors.errors import Conflict
from actors.kernel import (
    Actor,
    ActorCrashed,
    ActorStopped,
    Address,
    Bounds,
    Context,
    Escalate,
    Exit,
    Kind,
    Ref,
    Request,
    Restart,
    RestartPolicy,
    Stopped,
    Terminated,
    open_system,
)


class Do(Request[Any], frozen=True):
    what: str


class BugError(Exception):
    """What a programmer did not expect."""


class Worker(Actor[Any]):
    """Counts; crashes when told so. ``lives`` outlasts incarnations, as a journal would."""

    def __init__(self, lives: list[list[str]]) -> None:
        self.seen: list[str] = []
        lives.append(self.seen)

    async def receive(self, message: Any, ctx: Context[Any]) -> object:
        self.seen.append(message.what)
        if message.what.startswith("crash"):
            raise BugError(message.what)
        return len(self.seen)


ADDRESS = Address("worker", "1")


def kinds(lives: list[list[str]], policy: RestartPolicy) -> dict[str, Kind]:
    return {"worker": Kind(lambda _: Worker(lives), policy=policy, bounds=Bounds(mail=100))}


def test_the_policy_doubles_the_rest_and_gives_up_over_budget() -> None:
    policy = RestartPolicy(max_restarts=3, within=60, backoff=0.5, backoff_max=1.5)
    assert [policy.decide([0.0] * n, 1.0) for n in (1, 2, 3, 4)] == [
        Restart(0.5),
        Restart(1.0),
        Restart(1.5),
        Escalate(4),
    ]


def test_the_policy_forgives_what_is_long_ago() -> None:
    policy = RestartPolicy(max_restarts=1, within=10, backoff=0.5)
    assert policy.decide([0.0, 1.0, 2.0, 100.0], 100.0) == Restart(0.5)


async def test_a_crash_costs_only_the_message_that_caused_it(autojump_clock: trio.testing.MockClock) -> None:
    lives: list[list[str]] = []
    async with open_system(kinds(lives, RestartPolicy())) as system:
        ref = system.ref(ADDRESS)
        for number in range(20):
            ref.tell(Do("crash" if number == 2 else str(number)))
        await ref.ask(Do("last"))
    assert lives == [["0", "1", "crash"], [*map(str, range(3, 20)), "last"]]


async def test_a_restart_rests_and_is_logged(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    lives: list[list[str]] = []
    async with open_system(kinds(lives, RestartPolicy(backoff=2.0))) as system:
        ref = system.ref(ADDRESS)
        with pytest.raises(ActorCrashed) as caught:
            await ref.ask(Do("crash"))
        before = trio.current_time()
        assert await ref.ask(Do("again")) == 1
        assert trio.current_time() - before == pytest.approx(2.0)
        assert system.statistics().restarts == 1
    levels = [record.levelno for record in caplog.records]
    assert levels == [logging.ERROR, logging.WARNING]
    crash, restart = (record.__dict__ for record in caplog.records)
    assert (crash["address"], crash["incident"]) == ("worker/1", caught.value.incident)
    assert (restart["address"], restart["delay"]) == ("worker/1", 2.0)


async def test_an_actor_over_budget_ends_alone_and_is_activated_anew(
    autojump_clock: trio.testing.MockClock,
) -> None:
    lives: list[list[str]] = []
    async with open_system(kinds(lives, RestartPolicy(max_restarts=1, backoff=0.1))) as system:
        ref, sibling = system.ref(ADDRESS), system.ref(Address("worker", "2"))
        await sibling.ask(Do("x"))
        for _ in range(2):
            with pytest.raises(ActorCrashed):
                await ref.ask(Do("crash"))
        await trio.testing.wait_all_tasks_blocked()
        assert not system.is_active(ADDRESS)
        assert await sibling.ask(Do("y")) == 2, "the sibling's state is untouched"
        assert await ref.ask(Do("z")) == 1


async def test_each_sibling_has_its_own_budget(autojump_clock: trio.testing.MockClock) -> None:
    lives: list[list[str]] = []
    async with open_system(kinds(lives, RestartPolicy(max_restarts=1))) as system:
        for number in range(5):
            with pytest.raises(ActorCrashed):
                await system.ref(Address("worker", str(number))).ask(Do("crash"))
        for number in range(5):
            assert await system.ref(Address("worker", str(number))).ask(Do("x")) == 1
        assert system.statistics().activations == 5


async def test_a_start_that_fails_is_tried_again_while_mail_waits(
    autojump_clock: trio.testing.MockClock,
) -> None:
    attempts = 0

    class Flaky(Worker):
        async def on_start(self, ctx: Context[Any]) -> None:
            nonlocal attempts
            attempts += 1
            if attempts < 3:
                raise BugError("not yet")

    async with open_system({"flaky": Kind(lambda _: Flaky([]))}) as system:
        assert await system.ref(Address("flaky", "1")).ask(Do("x")) == 1
    assert attempts == 3


async def test_a_factory_that_fails_answers_the_asker(autojump_clock: trio.testing.MockClock) -> None:
    def make(address: Address) -> Actor[Any]:
        raise BugError(address.key)

    async with open_system({"broken": Kind(make, policy=RestartPolicy(max_restarts=1))}) as system:
        with pytest.raises(ActorCrashed):
            await system.ref(Address("broken", "1")).ask(Do("x"))


async def test_a_resting_actor_stops_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with open_system(kinds([], RestartPolicy(backoff=100, backoff_max=100))) as system:
        ref = system.ref(ADDRESS)
        with pytest.raises(ActorCrashed):
            await ref.ask(Do("crash"))
        await trio.testing.wait_all_tasks_blocked()
        before = trio.current_time()
        assert (await ref.stop(50)).reason == "stopped"
        assert trio.current_time() == before


class Parent(Actor[Any]):
    """Spawns a worker, and tells what it hears."""

    def __init__(self, watches: bool, lives: list[str], heard: list[Terminated]) -> None:
        self.watches = watches
        self.heard = heard
        lives.append("born")

    async def receive(self, message: Any, ctx: Context[Any]) -> object:
        match message:
            case Do("spawn"):
                child = await ctx.spawn(lambda: Worker([]), "child", RestartPolicy(max_restarts=0))
                if self.watches:
                    ctx.watch(child)
                return child
            case Do("refused"):
                return await ctx.spawn(lambda: Unwilling(Conflict("no")), "refused")
            case Do("broken"):
                return await ctx.spawn(lambda: Unwilling(BugError("no")), "broken")
            case Do():
                return message.what
            case _:
                assert isinstance(message, Terminated)
                self.heard.append(message)
                return None


class Unwilling(Actor[Any]):
    def __init__(self, error: Exception) -> None:
        self.error = error

    async def on_start(self, ctx: Context[Any]) -> None:
        raise self.error

    async def receive(self, message: Any, ctx: Context[Any]) -> object:
        raise AssertionError


PARENT = Address("parent", "1")


@pytest.mark.parametrize("watches", [False, True])
async def test_a_childs_last_crash_is_its_parents_unless_watched(
    watches: bool, autojump_clock: trio.testing.MockClock
) -> None:
    lives: list[str] = []
    heard: list[Terminated] = []
    async with open_system({"parent": Kind(lambda _: Parent(watches, lives, heard))}) as system:
        parent = system.ref(PARENT)
        child: Ref[Any] = await parent.ask(Do("spawn"))
        assert str(child.address) == "parent/1/child"
        assert await child.ask(Do("x")) == 1
        with pytest.raises(ActorCrashed):
            await child.ask(Do("crash"))
        assert await parent.ask(Do("alive?")) == "alive?"
        with pytest.raises(ActorStopped):
            child.tell(Do("gone"))
        await parent.ask(Do("spawn"))  # the key is free again
    assert len(lives) == (1 if watches else 2)
    assert [(each.address, each.exit.reason) for each in heard[:1]] == (
        [(child.address, "crashed")] if watches else []
    )


async def test_a_bad_start_is_the_spawners_exception(autojump_clock: trio.testing.MockClock) -> None:
    lives: list[str] = []
    async with open_system({"parent": Kind(lambda _: Parent(False, lives, []))}) as system:
        parent = system.ref(PARENT)
        with pytest.raises(Conflict, match="no"):
            await parent.ask(Do("refused"))
        await parent.ask(Do("spawn"))
        with pytest.raises(Conflict, match="child"):
            await parent.ask(Do("spawn"))
        assert lives == ["born"], "refusals are no crashes"
        with pytest.raises(ActorCrashed):
            await parent.ask(Do("broken"))


async def test_children_end_with_their_parent() -> None:
    async with open_system({"parent": Kind(lambda _: Parent(False, [], []))}) as system:
        parent = system.ref(PARENT)
        child: Ref[Any] = await parent.ask(Do("spawn"))
        assert system.statistics().actors == 2
        assert await parent.stop(1) == Exit("stopped")
        assert (await child.wait_terminated()).reason in {"stopped", "cancelled"}
        assert system.statistics().actors == 0


async def test_work_of_a_dead_incarnation_is_over_before_the_next_begins(
    autojump_clock: trio.testing.MockClock,
) -> None:
    events: list[str] = []

    class Busy(Actor[Any]):
        async def on_start(self, ctx: Context[Any]) -> None:
            events.append("start")

        async def receive(self, message: Any, ctx: Context[Any]) -> object:
            match message:
                case Do("work"):
                    ctx.start_work(self.work, done=lambda outcome: outcome)
                    ctx.after(50, Do("timer of a dead incarnation"))
                case Do("crash"):
                    raise BugError
                case Stopped() | Do("timer of a dead incarnation"):
                    events.append(f"heard {message}")
                case _:
                    return None

        async def work(self) -> None:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
                    await trio.sleep(5)
                events.append("work over")

    async with open_system({"busy": Kind(lambda _: Busy())}, grace=100) as system:
        ref = system.ref(Address("busy", "1"))
        await ref.ask(Do("work"))
        await trio.testing.wait_all_tasks_blocked()
        ref.tell(Do("crash"))
        await ref.ask(Do("ping"))
        await trio.sleep(100)
    assert events == ["start", "work over", "start"]
