"""Server-sent events: frames to bytes, heartbeats, resume points. It knows no kinds of events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import trio
from msgspec import Struct

from gateway.http import Headers, Request, StreamReply

PING = b": ping\n\n"
FAREWELL = b": server is shutting down\n\n"
HEADERS: Headers = (
    ("Cache-Control", "no-cache"),
    ("Connection", "keep-alive"),
    ("X-Accel-Buffering", "no"),
)
LAST_SEQ = 2**63 - 1


class Frame(Protocol):
    """One event of a stream as the journal's tail hands it out, shared by all its readers.

    ``encoded`` is the place where each wire form of the event is kept once it was made.
    """

    @property
    def seq(self) -> int:
        """The event's number in its stream."""
        ...

    @property
    def event(self) -> object:
        """What happened."""
        ...

    @property
    def encoded(self) -> dict[str, bytes]:
        """Its wire forms so far, by dialect."""
        ...


class Gap(Protocol):
    """Stands for events that are no longer there; what else it says is the wire's business."""

    @property
    def resume(self) -> int:
        """Reading goes on above this number."""
        ...


class Follower(Protocol):
    """A cursor on a stream."""

    async def next(self) -> Sequence[Frame] | Gap | None:
        """Return every frame available, waiting for the first; ``None`` at the stream's end."""
        ...


class SseDialect(Struct, frozen=True):
    """How a dialect's frames look on the wire.

    Attributes:
        name: Key under which the bytes are kept on the frame: one per distinct way of encoding.
        data: The event's JSON on one line; several for one frame become several SSE events with the same id;
            ``None`` or empty: this frame is not for this dialect.
        event: The SSE ``event`` field; ``None`` for no such field.
        id: The SSE ``id`` field; ``None`` for no such field. Must be free of line ends and NUL.
        gap: The JSON sent, without an id, for a gap; ``None`` for nothing.
        gap_event: The SSE ``event`` field of a gap, or empty.
    """

    name: str
    data: Callable[[Frame], bytes | Sequence[bytes] | None]
    event: Callable[[Frame], str] | None = None
    id: Callable[[Frame], str] | None = lambda frame: str(frame.seq)
    gap: bytes | None = b'{"type":"gap"}'
    gap_event: str = ""


def event_block(data: bytes, *, event: str = "", id: str = "") -> bytes:  # noqa: A002 - the field's own name
    """Return one SSE event.

    Args:
        data: One line. JSON is: its strings escape every line end that SSE knows (CR and LF).
        event: The event's type, or empty for none.
        id: Its id, or empty for none.
    """
    assert b"\n" not in data, "a line end in data forges fields"
    assert b"\r" not in data, "a line end in data forges fields"
    head = f"id: {id}\n" if id else ""
    if event:
        head += f"event: {event}\n"
    return head.encode() + b"data: " + data + b"\n\n"


def encode(frame: Frame, wire: SseDialect) -> bytes:
    """Return a frame's SSE bytes, made once per dialect and kept on the frame; empty when not for this dialect."""
    key = wire.name
    known = frame.encoded.get(key)
    if known is not None:
        return known
    data = wire.data(frame)
    parts: Sequence[bytes] = () if data is None else (data,) if isinstance(data, bytes) else data
    event = "" if wire.event is None else wire.event(frame)
    id_ = "" if wire.id is None else wire.id(frame)
    block = b"".join(event_block(part, event=event, id=id_) for part in parts)
    frame.encoded[key] = block
    return block


class EventSource:
    """The byte source of a follower: whatever is there goes out as one piece, and silence as a ping."""

    __slots__ = ("_follower", "_gap", "_heartbeat", "_wire")

    def __init__(self, follower: Follower, wire: SseDialect, heartbeat: float | None) -> None:
        self._follower = follower
        self._wire = wire
        self._heartbeat = heartbeat
        self._gap = b"" if wire.gap is None else event_block(wire.gap, event=wire.gap_event)

    async def next(self) -> bytes | None:
        """Return the next events' bytes, or a ping when there were none for the heartbeat's time."""
        while True:
            batch: Sequence[Frame] | Gap | None = ()
            silent = True
            with trio.CancelScope() as scope:
                if self._heartbeat is not None:
                    scope.deadline = trio.current_time() + self._heartbeat
                batch = await self._follower.next()
                silent = False
            if silent:
                return PING
            if batch is None:
                return None
            if not isinstance(batch, Sequence):
                if self._gap:
                    return self._gap
                continue
            wire = self._wire
            key = wire.name
            data = b"".join([frame.encoded.get(key) or encode(frame, wire) for frame in batch])
            if data:
                return data


def open_events(
    follower: Callable[[], AbstractAsyncContextManager[Follower]],
    wire: SseDialect,
    heartbeat: float | None = 15.0,
    headers: Headers = (),
) -> StreamReply:
    """Return the reply that streams a follower's frames.

    Args:
        follower: Opens it, in the connection's task; see :class:`gateway.http.StreamReply` for how it is
        left.
        wire: How frames look.
        heartbeat: Seconds of silence before a comment is sent; ``None`` for none.
        headers: Sent besides the usual ones.
    """

    @asynccontextmanager
    async def opened() -> AsyncGenerator[EventSource]:
        async with follower() as opened_follower:
            yield EventSource(opened_follower, wire, heartbeat)

    return StreamReply(opened, headers=HEADERS + headers, farewell=FAREWELL)


def resume_point(request: Request) -> int | None:
    """Return the sequence number after which the client wants to go on; ``None``: from the oldest kept event.

    ``?since=`` wins over ``Last-Event-ID``. Text that is no unsigned decimal counts as none (sessions
    contract 1.5). A number too large for any stream stays too large, so that it never turns into a full
    replay.
    """
    text = request.first("since") or request.headers.get("last-event-id", "").split(",")[0]
    text = text.strip()
    if not (text.isascii() and text.isdigit()):
        return None
    return int(text) if len(text.lstrip("0")) < 19 else LAST_SEQ
