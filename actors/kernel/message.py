"""What actors say to each other: the base classes of messages, and the kernel's own signals.

The lane is a property of the message's class: a :class:`Control` overtakes ordinary mail (K3), and a :class:`Request`
expects a reply. Both may be combined: ``class Pause(Request[Accepted], Control, frozen=True)``.
"""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

from msgspec import Struct

from actors.kernel.address import Address

R_co = TypeVar("R_co", covariant=True)

ExitReason = Literal["stopped", "passivated", "cancelled", "crashed"]


class Request(Struct, Generic[R_co], frozen=True):
    """A message that expects a reply of type ``R_co``: ``await ref.ask(request)`` is typed by it."""


class Control(Struct, frozen=True):
    """A message that overtakes mail. It waits for the message in progress and never interrupts it (K3)."""


class _Urgency(dict[type, bool]):
    """Whether messages of a class overtake mail; remembered, because ``isinstance`` costs more than the queueing."""

    def __missing__(self, cls: type) -> bool:
        self[cls] = urgent = issubclass(cls, Control)
        return urgent


URGENT = _Urgency()
"""``URGENT[type(message)]``: whether it goes to the control lane."""


class Exit(Struct, frozen=True):
    """Why an actor is gone.

    Attributes:
        reason: ``stopped`` by request, ``passivated`` when idle, ``cancelled`` with its system or past its grace,
            ``crashed`` when its restart budget was used up or it could not start.
        detail: One line for people; never message contents.
    """

    reason: ExitReason
    detail: str = ""


class Stop(Control, frozen=True):
    """Kernel signal: end after the message in progress. Sent by ``ref.stop``; never reaches ``receive``."""


class Terminated(Control, frozen=True):
    """Kernel signal: a watched actor is gone. Reaches the watcher's ``receive``."""

    address: Address
    exit: Exit
