"""Group commit: many callers' writes in one transaction, each with its own outcome. Synchronous."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import apsw
import trio

from actors.journal.database import DISK_FAILED, explain, transaction
from actors.journal.log import DuplicateCommand, SequenceConflict

T_co = TypeVar("T_co", covariant=True)


class Job(Generic[T_co]):
    """One caller's write, and what became of it.

    Attributes:
        run: The write; synchronous SQL inside the group's transaction. It may run twice, the first time
            undone.
        error: What to raise in the caller; ``None`` once it is committed.
        task: The caller, while it waits.
    """

    __slots__ = ("_value", "error", "run", "task")

    def __init__(
        self, run: Callable[[apsw.Connection], T_co], task: trio.lowlevel.Task | None = None
    ) -> None:
        self.run = run
        self.task = task
        self.error: Exception | None = None
        self._value: list[T_co] = []

    def attempt(self, db: apsw.Connection) -> None:
        """Run, keeping the value; expected refusals are kept as the outcome, all else is raised."""
        self.error = None
        try:
            self._value = [self.run(db)]
        except (SequenceConflict, DuplicateCommand) as refusal:
            self.error = refusal

    def result(self) -> T_co:
        """Return the value or raise the error."""
        if self.error is not None:
            raise self.error
        return self._value[0]


def commit(db: apsw.Connection, path: str, jobs: Sequence[Job[object]]) -> None:
    """Run the jobs in one transaction and settle each one's outcome; what a job or the disk does is not raised.

    A refused job has changed nothing and disturbs no other. A job that breaks half-way (a projection's bug)
    fails alone: the transaction is rolled back and run again with a savepoint around each job, a price that
    is only paid then. When the disk fails, all fail.
    """
    try:
        try:
            _run_plain(db, jobs)
        except DISK_FAILED:
            raise
        except Exception:  # noqa: BLE001 (some job's own fault; the second run finds out whose)
            _run_isolated(db, jobs)
    except DISK_FAILED as failure:
        for job in jobs:
            job.error = explain(failure, path)
            job.error.__cause__ = failure


def _run_plain(db: apsw.Connection, jobs: Sequence[Job[object]]) -> None:
    with transaction(db):
        for job in jobs:
            job.attempt(db)


def _run_isolated(db: apsw.Connection, jobs: Sequence[Job[object]]) -> None:
    with transaction(db):
        for job in jobs:
            db.execute("SAVEPOINT job")
            try:
                job.attempt(db)
            except DISK_FAILED:
                raise
            except Exception as bug:  # noqa: BLE001 (raised again in the caller whose job it was)
                job.error = bug
                db.execute("ROLLBACK TO job")
            db.execute("RELEASE job")
