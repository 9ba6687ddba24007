"""A WebSocket connection as handlers see it: reading, writing and close codes; it knows no kinds of messages.

Close codes: 1000 the runner has ended; 1009 a message was too large; 1011 our bug; 1012 the server
restarts; 1013 try again later; 4000 + status a refusal after the upgrade.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, cast

import msgspec
import trio

from actors.errors import Invalid
from gateway.closing import Closing
from gateway.errors import Failure, expected
from gateway.http import JSON
from gateway.sse import Follower, Frame

NORMAL = 1000
BUG = 1011
RESTART = 1012
TRY_LATER = 1013
REFUSED = 4000
_INBOX = 16
_CLOSE_SECONDS = 2.0


class SocketClosed(Exception):
    """The peer has closed, or this side has."""


class SocketTransport(Protocol):
    """What carries the messages; ``receive`` raises :class:`SocketClosed` when the peer is gone."""

    async def receive(self) -> str | bytes:
        """Wait for a message."""
        ...

    async def send(self, data: str | bytes) -> None:
        """Send a message; return when the kernel has it."""
        ...

    async def close(self, code: int, reason: str) -> None:
        """Send a close frame."""
        ...


class Socket:
    """An open WebSocket.

    A reader task beside the handler notices a close at once and cancels it. The handler's ``send`` is the
    back-pressure, in bytes: it returns when the kernel has taken them, and a peer that takes none for the
    send deadline is dropped. Nothing is queued for a slow peer.
    """

    def __init__(self, transport: SocketTransport) -> None:
        self._transport = transport
        self._put, self._inbox = trio.open_memory_channel[str | bytes](_INBOX)
        self._ignoring = False
        self._closed = False

    def ignore_messages(self) -> None:
        """Drop what the peer sends from now on, so that it cannot fill the inbox of a handler that never reads."""
        self._ignoring = True

    async def receive(self) -> str | bytes:
        """Wait for a message: text as ``str``.

        Raises:
            SocketClosed: the peer has closed.
        """
        try:
            return await self._inbox.receive()
        except trio.EndOfChannel:
            raise SocketClosed from None

    async def send(self, data: str | bytes) -> None:
        """Send a message: text for ``str``. Waits until the kernel has taken it.

        Raises:
            SocketClosed: the peer has closed, or :meth:`close` was called.
        """
        # Hypercorn drops what is sent to a peer that is gone without waiting: a runner that only sends must notice.
        await trio.lowlevel.checkpoint()
        if self._closed:
            raise SocketClosed
        await self._transport.send(data)

    async def close(self, code: int = NORMAL, reason: str = "") -> None:
        """Send a close frame; idempotent. The reason is cut to what a close frame can hold."""
        if not self._closed:
            self._closed = True
            await self._transport.close(code, reason.encode()[:120].decode("utf-8", "ignore"))

    async def read(self) -> None:
        """Move messages to the inbox until the peer closes. Run by :func:`run_socket`."""
        with self._put:
            try:
                while True:
                    message = await self._transport.receive()
                    if not self._ignoring:
                        await self._put.send(message)
            except SocketClosed:
                self._closed = True


SocketRunner = Callable[[Socket], Awaitable[None]]
Report = Callable[[Exception], str]


async def run_socket(
    transport: SocketTransport, runner: SocketRunner, closing: Closing, report: Report
) -> None:
    """Run ``runner`` on an accepted socket until it ends, the peer leaves or the server stops; then close it.

    Args:
        transport: The accepted connection.
        runner: Cancelled when the peer closes or the server stops.
        closing: Where the server announces that it stops.
        report: Logs a bug and returns its incident id.
    """
    socket = Socket(transport)
    code, reason = NORMAL, ""
    running = trio.CancelScope()

    async def read_until_closed() -> None:
        await socket.read()
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_until_closed)
        closing.add(running.cancel)
        try:
            with running:
                await runner(socket)
            if running.cancelled_caught:
                code, reason = RESTART, "server is shutting down"
        except Exception as exc:  # noqa: BLE001 - the socket's edge: the peer is told, the server goes on
            code, reason = _closing_words(exc, report)
        finally:
            closing.discard(running.cancel)
        with trio.move_on_after(_CLOSE_SECONDS):
            await socket.close(code, reason)
        nursery.cancel_scope.cancel()


def _closing_words(exc: Exception, report: Report) -> tuple[int, str]:
    if _is_close(exc):
        return NORMAL, ""
    failed = expected(exc)
    if failed is None:
        return BUG, f"internal error, incident {report(exc)}"
    if failed.status in (429, 503):
        return TRY_LATER, failed.message
    if failed.status >= 500:
        return BUG, failed.message
    return REFUSED + failed.status, failed.message


def _is_close(exc: Exception) -> bool:
    if isinstance(exc, ExceptionGroup):
        group = cast("ExceptionGroup[Exception]", exc)
        return group.split(SocketClosed)[1] is None
    return isinstance(exc, SocketClosed)


def follow_socket(
    follower: Callable[[], AbstractAsyncContextManager[Follower]],
    encode: Callable[[Frame], bytes | None],
    gap: Callable[[Any], bytes | None],
) -> SocketRunner:
    """Return the runner that sends a follower's frames as text messages; the peer's messages are ignored.

    Args:
        follower: Opens it.
        encode: A frame's message, or ``None`` for one that is not for this socket; keep the bytes on the
        frame.
        gap: A gap's message, or ``None`` for none.
    """

    async def run(socket: Socket) -> None:
        socket.ignore_messages()
        async with follower() as opened:
            while (batch := await opened.next()) is not None:
                messages = map(encode, batch) if isinstance(batch, Sequence) else [gap(batch)]
                for message in messages:
                    if message is not None:
                        await socket.send(message.decode())

    return run


def command_socket(answer: Callable[[dict[str, JSON]], Awaitable[JSON]]) -> SocketRunner:
    """Return the runner that answers commands, one at a time and in order.

    A command is a JSON object; its ``ref``, any value, comes back with the answer: ``{"ref", "reply"}``, or
    ``{"ref", "error": {"status", "code", "message"}}`` when ``answer`` raised an expected failure. A bug
    closes the socket with 1011.
    """

    async def run(socket: Socket) -> None:
        while True:
            message = await socket.receive()
            ref: JSON = None
            result: dict[str, JSON]
            try:
                command = _decode_command(message)
                ref = command.get("ref")
                result = {"ref": ref, "reply": await answer(command)}
            except Exception as exc:
                failed = expected(exc)
                if failed is None:
                    raise
                result = {"ref": ref, "error": _error(failed)}
            await socket.send(msgspec.json.encode(result).decode())

    return run


def _decode_command(message: str | bytes) -> dict[str, JSON]:
    try:
        return msgspec.json.decode(message, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise Invalid(f"not a command: {exc}") from None


def _error(failed: Failure) -> JSON:
    return {"status": failed.status, "code": failed.code, "message": failed.message}
