"""One HTTP/1.1 connection of the front: requests in order, bodies within limits, replies and streams."""

from __future__ import annotations

import math
from email.utils import formatdate
from typing import TYPE_CHECKING

import trio

from actors.ids import wall_clock
from gateway.dialect import dialect_of
from gateway.endpoint import render_failure
from gateway.errors import BodyTimeout, BodyTooLarge, ClientGone, HttpFailure
from gateway.front_io import Transport
from gateway.front_parser import PREFACE, Incoming, RequestParser, split_target
from gateway.http import PHRASES, Bind, Headers, Request, Response, StreamReply

if TYPE_CHECKING:
    from gateway.front import Front

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LINGER_SECONDS = 1.0
_YIELD_EVERY = 16
_STATUS_LINES = {
    status: f"HTTP/1.1 {status} {phrase}\r\n".encode("ascii") for status, phrase in PHRASES.items()
}
_header_bytes: dict[Headers, bytes] = {}
_date = (0, b"")


class Connection:
    """Serves one accepted socket from first byte to last.

    One task, one cancel scope: a peer that leaves or exceeds a deadline cancels the scope, and with it
    whatever handler or stream is under way. Deadlines are plain numbers which the front's sweeper compares.

    Attributes:
        deadline: When the sweeper ends the connection; infinite while a handler runs.
        busy_since: When the handler in progress began; infinite when there is none.
    """

    __slots__ = (
        "_bind",
        "_closing",
        "_front",
        "_incoming",
        "_parser",
        "_peer",
        "_pull",
        "_pulling",
        "_scope",
        "_watched",
        "busy_since",
        "deadline",
        "transport",
    )

    def __init__(self, front: Front, transport: Transport, bind: Bind, peer: str) -> None:
        self._front = front
        self.transport = transport
        self._bind: Bind = bind
        self._peer = peer
        self._parser = RequestParser(front.settings)
        self._scope = trio.CancelScope()
        self._incoming: Incoming | None = None
        self._pull: trio.CancelScope | None = None
        self._pulling = False
        self._closing = False
        self._watched = False
        self.deadline = math.inf
        self.busy_since = math.inf

    async def run(self) -> None:
        """Serve until the peer or the server has enough; raises nothing."""
        front = self._front
        front.connections.add(self)
        try:
            with self._scope:
                await self._serve()
        except Exception as exc:  # noqa: BLE001 - one connection's failure is not the server's
            front.endpoint.report(exc, f"connection from {self._peer}")
        finally:
            self._unwatch()
            front.connections.discard(self)
            self.transport.close()

    # --- called from other tasks --------------------------------------------------------------------------

    def hang_up(self) -> None:
        """End the connection now: the peer has left, a deadline has passed, or the server stops for good."""
        self._scope.cancel()

    def watch(self) -> None:
        """Have the peer's leaving noticed although nobody reads."""
        if not self._watched:
            self._watched = True
            self._front.hangups.watch(self.transport.sock, self.hang_up)

    def shut_down(self) -> None:
        """Finish: an idle connection now, a stream at its next event's border, a request after its answer."""
        self._closing = True
        if self._pull is not None:
            if self._pulling:
                self._pull.cancel()
        elif self._incoming is None:
            self._scope.cancel()

    # --- requests -----------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        settings = self._front.settings
        self.deadline = trio.current_time() + settings.header_seconds
        first = await self._first_bytes()
        if first is None:
            return
        self._parser.feed(first)
        while (incoming := await self._next_request()) is not None:
            if incoming.upgrade:
                if self._parser.trailing and incoming.headers.get("upgrade", "").lower() == "websocket":
                    # No client may speak before the answer (RFC 6455, 4.1), and Hypercorn's connection would fail
                    # with two tracebacks: a cheap way to fill a log.
                    await self._refuse(HttpFailure(400))
                    return
                await self._hand_over(incoming.head_bytes() + self._parser.trailing)
                return
            self._incoming = incoming
            keep = await self._answer(incoming)
            self._incoming = None
            if not keep or self._closing:
                return
            if self._parser.requests:
                await trio.lowlevel.checkpoint()
            else:
                self.deadline = trio.current_time() + settings.idle_seconds

    async def _first_bytes(self) -> bytes | None:
        """Return the first bytes; ``None`` when they were HTTP/2's and Hypercorn had the connection."""
        data = await self.transport.receive()
        while data and len(data) < len(PREFACE) and PREFACE.startswith(data):
            more = await self.transport.receive()
            if not more:
                break
            data += more
        if data.startswith(PREFACE):
            await self._hand_over(data)
            return None
        return data or None

    async def _next_request(self) -> Incoming | None:
        parser = self._parser
        timing_head = False
        while not parser.requests:
            if parser.failed is not None:
                await self._refuse(parser.failed)
                return None
            if parser.in_head and not timing_head:
                timing_head = True
                self.deadline = trio.current_time() + self._front.settings.header_seconds
            data = await self.transport.receive()
            if not data:
                return None
            parser.feed(data)
        return parser.requests.popleft()

    async def _hand_over(self, replay: bytes) -> None:
        self.deadline = math.inf
        self._front.connections.discard(self)
        await self._front.handover.serve(self.transport, replay, self._bind)

    async def _answer(self, incoming: Incoming) -> bool:
        """Answer one request; true when the connection can take another."""
        try:
            path, query = split_target(incoming.target, incoming.headers)
        except HttpFailure as exc:
            await self._refuse(exc)
            return False
        request = Request(incoming.method, path, query, incoming.headers, self._peer, bind=self._bind)
        self.deadline = math.inf
        self.busy_since = trio.current_time()
        try:
            answer = await self._front.endpoint.handle(request, incoming.length, self._read_body)
        except ClientGone:
            return False
        finally:
            self.busy_since = math.inf
        if isinstance(answer, StreamReply):
            return await self._stream(answer, request, incoming)
        keep = incoming.keep_alive and incoming.complete and not self._closing
        await self._send(_encode(answer, incoming, keep))
        if not incoming.complete:
            await self._linger()
        self._unwatch()
        return keep

    async def _read_body(self, limit: int) -> bytes:
        incoming = self._incoming
        assert incoming is not None
        if incoming.wants_more(limit):  # most bodies came with their head and cost no cancel scope
            await self._receive_body(incoming, limit)
        if incoming.size > limit:
            raise BodyTooLarge
        if not incoming.complete:
            raise BodyTimeout
        parts = incoming.parts
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _receive_body(self, incoming: Incoming, limit: int) -> None:
        parser = self._parser
        if incoming.expects_continue and not incoming.size:
            await self._send(_CONTINUE)
        with trio.move_on_after(self._front.settings.body_seconds):
            while incoming.wants_more(limit):
                if parser.failed is not None:
                    raise parser.failed
                data = await self.transport.receive()
                if not data:
                    raise ClientGone
                parser.feed(data)

    # --- replies ------------------------------------------------------------------------------------------

    async def _send(self, data: bytes) -> None:
        """Send everything within the send deadline; a peer that takes nothing, or is gone, cancels the scope."""
        transport = self.transport
        sent = transport.send_now(data)
        if sent == len(data):
            return
        self.deadline = trio.current_time() + self._front.settings.send_seconds
        if sent < 0 or not await transport.send(data[sent:]):
            self._scope.cancel()
            await trio.lowlevel.checkpoint()
        self.deadline = math.inf

    async def _stream(self, reply: StreamReply, request: Request, incoming: Incoming) -> bool:
        chunked = incoming.version == "1.1"
        keep = chunked and incoming.keep_alive and incoming.complete and not self._closing
        head = _encode_stream_head(reply, chunked=chunked, keep=keep)
        if request.method == "HEAD":
            await self._send(head)
            return False
        self.watch()
        ended = False
        # Opened before the head is sent: whoever opens it is to learn of a client that has left by now.
        async with self._front.endpoint.open_stream(reply) as source:
            await self._send(head)
            with trio.CancelScope() as self._pull:
                sends = 0
                while not self._closing:
                    self._pulling = True
                    data = await source.next()
                    self._pulling = False
                    if data is None:
                        ended = True
                        break
                    await self._send(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
                    sends += 1
                    if not sends % _YIELD_EVERY:
                        await trio.lowlevel.checkpoint()
        self._pull = None
        last = b"" if ended else reply.farewell
        if chunked:
            last = (b"%x\r\n%b\r\n" % (len(last), last) if last else b"") + b"0\r\n\r\n"
        await self._send(last)
        self._unwatch()
        return keep

    async def _refuse(self, failed: HttpFailure) -> None:
        """Answer bytes that are no request, and close."""
        incoming = Incoming()
        response = render_failure(failed.failure, dialect_of("/"))
        await self._send(_encode(response, incoming, keep=False))
        await self._linger()

    async def _linger(self) -> None:
        """Close gently while the peer may still be sending: a reset would take the answer away from it."""
        self.transport.finish()
        with trio.move_on_after(_LINGER_SECONDS):
            while await self.transport.receive():
                pass

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            self._front.hangups.unwatch(self.transport.sock)


def _encode(response: Response, incoming: Incoming, keep: bool) -> bytes:
    """Return a whole response, to be sent in one piece."""
    body = response.body
    parts = [_STATUS_LINES[response.status], _encode_headers(response.headers), _date_line()]
    if body or response.status not in (204, 304):
        parts.append(b"Content-Length: %d\r\n" % len(body))
    if not keep:
        parts.append(b"Connection: close\r\n")
    elif incoming.version == "1.0":
        parts.append(b"Connection: keep-alive\r\n")
    parts.append(b"\r\n")
    if incoming.method != "HEAD":
        parts.append(body)
    return b"".join(parts)


def _encode_stream_head(reply: StreamReply, *, chunked: bool, keep: bool) -> bytes:
    headers = [("Content-Type", reply.content_type)]
    headers += [pair for pair in reply.headers if keep or pair[0] != "Connection"]
    if chunked:
        headers.append(("Transfer-Encoding", "chunked"))
    if not keep:
        headers.append(("Connection", "close"))
    return _STATUS_LINES[reply.status] + _encode_headers(tuple(headers)) + _date_line() + b"\r\n"


def _encode_headers(headers: Headers) -> bytes:
    known = _header_bytes.get(headers)
    if known is None:
        text = "".join(f"{name}: {value}\r\n" for name, value in headers)
        if text.count("\r") != len(headers) or text.count("\n") != len(headers):
            raise ValueError("a header holds a line end")
        known = text.encode("latin-1")
        if len(_header_bytes) < 256:
            _header_bytes[headers] = known
    return known


def _date_line() -> bytes:
    global _date
    now = int(wall_clock())
    if _date[0] != now:
        _date = (now, f"Date: {formatdate(now, usegmt=True)}\r\n".encode("ascii"))
    return _date[1]
