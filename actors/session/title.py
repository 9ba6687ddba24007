"""One title for one session: made beside the first run, waited for at its end, never over a person's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio

from actors.agent.team import Team
from actors.models.provider import Message

TITLE_DEADLINE = 30.0
"""Seconds a title may take (sessions contract 6.8); the run's end waits no longer for it."""
MakeTitle = Callable[[Team, str, str, Sequence[Message]], Awaitable[str]]


class TitleJob:
    """A session's title for one run; without :meth:`begin` there is none to make."""

    def __init__(self) -> None:
        self._request: tuple[Team, str, str, Sequence[Message]] | None = None
        self._settled = trio.Event()
        self._scope = trio.CancelScope()
        self._settled.set()

    def begin(self, team: Team, agent: str, model: str, messages: Sequence[Message]) -> None:
        """Ask for a title from these messages; nothing when none of them has text.

        Args:
            team: The session's agents.
            agent: The current one.
            model: The session's model override for it, or empty.
            messages: What the person wrote in this request.
        """
        if any(message.content.strip() for message in messages):
            self._request = (team, agent, model, messages)
            self._settled = trio.Event()

    def cancel(self) -> None:
        """A person named the session: stop making a title."""
        self._scope.cancel()
        self.settle()

    def settle(self) -> None:
        """The title is recorded, or there will be none."""
        self._settled.set()

    async def wait(self) -> None:
        """Wait until the title is settled or its time is over."""
        with trio.move_on_after(TITLE_DEADLINE):
            await self._settled.wait()

    async def run(self, make: MakeTitle) -> str:
        """Make the title; empty when there is none to make, it fails, or a person named the session meanwhile."""
        if self._request is None:
            return ""
        with self._scope:
            self._scope.deadline = trio.current_time() + TITLE_DEADLINE
            return await make(*self._request)
        return ""
