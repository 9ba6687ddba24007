"""What a session's commands mean: values in, events or a refusal out. Pure but for fresh ids of queued items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from actors.agent.closing import ClosingReason, OpenRun, known_result
from actors.agent.context import Autopilot, OpenStep
from actors.agent.host import Decision, Incoming, RunLimits
from actors.agent.messages import AgentHandedOff, ApprovalRequested, Delivery, Summarised
from actors.agent.team import AgentSpec, Command, Team
from actors.errors import Conflict, Invalid, NotFound, Overloaded
from actors.ids import new_id
from actors.kernel.work import ACTOR_STOPS, Failed, Outcome, Stopped
from actors.models.provider import ModelInfo
from actors.session import messages as m
from actors.session.approvals import Question
from actors.session.codec import Numbered
from actors.session.internal import KeepBackground
from actors.session.messages import FOLLOW_UP_CAPACITY, SEND_CAPACITY, STEER_CAPACITY
from actors.session.state import SessionState

T = TypeVar("T")

TITLE_LENGTH = 60
BUSY = "session is already processing a request"
ELSEWHERE = "another server on this database is running the session"
HARMLESS = (m.GetView, m.GetModels)
"""Commands that do not write: all that a server may do with a session whose run is another server's."""

_MODE_OF: Mapping[str, m.SafetyPolicy] = {
    "approve-balanced": "balanced",
    "approve-safe": "balanced",
    "approve-safer": "balanced",
    "approve-autonomous": "autonomous",
    "approve-session": "autonomous",
}
_YES = frozenset({"approve", "approve-tool", *_MODE_OF})


def require_idle(state: SessionState) -> None:
    """Refuse while a run is going on. Raises: Conflict."""
    if state.run is not None:
        raise Conflict(BUSY)


def incoming(message: m.UserInput) -> Incoming:
    """Return a client's message as the loop takes it."""
    return Incoming(message.content, message.parts, message.client_id)


def opening(state: SessionState, message: m.StartRun, team: Team, agent: str) -> list[m.SessionEvent]:
    """Return what is recorded before a run's own first event: binding, author's safety default, model, title."""
    events: list[m.SessionEvent] = []
    if state.title:
        events.append(m.TitleChanged(title=state.title))
    if not state.source:
        events.append(m.AgentBound(source=message.source, agent=agent))
    elif state.agent != agent:
        events.append(AgentHandedOff(agent=state.agent, to_agent=agent))
    if (
        not state.safety_chosen
        and (mode := team.agents[agent].safety or team.safety)
        and mode != state.safety_policy
    ):
        events.append(m.SafetyPolicyChanged(safety_policy=mode, by_author=True))
    if message.model and state.model_overrides.get(agent) != message.model:
        events.append(m.ModelOverridden(agent=agent, model=message.model, custom="/" in message.model))
    return events


def limits(template: m.Template, agent: AgentSpec) -> RunLimits:
    """Return the session's own limits, but for those that its agent's configuration sets (sessions contract 1.4)."""
    names = RunLimits.__struct_fields__
    return RunLimits(**{name: 0 if getattr(agent, name) else getattr(template, name) for name in names})


def steer(state: SessionState, message: m.Steer) -> list[m.SessionEvent]:
    """Queue steering messages. Raises: Invalid, Overloaded."""
    _require_room(len(state.steering), len(message.messages), STEER_CAPACITY, "steer queue full")
    return [
        m.SteerQueued(content=each.content, parts=each.parts, item_id=new_id("steer"))
        for each in message.messages
    ]


def follow_up(state: SessionState, message: m.FollowUp) -> list[m.SessionEvent]:
    """Queue follow-ups; the key goes with the first, so that all are stored or none. Raises: Invalid, Overloaded."""
    _require_room(len(state.follow_ups), len(message.messages), FOLLOW_UP_CAPACITY, "follow-up queue full")
    return [
        m.FollowUpQueued(
            content=each.content,
            parts=each.parts,
            item_id=new_id("followup"),
            idempotency_key=message.idempotency_key if index == 0 else "",
        )
        for index, each in enumerate(message.messages)
    ]


def delivery(state: SessionState, message: m.Send) -> Delivery:
    """Return what becomes of a message sent now. Raises: Overloaded."""
    if state.run is None:
        return "idle"
    queue = state.steering if message.steer else state.follow_ups
    _require_room(len(queue), 1, SEND_CAPACITY, "the session's queue is full")
    return "steering" if message.steer else "queued"


