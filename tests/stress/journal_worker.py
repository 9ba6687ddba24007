"""What the journal's stress tests run in processes of their own; prints every acknowledged append."""

from __future__ import annotations

import os
import sys
import time
from contextlib import closing
from pathlib import Path

import trio

from actors.journal import Append, NewRecord, SequenceConflict, open_sqlite
from actors.journal.database import JOURNAL_MIGRATIONS, connect, migrate

TASKS = 16


def say(*words: object) -> None:
    """Write one line, whole: a killed process leaves no half line behind."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def append_for_ever(path: str) -> None:
    """Append to a stream per task until killed."""
    async with open_sqlite(path) as log, trio.open_nursery() as nursery:

        async def run(stream: str) -> None:
            seq = (await log.head(stream)).seq
            while True:
                seq += 1
                record = NewRecord(seq, "kind", str(seq).encode() * 50, time.time())
                await log.append(Append(stream=stream, expected=seq - 1, records=(record,)))
                say(stream, seq)

        for number in range(TASKS):
            nursery.start_soon(run, f"s{number}")


async def append_together(path: str, name: str, seconds: float) -> None:
    """Append to streams of this process's own and to one that all processes share; print latencies."""
    slowest = 0.0
    end = time.monotonic() + seconds
    async with open_sqlite(path) as log, trio.open_nursery() as nursery:

        async def append(stream: str, seq: int) -> None:
            nonlocal slowest
            start = time.monotonic()
            record = NewRecord(seq + 1, "kind", b"data" * 50, 0.0)
            await log.append(Append(stream=stream, expected=seq, records=(record,)))
            slowest = max(slowest, time.monotonic() - start)
            say(stream, seq + 1)

        async def own(stream: str) -> None:
            seq = 0
            while time.monotonic() < end:
                await append(stream, seq)
                seq += 1

        async def shared() -> None:
            while time.monotonic() < end:
                try:
                    await append("shared", (await log.head("shared")).seq)
                except SequenceConflict:
                    say("conflict", 0)

        for number in range(TASKS):
            nursery.start_soon(own, f"{name}-{number}")
        nursery.start_soon(shared)
    say("slowest", slowest)


def hold_locks(path: str, seconds: float) -> None:
    """Take the write lock again and again, for some milliseconds each."""
    end = time.monotonic() + seconds
    with closing(connect(path)) as db:
        while time.monotonic() < end:
            db.execute("BEGIN IMMEDIATE")
            trio.run(trio.sleep, 0.01)
            db.execute("ROLLBACK")
            trio.run(trio.sleep, 0.005)


def open_together(path: str, gate: str) -> None:
    """Wait for the gate file, then create or migrate the database."""
    say("ready")
    while not Path(gate).exists():
        pass
    with closing(connect(path)) as db:
        say("applied", migrate(db, "journal", JOURNAL_MIGRATIONS))


def main(command: str, path: str, *rest: str) -> None:
    """Run one command."""
    if command == "for-ever":
        trio.run(append_for_ever, path)
    elif command == "together":
        trio.run(append_together, path, rest[0], float(rest[1]))
    elif command == "lock":
        hold_locks(path, float(rest[0]))
    elif command == "open":
        open_together(path, rest[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
