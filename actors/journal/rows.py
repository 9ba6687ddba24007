"""The journal's SQL: what an append, a read, a purge and a snapshot are in tables; no transactions."""

from __future__ import annotations

import time
from collections.abc import Sequence

import apsw

from actors.journal.log import (
    Append,
    CommandKey,
    CommandRecord,
    DuplicateCommand,
    Head,
    Projection,
    Record,
    SequenceConflict,
)

MAX_SEQ = 2**63 - 1
"""The highest number SQLite can store; a cursor above it lies behind every record."""


def check(append: Append) -> None:
    """Raise ValueError unless the records' numbers rise from ``expected``: all else is the writer's bug."""
    last = append.expected
    for record in append.records:
        if not last < record.seq <= MAX_SEQ:
            msg = f"{append.stream}: record {record.seq} does not follow {last}"
            raise ValueError(msg)
        last = record.seq


def write(db: apsw.Connection, projections: Sequence[Projection], append: Append) -> Head:
    """Store one append whose numbers were checked.

    A refusal comes before the first change, so that nothing has to be undone.

    Raises:
        DuplicateCommand: checked first, since a repeat is to get the first answer although the head has
            moved.
        SequenceConflict: the fence failed, or the stream was purged.
    """
    command = append.command
    if command is not None and (first := read_command(db, command)) is not None:
        msg = f"command {command.key!r} was used before in {command.scope!r}"
        raise DuplicateCommand(msg, first)
    stream = append.stream
    row = db.execute("SELECT id, seq, reserved, purged FROM streams WHERE name = ?", (stream,)).fetchone()
    number, seq, reserved, purged = row or (0, 0, 0, 0)
    if purged:
        msg = f"{stream} was deleted"
        raise SequenceConflict(msg, expected=append.expected, actual=seq)
    if seq != append.expected:
        msg = f"{stream} is at {seq}, not at {append.expected}: somebody else wrote"
        raise SequenceConflict(msg, expected=append.expected, actual=seq)

    records = append.records
    if not records and append.reserve is None and command is None:
        return Head(seq, reserved)
    if row is None:
        number = _create(db, stream)
    if records:
        seq = records[-1].seq
        db.executemany(
            "INSERT INTO records (stream, seq, kind, at, data) VALUES (?, ?, ?, ?, ?)",
            [(number, record.seq, record.kind, record.at, record.data) for record in records],
        )
    if append.reserve is not None:
        reserved = max(append.reserve, seq)
    db.execute("UPDATE streams SET seq = ?, reserved = ? WHERE id = ?", (seq, reserved, number))
    if command is not None:
        at = records[-1].at if records else time.time()
        db.execute(
            "INSERT INTO commands (scope, key, stream, digest, result, at) VALUES (?, ?, ?, ?, ?, ?)",
            (command.scope, command.key, number, command.digest, append.result, at),
        )
    if records and projections:
        stored = [Record(stream, record.seq, record.kind, record.data, record.at) for record in records]
        for projection in projections:
            projection.apply(db, stored)
    return Head(seq, reserved)


def _create(db: apsw.Connection, stream: str) -> int:
    db.execute("INSERT INTO streams (name) VALUES (?)", (stream,))
    return db.last_insert_rowid()


def read_head(db: apsw.Connection, stream: str) -> Head:
    """Return the stream's head; ``Head()`` for one that was never written."""
    row = db.execute("SELECT seq, reserved, purged FROM streams WHERE name = ?", (stream,)).fetchone()
    return Head() if row is None else Head(row[0], row[1], bool(row[2]))


def read_records(db: apsw.Connection, stream: str, after: int, limit: int) -> list[Record]:
    """Return up to ``limit`` records with ``seq > after``, in order."""
    rows = db.execute(
        "SELECT seq, kind, data, at FROM records WHERE stream = (SELECT id FROM streams WHERE name = ?)"
        " AND seq > ? ORDER BY seq LIMIT ?",
        (stream, min(after, MAX_SEQ), limit),
    )
    return [Record(stream, seq, kind, data, at) for seq, kind, data, at in rows]


def read_command(db: apsw.Connection, key: CommandKey) -> CommandRecord | None:
    """Return what was stored for the key's scope and name, if anything."""
    row = db.execute(
        "SELECT digest, result, at FROM commands WHERE scope = ? AND key = ?", (key.scope, key.key)
    ).fetchone()
    return None if row is None else CommandRecord(*row)


def read_snapshot(db: apsw.Connection, stream: str) -> tuple[int, bytes] | None:
    """Return the stream's snapshot as (seq it includes, bytes), if there is one."""
    row = db.execute(
        "SELECT seq, data FROM snapshots WHERE stream = (SELECT id FROM streams WHERE name = ?)", (stream,)
    ).fetchone()
    return None if row is None else (row[0], row[1])


def write_snapshot(db: apsw.Connection, stream: str, seq: int, data: bytes) -> None:
    """Replace the stream's snapshot; nothing happens for a stream that was purged."""
    db.execute("INSERT OR IGNORE INTO streams (name) VALUES (?)", (stream,))
    db.execute(
        "INSERT INTO snapshots (stream, seq, data) SELECT id, ?, ? FROM streams WHERE name = ? AND NOT purged"
        " ON CONFLICT (stream) DO UPDATE SET seq = excluded.seq, data = excluded.data",
        (seq, data, stream),
    )


def purge(db: apsw.Connection, projections: Sequence[Projection], stream: str) -> None:
    """Delete everything about the stream but its tombstone."""
    row = db.execute("SELECT id, purged FROM streams WHERE name = ?", (stream,)).fetchone()
    number = _create(db, stream) if row is None else int(row[0])
    if row is not None and row[1]:
        return
    for table in ("records", "commands", "snapshots"):
        db.execute(f"DELETE FROM {table} WHERE stream = ?", (number,))  # noqa: S608 (names of our own)
    for projection in projections:
        projection.purge(db, stream)
    db.execute("UPDATE streams SET purged = 1 WHERE id = ?", (number,))
