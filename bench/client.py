"""A load client that costs less than the server: HTTP/1.1 over bare trio sockets, answers seen as bytes."""

from __future__ import annotations

import time

import msgspec
import trio
from msgspec import Struct

READ = 65536


class Turn(Struct, frozen=True):
    """One streamed answer. ``first`` and ``total`` are seconds after the request; ``chunks`` counts text events."""

    ok: bool
    first: float
    total: float
    chunks: int
    detail: str = ""


def request(host: str, path: str, body: object, *, close: bool = False) -> bytes:
    """Return the bytes of a JSON POST."""
    payload = msgspec.json.encode(body)
    head = f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(payload)}\r\n" + ("connection: close\r\n" if close else "")
    return head.encode() + b"\r\n" + payload


async def connect(address: str) -> trio.SocketStream:
    """Open a connection to ``host:port`` without name resolution."""
    host, _, port = address.rpartition(":")
    sock = trio.socket.socket()
    try:
        await sock.connect((host, int(port)))
    except OSError:
        sock.close()
        raise
    return trio.SocketStream(sock)


class KeptAlive:
    """One connection for a sequence of short requests."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stream: trio.SocketStream | None = None

    async def post(self, path: str, body: object) -> bytes:
        """POST ``body`` and return the answer's body.

        Raises:
            RuntimeError: the status is not 200, or the connection ended inside the answer.
        """
        if self._stream is None:
            self._stream = await connect(self._address)
        await self._stream.send_all(request(self._address, path, body))
        data = b""
        while b"\r\n\r\n" not in data:
            data += await self._more(data)
        head, _, rest = data.partition(b"\r\n\r\n")
        lowered = head.lower()
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{path}: {data[:300]!r}")
        length = int(lowered.split(b"content-length:")[1].split(b"\r\n")[0])
        while len(rest) < length:
            rest += await self._more(rest)
        if b"connection: close" in lowered:
            await self.aclose()
        return rest

    async def _more(self, so_far: bytes) -> bytes:
        assert self._stream is not None
        data = await self._stream.receive_some(READ)
        if not data:
            raise RuntimeError(f"connection closed after {so_far[:200]!r}")
        return data

    async def aclose(self) -> None:
        """Close the connection; the next request opens another."""
        if self._stream is not None:
            stream, self._stream = self._stream, None
            await stream.aclose()


async def streamed(address: str, path: str, body: object, *, chunk: bytes, last: bytes) -> Turn:
    """POST and read a streamed answer to its end.

    Args:
        address: ``host:port``.
        path: Request path.
        body: Encoded as JSON.
        chunk: Bytes found exactly once in every text event.
        last: Bytes that must occur in a complete answer.
    """
    began = time.perf_counter()
    first = 0.0
    data = bytearray()
    try:
        stream = await connect(address)
        async with stream:
            await stream.send_all(request(address, path, body, close=True))
            while piece := await stream.receive_some(READ):
                data += piece
                if not first and chunk in data:
                    first = time.perf_counter() - began
                if data.endswith(b"\r\n0\r\n\r\n"):
                    break
    except OSError as error:
        return Turn(False, first, time.perf_counter() - began, 0, repr(error))
    except trio.BrokenResourceError as error:
        return Turn(False, first, time.perf_counter() - began, 0, repr(error))
    ok = data.startswith(b"HTTP/1.1 200") and last in data and chunk in data
    return Turn(
        ok, first, time.perf_counter() - began, data.count(chunk), "" if ok else bytes(data[-300:]).decode()
    )
