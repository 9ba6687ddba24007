"""Bringing a projection level with the log: its migrations, its first replay, and rebuilding it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw

from actors.journal.database import migrate, transaction
from actors.journal.log import Projection
from actors.journal.rows import read_records

_PAGE = 512


def install(db: apsw.Connection, projection: Projection) -> None:
    """Run the projection's migrations, and replay the log into it when this database has never seen it.

    Each step is a transaction: after a crash in between, the next call finishes the work. Migrations that
    change what rows mean should be followed by :func:`rebuild`.
    """
    migrate(db, projection.name, Path(projection.migrations))
    if _seen(db, projection):
        return
    with transaction(db):
        if not _seen(db, projection):
            replay(db, projection)
            db.execute("INSERT INTO projections (name) VALUES (?)", (projection.name,))


def rebuild(db: apsw.Connection, projection: Projection) -> None:
    """Throw the projection's rows away and derive them again, inside the caller's transaction."""
    projection.reset(db)
    replay(db, projection)


def replay(db: apsw.Connection, projection: Projection) -> None:
    """Apply every stored record, one stream after the other, oldest stream first."""
    last = 0
    following = "SELECT id, name FROM streams WHERE id > ? AND NOT purged ORDER BY id LIMIT 1"
    while (row := db.execute(following, (last,)).fetchone()) is not None:
        last, stream = row
        after = 0
        while page := read_records(db, stream, after, _PAGE):
            projection.apply(db, page)
            after = page[-1].seq


def _seen(db: apsw.Connection, projection: Projection) -> bool:
    return db.execute("SELECT 1 FROM projections WHERE name = ?", (projection.name,)).fetchone() is not None


def check_name(projections: Sequence[Projection], new: Projection) -> None:
    """Raise ValueError if the new one's name is taken; it owns its migrations and its first replay."""
    if new.name == "journal" or any(known.name == new.name for known in projections):
        msg = f"a projection named {new.name!r} is registered already"
        raise ValueError(msg)


def find(projections: Sequence[Projection], name: str) -> Projection:
    """Return the projection of that name, or raise KeyError."""
    for projection in projections:
        if projection.name == name:
            return projection
    raise KeyError(name)
