"""The call history: noted without waiting, written in batches, kept in segments of which the oldest are dropped."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial

import msgspec
import trio
from msgspec import structs

from actors.apitools import queries
from actors.apitools.messages import CallRecord, CallsRecorded, Page
from actors.errors import ActorsError
from actors.ids import new_id
from actors.journal.log import Append, EventLog, NewRecord

logger = logging.getLogger("greenroom.apitools")
SEGMENT_CALLS = 1000
"""Calls in one segment."""
SEGMENTS = 20
"""Segments that are kept."""
WAITING = 20_000
"""Records that may wait for the disk; beyond it the oldest are lost and counted."""
BATCH = 200
FLUSH_SECONDS = 5.0


class History:
    """Call records. Made by :func:`open_history`.

    Args:
        log: The journal.
        owner: This process's name.
        clock: Seconds since the epoch.
    """

    def __init__(self, log: EventLog, owner: str, clock: Callable[[], float]) -> None:
        self.owner = owner
        self.lost = 0
        self._log = log
        self._clock = clock
        self._waiting: deque[CallRecord] = deque()
        self._wake = trio.Event()
        self._idle = trio.Event()
        self._segment = ""
        self._seq = 0
        self._in_segment = 0

    def note(self, record: CallRecord) -> None:
        """Store a record soon. Checkpoint: never."""
        if len(self._waiting) >= WAITING:
            self._waiting.popleft()
            self.lost += 1
        self._waiting.append(structs.replace(record, owner=self.owner))
        self._wake.set()

    async def flush(self) -> None:
        """Wait until everything noted so far is on disk."""
        while self._waiting or not self._idle.is_set():
            await self._idle.wait()
            await trio.lowlevel.checkpoint()

    async def of_session(self, session_id: str, *, limit: int = 50, cursor: str = "") -> Page:
        """Return a session's calls, newest first, those just noted included."""
        return await self._page("session_id", session_id, limit, cursor)

    async def of_tool(self, tool_id: str, *, limit: int = 50, cursor: str = "") -> Page:
        """Return a tool's calls, newest first, those just noted included."""
        return await self._page("tool_id", tool_id, limit, cursor)

    async def recover(self, alive: Callable[[str], bool]) -> None:
        """Record as interrupted the calls whose process died."""
        now = int(self._clock() * 1000)
        for call in await self._log.query(queries.pending_calls):
            if not alive(call.owner):
                self.note(
                    structs.replace(
                        call,
                        state="failed",
                        error_kind="interrupted",
                        error_message="the server stopped before the call had ended",
                        finished_at=now,
                        duration_ms=max(0, now - call.started_at),
                    )
                )

    async def run(self) -> None:
        """Write what is noted, for ever."""
        while True:
            if not self._waiting:
                self._idle.set()
                await self._wake.wait()
                self._wake = trio.Event()
                self._idle = trio.Event()
                continue
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            try:
                await self._write(batch)
            except ActorsError as error:
                self.lost += len(batch)
                self._segment = ""
                logger.warning(
                    "call history not written", extra={"calls": len(batch), "error": error.message}
                )
                await trio.sleep(1)

    async def _page(self, column: str, value: str, limit: int, cursor: str) -> Page:
        with trio.move_on_after(FLUSH_SECONDS):
            await self.flush()
        rows, total, following = await self._log.query(
            partial(queries.page_of_calls, column=column, value=value, limit=limit, cursor=cursor)
        )
        return Page(tuple(rows), total, following)

    async def _write(self, batch: list[CallRecord]) -> None:
        if not self._segment or self._in_segment >= SEGMENT_CALLS:
            self._segment = f"{queries.CALLS}{new_id('calls')}"
            self._seq = self._in_segment = 0
            for old in (await self._log.query(queries.call_segments))[: -SEGMENTS + 1]:
                await self._log.purge(old)
        record = NewRecord(
            self._seq + 1,
            "api_calls_recorded",
            msgspec.json.encode(CallsRecorded(tuple(batch))),
            self._clock(),
        )
        await self._log.append(Append(stream=self._segment, expected=self._seq, records=(record,)))
        self._seq += 1
        self._in_segment += len(batch)


@asynccontextmanager
async def open_history(log: EventLog, owner: str, clock: Callable[[], float]) -> AsyncGenerator[History]:
    """Open the history for the block; at its end, what was noted is written within five seconds."""
    history = History(log, owner, clock)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(history.run, name="call history")
        try:
            yield history
        finally:
            # The last records tell how calls ended; they are worth five seconds of a shutdown.
            with trio.CancelScope(shield=True, deadline=trio.current_time() + FLUSH_SECONDS):
                await history.flush()
            nursery.cancel_scope.cancel()
