"""The log on a file: grouping, cancelling, closing, and what happens when the disk or the thread is gone."""

# Nothing else runs in these tests' loops:

from __future__ import annotations

import resource
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import apsw
import pytest
import trio
import trio.testing

from actors.journal import Append, Frame, JournalUnavailable, Record, open_follower, open_sqlite, open_tails
from actors.journal.database import connect
from actors.journal.sqlite import SqliteLog
from actors.testing.contracts import numbered


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@contextmanager
def locked(path: Path) -> Generator[apsw.Connection]:
    """Hold the database's write lock, as another process would."""
    with closing(connect(str(path))) as db:
        db.execute("BEGIN IMMEDIATE")
        yield db


async def append(log: SqliteLog, stream: str, seq: int = 1, data: bytes = b"data") -> None:
    await log.append(Append(stream=stream, expected=seq - 1, records=numbered(seq, data=data)))


def writers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "journal-writer"]


async def test_what_queued_up_is_one_transaction_and_one_wake_up(path: Path) -> None:
    async with open_sqlite(path) as log:
        async with trio.open_nursery() as nursery:
            with locked(path) as holder:
                for number in range(64):
                    nursery.start_soon(append, log, f"s{number}")
                await trio.testing.wait_all_tasks_blocked()
                holder.execute("ROLLBACK")
        statistics = log.statistics()
        assert statistics.writes == 64
        assert statistics.groups <= 2
        assert statistics.largest_group >= 63


async def test_an_acknowledged_append_is_committed(path: Path) -> None:
    async with open_sqlite(path) as log:
        with closing(connect(str(path), read_only=True)) as other:
            for seq in range(1, 10):
                await append(log, "s", seq)
                assert other.execute("SELECT count(*) FROM records").get == seq


async def test_a_cancelled_caller_leaves_the_writer_unharmed(path: Path) -> None:
    async with open_sqlite(path) as log:
        with locked(path) as holder:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    for number in range(10):
                        nursery.start_soon(append, log, f"s{number}")
                    await trio.testing.wait_all_tasks_blocked()
                    scope.cancel()
            assert scope.cancelled_caught
            holder.execute("ROLLBACK")
        await append(log, "after")
        assert [(await log.head(f"s{number}")).seq for number in range(10)] == [1] * 10


async def test_leaving_ends_the_thread_and_the_write_ahead_log(path: Path) -> None:
    async with open_sqlite(path) as log:
        await append(log, "s")
        await log.query(lambda db: db.execute("SELECT 1").get)
        assert len(writers()) == 1
        assert path.with_name("journal.db-wal").exists()
    assert [file.name for file in path.parent.iterdir()] == ["journal.db"]
    for call in (lambda: append(log, "s", 2), lambda: log.head("s"), lambda: log.query(lambda _: None)):
        with pytest.raises(JournalUnavailable, match="closed"):
            await call()


async def test_leaving_by_an_error_or_cancellation_closes_too(path: Path) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 (the block is what is left by the error)
        async with open_sqlite(path) as log:
            await append(log, "s")
            raise ZeroDivisionError
    with trio.CancelScope() as scope:
        async with open_sqlite(path) as log:
            await append(log, "s", 2)
            scope.cancel()
            await append(log, "s", 3)
    assert scope.cancelled_caught
    assert [file.name for file in path.parent.iterdir()] == ["journal.db"]


async def test_what_is_queued_is_written_when_the_log_closes(path: Path) -> None:
    with locked(path) as holder:
        holder.execute("ROLLBACK")
        async with open_sqlite(path) as log:
            holder.execute("BEGIN IMMEDIATE")
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(append, log, "s")
                    await trio.testing.wait_all_tasks_blocked()
                    scope.cancel()
            holder.execute("ROLLBACK")
    async with open_sqlite(path) as log:
        assert (await log.head("s")).seq == 1


