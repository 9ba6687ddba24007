"""HTTP/1.1 requests out of bytes, by httptools; it keeps limits and never touches a socket."""

from __future__ import annotations

from collections import deque

import httptools

from gateway.errors import HttpFailure
from gateway.settings import Settings

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_OVERHEAD = 8
"""A chunked body may take this many times its own size on the wire, small chunks included."""


class Incoming:
    """One request as it arrives. ``complete`` turns true when its body is all here."""

    __slots__ = (
        "chunked",
        "complete",
        "expects_continue",
        "header_list",
        "headers",
        "keep_alive",
        "length",
        "method",
        "parts",
        "size",
        "target",
        "upgrade",
        "version",
    )

    def __init__(self) -> None:
        self.method = ""
        self.target = ""
        self.version = "1.1"
        self.header_list: list[tuple[bytes, bytes]] = []
        self.headers: dict[str, str] = {}
        self.length = 0
        self.chunked = False
        self.expects_continue = False
        self.keep_alive = True
        self.upgrade = False
        self.parts: list[bytes] = []
        self.size = 0
        self.complete = False

    def wants_more(self, limit: int) -> bool:
        """Whether the body goes on and is not over ``limit`` bytes yet."""
        return not self.complete and self.size <= limit

    def head_bytes(self) -> bytes:
        """Return the head as it came, for another server to read again."""
        lines = [f"{self.method} {self.target} HTTP/{self.version}".encode()]
        lines += [name + b": " + value for name, value in self.header_list]
        return b"\r\n".join(lines) + b"\r\n\r\n"


class RequestParser:
    """Turns what a connection receives into requests, in order.

    Attributes:
        requests: Heads that are complete, oldest first; the owner takes them from the left.
        failed: What is wrong with the bytes after the last of ``requests``; nothing can be parsed any more.
        trailing: After an upgrade request, the bytes behind its head.
        in_head: Part of a head is here.
    """

    def __init__(self, settings: Settings) -> None:
        self._max_head = settings.max_head_size
        self._max_headers = settings.max_headers
        self._parser = httptools.HttpRequestParser(self)
        self._current: Incoming | None = None
        self._head_size = 0
        self._body_wire = 0
        self.requests: deque[Incoming] = deque()
        self.failed: HttpFailure | None = None
        self.trailing = b""
        self.in_head = False

    def feed(self, data: bytes) -> None:
        """Take received bytes. Faults end up in ``failed``."""
        if self.failed is not None:
            return
        if self.in_head:
            self._head_size += len(data)
        elif self._current is not None:
            self._body_wire += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as exc:
            self.trailing = data[exc.args[0] :]
            self._fail(400)
        except httptools.HttpParserError:
            self._fail(400)
        if self.in_head and self._head_size > self._max_head:
            self._fail(431)
        current = self._current
        if (
            current is not None
            and not self.in_head
            and self._body_wire > _OVERHEAD * (current.size + self._max_head)
        ):
            self._fail(400)

    def _fail(self, status: int) -> None:
        if self.failed is None:
            self.failed = HttpFailure(status)
        self.in_head = False

    # --- called by httptools, in the order of the wire ----------------------------------------------------

    def on_message_begin(self) -> None:
        """Start a request."""
        self._current = Incoming()
        self._head_size = 0
        self._body_wire = 0
        self.in_head = True

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target; it may come in several."""
        assert self._current is not None
        self._current.target += url.decode("ascii")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header field; those of a chunked body's trailer are dropped."""
        if self.in_head:
            assert self._current is not None
            self._current.header_list.append((name, value))

    def on_headers_complete(self) -> None:
        """Make the head available, or refuse it."""
        current = self._current
        assert current is not None
        self.in_head = False
        parser = self._parser
        current.method = parser.get_method().decode("ascii")
        current.version = parser.get_http_version()
        if current.version not in ("1.0", "1.1"):
            self._fail(505)
        elif current.method == "CONNECT":
            self._fail(501)
        elif (
            len(current.header_list) > self._max_headers
            or sum(len(name) + len(value) for name, value in current.header_list) + len(current.target)
            > self._max_head
        ):
            self._fail(431)
        else:
            try:
                self._read_headers(current)
            except HttpFailure as exc:
                self.failed = self.failed or exc
        if self.failed is None:
            current.upgrade = parser.should_upgrade()
            self.requests.append(current)

    def _read_headers(self, current: Incoming) -> None:
        headers = current.headers = collect_headers(current.header_list)
        if "host" not in headers and current.version == "1.1":
            raise HttpFailure(400)
        if "content-length" in headers:
            current.length = int(headers["content-length"])
        current.chunked = "transfer-encoding" in headers
        if "expect" in headers and headers["expect"].lower() == "100-continue":
            current.expects_continue = True
        tokens = headers.get("connection", "").lower()
        current.keep_alive = "close" not in tokens if current.version == "1.1" else "keep-alive" in tokens

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body; the owner stops reading when it has become too large."""
        assert self._current is not None
        self._current.parts.append(body)
        self._current.size += len(body)

    def on_message_complete(self) -> None:
        """Mark the body complete."""
        assert self._current is not None
        self._current.complete = True
        self._current = None


_NAMES: dict[bytes, str] = {
    name.title().encode(): name
    for name in (
        "host",
        "user-agent",
        "accept",
        "content-type",
        "content-length",
        "connection",
        "authorization",
    )
}


def collect_headers(pairs: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return header fields as lower-case name → value, repeated ones joined by ``", "``.

    Raises:
        HttpFailure: 400 for a second ``Host``: whoever looks at the other one would be fooled.
    """
    headers: dict[str, str] = {}
    for raw, value in pairs:
        name = _NAMES.get(raw) or raw.decode("latin-1").lower()
        text = value.strip(b" \t").decode("latin-1")
        if name not in headers:
            headers[name] = text
        elif name == "host":
            raise HttpFailure(400)
        else:
            headers[name] = f"{headers[name]}, {text}"
    return headers


def split_target(target: str, headers: dict[str, str]) -> tuple[str, str]:
    """Return a request target's path and query, both undecoded; an absolute target must name the ``Host``.

    Raises:
        HttpFailure: 400.
    """
    if not target.startswith("/"):
        scheme, found, rest = target.partition("://")
        if not found or scheme.lower() not in ("http", "https"):
            raise HttpFailure(400)
        authority, slash, path = rest.partition("/")
        if authority.lower() != headers.get("host", "").lower():
            raise HttpFailure(400)
        target = slash + path or "/"
    path, _, query = target.partition("#")[0].partition("?")
    return path, query
