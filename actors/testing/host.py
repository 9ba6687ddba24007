"""An owner for runs without a session: events in a list, a transcript, and answers you give beforehand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import trio

from actors.agent.closing import ClosingReason, OpenRuns, closing_events
from actors.agent.host import Decision, Incoming, LivePolicy, RunFacts, RunHost
from actors.agent.messages import (
    ApprovalDecided,
    ApprovalRequested,
    AssistantMessageAdded,
    ElicitationAnswered,
    ElicitationRequested,
    IterationLimitReached,
    RunEvent,
    Summarised,
    TextDelta,
)
from actors.agent.opening import opening_events
from actors.agent.team import Team
from actors.agent.transcript import Transcript
from actors.models.provider import Message, ToolCall
from actors.tools.policy import Rules
from actors.tools.tool import Definition, Elicitation, ElicitationReply

E = TypeVar("E", bound=RunEvent)
Approver = Callable[[ApprovalRequested], Decision]


def approve_all(_: ApprovalRequested) -> Decision:
    """Approve whatever is asked."""
    return Decision("approved")


class Log:
    """What one stream recorded: all events of a conversation and its sub-sessions, and the fold of what is open.

    Attributes:
        events: Every event, in order.
        committed: How many of them are on disk; the others were emitted after the last commit.
        commits: How many writes there were.
    """

    def __init__(self) -> None:
        self.events: list[RunEvent] = []
        self.committed = 0
        self.commits = 0
        self.open = OpenRuns()
        self.transcripts: dict[str, Transcript] = {}
        self.last_message_id = 0
        self.cost = 0.0
        self.turn = trio.StrictFIFOLock()

    def add(self, event: RunEvent) -> None:
        """Fold one event in."""
        self.events.append(event)
        self.open.evolve(event)
        self.transcript(event.session).evolve(event)
        if isinstance(event, AssistantMessageAdded | Summarised):
            self.cost += event.cost

    def transcript(self, session: str) -> Transcript:
        """Return one conversation of the stream."""
        return self.transcripts.setdefault(session, Transcript())


class RecordingHost:
    """A :class:`~actors.agent.host.RunHost` in memory, for tests and for embedders who want no session.

    Args:
        policy: The safety mode and rules; assign to change them while a run goes on.
        approver: Answers each approval as it becomes visible; without one, approvals wait for :meth:`decide`.
        continues: Answers to iteration limits, in order; none left means no.
        elicitations: Answers to tools' questions, in order; none left cancels.
        facts: What does not change; a plain set without it.

    Attributes:
        log: What was recorded, shared with sub-sessions.
        steering, follow_ups: The queues; append to them.
        overrides: Model overrides by agent.
        children: Sub-sessions opened, in order.
    """

    def __init__(
        self,
        *,
        policy: LivePolicy | None = None,
        approver: Approver | None = None,
        continues: Iterable[bool] = (),
        elicitations: Iterable[ElicitationReply] = (),
        facts: RunFacts | None = None,
        log: Log | None = None,
        session: str = "",
    ) -> None:
        self.facts = facts or RunFacts(
            session_id="session-1", run_id="run-1", working_dir=Path.cwd(), data_dir=Path.cwd()
        )
        self.live = policy or LivePolicy("", Rules())
        self.log = log or Log()
        self.session = session
        self.steering: list[Incoming] = []
        self.follow_ups: list[Incoming] = []
        self.overrides: dict[str, str] = {}
        self.children: list[RecordingHost] = []
        self.closed: list[str] = []
        self.approver = approver
        self.continues = deque(continues)
        self.elicitations = deque(elicitations)
        self._pending: tuple[ApprovalRequested, trio.Event, list[Decision]] | None = None
        self._asked = trio.Event()

    # --- what a run asks --------------------------------------------------------------------------------------------

    def emit(self, event: RunEvent) -> None:
        """Record an event as published."""
        self.log.add(self._own(event))

    async def commit(self, *events: RunEvent) -> None:
        """Record events as stored."""
        for event in events:
            self.log.add(self._own(event))
        self.log.committed = len(self.log.events)
        self.log.commits += 1
        await trio.lowlevel.checkpoint()

    def history(self) -> Sequence[Message]:
        """Return the conversation for the next prompt."""
        return self.transcript().messages()

    def transcript(self) -> Transcript:
        """Return the conversation."""
        return self.log.transcript(self.session)

    def new_message_id(self) -> int:
        """Return the next id."""
        self.log.last_message_id += 1
        return self.log.last_message_id

    def policy(self) -> LivePolicy:
        """Return :attr:`live`."""
        return self.live

    async def approve(
        self,
        agent: str,
        call: ToolCall,
        definition: Definition,
        metadata: Mapping[str, str],
        *,
        still_needed: Callable[[], bool],
    ) -> Decision:
        """Show one request at a time and wait for the approver or :meth:`decide`."""
        async with self.log.turn:
            if not still_needed():
                return Decision("approved")
            request = ApprovalRequested(
                agent=agent,
                approval_id=f"approval-{call.id}",
                call=call,
                definition=definition,
                metadata=metadata,
            )
            answered = trio.Event()
            answers: list[Decision] = []
            self._pending = (request, answered, answers)
            try:
                await self.commit(request)
                self._asked.set()
                if self.approver is not None:
                    answers.append(self.approver(request))
                else:
                    await answered.wait()
            finally:
                self._pending = None
                self._asked = trio.Event()
            decision = answers[0]
            await self.commit(
                ApprovalDecided(
                    agent=agent,
                    approval_id=request.approval_id,
                    call_id=call.id,
                    verdict=decision.verdict,
                    reason=decision.reason,
                    by="test",
                )
            )
            return decision

    async def continue_past_limit(self, agent: str, limit: int) -> bool:
        """Answer with the next of ``continues``."""
        await self.commit(IterationLimitReached(agent=agent, limit=limit))
        return self.continues.popleft() if self.continues else False

    async def elicit(self, agent: str, call_id: str, question: Elicitation) -> ElicitationReply:
        """Answer with the next of ``elicitations``."""
        elicitation_id = f"elicitation-{call_id}"
        await self.commit(
            ElicitationRequested(
                agent=agent, elicitation_id=elicitation_id, message=question.message, call_id=call_id
            )
        )
        reply = self.elicitations.popleft() if self.elicitations else ElicitationReply("cancel")
        await self.commit(
            ElicitationAnswered(agent=agent, elicitation_id=elicitation_id, action=reply.action)
        )
        return reply

    def take_steering(self) -> Sequence[Incoming]:
        """Empty the steering queue."""
        taken, self.steering = self.steering, []
        return taken

    def take_follow_up(self) -> Incoming | None:
        """Take one follow-up."""
        return self.follow_ups.pop(0) if self.follow_ups else None

    def model_override(self, agent: str) -> str:
        """Return the override set for ``agent``."""
        return self.overrides.get(agent, "")

    def cost(self) -> float:
        """Return the sum of recorded costs."""
        return self.log.cost

    def context_tokens(self) -> int:
        """Return the tokens of the last model call."""
        return self.transcript().last_tokens

    async def open_child(self, agent: str, title: str, *, interactive: bool = True) -> RecordingHost:
        """Open a sub-session on the same log."""
        del agent, title
        await trio.lowlevel.checkpoint()
        child_id = f"child-{len(self.children) + 1}" + (f"-of-{self.session}" if self.session else "")
        live = msgspec.structs.replace(self.live, interactive=self.live.interactive and interactive)
        child = RecordingHost(
            policy=live,
            approver=self.approver,
            facts=msgspec.structs.replace(self.facts, session_id=child_id),
            log=self.log,
            session=child_id,
        )
        self.children.append(child)
        return child

    async def close_child(self, child: RunHost) -> None:
        """Remember that the child is closed."""
        await trio.lowlevel.checkpoint()
        self.closed.append(child.facts.session_id)

    # --- what a test does -------------------------------------------------------------------------------------------

    async def begin(self, team: Team, agent: str, *texts: str) -> None:
        """Record a run's opening events for these messages."""
        await self.commit(
            *opening_events(
                team,
                agent,
                run_id=self.facts.run_id,
                messages=[Incoming(text) for text in texts],
                new_message_id=self.new_message_id,
            )
        )

    async def close(self, reason: ClosingReason, detail: str = "") -> None:
        """Do what an owner does after a run was cancelled or crashed."""
        await self.commit(
            *closing_events(self.log.open, reason=reason, detail=detail, new_message_id=self.new_message_id)
        )

    async def wait_approval(self) -> ApprovalRequested:
        """Wait until an approval is visible and return it."""
        while self._pending is None:
            await self._asked.wait()
        return self._pending[0]

    def decide(self, decision: Decision) -> None:
        """Answer the visible approval."""
        assert self._pending is not None, "no approval is visible"
        _, answered, answers = self._pending
        answers.append(decision)
        answered.set()

    def all(self, kind: type[E]) -> list[E]:
        """Return the recorded events of one kind, of this conversation and its sub-sessions."""
        return [event for event in self.log.events if isinstance(event, kind)]

    def kinds(self) -> list[str]:
        """Return the tags of this conversation's own events, deltas of one text as one."""
        tags: list[str] = []
        for event in self.log.events:
            tag = str(type(event).__struct_config__.tag)
            if event.session == self.session and not (
                tags and tags[-1] == tag and isinstance(event, TextDelta)
            ):
                tags.append(tag)
        return tags

    def _own(self, event: RunEvent) -> RunEvent:
        if not self.session or event.session:
            return event
        return msgspec.structs.replace(event, session=self.session)
