"""The room's read model: stored documents and calls as rows, and the questions asked of them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec

from actors.apitools.messages import CallRecord, CallsRecorded, DocumentSaved
from actors.errors import Invalid
from actors.journal.log import Record

DOCUMENTS = "api/"
CALLS = "api-calls/"
_decode_document = msgspec.json.Decoder(DocumentSaved).decode
_decode_calls = msgspec.json.Decoder(CallsRecorded).decode
_encode = msgspec.json.Encoder().encode


class ApiRows:
    """The projection; rows of tables ``api_documents`` and ``api_calls``."""

    name = "api_tools"
    migrations = str(Path(__file__).with_name("migrations"))

    def apply(self, db: apsw.Connection, records: Sequence[Record]) -> None:
        """Take up what was saved, in the append's own transaction."""
        for record in records:
            if record.stream.startswith(DOCUMENTS):
                saved = _decode_document(record.data)
                db.execute(
                    "INSERT OR REPLACE INTO api_documents (kind, id, name, created_at, stream, data)"
                    " VALUES (?, ?, ?, ?, ?, ?)",
                    (saved.kind, saved.id, saved.name, saved.created_at, record.stream, saved.data.encode()),
                )
            elif record.stream.startswith(CALLS):
                for call in _decode_calls(record.data).calls:
                    db.execute(
                        "INSERT OR REPLACE INTO api_calls"
                        " (id, stream, session_id, tool_id, state, owner, started_at, data)"
                        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                        (
                            call.id,
                            record.stream,
                            call.session_id,
                            call.tool_id,
                            call.state,
                            call.owner,
                            call.started_at,
                            _encode(call),
                        ),
                    )
            else:
                return

    def purge(self, db: apsw.Connection, stream: str) -> None:
        """Forget what came from a stream, and the calls of a deleted session."""
        if stream.startswith(DOCUMENTS):
            db.execute("DELETE FROM api_documents WHERE stream = ?", (stream,))
        elif stream.startswith(CALLS):
            db.execute("DELETE FROM api_calls WHERE stream = ?", (stream,))
        elif stream.startswith("session/"):
            db.execute("DELETE FROM api_calls WHERE session_id = ?", (stream.removeprefix("session/"),))

    def reset(self, db: apsw.Connection) -> None:
        """Forget everything, before the log is replayed."""
        db.execute("DELETE FROM api_documents")
        db.execute("DELETE FROM api_calls")


def read_document(db: apsw.Connection, kind: str, document_id: str) -> bytes | None:
    """Return a document's JSON."""
    row = db.execute(
        "SELECT data FROM api_documents WHERE kind = ? AND id = ?", (kind, document_id)
    ).fetchone()
    return None if row is None else bytes(row[0])


def all_documents(db: apsw.Connection, kind: str) -> list[bytes]:
    """Return every document of a kind, oldest first."""
    rows = db.execute("SELECT data FROM api_documents WHERE kind = ? ORDER BY created_at, id", (kind,))
    return [bytes(row[0]) for row in rows]


def page_of_documents(
    db: apsw.Connection, *, kind: str, limit: int, cursor: str, descending: bool, search: str
) -> tuple[list[bytes], int, str]:
    """Return documents of a kind, how many there are in all, and the cursor of the next page.

    Raises:
        Invalid: the cursor is not one of ours.
    """
    like = "%" + search.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    where = "kind = ? AND name LIKE ? ESCAPE '\\'"
    total = int(str(db.execute(f"SELECT count(*) FROM api_documents WHERE {where}", (kind, like)).get))  # noqa: S608
    compare, order = ("<", "DESC") if descending else (">", "ASC")
    after: tuple[int | str, ...] = ()
    if cursor:
        after = _read_cursor(cursor)
        where += f" AND (created_at, id) {compare} (?, ?)"
    found = db.execute(
        f"SELECT data, created_at, id FROM api_documents WHERE {where}"  # noqa: S608 - made of constants
        f" ORDER BY created_at {order}, id {order} LIMIT ?",
        (kind, like, *after, limit + 1),
    )
    rows: list[tuple[Any, ...]] = [tuple(row) for row in found]
    following = _cursor(rows[limit - 1][1], rows[limit - 1][2]) if len(rows) > limit else ""
    return [bytes(row[0]) for row in rows[:limit]], total, following


def page_of_calls(
    db: apsw.Connection, *, column: str, value: str, limit: int, cursor: str
) -> tuple[list[CallRecord], int, str]:
    """Return the calls of a session or tool, newest first; ``column`` is ``session_id`` or ``tool_id``.

    Raises:
        Invalid: the cursor is not one of ours.
    """
    assert column in {"session_id", "tool_id"}
    total = int(str(db.execute(f"SELECT count(*) FROM api_calls WHERE {column} = ?", (value,)).get))  # noqa: S608
    before: tuple[int | str, ...] = _read_cursor(cursor) if cursor else ()
    more = " AND (started_at, id) < (?, ?)" if cursor else ""
    found = db.execute(
        f"SELECT data, started_at, id FROM api_calls WHERE {column} = ?{more}"  # noqa: S608 - made of constants
        " ORDER BY started_at DESC, id DESC LIMIT ?",
        (value, *before, limit + 1),
    )
    rows: list[tuple[Any, ...]] = [tuple(row) for row in found]
    following = _cursor(rows[limit - 1][1], rows[limit - 1][2]) if len(rows) > limit else ""
    return [msgspec.json.decode(row[0], type=CallRecord) for row in rows[:limit]], total, following


def pending_calls(db: apsw.Connection) -> list[CallRecord]:
    """Return the calls of which no end is known."""
    rows = db.execute("SELECT data FROM api_calls WHERE state = 'pending'")
    return [msgspec.json.decode(row[0], type=CallRecord) for row in rows]


def call_segments(db: apsw.Connection) -> list[str]:
    """Return the streams that hold calls, oldest first."""
    rows = db.execute("SELECT stream FROM api_calls GROUP BY stream ORDER BY min(started_at), stream")
    return [str(row[0]) for row in rows]


def _cursor(created_at: object, document_id: object) -> str:
    return base64.urlsafe_b64encode(f"{created_at}:{document_id}".encode()).decode()


def _read_cursor(cursor: str) -> tuple[int, str]:
    try:
        created_at, _, document_id = base64.urlsafe_b64decode(cursor.encode()).decode().partition(":")
        return int(created_at), document_id
    except ValueError as error:
        raise Invalid("cursor: is not one that was given out", field="cursor") from error
