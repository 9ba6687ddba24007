"""What the journal costs: group commit beside one commit per event, fan-out to many followers, and resuming.

``python -m bench.journal`` prints one JSON document; ``--quick`` measures shapes instead of figures. Run it where the
database would lie: the cost of ``fsync`` is the disk's. ``--directory`` says where.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import trio

from actors.journal import (
    Append,
    EventLog,
    Frame,
    NewRecord,
    Record,
    Tails,
    open_follower,
    open_memory,
    open_sqlite,
)
from actors.journal.database import JOURNAL_MIGRATIONS, connect, migrate, transaction
from actors.journal.rows import write
from bench.report import Goal, finish, spread

DATA = b"x" * 320
APPENDERS = 64
FOLLOWERS = 1_000


def one(stream: str, seq: int) -> Append:
    """Return an append of one event of a third of a kilobyte."""
    return Append(stream=stream, expected=seq - 1, records=(NewRecord(seq, "kind", DATA, 0.0),))


async def grouped(directory: Path, appenders: int, seconds: float) -> dict[str, Any]:
    """Append from many tasks for a while, each waiting for its acknowledgement."""
    latencies: list[float] = []
    async with open_sqlite(directory / f"grouped{appenders}.db") as log:

        async def run(stream: str) -> None:
            seq = 0
            while (start := time.perf_counter()) < end:
                seq += 1
                await log.append(one(stream, seq))
                latencies.append(time.perf_counter() - start)

        begin = time.perf_counter()
        end = begin + seconds
        async with trio.open_nursery() as nursery:
            for number in range(appenders):
                nursery.start_soon(run, f"s{number}")
        elapsed = time.perf_counter() - begin
        counts = log.statistics()
    return {
        "events_per_second": round(counts.writes / elapsed),
        "latency_ms": spread(latencies, 1000),
        "events_per_commit": round(counts.writes / counts.groups, 1),
    }


def one_by_one(directory: Path, seconds: float) -> float:
    """Return events per second of the usual way: a transaction per event, on one connection, FULL."""
    with closing(connect(str(directory / "single.db"))) as db:
        migrate(db, "journal", JOURNAL_MIGRATIONS)
        seq, begin = 0, time.perf_counter()
        while time.perf_counter() < begin + seconds:
            seq += 1
            with transaction(db):
                write(db, (), one("s", seq))
        return seq / (time.perf_counter() - begin)


async def one_by_one_from_tasks(directory: Path, appenders: int, seconds: float) -> dict[str, Any]:
    """The same from many tasks: each event is a transaction of its own in a worker thread, one after the other."""
    latencies: list[float] = []
    lock = trio.Lock()
    db = connect(str(directory / f"tasks{appenders}.db"))
    migrate(db, "journal", JOURNAL_MIGRATIONS)

    def commit(append: Append) -> None:
        with transaction(db):
            write(db, (), append)

    async def run(stream: str) -> None:
        seq = 0
        while (start := time.perf_counter()) < end:
            seq += 1
            async with lock:
                await trio.to_thread.run_sync(commit, one(stream, seq))
            latencies.append(time.perf_counter() - start)

    with closing(db):
        begin = time.perf_counter()
        end = begin + seconds
        async with trio.open_nursery() as nursery:
            for number in range(appenders):
                nursery.start_soon(run, f"s{number}")
        rate = len(latencies) / (time.perf_counter() - begin)
    return {"events_per_second": round(rate), "latency_ms": spread(latencies, 1000)}


def decode(record: Record) -> Sequence[Frame]:
    """One record, one frame."""
    return [Frame(record.seq, record.at, record.data, len(record.data))]


async def fan_out(followers: int, events: int) -> dict[str, Any]:
    """Publish to many parked followers, letting all of them read after each event; look at each one's encoding."""
    encodes = 0

    def encode(_: Frame) -> bytes:
        nonlocal encodes
        encodes += 1
        return DATA

    delivered = 0
    delays: list[float] = []

    async def follow(log: EventLog, tails: Tails, task_status: trio.TaskStatus[None]) -> None:
        nonlocal delivered
        async with open_follower(log, tails, "s", None, decode) as follower:
            task_status.started()
            while (batch := await follower.next()) is not None:
                assert isinstance(batch, Sequence)
                for frame in batch:
                    frame.encode("bench", encode)
                    delivered += 1
                delays.append(time.perf_counter() - batch[-1].at)

    async with open_memory() as log:
        tails = Tails()
        tail = tails.open("s")
        async with trio.open_nursery() as nursery:
            for _ in range(followers):
                await nursery.start(follow, log, tails)
            begin = time.perf_counter()
            for seq in range(1, events + 1):
                tail.publish([Frame(seq, time.perf_counter(), DATA)])
                tail.mark_durable(seq)
                while delivered < seq * followers:
                    await trio.lowlevel.checkpoint()
            elapsed = time.perf_counter() - begin
            tail.end()
        tail.close()
    return {
        "events_per_second": round(events / elapsed, 1),
        "deliveries_per_second": round(delivered / elapsed),
        "delay_ms": spread(delays, 1000),
        "encodes_per_event": encodes / events,
    }


