"""A cell: the task in which one incarnation of an actor after another takes messages, and what outlives each of them.

It runs the loop, supervises, settles replies and reports the exit. It decides nothing about restarts (that is
:mod:`actors.kernel.supervision`) and nothing about placement (that is the system).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from math import inf
from typing import TYPE_CHECKING, Any

import trio
from msgspec import Struct
from trio.lowlevel import wait_task_rescheduled

from actors.errors import ActorsError, Rejected
from actors.ids import new_id
from actors.kernel.actor import DEFAULT_POLICY, Actor
from actors.kernel.address import Address
from actors.kernel.errors import ActorCrashed, ActorStopped, AskCycle, another
from actors.kernel.incarnation import Escalation, Incarnation
from actors.kernel.mailbox import Asked, Bounds, Mailbox
from actors.kernel.message import Exit, Stop, Terminated
from actors.kernel.ref import Ref, acting_cell
from actors.kernel.supervision import Escalate, RestartPolicy
from actors.kernel.timer import Timer
from actors.kernel.work import ACTOR_STOPS, WorkEnded

if TYPE_CHECKING:
    from actors.kernel.system import System

log = logging.getLogger("actors.kernel")

_BATCH = range(128)
"""Messages handled between two checkpoints when handlers never wait: enough to be fast, few enough to be fair."""

_RUNNING = Exit("stopped", "still running")


class ChildCrashed(Exception):
    """A child that its parent does not watch ended as crashed; raised in the parent's place of receiving."""


class Kind(Struct, frozen=True):
    """How actors of one kind are made and kept.

    Attributes:
        factory: Makes the actor for an address; called anew for every incarnation.
        policy: How often it may crash.
        bounds: How much mail may wait.
        idle_after: Seconds without a message after which it is passivated; ``inf``: never.
    """

    factory: Callable[[Address], Actor[Any]]
    policy: RestartPolicy = DEFAULT_POLICY
    bounds: Bounds = Bounds()
    idle_after: float = inf


