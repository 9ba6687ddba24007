"""Non-blocking sockets on trio for the front: accepted sockets, their options, and noticing that a peer has left."""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Callable
from typing import Protocol

import trio

CHUNK = 65536
_SLOW = 0.5


class Transport:
    """An accepted socket.

    Reading and writing wait in ``trio.lowlevel`` directly: an object per connection and a scope per call less
    than ``trio.SocketStream``. One task may read while another writes.
    """

    __slots__ = ("_open", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._open = True

    async def receive(self) -> bytes:
        """Wait for bytes; empty when the peer is done or gone. Checkpoint: always."""
        while self._open:
            try:
                await trio.lowlevel.wait_readable(self.sock)
                return self.sock.recv(CHUNK)
            except BlockingIOError:
                continue
            except (OSError, trio.ClosedResourceError):
                return b""
        await trio.lowlevel.checkpoint()
        return b""

    def send_now(self, data: bytes) -> int:
        """Send what the kernel takes at once and return how much; -1 when the peer is gone."""
        try:
            return self.sock.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            return -1

    async def send(self, data: bytes) -> bool:
        """Send everything, waiting as long as it takes; false when the peer is gone.

        Checkpoint: only when the kernel's buffer is full. Cancellation: an unknown part was sent.
        """
        sent = self.send_now(data)
        if sent == len(data):
            return True
        rest = memoryview(data)
        while sent >= 0 and self._open:
            rest = rest[sent:]
            if not rest:
                return True
            try:
                await trio.lowlevel.wait_writable(self.sock)
                sent = self.sock.send(rest)
            except BlockingIOError:
                sent = 0
            except (OSError, trio.ClosedResourceError):
                return False
        return False

    def finish(self) -> None:
        """Tell the peer that nothing more comes; reading goes on."""
        if self._open:
            try:
                self.sock.shutdown(socket.SHUT_WR)
            except OSError:
                return

    def close(self) -> None:
        """Close the socket; whoever waits on it wakes up. Idempotent."""
        if self._open:
            self._open = False
            trio.lowlevel.notify_closing(self.sock)
            self.sock.close()


def tune(sock: socket.socket, send_seconds: float) -> None:
    """Set the options that a TCP listener's accepted sockets inherit or get.

    No Nagle delay; keep-alive probes; and where the system has it (Linux), the kernel itself drops a peer
    that leaves sent bytes unacknowledged for ``send_seconds``.
    """
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(send_seconds * 1000))


class Hangups(Protocol):
    """Notices peers that close while nobody reads from them: during a stream or a slow handler."""

    def watch(self, sock: socket.socket, left: Callable[[], None]) -> None:
        """Call ``left`` once when the peer closes or half-closes, until ``unwatch``."""
        ...

    def unwatch(self, sock: socket.socket) -> None:
        """Stop watching; idempotent."""
        ...

    async def run(self) -> None:
        """Watch, for ever."""
        ...

    def close(self) -> None:
        """Release what the watcher holds."""
        ...


class EpollHangups:
    """Watches every such peer with one task and one file descriptor of its own."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, Callable[[], None]] = {}

    def watch(self, sock: socket.socket, left: Callable[[], None]) -> None:
        """See :class:`Hangups`."""
        fd = sock.fileno()
        if fd < 0:
            left()
            return
        self._watched[fd] = left
        self._epoll.register(fd, select.EPOLLRDHUP)

    def unwatch(self, sock: socket.socket) -> None:
        """See :class:`Hangups`."""
        fd = sock.fileno()
        if self._watched.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    async def run(self) -> None:
        """See :class:`Hangups`."""
        while True:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
            for fd, _ in self._epoll.poll(0):
                left = self._watched.pop(fd, None)
                self._epoll.unregister(fd)
                if left is not None:
                    left()

    def close(self) -> None:
        """See :class:`Hangups`."""
        self._epoll.close()


class PeekHangups:
    """Looks at each such peer twice a second; for systems without epoll."""

    def __init__(self, every: float = _SLOW) -> None:
        self._every = every
        self._watched: dict[socket.socket, Callable[[], None]] = {}

    def watch(self, sock: socket.socket, left: Callable[[], None]) -> None:
        """See :class:`Hangups`."""
        self._watched[sock] = left

    def unwatch(self, sock: socket.socket) -> None:
        """See :class:`Hangups`."""
        self._watched.pop(sock, None)

    async def run(self) -> None:
        """See :class:`Hangups`."""
        while True:
            await trio.sleep(self._every)
            for sock, left in list(self._watched.items()):
                if _has_left(sock):
                    self._watched.pop(sock, None)
                    left()

    def close(self) -> None:
        """See :class:`Hangups`."""
        self._watched.clear()


def _has_left(sock: socket.socket) -> bool:
    try:
        return sock.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def open_hangups() -> Hangups:
    """Return the watcher this system allows."""
    return EpollHangups() if sys.platform == "linux" else PeekHangups()
