"""The process's live squad events: followers of all squads or of one, each at its own cursor. Knows no disk.

A publisher never waits. Each reader keeps a place in a bounded ring; who falls out of it is told how much was dropped
and goes on with what there is.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Literal

import trio
from msgspec import Struct

from actors.journal.ring import Frame
from actors.squad.events import SquadEvent

ALL_FRAMES = 4096
"""Recent events of all squads together that are kept for readers."""
SQUAD_FRAMES = 1000
"""Recent events of one squad that are kept; also its activity log in memory."""
TOTAL_FRAMES = 200_000
"""Events kept in the rings of all squads together; beyond it, the squads that were quiet longest lose theirs."""
BATCH = 256


class Gap(Struct, frozen=True, rename="camel"):
    """What lies behind the cursor ``requested`` is not kept any more; reading goes on at ``oldest_available``."""

    requested: str
    oldest_available: str
    reason: Literal["evicted", "restarted"]


class Lagged(Struct, frozen=True):
    """The reader was too slow; this many events were dropped for it."""

    dropped: int


class _Ring:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.frames: list[Frame] = []
        self.base = 0  # how many frames have left on the left
        self.floor = 0  # number of the last frame that left
        self._parked: dict[trio.lowlevel.Task, None] = {}

    def add(self, frame: Frame) -> int:
        """Add a frame, wake the readers, and return by how many the ring has grown."""
        before = len(self.frames)
        self.frames.append(frame)
        if before >= self.capacity + BATCH:
            self.evict(before + 1 - self.capacity)
        parked, self._parked = self._parked, {}
        for task in parked:
            trio.lowlevel.reschedule(task)
        return len(self.frames) - before

    def evict(self, count: int) -> None:
        """Drop the oldest frames."""
        if count:
            self.floor = self.frames[count - 1].seq
            self.base += count
            del self.frames[:count]

    async def park(self) -> None:
        task = trio.lowlevel.current_task()
        self._parked[task] = None

        def abort(_: object) -> trio.lowlevel.Abort:
            del self._parked[task]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)


class Bus:
    """See the module. Frames are numbered process-wide from 1; a cursor is ``<boot>-<number>``."""

    def __init__(self) -> None:
        self.boot = secrets.token_hex(6)
        self.last = 0
        self._all = _Ring(ALL_FRAMES)
        self._squads: dict[str, _Ring] = {}
        """The squad that published last comes last."""
        self._kept = 0

    def publish(self, event: SquadEvent) -> Frame:
        """Show an event to its followers. Checkpoint: never."""
        self.last += 1
        frame = Frame(self.last, event.at, event)
        self._all.add(frame)
        ring = self._squads.pop(event.squad_id, None) or _Ring(SQUAD_FRAMES)
        self._squads[event.squad_id] = ring
        self._kept += ring.add(frame)
        if self._kept > TOTAL_FRAMES:
            self._make_room()
        return frame

    def _make_room(self) -> None:
        for ring in self._squads.values():
            self._kept -= len(ring.frames)
            ring.evict(len(ring.frames))
            if self._kept <= TOTAL_FRAMES:
                return

    def recent(self, squad_id: str) -> Sequence[Frame]:
        """Return the squad's recent events, oldest first."""
        ring = self._squads.get(squad_id)
        return ring.frames[-SQUAD_FRAMES:] if ring is not None else ()

    def forget(self, squad_id: str) -> None:
        """Drop what is kept of a deleted squad; its followers stay where they are."""
        ring = self._squads.pop(squad_id, None)
        if ring is not None:
            self._kept -= len(ring.frames)

    def cursor(self, frame: Frame) -> str:
        """Return the cursor of a reader who has seen ``frame`` and all before it."""
        return f"{self.boot}-{frame.seq}"

    @contextmanager
    def follow(self, squad_id: str | None, after: str | None = None) -> Generator[Follower]:
        """Follow the events of a squad, or of all, from a cursor on; without one, what comes from now on.

        Raises:
            ValueError: the cursor is malformed.
        """
        ring = self._all if squad_id is None else self._ring(squad_id)
        yield Follower(self, ring, after)

    def _ring(self, squad_id: str) -> _Ring:
        return self._squads.get(squad_id) or self._squads.setdefault(squad_id, _Ring(SQUAD_FRAMES))


class Follower:
    """One reader; for one task at a time."""

    def __init__(self, bus: Bus, ring: _Ring, after: str | None) -> None:
        self._bus = bus
        self._ring = ring
        self._notice: Gap | None = None
        self._place = ring.base + len(ring.frames)
        if after is not None:
            self._resume(after)

    async def next(self) -> Sequence[Frame] | Gap | Lagged:
        """Return what follows, at most :data:`BATCH` frames, waiting if there is nothing yet.

        Returns:
            Frames in order; or a gap, once, when the cursor was too old; or how many frames were dropped.

        Cancellation: the place stays; nothing is lost.
        """
        await trio.lowlevel.checkpoint()
        while (found := self.next_nowait()) is None:
            await self._ring.park()
        return found

    def next_nowait(self) -> Sequence[Frame] | Gap | Lagged | None:
        """Return what :meth:`next` would return at once; None when it would wait."""
        ring = self._ring
        if self._notice is not None:
            gap, self._notice = self._notice, None
            return gap
        if self._place < ring.base:
            dropped = ring.base - self._place
            self._place = ring.base
            return Lagged(dropped)
        start = self._place - ring.base
        frames = ring.frames[start : start + BATCH]
        self._place += len(frames)
        return frames or None

    def _resume(self, after: str) -> None:
        boot, dash, number = after.rpartition("-")
        if not dash or not boot or not number.isascii() or not number.isdigit():
            raise ValueError(f"cursor {after!r} is malformed")
        ring = self._ring
        seen = int(number)
        if boot != self._bus.boot or seen > self._bus.last:
            self._notice = self._gap(after, "restarted")
            self._place = ring.base
        elif seen < ring.floor:
            self._notice = self._gap(after, "evicted")
            self._place = ring.base
        else:
            self._place = ring.base + bisect_right(ring.frames, seen, key=_seq)

    def _gap(self, requested: str, reason: Literal["evicted", "restarted"]) -> Gap:
        ring, bus = self._ring, self._bus
        oldest = ring.frames[0].seq if ring.frames else bus.last + 1
        return Gap(requested, f"{bus.boot}-{oldest}", reason)


def _seq(frame: Frame) -> int:
    return frame.seq
