"""The event log's contract: what every implementation promises to the rooms above it.

A *stream* is a named, ordered list of records. A record's ``seq`` is chosen by the stream's single writer,
rises strictly and may skip numbers: numbers that were handed out for transient events (text deltas) and never
written stay unused for ever, because ``reserve`` is stored with the records and a new writer starts above it.
The log does not know what a record means; it stores bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import apsw
from msgspec import Struct

from actors.errors import ActorsError, Conflict, Unavailable

T = TypeVar("T")


class NewRecord(Struct, frozen=True):
    """A record to append. ``seq`` must be above the stream's head; ``at`` is seconds since the epoch."""

    seq: int
    kind: str
    data: bytes
    at: float


class Record(Struct, frozen=True):
    """A stored record."""

    stream: str
    seq: int
    kind: str
    data: bytes
    at: float


class Head(Struct, frozen=True):
    """Where a stream ends.

    ``seq`` is the last record's number (0: no record yet), ``reserved`` the highest number ever handed out: a
    new writer's first number is ``max(seq, reserved) + 1``. ``purged`` is set when the stream was deleted for
    good.
    """

    seq: int = 0
    reserved: int = 0
    purged: bool = False


class CommandKey(Struct, frozen=True):
    """An idempotency key: ``key`` within ``scope`` (usually a stream), and a digest of the command's body."""

    scope: str
    key: str
    digest: bytes = b""


class CommandRecord(Struct, frozen=True):
    """What a key's first use answered; ``digest`` is that use's body, for telling a repeat from a misuse."""

    digest: bytes
    result: bytes
    at: float


class Append(Struct, frozen=True, kw_only=True):
    """One atomic write to one stream.

    Attributes:
        stream: Its name, e.g. ``session/0b6f…``.
        expected: The head's ``seq`` the writer believes in: the fence that keeps two activations apart (K11).
        records: What to add, in order; may be empty when only ``reserve`` or ``command`` is to be stored.
        reserve: New value of ``Head.reserved``; ``None`` leaves it. Given and lower than the last record's
            number, the record's number is what counts.
        command: Store this key with ``result`` in the same transaction.
        result: The bytes a repeat of ``command`` gets back.
    """

    stream: str
    expected: int
    records: tuple[NewRecord, ...] = ()
    reserve: int | None = None
    command: CommandKey | None = None
    result: bytes = b""


class SequenceConflict(Conflict):
    """``expected`` is not the stream's head: somebody else wrote. The writer must stop and read again."""

    code = "sequence_conflict"


class DuplicateCommand(Conflict):
    """``command`` was stored before. ``first`` is the answer to give again."""

    code = "duplicate_command"

    def __init__(self, message: str, first: CommandRecord) -> None:
        super().__init__(message)
        self.first = first


class JournalUnavailable(Unavailable):
    """The disk is full, read-only or broken: nothing was stored, and nothing was acknowledged."""

    code = "journal_unavailable"


class JournalCorrupt(ActorsError):
    """The database is damaged, or was written by a newer version; it is left untouched."""

    code = "journal_corrupt"


class Projection(Protocol):
    """A read model kept in the append transaction, so that it can never disagree with the log.

    ``apply`` is synchronous SQL on the writer's connection; an exception rolls the whole append back.
    ``migrations`` is a directory of ``NNNN_name.sql`` files, applied in order before the first append, each
    exactly once. ``reset`` deletes everything the projection wrote, so that it can be rebuilt from the log.
    """

    name: str
    migrations: str

    def apply(self, db: apsw.Connection, records: Sequence[Record]) -> None:
        """Take up records of one stream, in order."""
        ...

    def purge(self, db: apsw.Connection, stream: str) -> None:
        """Delete what came from a stream."""
        ...

    def reset(self, db: apsw.Connection) -> None:
        """Delete everything, before a replay of the whole log."""
        ...


class EventLog(Protocol):
    """The journal. Open one with ``journal.open_sqlite`` or ``journal.open_memory``."""

    async def append(self, append: Append) -> Head:
        """Store one write and return the new head after COMMIT (K13).

        Raises:
            SequenceConflict: the fence failed; nothing was stored.
            DuplicateCommand: the command key was used before; nothing was stored.
            JournalUnavailable: the disk failed; nothing was stored.

        Cancellation: the outcome is unknown to the caller and known to the log.
        """
        ...

    async def head(self, stream: str) -> Head:
        """Return the stream's head; ``Head()`` for a stream that was never written."""
        ...

    async def read(self, stream: str, after: int = 0, limit: int = 512) -> list[Record]:
        """Return up to ``limit`` records with ``seq > after``, in order."""
        ...

    async def command(self, key: CommandKey) -> CommandRecord | None:
        """Return what was stored for the key's scope and name, if anything (the digest is not compared)."""
        ...

    async def purge(self, stream: str) -> None:
        """Delete the stream's records, snapshot, command keys and projected rows, for good; idempotent.

        The head stays as a tombstone with ``purged`` set, so that the name is never written again.
        """
        ...

    async def load_snapshot(self, stream: str) -> tuple[int, bytes] | None:
        """Return the latest snapshot as (seq it includes, bytes)."""
        ...

    async def save_snapshot(self, stream: str, seq: int, data: bytes) -> None:
        """Keep a snapshot in place of the previous one. A cache: losing it costs only start-up time."""
        ...

    async def query(self, read: Callable[[apsw.Connection], T]) -> T:
        """Run ``read`` on a read-only connection of the pool; it must not keep the connection."""
        ...

    def register(self, projection: Projection) -> None:
        """Keep a projection: run its migrations, and replay the log if it never saw it. Before use."""
        ...
