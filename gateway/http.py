"""Framework-neutral request and reply values, shared by both doors and every handler; no I/O of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Any, Literal, Protocol
from urllib.parse import parse_qs

from msgspec import Struct

JSON = Any
Headers = tuple[tuple[str, str], ...]
Bind = Literal["loopback", "network", "unix"]

JSON_TYPE = "application/json"

PHRASES: Mapping[int, str] = {status.value: status.phrase for status in HTTPStatus} | {
    413: "Request Entity Too Large",  # Python 3.13 has renamed these two; clients match on the old names
    422: "Unprocessable Entity",
}
"""Status → phrase, the same on every Python."""


class Principal(Struct, frozen=True):
    """Who asks.

    Attributes:
        name: For logs.
        scopes: The values of :class:`gateway.route.Scope` that the credential grants.
        by_cookie: The browser sent the credential by itself, whichever page made the request.
    """

    name: str
    scopes: frozenset[str]
    by_cookie: bool = False


class Request:
    """One request as a handler sees it: everything read, limited, authorised and decoded.

    Attributes:
        method: Upper-case; ``HEAD`` stays ``HEAD`` although the ``GET`` row answers it.
        path: The path as sent, still percent-encoded, without the query.
        query_string: The part after ``?``, undecoded.
        headers: Lower-case names; the values of a repeated header are joined with ``", "``.
        peer: ``host:port`` of the client, ``"unix"`` for a Unix socket.
        bind: What kind of address it came in by; loopback ones are open to web pages by DNS rebinding.
        path_params: The template's ``{names}``, percent-decoded once.
        raw: The body's bytes, within the row's limit.
        params: The row's ``params`` struct (path and query together), else ``None``.
        body: The row's ``body`` struct, decoded; else ``None``.
        principal: Who asks; set before the body is read.
        server: The endpoint that serves the request, for rows about the server itself.
    """

    __slots__ = (
        "_query",
        "bind",
        "body",
        "headers",
        "method",
        "params",
        "path",
        "path_params",
        "peer",
        "principal",
        "query_string",
        "raw",
        "server",
    )

    def __init__(
        self,
        method: str,
        path: str,
        query_string: str = "",
        headers: Mapping[str, str] | None = None,
        peer: str = "",
        raw: bytes = b"",
        bind: Bind = "loopback",
    ) -> None:
        self.method = method
        self.path = path
        self.query_string = query_string
        self.headers: Mapping[str, str] = {} if headers is None else headers
        self.peer = peer
        self.bind: Bind = bind
        self.path_params: Mapping[str, str] = {}
        self.raw = raw
        self.params: Any = None
        self.body: Any = None
        self.principal = ANONYMOUS
        self.server: Any = None
        self._query: dict[str, list[str]] | None = None

    @property
    def query(self) -> Mapping[str, list[str]]:
        """The query as name → values, blank values kept; parsed on first use."""
        if self._query is None:
            self._query = parse_query(self.query_string)
        return self._query

    def first(self, name: str, default: str = "") -> str:
        """Return the first value of query parameter ``name``."""
        values = self.query.get(name)
        return values[0] if values else default


ANONYMOUS = Principal("anonymous", frozenset())


def parse_query(text: str) -> dict[str, list[str]]:
    """Return name → values; at most 1,000 fields, the rest raise ``ValueError``."""
    return parse_qs(text, keep_blank_values=True, max_num_fields=1000) if text else {}


class Reply(Struct, frozen=True):
    """A complete answer.

    ``body`` that is ``bytes`` goes out as it is; anything else is encoded as JSON with a final newline,
    ``None`` as the literal ``null``. An answer without a body is ``Reply(b"", 204)``.
    """

    body: JSON = None
    status: int = 200
    headers: Headers = ()
    content_type: str = JSON_TYPE


class ByteSource(Protocol):
    """What a stream sends, pulled by the door so that a slow client costs no memory."""

    async def next(self) -> bytes | None:
        """Return everything that can be sent now, waiting for the first of it; ``None`` at the end.

        Cancellation: nothing is lost; the next call goes on where this one was.
        """
        ...


class StreamReply(Struct, frozen=True):
    """An answer of unknown length.

    The door enters ``open()`` in the connection's own task. Its exit sees ``Cancelled`` when the client left,
    and no exception at the end or at the server's shutdown. ``farewell`` is sent, at a chunk border, when the
    server shuts down before the source has ended.
    """

    open: Callable[[], AbstractAsyncContextManager[ByteSource]]
    status: int = 200
    headers: Headers = ()
    content_type: str = "text/event-stream"
    farewell: bytes = b""


Answer = Reply | StreamReply


class Response(Struct, frozen=True):
    """A reply with its body encoded: what a door writes."""

    status: int
    body: bytes
    headers: Headers
