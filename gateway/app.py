"""The table as a Quart-Trio application: the door for WebSockets and HTTP/2, and for ASGI servers of others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, cast

import quart
import trio
from quart.wrappers.response import ResponseBody
from quart_trio import QuartTrio
from werkzeug.datastructures import Headers
from werkzeug.exceptions import RequestEntityTooLarge

from gateway.dialect import dialect_of
from gateway.endpoint import Endpoint, render_failure
from gateway.errors import BodyTimeout, BodyTooLarge, ClientGone, HttpFailure
from gateway.front_parser import collect_headers, split_target
from gateway.http import Bind, ByteSource, Request, Response, StreamReply
from gateway.websocket import SocketClosed, run_socket

# Raised since Quart 0.23 when the client leaves; before that the handler is cancelled.
_Disconnected: type[Exception] = getattr(quart.wrappers, "ClientDisconnectedError", SocketClosed)


def create_app(endpoint: Endpoint) -> QuartTrio:
    """Return the application: every request and WebSocket goes to ``endpoint``, before Quart's own routing."""
    app = QuartTrio(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = endpoint.largest_body
    app.config["BODY_TIMEOUT"] = None
    app.config["RESPONSE_TIMEOUT"] = None

    @app.before_request
    async def serve_request() -> quart.Response:
        incoming = quart.request
        try:
            request = _request_of(cast("dict[str, Any]", incoming.scope))
        except HttpFailure as exc:
            return _whole(render_failure(exc.failure, dialect_of("/")))
        length = request.headers.get("content-length", "0")

        async def read_body(limit: int) -> bytes:
            return await _read_body(incoming, limit, endpoint.settings.body_seconds)

        try:
            answer = await endpoint.handle(request, int(length) if length.isdecimal() else 0, read_body)
        except ClientGone:
            return quart.Response(status=400)
        if isinstance(answer, StreamReply):
            return _streamed(endpoint, answer, request)
        return _whole(answer)

    @app.before_websocket
    async def serve_socket() -> quart.Response:
        socket = quart.websocket
        try:
            request = _request_of(cast("dict[str, Any]", socket.scope))
        except HttpFailure as exc:
            return _whole(render_failure(exc.failure, dialect_of("/")))
        admitted = await endpoint.admit_socket(request)
        if isinstance(admitted, Response):
            return _whole(admitted)
        await socket.accept()
        endpoint.metrics.sockets.inc()
        try:
            await run_socket(
                _QuartSocket(cast("Any", socket)._get_current_object()),  # noqa: SLF001
                admitted,
                endpoint.closing,
                lambda exc: endpoint.report(exc, f"WebSocket {request.path}"),
            )
        finally:
            endpoint.metrics.sockets.dec()
        return quart.Response()

    return app


def _request_of(scope: dict[str, Any]) -> Request:
    """Return a scope's head. Its ``bind`` comes from our own server; behind another one it counts as loopback."""
    headers = collect_headers(scope["headers"])
    target = scope["raw_path"].decode("latin-1")
    path, _ = split_target(target, headers)
    client = scope.get("client")
    bind: Bind = scope.get("state", {}).get("bind", "loopback")
    return Request(
        scope.get("method", "GET"),
        path,
        scope["query_string"].decode("latin-1"),
        headers,
        f"{client[0]}:{client[1]}" if client else "unix",
        bind=bind,
    )


async def _read_body(incoming: quart.Request, limit: int, seconds: float) -> bytes:
    parts: list[bytes] = []
    size = 0
    with trio.move_on_after(seconds) as scope:
        try:
            async for part in incoming.body:
                size += len(part)
                if size > limit:
                    raise BodyTooLarge
                parts.append(part)
        except RequestEntityTooLarge:
            raise BodyTooLarge from None
        except _Disconnected:
            raise ClientGone from None
    if scope.cancelled_caught:
        raise BodyTimeout
    return b"".join(parts)


def _whole(response: Response) -> quart.Response:
    return quart.Response(response.body, response.status, Headers(response.headers))


def _streamed(endpoint: Endpoint, reply: StreamReply, request: Request) -> quart.Response:
    headers = [("Content-Type", reply.content_type)]
    # Connection fields are for the server in front, and forbidden in HTTP/2.
    headers += [pair for pair in reply.headers if pair[0] != "Connection"]
    body: Any = b"" if request.method == "HEAD" else _StreamBody(endpoint, reply)
    response = quart.Response(body if isinstance(body, bytes) else b"", reply.status, Headers(headers))
    if not isinstance(body, bytes):
        response.response = body
        response.headers.pop("Content-Length", None)
    response.timeout = None
    return response


class _StreamBody(ResponseBody):
    """A stream reply as Quart wants it: opened, pulled and closed by the task that writes, with no generator."""

    def __init__(self, endpoint: Endpoint, reply: StreamReply) -> None:
        self._endpoint = endpoint
        self._reply = reply
        self._stack = AsyncExitStack()
        self._source: ByteSource | None = None
        self._pull: trio.CancelScope | None = None
        self._closing = False
        self._ended = False

    def _shut_down(self) -> None:
        self._closing = True
        if self._pull is not None:
            self._pull.cancel()

    async def __aenter__(self) -> AsyncIterator[bytes]:
        self._source = await self._stack.enter_async_context(self._endpoint.open_stream(self._reply))
        self._endpoint.closing.add(self._shut_down)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._endpoint.closing.discard(self._shut_down)
        # What the source's own exit must await, it shields; nothing else waits here.
        await self._stack.__aexit__(exc_type, exc_value, tb)  # noqa: ASYNC102

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        assert self._source is not None
        if self._ended:
            raise StopAsyncIteration
        data: bytes | None = None
        if not self._closing:
            with trio.CancelScope() as self._pull:
                data = await self._source.next()
            self._pull = None
        if data is None:
            self._ended = True
            if self._closing and self._reply.farewell:
                return self._reply.farewell
            raise StopAsyncIteration
        return data


class _QuartSocket:
    """Quart's WebSocket of the running handler as a :class:`gateway.websocket.SocketTransport`."""

    def __init__(self, websocket: quart.Websocket) -> None:
        self._socket = websocket

    async def receive(self) -> str | bytes:
        """See ``SocketTransport``."""
        try:
            message: str | bytes = await self._socket.receive()
        except _Disconnected:
            raise SocketClosed from None
        return message

    async def send(self, data: str | bytes) -> None:
        """See ``SocketTransport``."""
        await self._socket.send(data)

    async def close(self, code: int, reason: str) -> None:
        """See ``SocketTransport``."""
        await self._socket.close(code, reason)
