"""A server on real sockets over a table of a test's own, and a client that speaks raw bytes to it."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import trio
from trio_websocket import WebSocketConnection, wrap_client_stream

from gateway.endpoint import Endpoint
from gateway.http import JSON, Reply, Request
from gateway.route import Method, Route, Scope, Table, route
from gateway.serve import Stop, serve
from gateway.settings import Settings

PATIENCE = 5.0
"""Seconds a test waits for what should happen at once."""


@dataclass
class Answer:
    """An HTTP response as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> JSON:
        return msgspec.json.decode(self.body)


class Connection:
    """A client's TCP connection with a buffer."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._buffer = b""

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def _more(self) -> bool:
        with trio.fail_after(PATIENCE):
            try:
                data = await self.stream.receive_some()
            except trio.BrokenResourceError:
                return False
        self._buffer += data
        return bool(data)

    async def until(self, end: bytes) -> bytes:
        """Return what comes up to and with ``end``, or everything when the server closes before it."""
        while end not in self._buffer:
            if not await self._more():
                taken, self._buffer = self._buffer, b""
                return taken
        at = self._buffer.index(end) + len(end)
        taken, self._buffer = self._buffer[:at], self._buffer[at:]
        return taken

    async def exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            if not await self._more():
                raise EOFError(self._buffer)
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    async def rest(self) -> bytes:
        """Return everything until the server closes."""
        while await self._more():
            pass
        taken, self._buffer = self._buffer, b""
        return taken

    async def head(self) -> tuple[int, dict[str, str]]:
        """Read a response's head; interim ones are skipped."""
        while True:
            lines = (await self.until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            if not lines[0]:
                raise EOFError
            status = int(lines[0].split(" ")[1])
            headers = dict(line.split(": ", 1) for line in lines[1:] if line)
            if status == 101 or status >= 200:
                return status, {name.lower(): value for name, value in headers.items()}

    async def chunk(self) -> bytes:
        """Read one chunk of a chunked body; empty for the last."""
        size = int((await self.until(b"\r\n")).strip() or b"0", 16)
        data = await self.exactly(size)
        await self.exactly(2)
        return data

    async def event(self) -> bytes:
        """Read one server-sent event, across chunk borders."""
        text = b""
        while not text.endswith(b"\n\n"):
            part = await self.chunk()
            if not part:
                raise EOFError(text)
            text += part
        return text

    async def answer(self, *, head_only: bool = False) -> Answer:
        status, headers = await self.head()
        body = b""
        if not head_only:
            if "content-length" in headers:
                body = await self.exactly(int(headers["content-length"]))
            elif headers.get("transfer-encoding") == "chunked":
                while part := await self.chunk():
                    body += part
            elif status not in (204, 304):
                body = await self.rest()
        return Answer(status, headers, body)

    async def request(
        self, method: str, path: str, body: bytes = b"", *, host: str = "localhost", **headers: str
    ) -> Answer:
        await self.send(request_bytes(method, path, body, host=host, **headers))
        return await self.answer(head_only=method == "HEAD")

    async def closed(self) -> bool:
        """Wait for the server to close; what it sends before is dropped."""
        await self.rest()
        return True

    def reset(self) -> None:
        """Close with a RST."""
        sock = self.stream.socket
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()


def request_bytes(
    method: str, path: str, body: bytes = b"", *, host: str = "localhost", **headers: str
) -> bytes:
    """Return a request. Header names are given with underscores; a body is JSON unless they say otherwise."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    if body or method in ("POST", "PUT", "PATCH"):
        fields.setdefault("Content-Length", str(len(body)))
        fields.setdefault("Content-Type", "application/json")
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {host}",
        *(f"{name}: {value}" for name, value in fields.items()),
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


@dataclass
class Server:
    """A running server."""

    endpoint: Endpoint
    address: str
    stop: Stop
    nursery: trio.Nursery
    done: trio.Event = field(default_factory=trio.Event)

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @asynccontextmanager
    async def connect(self, *, receive_buffer: int = 0) -> AsyncGenerator[Connection]:
        sock = trio.socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await sock.connect(("127.0.0.1", self.port))
        stream = trio.SocketStream(sock)
        try:
            yield Connection(stream)
        finally:
            stream.socket.close()

    async def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        async with self.connect() as connection:
            return await connection.request(method, path, body, **headers)

    async def raw(self, data: bytes) -> bytes:
        """Send bytes, and return all that comes until the server closes."""
        async with self.connect() as connection:
            await connection.send(data)
            return await connection.rest()

    @asynccontextmanager
    async def websocket(self, path: str, **headers: str) -> AsyncGenerator[WebSocketConnection]:
        extra = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        # A stream of our own: the library leaves it open when the server closes first.
        async with self.connect() as connection, trio.open_nursery() as nursery:
            websocket = await wrap_client_stream(
                nursery, connection.stream, f"127.0.0.1:{self.port}", path, extra_headers=extra
            )
            yield websocket
            with trio.move_on_after(1):
                await websocket.aclose()
            nursery.cancel_scope.cancel()

    async def ended(self) -> None:
        """Wait until the server has returned."""
        with trio.fail_after(PATIENCE):
            await self.done.wait()


QUICK = Settings(grace_seconds=0.3)


@asynccontextmanager
async def serving(
    rows: Iterable[Route], settings: Settings = QUICK, *, runtime: Any = None, address: str = "127.0.0.1:0"
) -> AsyncGenerator[Server]:
    """Serve ``rows`` for the body's time; at its end the server is stopped in order."""
    endpoint = Endpoint(Table(rows), runtime, settings)
    stop = Stop()
    async with trio.open_nursery() as nursery:
        server = Server(endpoint, "", stop, nursery)

        async def run(task_status: trio.TaskStatus[list[str]]) -> None:
            await serve(endpoint, [address], stop, announce=lambda _: None, task_status=task_status)
            server.done.set()

        [server.address] = await nursery.start(run)
        yield server
        stop.request("the test is over")
        with trio.fail_after(PATIENCE):
            await server.done.wait()
        nursery.cancel_scope.cancel()


async def echo(request: Request, _: Any) -> Reply:
    """Answer with what came."""
    return Reply(
        {
            "method": request.method,
            "path": request.path,
            "params": dict(request.path_params),
            "query": dict(request.query),
            "size": len(request.raw),
        }
    )


def row(
    method: Method,
    path: str,
    handler: Any = echo,
    scope: Scope = Scope.READ,
    summary: str = "A test's row",
    **options: Any,
) -> Route:
    return route(method, path, scope, handler, summary=summary, **options)


class Feed:
    """A byte source that a test writes into; it tells how it was left."""

    def __init__(self) -> None:
        self._put, self._get = trio.open_memory_channel[bytes | None](100)
        self.entered = trio.Event()
        self.left = trio.Event()
        self.left_by: BaseException | None = None

    def send(self, *parts: bytes | None) -> None:
        for part in parts:
            self._put.send_nowait(part)

    async def next(self) -> bytes | None:
        return await self._get.receive()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Feed]:
        self.entered.set()
        try:
            yield self
        except BaseException as exc:
            self.left_by = exc
            raise
        finally:
            self.left.set()

    async def was_left(self) -> None:
        with trio.fail_after(PATIENCE):
            await self.left.wait()


@dataclass
class Frame:
    """A frame as the journal's tail hands it out."""

    seq: int
    event: object = None
    encoded: dict[str, bytes] = field(default_factory=dict[str, bytes])


@dataclass
class Gap:
    resume: int = 0


class Following:
    """A follower that hands out given batches, then waits or ends."""

    def __init__(self, batches: Sequence[Sequence[Frame] | Gap], *, ends: bool = True) -> None:
        self._batches = iter(batches)
        self._ends = ends

    async def next(self) -> Sequence[Frame] | Gap | None:
        await trio.lowlevel.checkpoint()
        batch = next(self._batches, None)
        if batch is None and not self._ends:
            await trio.sleep_forever()
        return batch

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Following]:
        yield self
