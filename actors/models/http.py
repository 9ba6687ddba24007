"""A lean HTTP/1.1 transport for the vendors' SDKs: trio streams, a C parser and a keep-alive pool.

The SDKs keep building requests and reading answers through httpx; only the wire below is ours, because the
stock connection pool costs more processor time per streamed token than the rest of a turn. Speaks no HTTP/2
and no proxy; :func:`open_client` leaves machines behind a proxy to the stock transport.
"""

from __future__ import annotations

import select
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import NoReturn, cast

import httptools
import httpx2
import trio

from actors.models.network import check_network

Connect = Callable[[str, int, bool], Awaitable[trio.abc.Stream]]
"""Opens a byte stream to host and port, with TLS when the flag is set."""

CONNECT_LIMIT = 10.0
"""Seconds until a connection must stand, TLS included."""
SILENCE_LIMIT = 300.0
"""Seconds a server may stay silent before an answer and between two pieces of it."""
IDLE_LIMIT = 30.0
"""Seconds an unused connection is kept; below what servers and load balancers allow."""
CLOSE_LIMIT = 2.0
"""Seconds that closing a response may take under a shield."""
DRAIN_LIMIT = 0.05
"""Seconds to wait for the end of a body whose content is complete."""
_HEADER_LIMIT = 256 * 1024
_READ_SIZE = 65536
_BODY = "greenroom_body"
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


def open_client(environment: Mapping[str, str], connect: Connect | None = None) -> httpx2.AsyncClient:
    """Return the HTTP client to hand to an SDK.

    Args:
        environment: When it names a proxy, the stock transport is used, which knows proxies.
        connect: Opens connections instead of TCP and TLS; for tests.
    """
    if connect is None and any(environment.get(name) for name in _PROXY_VARIABLES):
        check_network("behind a proxy")
        return httpx2.AsyncClient(timeout=httpx2.Timeout(SILENCE_LIMIT, connect=CONNECT_LIMIT))
    return httpx2.AsyncClient(transport=Transport(connect), timeout=None)  # the transport has its own limits


class BodyReader:
    """Reads the body of a streaming response as it arrives, past the layers httpx puts around a piece."""

    def __init__(self, response: httpx2.Response) -> None:
        compressed = response.headers.get("content-encoding", "identity") != "identity"
        self._body: _Body | None = None if compressed else response.extensions.get(_BODY)
        self._pieces = response.aiter_bytes() if compressed else response.aiter_raw()

    async def read(self) -> bytes:
        """Return what has arrived, empty only at the end; decoded if the server compressed it after all.

        Raises:
            httpx2.TransportError: the connection failed, or the server was silent too long.
        """
        if self._body is not None:
            return await self._body.read()
        async for piece in self._pieces:
            if piece:
                return piece
        return b""


