"""What every event log must do, as tests: derive a class from the contract and say how to open a log."""

# A test's name says what it tests:
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import apsw
import pytest
import trio
import trio.testing

from actors.journal.log import (
    Append,
    CommandKey,
    DuplicateCommand,
    EventLog,
    Head,
    NewRecord,
    Record,
    SequenceConflict,
)


def numbered(*seqs: int, data: bytes = b"data") -> tuple[NewRecord, ...]:
    """Return records with these numbers."""
    return tuple(NewRecord(seq, "kind", data, 100.0 + seq) for seq in seqs)


class CountingProjection:
    """Counts a stream's records in a table; breaks on a record of kind ``poison`` after it wrote."""

    name = "counts"

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        script = "CREATE TABLE counts (stream TEXT PRIMARY KEY, records INTEGER NOT NULL) STRICT;"
        (directory / "0001_counts.sql").write_text(script)
        self.migrations = str(directory)

    def apply(self, db: apsw.Connection, records: Sequence[Record]) -> None:
        """Count."""
        db.execute(
            "INSERT INTO counts VALUES (?1, ?2) ON CONFLICT DO UPDATE SET records = records + ?2",
            (records[0].stream, len(records)),
        )
        if any(record.kind == "poison" for record in records):
            raise ZeroDivisionError

    def purge(self, db: apsw.Connection, stream: str) -> None:
        """Forget one."""
        db.execute("DELETE FROM counts WHERE stream = ?", (stream,))

    def reset(self, db: apsw.Connection) -> None:
        """Forget all."""
        db.execute("DELETE FROM counts")

    @staticmethod
    def read(db: apsw.Connection) -> dict[str, int]:
        """Return the counts; for ``EventLog.query``."""
        return {str(stream): int(str(count)) for stream, count in db.execute("SELECT * FROM counts")}


