"""Asking and telling: replies, refusals, bounds and circles."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

from actors.errors import Conflict, NotFound, Unavailable
from actors.kernel import (
    Actor,
    ActorCrashed,
    ActorStopped,
    Address,
    AskCycle,
    Bounds,
    Context,
    Control,
    Kind,
    MailboxFull,
    Request,
    RestartPolicy,
    Unreachable,
    open_system,
)


class Add(Request[int], frozen=True):
    amount: int


class Note(Request[int], Control, frozen=True):
    amount: int


class Fail(Request[int], frozen=True):
    error: Exception


class Hold(Request[str], frozen=True):
    """Keeps the handler busy until the event is set."""

    until: trio.Event


class Counter(Actor[Any]):
    def __init__(self) -> None:
        self.seen: list[int] = []
        self.busy = 0

    async def receive(self, message: Any, ctx: Context[Any]) -> object:
        self.busy += 1
        assert self.busy == 1, "K1"
        try:
            match message:
                case Add(amount) | Note(amount):
                    await trio.lowlevel.checkpoint()
                    self.seen.append(amount)
                    return sum(self.seen)
                case Fail(error):
                    raise error
                case Hold(until):
                    await until.wait()
                    return "held"
                case "seen":
                    return tuple(self.seen)
                case _:
                    raise TypeError(message)
        finally:
            self.busy -= 1


COUNTER = Address("counter", "1")
FAST = RestartPolicy(max_restarts=3, backoff=0.01)
KINDS = {"counter": Kind(lambda _: Counter(), policy=FAST, bounds=Bounds(mail=4, control=2))}


async def test_an_ask_is_answered_with_what_receive_returns() -> None:
    async with open_system(KINDS) as system:
        ref = system.ref(COUNTER)
        assert await ref.ask(Add(2)) == 2
        assert await ref.ask(Add(3)) == 5
        assert system.statistics().activations == 1


async def test_k1_many_askers_are_handled_one_at_a_time() -> None:
    async with open_system({"counter": Kind(lambda _: Counter())}) as system:
        ref = system.ref(COUNTER)
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(ref.ask, Add(1))
        assert await ref.ask(Add(0)) == 100


async def test_k2_tells_of_one_sender_arrive_in_order() -> None:
    seen: list[int] = []

    class Recorder(Actor[Any]):
        async def receive(self, message: Any, ctx: Context[Any]) -> object:
            seen.append(message.amount)
            return None

    async with open_system({"recorder": Kind(lambda _: Recorder(), bounds=Bounds(mail=1000))}) as system:
        ref = system.ref(Address("recorder", "1"))
        for number in range(300):
            ref.tell(Add(number))
        await ref.ask(Add(300))
    assert seen == list(range(301))


async def test_k3_control_overtakes_mail_but_not_the_message_in_progress() -> None:
    until = trio.Event()
    order: list[str] = []
    async with open_system(KINDS) as system, trio.open_nursery() as nursery:
        ref = system.ref(COUNTER)

        async def ask(name: str, message: Request[Any]) -> None:
            await ref.ask(message)
            order.append(name)

        for name, message in {"held": Hold(until), "mail": Add(1), "control": Note(2)}.items():
            nursery.start_soon(ask, name, message)
            await trio.testing.wait_all_tasks_blocked()
        assert order == []
        until.set()
        await trio.testing.wait_all_tasks_blocked()
    assert order == ["held", "control", "mail"]


async def test_k4_everyone_is_answered_when_the_actor_is_cancelled_in_a_handler(
    autojump_clock: trio.testing.MockClock,
) -> None:
    answers: list[str] = []
    async with open_system(KINDS) as system, trio.open_nursery() as nursery:
        ref = system.ref(COUNTER)

        async def ask(message: Request[Any]) -> None:
            with pytest.raises(ActorStopped, match="counter/1"):
                await ref.ask(message)
            answers.append(type(message).__name__)

        for message in (Hold(trio.Event()), Add(1), Note(1)):
            nursery.start_soon(ask, message)
            await trio.testing.wait_all_tasks_blocked()
        exit_ = await ref.stop(1)
        assert exit_.reason == "cancelled"
    assert sorted(answers) == ["Add", "Hold", "Note"]


async def test_k4_everyone_is_answered_when_the_actor_crashes_for_good(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kinds = {"counter": Kind(lambda _: Counter(), policy=RestartPolicy(max_restarts=0))}
    answers: list[str] = []
    until = trio.Event()
    async with open_system(kinds) as system, trio.open_nursery() as nursery:
        ref = system.ref(COUNTER)
        nursery.start_soon(ref.ask, Hold(until))
        await trio.testing.wait_all_tasks_blocked()

        async def ask(message: Request[Any]) -> None:
            with pytest.raises(ActorCrashed) as caught:
                await ref.ask(message)
            answers.append(caught.value.incident)

        for message in (Fail(RuntimeError("a bug")), Add(1), Add(2)):
            nursery.start_soon(ask, message)
            await trio.testing.wait_all_tasks_blocked()
        until.set()
        await trio.testing.wait_all_tasks_blocked()
        assert len(answers) == 3
        assert len(set(answers)) == 1
        assert await ref.ask(Add(7)) == 7, "the next message activates it anew"
    crashes = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.__dict__["incident"] for record in crashes] == answers[:1]


async def test_k4_an_asker_that_left_does_not_disturb_the_actor() -> None:
    until = trio.Event()
    async with open_system(KINDS) as system:
        ref = system.ref(COUNTER)
        with trio.move_on_after(0) as scope:
            await ref.ask(Hold(until))
        assert scope.cancelled_caught
        until.set()
        assert await ref.ask(Add(1)) == 1


async def test_k5_a_flood_is_refused_and_control_still_gets_through() -> None:
    until = trio.Event()
    async with open_system(KINDS) as system, trio.open_nursery() as nursery:
        ref = system.ref(COUNTER)
        nursery.start_soon(ref.ask, Hold(until))
        await trio.testing.wait_all_tasks_blocked()
        refused = 0
        for _ in range(10_000):
            try:
                ref.tell(Add(1))
            except MailboxFull:
                refused += 1
        assert refused == 10_000 - 4
        with pytest.raises(MailboxFull):
            await ref.ask(Add(1))
        nursery.start_soon(ref.ask, Note(100))
        await trio.testing.wait_all_tasks_blocked()
        until.set()
        assert await ref.ask(Note(0)) == 100, "control was handled before the flood"
        assert await ref.ask(Add(0)) == 104, "what was accepted was handled"


async def test_send_waits_for_room() -> None:
    until = trio.Event()
    async with open_system(KINDS) as system, trio.open_nursery() as nursery:
        ref = system.ref(COUNTER)
        nursery.start_soon(ref.ask, Hold(until))
        await trio.testing.wait_all_tasks_blocked()
        sent: list[int] = []

        async def send() -> None:
            for number in range(10):
                await ref.send(Add(1))
                sent.append(number)

        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked()
        assert len(sent) == 4
        until.set()
        await trio.testing.wait_all_tasks_blocked()
        assert len(sent) == 10
        assert await ref.ask(Add(0)) == 10


async def test_k6_a_refusal_goes_to_the_asker_and_is_no_crash() -> None:
    async with open_system(KINDS) as system:
        ref = system.ref(COUNTER)
        await ref.ask(Add(1))
        for _ in range(20):
            with pytest.raises(Conflict, match="busy"):
                await ref.ask(Fail(Conflict("busy")))
        ref.tell(Fail(Conflict("nobody waits for this")))
        assert await ref.ask(Add(1)) == 2, "the state is untouched"
        assert system.statistics().crashes == 0


async def test_k6_a_refused_start_answers_everyone_and_leaves_no_trace() -> None:
    class Absent(Actor[Any]):
        async def on_start(self, ctx: Context[Any]) -> None:
            await trio.lowlevel.checkpoint()
            raise NotFound("there is no such thing", id="7")

        async def receive(self, message: Any, ctx: Context[Any]) -> object:
            raise AssertionError

    errors: list[NotFound] = []
    async with open_system({"absent": Kind(lambda _: Absent())}) as system:
        ref = system.ref(Address("absent", "7"))

        async def ask() -> None:
            with pytest.raises(NotFound) as caught:
                await ref.ask(Add(1))
            errors.append(caught.value)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        statistics = system.statistics()
        assert (statistics.actors, statistics.activations, statistics.crashes) == (0, 1, 0)
    assert [error.fields for error in errors] == [{"id": "7"}] * 5
    assert len({id(error) for error in errors}) == 5, (
        "an exception shared by tasks would mix their tracebacks"
    )


async def test_an_expected_failure_of_the_world_reaches_the_asker_as_it_is() -> None:
    async with open_system(KINDS) as system:
        with pytest.raises(Unavailable, match="disk"):
            await system.ref(COUNTER).ask(Fail(Unavailable("the disk is full")))
        assert system.statistics().crashes == 1


async def test_an_unknown_kind_is_unreachable() -> None:
    async with open_system(KINDS) as system:
        with pytest.raises(Unreachable, match="nonsense"):
            system.ref(Address("nonsense", "1"))


class Relay(Request[int], frozen=True):
    """Asks the rest of the way; the last one answers."""

    way: tuple[str, ...]


class Relayer(Actor[Any]):
    async def receive(self, message: Any, ctx: Context[Any]) -> object:
        match message:
            case Relay((next_, *rest)):
                return await ctx.resolve(Address("relayer", next_)).ask(Relay(tuple(rest)))
            case _:
                return 42


RELAYERS = {"relayer": Kind(lambda _: Relayer())}


@pytest.mark.parametrize("way", [("a",), ("b", "a"), ("b", "c", "a"), ("b", "c", "b")])
async def test_an_ask_that_would_close_a_circle_is_refused_and_names_it(way: tuple[str, ...]) -> None:
    async with open_system(RELAYERS) as system:
        first = system.ref(Address("relayer", "a"))
        with pytest.raises(AskCycle) as caught:
            await first.ask(Relay(way))
        cycle = [address.key for address in caught.value.cycle]
        assert cycle[0] == cycle[-1] == way[-1] or cycle[-1] == (("a", *way)[-2])
        assert all(address in str(caught.value) for address in map(str, caught.value.cycle))
        assert await first.ask(Relay(("b", "c"))) == 42, "all stay usable"
        assert system.statistics().crashes == 0


async def test_two_actors_that_ask_each_other_at_once_are_not_left_waiting() -> None:
    ready = [trio.Event(), trio.Event()]

    class Both(Actor[Any]):
        async def receive(self, message: Any, ctx: Context[Any]) -> object:
            if message == "answer" or not isinstance(message, Relay):
                return 1
            mine = int(ctx.address.key)
            ready[mine].set()
            await ready[1 - mine].wait()
            return await ctx.resolve(Address("both", str(1 - mine))).ask(Add(1))

    results: list[object] = []
    async with open_system({"both": Kind(lambda _: Both())}) as system, trio.open_nursery() as nursery:

        async def ask(key: str) -> None:
            try:
                results.append(await system.ref(Address("both", key)).ask(Relay(())))
            except AskCycle:
                results.append("cycle")

        nursery.start_soon(ask, "0")
        nursery.start_soon(ask, "1")
    assert sorted(map(str, results)) == ["1", "cycle"]


async def test_concurrent_asks_of_one_handler_find_a_circle_too() -> None:
    class Fork(Actor[Any]):
        async def receive(self, message: Any, ctx: Context[Any]) -> object:
            if ctx.address.key != "root":
                return await ctx.resolve(Address("fork", "root")).ask(Add(1))
            caught = 0

            async def ask(key: str) -> None:
                nonlocal caught
                with pytest.raises(AskCycle):
                    await ctx.resolve(Address("fork", key)).ask(Add(1))
                caught += 1

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, "left")
                nursery.start_soon(ask, "right")
            return caught

    async with open_system({"fork": Kind(lambda _: Fork())}) as system:
        assert await system.ref(Address("fork", "root")).ask(Add(1)) == 2


async def test_work_of_an_actor_may_ask_its_owner() -> None:
    class Owner(Actor[Any]):
        result: object = None

        async def receive(self, message: Any, ctx: Context[Any]) -> object:
            match message:
                case Add(amount):
                    ctx.start_work(ctx.ref.ask, Note(amount), done=lambda outcome: outcome)
                    return 0
                case Note(amount):
                    return amount * 2
                case "result":
                    return self.result
                case outcome:
                    self.result = outcome
                    return None

    async with open_system({"owner": Kind(lambda _: Owner())}) as system:
        ref = system.ref(Address("owner", "1"))
        await ref.ask(Add(4))
        await trio.testing.wait_all_tasks_blocked()
        result: Any = await ref.ask("result")  # type: ignore[arg-type]
        assert result.value == 8


async def test_without_the_switch_cycles_are_not_looked_for(autojump_clock: trio.testing.MockClock) -> None:
    async with open_system(RELAYERS, detects_cycles=False, grace=0) as system:
        with trio.move_on_after(5) as scope:
            await system.ref(Address("relayer", "a")).ask(Relay(("a",)))
        assert scope.cancelled_caught