class Transport(httpx2.AsyncBaseTransport):
    """One keep-alive pool for any number of hosts and concurrent requests."""

    def __init__(self, connect: Connect | None = None) -> None:
        self._connect = connect or _TcpConnector()
        self._idle: dict[tuple[str, int, bool], deque[_Connection]] = {}
        self._closed = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send ``request`` and return its response once the head is in; the body streams.

        A kept connection that turns out to be dead before any byte of an answer is replaced once.

        Raises:
            httpx2.TransportError: connecting, sending or receiving failed or took too long.

        Cancellation: the connection is closed.
        """
        url = request.url
        tls = url.scheme == "https"
        key = (url.host, url.port or (443 if tls else 80), tls)
        data = _encode(request, await _body(request))
        connection = await self._take_idle(key)
        if connection is not None:
            try:
                return await connection.exchange(request, data)
            except _StaleConnectionError:
                pass
        connection = _Connection(await self._open(key, request), self._idle.setdefault(key, deque()))
        return await connection.exchange(request, data)

    async def aclose(self) -> None:
        """Close idle connections; those in use close when their response does."""
        self._closed = True
        idle = [connection for pool in self._idle.values() for connection in pool]
        for pool in self._idle.values():
            pool.clear()
        for connection in idle:
            await connection.close()

    async def _take_idle(self, key: tuple[str, int, bool]) -> _Connection | None:
        pool = self._idle.get(key)
        now = trio.current_time()
        while pool:
            connection = pool.pop()
            if now - connection.idle_since < IDLE_LIMIT and connection.looks_alive():
                return connection
            await connection.close()
        return None

    async def _open(self, key: tuple[str, int, bool], request: httpx2.Request) -> trio.abc.Stream:
        if self._closed:
            raise httpx2.ConnectError("the HTTP client is closed", request=request)
        try:
            with trio.fail_after(CONNECT_LIMIT):
                return await self._connect(*key)
        except trio.TooSlowError:
            raise httpx2.ConnectTimeout(
                f"no connection to {key[0]} in {CONNECT_LIMIT:g} s", request=request
            ) from None
        except (OSError, trio.BrokenResourceError, ssl.SSLError) as error:
            raise httpx2.ConnectError(
                f"cannot connect to {key[0]}:{key[1]}: {error}", request=request
            ) from error


class _StaleConnectionError(Exception):
    """A kept connection ended before any byte of the answer."""


class _TcpConnector:
    """Connects by TCP, and TLS with the system's trust; the context is made at the first use."""

    def __init__(self) -> None:
        self._context: ssl.SSLContext | None = None

    async def __call__(self, host: str, port: int, tls: bool) -> trio.abc.Stream:
        check_network(host)
        stream = await trio.open_tcp_stream(host, port)
        if not tls:
            return stream
        if self._context is None:
            self._context = httpx2.create_ssl_context()
        secure = trio.SSLStream(stream, self._context, server_hostname=host, https_compatible=True)
        try:
            await secure.do_handshake()
        except trio.BrokenResourceError as error:
            await trio.aclose_forcefully(stream)
            raise ConnectionError(f"TLS handshake failed: {error.__cause__ or error}") from error
        return secure


