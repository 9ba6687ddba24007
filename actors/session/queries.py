"""The session list: a projection of session streams into rows, and the questions asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw
import msgspec
from msgspec import Struct

from actors.agent.messages import RunResumed, RunStarted, UsageReported
from actors.journal.log import Record
from actors.session import codec
from actors.session.messages import (
    HistoryMessage,
    MessageAppended,
    SessionCreated,
    Starred,
    SubSessionCompleted,
    TitleChanged,
    TokensSet,
)

PREFIX = "session/"
_MESSAGE_KINDS = frozenset({"user_message_added", "assistant_message_added", "tool_message_added"})
_DECODED_KINDS = frozenset(
    {
        "session_created",
        "title_changed",
        "starred",
        "tokens_set",
        "usage_reported",
        "run_started",
        "run_resumed",
        "run_ended",
        "message_appended",
        "sub_session_completed",
    }
)


_SYSTEM = b'"role":"system"'
"""Found in an event's own role alone: inside a text the quotes are escaped."""


def _counted(messages: Sequence[HistoryMessage]) -> int:
    """Return how many messages the list counts: all but system ones."""
    return sum(message.role != "system" for message in messages)


class SessionRow(Struct, frozen=True):
    """One session in the list. ``created_at`` is seconds since the epoch."""

    id: str
    created_at: float
    title: str
    working_dir: str
    num_messages: int
    input_tokens: int
    output_tokens: int
    starred: bool
    owner: str


class SessionRows:
    """The projection; rows of table ``sessions``."""

    name = "sessions"
    migrations = str(Path(__file__).with_name("migrations"))

    def apply(self, db: apsw.Connection, records: Sequence[Record]) -> None:
        """Bring the session's row up to date, in the append's own transaction."""
        added = 0
        for record in records:
            if not record.stream.startswith(PREFIX):
                return
            if record.kind in _MESSAGE_KINDS:
                added += _SYSTEM not in record.data
            elif record.kind in _DECODED_KINDS:
                added += self._apply(db, record)
        if added:
            session_id = records[0].stream.removeprefix(PREFIX)
            db.execute(
                "UPDATE sessions SET num_messages = num_messages + ? WHERE id = ?", (added, session_id)
            )

    def purge(self, db: apsw.Connection, stream: str) -> None:
        """Forget a deleted session."""
        if stream.startswith(PREFIX):
            db.execute("DELETE FROM sessions WHERE id = ?", (stream.removeprefix(PREFIX),))

    def reset(self, db: apsw.Connection) -> None:
        """Forget everything, before the log is replayed."""
        db.execute("DELETE FROM sessions")

    def _apply(self, db: apsw.Connection, record: Record) -> int:
        session_id = record.stream.removeprefix(PREFIX)
        (item,) = codec.decode(record)
        event = item.event
        match event:
            case SessionCreated():
                db.execute(
                    "INSERT OR REPLACE INTO sessions (id, created_at, title, working_dir, num_messages)"
                    " VALUES (?, ?, ?, ?, ?)",
                    (
                        session_id,
                        record.at,
                        event.template.title,
                        event.template.working_dir,
                        _counted(event.history),
                    ),
                )
            case TitleChanged():
                db.execute("UPDATE sessions SET title = ? WHERE id = ?", (event.title, session_id))
            case Starred():
                db.execute("UPDATE sessions SET starred = ? WHERE id = ?", (event.starred, session_id))
            case TokensSet():
                db.execute(
                    "UPDATE sessions SET input_tokens = ?, output_tokens = ? WHERE id = ?",
                    (event.input_tokens, event.output_tokens, session_id),
                )
            case UsageReported() if not event.session:
                db.execute(
                    "UPDATE sessions SET input_tokens = ?, output_tokens = ? WHERE id = ?",
                    (event.context_tokens, event.output_tokens, session_id),
                )
            case MessageAppended():
                return int(event.message.role != "system")
            case SubSessionCompleted() if event.background:
                return _counted(event.messages)
            case RunStarted() | RunResumed() if not event.session:
                db.execute("UPDATE sessions SET owner = ? WHERE id = ?", (event.owner, session_id))
            case _:
                if record.kind == "run_ended" and not event.session:
                    db.execute("UPDATE sessions SET owner = '' WHERE id = ?", (session_id,))
        return 0


_COLUMNS = "id, created_at, title, working_dir, num_messages, input_tokens, output_tokens, starred, owner"


def list_sessions(db: apsw.Connection, limit: int = -1, offset: int = 0) -> list[SessionRow]:
    """Return root sessions, newest first; ``limit`` -1 for all."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM sessions ORDER BY created_at DESC, id LIMIT ? OFFSET ?",  # noqa: S608 - constant
        (limit, offset),
    )
    return [msgspec.convert(row, SessionRow, strict=False) for row in _dicts(rows)]


def count_sessions(db: apsw.Connection) -> int:
    """Return how many sessions are stored."""
    return int(str(db.execute("SELECT count(*) FROM sessions").get))


def running_sessions(db: apsw.Connection) -> list[tuple[str, str]]:
    """Return (session id, owner) of each session whose stream says that a run goes on."""
    return [
        (str(row[0]), str(row[1])) for row in db.execute("SELECT id, owner FROM sessions WHERE owner <> ''")
    ]


def titles_of_forks(db: apsw.Connection, base: str) -> list[str]:
    """Return the titles that begin with ``base (fork ``."""
    prefix = f"{base} (fork "
    rows = db.execute(
        "SELECT title FROM sessions WHERE title >= ? AND title < ?", (prefix, prefix + "\U0010ffff")
    )
    return [str(row[0]) for row in rows]


def _dicts(rows: apsw.Cursor) -> list[dict[str, object]]:
    names = _COLUMNS.split(", ")
    return [dict(zip(names, row, strict=True)) for row in rows]