def queued(message: m.Send) -> m.SteerQueued | m.FollowUpQueued:
    """Return the event that queues a sent message under its own id."""
    given = message.message
    kind = m.SteerQueued if message.steer else m.FollowUpQueued
    return kind(content=given.content, parts=given.parts, item_id=given.client_id or new_id("sent"))


def plain_title(message: m.StartRun) -> list[m.SessionEvent]:
    """Return the title of a session that no model names: how its first message begins."""
    line = " ".join(" ".join(each.content for each in message.messages).split())
    if not line:
        return []
    return [
        m.TitleChanged(
            title=line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1] + "…", generated=True
        )
    ]


def run_for(message: m.Send, given: m.UserInput) -> m.StartRun:
    """Return the run that answers ``given`` the way ``message`` asked."""
    return m.StartRun(source=message.source, agent=message.agent, messages=(given,), model=message.model)


def _require_room(depth: int, more: int, capacity: int, text: str) -> None:
    if more == 0:
        raise Invalid("at least one message is required")
    if depth + more > capacity:
        raise Overloaded(text, retry_after=1.0)


def toggle_yolo(state: SessionState) -> m.SafetyPolicyChanged:
    """Switch to autonomous, or back to the mode before."""
    if state.safety_policy == "autonomous":
        return m.SafetyPolicyChanged(safety_policy=state.prior_policy)
    return m.SafetyPolicyChanged(safety_policy="autonomous", prior=state.safety_policy)


def append_message(state: SessionState, message: m.AppendMessage, now: float) -> m.MessageAppended:
    """Give a message from outside its id and time."""
    given = msgspec.structs.replace(
        message.message, id=state.last_message_id + 1, at=message.message.at or now
    )
    return m.MessageAppended(agent=given.agent, message=given)


def replace_message(state: SessionState, message: m.ReplaceMessage) -> m.MessageReplaced:
    """Replace a stored message's body; its place, agent and time stay. Raises: NotFound."""
    old = state.find_message(message.message_id)
    if old is None:
        raise NotFound(f"message {message.message_id} not found")
    new = msgspec.structs.replace(
        message.message, id=old.id, agent=old.agent, at=old.at, session=old.session, cost=old.cost
    )
    return m.MessageReplaced(agent=old.agent, session=old.session, message=new)


def append_summary(message: m.AppendSummary) -> Summarised:
    """Store a summary made elsewhere. Raises: Invalid."""
    if not message.summary.strip():
        raise Invalid("summary is required")
    return Summarised(
        summary=message.summary,
        first_kept=message.first_kept,
        cost=message.cost,
        model=message.model,
        usage=message.usage,
    )


def decision(message: m.Decide) -> Decision | None:
    """Return what a confirmation word says about the pending call; ``None`` for a word that says nothing."""
    if message.confirmation in _YES:
        return Decision("approved")
    if message.confirmation == "reject":
        return Decision("rejected", message.reason.strip())
    return None


def decision_effects(
    state: SessionState, message: m.Decide, request: ApprovalRequested | None
) -> list[m.SessionEvent]:
    """Return the lasting effects of a confirmation: a safety mode, or a rule for the tool (contract 1.8)."""
    mode = _MODE_OF.get(message.confirmation)
    if mode is not None:
        prior = state.prior_policy if state.safety_policy == "autonomous" else state.safety_policy
        return [m.SafetyPolicyChanged(safety_policy=mode, prior=prior)]
    if message.confirmation != "approve-tool":
        return []
    pattern = message.tool_name or (request.call.name if request is not None else "")
    rules = state.permissions or m.PermissionRules()
    if not pattern or pattern in rules.allow:
        return []
    return [
        m.PermissionsChanged(permissions=m.PermissionRules((*rules.allow, pattern), rules.ask, rules.deny))
    ]


