"""The single writer of a session's stream: numbers events, folds them, stores them, publishes them, in that order.

Two ways in. ``emit`` is for events whose loss in a crash would not falsify the history: they are published at once
and stored with the next write, at the latest after :data:`FLUSH_INTERVAL`. ``commit`` returns when the events are on
disk, and only then are they published (K13). Followers always see events in number order: a transient one that
comes while a commit is in flight waits for it.

Numbers only ever rise, also after ``kill -9``: before a number above ``Head.reserved`` is shown to anybody, a higher
reserve is stored.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol

import trio

from actors.errors import Gone, NotStored
from actors.journal.log import Append, EventLog, Head, JournalUnavailable, SequenceConflict
from actors.journal.ring import Frame
from actors.journal.tail import Tail, Tails
from actors.session import codec
from actors.session.codec import Numbered
from actors.session.messages import SessionEvent

logger = logging.getLogger("greenroom.session")

FLUSH_INTERVAL = 0.25
"""Seconds after which emitted events are stored at the latest (house decision 4)."""
RESERVE = 1024
"""How many numbers are reserved ahead while a run streams."""
APPEND_DEADLINE = 60.0
"""Seconds a write may take before it counts as a failed disk."""


class StorageFailed(NotStored):
    """The disk refused the command's events; nothing was stored and nothing happened."""


class Fold(Protocol):
    """What the recorder keeps up to date: the session's state."""

    def evolve(self, item: Numbered) -> None:
        """Fold one event in."""
        ...


class Recorder:
    """See the module. Owned by one incarnation of a session actor and used by it and its work.

    Args:
        log: The journal.
        tails: Where followers wait.
        stream: The stream's name.
        head: The stream's head as read at activation.
        fold: The state; every event reaches it the moment it is numbered.
        clock: Returns seconds since the epoch.
        dirty: Called when events wait to be stored; the runtime flushes all dirty recorders together.
    """

    def __init__(
        self,
        log: EventLog,
        tails: Tails,
        stream: str,
        head: Head,
        fold: Fold,
        *,
        clock: Callable[[], float],
        dirty: Callable[[Recorder], None],
    ) -> None:
        self._log = log
        self._tails = tails
        self._tail: Tail | None = None
        self.stream = stream
        self._fold = fold
        self._clock = clock
        self._dirty = dirty
        self.stored = head.seq
        self.reserved = max(head.seq, head.reserved)
        self.seq = self.reserved
        self.written_records = 0
        self.written_bytes = 0
        self._pending: list[Numbered] = []
        self._unpublished: deque[tuple[Numbered, bool]] = deque()
        self._lock = trio.Lock()
        self._ending = False
        self.failed: Exception | None = None

    def emit(self, event: SessionEvent) -> int:
        """Number, fold and publish a transient event; return its number. Checkpoint: never."""
        item = self._stage(event, durable=False)
        self._publish()
        if len(self._pending) == 1:
            self._dirty(self)
        return item.seq

    @contextmanager
    def live(self) -> Generator[None]:
        """Publish emitted events before they are stored, for the block: a run's."""
        self._tail = self._tails.open(self.stream)
        try:
            yield
        finally:
            self._tail.close()
            self._tail = None

    async def commit(self, *events: SessionEvent, ahead: bool = True, end: bool = False) -> int:
        """Number, fold, store and publish events, with everything emitted before; return the last number.

        Args:
            *events: What to record; none stores what was emitted.
            ahead: Keep numbers reserved for what a run will emit next; false at its end, so that none are skipped.
            end: Nothing will follow, ever: followers end once they have read these.

        Raises:
            StorageFailed: The disk failed. The state is ahead of the log now: the incarnation must be rebuilt.
            SequenceConflict: Another activation wrote the stream (K11); likewise.

        Cancellation: The write is finished first.
        """
        if self.failed is not None:
            raise StorageFailed("the session's last write failed; it is being reloaded") from self.failed
        for event in events:
            self._stage(event, durable=True)
        self._ending = self._ending or end
        goal = self.seq
        await self._flush(goal, ahead=ahead)
        return goal

    async def flush(self) -> None:
        """Store what was emitted; called by the runtime for dirty recorders. Failures show up at the next commit."""
        try:
            await self._flush(self.seq, ahead=True)
        except (StorageFailed, SequenceConflict) as error:
            logger.warning("session flush failed", extra={"stream": self.stream, "error": str(error)})

    @property
    def idle(self) -> bool:
        """Whether everything numbered is stored."""
        return not self._pending

    def _stage(self, event: SessionEvent, *, durable: bool) -> Numbered:
        self.seq += 1
        item = Numbered(self.seq, self._clock(), event)
        self._pending.append(item)
        self._unpublished.append((item, durable))
        self._fold.evolve(item)
        return item

    async def _flush(self, goal: int, *, ahead: bool) -> None:
        # The write must end whatever happens to the caller: a cancelled one would leave it unknown what is stored.
        with trio.CancelScope(shield=True, deadline=trio.current_time() + APPEND_DEADLINE) as scope:
            async with self._lock:
                if self.failed is not None:
                    raise StorageFailed("the session's last write failed") from self.failed
                if self.stored < goal and self._pending:
                    await self._write(ahead=ahead)
        if scope.cancelled_caught:
            self.failed = JournalUnavailable(f"no answer from the disk within {APPEND_DEADLINE:.0f} s")
            raise StorageFailed(str(self.failed))
        await trio.lowlevel.checkpoint_if_cancelled()

    async def _write(self, *, ahead: bool) -> None:
        batch = self._pending
        self._pending = []
        last = batch[-1].seq
        reserve = last + RESERVE if ahead else last
        append = Append(
            stream=self.stream, expected=self.stored, records=tuple(codec.encode(batch)), reserve=reserve
        )
        try:
            head = await self._log.append(append)
        except JournalUnavailable as error:
            self.failed = error
            raise StorageFailed(str(error)) from error
        except (SequenceConflict, Gone) as error:
            self.failed = error
            raise
        self.stored = head.seq
        self.reserved = head.reserved
        self.written_records += len(append.records)
        self.written_bytes += sum(len(record.data) for record in append.records)
        self._publish()
        if self._pending:
            self._dirty(self)

    def _publish(self) -> None:
        """Show followers every leading event that may be seen by now."""
        ready: list[Frame] = []
        queue = self._unpublished
        while queue:
            item, durable = queue[0]
            if item.seq > self.stored and (durable or self._tail is None):
                break
            if item.seq > self.reserved:
                self._dirty(self)
                break
            queue.popleft()
            ready.append(Frame(item.seq, item.at, item.event, _size(item.event)))
        if not ready:
            return
        tail = self._tail or self._tails.open(self.stream)
        tail.publish(ready)
        tail.mark_durable(self.stored)
        if self._ending and not queue:
            tail.end()
        if tail is not self._tail:
            tail.close()


def _size(event: SessionEvent) -> int:
    """Return about how many bytes an event holds on to, for the bound of what followers find in memory."""
    text = 0
    for name in ("text", "content", "output", "reasoning"):
        text += len(getattr(event, name, ""))
    return 512 + 2 * text
