"""Opening and migrating: once each, together with others, and never over what is not ours."""

# Nothing else runs in these tests' loops:

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import apsw
import pytest
import trio

from actors.journal import JournalCorrupt, JournalUnavailable, open_sqlite
from actors.journal.database import JOURNAL_MIGRATIONS, Patience, connect, migrate, transaction
from actors.journal.log import Append
from actors.testing.contracts import numbered


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "journal.db")


def scripts(directory: Path, **bodies: str) -> Path:
    directory.mkdir(exist_ok=True)
    for name, body in bodies.items():
        (directory / f"{name[1:]}.sql").write_text(body)
    return directory


def test_each_script_runs_once_and_later_ones_follow(path: str, tmp_path: Path) -> None:
    directory = scripts(tmp_path / "rows", _0001_rows="CREATE TABLE rows (a); INSERT INTO rows VALUES (1);")
    with closing(connect(path)) as db:
        assert migrate(db, "rows", directory)
        assert not migrate(db, "rows", directory)
        scripts(directory, _0002_more="INSERT INTO rows VALUES (2);")
        assert migrate(db, "rows", directory)
        assert db.execute("SELECT a FROM rows").fetchall() == [(1,), (2,)]


def test_a_script_that_fails_leaves_nothing_behind(path: str, tmp_path: Path) -> None:
    directory = scripts(tmp_path / "rows", _0001_rows="CREATE TABLE rows (a); SELECT nonsense;")
    with closing(connect(path)) as db:
        with pytest.raises(apsw.SQLError):
            migrate(db, "rows", directory)
        assert not db.table_exists("main", "rows")
        scripts(directory, _0001_rows="CREATE TABLE rows (a);")
        assert migrate(db, "rows", directory)


@pytest.mark.parametrize("name", ["_1_short", "_0001_second", "_notes"])
def test_scripts_are_named_by_distinct_numbers(path: str, tmp_path: Path, name: str) -> None:
    directory = scripts(tmp_path / "rows", _0001_first="", **{name: ""})
    with closing(connect(path)) as db, pytest.raises(ValueError, match="NNNN_name"):
        migrate(db, "rows", directory)


@pytest.mark.parametrize("absent", [True, False])
def test_many_may_migrate_at_once(path: str, tmp_path: Path, absent: bool) -> None:
    directory = scripts(
        tmp_path / "rows", _0001_rows="CREATE TABLE rows (a);", _0002_b="ALTER TABLE rows ADD b;"
    )
    if not absent:
        Path(path).touch()

    def start(_: int) -> bool:
        with closing(connect(path)) as db:
            migrate(db, "journal", JOURNAL_MIGRATIONS)
            return migrate(db, "rows", directory)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(start, range(8))) == 1


async def test_a_newer_versions_database_is_refused_and_left_untouched(path: str) -> None:
    async with open_sqlite(path) as log:
        await log.append(Append(stream="s", expected=0, records=numbered(1)))
    with closing(connect(path)) as db:
        db.execute("INSERT INTO migrations VALUES ('journal', 9999, '9999_future')")
    before = Path(path).read_bytes()
    with pytest.raises(JournalCorrupt, match=r"9999.*newer version") as caught:
        async with open_sqlite(path):
            pass
    assert path in caught.value.message
    assert Path(path).read_bytes() == before


@pytest.mark.parametrize("size", [100, 5000])
async def test_a_file_that_is_no_database_is_refused_and_left_untouched(path: str, size: int) -> None:
    Path(path).write_bytes(b"not a database " * size)
    before = Path(path).read_bytes()
    with pytest.raises(JournalCorrupt, match="damaged") as caught:
        async with open_sqlite(path):
            pass
    assert path in caught.value.message
    assert Path(path).read_bytes() == before


async def test_another_programs_database_is_refused_and_left_untouched(path: str) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE sessions (id)")
        other.commit()
    before = Path(path).read_bytes()
    with pytest.raises(JournalCorrupt, match="another program"):
        async with open_sqlite(path):
            pass
    assert Path(path).read_bytes() == before


async def test_a_damaged_page_is_reported_with_the_file_and_advice(path: str) -> None:
    async with open_sqlite(path) as log:
        for seq in range(1, 50):
            await log.append(Append(stream="s", expected=seq - 1, records=numbered(seq, data=b"x" * 2000)))
    content = bytearray(Path(path).read_bytes())
    content[8 * 4096 :] = b"\xa5" * (len(content) - 8 * 4096)
    Path(path).write_bytes(content)
    async with open_sqlite(path) as log:
        with pytest.raises(JournalCorrupt, match="Restore a backup") as caught:
            await log.read("s")
        assert path in caught.value.message
        with pytest.raises(JournalCorrupt):
            await log.append(Append(stream="s", expected=49, records=numbered(50, data=b"x" * 2000)))


async def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalUnavailable, match=r"missing/journal\.db.*directory"):
        async with open_sqlite(tmp_path / "missing" / "journal.db"):
            pass


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A directory, in which the test has no special rights even if root runs it."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield Path(directory)
        finally:
            os.seteuid(user)


async def test_a_read_only_file_is_refused_clearly(unprivileged: Path) -> None:
    path = unprivileged / "journal.db"
    async with open_sqlite(path) as log:
        await log.append(Append(stream="s", expected=0, records=numbered(1)))
    path.chmod(0o444)
    with pytest.raises(JournalUnavailable, match=r"read-only|cannot be opened") as caught:
        async with open_sqlite(path) as log:
            await log.append(Append(stream="s", expected=1, records=numbered(2)))
    assert str(path) in caught.value.message


def test_a_lock_held_too_long_is_a_clear_error(path: str) -> None:
    with closing(connect(path)) as holder, closing(connect(path, patience=Patience(0.01))) as db:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(apsw.BusyError), transaction(db):
            pass
        holder.execute("ROLLBACK")
        with transaction(db):
            pass


async def test_the_same_file_is_found_through_a_symbolic_link(path: str, tmp_path: Path) -> None:
    async with open_sqlite(path) as log:
        await log.append(Append(stream="s", expected=0, records=numbered(1)))
    link = tmp_path / "link.db"
    link.symlink_to(path)
    async with open_sqlite(link) as log, open_sqlite(path) as direct:
        await log.append(Append(stream="s", expected=1, records=numbered(2)))
        assert (await direct.head("s")).seq == 2


async def test_every_write_is_synced_before_it_is_acknowledged(path: str) -> None:
    db = await trio.to_thread.run_sync(connect, path)
    with closing(db):
        assert (db.pragma("journal_mode"), db.pragma("synchronous"), db.pragma("foreign_keys")) == (
            "wal",
            2,
            1,
        )
