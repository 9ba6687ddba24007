"""A small table served through either door, and a client that speaks bytes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
import trio
from msgspec import Struct

from actors.errors import Conflict, NotFound, Overloaded
from gateway.endpoint import Endpoint
from gateway.http import Reply, Request, StreamReply
from gateway.route import Route, Scope, Table, route, socket
from gateway.serve import Stop, serve
from gateway.settings import Settings


class Echo(Struct):
    text: str = ""
    number: int = 0


@dataclass
class World:
    """What the rows' handlers act on: stands for a runtime."""

    cancelled: list[str] = field(default_factory=list)
    opened: int = 0
    release: trio.Event = field(default_factory=trio.Event)


class Ticks:
    """A stream of numbered pieces; after ``count`` it ends, or waits for ever."""

    def __init__(self, count: int, *, endless: bool, size: int = 0) -> None:
        self.count, self.endless, self.size, self.sent = count, endless, size, 0

    async def next(self) -> bytes | None:
        if self.sent < self.count:
            self.sent += 1
            await trio.lowlevel.checkpoint()
            return b"data: %d %s\n\n" % (self.sent, b"x" * self.size)
        if self.endless:
            await trio.sleep_forever()
        return None


async def echo(request: Request, _: World) -> Reply:
    return Reply(msgspec.to_builtins(request.body))


async def size(request: Request, _: World) -> Reply:
    return Reply({"size": len(request.raw), "query": dict(request.query)})


async def boom(_: Request, __: World) -> Reply:
    raise RuntimeError("the secret of the failure")


async def group(_: Request, __: World) -> Reply:
    raise ExceptionGroup("several", [Conflict("c"), ValueError("v")])


async def refused(request: Request, _: World) -> Reply:
    kinds = {"404": NotFound("no such thing"), "409": Conflict("busy"), "429": Overloaded("full", 3.2)}
    raise kinds[request.path_params["kind"]]


async def slow(_: Request, world: World) -> Reply:
    world.opened += 1
    try:
        await world.release.wait()
    except trio.Cancelled:
        world.cancelled.append("slow")
        raise
    return Reply({"done": True})


def stream(count: int, *, endless: bool, size: int = 0):
    async def handler(_: Request, world: World) -> StreamReply:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Ticks]:
            world.opened += 1
            try:
                yield Ticks(count, endless=endless, size=size)
            except trio.Cancelled:
                world.cancelled.append("stream")
                raise

        return StreamReply(opened, farewell=b": bye\n\n")

    return handler


async def chat(request: Request, world: World):
    if request.first("refuse"):
        raise NotFound("no such room")

    async def run(sock) -> None:
        world.opened += 1
        while (message := await sock.receive()) is not None:
            await sock.send(message)

    return run


ROUTES: tuple[Route, ...] = (
    route("POST", "/api/echo", Scope.WRITE, echo, summary="echo", body=Echo),
    route("POST", "/api/v1/echo", Scope.WRITE, echo, summary="strict echo", body=Echo, dialect=None),
    route("POST", "/api/size", Scope.WRITE, size, summary="size"),
    route("GET", "/api/size", Scope.READ, size, summary="size"),
    route("GET", "/api/boom", Scope.READ, boom, summary="a bug"),
    route("GET", "/api/group", Scope.READ, group, summary="a bug in a group"),
    route("GET", "/api/refused/{kind}", Scope.READ, refused, summary="refusals"),
    route("GET", "/api/slow", Scope.READ, slow, summary="waits"),
    route("GET", "/api/short", Scope.READ, stream(3, endless=False), summary="a stream"),
    route("GET", "/api/endless", Scope.READ, stream(1, endless=True), summary="an endless stream"),
    route("GET", "/api/flood", Scope.READ, stream(10**9, endless=True, size=65536), summary="a flood"),
    route("GET", "/health", Scope.PUBLIC, size, summary="open"),
    socket("/api/chat", Scope.READ, chat, summary="a socket"),
)


def table() -> Table:
    from gateway.dialect import SQUADS

    return Table(
        msgspec.structs.replace(row, dialect=SQUADS) if row.path.startswith("/api/v1") else row
        for row in ROUTES
    )


@dataclass
class Door:
    host: str
    port: int
    world: World
    stop: Stop
    endpoint: Endpoint

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream(self.host, self.port)

    async def send(self, raw: bytes) -> bytes:
        """Send bytes on a connection of their own and read until the server closes."""
        stream = await self.connect()
        async with stream:
            await stream.send_all(raw)
            return await read_all(stream)

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        given = {"Host": f"{self.host}:{self.port}", "Connection": "close", **(headers or {})}
        if body and not any(name.lower() in ("content-length", "transfer-encoding") for name in given):
            given["Content-Length"] = str(len(body))
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in given.items()) + "\r\n"
        return parse(await self.send(head.encode() + body))


async def read_all(stream: trio.SocketStream) -> bytes:
    data = b""
    try:
        while piece := await stream.receive_some(65536):
            data += piece
    except trio.BrokenResourceError:
        pass  # a reset after the answer is an end, too
    return data


def parse(data: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, rest = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding") == "chunked":
        rest = unchunk(rest)
    return int(lines[0].split()[1]), headers, rest


def unchunk(data: bytes) -> bytes:
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        count = int(size, 16)
        if count == 0:
            break
        body, data = body + data[:count], data[count + 2 :]
    return body


@asynccontextmanager
async def open_door(**settings) -> AsyncGenerator[Door]:
    world, stop = World(), Stop()
    endpoint = Endpoint(table(), world, Settings(**settings))
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:

            async def run(task_status=trio.TASK_STATUS_IGNORED) -> None:
                await serve(endpoint, ["127.0.0.1:0"], stop, announce=lambda _: None, task_status=task_status)

            (address,) = await nursery.start(run)
            host, _, port = address.rpartition(":")
            yield Door(host, int(port), world, stop, endpoint)
            stop.request("the test is over")
