"""The system: which actors are alive, how they come to be and how all of them end.

Its nursery is the one place where tasks live that nobody awaits: a requester names an actor but does not parent it.
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

import trio
from msgspec import Struct

from actors.kernel.actor import Actor
from actors.kernel.address import Address
from actors.kernel.cell import Cell, Kind
from actors.kernel.errors import ActorStopped, Unreachable
from actors.kernel.incarnation import Incarnation
from actors.kernel.killswitch import KillSwitch
from actors.kernel.ref import Ref
from actors.kernel.supervision import RestartPolicy
from actors.kernel.timer import Timers
from actors.kernel.work import Outcome, Work

T = TypeVar("T")

log = logging.getLogger("actors.kernel")

_SLICE = 500
"""Actors stopped or cancelled between two checkpoints while closing, so that a large system does not freeze."""


class Directory(Protocol):
    """Where addresses live. The seam for several nodes; one node needs none."""

    def locate(self, address: Address) -> Ref[Any] | None:
        """Return a ref on the node that owns ``address``, or None when this node does."""
        ...


class LocalDirectory:
    """Everything lives here."""

    def locate(self, address: Address) -> Ref[Any] | None:  # noqa: ARG002 - the protocol's signature
        """Return None: this node owns every address."""
        return None


class SystemStatistics(Struct, frozen=True):
    """Counts now (``actors``, ``works``) and since the system was opened (the rest)."""

    actors: int
    works: int
    activations: int
    passivations: int
    crashes: int
    restarts: int
    dead_letters: int


class System:
    """Finds and makes actors. Made by :func:`open_system`.

    Attributes:
        killswitch: Cancels all work of all actors when tripped; every actor's switch is its child.
        detects_cycles: Whether asks that would close a circle are refused.
        timers: For the kernel.
    """

    def __init__(
        self, kinds: Mapping[str, Kind], directory: Directory, nursery: trio.Nursery, *, detects_cycles: bool
    ) -> None:
        self._kinds = dict(kinds)
        self._directory = directory
        self._nursery = nursery
        # Actors and work must not inherit the variables of whoever happens to activate them.
        self._context = contextvars.copy_context()
        self._cells: dict[Address, Cell] = {}
        self._alive = 0
        self._works = 0
        self._activations = 0
        self._passivations = 0
        self._closing = False
        self._emptied: trio.Event | None = None
        self.killswitch = KillSwitch()
        self.timers = Timers()
        self.detects_cycles = detects_cycles
        self.crashes = 0
        self.restarts = 0
        self.dead_letters = 0

    def ref(self, address: Address) -> Ref[Any]:
        """Return a handle on the actor at ``address``. Nothing is activated before its first message.

        Raises:
            Unreachable: no kind of that name is served here.
        """
        remote = self._directory.locate(address)
        if remote is not None:
            return remote
        if address.kind not in self._kinds:
            raise Unreachable(f"no actor kind {address.kind!r} is served here", kind=address.kind)
        return Ref(address, self._cells.get(address), self)

    def is_active(self, address: Address) -> bool:
        """Whether an actor lives at ``address`` now and takes messages."""
        cell = self._cells.get(address)
        return cell is not None and not cell.mailbox.closed

    def addresses(self, kind: str | None = None) -> list[Address]:
        """Return the addresses active now, of one kind or of all; children are not listed."""
        return [address for address in self._cells if kind is None or address.kind == kind]

    def statistics(self) -> SystemStatistics:
        """Return a snapshot of the counters."""
        return SystemStatistics(
            actors=self._alive,
            works=self._works,
            activations=self._activations,
            passivations=self._passivations,
            crashes=self.crashes,
            restarts=self.restarts,
            dead_letters=self.dead_letters,
        )

    async def close(self, grace: float) -> None:
        """Activate nothing any more, ask every actor to end, and cancel those that have not after ``grace`` seconds.

        Idempotent. Cancellation: actors go on ending; the nursery of :func:`open_system` waits for them.
        """
        self._closing = True
        await self._in_slices(lambda cell: cell.request_stop())
        with trio.move_on_after(grace):
            await self._wait_empty()
        if self._cells:
            names = [str(address) for address in self._cells]
            log.warning("actors cancelled at close", extra={"count": len(names), "addresses": names[:20]})
            await self._in_slices(lambda cell: cell.cancel("its system closed"))
        await self._wait_empty()

    # --- for the kernel ---

    def find(self, address: Address) -> Cell | None:
        """Return the present activation of ``address``, also one that is ending."""
        return self._cells.get(address)

    def activate(self, address: Address) -> Cell:
        """Return the cell that takes messages for ``address``, starting it if need be. Checkpoint: never."""
        cell = self._cells.get(address)
        if cell is not None and not cell.mailbox.closed:
            return cell
        if self._closing:
            raise ActorStopped(address, "its system is closing")
        cell = Cell(self, address, self._kinds[address.kind], predecessor=cell)
        self._cells[address] = cell
        self._activations += 1
        self._start(cell)
        return cell

    def start_child(
        self,
        parent: Incarnation[Any],
        address: Address,
        make: Callable[[], Actor[Any]],
        policy: RestartPolicy,
    ) -> Cell:
        """Start a child of ``parent``; it is not in the directory."""
        cell = Cell(self, address, Kind(lambda _: make(), policy), parent=parent)
        self._start(cell)
        return cell

    def start_work(
        self,
        work: Work,
        fn: Callable[..., Awaitable[T]],
        args: tuple[object, ...],
        done: Callable[[Outcome[T]], object],
    ) -> None:
        """Run ``work`` in a task of its own."""
        self._works += 1
        run = partial(work.run, fn, args, done)
        self._context.run(partial(self._nursery.start_soon, run, name=work.name))

    def work_ended(self) -> None:
        """Count a piece of work less."""
        self._works -= 1

    def cell_terminated(self, cell: Cell) -> None:
        """Forget ``cell``, unless a successor has taken its place already."""
        if self._cells.get(cell.address) is cell:
            # Cancelled while it waited for its predecessor: that one is again what a successor must wait for.
            if cell.predecessor is not None and not cell.predecessor.is_terminated:
                self._cells[cell.address] = cell.predecessor
            else:
                del self._cells[cell.address]
        if cell.exit.reason == "passivated":
            self._passivations += 1
        self._alive -= 1
        if self._alive == 0 and self._emptied is not None:
            self._emptied.set()

    def _start(self, cell: Cell) -> None:
        self._alive += 1
        self._context.run(partial(self._nursery.start_soon, cell.run, name=cell.address.key))

    async def _wait_empty(self) -> None:
        while self._alive:
            self._emptied = trio.Event()
            await self._emptied.wait()

    async def _in_slices(self, act: Callable[[Cell], None]) -> None:
        for index, cell in enumerate(tuple(self._cells.values()), 1):
            act(cell)
            if index % _SLICE == 0:
                await trio.lowlevel.checkpoint()


@asynccontextmanager
async def open_system(
    kinds: Mapping[str, Kind],
    directory: Directory | None = None,
    *,
    grace: float = 5.0,
    detects_cycles: bool = True,
) -> AsyncGenerator[System, None]:
    """Open a system for the block. At its end actors are asked to stop and cancelled after ``grace`` seconds.

    Args:
        kinds: Which actors may be activated by address.
        directory: Where addresses live; default: all here.
        grace: See :meth:`System.close`.
        detects_cycles: Refuse asks that would wait for ever. Costs well under a microsecond an ask between actors.

    Cancellation: everything is cancelled at once; so it is when the block raises.
    """
    async with trio.open_nursery() as nursery:
        system = System(kinds, directory or LocalDirectory(), nursery, detects_cycles=detects_cycles)
        nursery.start_soon(system.timers.run, name="timers")
        yield system
        await system.close(grace)
        nursery.cancel_scope.cancel("the system is closed")
