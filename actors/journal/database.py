"""SQLite connections: opening, pragmas, transactions, migrations, and what their failures mean."""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import apsw

from actors.errors import ActorsError
from actors.journal.log import JournalCorrupt, JournalUnavailable

APPLICATION_ID = 0x47724A31
BUSY_SECONDS = 30.0
WAL_KEEP_BYTES = 16 << 20
JOURNAL_MIGRATIONS = Path(__file__).parent / "migrations"

CORRUPT = (apsw.CorruptError, apsw.NotADBError)
DISK_FAILED = (
    *CORRUPT,
    apsw.FullError,
    apsw.IOError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.ProtocolError,
    apsw.PermissionsError,
    apsw.NoMemError,
)
"""What SQLite raises when the world is at fault and not the statement."""

READ_FAILED = tuple(kind for kind in DISK_FAILED if kind is not apsw.ReadOnlyError)
"""The same for a read-only connection, where a refused write is the statement's fault."""

_SCRIPT = re.compile(r"(\d{4})_\w+\.sql")


class Patience:
    """A busy handler that polls about every millisecond for up to ``limit`` seconds.

    SQLite's own handler backs off to 100 ms a try, which lets two busy processes starve each other.
    """

    def __init__(self, limit: float = BUSY_SECONDS) -> None:
        self.limit = limit
        self.met_at = float("-inf")
        self._deadline = 0.0
        self._given_up = threading.Event()

    def __call__(self, tries: int) -> bool:
        """Wait a moment after ``tries`` earlier waits; False gives up."""
        self.met_at = time.monotonic()
        if tries == 0:
            self._deadline = self.met_at + self.limit
        if self.met_at >= self._deadline:
            return False
        return not self._given_up.wait(random.uniform(0.0003, 0.0015))  # noqa: S311 (jitter, not a secret)

    def rest(self) -> None:
        """Leave the lock alone for a moment if another process wanted it lately, so that it gets its turn."""
        if time.monotonic() - self.met_at < 1.0:
            self._given_up.wait(0.002)

    def give_up(self) -> None:
        """Make every present and later wait end at once; from any thread."""
        self._given_up.set()


class Identity:
    """Which files the database was opened from; make it when the write-ahead log exists.

    SQLite does not notice that a file was moved, deleted or replaced under it; two processes would then write two
    histories.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._files = self._stat()

    def check(self) -> None:
        """Raise JournalUnavailable if the path names other files by now."""
        if self._stat() != self._files:
            msg = (
                f"{self._path}: the database or its -wal file was moved or replaced under the running process; "
                "nothing is written until a restart"
            )
            raise JournalUnavailable(msg)

    def _stat(self) -> tuple[tuple[int, int] | None, ...]:
        return _file_number(self._path), _file_number(self._path + "-wal")


def _file_number(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 (once a transaction; Path.stat costs three times as much)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def connect(path: str, *, read_only: bool = False, patience: Patience | None = None) -> apsw.Connection:
    """Open one connection with the journal's pragmas; ``:memory:`` is a private database.

    Raises:
        JournalUnavailable: the file cannot be opened, or stays locked by another process.
        JournalCorrupt: the file is damaged or not a journal; it is left untouched.
    """
    flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    patience = patience or Patience()
    with translated(path):
        db = apsw.Connection(path, flags=flags)
    try:
        with translated(path):
            db.set_busy_handler(patience)
            _retry_busy(patience, lambda: _prepare(db, path, read_only=read_only))
    except ActorsError:
        db.close()
        raise
    return db


def _prepare(db: apsw.Connection, path: str, *, read_only: bool) -> None:
    db.pragma("foreign_keys", True)
    if read_only:
        db.pragma("query_only", True)
        return
    application, tables = db.pragma("application_id"), db.execute("SELECT count(*) FROM sqlite_schema").get
    if application != APPLICATION_ID and (application or tables):
        msg = f"{path}: this is another program's SQLite database, not a journal; it was left untouched"
        raise JournalCorrupt(msg)
    refuse_newer(db, "journal", JOURNAL_MIGRATIONS)
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", "full")
    db.pragma("journal_size_limit", WAL_KEEP_BYTES)


def _retry_busy(patience: Patience, step: Callable[[], None]) -> None:
    # SQLite does not call the busy handler everywhere (e.g. when it switches to WAL), so that is done here.
    tries = 0
    while True:
        try:
            step()
        except apsw.BusyError:
            if not patience(tries):
                raise
            tries += 1
        else:
            return


@contextmanager
def transaction(db: apsw.Connection) -> Generator[None]:
    """Hold the write lock from the start, since a later upgrade fails at once; roll back on an error."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def migrate(db: apsw.Connection, owner: str, directory: Path) -> bool:
    """Apply ``directory``'s scripts that ``owner`` has not had, in order, in one transaction.

    Several processes may do this at the same time: the list is read again under the write lock.

    Returns:
        True if this call applied something.

    Raises:
        JournalCorrupt: the database had a script that ``directory`` lacks; nothing was changed.
    """
    scripts = _scripts(directory)
    refuse_newer(db, owner, directory)
    if _applied(db, owner) >= scripts.keys():
        return False
    with transaction(db):
        db.execute(
            "CREATE TABLE IF NOT EXISTS migrations (owner TEXT NOT NULL, number INTEGER NOT NULL,"
            " name TEXT NOT NULL, PRIMARY KEY (owner, number)) STRICT, WITHOUT ROWID"
        )
        refuse_newer(db, owner, directory)
        missing = sorted(scripts.keys() - _applied(db, owner))
        for number in missing:
            db.execute(scripts[number].read_text(encoding="utf-8"))
            db.execute("INSERT INTO migrations VALUES (?, ?, ?)", (owner, number, scripts[number].stem))
    return bool(missing)


