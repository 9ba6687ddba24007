"""The event log in an SQLite file: one writer thread with group commit, readers beside it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager, closing
from typing import TypeVar

import apsw
import trio

from actors.journal import projection as projecting
from actors.journal import rows
from actors.journal.database import JOURNAL_MIGRATIONS, Identity, Patience, connect, migrate, translated
from actors.journal.log import Append, CommandKey, CommandRecord, Head, Projection, Record
from actors.journal.readers import Readers
from actors.journal.writer import Writer, WriterStatistics

T = TypeVar("T")

_SHORT_READ = 128


@asynccontextmanager
async def open_sqlite(path: str | os.PathLike[str]) -> AsyncGenerator[SqliteLog]:
    """Open the journal at ``path``, creating the file (not its directory) when it is absent.

    Several processes may open the same file. Leaving writes what is queued, empties the write-ahead log and
    ends the writer thread; uses the real clock, so not for tests under an autojump clock (``open_memory``
    is).

    Raises:
        JournalUnavailable: the file cannot be opened or written, or stays locked by another process.
        JournalCorrupt: the file is damaged, is not a journal or is a newer version's; it is left untouched.
    """
    absolute = os.path.abspath(path)  # noqa: PTH100, ASYNC240 (touches no disk)
    patience = Patience()
    db, identity, readers = await trio.to_thread.run_sync(_open, absolute, patience)
    writer = Writer(db, absolute, patience, identity)
    try:
        yield SqliteLog(absolute, writer, readers)
    finally:
        readers.close()
        # Shielded, and bounded inside: an unfinished close would leave the thread behind.
        with trio.CancelScope(shield=True):
            await writer.close()


def _open(path: str, patience: Patience) -> tuple[apsw.Connection, Identity, Readers]:
    with ExitStack() as undo:
        db = undo.enter_context(closing(connect(path, patience=patience)))
        with translated(path):
            migrate(db, "journal", JOURNAL_MIGRATIONS)
        identity = Identity(path)
        readers = Readers(path, identity)
        undo.pop_all()
    return db, identity, readers


class SqliteLog:
    """An :class:`~actors.journal.log.EventLog` on a file; see there for what each method promises."""

    def __init__(self, path: str, writer: Writer, readers: Readers) -> None:
        self.path = path
        self._writer = writer
        self._readers = readers
        self._projections: tuple[Projection, ...] = ()

    async def append(self, append: Append) -> Head:
        """Store one write; see :meth:`EventLog.append`."""
        rows.check(append)
        return await self._writer.submit(lambda db: rows.write(db, self._projections, append))

    async def head(self, stream: str) -> Head:
        """Return the stream's head."""
        return await self._readers.look_up(lambda db: rows.read_head(db, stream))

    async def read(self, stream: str, after: int = 0, limit: int = 512) -> list[Record]:
        """Return up to ``limit`` records with ``seq > after``, in order."""
        run = self._readers.look_up if limit <= _SHORT_READ else self._readers.query
        return await run(lambda db: rows.read_records(db, stream, after, limit))

    async def command(self, key: CommandKey) -> CommandRecord | None:
        """Return what was stored for the key's scope and name, if anything."""
        return await self._readers.look_up(lambda db: rows.read_command(db, key))

    async def purge(self, stream: str) -> None:
        """Delete the stream for good, leaving a tombstone."""
        await self._writer.submit(lambda db: rows.purge(db, self._projections, stream))

    async def load_snapshot(self, stream: str) -> tuple[int, bytes] | None:
        """Return the latest snapshot as (seq it includes, bytes)."""
        return await self._readers.look_up(lambda db: rows.read_snapshot(db, stream))

    async def save_snapshot(self, stream: str, seq: int, data: bytes) -> None:
        """Keep a snapshot in place of the previous one."""
        await self._writer.submit(lambda db: rows.write_snapshot(db, stream, seq, data))

    async def query(self, read: Callable[[apsw.Connection], T]) -> T:
        """Run ``read`` in a thread, on a read-only connection and one snapshot; see :meth:`Readers.query`."""
        return await self._readers.query(read)

    def register(self, projection: Projection) -> None:
        """Add a projection; see :meth:`EventLog.register`. A first replay blocks the loop."""
        projecting.check_name(self._projections, projection)
        with self._writer.turn, translated(self.path):
            with closing(connect(self.path)) as db:
                projecting.install(db, projection)
            self._projections += (projection,)

    async def rebuild(self, name: str) -> None:
        """Derive a registered projection's rows again from the log; other writes wait meanwhile.

        Raises:
            KeyError: no projection has this name.
        """
        projection = projecting.find(self._projections, name)
        await self._writer.submit(lambda db: projecting.rebuild(db, projection))

    def statistics(self) -> WriterStatistics:
        """Return what the writer has done so far."""
        return self._writer.statistics()
