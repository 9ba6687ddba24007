"""JSON-RPC 2.0 over a byte stream, both ways: one connection's requests, answers, notifications and cancellations.

Requests that name the same session are answered in the order they came; others side by side. Knows no method.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec
import trio

from actors.errors import ActorsError, Invalid
from gateway.copilot.framing import BadFrame, Frames, frame
from gateway.copilot.shapes import as_list, as_object

logger = logging.getLogger("gateway.copilot")
JSON = Any
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND = -32700, -32600, -32601
INVALID_PARAMS, INTERNAL_ERROR, CANCELLED = -32602, -32603, -32800
MAX_BACKLOG = 64 << 20
"""Bytes that may wait for a slow client before it is dropped."""
WRITE_SECONDS = 60.0
CHUNK = 65536


class Stream(Protocol):
    """What a connection reads and writes."""

    async def send_all(self, data: bytes) -> None:
        """Write."""
        ...

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Read; empty at the end."""
        ...

    async def aclose(self) -> None:
        """Close."""
        ...


class RpcError(Exception):
    """An error answer, given or received."""

    def __init__(self, code: int, message: str, data: JSON = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Closed(Exception):
    """The connection ended before the answer came."""


Call = Callable[["Connection", Mapping[str, JSON]], Awaitable[JSON]]


class Methods(Protocol):
    """Finds what serves a method."""

    def find(self, connection: Connection, method: str) -> tuple[Call, bool]:
        """Return the method and whether it may take long, outside the order. Raises: RpcError."""
        ...


class _Waiting:
    def __init__(self) -> None:
        self.done = trio.Event()
        self.result: JSON = None
        self.error: RpcError | None = None


class Connection:
    """One client. Run by :meth:`run`; everything else may be called from any task meanwhile.

    Args:
        stream: Owned: closed when the connection ends.
        methods: What it may call.
    """

    def __init__(self, stream: Stream, methods: Methods) -> None:
        self._stream = stream
        self._methods = methods
        self._out: deque[bytes] = deque()
        self._backlog = 0
        self._wake = trio.Event()
        self._lanes: dict[str, deque[tuple[JSON, Call, Mapping[str, JSON]]]] = {}
        self._scopes: dict[JSON, trio.CancelScope] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._last_id = 0
        self._nursery: trio.Nursery
        self._closing = False
        self.closed = False
        self.gone = trio.Event()
        self.authenticated = False

    async def run(self) -> None:
        """Serve until either side closes.

        Cancellation: the stream is closed.
        """
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._write)
                await self._read()
                self._nursery.cancel_scope.cancel()
        finally:
            self.closed = True
            self.gone.set()
            for waiting in self._waiting.values():
                waiting.done.set()
            with trio.CancelScope(
                shield=True, deadline=trio.current_time() + 1.0
            ):  # the peer waits for our half
                await self._stream.aclose()

    def close(self) -> None:
        """End the connection once what waits is written."""
        self._closing = True
        self._wake.set()

    def notify(self, method: str, params: JSON) -> None:
        """Send a notification; dropped when the connection is gone. Checkpoint: never."""
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def send_frame(self, data: bytes) -> None:
        """Send a frame that is encoded already. Checkpoint: never."""
        if self.closed or self._closing:
            return
        self._out.append(data)
        self._backlog += len(data)
        if self._backlog > MAX_BACKLOG:
            logger.warning("a client reads too slowly and is dropped")
            self.closed = True
            self._nursery.cancel_scope.cancel()
            return
        self._wake.set()

    async def request(self, method: str, params: JSON) -> JSON:
        """Ask the client and return its answer.

        Raises:
            RpcError: it answered with an error.
            Closed: the connection ended.

        Cancellation: the client is told that the answer is not wanted any more.
        """
        if self.closed:
            raise Closed
        self._last_id += 1
        number, waiting = self._last_id, _Waiting()
        self._waiting[number] = waiting
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        try:
            await waiting.done.wait()
        except trio.Cancelled:
            self.notify("$/cancelRequest", {"id": number})
            raise
        finally:
            del self._waiting[number]
        if waiting.error is not None:
            raise waiting.error
        if self.closed:
            raise Closed
        return waiting.result

    # --- in and out -------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        frames = Frames()
        try:
            while data := await self._stream.receive_some(CHUNK):
                for body in frames.feed(data):
                    self._take(body)
        except BadFrame as error:
            await self._last_words(str(error))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async def _last_words(self, text: str) -> None:
        """Say why nothing more is understood, if the client still listens."""
        logger.warning("a client's bytes are no frame: %s", text)
        self._error(None, RpcError(PARSE_ERROR, text))
        self.close()
        with trio.move_on_after(1.0):
            await trio.sleep_forever()

    async def _write(self) -> None:
        try:
            while True:
                while self._out:
                    data = b"".join(self._out)
                    self._out.clear()
                    with trio.fail_after(WRITE_SECONDS):
                        await self._stream.send_all(data)
                    self._backlog -= len(data)
                if self._closing:
                    break
                self._wake = trio.Event()
                await self._wake.wait()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            pass
        self._nursery.cancel_scope.cancel()

    def _send(self, message: JSON) -> None:
        self.send_frame(frame(message))

    def _error(self, request: JSON, error: RpcError) -> None:
        body: dict[str, JSON] = {"code": error.code, "message": error.message}
        if error.data is not None:
            body["data"] = error.data
        self._send({"jsonrpc": "2.0", "id": request, "error": body})

    # --- dispatch ---------------------------------------------------------------------------------------------------

    def _take(self, body: bytes) -> None:
        try:
            decoded: JSON = msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            self._error(None, RpcError(PARSE_ERROR, f"the body is no JSON: {error}"))
            return
        message = as_object(decoded)
        if message is None:
            self._error(None, RpcError(INVALID_REQUEST, "a message is an object"))
            return
        if "method" not in message:
            self._answered(message)
            return
        method, number = message["method"], message.get("id")
        given = message.get("params")
        if (
            several := as_list(given)
        ) is not None:  # Node's JSON-RPC sends a single parameter so where it may
            given = several[0] if several else None
        params = {} if given is None else as_object(given)
        if method == "$/cancelRequest":
            scope = self._scopes.get(params.get("id")) if params is not None else None
            if scope is not None:
                scope.cancel()
            return
        if not isinstance(method, str) or isinstance(number, dict | list):
            self._error(None, RpcError(INVALID_REQUEST, "a request has a method and an id"))
            return
        if params is None:
            self._refuse(number, RpcError(INVALID_PARAMS, "parameters are an object"))
            return
        try:
            call, waits = self._methods.find(self, method)
        except RpcError as error:
            self._refuse(number, error)
            return
        if waits:
            self._nursery.start_soon(self._serve, number, call, params)
            return
        lane = str(params.get("sessionId") or "")
        queue = self._lanes.get(lane)
        if queue is None:
            self._lanes[lane] = deque([(number, call, params)])
            self._nursery.start_soon(self._drain, lane)
        else:
            queue.append((number, call, params))

    def _refuse(self, number: JSON, error: RpcError) -> None:
        if number is not None:
            self._error(number, error)

    async def _drain(self, lane: str) -> None:
        queue = self._lanes[lane]
        while queue:
            await self._serve(*queue.popleft())
        del self._lanes[lane]

    async def _serve(self, number: JSON, call: Call, params: Mapping[str, JSON]) -> None:
        error: RpcError | None = None
        result: JSON = None
        with trio.CancelScope() as scope:
            if number is not None:
                self._scopes[number] = scope
            try:
                result = await call(self, params)
            except RpcError as failure:
                error = failure
            except Invalid as failure:
                error = RpcError(INVALID_PARAMS, failure.message)
            except ActorsError as failure:
                error = RpcError(INTERNAL_ERROR, failure.message)
            except Closed:
                error = RpcError(INTERNAL_ERROR, "the client is gone")
            except Exception:  # the edge of an endpoint: one request's bug must not end the connection
                logger.exception("a method failed")
                error = RpcError(INTERNAL_ERROR, "internal error")
            finally:
                self._scopes.pop(number, None)
        if scope.cancelled_caught:
            error = RpcError(CANCELLED, "cancelled")
        if error is not None:
            self._refuse(number, error)
        elif number is not None:
            self._send({"jsonrpc": "2.0", "id": number, "result": result})

    def _answered(self, message: Mapping[str, JSON]) -> None:
        number = message.get("id")
        waiting = self._waiting.get(number) if isinstance(number, int) else None
        if waiting is None:
            return
        error = as_object(message.get("error"))
        if error is not None:
            waiting.error = RpcError(int(error.get("code") or INTERNAL_ERROR), str(error.get("message")))
        waiting.result = message.get("result")
        waiting.done.set()