def kept_background(state: SessionState, done: KeepBackground, now: float) -> m.SubSessionCompleted:
    """Return the sub-session that a background agent's conversation becomes."""
    sub = m.SubSessionView(done.session, "", done.title, done.agent, now - done.seconds)
    scratch = SessionState("")
    for event in done.events:
        own = event if event.session else msgspec.structs.replace(event, session=done.session)
        scratch.evolve(Numbered(0, now, own))
    first = state.last_message_id
    return m.SubSessionCompleted(
        sub_session=done.session,
        messages=tuple(
            msgspec.structs.replace(message, id=first + number)
            for number, message in enumerate(scratch.messages, 1)
        ),
        subs=(sub,),
        safety_policy=state.safety_policy,
        background=True,
    )


def open_step(run: OpenRun) -> OpenStep:
    """Return the step in which a suspended run goes on."""
    known = {
        call_id: end for call_id, call in run.calls.items() if (end := known_result(run, call)) is not None
    }
    return OpenStep(
        step=run.step.step if run.step else 1,
        model=run.step.model if run.step else "",
        calls=tuple(call.call for call in run.calls.values()),
        known=known,
        announced=frozenset(call_id for call_id, call in run.calls.items() if call.returned is not None),
    )


def command_of(message: m.UserInput, team: Team, agent: str) -> tuple[Command, str] | None:
    """Return the command that a message calls as ``/name typed``, if it is one that belongs to an agent (1.7)."""
    if message.literal or not message.content.startswith("/"):
        return None
    name, _, typed = message.content[1:].partition(" ")
    command = team.agents[agent].commands.get(name)
    if command is None or command.agent not in team.agents:
        return None
    return command, typed


def pick(open_questions: Mapping[str, Question[T]], question_id: str) -> Question[T]:
    """Return the question meant: by id, or the only one open. Raises: Conflict."""
    if question_id:
        found = open_questions.get(question_id)
    else:
        found = next(iter(open_questions.values())) if len(open_questions) == 1 else None
    if found is None or not found.open:
        raise Conflict("no elicitation request in progress")
    return found


def shut_down(outcome: Outcome[None]) -> bool:
    """Whether a run was cancelled because its process ends, and by nobody."""
    return isinstance(outcome, Stopped) and outcome.reason == ACTOR_STOPS


def ending_of(outcome: Outcome[None]) -> tuple[ClosingReason, str]:
    """Return why a run is over that did not write its own end, and a line for people."""
    match outcome:
        case Stopped():
            return "canceled", outcome.reason
        case Failed():
            return "error", f"internal error (incident {outcome.incident})"
        case _:
            return "interrupted", "the run returned without an end"


def model_choices(state: SessionState, team: Team, infos: Sequence[ModelInfo]) -> m.ModelChoices:
    """List what the current agent may use: its own models, the custom ones, then the catalogue's.

    Args:
        state: The session.
        team: Its agents.
        infos: The catalogue's models with a usable key.
    """
    agent = state.agent or team.default
    spec = team.agents[agent]
    current = state.model_overrides.get(agent, "")
    known = {info.ref: info for info in infos}
    default = spec.models[0] if spec.models else ""
    listed = [*spec.models, *spec.fallbacks, *state.custom_models, *([current] if current else []), *known]
    refs: list[str] = list(dict.fromkeys(listed))
    own = {*spec.models, *spec.fallbacks}
    return m.ModelChoices(
        agent,
        current,
        tuple(
            msgspec.structs.replace(
                _choice(ref, known.get(ref)),
                is_default=ref == default,
                is_current=ref == (current or default),
                is_custom=ref not in known and ref not in own,
                is_catalog=ref in known and ref not in own,
            )
            for ref in refs
        ),
    )


def _choice(ref: str, info: ModelInfo | None) -> m.ModelChoice:
    provider, _, model = ref.partition("/")
    if info is None:
        return m.ModelChoice(name=model or ref, ref=ref, provider=provider if model else "", model=model)
    return m.ModelChoice(
        name=info.name or info.model,
        ref=ref,
        provider=info.provider,
        model=info.model,
        family=info.family,
        input_cost=info.input_cost,
        output_cost=info.output_cost,
        cache_read_cost=info.cache_read_cost,
        cache_write_cost=info.cache_write_cost,
        context_limit=info.context_limit,
        output_limit=info.output_limit,
        input_modalities=info.input_modalities,
        output_modalities=info.output_modalities,
    )


def autopilot_of(message: m.Send | None) -> Autopilot | None:
    """Return the run's autopilot, if it has one."""
    if message is None or message.max_continues < 0:
        return None
    return Autopilot(max_continues=message.max_continues)
