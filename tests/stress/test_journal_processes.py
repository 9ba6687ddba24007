"""The journal under real processes: killed at any moment, and several on one file."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from actors.journal import open_sqlite
from actors.journal.database import WAL_KEEP_BYTES
from actors.journal.log import Append
from actors.testing.contracts import numbered

WORKER = Path(__file__).with_name("journal_worker.py")
pytestmark = pytest.mark.stress


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WORKER), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=WORKER.parents[2],
        env={"PYTHONPATH": str(WORKER.parents[2])},
    )


def acknowledged(output: str) -> dict[str, int]:
    """Return each stream's highest acknowledged number."""
    highest: defaultdict[str, int] = defaultdict(int)
    for line in output.splitlines():
        stream, seq = line.split()
        highest[stream] = max(highest[stream], int(seq))
    return highest


async def stored(path: Path, stream: str) -> list[int]:
    seqs: list[int] = []
    async with open_sqlite(path) as log:
        while page := await log.read(stream, seqs[-1] if seqs else 0):
            seqs += [record.seq for record in page]
    return seqs


def test_a_killed_process_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    acked: defaultdict[str, int] = defaultdict(int)
    dice = random.Random(7)
    for _ in range(10):
        with start("for-ever", path) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            trio.run(trio.sleep, dice.uniform(0.0, 0.3))
            process.kill()
            output, errors = process.communicate()
        assert errors == ""
        for stream, seq in acknowledged(first + output).items():
            assert seq > acked[stream]
            acked[stream] = seq
    for stream, seq in acked.items():
        seqs = trio.run(stored, path, stream)
        assert seqs == list(range(1, len(seqs) + 1))
        assert len(seqs) >= seq


def test_processes_share_a_file_without_a_refusal(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    seconds = 3.0
    with ExitStack() as stack:
        processes = [stack.enter_context(start("together", path, name, seconds)) for name in ("a", "b")]
        processes.append(stack.enter_context(start("lock", path, seconds)))
        results = [process.communicate() for process in processes]
    assert [errors for _, errors in results] == ["", "", ""]
    shared = 0
    for output, _ in results[:2]:
        lines = [line.split() for line in output.splitlines()]
        slowest = [float(value) for word, value in lines if word == "slowest"]
        assert len(slowest) == 1
        assert slowest[0] < 2.0
        shared += sum(word == "shared" for word, _ in lines)
        own = {word: int(value) for word, value in lines if "-" in word}
        assert len(own) == 16
        for stream, seq in own.items():
            assert trio.run(stored, path, stream) == list(range(1, seq + 1))
    assert shared > 10
    assert trio.run(stored, path, "shared") == list(range(1, shared + 1))


@pytest.mark.parametrize("absent", [True, False])
def test_processes_that_start_together_migrate_once(tmp_path: Path, absent: bool) -> None:
    for number in range(2):
        path, gate = tmp_path / f"{number}.db", tmp_path / f"gate{number}"
        if not absent:
            path.touch()
        with ExitStack() as stack:
            processes = [stack.enter_context(start("open", path, gate)) for _ in range(4)]
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
            gate.touch()
            results = [process.communicate() for process in processes]
        assert [errors for _, errors in results] == [""] * 4
        assert sorted(output for output, _ in results) == ["applied False\n"] * 3 + ["applied True\n"]


async def test_the_write_ahead_log_stays_bounded_under_readers_that_never_pause(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    scan = "SELECT sum(length(data)) FROM records"
    largest = 0
    async with open_sqlite(path) as log, trio.open_nursery() as nursery:

        async def read() -> None:
            while True:
                await log.query(lambda db: db.execute(scan).get)

        async def write(stream: str) -> None:
            nonlocal largest
            for seq in range(1, 81):
                records = numbered(seq, data=b"x" * 100_000)
                await log.append(Append(stream=stream, expected=seq - 1, records=records))
                largest = max(largest, log.statistics().wal_bytes)

        for _ in range(4):
            nursery.start_soon(read)
        async with trio.open_nursery() as writers:
            for number in range(16):
                writers.start_soon(write, f"s{number}")
        nursery.cancel_scope.cancel()
    assert largest < 4 * WAL_KEEP_BYTES