class _Connection:
    """One connection: at most one exchange at a time."""

    def __init__(self, stream: trio.abc.Stream, pool: deque[_Connection]) -> None:
        self._stream = stream
        self._pool = pool
        self._used = False
        self.idle_since = 0.0

    def looks_alive(self) -> bool:
        """Whether nothing has arrived on the idle connection: neither its end nor unasked bytes."""
        stream: object = self._stream
        if isinstance(stream, trio.SSLStream):
            stream = cast("trio.SSLStream[trio.abc.Stream]", stream).transport_stream
        if not isinstance(stream, trio.SocketStream):
            return True
        if stream.socket.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(stream.socket.fileno(), select.POLLIN)
        return not poll.poll(0)

    async def exchange(self, request: httpx2.Request, data: bytes) -> httpx2.Response:
        """Send one encoded request; return the response with its streaming body."""
        parser = _ResponseParser()
        finished = False
        try:
            await self._send(request, data)
            await self._read_head(request, parser)
            finished = True
        finally:
            if not finished:
                with trio.move_on_after(CLOSE_LIMIT, shield=True):  # closing forcefully does not block
                    await trio.aclose_forcefully(self._stream)
        self._used = True
        body = _Body(self, request, parser)
        return httpx2.Response(
            parser.status, headers=parser.headers, stream=body, request=request, extensions={_BODY: body}
        )

    async def _send(self, request: httpx2.Request, data: bytes) -> None:
        try:
            with trio.fail_after(SILENCE_LIMIT):
                await self._stream.send_all(data)
        except trio.TooSlowError:
            raise httpx2.WriteTimeout("the server does not take the request", request=request) from None
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            if self._used:
                raise _StaleConnectionError from None
            raise httpx2.WriteError(f"connection lost while sending: {error}", request=request) from error

    async def _read_head(self, request: httpx2.Request, parser: _ResponseParser) -> None:
        received = 0
        while not parser.head_complete:
            try:
                data = await self.receive(request)
            except httpx2.ReadError:
                if self._used and not received:
                    raise _StaleConnectionError from None
                raise
            if not data:
                if self._used and not received:
                    raise _StaleConnectionError
                raise httpx2.RemoteProtocolError(
                    "the server closed the connection without an answer", request=request
                )
            received += len(data)
            parser.feed(data, request)
            if received > _HEADER_LIMIT and not parser.head_complete:
                raise httpx2.RemoteProtocolError("the response's head is too long", request=request)

    async def receive(self, request: httpx2.Request) -> bytes:
        """Return what has arrived; empty at the end."""
        # A bare scope: this runs once per token, and trio.fail_after costs twice as much.
        try:
            with trio.CancelScope(deadline=trio.current_time() + SILENCE_LIMIT):
                data = await self._stream.receive_some(_READ_SIZE)
                return data if isinstance(data, bytes) else bytes(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise httpx2.ReadError(f"connection lost: {error.__cause__ or error}", request=request) from error
        raise httpx2.ReadTimeout(f"the server was silent for {SILENCE_LIMIT:g} s", request=request)

    def release(self) -> None:
        """Keep the connection for the next request."""
        self.idle_since = trio.current_time()
        self._pool.append(self)

    async def close(self) -> None:
        """Close at once: no goodbye, no waiting for the peer."""
        with trio.move_on_after(CLOSE_LIMIT, shield=True):  # closing forcefully does not block
            await trio.aclose_forcefully(self._stream)


class _Body(httpx2.AsyncByteStream):
    """The body of a response, piece by piece as reads bring it."""

    def __init__(self, connection: _Connection, request: httpx2.Request, parser: _ResponseParser) -> None:
        self._connection: _Connection | None = connection
        self._request = request
        self._parser = parser

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self.read():
            yield data

    async def read(self) -> bytes:
        """Return more of the body, empty at its end."""
        parser = self._parser
        while not parser.body and not parser.complete:
            if self._connection is None:
                return b""
            data = await self._connection.receive(self._request)
            if data:
                parser.feed(data, self._request)
            elif parser.ends_at_eof:
                parser.complete = True
            else:
                raise httpx2.RemoteProtocolError("the server cut the response off", request=self._request)
        if parser.complete:
            await self._finish()
        return parser.take_body() if parser.body else b""

    async def _finish(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._parser.reusable:
            connection.release()
        else:
            await connection.close()

    async def aclose(self) -> None:
        """Give the connection back if the body is complete, else close it."""
        if not self._parser.complete:
            self._parser.reusable = False
        await self._finish()


class _ResponseParser:
    """Callbacks and state of the C parser for one response."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.body: list[bytes] = []
        self.head_complete = False
        self.complete = False
        self.reusable = False
        self.ends_at_eof = False

    def feed(self, data: bytes, request: httpx2.Request) -> None:
        """Parse ``data``; bytes beyond the response make the connection unusable for another."""
        if self.complete:
            self.reusable = False
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self._ended():  # what follows the response is not part of it
                self.reusable = False
                return
            raise httpx2.RemoteProtocolError(
                f"not a valid HTTP response: {error}", request=request
            ) from error

    def _ended(self) -> bool:
        return self.complete

    def take_body(self) -> bytes:
        """Return and forget what has been parsed of the body."""
        data = self.body[0] if len(self.body) == 1 else b"".join(self.body)
        self.body.clear()
        return data

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status // 100 == 1:
            self.headers.clear()
            return
        self.status = status
        self.head_complete = True
        names = {name.lower() for name, _ in self.headers}
        self.ends_at_eof = b"content-length" not in names and b"transfer-encoding" not in names

    def on_body(self, data: bytes) -> None:
        self.body.append(data)

    def on_message_complete(self) -> None:
        if not self.head_complete:
            return  # an informational response; the real one follows
        self.complete = True
        self.reusable = self._parser.should_keep_alive()


async def _body(request: httpx2.Request) -> bytes:
    stream = request.stream
    if isinstance(stream, httpx2.ByteStream):
        return b"".join(stream)
    return await request.aread()


def _encode(request: httpx2.Request, body: bytes) -> bytes:
    target = request.url.raw_path
    lines = [request.method.encode("ascii") + b" " + target + b" HTTP/1.1"]
    has_length = False
    for name, value in request.headers.raw:
        lowered = name.lower()
        if lowered in {b"transfer-encoding", b"connection"}:
            continue
        has_length = has_length or lowered == b"content-length"
        if b"\r" in value or b"\n" in value or b"\0" in value:
            _refuse_header(request, name)
        lines.append(name + b": " + value)
    if not has_length and (body or request.method != "GET"):
        lines.append(b"content-length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _refuse_header(request: httpx2.Request, name: bytes) -> NoReturn:
    raise httpx2.LocalProtocolError(
        f"header {name.decode('latin-1')} holds a line break or NUL", request=request
    )
