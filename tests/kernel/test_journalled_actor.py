"""The invariants that an actor keeps together with its journal: K10, K11 and K13."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from actors.errors import Conflict, Unavailable
from actors.journal.log import Append, EventLog, Head, NewRecord, SequenceConflict
from actors.journal.memory import open_memory
from actors.kernel import Actor, ActorCrashed, Address, Context, Kind, Request, open_system


class Deposit(Request[int], frozen=True):
    amount: int


class Balance(Request[int], frozen=True): ...


class Account(Actor[Any]):
    """State is the fold of its stream; the fence keeps two of them apart."""

    def __init__(self, address: Address, log: EventLog) -> None:
        self.stream = str(address)
        self.log = log
        self.seq = 0
        self.balance = 0

    async def on_start(self, ctx: Context[Any]) -> None:
        for record in await self.log.read(self.stream):
            self.evolve(record.seq, record.data)

    async def receive(self, message: Any, ctx: Context[Any]) -> object:
        match message:
            case Deposit(amount):
                data = str(amount).encode()
                record = NewRecord(seq=self.seq + 1, kind="deposited", data=data, at=0.0)
                await self.log.append(Append(stream=self.stream, expected=self.seq, records=(record,)))
                self.evolve(record.seq, data)
                if amount == 13:
                    raise RuntimeError("a bug after the commit")
                return self.balance
            case _:
                return self.balance

    def evolve(self, seq: int, data: bytes) -> None:
        self.seq = seq
        self.balance += int(data)


ACCOUNT = Address("account", "1")


class Stalling:
    """A journal whose appends wait for a signal, and then work or fail."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.may_commit = trio.Event()
        self.fails = False

    async def append(self, append: Append) -> Head:
        await self.may_commit.wait()
        if self.fails:
            raise Unavailable("the disk is full")
        return await self._log.append(append)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


async def test_k10_after_a_crash_the_state_is_the_fold_of_the_journal(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_memory() as log, open_system({"account": Kind(lambda a: Account(a, log))}) as system:
        ref = system.ref(ACCOUNT)
        assert await ref.ask(Deposit(100)) == 100
        with pytest.raises(ActorCrashed):
            await ref.ask(Deposit(13))
        assert await ref.ask(Balance()) == 113
        assert sum(int(record.data) for record in await log.read(str(ACCOUNT))) == 113


async def test_k10_a_passivated_actor_comes_back_as_it_was(autojump_clock: trio.testing.MockClock) -> None:
    kinds = {"account": Kind(lambda a: Account(a, log), idle_after=5)}
    async with open_memory() as log, open_system(kinds) as system:
        ref = system.ref(ACCOUNT)
        await ref.ask(Deposit(7))
        await trio.sleep(6)
        assert not system.is_active(ACCOUNT)
        assert await ref.ask(Deposit(1)) == 8


async def test_k11_of_two_activations_only_one_can_append(autojump_clock: trio.testing.MockClock) -> None:
    kinds = {"account": Kind(lambda a: Account(a, log))}
    async with open_memory() as log, open_system(kinds) as here, open_system(kinds) as there:
        first, second = here.ref(ACCOUNT), there.ref(ACCOUNT)
        assert await first.ask(Balance()) == await second.ask(Balance()) == 0
        assert await first.ask(Deposit(5)) == 5
        with pytest.raises(Conflict) as caught:
            await second.ask(Deposit(9))
        assert isinstance(caught.value, SequenceConflict)
        assert [record.data for record in await log.read(str(ACCOUNT))] == [b"5"]


async def test_k13_no_reply_before_the_commit() -> None:
    replies: list[int] = []
    async with open_memory() as memory:
        log: Any = Stalling(memory)
        async with (
            open_system({"account": Kind(lambda a: Account(a, log))}) as system,
            trio.open_nursery() as nursery,
        ):

            async def deposit() -> None:
                replies.append(await system.ref(ACCOUNT).ask(Deposit(5)))

            nursery.start_soon(deposit)
            await trio.testing.wait_all_tasks_blocked()
            assert replies == []
            assert await memory.read(str(ACCOUNT)) == []
            log.may_commit.set()
            await trio.testing.wait_all_tasks_blocked()
            assert replies == [5]
            assert len(await memory.read(str(ACCOUNT))) == 1


async def test_k13_a_failed_commit_is_told_and_not_believed(autojump_clock: trio.testing.MockClock) -> None:
    async with open_memory() as memory:
        log: Any = Stalling(memory)
        log.fails = True
        log.may_commit.set()
        async with open_system({"account": Kind(lambda a: Account(a, log))}) as system:
            ref = system.ref(ACCOUNT)
            with pytest.raises(Unavailable, match="disk"):
                await ref.ask(Deposit(5))
            assert await ref.ask(Balance()) == 0
            log.fails = False
            assert await ref.ask(Deposit(6)) == 6
