"""Connections that Hypercorn serves: WebSockets, HTTP/2, and everything when the front is off.

Hypercorn is used below its public surface: ``hypercorn.trio.tcp_server.TCPServer`` serves one connection
and needs only a stream. Three of its habits are corrected here: sends are shielded from cancellation
without a deadline, an error of one connection leaves it as an exception, and WebSocket pings are sent but
their answers not looked at.
"""

from __future__ import annotations

import importlib
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from gateway.front_io import Transport
from gateway.http import Bind

if TYPE_CHECKING:
    from gateway.endpoint import Endpoint

log = logging.getLogger("gateway.hypercorn")

Serve = Callable[["HandedStream", Bind], Awaitable[None]]
Stop = Callable[[float], Awaitable[None]]


class HandedStream:
    """An accepted socket as Hypercorn's TCP server wants it, with some received bytes put back in front.

    ``send_all`` has a deadline of its own, which ends it also inside Hypercorn's shield.
    """

    def __init__(self, transport: Transport, replay: bytes, send_seconds: float) -> None:
        self._transport = transport
        self._replay = replay
        self._send_seconds = send_seconds

    @property
    def socket(self) -> socket.socket:
        """The socket, for its addresses."""
        return self._transport.sock

    async def receive_some(self, max_bytes: int | None = None) -> bytes:  # noqa: ARG002
        """Return the bytes put back, then what arrives; empty at the end."""
        if self._replay:
            await trio.lowlevel.checkpoint()
            data, self._replay = self._replay, b""
            return data
        return await self._transport.receive()

    async def send_all(self, data: bytes) -> None:
        """Send everything.

        Raises:
            BrokenResourceError: the peer is gone, or took nothing for the send deadline; the socket is
            closed.
        """
        sent = False
        if data:
            with trio.move_on_after(self._send_seconds):
                sent = await self._transport.send(data)
        else:
            sent = True
        await trio.lowlevel.cancel_shielded_checkpoint()
        if not sent:
            self._transport.close()
            raise trio.BrokenResourceError

    async def send_eof(self) -> None:
        """Tell the peer that nothing more comes."""
        self._transport.finish()
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def aclose(self) -> None:
        """Close the socket; whoever waits on it wakes up."""
        self._transport.close()
        await trio.lowlevel.cancel_shielded_checkpoint()


class Handover:
    """Serves connections by Hypercorn, which is imported when the first one comes."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._serve: Serve | None = None
        self._stop: Stop | None = None
        self._loading = trio.Lock()
        self._open: dict[Transport, trio.CancelScope] = {}

    def __len__(self) -> int:
        """Return how many connections are open."""
        return len(self._open)

    async def serve(self, transport: Transport, replay: bytes, bind: Bind) -> None:
        """Serve a connection to its end; ``replay`` is what was already read from it. Raises nothing."""
        stream = HandedStream(transport, replay, self._endpoint.settings.send_seconds)
        with trio.CancelScope() as scope:
            self._open[transport] = scope
            try:
                serve = self._serve or await self._load()
                await serve(stream, bind)
            except Exception as exc:
                log.warning("connection failed: %r", exc, exc_info=exc)
            finally:
                del self._open[transport]

    async def _load(self) -> Serve:
        async with self._loading:
            if self._serve is None:
                # Imported off the loop: half a second in which everybody else would wait.
                await trio.to_thread.run_sync(_import_hypercorn)
                self._serve, self._stop = _make_serve(self._endpoint)
            return self._serve

    async def begin_closing(self) -> None:
        """Close idle connections and let the others end after their present request."""
        if self._stop is not None:
            await self._stop(self._endpoint.settings.grace_seconds / 2)

    def hang_up_all(self) -> None:
        """End every connection now, whatever it is doing; closing the socket wakes a shielded send, too."""
        for transport, scope in list(self._open.items()):
            transport.close()
            scope.cancel()


def _import_hypercorn() -> None:
    for module in ("gateway.app", "gateway.hypercorn_parts"):
        importlib.import_module(module)


def _make_serve(endpoint: Endpoint) -> tuple[Serve, Stop]:
    from gateway.app import create_app
    from gateway.hypercorn_parts import Worker

    worker = Worker(create_app(endpoint), endpoint.settings)
    return worker.serve, worker.begin_closing


__all__ = ["HandedStream", "Handover"]
