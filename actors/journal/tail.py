"""Live ends of streams: one writer publishes, any number of followers read, each at its own cursor.

A follower is a cursor and costs no memory beside its task: it reads the log until it reaches the ring, then
the ring, then parks. So the slow-reader rule is that there is none: the publisher never waits, the ring is
bounded, and a reader that falls behind the ring reads the log again; who wants to cut off a stalled
connection does so above.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import apsw
import trio
from msgspec import Struct

from actors.errors import ActorsError
from actors.journal.log import EventLog, Head, Record
from actors.journal.memory import MemoryLog
from actors.journal.ring import Frame, Ring
from actors.journal.rows import read_head

BATCH = 256
"""The most frames :meth:`Follower.next` returns at once."""

_PAGE = 64
_log = logging.getLogger("actors.journal")

Decode = Callable[[Record], Sequence[Frame]]
"""Turns a record into its frames, oldest first; the last one has the record's number."""


class Tail:
    """A publisher's hold on a stream's live end. Nothing here waits.

    A stream has one publisher at a time. What it publishes before it is stored (text deltas) is kept in the
    ring, beyond its bound if need be, until :meth:`mark_durable`; so it stores such frames several times a
    second.
    """

    def __init__(self, tails: Tails, ring: Ring) -> None:
        self._tails = tails
        self._ring = ring
        self._closed = False

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self._ring.stream

    @property
    def followers(self) -> int:
        """How many read this stream now."""
        return self._ring.followers

    def publish(self, frames: Sequence[Frame]) -> None:
        """Show frames to the followers, waking each parked one once.

        Raises:
            ValueError: the numbers do not rise; nothing was published.
        """
        self._ring.publish(frames)

    def mark_durable(self, seq: int) -> None:
        """Say that the log holds everything up to ``seq``; due after each append, published or not yet."""
        self._ring.mark_durable(seq)

    def end(self) -> None:
        """Say that nothing will follow; followers get what is left and then ``None``."""
        self._ring.end()

    def close(self) -> None:
        """Give the hold up; idempotent. Followers stay, and see what a later hold or another process adds."""
        if not self._closed:
            self._closed = True
            self._ring.publishers -= 1
            self._tails.settle(self._ring)


class Tails:
    """The live ends that somebody holds, one object per process; what nobody holds costs nothing."""

    def __init__(self) -> None:
        self._rings: dict[str, Ring] = {}
        self._watched: dict[str, Ring] = {}
        self._unchecked: set[str] = set()
        self._work = trio.Event()

    def open(self, stream: str) -> Tail:
        """Return a publisher's hold; ``close`` it."""
        ring = self.ring(stream)
        ring.attach()
        self.settle(ring)
        return Tail(self, ring)

    def ring(self, stream: str) -> Ring:
        """Return what the holders of a stream share; the caller counts itself in and calls :meth:`settle`."""
        return self._rings.get(stream) or self._rings.setdefault(stream, Ring(stream))

    def settle(self, ring: Ring) -> None:
        """Take note that the ring's publishers or followers changed; drop it when it has neither."""
        stream = ring.stream
        if not ring.publishers and not ring.followers:
            self._rings.pop(stream, None)
            self._watched.pop(stream, None)
            self._unchecked.discard(stream)
        elif not ring.publishers and stream not in self._watched:
            self._watched[stream] = ring
            self._unchecked.add(stream)
            self._work.set()

    def __len__(self) -> int:
        return len(self._rings)

    async def poll(self, log: EventLog, every: float = 1.0) -> None:
        """Watch, for ever, the streams that are followed but not published here: another process may write.

        It sleeps while there is no such stream, and looks at heads only when the database has changed.

        Args:
            log: The log the followers read.
            every: Seconds between looks.
        """
        seen: dict[int, object] = {}
        while True:
            if not self._watched:
                self._work = trio.Event()
                await self._work.wait()
            await trio.sleep(every)
            rings, unchecked = dict(self._watched), set(self._unchecked)
            try:
                heads = await log.query(partial(_changed_heads, seen, list(rings), unchecked))
            except ActorsError as error:
                _log.warning("cannot look for other writers", extra={"reason": error.message})
                continue
            self._unchecked -= unchecked
            for stream, ring in rings.items():
                if stream in heads:
                    _learn(ring, heads[stream])
                if ring.publishers and self._watched.get(stream) is ring:
                    del self._watched[
                        stream
                    ]  # its publisher came after the last look, so not before this one


