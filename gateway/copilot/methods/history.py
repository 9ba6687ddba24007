"""Methods that read what is stored: a session's events, and the list of sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actors import Runtime
from actors.journal.tail import Gap
from actors.session.queries import SessionRow
from gateway.copilot.door import Door, Method, text
from gateway.copilot.events import Translator, Wire, iso, present
from gateway.copilot.rpc import Connection
from gateway.copilot.shapes import as_object

JSON = Any


async def stored_events(runtime: Runtime, session_id: str, version: str) -> list[Wire]:
    """Return a session's stored events, oldest first, as its ``events.jsonl`` has them. Raises: NotFound."""
    head = (await runtime.session(session_id).view()).seq
    translator = Translator(session_id, version)
    found: list[Wire] = []
    async with runtime.follow(session_id, 0) as follower:
        while translator.seq < head and (batch := await follower.next()) is not None:
            if isinstance(batch, Gap):
                continue
            for item in batch:
                events = translator.take(item.seq, item.at, item.event)
                found += [event for event in events if not event.get("ephemeral")]
    return found


async def get_messages(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Return the stored events of a session."""
    live = door.attached(connection, params)
    return {"events": await stored_events(door.runtime, live.id, door.version)}


def _listed(row: SessionRow) -> JSON:
    return present(
        {
            "sessionId": row.id,
            "startTime": iso(row.created_at),
            "modifiedTime": iso(row.created_at),
            "isRemote": False,
            "summary": row.title or None,
            "context": {"cwd": row.working_dir} if row.working_dir else None,
        }
    )


async def list_sessions(door: Door, _connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """List the stored sessions, those of the other doors, too."""
    cwd = (as_object(params.get("filter")) or {}).get("cwd")
    rows = await door.runtime.list_sessions()
    return {"sessions": [_listed(row) for row in rows if not cwd or row.working_dir == cwd]}


async def get_metadata(door: Door, _connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Return one session's entry of the list; nothing when it is unknown."""
    session_id = text(params, "sessionId", required=True)
    for row in await door.runtime.list_sessions():
        if row.id == session_id:
            return {"session": _listed(row)}
    return {}


async def last_id(door: Door, _connection: Connection, _params: Mapping[str, JSON]) -> JSON:
    """Return the newest session's id."""
    rows = await door.runtime.list_sessions(limit=1)
    return {"sessionId": rows[0].id} if rows else {}


METHODS = (
    Method("session.getMessages", get_messages),
    Method("session.list", list_sessions),
    Method("session.getMetadata", get_metadata),
    Method("session.getLastId", last_id),
)
