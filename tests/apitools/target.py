"""A hostile HTTP server on loopback: every path is a way to misbehave; what it receives is kept."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import msgspec
import trio

KIB = 1024


@dataclass
class Received:
    """One request as it came over the wire."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> object:
        return msgspec.json.decode(self.body)


@dataclass
class Target:
    """A running server.

    Attributes:
        seen: The requests, in order.
        gone: Set when a client left a connection that was still being answered.
    """

    port: int = 0
    seen: list[Received] = field(default_factory=list)
    gone: trio.Event = field(default_factory=trio.Event)
    release: trio.Event = field(default_factory=trio.Event)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def serve(self, stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async with stream:
                request = await self._read(stream)
                if request is not None:
                    self.seen.append(request)
                    await self._answer(stream, request)

    async def _read(self, stream: trio.SocketStream) -> Received | None:
        data = b""
        while b"\r\n\r\n" not in data:
            part = await stream.receive_some(64 * KIB)
            if not part or part[:1] == b"\x16":  # a TLS client has come to the wrong door
                return None
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        while len(body) < int(headers.get("content-length", "0")):
            body += await stream.receive_some(64 * KIB)
        method, target, _ = first.split(" ")
        return Received(method, target, headers, body)

    async def _answer(self, stream: trio.SocketStream, request: Received) -> None:
        path = request.target.partition("?")[0]
        match path:
            case "/hang":
                await self._left(stream)
            case "/drip":
                await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                with suppress(trio.BrokenResourceError):
                    while True:
                        await trio.sleep(0.05)
                        await stream.send_all(b"x")
                self.gone.set()
            case "/gated":
                await self.release.wait()
                await stream.send_all(reply(200, b'{"late":"LATE-ANSWER"}', "application/json"))
            case "/reset":
                stream.socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            case "/short":
                await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nabc")
            case "/garbage":
                await stream.send_all(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")
            case "/endless-head":
                await stream.send_all(b"HTTP/1.1 200 OK\r\n")
                while True:
                    await stream.send_all(b"X-Filler: " + b"x" * 8000 + b"\r\n")
            case "/endless-body":
                await stream.send_all(
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/plain\r\n\r\n"
                )
                while True:
                    await stream.send_all(b"1000\r\n" + b"y" * 4096 + b"\r\n")
            case "/bomb":
                squeeze = zlib.compressobj(9, wbits=31)
                data = b"".join(squeeze.compress(bytes(1 << 20)) for _ in range(256)) + squeeze.flush()
                await stream.send_all(reply(200, data, "text/plain", "Content-Encoding: gzip"))
            case "/gzip":
                body = gzip.compress(b'{"packed":true}')
                await stream.send_all(reply(200, body, "application/json", "Content-Encoding: gzip"))
            case "/loop":
                await stream.send_all(reply(302, b"", "", "Location: /loop"))
            case _:
                await stream.send_all(self._plain(path, request))

    async def _left(self, stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            while await stream.receive_some(1024):
                pass
        self.gone.set()

    def _plain(self, path: str, request: Received) -> bytes:
        match path:
            case "/big":
                return reply(
                    200,
                    msgspec.json.encode([{"n": n, "t": "z" * 90} for n in range(50_000)]),
                    "application/json",
                )
            case "/none":
                return b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
            case "/empty":
                return reply(200, b"", "application/json")
            case "/created":
                return reply(201, b"", "", "Location: /x")
            case "/broken":
                return reply(200, b'{"half": ', "application/json")
            case "/latin":
                return reply(200, "caf\xe9".encode("latin-1"), "text/plain; charset=iso-8859-1")
            case "/png":
                return reply(200, b"\x89PNG\0\1\2", "image/png")
            case "/numbers":
                return reply(200, b'{ "b": 1.10, "a": 12345678901234567890123 }', "application/json")
            case "/missing":
                return reply(404, '{"error":"알 수 없는 지점입니다."}'.encode(), "application/json")
            case "/down":
                return reply(503, b'{"error":"down"}', "application/json", "Retry-After: 7")
            case "/page":
                return reply(500, b"<h1>Oops</h1>", "text/html")
            case "/echo-secret":
                return reply(
                    200,
                    msgspec.json.encode({"you_sent": request.headers.get("authorization", "")}),
                    "application/json",
                )
            case "/moved":
                return reply(302, b"", "", "Location: /ok")
            case "/inside":
                return reply(302, b"", "", "Location: http://169.254.169.254/latest")
            case _:
                return reply(200, b'{"ok":true}', "application/json")


def reply(status: int, body: bytes, kind: str, *headers: str) -> bytes:
    """Return a whole response."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
    if kind:
        lines.append(f"Content-Type: {kind}")
    return "\r\n".join([*lines, "", ""]).encode() + body


@asynccontextmanager
async def target() -> AsyncGenerator[Target]:
    """Serve on a free port of loopback for the block."""
    server = Target()
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        server.port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, server.serve, listeners)
        yield server
        nursery.cancel_scope.cancel()
