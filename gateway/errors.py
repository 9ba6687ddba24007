"""Which status and code an exception becomes; the only place that knows both failures and HTTP."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from typing import Any

import trio
from msgspec import Struct, field

from actors import errors
from actors.config.errors import SourceUnavailable
from actors.errors import ActorsError
from actors.journal.log import JournalCorrupt
from actors.kernel.errors import ActorCrashed
from actors.squad.refusals import NotText, TooLarge
from actors.tools.tool import ToolError
from gateway.http import PHRASES, Headers

STATUS: dict[type[ActorsError], int] = {
    errors.Rejected: 409,
    errors.Invalid: 400,
    errors.Denied: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.Gone: 410,
    errors.Unsupported: 422,
    errors.Overloaded: 429,
    errors.NotStored: 503,
    errors.Unavailable: 503,
    SourceUnavailable: 502,
    ActorCrashed: 500,
    JournalCorrupt: 503,
    ToolError: 500,
    TooLarge: 413,
    NotText: 415,
}
"""Expected failure → status. A class that is not here has the status of its nearest base that is."""


class Failure(Struct, frozen=True):
    """What went wrong, ready for a dialect to render.

    Attributes:
        status: The HTTP status.
        code: Lower-case machine-readable name.
        message: One sentence for the client; never internal details.
        fields: Details the exception carried, for dialects with room for them.
        headers: Extra response headers (``Allow``, ``Retry-After``).
        incident: Set for our own bugs: the id under which the log has the traceback.
    """

    status: int
    code: str
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    headers: Headers = ()
    incident: str = ""


class HttpFailure(Exception):
    """Raised where HTTP itself is at stake, or a contract asks for a status that no ``ActorsError`` has.

    Args:
        status: The HTTP status.
        message: For the client; the status phrase when empty.
        code: Lower-case name; made from the status phrase when empty.
        headers: Extra response headers.
        **fields: Details, as in ``ActorsError``.
    """

    def __init__(
        self, status: int, message: str = "", code: str = "", headers: Headers = (), **fields: Any
    ) -> None:
        phrase = PHRASES[status]
        self.failure = Failure(
            status, code or phrase.lower().replace(" ", "_"), message or phrase, fields, headers
        )
        super().__init__(self.failure.message)


class BodyTooLarge(HttpFailure):
    """More body than the row's limit allows."""

    def __init__(self) -> None:
        super().__init__(413, "Request Entity Too Large", "payload_too_large")


class BodyTimeout(HttpFailure):
    """The body did not arrive in time."""

    def __init__(self) -> None:
        super().__init__(408)


class ClientGone(Exception):
    """The client closed the connection in mid-request; there is nothing to answer."""


def status_of(kind: type[ActorsError]) -> int:
    """Return the status of an expected failure's class."""
    return next(STATUS[base] for base in kind.__mro__ if base in STATUS)


def expected(exc: Exception, prefix: str = "") -> Failure | None:
    """Return the failure for an exception that is an answer, ``None`` for one that is a bug.

    Args:
        exc: What the handler raised.
        prefix: Put before the message of an ``ActorsError``.
    """
    if isinstance(exc, HttpFailure):
        return exc.failure
    if isinstance(exc, trio.TooSlowError):
        return Failure(504, "timeout", "the operation took too long")
    if not isinstance(exc, ActorsError):
        return None
    status = next((STATUS[base] for base in type(exc).__mro__ if base in STATUS), None)
    if status is None:
        return None
    if isinstance(exc, ActorCrashed):
        return Failure(500, "internal_error", "Internal Server Error", incident=exc.incident)
    retry: Headers = ()
    if isinstance(exc, errors.Overloaded):
        retry = (("Retry-After", str(max(1, math.ceil(exc.retry_after)))),)
    return Failure(status, exc.code, prefix + exc.message, exc.fields, retry)


def bug() -> Failure:
    """Return the failure for an exception nobody expected; its ``incident`` goes into the log with the traceback."""
    return Failure(500, "internal_error", "Internal Server Error", incident=secrets.token_hex(6))
