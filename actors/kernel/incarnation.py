"""One life of an actor between two crashes: its Context, and everything that must not outlive it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

from actors.errors import Conflict
from actors.kernel.actor import DEFAULT_POLICY, Actor
from actors.kernel.address import Address
from actors.kernel.errors import ActorStopped
from actors.kernel.gate import Gate
from actors.kernel.killswitch import KillSwitch
from actors.kernel.message import URGENT, Exit, Terminated
from actors.kernel.ref import Ref
from actors.kernel.supervision import RestartPolicy
from actors.kernel.timer import Timer
from actors.kernel.work import Outcome, Work, WorkEnded

if TYPE_CHECKING:
    from actors.kernel.cell import Cell

M = TypeVar("M")
N = TypeVar("N")
T = TypeVar("T")


class Escalation:
    """Kernel signal: a child is gone as crashed and nobody watches it."""

    __slots__ = ("address", "exit")

    def __init__(self, address: Address, exit: Exit) -> None:  # noqa: A002 - the field's word
        self.address = address
        self.exit = exit


class Incarnation(Generic[M]):
    """Implements :class:`~actors.kernel.actor.Context` for one life of a cell's actor.

    Args:
        cell: Whose life this is.
    """

    __slots__ = (
        "_cell",
        "_children",
        "_ended",
        "_gate",
        "_killswitch",
        "_timers",
        "_watched",
        "_works",
        "on_empty",
    )

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._ended = False
        # Most actors never need most of these, and there are many idle actors: made when first used.
        self._works: set[Work] | None = None
        self._timers: list[Timer] | None = None
        self._children: dict[str, Cell] | None = None
        self._watched: dict[Address, Cell] | None = None
        self._gate: Gate | None = None
        self._killswitch: KillSwitch | None = None
        self.on_empty: Callable[[], None] | None = None

    # --- what the actor sees: see Context ---

    @property
    def address(self) -> Address:
        """See :class:`~actors.kernel.actor.Context`."""
        return self._cell.address

    @property
    def ref(self) -> Ref[M]:
        """See :class:`~actors.kernel.actor.Context`."""
        return self._cell.ref()

    @property
    def gate(self) -> Gate:
        """See :class:`~actors.kernel.actor.Context`."""
        if self._gate is None:
            self._gate = Gate()
        return self._gate

    @property
    def killswitch(self) -> KillSwitch:
        """See :class:`~actors.kernel.actor.Context`."""
        if self._killswitch is None:
            self._killswitch = KillSwitch(self._cell.system.killswitch)
        return self._killswitch

    def resolve(self, address: Address) -> Ref[Any]:
        """See :class:`~actors.kernel.actor.Context`."""
        return self._cell.system.ref(address)

    async def spawn(
        self, make: Callable[[], Actor[N]], key: str, policy: RestartPolicy = DEFAULT_POLICY
    ) -> Ref[N]:
        """See :class:`~actors.kernel.actor.Context`."""
        self._check_alive()
        if self._children is None:
            self._children = {}
        if key in self._children:
            raise Conflict(f"{self.address} has a child named {key!r} already")
        child = self._cell.system.start_child(self, self.address.child(key), make, policy)
        self._children[key] = child
        await child.wait_started()
        return child.ref()

    def start_work(
        self,
        fn: Callable[..., Awaitable[T]],
        *args: object,
        done: Callable[[Outcome[T]], M],
        gate: Gate | None = None,
        name: str = "",
    ) -> Work:
        """See :class:`~actors.kernel.actor.Context`."""
        self._check_alive()
        work = Work(self, Gate(self.gate) if gate is None else gate, name or getattr(fn, "__name__", "work"))
        if self._works is None:
            self._works = set()
        self._works.add(work)
        self.killswitch.add(work)
        self._cell.system.start_work(work, fn, args, done)
        return work

    def watch(self, ref: Ref[Any]) -> None:
        """See :class:`~actors.kernel.actor.Context`."""
        self._check_alive()
        if self._watched is not None and ref.address in self._watched:
            return
        target = ref.current_cell()
        if target is None or target.is_terminated:
            gone = Exit("stopped", "not active") if target is None else target.exit
            self._cell.mailbox.signal(Terminated(ref.address, gone))
            return
        if self._watched is None:
            self._watched = {}
        self._watched[ref.address] = target
        target.add_watcher(self)

    def unwatch(self, ref: Ref[Any]) -> None:
        """See :class:`~actors.kernel.actor.Context`."""
        if self._watched and (target := self._watched.pop(ref.address, None)) is not None:
            target.remove_watcher(self)

    def after(self, seconds: float, message: M) -> Timer:
        """See :class:`~actors.kernel.actor.Context`."""
        self._check_alive()
        if self._timers is None:
            self._timers = []
        self._timers = [timer for timer in self._timers if timer.pending]
        timer = self._cell.system.timers.at(
            trio.current_time() + seconds,
            partial(self._cell.mailbox.deliver, message, URGENT[type(message)]),
        )
        self._timers.append(timer)
        return timer

    def passivate(self) -> None:
        """See :class:`~actors.kernel.actor.Context`."""
        self._check_alive()
        self._cell.passivate_when_idle()

    # --- what the kernel does with it ---

    @property
    def has_dependants(self) -> bool:
        """Whether work or children are alive, also after the end."""
        return bool(self._works or self._children)

    @property
    def is_needed(self) -> bool:
        """Whether something in memory only would be lost by passivation."""
        return bool(
            self._works
            or self._children
            or self._watched
            or any(timer.pending for timer in self._timers or ())
        )

    def work_ended(self, work: Work, ended: WorkEnded) -> None:
        """Implement :class:`~actors.kernel.work.Owner`."""
        assert self._works is not None
        self._works.discard(work)
        self._cell.system.work_ended()
        if not self._ended:
            self._cell.mailbox.signal(ended)
        self._dependant_left()

    def child_terminated(self, child: Cell) -> None:
        """Forget ``child``; a crash nobody watches is this incarnation's, too."""
        assert self._children is not None
        del self._children[child.address.key.removeprefix(f"{self.address.key}/")]
        watched = self._watched is not None and child.address in self._watched
        if not self._ended and child.exit.reason == "crashed" and child.has_started and not watched:
            self._cell.mailbox.signal(Escalation(child.address, child.exit))
        self._dependant_left()

    def watched_terminated(self, cell: Cell) -> None:
        """Tell the actor that ``cell``, which it watches, is gone."""
        if (
            self._watched is not None
            and self._watched.pop(cell.address, None) is not None
            and not self._ended
        ):
            self._cell.mailbox.signal(Terminated(cell.address, cell.exit))

    def wind_down(self, reason: str) -> None:
        """Cancel work and timers and stop the children; the actor still hears how its work ended."""
        for timer in self._timers or ():
            timer.cancel()
        for work in tuple(self._works or ()):
            work.cancel(reason)
        for child in tuple((self._children or {}).values()):
            child.request_stop()

    def end(self, reason: str) -> None:
        """Cancel everything that belongs to this life; nothing of it reaches the mailbox any more. Idempotent."""
        self._ended = True
        self.wind_down(reason)
        for child in tuple((self._children or {}).values()):
            child.cancel(reason)
        watched, self._watched = self._watched, None
        for target in (watched or {}).values():
            target.remove_watcher(self)

    async def wait_empty(self) -> None:
        """Wait until no work and no child is left. Checkpoint: only when there are some."""
        if self.has_dependants:
            emptied = trio.Event()
            self.on_empty = emptied.set
            await emptied.wait()

    def _dependant_left(self) -> None:
        if not self.has_dependants:
            if self.on_empty is not None:
                on_empty, self.on_empty = self.on_empty, None
                on_empty()
            elif not self._ended:
                self._cell.mailbox.wake()

    def _check_alive(self) -> None:
        if self._ended:
            raise ActorStopped(self.address, "this incarnation has ended")
