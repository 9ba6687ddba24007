"""Copying a journal while it is written: one file that holds everything acknowledged before the copy began."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from actors.journal.database import connect, translated
from actors.journal.log import JournalUnavailable


def backup(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Write a compact copy of the journal at ``path`` to ``target``; writers go on meanwhile.

    The copy is a whole backup: it needs no ``-wal`` or ``-shm`` file, and restoring is to put it where no such files
    lie. Blocks until the copy is on disk. What is left of a failed copy is removed.

    Raises:
        JournalUnavailable: ``path`` cannot be read, or ``target`` exists or cannot be written.
        JournalCorrupt: the journal is damaged.
    """
    copy = Path(target)
    if copy.exists():
        msg = f"{copy}: exists already; a backup never replaces a file"
        raise JournalUnavailable(msg)
    part = copy.with_name(copy.name + ".part")
    part.unlink(missing_ok=True)
    try:
        # A copy only counts under its own name once it is whole.
        with translated(str(copy)), closing(connect(os.fspath(path), read_only=True)) as db:
            db.pragma(
                "query_only", False
            )  # which also forbids writing another file; this one is open read-only
            db.execute("VACUUM INTO ?", (str(part),))
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.rename(copy)
    finally:
        part.unlink(missing_ok=True)
