"""A context that records what an actor does to the world, so that one actor runs in a test without a system."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import trio
from msgspec import Struct

from actors.ids import new_id
from actors.kernel.actor import DEFAULT_POLICY, Actor
from actors.kernel.address import Address
from actors.kernel.gate import Gate
from actors.kernel.killswitch import KillSwitch
from actors.kernel.ref import Ref
from actors.kernel.supervision import RestartPolicy
from actors.kernel.timer import Timer, Timers
from actors.kernel.work import Failed, Finished, Outcome, Stopped, Work, WorkEnded
from actors.testing.probe import Probe

M = TypeVar("M")
N = TypeVar("N")
T = TypeVar("T")


class StartedWork(Struct):
    """Work that the actor started and that has not been run.

    Attributes:
        work: What the actor got for it; its ``gate`` and ``cancel`` are real.
        fn: What would run.
        args: Its arguments.
        done: Makes the actor's message from an outcome.
    """

    work: Work
    fn: Callable[..., Awaitable[Any]]
    args: tuple[object, ...]
    done: Callable[[Outcome[Any]], Any]

    async def run(self) -> Any:
        """Run the work here and now, and return the message its actor would receive."""
        try:
            return self.done(Finished(await self.fn(*self.args)))
        except Exception as error:  # noqa: BLE001 - the same edge as real work
            return self.done(Failed(error, new_id("inc")))

    def stopped(self, reason: str) -> Any:
        """Return the message the actor would receive if the work were cancelled."""
        return self.done(Stopped(reason))


class RecordingContext(Generic[M]):
    """Implements :class:`~actors.kernel.Context`; nothing happens but what the test makes happen.

    Attributes:
        ref: A probe: what the actor tells itself.
        probes: The refs that :meth:`resolve` gave out, by address; put your own in beforehand to answer asks.
        works: Work started, in order; run it with :meth:`StartedWork.run`.
        spawned: Children by key; they were started and receive nothing.
        watched: Addresses watched now.
        timers: Messages for later, as (seconds, message, timer); cancelled ones are not ``pending``.
        passivated: Whether the actor wishes to be passivated.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self.ref: Ref[M] = Probe(address)
        self.gate = Gate()
        self.killswitch = KillSwitch()
        self.probes: dict[Address, Ref[Any]] = {}
        self.works: list[StartedWork] = []
        self.spawned: dict[str, Actor[Any]] = {}
        self.watched: set[Address] = set()
        self.timers: list[tuple[float, M, Timer]] = []
        self.passivated = False
        self._clock = Timers()

    def resolve(self, address: Address) -> Ref[Any]:
        """Return the probe for ``address``."""
        return self.probes.setdefault(address, Probe(address))

    async def spawn(
        self,
        make: Callable[[], Actor[N]],
        key: str,
        policy: RestartPolicy = DEFAULT_POLICY,  # noqa: ARG002 - nothing crashes here
    ) -> Ref[N]:
        """Make and start the child in a context of its own; return a probe for it."""
        child = make()
        address = self.address.child(key)
        await trio.lowlevel.checkpoint()
        await child.on_start(RecordingContext(address))
        self.spawned[key] = child
        return self.resolve(address)

    def start_work(
        self,
        fn: Callable[..., Awaitable[T]],
        *args: object,
        done: Callable[[Outcome[T]], M],
        gate: Gate | None = None,
        name: str = "",
    ) -> Work:
        """Record the work."""
        work = Work(self, Gate(self.gate) if gate is None else gate, name or "work")
        self.works.append(StartedWork(work, fn, args, done))
        return work

    def work_ended(self, work: Work, ended: WorkEnded) -> None:
        """Nothing runs here, so nothing ends."""
        raise AssertionError(f"{work.name} was run outside of StartedWork.run: {ended}")

    def watch(self, ref: Ref[Any]) -> None:
        """Record the watch."""
        self.watched.add(ref.address)

    def unwatch(self, ref: Ref[Any]) -> None:
        """Forget the watch."""
        self.watched.discard(ref.address)

    def after(self, seconds: float, message: M) -> Timer:
        """Record the message; it comes when the test hands it to the actor."""
        timer = Timer(self._clock, lambda: None)
        self.timers.append((seconds, message, timer))
        return timer

    def passivate(self) -> None:
        """Record the wish."""
        self.passivated = True
