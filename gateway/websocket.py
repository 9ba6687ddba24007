"""A WebSocket connection as handlers see it: one reader, one writer, close codes; frames, not their meaning."""

from __future__ import annotations

from typing import Protocol


class Socket(Protocol):
    """An open WebSocket.

    The reader task runs beside the handler, so that a close is noticed at once, and the handler's own ``send`` is
    the back-pressure: it returns when the kernel has taken the bytes, and a peer that takes none is dropped.
    """

    async def receive(self) -> str | bytes:
        """Wait for a message.

        Raises:
            SocketClosed: the peer closed.
        """
        ...

    async def send(self, data: str | bytes) -> None:
        """Send a message; text for ``str``.

        Raises:
            SocketClosed: the peer closed.
        """
        ...

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Send a close frame; nothing may be sent after it."""
        ...
