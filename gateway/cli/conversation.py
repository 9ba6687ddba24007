"""One session and whoever talks to it: starts runs, shows their events, answers what runs ask a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from actors import Session
from actors.agent import messages as run
from actors.session.messages import StartRun, UserInput
from gateway.cli.display import Display
from gateway.sse import Frame

Verdict = Literal["approve", "reject", "approve-tool", "approve-autonomous"]
NOBODY = "nobody is there to approve it; --yolo runs every tool call without asking"


class Person(Protocol):
    """Somebody who can be asked. Each call waits for the answer."""

    async def approve(self, request: run.ApprovalRequested) -> tuple[Verdict, str]:
        """Return the decision on a tool call, and a reason for a rejection."""
        ...

    async def go_on(self, limit: int) -> bool:
        """Return whether the run may go on after ``limit`` model calls."""
        ...

    async def answer(self, request: run.ElicitationRequested) -> tuple[str, dict[str, Any]]:
        """Return ``accept`` with content, ``decline`` or ``cancel``."""
        ...


class Conversation:
    """See the module.

    Args:
        session: The session.
        display: Where its events go.
        person: Who is asked; ``None`` refuses whatever needs a person.
        source: The agent source of the first run.
        agent: The source's agent to start with.
        model: ``provider/model`` to answer with from the first run on.
    """

    def __init__(
        self,
        session: Session,
        display: Display,
        person: Person | None,
        *,
        source: str = "",
        agent: str = "",
        model: str = "",
    ) -> None:
        self.session = session
        self._display = display
        self._person = person
        self._source = source
        self._agent = agent
        self._model = model

    async def say(self, text: str) -> run.RunReason:
        """Run the agent on ``text``, show what happens, and return how the run ended.

        Cancellation: the run goes on; :meth:`Session.cancel` ends it.
        """
        start = StartRun(
            source=self._source, agent=self._agent, messages=(UserInput(text),), model=self._model
        )
        accepted = await self.session.start_run(start)
        self._model = ""  # the session remembers it
        async with self.session.follow(accepted.after) as follower:
            while batch := await follower.next():
                if not isinstance(batch, Sequence):
                    continue  # a gap: events that are no longer there
                for frame in batch:
                    self._display.show(frame)
                    if isinstance(frame.event, run.RunEnded) and frame.event.run_id == accepted.run_id:
                        self._display.flush()
                        return frame.event.reason
                    await self._answer(frame)
        self._display.flush()
        return "interrupted"

    async def _answer(self, frame: Frame) -> None:
        event = frame.event
        match event:
            case run.ApprovalRequested():
                self._display.flush()
                verdict, reason = await self._person.approve(event) if self._person else ("reject", NOBODY)
                await self.session.decide(verdict, reason=reason, approval_id=event.approval_id)
            case run.IterationLimitReached(limit=limit):
                self._display.flush()
                go_on = self._person is not None and await self._person.go_on(limit)
                await self.session.decide("approve" if go_on else "reject")
            case run.ElicitationRequested():
                self._display.flush()
                action, content = await self._person.answer(event) if self._person else ("cancel", {})
                await self.session.answer(action, content, event.elicitation_id)
            case _:
                return
