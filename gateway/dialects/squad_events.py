"""Squad events on live channels: SSE blocks and WebSocket messages, filtered by name (squads contract 4.4-4.7)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import trio

from actors.errors import Invalid
from actors.journal.ring import Frame
from actors.squad.bus import Follower, Gap, Lagged
from actors.squad.events import DELETED, PREFIX
from gateway.errors import HttpFailure
from gateway.http import JSON, Request
from gateway.sse import PING, event_block
from gateway.websocket import Socket

GAP = "stream:gap"
LAGGED = "stream:lagged"
_CURSOR = re.compile(r"[0-9A-Za-z]{1,64}-[0-9]{1,18}")
_encode = msgspec.json.encode
Batch = Sequence[Frame] | Gap | Lagged


def wanted_types(given: Iterable[str]) -> frozenset[str]:
    """Return the names of a ``?types`` filter; empty for everything.

    A name that no event has is accepted: nothing will come.

    Raises:
        Invalid: a name is not a squad event's; the message contains it.
    """
    names = {name.strip() for text in given for name in text.split(",")} - {""}
    for name in sorted(names):
        if not name.startswith(PREFIX):
            raise Invalid(f"invalid input: types: {name} is not a {PREFIX}* event")
    return frozenset(names)


def given_cursor(request: Request) -> str | None:
    """Return the cursor from which a client wants to go on; ``None`` when it gave none.

    ``?cursor=`` wins over its alias ``?lastEventId=``, and that over the header ``Last-Event-ID``, which a browser
    repeats by itself.

    Raises:
        Invalid: it cannot have come from this API.
    """
    cursor = (
        request.first("cursor") or request.first("lastEventId") or request.headers.get("last-event-id", "")
    ).strip()
    if cursor and not _CURSOR.fullmatch(cursor):
        raise Invalid("invalid input: the cursor is malformed")
    return cursor or None


class Channel:
    """One client's view of the events: what it wants to see, and how.

    Args:
        boot: First part of this process's cursors.
        types: Names the client wants; empty for all.
        squad_id: The squad it follows; its end is the channel's. ``None`` for all squads.
        resumable: Whether events carry the cursor with which the client can go on.
        refused: Says whether the client's credential was revoked since; nothing is sent to it then.
    """

    def __init__(
        self,
        boot: str,
        types: frozenset[str],
        squad_id: str | None,
        *,
        resumable: bool,
        refused: Callable[[], bool] = lambda: False,
    ) -> None:
        self.refused = refused
        self._boot = boot
        self._types = types
        self._squad_id = squad_id
        self._resumable = resumable
        self._dialect = "squads-sse" if resumable else "squads-sse-plain"

    def ends_with(self, batch: Batch) -> bool:
        """Say whether nothing can follow a batch, because the squad is gone."""
        return (
            self._squad_id is not None
            and isinstance(batch, Sequence)
            and any(frame.event.name == DELETED for frame in batch)
        )

    def sse(self, batch: Batch) -> bytes:
        """Return a batch as SSE blocks; empty when the client wants none of it."""
        if not isinstance(batch, Sequence):
            name, data = _control(batch)
            return event_block(_encode(data), event=name)
        return b"".join([frame.encode(self._dialect, self._sse_block) for frame in self._wanted(batch)])

    def messages(self, batch: Batch) -> Sequence[str]:
        """Return a batch as WebSocket messages."""
        if not isinstance(batch, Sequence):
            name, data = _control(batch)
            return (_encode({"event": name, "data": data}).decode(),)
        return [frame.encode("squads-ws", self._message).decode() for frame in self._wanted(batch)]

    def _wanted(self, batch: Sequence[Frame]) -> Sequence[Frame]:
        types = self._types
        return [frame for frame in batch if frame.event.name in types] if types else batch

    def _sse_block(self, frame: Frame) -> bytes:
        cursor = f"{self._boot}-{frame.seq}" if self._resumable else ""
        return event_block(_encode(frame.event.payload), event=frame.event.name, id=cursor)

    def _message(self, frame: Frame) -> bytes:
        event = frame.event
        return _encode({"id": f"{self._boot}-{frame.seq}", "event": event.name, "data": event.payload})


def _control(notice: Gap | Lagged) -> tuple[str, JSON]:
    name = GAP if isinstance(notice, Gap) else LAGGED
    data: Any = msgspec.to_builtins(notice)
    return name, data


class ChannelSource:
    """The byte source of an SSE channel.

    Args:
        follower: Where the events come from.
        channel: What the client sees of them.
        heartbeat: Seconds of silence before a comment is sent.
    """

    def __init__(self, follower: Follower, channel: Channel, heartbeat: float) -> None:
        self._follower = follower
        self._channel = channel
        self._heartbeat = heartbeat
        self._ended = False

    async def next(self) -> bytes | None:
        """Return the next blocks the client wants, or a ping when there were none for the heartbeat's time."""
        if self._ended:
            return None
        deadline = trio.current_time() + self._heartbeat
        while True:
            batch: Batch | None = None
            with trio.CancelScope(deadline=deadline):
                batch = await self._follower.next()
            if self._channel.refused():
                return None
            if batch is None:
                return PING
            self._ended = self._channel.ends_with(batch)
            data = self._channel.sse(batch)
            if data:
                return data
            if self._ended:
                return None


async def send_events(socket: Socket, follower: Follower, channel: Channel) -> None:
    """Send a channel's events on a socket until its squad is gone; what the client sends is dropped.

    Raises:
        HttpFailure: 401, the client's credential was revoked.
    """
    socket.ignore_messages()
    ended = False
    while not ended:
        batch = await follower.next()
        if channel.refused():
            raise HttpFailure(401, "the key was revoked")
        ended = channel.ends_with(batch)
        for message in channel.messages(batch):
            await socket.send(message)
