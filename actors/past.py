"""The runtime's stored sessions as the tool that looks at earlier conversations sees them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from actors.session.messages import SessionView
from actors.session.queries import SessionRow
from actors.tools.builtin.session_context import PastMessage, PastSession


class PastSessions:
    """See :class:`~actors.tools.builtin.session_context.SessionReader`.

    Args:
        rows: The newest sessions, up to a number.
        view: One session; raises NotFound.
    """

    def __init__(
        self,
        rows: Callable[[int], Awaitable[Sequence[SessionRow]]],
        view: Callable[[str], Awaitable[SessionView]],
    ) -> None:
        self._rows = rows
        self._view = view

    async def sessions(self, limit: int) -> Sequence[PastSession]:
        """Return the newest sessions."""
        return [
            PastSession(row.id, row.title, row.created_at, row.num_messages)
            for row in await self._rows(limit)
        ]

    async def messages(self, session_id: str) -> Sequence[PastMessage]:
        """Return what users and agents said in a session, without tool results. Raises: NotFound."""
        return [
            PastMessage(message.agent or message.role, message.content)
            for message in (await self._view(session_id)).messages
            if message.role in ("user", "assistant") and message.content and not message.implicit
        ]
