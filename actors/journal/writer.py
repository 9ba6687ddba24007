"""The one thread that writes: takes what queued up, commits it as a group, and wakes the callers."""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import apsw
import trio
from msgspec import Struct

from actors.journal.database import WAL_KEEP_BYTES, Identity, Patience
from actors.journal.group import Job, commit
from actors.journal.log import JournalUnavailable

T = TypeVar("T")

_GROUP = 1024
_CLOSE_SECONDS = 10.0
_log = logging.getLogger("actors.journal")


class WriterStatistics(Struct, frozen=True):
    """Counts since the start, and sizes now; ``writes / groups`` is the gain of grouping."""

    writes: int
    groups: int
    largest_group: int
    queued: int
    wal_bytes: int


class Writer:
    """Owns the writing connection and its thread; all but the thread's own methods run in the trio loop.

    Args:
        db: A connection nobody else uses from now on; closed by the thread.
        path: The database file, absolute.
        patience: The connection's busy handler.
        identity: The file as it was opened.
    """

    def __init__(self, db: apsw.Connection, path: str, patience: Patience, identity: Identity) -> None:
        self.turn = threading.Lock()
        """Held while a group is written; take it to be alone with the database."""
        self._db = db
        self._path = path
        self._patience = patience
        self._identity = identity
        self._queue: queue.SimpleQueue[Job[object] | None] = queue.SimpleQueue()
        self._token = trio.lowlevel.current_trio_token()
        self._ended = trio.Event()
        self._closing = False
        self._taken: list[Job[object]] = []
        self._writes = self._groups = self._largest = 0
        self._thread = threading.Thread(target=self._work, name="journal-writer", daemon=True)
        self._thread.start()

    async def submit(self, run: Callable[[apsw.Connection], T]) -> T:
        """Have ``run`` called in the next group's transaction, and return what it returned after COMMIT.

        Raises:
            JournalUnavailable: the disk failed or the writer has ended; nothing was stored.
            JournalCorrupt: the database is damaged.

        Cancellation: ``run`` may or may not be stored.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._closing or self._ended.is_set():
            msg = f"{self._path}: the journal is closed"
            raise JournalUnavailable(msg)
        job = Job(run, trio.lowlevel.current_task())
        self._queue.put(job)

        def abandon(_: object) -> trio.lowlevel.Abort:
            job.task = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abandon)
        return job.result()

    async def close(self) -> None:
        """Write what is queued, empty the write-ahead log, close the connection, and see the thread end.

        Cancellation: none; takes some seconds at most, after which waiting for another process's lock is
            given up.
        """
        self._closing = True
        self._queue.put(None)
        # Shielded: acknowledged work is safe either way, but the thread must not outlive its owner.
        with trio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._ended.wait()
            return
        self._patience.give_up()
        with trio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._ended.wait()
            return
        _log.critical("the journal's writer did not end", extra={"path": self._path})

    def statistics(self) -> WriterStatistics:
        """Return what the writer has done; the counts may lag by a group."""
        return WriterStatistics(
            self._writes, self._groups, self._largest, self._queue.qsize(), _size(self._path + "-wal")
        )

    # --- the thread ---

    def _work(self) -> None:
        try:
            open_end = True
            while open_end:
                self._taken, open_end = self._take()
                if self._taken:
                    self._write(self._taken)
                self._bound_wal()
            self._checkpoint()
        finally:
            # Also when a bug killed the loop: no caller may wait for a thread that is not there.
            self._db.close()
            self._in_loop(self._bury)

    def _take(self) -> tuple[list[Job[object]], bool]:
        """Return the next group, and whether there will be another."""
        jobs: list[Job[object]] = []
        try:
            item = self._queue.get(timeout=1.0 if _size(self._path + "-wal") > WAL_KEEP_BYTES else None)
            while item is not None:
                jobs.append(item)
                if len(jobs) == _GROUP:
                    break
                item = self._queue.get_nowait()
        except queue.Empty:
            return jobs, True
        return jobs, item is not None

    def _write(self, jobs: Sequence[Job[object]]) -> None:
        with self.turn:
            try:
                self._identity.check()
            except JournalUnavailable as refusal:
                for job in jobs:
                    job.error = JournalUnavailable(refusal.message)
            else:
                commit(self._db, self._path, jobs)
        self._writes += len(jobs)
        self._groups += 1
        self._largest = max(self._largest, len(jobs))
        self._in_loop(lambda: _settle(jobs))
        self._patience.rest()

    def _bound_wal(self) -> None:
        # The automatic checkpoint cannot reset the file while some reader is always inside it; this one waits
        # for readers, for a moment, and new ones then start on the database file.
        if _size(self._path + "-wal") > WAL_KEEP_BYTES:
            self._checkpoint()

    def _checkpoint(self) -> None:
        usual, self._patience.limit = self._patience.limit, 0.1
        try:
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.Error as error:
            _log.debug("checkpoint put off", extra={"path": self._path, "reason": str(error)})
        finally:
            self._patience.limit = usual

    def _in_loop(self, step: Callable[[], None]) -> None:
        try:
            self._token.run_sync_soon(step)
        except trio.RunFinishedError:
            self._closing = True  # the loop died without closing us; nobody is left to answer

    def _bury(self) -> None:
        self._ended.set()
        left = list(self._taken)
        while not self._queue.empty():
            job = self._queue.get_nowait()
            if job is not None:
                left.append(job)
        for job in left:
            job.error = JournalUnavailable(f"{self._path}: the journal's writer has ended")
        _settle(left)


def _settle(jobs: Sequence[Job[object]]) -> None:
    for job in jobs:
        if job.task is not None:
            task, job.task = job.task, None
            trio.lowlevel.reschedule(task)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return 0