class EventLogContract:
    """Derive, name the class ``Test…``, and implement :meth:`open`."""

    def open(self, directory: Path) -> AbstractAsyncContextManager[EventLog]:
        """Return a log that is empty; it may keep files in ``directory``."""
        raise AssertionError(f"a suite says how its log is opened in {directory}")

    async def test_a_stream_that_was_never_written_is_empty(self, tmp_path: Path) -> None:
        async with self.open(tmp_path) as log:
            assert await log.head("s") == Head()
            assert await log.read("s") == []
            assert await log.load_snapshot("s") is None
            assert await log.command(CommandKey("scope", "key")) is None

    async def test_records_come_back_as_written_and_in_order(self, tmp_path: Path) -> None:
        data = bytes(range(256))
        async with self.open(tmp_path) as log:
            head = await log.append(Append(stream="s/é", expected=0, records=numbered(3, 7, data=data)))
            assert head == Head(7, 0) == await log.head("s/é")
            await log.append(Append(stream="s/é", expected=7, records=numbered(8)))
            await log.append(Append(stream="other", expected=0, records=numbered(1)))
            stored = await log.read("s/é")
            assert stored[0] == Record("s/é", 3, "kind", data, 103.0)
            assert [record.seq for record in stored] == [3, 7, 8]
            assert [record.seq for record in await log.read("s/é", after=3, limit=1)] == [7]
            assert [record.seq for record in await log.read("s/é", after=5)] == [7, 8]

    @pytest.mark.parametrize("after", [8, 2**63 - 1, 2**63, 2**64, 10**100])
    async def test_a_cursor_behind_the_end_reads_nothing(self, tmp_path: Path, after: int) -> None:
        async with self.open(tmp_path) as log:
            await log.append(Append(stream="s", expected=0, records=numbered(8)))
            assert await log.read("s", after) == []

    @pytest.mark.parametrize("seqs", [(2, 2), (2, 1), (1,), (0,), (-1,), (2**63,)])
    async def test_numbers_that_do_not_rise_are_a_bug_and_store_nothing(
        self, tmp_path: Path, seqs: tuple[int, ...]
    ) -> None:
        async with self.open(tmp_path) as log:
            await log.append(Append(stream="s", expected=0, records=numbered(1)))
            with pytest.raises(ValueError, match="does not follow"):
                await log.append(Append(stream="s", expected=1, records=numbered(*seqs)))
            assert await log.head("s") == Head(1)

    @pytest.mark.parametrize("expected", [0, 4, 6])
    async def test_the_fence_keeps_a_writer_out_who_missed_something(
        self, tmp_path: Path, expected: int
    ) -> None:
        command = CommandKey("scope", "key")
        async with self.open(tmp_path) as log:
            await log.append(Append(stream="s", expected=0, records=numbered(5), reserve=9))
            with pytest.raises(SequenceConflict) as caught:
                await log.append(
                    Append(stream="s", expected=expected, records=numbered(7), reserve=99, command=command)
                )
            assert caught.value.fields == {"expected": expected, "actual": 5}
            assert await log.head("s") == Head(5, 9)
            assert await log.command(command) is None

    async def test_an_empty_append_is_the_fence_alone(self, tmp_path: Path) -> None:
        async with self.open(tmp_path) as log:
            assert await log.append(Append(stream="s", expected=0)) == Head()
            with pytest.raises(SequenceConflict):
                await log.append(Append(stream="s", expected=1))

    async def test_reserved_numbers_are_remembered(self, tmp_path: Path) -> None:
        async with self.open(tmp_path) as log:
            assert await log.append(Append(stream="s", expected=0, reserve=50)) == Head(0, 50)
            assert await log.append(Append(stream="s", expected=0, records=numbered(51))) == Head(51, 50)
            assert await log.append(Append(stream="s", expected=51, records=numbered(52), reserve=9)) == Head(
                52, 52
            )
            assert await log.append(Append(stream="s", expected=52, reserve=100)) == Head(52, 100)
            assert await log.head("s") == Head(52, 100)

    async def test_of_many_writers_who_believe_in_one_head_one_wins(self, tmp_path: Path) -> None:
        outcomes: list[str] = []

        async def write(seq: int) -> None:
            try:
                await log.append(Append(stream="s", expected=0, records=numbered(seq)))
                outcomes.append("won")
            except SequenceConflict:
                outcomes.append("lost")

        async with self.open(tmp_path) as log:
            async with trio.open_nursery() as nursery:
                for seq in range(1, 9):
                    nursery.start_soon(write, seq)
            assert sorted(outcomes) == ["lost"] * 7 + ["won"]
            assert len(await log.read("s")) == 1

    async def test_a_repeated_command_gets_the_first_answer_though_the_head_moved(
        self, tmp_path: Path
    ) -> None:
        key = CommandKey("scope", "key", b"digest")
        async with self.open(tmp_path) as log:
            first = Append(stream="s", expected=0, records=numbered(1), command=key, result=b"first")
            await log.append(first)
            await log.append(Append(stream="s", expected=1, records=numbered(2)))
            for repeat in (first, Append(stream="s", expected=2, command=CommandKey("scope", "key"))):
                with pytest.raises(DuplicateCommand) as caught:
                    await log.append(repeat)
                assert caught.value.first == await log.command(CommandKey("scope", "key"))
            assert (caught.value.first.digest, caught.value.first.result) == (b"digest", b"first")
            assert await log.head("s") == Head(2)
            await log.append(Append(stream="s", expected=2, command=CommandKey("other scope", "key")))

    async def test_a_refused_append_disturbs_no_other(self, tmp_path: Path) -> None:
        refused: list[str] = []

        async def write(stream: str, expected: int) -> None:
            try:
                await log.append(Append(stream=stream, expected=expected, records=numbered(expected + 1)))
            except SequenceConflict:
                refused.append(stream)

        async with self.open(tmp_path) as log:
            async with trio.open_nursery() as nursery:
                for number in range(20):
                    nursery.start_soon(write, f"s{number}", number % 2)
            assert sorted(refused) == sorted(f"s{number}" for number in range(20) if number % 2)
            heads = [(await log.head(f"s{number}")).seq for number in range(20)]
            assert heads == [1, 0] * 10

    async def test_a_purged_stream_leaves_a_tombstone_and_nothing_else(self, tmp_path: Path) -> None:
        key = CommandKey("scope", "key")
        async with self.open(tmp_path) as log:
            log.register(CountingProjection(tmp_path / "counts"))
            for stream in ("s", "other"):
                await log.append(Append(stream=stream, expected=0, records=numbered(1, 2), reserve=10))
            await log.append(Append(stream="s", expected=2, command=key))
            await log.save_snapshot("s", 2, b"state")
            for _ in range(2):
                await log.purge("s")
                assert await log.head("s") == Head(2, 10, purged=True)
            assert await log.read("s") == []
            assert await log.command(key) is None
            assert await log.query(CountingProjection.read) == {"other": 2}
            with pytest.raises(SequenceConflict):
                await log.append(Append(stream="s", expected=2, records=numbered(3)))
            await log.save_snapshot("s", 2, b"late")
            assert await log.load_snapshot("s") is None
            await log.purge("never written")
            with pytest.raises(SequenceConflict):
                await log.append(Append(stream="never written", expected=0, records=numbered(1)))

    async def test_a_snapshot_takes_the_place_of_the_last(self, tmp_path: Path) -> None:
        async with self.open(tmp_path) as log:
            await log.append(Append(stream="s", expected=0, records=numbered(1, 2)))
            await log.save_snapshot("s", 1, b"one")
            await log.save_snapshot("s", 2, b"two")
            assert await log.load_snapshot("s") == (2, b"two")

    async def test_a_query_sees_what_was_acknowledged_and_may_not_write(self, tmp_path: Path) -> None:
        async with self.open(tmp_path) as log:
            for seq in range(1, 20):
                await log.append(Append(stream="s", expected=seq - 1, records=numbered(seq)))
                count = await log.query(lambda db: db.execute("SELECT count(*) FROM records").get)
                assert count == seq
            with pytest.raises(apsw.ReadOnlyError):
                await log.query(lambda db: db.execute("DELETE FROM records"))
            await log.append(Append(stream="s", expected=19, records=numbered(20)))

    async def test_a_projection_agrees_with_the_log_also_when_it_breaks(self, tmp_path: Path) -> None:
        poison = (NewRecord(1, "poison", b"", 0.0),)
        broken: list[str] = []

        async def write(stream: str, records: tuple[NewRecord, ...]) -> None:
            try:
                await log.append(Append(stream=stream, expected=0, records=records))
            except ZeroDivisionError:
                broken.append(stream)

        async with self.open(tmp_path) as log:
            log.register(CountingProjection(tmp_path / "counts"))
            async with trio.open_nursery() as nursery:
                for number in range(10):
                    nursery.start_soon(write, f"s{number}", poison if number == 5 else numbered(1, 2))
            assert broken == ["s5"]
            assert await log.head("s5") == Head()
            expected = {f"s{number}": 2 for number in range(10) if number != 5}
            assert await log.query(CountingProjection.read) == expected

    async def test_a_projection_that_comes_late_is_given_the_whole_log(self, tmp_path: Path) -> None:
        async with self.open(tmp_path) as log:
            for stream, last in (("a", 3), ("b", 1500)):
                await log.append(Append(stream=stream, expected=0, records=numbered(*range(1, last + 1))))
            await log.purge("a")
            log.register(CountingProjection(tmp_path / "counts"))
            await log.append(Append(stream="c", expected=0, records=numbered(1)))
            assert await log.query(CountingProjection.read) == {"b": 1500, "c": 1}
            with pytest.raises(ValueError, match="registered already"):
                log.register(CountingProjection(tmp_path / "counts"))

    async def test_every_method_lets_other_tasks_run(self, tmp_path: Path) -> None:
        async with self.open(tmp_path) as log:
            with trio.testing.assert_checkpoints():
                await log.append(Append(stream="s", expected=0))
            with trio.testing.assert_checkpoints():
                await log.head("s")
            with trio.testing.assert_checkpoints():
                await log.read("s")
            with trio.testing.assert_checkpoints():
                await log.command(CommandKey("scope", "key"))
            with trio.testing.assert_checkpoints():
                await log.load_snapshot("s")
            with trio.testing.assert_checkpoints():
                await log.save_snapshot("s", 0, b"")
            with trio.testing.assert_checkpoints():
                await log.query(lambda _db: None)
            with trio.testing.assert_checkpoints():
                await log.purge("s")

    async def test_a_cancelled_append_harms_nobody(self, tmp_path: Path) -> None:
        async with self.open(tmp_path) as log:
            for number in range(20):
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(
                            log.append, Append(stream=f"s{number}", expected=0, records=numbered(1))
                        )
                        if number % 2:
                            await trio.lowlevel.checkpoint()
                        scope.cancel()
            await log.append(Append(stream="after", expected=0, records=numbered(1)))
            for number in range(20):
                assert (await log.head(f"s{number}")).seq == len(await log.read(f"s{number}"))