async def resume(directory: Path, resumes: int, missed: int) -> dict[str, Any]:
    """Come back with a cursor and read what was missed from the disk, one reader after the other."""
    length = 2_000
    latencies: list[float] = []
    async with open_sqlite(directory / f"resume{missed}.db") as log:
        records = tuple(NewRecord(seq, "kind", DATA, 0.0) for seq in range(1, length + 1))
        await log.append(Append(stream="s", expected=0, records=records))
        tails = Tails()
        begin = time.perf_counter()
        for _ in range(resumes):
            start = time.perf_counter()
            async with open_follower(log, tails, "s", length - missed, decode) as follower:
                while follower.cursor < length:
                    await follower.next()
            latencies.append(time.perf_counter() - start)
        elapsed = time.perf_counter() - begin
    return {"resumes_per_second": round(resumes / elapsed), "latency_ms": spread(latencies, 1000)}


def main() -> int:
    """Run everything in turn, alternating the two ways to commit, and compare medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the time")
    parser.add_argument(
        "--directory", type=Path, help="where the databases are made (default: a temporary one)"
    )
    options = parser.parse_args()
    seconds, rounds = (0.2, 1) if options.quick else (2.0, 3)

    groups: list[dict[str, Any]] = []
    tasks: list[dict[str, Any]] = []
    singles: list[float] = []
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        for number in range(rounds):
            directory = Path(name, str(number))
            directory.mkdir()
            singles.append(one_by_one(directory, seconds))
            tasks.append(trio.run(one_by_one_from_tasks, directory, APPENDERS, seconds))
            groups.append(trio.run(grouped, directory, APPENDERS, seconds))
        fan = trio.run(fan_out, FOLLOWERS, 20 if options.quick else 200)
        results = {
            f"grouped_{APPENDERS}": groups,
            "one_commit_per_event": [round(rate) for rate in singles],
            f"one_commit_per_event_{APPENDERS}_tasks": tasks,
            "grouped_1": trio.run(grouped, Path(name), 1, seconds),
            "grouped_512": trio.run(grouped, Path(name), 512, seconds),
            f"fan_out_{FOLLOWERS}": fan,
            "resume_10": trio.run(resume, Path(name), 200 if options.quick else 2_000, 10),
            "resume_1000": trio.run(resume, Path(name), 20 if options.quick else 200, 1_000),
        }
    # Round by round, since the disk is faster at one time than at another.
    gain = statistics.median(
        group["events_per_second"] / task["events_per_second"]
        for group, task in zip(groups, tasks, strict=True)
    )
    goals = [
        Goal("group commit over one commit per event", gain, 10, ">=", "times"),
        Goal("append p99", statistics.median(group["latency_ms"]["p99"] for group in groups), 15, "<", "ms"),
        Goal("encodes per event", fan["encodes_per_event"], 1, "<=", ""),
    ]
    return finish("journal", results, goals)


if __name__ == "__main__":
    sys.exit(main())
