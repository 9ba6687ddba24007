"""The bounded two-lane mailbox of one actor, and the slot in which an asker waits for its reply.

It orders, bounds and parks; it does not know what messages mean. What lies in a lane is a plain message, or an
:class:`Asked` around a request, or one of the cell's own signals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from msgspec import Struct
from trio.lowlevel import Abort, RaiseCancelT, Task, current_task, reschedule, wait_task_rescheduled

from actors.kernel.address import Address
from actors.kernel.errors import ActorStopped, MailboxFull
from actors.kernel.message import Request

R = TypeVar("R")


class Bounds(Struct, frozen=True):
    """How many messages may wait in each lane. Kernel signals are exempt: their number is bounded by their causes."""

    mail: int = 256
    control: int = 64

    def __post_init__(self) -> None:
        if self.mail < 1 or self.control < 1:
            raise ValueError("a lane has room for one message at least")


class MailboxStatistics(Struct, frozen=True):
    """A snapshot: messages waiting per lane, and senders waiting for room."""

    mail: int
    control: int
    senders_waiting: int


class Asked(Struct, Generic[R]):
    """A request and the slot for its reply; the asking task parks on it. Settled exactly once (K4).

    Attributes:
        message: The request.
        task: Who waits; None once settled, or when the asker was cancelled.
        reply: The reply, once settled.
        error: What to raise in the asker instead, once failed.
    """

    message: Request[R]
    task: Task | None
    reply: Any = None
    error: Exception | None = None
    settled: bool = False

    def settle(self, reply: R) -> None:
        """Hand ``reply`` to the asker, if it still waits."""
        assert not self.settled, "K4: a reply is settled once"
        self.settled = True
        self.reply = reply
        if (task := self.task) is not None:
            self.task = None
            reschedule(task)

    def fail(self, error: Exception) -> None:
        """Raise ``error`` in the asker, if it still waits."""
        assert not self.settled, "K4: a reply is settled once"
        self.settled = True
        self.error = error
        if (task := self.task) is not None:
            self.task = None
            reschedule(task)

    def abandon(self, _: RaiseCancelT) -> Abort:
        """Abort function of the waiting asker: the request is still handled, its reply goes nowhere."""
        self.task = None
        return Abort.SUCCEEDED


class _Sender:
    """A task that waits for room, and what it wants to put."""

    __slots__ = ("accepted", "item", "task", "urgent")

    def __init__(self, item: object, urgent: bool) -> None:
        self.item = item
        self.urgent = urgent
        self.task = current_task()
        self.accepted = False


class Mailbox:
    """Two FIFO lanes with one reader, who takes urgent items first, and the kernel's signals before those.

    Args:
        address: Named in errors.
        bounds: Per lane.
    """

    __slots__ = (
        "_address",
        "_control",
        "_control_bound",
        "_handed",
        "_mail",
        "_mail_bound",
        "_reader",
        "_sealed",
        "_senders",
        "_signals",
        "closed",
    )

    def __init__(self, address: Address, bounds: Bounds) -> None:
        self._address = address
        self._mail_bound = bounds.mail
        self._control_bound = bounds.control
        # A deque costs 600 bytes even when empty, so a parked mailbox has none.
        self._mail: deque[object] | None = None
        self._control: deque[object] | None = None
        self._signals: deque[object] | None = None
        self._senders: deque[_Sender] | None = None
        self._reader: Task | None = None
        self._handed: object | None = None
        self._sealed = False
        self.closed = False

    def offer(self, item: object, urgent: bool) -> bool:
        """Put ``item`` into its lane and return True, or return False when the lane is full or the box closed."""
        lane = self._control if urgent else self._mail
        if lane is not None:
            if len(lane) < (self._control_bound if urgent else self._mail_bound):
                lane.append(item)
                return True
            return False
        if self.closed:
            return False
        reader = self._reader
        if urgent:
            self._control = deque((item,))
        elif reader is None:
            self._mail = deque((item,))
        else:
            # Everything is empty, and the reader looks into this slot before the mail lane: no deque is needed.
            self._handed = item
        if reader is not None:
            self._reader = None
            reschedule(reader)
        return True

    def put_nowait(self, item: object, urgent: bool) -> None:
        """Put ``item`` into its lane.

        Raises:
            MailboxFull: the lane is at its bound.
            ActorStopped: the mailbox is closed.
        """
        if not self.offer(item, urgent):
            if self.closed:
                raise ActorStopped(self._address, "its mailbox is closed")
            raise MailboxFull(self._address, "control" if urgent else "mail")

    async def put(self, item: object, urgent: bool) -> bool:
        """Put ``item`` into its lane, waiting for room; who waits first, puts first. False when the box is closed.

        Cancellation: the item was not put. Checkpoint: only when there is no room at once.
        """
        if self.offer(item, urgent):
            return True
        if self.closed:
            return False
        sender = _Sender(item, urgent)
        if self._senders is None:
            self._senders = deque()
        self._senders.append(sender)

        def leave(_: RaiseCancelT) -> Abort:
            if self._senders is not None:
                self._senders.remove(sender)
            return Abort.SUCCEEDED

        await wait_task_rescheduled(leave)
        return sender.accepted

    def deliver(self, message: object, urgent: bool) -> None:
        """Put a message that the actor itself caused into its lane, whatever the bound; dropped when closed."""
        if self.closed:
            return
        if not self.offer(message, urgent):
            lane = self._control if urgent else self._mail
            assert lane is not None, "only a full lane refuses"
            lane.append(message)

    def signal(self, item: object) -> bool:
        """Put one of the kernel's own signals ahead of everything; never full. False when the box is sealed."""
        if self._sealed:
            return False
        if self._signals is None:
            self._signals = deque()
        self._signals.append(item)
        if (reader := self._reader) is not None:
            self._reader = None
            reschedule(reader)
        return True

    def take(self) -> object | None:
        """Remove and return the next item: signals, then control, then mail. None when all lanes are empty."""
        if self._signals:
            return self._signals.popleft()
        if self._control:
            item = self._control.popleft()
        elif (item := self._handed) is not None:
            self._handed = None
            return item
        elif self._mail:
            item = self._mail.popleft()
        else:
            return None
        if self._senders is not None:
            self._admit()
        return item

    def park(self, reader: Task) -> Callable[[RaiseCancelT], Abort]:
        """Let ``reader`` be rescheduled by the next item, and return its abort function.

        For the one reader, when :meth:`take` returned None: ``await wait_task_rescheduled(mailbox.park(task))``.
        """
        assert self._reader is None, "a mailbox has one reader"
        self._mail = self._control = self._signals = None
        self._reader = reader
        return self._unpark

    def wake(self) -> None:
        """Let the parked reader look around although nothing was put."""
        if (reader := self._reader) is not None:
            self._reader = None
            reschedule(reader)

    def close(self) -> list[object]:
        """Accept nothing from senders any more (K9) and return the unread, for settling. Idempotent.

        The kernel's signals may still come and be taken.
        """
        self.closed = True
        handed = () if self._handed is None else (self._handed,)
        unread = [*(self._control or ()), *handed, *(self._mail or ())]
        self._control = self._mail = self._handed = None
        senders, self._senders = self._senders, None
        for sender in senders or ():
            reschedule(sender.task)
        return unread

    def seal(self) -> list[object]:
        """Close and accept no signals either; return everything unread."""
        unread = [*(self._signals or ()), *self.close()]
        self._sealed = True
        self._signals = None
        return unread

    def statistics(self) -> MailboxStatistics:
        """Return how much waits where."""
        return MailboxStatistics(
            mail=len(self._mail or ()) + (self._handed is not None),
            control=len(self._control or ()) + len(self._signals or ()),
            senders_waiting=len(self._senders or ()),
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits in any lane."""
        return not (self._mail or self._control or self._signals) and self._handed is None

    @property
    def is_parked(self) -> bool:
        """Whether the reader waits for something to come."""
        return self._reader is not None

    def _admit(self) -> None:
        """Give the room just made to whoever has waited longest for that lane."""
        senders = self._senders
        assert senders is not None
        for sender in senders:
            if self.offer(sender.item, sender.urgent):
                senders.remove(sender)
                sender.accepted = True
                reschedule(sender.task)
                break
        if not senders:
            self._senders = None

    def _unpark(self, _: RaiseCancelT) -> Abort:
        self._reader = None
        return Abort.SUCCEEDED
