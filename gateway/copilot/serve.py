"""Serving the Copilot door on a TCP address, or on this process's standard input and output."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Callable

import trio

from gateway.copilot.door import Door
from gateway.listeners import Listener, open_listeners
from gateway.serve import Stop
from gateway.settings import Settings

logger = logging.getLogger("gateway.copilot")


def announce_port(listener: Listener) -> None:
    """Print the line in which an SDK that started this process looks for the port."""
    _, _, port = listener.address.rpartition(":")
    if port.isdecimal():
        sys.stdout.write(f"listening on port {port}\n")
        sys.stdout.flush()


async def serve_tcp(door: Door, address: str, stop: Stop, announced: Callable[[Listener], None]) -> None:
    """Serve every client that connects, until a stop is asked for. Raises: Invalid, Unavailable."""
    (listener,) = open_listeners([address], Settings())
    try:
        accepting = trio.SocketListener(trio.socket.from_stdlib_socket(listener.sock))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_accept, door, accepting, nursery)
            announced(listener)
            await stop.wait()
            nursery.cancel_scope.cancel()
    finally:
        listener.close()


async def _accept(door: Door, accepting: trio.SocketListener, nursery: trio.Nursery) -> None:
    async def client(stream: trio.SocketStream) -> None:
        await door.serve(Acknowledging(stream))

    await trio.serve_listeners(client, [accepting], handler_nursery=nursery)


class Acknowledging:
    """A TCP stream that acknowledges what it reads at once.

    The SDKs write a frame in two pieces and leave Nagle's algorithm on: without this the second piece of each waits for
    a delayed acknowledgement, 40 ms a request.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._option = getattr(socket, "TCP_QUICKACK", None)

    async def send_all(self, data: bytes) -> None:
        """Write to the client."""
        await self._stream.send_all(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Read from the client."""
        if self._option is not None:  # holds until the next acknowledgement only
            self._stream.setsockopt(socket.IPPROTO_TCP, self._option, 1)
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        """Close it."""
        await self._stream.aclose()


class StandardStreams:
    """This process's standard input and output as one stream.

    What else would print goes to standard error from now on: nothing but frames may reach the client.
    """

    def __init__(self) -> None:
        sys.stdout.flush()
        self._in = trio.lowlevel.FdStream(os.dup(0))
        self._out = trio.lowlevel.FdStream(os.dup(1))
        os.dup2(2, 1)

    async def send_all(self, data: bytes) -> None:
        """Write to the client."""
        await self._out.send_all(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Read from the client."""
        return await self._in.receive_some(max_bytes)

    async def aclose(self) -> None:
        """Close both."""
        await self._in.aclose()
        await self._out.aclose()


async def serve_stdio(door: Door, stop: Stop) -> None:
    """Serve the one client at standard input and output, until it leaves or a stop is asked for."""
    async with trio.open_nursery() as nursery:

        async def client() -> None:
            await door.serve(StandardStreams())
            stop.request("the client left")

        nursery.start_soon(client)
        await stop.wait()
        nursery.cancel_scope.cancel()
