"""The event log in memory: the same SQL as on a file, run inside the loop, without threads."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import apsw
import trio

from actors.journal import projection as projecting
from actors.journal import rows
from actors.journal.database import JOURNAL_MIGRATIONS, connect, migrate
from actors.journal.group import Job, commit
from actors.journal.log import Append, CommandKey, CommandRecord, Head, Projection, Record
from actors.journal.readers import snapshot

T = TypeVar("T")

_PATH = ":memory:"


@asynccontextmanager
async def open_memory() -> AsyncGenerator[MemoryLog]:
    """Open an empty journal that is gone when the block is left."""
    db = connect(_PATH)
    try:
        migrate(db, "journal", JOURNAL_MIGRATIONS)
        await trio.lowlevel.checkpoint()
        yield MemoryLog(db)
    finally:
        db.close()


class MemoryLog:
    """An :class:`~actors.journal.log.EventLog` in memory; see there for what each method promises.

    Cancellation: every method checkpoints before it acts, and then acts wholly.
    """

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self._projections: tuple[Projection, ...] = ()

    async def append(self, append: Append) -> Head:
        """Store one write; see :meth:`EventLog.append`."""
        rows.check(append)
        return await self._write(lambda db: rows.write(db, self._projections, append))

    async def head(self, stream: str) -> Head:
        """Return the stream's head."""
        await trio.lowlevel.checkpoint()
        return rows.read_head(self._db, stream)

    async def read(self, stream: str, after: int = 0, limit: int = 512) -> list[Record]:
        """Return up to ``limit`` records with ``seq > after``, in order."""
        await trio.lowlevel.checkpoint()
        return rows.read_records(self._db, stream, after, limit)

    async def command(self, key: CommandKey) -> CommandRecord | None:
        """Return what was stored for the key's scope and name, if anything."""
        await trio.lowlevel.checkpoint()
        return rows.read_command(self._db, key)

    async def purge(self, stream: str) -> None:
        """Delete the stream for good, leaving a tombstone."""
        await self._write(lambda db: rows.purge(db, self._projections, stream))

    async def load_snapshot(self, stream: str) -> tuple[int, bytes] | None:
        """Return the latest snapshot as (seq it includes, bytes)."""
        await trio.lowlevel.checkpoint()
        return rows.read_snapshot(self._db, stream)

    async def save_snapshot(self, stream: str, seq: int, data: bytes) -> None:
        """Keep a snapshot in place of the previous one."""
        await self._write(lambda db: rows.write_snapshot(db, stream, seq, data))

    async def query(self, read: Callable[[apsw.Connection], T]) -> T:
        """Run ``read`` inside the loop; writing is refused, as on a file's read-only connections."""
        await trio.lowlevel.checkpoint()
        self._db.pragma("query_only", True)
        try:
            return snapshot(self._db, read)
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._db.pragma("query_only", False)

    def register(self, projection: Projection) -> None:
        """Add a projection; see :meth:`EventLog.register`."""
        projecting.check_name(self._projections, projection)
        projecting.install(self._db, projection)
        self._projections += (projection,)

    async def rebuild(self, name: str) -> None:
        """Derive a registered projection's rows again from the log.

        Raises:
            KeyError: no projection has this name.
        """
        projection = projecting.find(self._projections, name)
        await self._write(lambda db: projecting.rebuild(db, projection))

    async def _write(self, run: Callable[[apsw.Connection], T]) -> T:
        await trio.lowlevel.checkpoint()
        job = Job(run)
        commit(self._db, _PATH, [job])
        return job.result()