@asynccontextmanager
async def open_tails(log: EventLog, every: float = 1.0) -> AsyncGenerator[Tails]:
    """Open a process's live ends over ``log``, with a task that does :meth:`Tails.poll` beside them.

    A journal in memory is not polled: no other process can write it.
    """
    tails = Tails()
    async with trio.open_nursery() as nursery:
        if not isinstance(log, MemoryLog):
            nursery.start_soon(tails.poll, log, every)
        yield tails
        nursery.cancel_scope.cancel()


def _changed_heads(
    seen: dict[int, object], streams: Sequence[str], unchecked: set[str], db: apsw.Connection
) -> dict[str, Head]:
    # The first number moves when another connection commits, the second when this one does. A log has a few
    # connections to read from; what each saw last is compared with what it sees now.
    version = (db.pragma("data_version"), db.total_changes())
    changed = seen.get(id(db)) != version
    seen[id(db)] = version
    return {stream: read_head(db, stream) for stream in streams if changed or stream in unchecked}


def _learn(ring: Ring, head: Head) -> None:
    ring.learn_head(head.seq)
    if head.purged and not ring.publishers:
        ring.end()


class Gap(Struct, frozen=True):
    """What lies between ``after`` and ``resume`` cannot be given: it was deleted, or never reached the disk.

    Reading goes on above ``resume``. ``resume`` below ``after`` means that the reader had seen numbers that
    the log lost or never gave out.
    """

    after: int
    resume: int


class Follower:
    """One reader of one stream; for one task at a time."""

    def __init__(self, log: EventLog, ring: Ring, cursor: int, decode: Decode) -> None:
        self._log = log
        self._ring = ring
        self._decode = decode
        self._gap: Gap | None = None
        self.cursor = cursor
        """All up to this number was returned; pass it as ``after`` to go on later."""
        if cursor > ring.top:
            self._gap = Gap(cursor, ring.top)
            self.cursor = ring.top

    async def next(self) -> Sequence[Frame] | Gap | None:
        """Return what follows the cursor, at most :data:`BATCH` frames, waiting if there is nothing yet.

        Returns:
            Frames in order; or a gap, once, where frames are missing; or ``None`` when the stream has ended.

        Raises:
            JournalUnavailable: the disk failed; calling again goes on at the cursor.

        Cancellation: the cursor stays; nothing is lost.
        """
        await trio.lowlevel.checkpoint()
        ring = self._ring
        while True:
            if self._gap is not None:
                gap, self._gap = self._gap, None
                return gap
            if self.cursor < ring.floor:
                if frames := await self._read_log():
                    return frames
                continue
            # From here to parking nothing waits, so nothing published can be missed.
            if frames := ring.after(self.cursor, BATCH):
                self.cursor = frames[-1].seq
                return frames
            if ring.ended:
                return None
            await ring.park()

    async def _read_log(self) -> Sequence[Frame]:
        stream = self._ring.stream
        floor = self._ring.floor  # what the log surely holds when the read begins, which later floors are not
        records = await self._log.read(stream, self.cursor, _PAGE)
        frames: list[Frame] = []
        for record in records:
            frames.extend(frame for frame in self._decode(record) if frame.seq > self.cursor)
            if len(frames) >= BATCH:
                del frames[BATCH:]
                break
        else:
            reached = records[-1].seq if records else self.cursor
            if len(records) < _PAGE and reached < floor:
                # The rest up to the floor was never stored (numbers may be skipped), unless the stream was
                # deleted.
                if (await self._log.head(stream)).purged:
                    self._gap = Gap(reached, floor)
                reached = floor
            self.cursor = reached
            return frames
        self.cursor = frames[-1].seq
        return frames


@asynccontextmanager
async def open_follower(
    log: EventLog, tails: Tails, stream: str, after: int | None, decode: Decode
) -> AsyncGenerator[Follower]:
    """Follow a stream from a cursor; it may be one that was never written.

    Args:
        log: Where the stream is stored.
        tails: This process's live ends.
        stream: Its name.
        after: The last number the reader has; 0 for everything, ``None`` for what comes from now on. A number
            that lies beyond the stream's end gives a :class:`Gap` and goes on at the end: never a second full
            replay.
        decode: The stream's codec.
    """
    ring = tails.ring(stream)
    ring.followers += 1
    tails.settle(ring)
    try:
        head = await log.head(stream)
        _learn(ring, head)
        yield Follower(log, ring, ring.top if after is None else after, decode)
    finally:
        ring.followers -= 1
        tails.settle(ring)
