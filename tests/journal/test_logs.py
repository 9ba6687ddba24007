"""Both event logs against the contract of event logs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import apsw
import pytest

from actors.journal import open_memory, open_sqlite
from actors.journal.log import Append, EventLog, Record
from actors.journal.memory import MemoryLog
from actors.journal.sqlite import SqliteLog
from actors.testing.contracts import CountingProjection, EventLogContract, numbered


class TestMemory(EventLogContract):
    def open(self, directory: Path) -> AbstractAsyncContextManager[MemoryLog]:
        return open_memory()

    async def test_a_projection_can_be_rebuilt(self, tmp_path: Path) -> None:
        async with open_memory() as log:
            await rebuild(log, tmp_path)


class TestSqlite(EventLogContract):
    def open(self, directory: Path) -> AbstractAsyncContextManager[SqliteLog]:
        return open_sqlite(directory / "journal.db")

    async def test_a_projection_can_be_rebuilt(self, tmp_path: Path) -> None:
        async with open_sqlite(tmp_path / "journal.db") as log:
            await rebuild(log, tmp_path)


class Negated(CountingProjection):
    """Counts downwards once ``negated`` is set: what a projection derives has changed."""

    negated = False

    def apply(self, db: apsw.Connection, records: Sequence[Record]) -> None:
        super().apply(db, records)
        if self.negated:
            db.execute("UPDATE counts SET records = -records WHERE stream = ?", (records[0].stream,))


async def rebuild(log: MemoryLog | SqliteLog, directory: Path) -> None:
    projection = Negated(directory / "counts")
    log.register(projection)
    await log.append(Append(stream="s", expected=0, records=numbered(1, 2, 3)))
    await log.purge("gone")
    assert await log.query(CountingProjection.read) == {"s": 3}
    projection.negated = True
    await log.rebuild("counts")
    assert await log.query(CountingProjection.read) == {"s": -3}
    with pytest.raises(KeyError):
        await log.rebuild("unheard of")


def as_event_log(log: MemoryLog | SqliteLog) -> EventLog:
    """Type-checks that both are event logs."""
    return log
