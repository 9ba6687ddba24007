"""The single writer of an execution's stream: decide, fold, store, write the ledger, publish, in that order.

The actor and its workers both record, one after the other; a decision is made on the state that all earlier ones left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from actors.errors import Gone, NotStored
from actors.journal.log import Append, EventLog, JournalUnavailable, SequenceConflict
from actors.squad import codec
from actors.squad import messages as m
from actors.squad.events import SquadEvent
from actors.squad.mirror import ChangeBuilder, Mirror
from actors.squad.state import ExecutionState

APPEND_DEADLINE = 60.0
"""Seconds a write may take before it counts as a failed disk."""
Step = Callable[[], Sequence[m.ExecutionEvent]]


class StorageFailed(NotStored):
    """The journal did not take the events; the execution must be read again."""


class Recorder:
    """See the module. Owned by one incarnation of an execution actor and used by it and its work.

    Args:
        log: The journal.
        state: The execution, folded up to the stream's head.
        mirror: Its workspace's side.
        publish: Shows an event to everybody who follows; never waits.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        log: EventLog,
        state: ExecutionState,
        mirror: Mirror,
        publish: Callable[[SquadEvent], None],
        clock: Callable[[], float],
    ) -> None:
        self._log = log
        self._state = state
        self._mirror = mirror
        self._publish = publish
        self._clock = clock
        self._stored = state.seq
        self._lock = trio.Lock()
        self._failed: Exception | None = None

    async def commit(self, decide: Step, then: Step | None = None) -> list[m.ExecutionEvent]:
        """Record what ``decide`` returns, and then what ``then`` returns until it returns nothing.

        Args:
            decide: Called with nobody else writing; raising records nothing.
            then: Called again after each of its answers was folded in.

        Returns:
            All events recorded.

        Raises:
            StorageFailed: the disk failed; the state is ahead of the stream, and this incarnation is done.
            SequenceConflict: another activation wrote the stream; likewise.

        Cancellation: what was decided is recorded first.
        """
        with trio.CancelScope(shield=True, deadline=trio.current_time() + APPEND_DEADLINE) as scope:
            async with self._lock:
                # Shielded, with a deadline: a cancelled write would leave it unknown what is stored.
                return await self._commit(decide, then)
        assert scope.cancelled_caught, "it returned otherwise"
        self._failed = JournalUnavailable(f"no answer from the disk within {APPEND_DEADLINE:.0f} s")
        raise StorageFailed(str(self._failed))

    async def _commit(self, decide: Step, then: Step | None) -> list[m.ExecutionEvent]:
        if self._failed is not None:
            raise StorageFailed("the execution's last write failed; it is being read again") from self._failed
        state, builder, at = self._state, ChangeBuilder(self._state), self._clock()
        events: list[m.ExecutionEvent] = []
        batch = decide()
        while batch:
            for event in batch:
                state.evolve(state.seq + 1, at, event)
                builder.add(at, event)
            events += batch
            batch = then() if then is not None else ()
        if not events:
            return events
        first = state.seq - len(events) + 1
        records = tuple(codec.encode(event, first + index, at) for index, event in enumerate(events))
        try:
            head = await self._log.append(
                Append(stream=codec.stream_of(state.id), expected=self._stored, records=records)
            )
        except JournalUnavailable as error:
            self._failed = error
            raise StorageFailed(str(error)) from error
        except (SequenceConflict, Gone) as error:
            self._failed = error
            raise
        self._stored = head.seq
        change = builder.build()
        await self._mirror.write(change)
        for announcement in change.announcements:
            if not announcement.ledger_only:
                self._publish(announcement.event)
        return events
