"""The journal: durable streams of bytes, their live ends, and the read models kept beside them."""

from actors.journal.log import (
    Append,
    CommandKey,
    CommandRecord,
    DuplicateCommand,
    EventLog,
    Head,
    JournalCorrupt,
    JournalUnavailable,
    NewRecord,
    Projection,
    Record,
    SequenceConflict,
)
from actors.journal.memory import open_memory
from actors.journal.ring import Frame
from actors.journal.sqlite import open_sqlite
from actors.journal.tail import Follower, Gap, Tail, Tails, open_follower, open_tails

__all__ = [
    "Append",
    "CommandKey",
    "CommandRecord",
    "DuplicateCommand",
    "EventLog",
    "Follower",
    "Frame",
    "Gap",
    "Head",
    "JournalCorrupt",
    "JournalUnavailable",
    "NewRecord",
    "Projection",
    "Record",
    "SequenceConflict",
    "Tail",
    "Tails",
    "open_follower",
    "open_memory",
    "open_sqlite",
    "open_tails",
]
