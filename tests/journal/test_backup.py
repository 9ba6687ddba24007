"""A backup taken under load holds all that was acknowledged before it, and opens on its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from actors.journal import Append, JournalUnavailable, open_sqlite
from actors.journal.backup import backup
from actors.testing.contracts import numbered


async def test_a_copy_taken_while_others_write_is_whole(tmp_path: Path) -> None:
    path, copy = tmp_path / "journal.db", tmp_path / "copy.db"
    acknowledged = [0] * 8
    at_backup: list[int] = []
    async with open_sqlite(path) as log, trio.open_nursery() as nursery:

        async def write(number: int) -> None:
            while True:
                seq = acknowledged[number] + 1
                await log.append(Append(stream=f"s{number}", expected=seq - 1, records=numbered(seq)))
                acknowledged[number] = seq
                if sum(acknowledged) == 100:
                    nursery.start_soon(copy_it)

        async def copy_it() -> None:
            at_backup.extend(acknowledged)
            await trio.to_thread.run_sync(backup, path, copy)
            nursery.cancel_scope.cancel()

        for number in range(8):
            nursery.start_soon(write, number)
    async with open_sqlite(copy) as restored:
        for number, least in enumerate(at_backup):
            seqs = [record.seq for record in await restored.read(f"s{number}", limit=100_000)]
            assert seqs == list(range(1, len(seqs) + 1))
            assert len(seqs) >= least
    assert sorted(file.name for file in tmp_path.iterdir()) == ["copy.db", "journal.db"]


def test_a_backup_never_replaces_a_file(tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_text("precious")
    with pytest.raises(JournalUnavailable, match="exists"):
        backup(tmp_path / "journal.db", tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "precious"


def test_a_journal_that_is_missing_is_named_and_leaves_no_copy(tmp_path: Path) -> None:
    with pytest.raises(JournalUnavailable, match=r"journal\.db"):
        backup(tmp_path / "journal.db", tmp_path / "copy.db")
    assert list(tmp_path.iterdir()) == []
