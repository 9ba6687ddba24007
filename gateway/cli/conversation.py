"""One session and whoever talks to it: starts runs, shows their events, answers what runs ask a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import trio

from actors import Session
from actors.agent import messages as run
from actors.errors import Conflict
from actors.models.provider import Part
from actors.session.messages import RunAccepted, StartRun, UserInput
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
        self._own: set[str] = set()
        self._starting = False

    async def say(self, text: str, parts: tuple[Part, ...] = ()) -> run.RunReason:
        """Run the agent on ``text`` and what comes with it, show what happens, and return how the run ended.

        Cancellation: the run goes on; :meth:`Session.cancel` ends it.
        """
        start = StartRun(
            source=self._source, agent=self._agent, messages=(UserInput(text, parts),), model=self._model
        )
        accepted = await self._started(start)
        self._model = ""  # the session remembers it
        self._own.add(accepted.run_id)
        return await self._until_end(accepted.run_id, accepted.after)

    async def cancel(self) -> None:
        """Cancel the run going on."""
        await self.session.cancel("interrupted by the user")

    async def watch(self) -> None:
        """Show the runs that others start in this session, for ever. Their questions are left to those others."""
        after = (await self.session.view()).seq
        shown = ""
        async with self.session.follow(after) as follower:
            while batch := await follower.next():
                for frame in batch if isinstance(batch, Sequence) else ():
                    event = frame.event
                    if isinstance(event, run.RunStarted) and not event.session:
                        # The one who starts a run here learns its id before the next checkpoint, but after this event.
                        await trio.lowlevel.checkpoint()
                        shown = "" if self._starting or event.run_id in self._own else event.run_id
                    if shown:
                        self._display.show(frame)
                    if isinstance(event, run.RunEnded) and event.run_id == shown:
                        self._display.flush()
                        shown = ""

    async def _started(self, start: StartRun) -> RunAccepted:
        """Start a run, after the one that somebody else has going on."""
        while True:
            view = await self.session.view()
            self._starting = True
            try:
                return await self.session.start_run(start)
            except Conflict:
                if not view.run_id:
                    continue  # it began in between
            finally:
                self._starting = False
            await self._wait_for(view.run_id, view.seq)

    async def _wait_for(self, run_id: str, after: int) -> None:
        async with self.session.follow(after) as follower:
            while (await self.session.view()).run_id == run_id:
                if await follower.next() is None:
                    return

    async def _until_end(self, run_id: str, after: int) -> run.RunReason:
        async with self.session.follow(after) as follower:
            while batch := await follower.next():
                if not isinstance(batch, Sequence):
                    continue  # a gap: events that are no longer there
                for frame in batch:
                    self._display.show(frame)
                    if isinstance(frame.event, run.RunEnded) and frame.event.run_id == run_id:
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
