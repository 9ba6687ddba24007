"""The kernel's expected failures. What an actor itself refuses is :class:`actors.errors.Rejected`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

from actors.errors import ActorsError, Conflict, Overloaded, Unavailable
from actors.kernel.address import Address

E = TypeVar("E", bound=Exception)


class MailboxFull(Overloaded):
    """A lane is at its bound; the message was not accepted (K5)."""

    code: ClassVar[str] = "mailbox_full"

    def __init__(self, address: Address, lane: str) -> None:
        super().__init__(f"{address} has too many {lane} messages waiting; try again shortly", lane=lane)


class ActorStopped(Unavailable):
    """The actor ended before it answered, or may not be started any more."""

    code: ClassVar[str] = "actor_stopped"

    def __init__(self, address: Address, detail: str) -> None:
        super().__init__(f"{address} has stopped: {detail}")


class ActorCrashed(ActorsError):
    """The actor met a bug while it handled the message. The log has the traceback under ``incident``."""

    code: ClassVar[str] = "actor_crashed"

    def __init__(self, address: Address, incident: str) -> None:
        super().__init__(f"{address} failed; incident {incident}", incident=incident)
        self.incident = incident


class AskCycle(Conflict):
    """Actors would wait for each other for ever; the ask that would have closed the circle was not sent."""

    code: ClassVar[str] = "ask_cycle"

    def __init__(self, cycle: Sequence[Address]) -> None:
        super().__init__("actors would wait for each other: " + " -> ".join(str(each) for each in cycle))
        self.cycle = tuple(cycle)


class Unreachable(Unavailable):
    """No way leads to this address: its kind is unknown here, or its node does not answer."""

    code: ClassVar[str] = "unreachable"


def another(error: E) -> E:
    """Return a copy of ``error`` for one more task to raise: shared, it would mix the tracebacks of all of them."""
    cls = type(error)
    copied = cls.__new__(cls, *error.args)  # not by __init__, which may want other arguments than ``args``
    copied.__dict__.update(error.__dict__)
    return copied
