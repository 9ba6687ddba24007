"""The ``session_context`` toolset: looking at earlier conversations; where they are kept is its caller's business."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol

from msgspec import Struct

from actors.errors import NotFound
from actors.tools.builtin.toolset import Builtin
from actors.tools.options import SessionContextOptions
from actors.tools.tool import ToolError

MOST = 100
MESSAGE_SHOWN = 4_000
"""Characters of one message; a session's tool results can be larger than any context."""


class PastSession(Struct, frozen=True):
    """One stored conversation; ``created_at`` is seconds since the epoch."""

    id: str
    title: str
    created_at: float
    messages: int


class PastMessage(Struct, frozen=True):
    """One message of a conversation; ``speaker`` is ``user`` or the agent's name."""

    speaker: str
    text: str


class SessionReader(Protocol):
    """Where conversations are kept."""

    async def sessions(self, limit: int) -> Sequence[PastSession]:
        """Return the newest sessions."""
        ...

    async def messages(self, session_id: str) -> Sequence[PastMessage]:
        """Return what was said in a session. Raises: NotFound."""
        ...


class SessionContext(Builtin):
    """Tools over a :class:`SessionReader`."""

    name = "session_context"
    text = "Earlier conversations can be looked up with list_sessions and read with read_session."

    def __init__(self, _options: SessionContextOptions, reader: SessionReader) -> None:
        super().__init__()
        self._reader = reader
        self.offer(self.list_sessions)
        self.offer(self.read_session)

    async def list_sessions(self, limit: int = 20) -> str:
        """List earlier conversations, the newest first.

        Args:
            limit: How many, at most 100.
        """
        if not 1 <= limit <= MOST:
            raise ToolError(f"limit must be from 1 to {MOST}")
        rows = await self._reader.sessions(limit)
        return "\n".join(_line(row) for row in rows) or "There are no conversations."

    async def read_session(self, session_id: str) -> str:
        """Read what was said in a conversation.

        Args:
            session_id: Its id, from list_sessions.
        """
        try:
            messages = await self._reader.messages(session_id)
        except NotFound as error:
            raise ToolError(error.message) from error
        return (
            "\n\n".join(f"{each.speaker}: {_shortened(each.text)}" for each in messages)
            or "Nothing was said."
        )


def _line(row: PastSession) -> str:
    at = datetime.fromtimestamp(row.created_at, UTC).strftime("%Y-%m-%d %H:%M")
    return f"- {row.id}: {row.title or '(untitled)'} ({at} UTC, {row.messages} messages)"


def _shortened(text: str) -> str:
    return text if len(text) <= MESSAGE_SHOWN else f"{text[:MESSAGE_SHOWN]}… ({len(text)} characters)"
