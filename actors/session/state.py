"""A session as the fold of its stream's events. Pure: no clock, no ids, no I/O; the same events give the same state.

The fold works in place, because a conversation grows by one event at a time and is read far more often than copied.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import assert_never

import msgspec
from msgspec import Struct, field

from actors.agent import messages as act
from actors.agent.closing import OpenRuns
from actors.agent.transcript import Transcript
from actors.session import messages as ev
from actors.session.codec import Numbered
from actors.session.messages import HistoryMessage, SessionView, Template

KEYS_REMEMBERED = 256


class Queued(Struct, frozen=True):
    """A steering or follow-up message waiting for its turn."""

    item_id: str
    input: ev.UserInput


class SubSession(Struct, frozen=True):
    """A delegated conversation inside this session."""

    id: str
    parent: str
    title: str
    agent: str
    created_at: float
    completed: bool = False


class OpenRun(Struct, frozen=True):
    """The run going on: begun in the log and not ended."""

    run_id: str
    owner: str
    started_at: float


class SessionState(Struct):
    """Everything a session actor knows. Built only by :meth:`evolve`."""

    id: str
    exists: bool = False
    deleted: bool = False
    seq: int = 0
    created_at: float = 0.0
    template: Template = field(default_factory=Template)
    title: str = ""
    safety_policy: ev.SafetyPolicy = ""
    safety_chosen: bool = False
    prior_policy: ev.SafetyPolicy = ""
    permissions: ev.PermissionRules | None = None
    model_overrides: dict[str, str] = field(default_factory=dict[str, str])
    custom_models: list[str] = field(default_factory=list[str])
    starred: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    source: str = ""
    agent: str = ""
    messages: list[HistoryMessage] = field(default_factory=list[HistoryMessage])
    last_message_id: int = 0
    subs: dict[str, SubSession] = field(default_factory=dict[str, SubSession])
    run: OpenRun | None = None
    steering: list[Queued] = field(default_factory=list[Queued])
    follow_ups: list[Queued] = field(default_factory=list[Queued])
    keys: OrderedDict[str, None] = field(default_factory=lambda: OrderedDict[str, None]())
    approvals: dict[str, act.ApprovalRequested] = field(default_factory=dict[str, act.ApprovalRequested])
    elicitations: dict[str, act.ElicitationRequested] = field(
        default_factory=dict[str, act.ElicitationRequested]
    )
    limit: act.IterationLimitReached | None = None
    transcripts: dict[str, Transcript] = field(default_factory=dict[str, Transcript])
    open_runs: OpenRuns = field(default_factory=OpenRuns)

    def transcript(self, session: str = "") -> Transcript:
        """Return the conversation of the session itself (empty name) or of one of its sub-sessions."""
        found = self.transcripts.get(session)
        if found is None:
            found = self.transcripts[session] = Transcript()
        return found

    def new_message_id(self) -> int:
        """Return the next message id, unique within this session and its sub-sessions."""
        self.last_message_id += 1
        return self.last_message_id

    def find_message(self, message_id: int) -> HistoryMessage | None:
        """Return the message with this id, if any."""
        return next((message for message in self.messages if message.id == message_id), None)

    def evolve(self, item: Numbered) -> None:
        """Fold one event in."""
        self.seq = item.seq
        event = item.event
        if isinstance(event, ev.SessionCreated):
            self._create(event, item.at)
            return
        self.transcript(event.session).evolve(event)
        self.open_runs.evolve(event)
        self._fold(event, item.at)

    def _create(self, event: ev.SessionCreated, at: float) -> None:
        template = event.template
        self.exists = True
        self.created_at = at
        self.template = template
        self.title = template.title
        self.safety_policy = template.safety_policy
        self.safety_chosen = bool(template.safety_policy)
        self.permissions = template.permissions
        self.model_overrides = dict(template.agent_model_overrides)
        self.custom_models = list(template.custom_models_used)
        for sub in event.subs:
            self.subs[sub.id] = SubSession(
                sub.id, sub.parent, sub.title, sub.agent, sub.created_at, completed=True
            )
        for message in event.history:
            if message.usage is not None and not message.session:
                self.input_tokens, self.output_tokens = (
                    message.usage.context_tokens,
                    message.usage.output_tokens,
                )
            self._add(ev.MessageAppended(agent=message.agent, session=message.session, message=message))

    def _add(self, event: ev.MessageAppended) -> None:
        message = event.message
        self.messages.append(message)
        self.last_message_id = max(self.last_message_id, message.id)
        self.transcript(message.session).append(event)
        self.cost += message.cost

    def _fold(self, event: ev.SessionEvent, at: float) -> None:  # one arm an event
        match event:
            case act.UserMessageAdded():
                self._user_message(event, at)
            case act.AssistantMessageAdded():
                self._assistant_message(event, at)
            case act.ToolMessageAdded():
                self._tool_message(event, at)
            case act.RunStarted():
                if not event.session:
                    self.run = OpenRun(event.run_id, event.owner, at)
            case act.RunResumed():
                if self.run is not None:
                    self.run = msgspec.structs.replace(self.run, owner=event.owner)
            case act.RunEnded():
                if not event.session:
                    self._end_run()
            case act.StepStarted():
                if not event.session and event.agent:
                    self.agent = event.agent
            case act.UsageReported():
                if not event.session:
                    self.input_tokens, self.output_tokens = event.context_tokens, event.output_tokens
            case act.Summarised():
                self.cost += event.cost
            case act.ApprovalRequested():
                self.approvals[event.approval_id] = event
            case act.ApprovalDecided():
                self.approvals.pop(event.approval_id, None)
            case act.ElicitationRequested():
                self.elicitations[event.elicitation_id] = event
            case act.ElicitationAnswered():
                self.elicitations.pop(event.elicitation_id, None)
            case act.IterationLimitReached():
                self.limit = event
            case act.AgentHandedOff():
                self.agent = event.to_agent
            case ev.TitleChanged():
                self.title = event.title
            case ev.PermissionsChanged():
                self.permissions = event.permissions
            case ev.SafetyPolicyChanged():
                self.safety_policy, self.prior_policy = event.safety_policy, event.prior
                self.safety_chosen = self.safety_chosen or not event.by_author
            case ev.ModelOverridden():
                self._override(event)
            case ev.MessageAppended():
                self._add(event)
            case ev.MessageReplaced():
                self._replace(event)
            case ev.AgentBound():
                self.source, self.agent = event.source, event.agent
            case ev.FollowUpQueued():
                self._queue(self.follow_ups, event)
            case ev.SteerQueued():
                self._queue(self.steering, event)
            case ev.QueueCleared():
                self.follow_ups.clear()
                self.steering.clear()
            case ev.Starred():
                self.starred = event.starred
            case ev.TokensSet():
                self.input_tokens, self.output_tokens = event.input_tokens, event.output_tokens
                self.cost = self.cost if event.cost is None else event.cost
            case ev.SubSessionStarted():
                self.subs[event.sub_session] = SubSession(
                    event.sub_session, event.session, event.title, event.agent, at
                )
            case ev.SubSessionCompleted():
                if event.background:
                    self._adopt(event)
                sub = self.subs.get(event.sub_session)
                if sub is not None:
                    self.subs[event.sub_session] = msgspec.structs.replace(sub, completed=True)
            case ev.SessionDeleted():
                self.deleted = True
            case (
                ev.SessionCreated()
                | ev.Noted()
                | ev.PlanChanged()
                | act.TeamAnnounced()
                | act.ToolsAnnounced()
                | act.ToolLoadingStarted()
                | act.ToolLoadingFinished()
                | act.StepEnded()
                | act.TextDelta()
                | act.ReasoningDelta()
                | act.ToolCallDelta()
                | act.ToolStarted()
                | act.ToolOutput()
                | act.ToolReturned()
                | act.Warned()
                | act.Failed()
                | act.ModelFellBack()
                | act.AgentSwitched()
                | act.CompactionStarted()
                | act.CompactionEnded()
                | act.HookStarted()
                | act.HookFinished()
                | act.HookBlocked()
                | act.BudgetReported()
                | act.BudgetExceeded()
                | act.TaskCompleted()
            ):
                pass
            case _:
                assert_never(event)

    def _user_message(self, event: act.UserMessageAdded, at: float) -> None:
        self.last_message_id = max(self.last_message_id, event.message_id)
        self.messages.append(
            HistoryMessage(
                id=event.message_id,
                role=event.role,
                content=event.content,
                parts=event.parts,
                implicit=event.implicit,
                at=at,
                session=event.session,
            )
        )
        if event.client_id:
            self.follow_ups = [queued for queued in self.follow_ups if queued.item_id != event.client_id]
            self.steering = [queued for queued in self.steering if queued.item_id != event.client_id]

    def _assistant_message(self, event: act.AssistantMessageAdded, at: float) -> None:
        self.last_message_id = max(self.last_message_id, event.message_id)
        self.cost += event.cost
        self.messages.append(
            HistoryMessage(
                id=event.message_id,
                role="assistant",
                agent=event.agent,
                content=event.content,
                reasoning=event.reasoning,
                reasoning_signature=event.reasoning_signature,
                tool_calls=event.tool_calls,
                definitions=event.definitions,
                usage=event.usage,
                model=event.model,
                cost=event.cost,
                finish=event.finish,
                interrupted=event.interrupted,
                at=at,
                session=event.session,
            )
        )

    def _tool_message(self, event: act.ToolMessageAdded, at: float) -> None:
        self.last_message_id = max(self.last_message_id, event.message_id)
        self.messages.append(
            HistoryMessage(
                id=event.message_id,
                role="tool",
                agent=event.agent,
                content=event.content,
                tool_call_id=event.call_id,
                is_error=event.is_error,
                media=event.media,
                at=at,
                session=event.session,
            )
        )

    def _end_run(self) -> None:
        self.run = None
        self.limit = None
        self.approvals.clear()
        self.elicitations.clear()

    def _adopt(self, event: ev.SubSessionCompleted) -> None:
        for sub in event.subs:
            self.subs[sub.id] = SubSession(sub.id, sub.parent, sub.title, sub.agent, sub.created_at)
        for message in event.messages:
            self._add(ev.MessageAppended(agent=message.agent, session=message.session, message=message))

    def _override(self, event: ev.ModelOverridden) -> None:
        if event.model:
            self.model_overrides[event.agent] = event.model
            if event.custom and event.model not in self.custom_models:
                self.custom_models.append(event.model)
        else:
            self.model_overrides.pop(event.agent, None)

    def _replace(self, event: ev.MessageReplaced) -> None:
        for index, old in enumerate(self.messages):
            if old.id == event.message.id:
                self.messages[index] = event.message
                break
        self.transcript(event.session).replace(event)

    def _queue(self, queue: list[Queued], event: ev.FollowUpQueued | ev.SteerQueued) -> None:
        queue.append(Queued(event.item_id, ev.UserInput(event.content, event.parts)))
        if isinstance(event, ev.FollowUpQueued) and event.idempotency_key:
            self.keys[event.idempotency_key] = None
            while len(self.keys) > KEYS_REMEMBERED:
                self.keys.popitem(last=False)

    def completed(self, session: str, parent: str) -> ev.SubSessionCompleted:
        """Return the event that says that a sub-session is over, with all that was said in it and below it."""
        inside = {session}
        for sub in self.subs.values():  # parents come before their children
            if sub.parent in inside:
                inside.add(sub.id)
        return ev.SubSessionCompleted(
            session=parent,
            sub_session=session,
            messages=tuple(message for message in self.messages if message.session in inside),
            subs=tuple(_view_of(sub) for sub in self.subs.values() if sub.id in inside),
            safety_policy=self.safety_policy,
        )

    def view(self, *, streaming: bool, bound: bool) -> SessionView:
        """Return the session as clients see it.

        Args:
            streaming: Whether a run is going on in this process.
            bound: Whether this process has the session's agent loaded (it ran here).
        """
        return SessionView(
            id=self.id,
            template=self.template,
            title=self.title,
            created_at=self.created_at,
            safety_policy=self.safety_policy,
            permissions=self.permissions,
            messages=tuple(self.messages),
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cost=self.cost,
            starred=self.starred,
            streaming=streaming,
            bound=bound,
            agent=self.agent,
            seq=self.seq,
            run_id=self.run.run_id if self.run else "",
            model_overrides=dict(self.model_overrides),
            custom_models=tuple(self.custom_models),
            steer_depth=len(self.steering),
            followup_depth=len(self.follow_ups),
            subs=tuple(_view_of(sub) for sub in self.subs.values()),
        )


def _view_of(sub: SubSession) -> ev.SubSessionView:
    return ev.SubSessionView(sub.id, sub.parent, sub.title, sub.agent, sub.created_at)