def refuse_newer(db: apsw.Connection, owner: str, directory: Path) -> None:
    """Raise JournalCorrupt if the database had a script of ``owner`` that ``directory`` lacks."""
    unknown = _applied(db, owner) - _scripts(directory).keys()
    if unknown:
        path = db.filename or ":memory:"
        msg = (
            f"{path}: {owner} is at migration {max(unknown):04d}, which this version does not know: a newer "
            "version wrote the database; it was left untouched"
        )
        raise JournalCorrupt(msg)


def _applied(db: apsw.Connection, owner: str) -> set[int]:
    if not db.table_exists("main", "migrations"):
        return set()
    return {
        int(number) for (number,) in db.execute("SELECT number FROM migrations WHERE owner = ?", (owner,))
    }


def _scripts(directory: Path) -> dict[int, Path]:
    scripts: dict[int, Path] = {}
    for path in sorted(directory.glob("*.sql")):
        match = _SCRIPT.fullmatch(path.name)
        if match is None or int(match[1]) in scripts:
            msg = f"{path}: a migration is named NNNN_name.sql, with a number of its own"
            raise ValueError(msg)
        scripts[int(match[1])] = path
    return scripts


def explain(error: apsw.Error, path: str) -> ActorsError:
    """Return the product's error for one of :data:`DISK_FAILED`: which file, what is wrong, what to do."""
    if isinstance(error, CORRUPT):
        msg = (
            f"{path}: the database is damaged ({error}); it was left untouched. Restore a backup, and remove "
            f"{path}-wal and {path}-shm before you start on it"
        )
        return JournalCorrupt(msg)
    if isinstance(error, apsw.BusyError | apsw.LockedError | apsw.ProtocolError):
        reason = "another process has held its write lock too long"
    elif isinstance(error, apsw.FullError):
        reason = "the disk is full"
    elif isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError):
        reason = "it is read-only"
    elif isinstance(error, apsw.CantOpenError):
        reason = "it cannot be opened; does its directory exist, and may this user write to it?"
    else:
        reason = f"the disk failed ({error})"
    return JournalUnavailable(f"{path}: {reason}")


@contextmanager
def translated(path: str, failures: tuple[type[apsw.Error], ...] = DISK_FAILED) -> Generator[None]:
    """Turn SQLite's disk failures inside the block into the product's errors; others are bugs and pass."""
    try:
        yield
    except failures as error:
        raise explain(error, path) from error