async def test_closing_gives_up_on_a_lock_that_another_process_keeps(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.journal.writer._CLOSE_SECONDS", 0.05)
    refused: list[str] = []

    async def write(log: SqliteLog) -> None:
        try:
            await append(log, "s")
        except JournalUnavailable as error:
            refused.append(error.message)

    with closing(connect(str(path))) as holder:
        async with trio.open_nursery() as nursery, open_sqlite(path) as log:
            holder.execute("BEGIN IMMEDIATE")
            nursery.start_soon(write, log)
            await trio.testing.wait_all_tasks_blocked()
        holder.execute("ROLLBACK")
    assert len(refused) == 1
    assert "another process" in refused[0]
    assert "database is locked" not in refused[0]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_writer_that_died_hangs_nobody(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise ZeroDivisionError

    refused: list[str] = []

    async def write(stream: str) -> None:
        try:
            await append(log, stream)
        except JournalUnavailable:
            refused.append(stream)

    async with open_sqlite(path) as log:
        monkeypatch.setattr("actors.journal.writer.commit", die)
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(write, f"s{number}")
        await write("late")
    assert sorted(refused) == ["late", "s0", "s1", "s2", "s3", "s4"]


@contextmanager
def largest_file(size: int) -> Generator[None]:
    """Let no file of this process grow beyond ``size`` bytes: a disk that is full."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


async def test_a_full_disk_acknowledges_nothing_and_works_again_with_space(path: Path) -> None:
    data = b"x" * 30_000
    async with open_sqlite(path) as log:
        await append(log, "s", 1)
        stored = 1
        with largest_file(300_000):
            with suppress(JournalUnavailable):
                while stored < 99:
                    await append(log, "s", stored + 1, data)
                    stored += 1
            with pytest.raises(JournalUnavailable, match=r"journal\.db: the disk"):
                await append(log, "other", 1, data * 10)
            assert [record.seq for record in await log.read("s")] == list(range(1, stored + 1))
            assert (await log.head("other")).seq == 0
        assert 1 < stored < 99
        await append(log, "s", stored + 1, data)
    async with open_sqlite(path) as log:
        assert [record.seq for record in await log.read("s")] == list(range(1, stored + 2))


@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("replaced", [True, False])
async def test_a_file_that_was_moved_away_is_noticed_and_not_written(
    path: Path, suffix: str, replaced: bool
) -> None:
    async with open_sqlite(path) as log:
        await append(log, "s", 1)
        file = Path(f"{path}{suffix}")
        moved = file.rename(file.with_suffix(".moved"))
        if replaced:
            file.write_bytes(moved.read_bytes())
        for _ in range(2):
            with pytest.raises(JournalUnavailable, match="moved or replaced"):
                await append(log, "s", 2)
        assert (await log.head("s")).seq == 1
        file.unlink(missing_ok=True)
        moved.rename(file)
        await append(log, "s", 2)


async def test_a_cancelled_query_stops_at_once_and_frees_its_connection(path: Path) -> None:
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"

    def count(db: apsw.Connection) -> object:
        return db.execute(endless).get

    async with open_sqlite(path) as log:
        await append(log, "s")
        for _ in range(6):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(log.query, count)
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
        assert await log.query(lambda db: db.execute("SELECT count(*) FROM records").get) == 1


async def test_a_query_is_one_snapshot(path: Path) -> None:
    wrote = threading.Event()
    counted = threading.Event()

    def read(db: apsw.Connection) -> tuple[object, object]:
        first = db.execute("SELECT count(*) FROM records").get
        counted.set()
        wrote.wait(5)
        return first, db.execute("SELECT count(*) FROM records").get

    counts: list[object] = []
    async with open_sqlite(path) as log, trio.open_nursery() as nursery:

        async def query() -> None:
            counts.extend(await log.query(read))

        nursery.start_soon(query)
        await trio.to_thread.run_sync(counted.wait, 5)
        await append(log, "s")
        wrote.set()
    assert counts == [0, 0]


async def test_a_follower_notices_what_another_process_writes(path: Path) -> None:
    def decode(record: Record) -> list[Frame]:
        return [Frame(record.seq, record.at, record.data)]

    async with open_sqlite(path) as ours, open_sqlite(path) as theirs:
        await append(theirs, "s", 1)
        async with (
            open_tails(ours, every=0.001) as tails,
            open_follower(ours, tails, "s", 0, decode) as follower,
        ):
            for seq in range(1, 6):
                if seq > 1:
                    await append(theirs, "s", seq)
                    await append(theirs, "other", seq - 1)
                frames = await follower.next()
                assert isinstance(frames, list)
                assert [frame.seq for frame in frames] == [seq]
            await theirs.purge("s")
            assert await follower.next() is None