class Cell:
    """The place of one activation.

    Args:
        system: Where it lives.
        address: Its name.
        kind: How to make and keep the actor.
        parent: The incarnation that spawned it; None for actors activated by address.
        predecessor: An activation of the same address that may not be gone yet (K11); it is waited for.
    """

    __slots__ = (
        "_asked",
        "_crash",
        "_crashes",
        "_gone",
        "_idle_since",
        "_idle_timer",
        "_incarnation",
        "_incident",
        "_last_wish",
        "_parent",
        "_refusal",
        "_rest",
        "_scope",
        "_starting",
        "_stop_requested",
        "_waiting_for",
        "_watchers",
        "_why_cancelled",
        "address",
        "exit",
        "has_started",
        "is_terminated",
        "kind",
        "mailbox",
        "predecessor",
        "system",
    )

    def __init__(
        self,
        system: System,
        address: Address,
        kind: Kind,
        parent: Incarnation[Any] | None = None,
        predecessor: Cell | None = None,
    ) -> None:
        self.system = system
        self.address = address
        self.kind = kind
        self.mailbox = Mailbox(address, kind.bounds)
        self.exit = _RUNNING
        self.is_terminated = False
        self.has_started = False
        self._parent = parent
        self.predecessor = predecessor
        self._scope = trio.CancelScope()
        self._why_cancelled = "its system was cancelled"
        self._incarnation: Incarnation[Any] | None = None
        self._asked: Asked[object] | None = None
        self._last_wish: Exit | None = None
        self._stop_requested = False
        self._crash: Exception | None = None
        self._incident = ""
        self._crashes: list[float] | None = None
        self._refusal: Exception | None = None
        self._starting: trio.Event | None = None
        self._rest: trio.CancelScope | None = None
        self._idle_since = inf
        self._idle_timer: Timer | None = None
        self._waiting_for: list[Cell] | None = None
        self._watchers: dict[Incarnation[Any], None] | None = None
        self._gone: trio.Event | None = None

    # --- from outside ---

    def ref(self) -> Ref[Any]:
        """Return a handle on the actor."""
        return Ref(self.address, self, self.system if self._parent is None else None)

    def request_stop(self) -> None:
        """Ask the actor to end after the message in progress. Idempotent."""
        self._stop_requested = True
        self.mailbox.signal(_STOP)
        if self._rest is not None:
            self._rest.cancel("asked to stop")

    def cancel(self, reason: str) -> None:
        """Cancel the handler in progress and end the actor. The first reason stays."""
        if self.predecessor is not None:
            self.predecessor.cancel(reason)
        if not self._scope.cancel_called:
            self._why_cancelled = reason
            self._scope.cancel(reason)

    def passivate_when_idle(self) -> None:
        """End as passivated at the next moment nothing would be lost by it."""
        self._last_wish = self._last_wish or Exit("passivated")
        self.mailbox.wake()

    async def wait_started(self) -> None:
        """Return when ``on_start`` of the first incarnation succeeded, else raise why not.

        Cancellation: the actor is cancelled.
        """
        self._starting = trio.Event()
        try:
            await self._starting.wait()
        finally:
            if not self.has_started:
                self.cancel("its spawner was cancelled")
        if not self.has_started:
            raise self._last_words()

    async def wait_terminated(self) -> Exit:
        """Return the exit once the actor, its work and its children are gone."""
        if not self.is_terminated:
            if self._gone is None:
                self._gone = trio.Event()
            await self._gone.wait()
        else:
            await trio.lowlevel.checkpoint()
        return self.exit

    def add_watcher(self, watcher: Incarnation[Any]) -> None:
        """Tell ``watcher`` when this actor is gone."""
        if self._watchers is None:
            self._watchers = {}
        self._watchers[watcher] = None

    def remove_watcher(self, watcher: Incarnation[Any]) -> None:
        """Do not tell ``watcher``. Idempotent."""
        if self._watchers is not None:
            self._watchers.pop(watcher, None)

    def begin_waiting_for(self, other: Cell) -> None:
        """Note that this actor's handler waits for ``other``.

        Raises:
            AskCycle: ``other`` waits for this actor, directly or through others.
        """
        if self.system.detects_cycles and (path := other.path_to(self)) is not None:
            raise AskCycle([self.address, *(cell.address for cell in path)])
        if self._waiting_for is None:
            self._waiting_for = []
        self._waiting_for.append(other)

    def end_waiting_for(self, other: Cell) -> None:
        """Undo one :meth:`begin_waiting_for`."""
        assert self._waiting_for is not None
        self._waiting_for.remove(other)

    def path_to(self, goal: Cell) -> list[Cell] | None:
        """Return the cells from here to ``goal`` along who waits for whom, or None when there is no way."""
        if self is goal:
            return [self]
        for other in self._waiting_for or ():
            if (path := other.path_to(goal)) is not None:
                return [self, *path]
        return None

    # --- the task ---

    async def run(self) -> None:
        """Live: one incarnation after another, until stopped, idle, cancelled or over the restart budget.

        One long function on purpose: a coroutine between the task and its mailbox would cost every idle actor 200
        bytes and every message a hop.
        """
        acting_cell.set(self)
        mailbox, task = self.mailbox, trio.lowlevel.current_task()
        exit_ = None
        try:
            with self._scope:
                await self._wait_for_predecessor()
                while exit_ is None:
                    ctx = self._incarnation = Incarnation(self)
                    try:
                        receive = await self._start(ctx)
                        if receive is None:
                            exit_ = Exit("stopped", f"refused to start: {self._refusal}")
                            break
                        while exit_ is None:
                            for _ in _BATCH:
                                item = mailbox.take()
                                if item is None:
                                    exit_ = self._may_end(ctx)
                                    break
                                if type(item) is Asked:
                                    # Stays set if receive raises: whoever ends the incarnation settles it (K4).
                                    self._asked = item
                                    try:
                                        item.settle(await receive(item.message, ctx))
                                    except Rejected as refusal:
                                        item.fail(refusal)
                                    self._asked = None
                                elif (
                                    type(item) not in _SIGNALS or (item := self._open(item, ctx)) is not None
                                ):
                                    try:
                                        await receive(item, ctx)
                                    except Rejected as refusal:
                                        self._note_refusal(refusal)
                            else:
                                await trio.lowlevel.checkpoint()
                                continue
                            if exit_ is None:
                                await wait_task_rescheduled(mailbox.park(task))
                    except Exception as error:  # noqa: BLE001 - the cell's edge: a bug ends one incarnation
                        self._report_crash(error)
                    if exit_ is None:
                        exit_ = await self._recover(ctx)
        finally:
            # No await from here on: K4, K8 and K9 hold whatever ended the loop.
            self._end(exit_ or Exit("cancelled", self._why_cancelled))

    async def _wait_for_predecessor(self) -> None:
        if self.predecessor is not None:
            await self.predecessor.wait_terminated()
            self.predecessor = None

    async def _start(self, ctx: Incarnation[Any]) -> Callable[[Any, Any], Awaitable[object]] | None:
        """Make and start the actor; return its ``receive``, or None when it refused to start."""
        actor = self.kind.factory(self.address)
        try:
            await actor.on_start(ctx)
        except Rejected as refusal:
            self._refusal = refusal
            return None
        self.has_started = True
        if self._starting is not None:
            self._starting.set()
        return actor.receive

    async def _recover(self, incarnation: Incarnation[Any]) -> Exit | None:
        """Clear up after a crash and rest. Return None for another incarnation, else the exit."""
        incarnation.end("its actor crashed")
        crashes = self._crashes = [*(self._crashes or ()), trio.current_time()]
        await incarnation.wait_empty()
        if self._is_to_stop():
            return Exit("stopped", f"crashed while stopping; incident {self._incident}")
        if self._parent is not None and not self.has_started:
            return Exit("crashed", f"could not start; incident {self._incident}")
        decision = self.kind.policy.decide(crashes, trio.current_time())
        if isinstance(decision, Escalate):
            return Exit("crashed", f"{decision.crashes} crashes in a row; last incident {self._incident}")
        self.system.restarts += 1
        log.warning(
            "actor restarts",
            extra={"address": str(self.address), "delay": decision.delay, "crashes": len(crashes)},
        )
        with trio.move_on_after(decision.delay) as self._rest:
            await trio.sleep_forever()
        self._rest = None
        return Exit("stopped", "asked to stop while it rested") if self._is_to_stop() else None

    def _is_to_stop(self) -> bool:
        return self._stop_requested

    def _open(self, signal: object, ctx: Incarnation[Any]) -> object | None:
        """Return the actor's message in a kernel signal, or do what it says and return None."""
        if type(signal) is WorkEnded:
            return signal.message()
        if type(signal) is Escalation:
            raise ChildCrashed(f"{signal.address}: {signal.exit.detail}")
        self._begin_to_stop(ctx)
        return None

    def _note_refusal(self, refusal: Rejected) -> None:
        log.debug("told message rejected", extra={"address": str(self.address), "code": refusal.code})

    def _begin_to_stop(self, ctx: Incarnation[Any]) -> None:
        self._last_wish = Exit("stopped")
        self._settle(self.mailbox.close())
        ctx.wind_down(ACTOR_STOPS)

    def _may_end(self, ctx: Incarnation[Any]) -> Exit | None:
        """Nothing to take: return the exit if the actor is to end and nothing is lost by it."""
        if (wish := self._last_wish) is not None:
            needed = ctx.has_dependants if wish.reason == "stopped" else ctx.is_needed
            if not needed:
                return wish
        if self.kind.idle_after != inf:
            self._idle_since = trio.current_time()
            if self._idle_timer is None:
                self._watch_idleness(self._idle_since)
        return None

    def _watch_idleness(self, since: float) -> None:
        self._idle_timer = self.system.timers.at(since + self.kind.idle_after, self._check_idleness)

    def _check_idleness(self) -> None:
        """Passivate if idle for long enough; otherwise look again when that could next be. No await: K9."""
        assert self._incarnation is not None
        now = trio.current_time()
        parked = self.mailbox.is_parked and self.mailbox.is_empty
        if parked and not self._incarnation.is_needed:
            if now - self._idle_since >= self.kind.idle_after:
                self._last_wish = Exit("passivated", f"idle for {self.kind.idle_after:g} s")
                self.mailbox.close()
                self.mailbox.wake()
            else:
                self._watch_idleness(self._idle_since)
        else:
            self._watch_idleness(now)

    def _report_crash(self, error: Exception) -> None:
        """Log the crash once, and answer whoever asked for the message that caused it."""
        self._incident = new_id("inc")
        self._crash = error
        log.error(
            "actor crashed",
            extra={"address": str(self.address), "incident": self._incident},
            exc_info=error,
        )
        self.system.crashes += 1
        if (asked := self._asked) is not None:
            self._asked = None
            asked.fail(self._crash_error())

    def _crash_error(self) -> Exception:
        """Return what askers get for the last crash: an expected failure as it is, a bug without its details."""
        if isinstance(self._crash, ActorsError):
            return another(self._crash)
        return ActorCrashed(self.address, self._incident)

    def _last_words(self) -> Exception:
        """Return a fresh error for one of those the actor leaves without a reply."""
        if self._refusal is not None:
            return another(self._refusal)
        if self.exit.reason == "crashed":
            return self._crash_error()
        return ActorStopped(self.address, self.exit.detail or self.exit.reason)

    def _settle(self, unread: list[object]) -> None:
        dead = 0
        for item in unread:
            if isinstance(item, Asked):
                item.fail(self._last_words())
            elif not isinstance(item, (Stop, Terminated, WorkEnded, Escalation)):
                dead += 1
        if dead:
            self.system.dead_letters += dead
            log.debug("unread messages dropped", extra={"address": str(self.address), "count": dead})

    def _end(self, exit_: Exit) -> None:
        self.exit = exit_
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if (asked := self._asked) is not None:
            self._asked = None
            asked.fail(self._last_words())
        self._settle(self.mailbox.seal())
        if self._starting is not None:
            self._starting.set()
        if (incarnation := self._incarnation) is not None:
            incarnation.end(f"its actor ended: {exit_.reason}")
            if incarnation.has_dependants:
                incarnation.on_empty = self._terminate
                return
        self._terminate()

    def _terminate(self) -> None:
        """Report the exit to everyone concerned in one synchronous step (K8)."""
        self.is_terminated = True
        self.system.cell_terminated(self)
        if self._gone is not None:
            self._gone.set()
        # Before its watchers hear it: a parent that watches does not crash with its child.
        if self._parent is not None:
            self._parent.child_terminated(self)
        watchers, self._watchers = self._watchers, None
        for watcher in watchers or ():
            watcher.watched_terminated(self)


_STOP = Stop()
_SIGNALS = frozenset({Stop, WorkEnded, Escalation})
