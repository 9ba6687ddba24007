"""The recent frames of one stream and the tasks that wait for the next; synchronous, knows no disk."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import trio
from msgspec import Struct, field

RING_FRAMES = 1024
RING_BYTES = 1 << 20


class Frame(Struct, eq=False):
    """One event on its way to readers.

    Attributes:
        seq: Its number in the stream.
        at: Seconds since the epoch.
        event: What the publisher published or ``decode`` returned; never looked at here.
        size: About how many bytes it holds on to; the ring's byte bound counts these.
        encoded: The event's bytes by dialect; filled by :meth:`encode`.
    """

    seq: int
    at: float
    event: Any
    size: int = 512
    encoded: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def encode(self, dialect: str, encoder: Callable[[Frame], bytes]) -> bytes:
        """Return the frame's bytes in ``dialect``, calling ``encoder`` only if no reader has before."""
        encoded = self.encoded.get(dialect)
        if encoded is None:
            encoded = self.encoded[dialect] = encoder(self)
        return encoded


class Ring:
    """What :class:`~actors.journal.tail.Tail` and the followers of one stream share.

    The invariant: every frame of the stream above ``floor`` that was published is held here, and everything
    up to ``floor`` that was ever stored is in the log. So a reader below ``floor`` reads the log, others read
    the ring.
    """

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.floor = 0
        self.ended = False
        self.publishers = 0
        self.followers = 0
        self._frames: list[Frame] = []
        self._bytes = 0
        self._durable = 0
        self._fresh = True
        self._parked: dict[trio.lowlevel.Task, None] = {}

    @property
    def top(self) -> int:
        """The highest number known: the newest frame's, or that of the last record when there is no frame."""
        return max(self.floor, self._frames[-1].seq) if self._frames else self.floor

    def attach(self) -> None:
        """Count a publisher in."""
        self.publishers += 1
        self.ended = False
        self._fresh = True

    def publish(self, frames: Sequence[Frame]) -> None:
        """Add frames in rising order and wake everybody who waits; ValueError, and nothing added, otherwise."""
        if not frames:
            return
        # A hole after a change of publisher: another process may have written in between, so the log is asked;
        # what the predecessor left here is stored or was lost with it.
        reset = self._fresh and frames[0].seq != self.top + 1
        last = self._frames[-1].seq if self._frames and not reset else 0
        for frame in frames:
            if frame.seq <= last:
                msg = f"{self.stream}: frame {frame.seq} does not follow {last}"
                raise ValueError(msg)
            last = frame.seq
        self._fresh = False
        if reset:
            self._drop_frames()
        if not self._frames:
            self.floor = max(self.floor, frames[0].seq - 1)
        self._frames.extend(frames)
        self._bytes += sum(frame.size for frame in frames)
        self._evict()
        self.wake()

    def mark_durable(self, seq: int) -> None:
        """Allow frames up to ``seq`` to be evicted: the log has them."""
        self._durable = max(self._durable, seq)
        self._evict()

    def learn_head(self, seq: int) -> None:
        """Take note that the log reaches ``seq``, which some other process may have written."""
        if seq > self.top:
            self._drop_frames()
            self.floor = seq
            self.wake()

    def end(self) -> None:
        """Let followers stop once they have read what is left."""
        self.ended = True
        self.wake()

    def after(self, cursor: int, limit: int) -> Sequence[Frame]:
        """Return up to ``limit`` frames above ``cursor``, which must not be below ``floor``."""
        frames = self._frames
        if not frames or frames[-1].seq <= cursor:
            return ()
        start = bisect_right(frames, cursor, key=_seq)
        return frames[start : start + limit]

    async def park(self) -> None:
        """Wait for :meth:`wake`."""
        task = trio.lowlevel.current_task()
        self._parked[task] = None

        def abort(_: object) -> trio.lowlevel.Abort:
            del self._parked[task]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def wake(self) -> None:
        """Resume every parked task, once."""
        parked, self._parked = self._parked, {}
        for task in parked:
            trio.lowlevel.reschedule(task)

    def _evict(self) -> None:
        frames, count, size = self._frames, 0, self._bytes
        while (
            (len(frames) - count > RING_FRAMES or size > RING_BYTES)
            and count < len(frames)
            and frames[count].seq <= self._durable
        ):
            size -= frames[count].size
            count += 1
        if count:
            self.floor = max(self.floor, frames[count - 1].seq)
            self._bytes = size
            del frames[:count]

    def _drop_frames(self) -> None:
        self.floor = self.top
        self._frames = []
        self._bytes = 0


def _seq(frame: Frame) -> int:
    return frame.seq
