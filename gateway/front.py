"""The front door: accepts connections, keeps their deadlines and ends them; HTTP/1.1 itself is next door."""

from __future__ import annotations

import errno
import logging
import math
import resource
import socket

import trio

from gateway.endpoint import Endpoint
from gateway.front_connection import Connection
from gateway.front_io import Transport, open_hangups, tune
from gateway.handover import Handover
from gateway.listeners import Listener

log = logging.getLogger("gateway")

_BATCH = 64
_SLOW_HANDLER = 0.5
_NO_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_RETRY_SECONDS = (0.05, 1.0)
_COMPLAIN_EVERY = 10.0
_RESERVED = 64
"""Descriptors kept back for what runs already: the database, model connections, tools."""


class Front:
    """All connections of one server.

    Args:
        endpoint: Answers the requests.
        handover: Takes the connections that are not plain HTTP/1.1; all of them when the settings turn the
            front off.

    Attributes:
        connections: Those the front serves itself.
        hangups: Notices peers that leave while nobody reads.
    """

    def __init__(self, endpoint: Endpoint, handover: Handover) -> None:
        self.endpoint = endpoint
        self.handover = handover
        self.settings = endpoint.settings
        self.connections: set[Connection] = set()
        self.hangups = open_hangups()
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = math.inf if soft == resource.RLIM_INFINITY else max(soft - _RESERVED, soft // 2)

    def __len__(self) -> int:
        """Return how many connections are open, whoever serves them."""
        return len(self.connections) + len(self.handover)

    async def watch(self) -> None:
        """Keep the connections' deadlines and notice peers that leave; for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.hangups.run)
            nursery.start_soon(self._sweep)

    def close(self) -> None:
        """Release what is left when every connection has ended."""
        self.hangups.close()

    async def _sweep(self) -> None:
        """End what is overdue. One pass over numbers costs less than a cancel scope at every read and write."""
        settings = self.settings
        shortest = min(settings.header_seconds, settings.idle_seconds, settings.send_seconds)
        every = min(0.5, shortest / 4)
        while True:
            await trio.sleep(every)
            now = trio.current_time()
            slow = now - _SLOW_HANDLER
            for connection in list(self.connections):
                if connection.deadline < now:
                    connection.hang_up()
                elif connection.busy_since < slow:
                    connection.watch()
            self.endpoint.metrics.connections.set(len(self))

    async def accept(self, listener: Listener, connections: trio.Nursery) -> None:
        """Accept connections until cancelled, through every shortage of descriptors or memory."""
        sock = listener.sock
        pause, complained = _RETRY_SECONDS[0], -math.inf
        while True:
            await trio.lowlevel.wait_readable(sock)
            shortage = "" if len(self) < self._most else "the descriptors left are kept for what runs already"
            for _ in range(int(min(_BATCH, self._most - len(self)))):
                try:
                    accepted, address = sock.accept()
                except BlockingIOError:
                    break
                except OSError as exc:
                    if exc.errno not in _NO_RESOURCES:
                        continue  # the peer was gone before it was accepted
                    shortage = exc.strerror or str(exc)
                    break
                pause = _RETRY_SECONDS[0]
                self._start(accepted, address, listener, connections)
            if not shortage:
                continue
            self.endpoint.metrics.refused.inc()
            if trio.current_time() - complained > _COMPLAIN_EVERY:
                complained = trio.current_time()
                log.warning("cannot accept connections: %s (%d are open)", shortage, len(self))
            await trio.sleep(pause)
            pause = min(pause * 2, _RETRY_SECONDS[1])

    def _start(
        self, accepted: socket.socket, address: object, listener: Listener, connections: trio.Nursery
    ) -> None:
        try:
            accepted.setblocking(False)
            tune(accepted, self.settings.send_seconds)
        except OSError:  # reset in the meantime
            accepted.close()
            return
        transport = Transport(accepted)
        peer = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "unix"
        if self.settings.front:
            connections.start_soon(Connection(self, transport, listener.bind, peer).run)
        else:
            connections.start_soon(self._serve_elsewhere, transport, listener)

    async def _serve_elsewhere(self, transport: Transport, listener: Listener) -> None:
        try:
            await self.handover.serve(transport, b"", listener.bind)
        finally:
            transport.close()

    async def begin_closing(self) -> None:
        """Have every connection end at its next good moment."""
        for connection in list(self.connections):
            connection.shut_down()
        self.endpoint.closing.begin()
        await self.handover.begin_closing()

    def hang_up_all(self) -> None:
        """End every connection now."""
        for connection in list(self.connections):
            connection.hang_up()
        self.handover.hang_up_all()
