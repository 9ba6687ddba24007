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
    stream, records = append.stream, append.records
    seq = records[-1].seq if records else append.expected
    reserve = None if append.reserve is None else max(append.reserve, seq)
    if not records and reserve is None and command is None:
        return _fence(db, append)
    row = db.execute(
        "UPDATE streams SET seq = ?, reserved = coalesce(?, reserved)"
        " WHERE name = ? AND seq = ? AND NOT purged RETURNING id, reserved",
        (seq, reserve, stream, append.expected),
    ).fetchone()
    if row is None:
        _fence(db, append)  # passes only a stream that is written for the first time
        number, reserved = _create(db, stream, seq, reserve or 0), reserve or 0
    else:
        number, reserved = row
    if records:
        db.executemany(
            "INSERT INTO records (stream, seq, kind, at, data) VALUES (?, ?, ?, ?, ?)",
            [(number, record.seq, record.kind, record.at, record.data) for record in records],
        )
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


def _fence(db: apsw.Connection, append: Append) -> Head:
    head = read_head(db, append.stream)
    if head.purged:
        msg = f"{append.stream} was deleted"
        raise SequenceConflict(msg, expected=append.expected, actual=head.seq)
    if head.seq != append.expected:
        msg = f"{append.stream} is at {head.seq}, not at {append.expected}: somebody else wrote"
        raise SequenceConflict(msg, expected=append.expected, actual=head.seq)
    return head


def _create(db: apsw.Connection, stream: str, seq: int = 0, reserved: int = 0) -> int:
    db.execute("INSERT INTO streams (name, seq, reserved) VALUES (?, ?, ?)", (stream, seq, reserved))
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
