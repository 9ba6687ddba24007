"""The session's side of a run: what the agent loop's requests mean for a session's stream, queues and desk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
import trio

from actors.agent.host import Decision, Incoming, LivePolicy, RunFacts, RunHost
from actors.agent.messages import (
    ApprovalRequested,
    ElicitationRequested,
    IterationLimitReached,
    RunEnded,
    RunEvent,
)
from actors.agent.transcript import Transcript
from actors.ids import new_id, new_uuid
from actors.models.provider import Message, ToolCall
from actors.session.approvals import Desk, Question
from actors.session.messages import SubSessionStarted
from actors.session.recorder import Recorder
from actors.session.state import Queued, SessionState
from actors.tools.policy import Rules
from actors.tools.tool import Definition, Elicitation, ElicitationReply


class SessionHost:
    """A :class:`~actors.agent.host.RunHost` over one conversation of a session's stream.

    Args:
        facts: What does not change during the run.
        state: The session's state, kept current by the recorder.
        recorder: The stream's writer.
        desk: The session's open questions.
        before_end: Awaited before the run's last event is written; the title waits there.
        session: The sub-session's id; empty for the session itself.
        interactive: Whether a person may be asked.
        decided: Decisions made while the run was suspended, by call id; each is used once.
    """

    def __init__(
        self,
        facts: RunFacts,
        state: SessionState,
        recorder: Recorder,
        desk: Desk,
        before_end: Callable[[], Awaitable[None]],
        *,
        session: str = "",
        interactive: bool = True,
        decided: Mapping[str, Decision] | None = None,
    ) -> None:
        self._decided = dict(decided or {})
        self.facts = facts
        self._state = state
        self._recorder = recorder
        self._desk = desk
        self._before_end = before_end
        self._session = session
        self._interactive = interactive

    @property
    def session(self) -> str:
        """The sub-session's id; empty for the session itself."""
        return self._session

    def emit(self, event: RunEvent) -> None:
        """Publish an event now; it is stored with the next write."""
        self._recorder.emit(self._own(event))

    async def commit(self, *events: RunEvent) -> None:
        """Store and publish events. Raises: StorageFailed, SequenceConflict."""
        ending = any(isinstance(event, RunEnded) for event in events) and not self._session
        if ending:
            await self._before_end()
        await self._recorder.commit(*(self._own(event) for event in events), ahead=not ending)

    def transcript(self) -> Transcript:
        """The conversation."""
        return self._state.transcript(self._session)

    def history(self) -> Sequence[Message]:
        """Return the conversation for the next prompt."""
        return self._state.transcript(self._session).messages()

    def new_message_id(self) -> int:
        """Return the next message id."""
        return self._state.new_message_id()

    def policy(self) -> LivePolicy:
        """Return the session's safety mode and rules as they are now."""
        rules = self._state.permissions
        return LivePolicy(
            mode=self._state.safety_policy,
            rules=Rules() if rules is None else Rules(rules.allow, rules.ask, rules.deny),
            interactive=self._interactive,
        )

    async def approve(
        self,
        agent: str,
        call: ToolCall,
        definition: Definition,
        metadata: Mapping[str, str],
        *,
        still_needed: Callable[[], bool],
    ) -> Decision:
        """Show one request at a time and wait for its decision."""
        if (decision := self._decided.pop(call.id, None)) is not None:
            await trio.lowlevel.checkpoint()
            return decision
        async with self._desk.turn:
            if not still_needed():
                return Decision("approved")
            question: Question[Decision] = Question(self._approval_id(call))
            self._desk.approval = question
            try:
                if question.id not in self._state.approvals:
                    await self.commit(
                        ApprovalRequested(
                            agent=agent,
                            approval_id=question.id,
                            call=call,
                            definition=definition,
                            metadata=metadata,
                        )
                    )
                return await question.wait()
            finally:
                self._desk.approval = None

    async def continue_past_limit(self, agent: str, limit: int) -> bool:
        """Announce the limit and wait for a decision."""
        question: Question[bool] = Question(new_id("limit"))
        self._desk.limit = question
        try:
            await self.commit(IterationLimitReached(agent=agent, limit=limit))
            return await question.wait()
        finally:
            self._desk.limit = None

    async def elicit(self, agent: str, call_id: str, question: Elicitation) -> ElicitationReply:
        """Ask the person and wait; several questions may be open at once."""
        if not self._interactive and not self._session:
            return ElicitationReply("decline")
        waiting: Question[ElicitationReply] = Question(new_uuid())
        self._desk.elicitations[waiting.id] = waiting
        try:
            await self.commit(elicitation_requested(question, waiting.id, agent=agent, call_id=call_id))
            return await waiting.wait()
        finally:
            self._desk.elicitations.pop(waiting.id, None)

    def take_steering(self) -> Sequence[Incoming]:
        """Remove every queued steering message; their events remove them from the stream's queue."""
        if self._session:
            return ()
        taken = [_incoming(queued) for queued in self._state.steering]
        self._state.steering.clear()
        return taken

    def take_follow_up(self) -> Incoming | None:
        """Remove the next follow-up."""
        if self._session or not self._state.follow_ups:
            return None
        return _incoming(self._state.follow_ups.pop(0))

    def model_override(self, agent: str) -> str:
        """Return the session's model for ``agent``, or empty."""
        return self._state.model_overrides.get(agent, "")

    def cost(self) -> float:
        """Return what the session has cost so far, in USD."""
        return self._state.cost

    def context_tokens(self) -> int:
        """Return the tokens of the last model call."""
        return self._state.transcript(self._session).last_tokens

    async def open_child(self, agent: str, title: str, *, interactive: bool = True) -> SessionHost:
        """Open a sub-session on this session's stream."""
        child_id = new_uuid()
        facts = msgspec.structs.replace(
            self.facts, session_id=child_id, root=self.facts.root or self.facts.session_id
        )
        await self._recorder.commit(
            SubSessionStarted(
                agent=agent, session=self._session, sub_session=child_id, title=title, interactive=interactive
            )
        )
        return SessionHost(
            facts,
            self._state,
            self._recorder,
            self._desk,
            self._before_end,
            session=child_id,
            interactive=self._interactive and interactive,
        )

    async def close_child(self, child: RunHost) -> None:
        """Record the sub-session's end."""
        await self._recorder.commit(self._state.completed(child.facts.session_id, self._session))

    def _own(self, event: RunEvent) -> RunEvent:
        if not self._session or event.session:
            return event
        return msgspec.structs.replace(event, session=self._session)

    def _approval_id(self, call: ToolCall) -> str:
        """Return the id of an approval that survived a restart for this very call, else a new one."""
        for approval_id, pending in self._state.approvals.items():
            if pending.call.id == call.id and pending.session == self._session:
                return approval_id
        return new_id("approval")


def elicitation_requested(
    question: Elicitation, question_id: str, *, agent: str, call_id: str = "", session: str = ""
) -> ElicitationRequested:
    """Return the event that puts a tool's question to a person."""
    return ElicitationRequested(
        agent=agent,
        session=session,
        elicitation_id=question_id,
        message=question.message,
        mode=question.mode,
        title=question.title,
        schema=question.schema,
        url=question.url,
        meta=question.meta,
        server_id=question.server_id,
        call_id=call_id,
    )


def _incoming(queued: Queued) -> Incoming:
    return Incoming(queued.input.content, queued.input.parts, queued.item_id)
