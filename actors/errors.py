"""The product's expected failures, told apart by who is at fault.

Every room may import this module; it imports nothing. ``gateway.errors`` maps each class to a status code, and a
test fails on a class without a mapping. A failure that is not one of these is a bug.
"""

from __future__ import annotations

from typing import ClassVar


class ActorsError(Exception):
    """Base of every expected failure.

    Args:
        message: One sentence for the person who caused or meets it; names the field, line or id.
        **fields: Machine-readable details, copied into error bodies that have room for them.
    """

    code: ClassVar[str] = "error"

    def __init__(self, message: str, **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields


class Rejected(ActorsError):
    """The command is not acceptable in the present state; nothing has happened. Never counts as a crash (K6)."""

    code = "rejected"


class Invalid(Rejected):
    """The caller's input is malformed or violates a rule that no state change could lift."""

    code = "invalid"


class Denied(Rejected):
    """The caller is known but may not do this."""

    code = "denied"


class NotFound(Rejected):
    """The thing named does not exist, or the caller may not know that it does."""

    code = "not_found"


class Conflict(Rejected):
    """The command lost against the present state: busy, already decided, a stale revision."""

    code = "conflict"


class Gone(Rejected):
    """The thing existed and has ended for good."""

    code = "gone"


class Unsupported(Rejected):
    """Well-formed, but this deployment or configuration cannot do it."""

    code = "unsupported"


class Overloaded(Rejected):
    """A bound was reached; the same request may succeed after ``retry_after`` seconds."""

    code = "overloaded"

    def __init__(self, message: str, retry_after: float = 1.0, **fields: object) -> None:
        super().__init__(message, **fields)
        self.retry_after = retry_after


class NotStored(Rejected):
    """The disk did not take the command's events: nothing was stored and nothing has happened."""

    code = "journal_unavailable"


class Unavailable(ActorsError):
    """The world outside failed: disk, network, provider, another node."""

    code = "unavailable"
