"""Read-only connections: one for short look-ups inside the loop, a few in threads for everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import apsw
import trio

from actors.journal.database import READ_FAILED, Identity, Patience, connect, translated
from actors.journal.log import JournalUnavailable

T = TypeVar("T")

_THREADS = 4
_STEPS_PER_CANCEL_CHECK = 20_000


class Readers:
    """The pool of one database file. Every read sees all that was acknowledged before it began."""

    def __init__(self, path: str, identity: Identity) -> None:
        self._path = path
        self._identity = identity
        self._short = connect(path, read_only=True, patience=Patience(limit=0.0))
        with translated(path, READ_FAILED):
            self._short.pragma(
                "schema_version"
            )  # opens the write-ahead log now, not when it may have been moved
        self._idle: list[apsw.Connection] = []
        self._limiter = trio.CapacityLimiter(_THREADS)
        self._closed = False

    async def look_up(self, read: Callable[[apsw.Connection], T]) -> T:
        """Run a read of a few rows (microseconds) in the loop; checkpoints.

        Only another process's recovery or closing can lock readers out; the read then goes on in a thread.
        """
        await trio.lowlevel.checkpoint()
        self._check_open()
        try:
            with translated(self._path, READ_FAILED):
                return read(self._short)
        except JournalUnavailable as error:
            if not isinstance(error.__cause__, apsw.BusyError):
                raise
        return await self.query(read)

    async def query(self, read: Callable[[apsw.Connection], T]) -> T:
        """Run a read of unknown cost in a thread, on one snapshot of the database.

        Cancellation: stops a running statement within milliseconds.
        """
        self._check_open()
        return await trio.to_thread.run_sync(self._run, read, limiter=self._limiter)

    def close(self) -> None:
        """Close the connections that are not in use, the others as soon as they are free."""
        self._closed = True
        self._short.close()
        while self._idle:
            self._idle.pop().close()

    def _run(self, read: Callable[[apsw.Connection], T]) -> T:
        with translated(self._path, READ_FAILED):
            db = self._idle.pop() if self._idle else self._connect()
            try:
                db.set_progress_handler(_check_cancelled, _STEPS_PER_CANCEL_CHECK)
                return snapshot(db, read)
            finally:
                db.set_progress_handler(None)
                if db.in_transaction:
                    db.execute("ROLLBACK")
                self._idle.append(db)
                if self._closed:
                    self.close()

    def _connect(self) -> apsw.Connection:
        self._identity.check()
        return connect(self._path, read_only=True)

    def _check_open(self) -> None:
        if self._closed:
            msg = f"{self._path}: the journal is closed"
            raise JournalUnavailable(msg)


def snapshot(db: apsw.Connection, read: Callable[[apsw.Connection], T]) -> T:
    """Run ``read`` inside one read transaction, so that its statements agree with each other."""
    db.execute("BEGIN")
    value = read(db)
    db.execute("ROLLBACK")
    return value


def _check_cancelled() -> bool:
    trio.from_thread.check_cancelled()
    return False
