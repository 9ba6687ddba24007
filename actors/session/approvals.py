"""Who waits for a person: pending approvals, iteration limits and elicitations of one session.

Settling is synchronous and happens at most once per question; the actor commits the decision before it settles, so
that a waiter never acts on an answer that a crash could lose.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import trio

from actors.agent.host import Decision
from actors.errors import Conflict
from actors.tools.tool import ElicitationReply

T = TypeVar("T")


class Question(Generic[T]):
    """One question put to a person; armed before it is announced, so that no answer can come too early."""

    def __init__(self, question_id: str) -> None:
        self.id = question_id
        self._answer: T | None = None
        self._answered = trio.Event()

    @property
    def open(self) -> bool:
        """Whether nobody has answered yet."""
        return not self._answered.is_set()

    def settle(self, answer: T) -> None:
        """Give the answer. Raises: Conflict when there is one already."""
        if not self.open:
            raise Conflict(f"{self.id} was already answered")
        self._answer = answer
        self._answered.set()

    async def wait(self) -> T:
        """Wait for the answer and return it."""
        await self._answered.wait()
        assert self._answer is not None
        return self._answer


class Elsewhere:
    """The open questions of background agents, by session. They outlive runs and actors, but not the process."""

    def __init__(self) -> None:
        self._open: dict[str, dict[str, Question[ElicitationReply]]] = {}

    def of(self, session_id: str) -> dict[str, Question[ElicitationReply]]:
        """Return a session's open questions by id."""
        return {
            question_id: question
            for question_id, question in self._open.get(session_id, {}).items()
            if question.open
        }

    def add(self, session_id: str, question: Question[ElicitationReply]) -> None:
        """Note a question."""
        self._open.setdefault(session_id, {})[question.id] = question

    def discard(self, session_id: str, question_id: str) -> None:
        """Forget a question that was answered, or that nobody waits for any more."""
        mine = self._open.get(session_id)
        if mine is not None:
            mine.pop(question_id, None)
            if not mine:
                del self._open[session_id]


class Desk:
    """The open questions of a session's run.

    ``turn`` lets one approval be visible at a time; the others queue in the order their calls came (contract 1.8).
    """

    def __init__(self) -> None:
        self.turn = trio.StrictFIFOLock()
        self.approval: Question[Decision] | None = None
        self.limit: Question[bool] | None = None
        self.elicitations: dict[str, Question[ElicitationReply]] = {}
