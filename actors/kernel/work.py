"""Work: a slow child task of an actor, whose end comes back to the actor as a message."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, Protocol, TypeAlias, TypeVar

import trio
from msgspec import Struct

from actors.ids import new_id
from actors.kernel.address import Address
from actors.kernel.gate import Gate
from actors.kernel.killswitch import KillSwitch

T = TypeVar("T")

log = logging.getLogger("actors.kernel")

ACTOR_STOPS = "its actor stops"
"""The reason of :class:`Stopped` for work that its own actor's end has cancelled."""


class Finished(Struct, Generic[T], frozen=True):
    """The work returned ``value``."""

    value: T


class Failed(Struct, frozen=True):
    """The work raised ``error``; the log has the traceback under ``incident``."""

    error: Exception
    incident: str


class Stopped(Struct, frozen=True):
    """The work was cancelled, or never begun because a kill switch was tripped."""

    reason: str


Outcome: TypeAlias = Finished[T] | Failed | Stopped
"""How a piece of work ended."""


class WorkEnded:
    """Kernel signal: a piece of work is over.

    Attributes:
        message: Makes the actor's message from the outcome. What it raises is the actor's bug.
    """

    __slots__ = ("message",)

    def __init__(self, message: Callable[[], object]) -> None:
        self.message = message


class Owner(Protocol):
    """What work needs of the incarnation it belongs to."""

    @property
    def address(self) -> Address:
        """The actor's name, for logs."""
        ...

    @property
    def killswitch(self) -> KillSwitch:
        """The switch the work is registered with."""
        ...

    def work_ended(self, work: Work, ended: WorkEnded) -> None:
        """Forget ``work`` and put its end into the mailbox; synchronous (K8)."""
        ...


class Work:
    """A turn, a wave, a tool call: anything slower than a journal write. It cannot outlive its actor.

    Attributes:
        gate: The work waits here between its steps; a child of its actor's gate.
        name: For people, in logs and task trees.
    """

    __slots__ = ("_owner", "_reason", "_scope", "gate", "name")

    def __init__(self, owner: Owner, gate: Gate, name: str) -> None:
        self._owner = owner
        self._scope = trio.CancelScope()
        self._reason = ""
        self.gate = gate
        self.name = name

    def cancel(self, reason: str) -> None:
        """Cancel the work; its outcome becomes ``Stopped(reason)``. Idempotent. Checkpoint: never."""
        self._reason = self._reason or reason
        self._scope.cancel(reason)

    async def run(
        self, fn: Callable[..., Awaitable[T]], args: tuple[object, ...], done: Callable[[Outcome[T]], object]
    ) -> None:
        """Run ``fn(*args)`` in the work's scope and report the outcome, whatever it is."""
        outcome: Outcome[T] = Stopped("its system was cancelled")
        try:
            with self._scope:
                # Cancelled before it began: not even its first step may run (K14).
                await trio.lowlevel.checkpoint_if_cancelled()
                outcome = Finished(await fn(*args))
            if self._scope.cancelled_caught:
                outcome = Stopped(self._reason)
        except Exception as error:  # the work's edge: its failure is an outcome, not the actor's crash
            incident = new_id("inc")
            log.exception(
                "work failed",
                extra={"address": str(self._owner.address), "work": self.name, "incident": incident},
            )
            outcome = Failed(error, incident)
        finally:
            self._owner.killswitch.discard(self)
            self._owner.work_ended(self, WorkEnded(partial(done, outcome)))
