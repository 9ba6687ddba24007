"""Refs: handles on actors. A ref made by the system finds the actor anew when it was passivated or stopped."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio
from trio.lowlevel import current_task, wait_task_rescheduled

from actors.kernel.address import Address
from actors.kernel.errors import ActorStopped, AskCycle, MailboxFull
from actors.kernel.mailbox import Asked
from actors.kernel.message import URGENT, Exit, Request

if TYPE_CHECKING:
    from actors.kernel.cell import Cell
    from actors.kernel.system import System

M_contra = TypeVar("M_contra", contravariant=True)
R = TypeVar("R")

acting_cell: ContextVar[Cell | None] = ContextVar("acting_cell", default=None)
"""The cell whose handler is running in this task, or in the task that started this one; None in work and outside."""

_NOT_ACTIVE = Exit("stopped", "not active")


class Ref(Generic[M_contra]):
    """A handle on the actor at ``address``; cheap, hashable, equal to every other ref on that address.

    Args:
        address: The actor's name.
        cell: Where it lives now, if it does.
        system: Where to find it anew; None for a child, which is gone when it is gone.
    """

    __slots__ = ("_cell", "_system", "address")

    def __init__(self, address: Address, cell: Cell | None, system: System | None) -> None:
        self.address = address
        self._cell = cell
        self._system = system

    def tell(self, message: M_contra) -> None:
        """Put ``message`` into the mailbox. At most once: a crash may lose it. Checkpoint: never.

        Raises:
            MailboxFull: the lane is at its bound.
            ActorStopped: a child that is gone, or the system is closing.
        """
        urgent = URGENT[type(message)]
        cell = self._cell
        if cell is None or not cell.mailbox.offer(message, urgent):
            self._deliver(message, urgent)

    async def send(self, message: M_contra) -> None:
        """Like :meth:`tell`, but wait for room. For use downward only: towards those who never wait for the sender.

        Raises:
            ActorStopped: as for :meth:`tell`.
            AskCycle: the receiver waits for the sender.

        Cancellation: the message was not put. Checkpoint: always.
        """
        await trio.lowlevel.checkpoint()
        urgent = URGENT[type(message)]
        while True:
            try:
                self._deliver(message, urgent)
            except MailboxFull:
                cell = self._cell
                assert cell is not None, "only a living actor's mailbox is full"
            else:
                return
            asker = acting_cell.get()
            if asker is not None:
                asker.begin_waiting_for(cell)
            try:
                if await cell.mailbox.put(message, urgent):
                    return
            finally:
                if asker is not None:
                    asker.end_waiting_for(cell)

    async def ask(self, request: Request[R]) -> R:
        """Put ``request`` into the mailbox and wait for its reply.

        Raises:
            Rejected: the actor refused; nothing has happened.
            MailboxFull: the lane is at its bound; nothing has happened.
            ActorStopped: the actor ended before it answered.
            ActorCrashed: the actor failed on this request.
            AskCycle: the actor already waits for the asking one.

        Cancellation: the request is still handled unless it was unread when the actor ends; its reply is dropped.
        Checkpoint: always, unless it raises at once.
        """
        asker = acting_cell.get()
        if asker is not None:
            return await self._ask_within(asker, request)
        asked: Asked[R] = Asked(request, current_task())
        urgent = URGENT[type(request)]
        cell = self._cell
        if cell is None or not cell.mailbox.offer(asked, urgent):
            self._deliver(asked, urgent)
        await wait_task_rescheduled(asked.abandon)
        if asked.error is not None:
            raise asked.error
        reply: R = asked.reply
        return reply

    async def stop(self, grace: float) -> Exit:
        """Ask the actor to end after the message in progress; cancel it after ``grace`` seconds; wait for its end.

        Idempotent (K12). An address that is not active is not activated. Its work is cancelled at once, and within
        the grace the actor still hears how its work ended. Unread mail is answered with ``ActorStopped``.

        Raises:
            AskCycle: an actor may not wait for its own end; let it return and be stopped by another.

        Cancellation: the actor was asked to end, but will not be forced.
        """
        cell = self.current_cell()
        if cell is None:
            await trio.lowlevel.checkpoint()
            return _NOT_ACTIVE
        if acting_cell.get() is cell:
            raise AskCycle((self.address, self.address))
        cell.request_stop()
        with trio.move_on_after(grace):
            return await cell.wait_terminated()
        cell.cancel(f"did not stop within {grace:g} s")
        return await cell.wait_terminated()

    async def wait_terminated(self) -> Exit:
        """Return how the present activation ended, once it has; at once when there is none."""
        cell = self.current_cell()
        if cell is None:
            await trio.lowlevel.checkpoint()
            return _NOT_ACTIVE
        return await cell.wait_terminated()

    def current_cell(self) -> Cell | None:
        """Return the present activation; for the kernel."""
        if self._system is None:
            return self._cell
        return self._system.find(self.address)

    def _deliver(self, item: object, urgent: bool) -> None:
        """Put ``item`` where the actor lives now, activating it when it does not."""
        cell = self._cell
        if cell is None or cell.mailbox.closed:
            if self._system is None:
                raise ActorStopped(self.address, "it has ended")
            self._cell = cell = self._system.activate(self.address)
        cell.mailbox.put_nowait(item, urgent)

    async def _ask_within(self, asker: Cell, request: Request[R]) -> R:
        """Ask on behalf of an actor's handler: note who waits for whom, so that a circle is found before it closes."""
        asked: Asked[R] = Asked(request, current_task())
        urgent = URGENT[type(request)]
        cell = self._cell
        if cell is None or cell.mailbox.closed:
            if self._system is None:
                raise ActorStopped(self.address, "it has ended")
            self._cell = cell = self._system.activate(self.address)
        asker.begin_waiting_for(cell)
        try:
            cell.mailbox.put_nowait(asked, urgent)
            await wait_task_rescheduled(asked.abandon)
        finally:
            asker.end_waiting_for(cell)
        if asked.error is not None:
            raise asked.error
        reply: R = asked.reply
        return reply

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)

    def __repr__(self) -> str:
        return f"<Ref {self.address}>"


AnyRef = Ref[Any]
