"""What is unfinished in a stream's runs, and the events that finish it when the loop itself cannot.

After a cancellation, a crash of the process or a bug, the owner folds the stream's events into :class:`OpenRuns` and
records :func:`closing_events`: each run that began gets its end, each tool call its result, each question its answer,
and text that was already said enters the history. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec
from msgspec import Struct, field

from actors.agent import messages as ev
from actors.agent.messages import Event, RunEvent
from actors.models.provider import ToolCall
from actors.tools.tool import Definition

ClosingReason = Literal["canceled", "interrupted", "error"]
CANCELED = "The tool call was canceled by the user."
NOT_STARTED = "The tool call was not run: the run was interrupted before it began."
OUTCOME_UNKNOWN = "The tool call was interrupted; whether it took effect is not known."


class OpenCall(Struct):
    """A tool call whose result is not in the history yet."""

    call: ToolCall
    definition: Definition
    started: bool = False
    returned: ev.ToolReturned | None = None


class OpenRun(Struct):
    """One run that has begun and not ended, of the session itself or of a sub-session."""

    session: str
    run_id: str
    agent: str
    step: ev.StepStarted | None = None
    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: dict[str, OpenCall] = field(default_factory=dict[str, OpenCall])
    approvals: dict[str, ev.ApprovalRequested] = field(default_factory=dict[str, ev.ApprovalRequested])
    elicitations: dict[str, ev.ElicitationRequested] = field(
        default_factory=dict[str, ev.ElicitationRequested]
    )
    switches: list[ev.AgentSwitched] = field(default_factory=list[ev.AgentSwitched])
    loading: bool = False
    compacting: bool = False


class OpenRuns:
    """The runs going on in one stream, oldest first; a delegated run comes after the one that waits for it."""

    def __init__(self) -> None:
        self._runs: dict[str, OpenRun] = {}

    def __iter__(self) -> Iterator[OpenRun]:
        return iter(self._runs.values())

    def __len__(self) -> int:
        return len(self._runs)

    def get(self, session: str = "") -> OpenRun | None:
        """Return the open run of the session itself (empty name) or of a sub-session."""
        return self._runs.get(session)

    def evolve(self, event: Event) -> None:
        """Fold one event in; events outside a run are ignored."""
        if isinstance(event, ev.RunStarted):
            self._runs[event.session] = OpenRun(event.session, event.run_id, event.agent)
            return
        run = self._runs.get(event.session)
        if run is None:
            return
        if isinstance(event, ev.TextDelta):
            run.text.append(event.text)
        elif isinstance(event, ev.RunEnded):
            del self._runs[event.session]
        else:
            _fold(run, event)


def _fold(run: OpenRun, event: Event) -> None:
    match event:
        case ev.ReasoningDelta():
            run.reasoning.append(event.text)
        case ev.ModelFellBack():
            run.text.clear()
            run.reasoning.clear()
        case ev.StepStarted():
            run.step, run.agent = event, event.agent or run.agent
        case ev.StepEnded():
            run.step = None
        case ev.AssistantMessageAdded():
            run.text.clear()
            run.reasoning.clear()
            definitions = {definition.name: definition for definition in event.definitions}
            run.calls = {
                call.id: OpenCall(call, definitions.get(call.name, Definition(call.name)))
                for call in event.tool_calls
            }
        case ev.ToolStarted():
            if (call := run.calls.get(event.call.id)) is not None:
                call.started = True
        case ev.ToolReturned():
            if (call := run.calls.get(event.call_id)) is not None:
                call.returned = event
        case ev.ToolMessageAdded():
            run.calls.pop(event.call_id, None)
        case ev.ApprovalRequested():
            run.approvals[event.approval_id] = event
        case ev.ApprovalDecided():
            run.approvals.pop(event.approval_id, None)
        case ev.ElicitationRequested():
            run.elicitations[event.elicitation_id] = event
        case ev.ElicitationAnswered():
            run.elicitations.pop(event.elicitation_id, None)
        case ev.AgentSwitched():
            if event.switching:
                run.switches.append(event)
            else:
                run.switches = [switch for switch in run.switches if switch.to_agent != event.from_agent]
        case ev.ToolLoadingStarted():
            run.loading = True
        case ev.ToolLoadingFinished():
            run.loading = False
        case ev.CompactionStarted():
            run.compacting = True
        case ev.CompactionEnded():
            run.compacting = False
        case _:
            pass


def closing_events(
    runs: OpenRuns,
    *,
    reason: ClosingReason,
    detail: str = "",
    verdict: Literal["cancelled", "shutdown", "deleted"] = "cancelled",
    new_message_id: Callable[[], int],
) -> list[RunEvent]:
    """Return the events that end every open run, delegated ones first; empty when none is open.

    Args:
        runs: The fold of the stream's events so far.
        reason: ``canceled`` by a person, ``interrupted`` by the end of the process, ``error`` for a bug.
        detail: One line for people; becomes the error text when ``reason`` is ``error``.
        verdict: How open approvals are recorded as decided.
        new_message_id: Gives ids for the messages added.
    """
    closing: list[RunEvent] = []
    for run in reversed(list(runs)):
        closing += _close(run, reason, detail, verdict, new_message_id)
    return closing


def suspended_step(runs: OpenRuns) -> OpenRun | None:
    """Return the session's own run if it waits for an approval, so that it can go on after its process has ended."""
    run = runs.get()
    return run if run is not None and run.approvals and run.calls else None


def suspending_events(runs: OpenRuns, *, new_message_id: Callable[[], int]) -> list[RunEvent]:
    """Return what ends everything that a suspended run cannot take up again: delegated runs and open questions."""
    detail = "the process that ran it ended"
    events: list[RunEvent] = []
    for run in reversed(list(runs)):
        if run.session:
            events += _close(run, "interrupted", detail, "shutdown", new_message_id)
            continue
        events += _cancelled_questions(run)
        events += _ended_switches(run)
    return events


def _cancelled_questions(run: OpenRun) -> Iterator[RunEvent]:
    for question in run.elicitations.values():
        yield ev.ElicitationAnswered(
            agent=question.agent, session=run.session, elicitation_id=question.elicitation_id, action="cancel"
        )


def _ended_switches(run: OpenRun) -> Iterator[RunEvent]:
    for switch in reversed(run.switches):
        yield msgspec.structs.replace(
            switch, switching=False, from_agent=switch.to_agent, to_agent=switch.from_agent
        )


def known_result(run: OpenRun, open_call: OpenCall) -> ev.ToolReturned | None:
    """Return the end of a call that began before its process ended: its own, or that it is not known (L11)."""
    if open_call.returned is not None or not open_call.started:
        return open_call.returned
    return _interrupted(run, open_call, "interrupted")


def _close(
    run: OpenRun,
    reason: ClosingReason,
    detail: str,
    verdict: Literal["cancelled", "shutdown", "deleted"],
    new_message_id: Callable[[], int],
) -> Iterator[RunEvent]:
    agent, session = run.agent, run.session
    text, reasoning = "".join(run.text), "".join(run.reasoning)
    if run.loading:
        yield ev.ToolLoadingFinished(agent=agent, session=session)
    if run.compacting:
        yield ev.CompactionEnded(agent=agent, session=session, outcome="failed", error=reason)
    if text or reasoning:
        yield ev.AssistantMessageAdded(
            agent=agent,
            session=session,
            message_id=new_message_id(),
            content=text,
            reasoning=reasoning,
            finish="error",
            model=run.step.model if run.step else "",
            interrupted=True,
        )
    for request in run.approvals.values():
        yield ev.ApprovalDecided(
            agent=request.agent,
            session=session,
            approval_id=request.approval_id,
            call_id=request.call.id,
            verdict=verdict,
            reason=detail,
        )
    yield from _cancelled_questions(run)
    yield from _ended_switches(run)
    for call in run.calls.values():
        yield from _close_call(run, call, reason, new_message_id)
    if run.step is not None:
        yield ev.StepEnded(agent=agent, session=session, step=run.step.step, model=run.step.model)
    if reason == "error":
        yield ev.Failed(agent=agent, session=session, error=detail or "internal error", error_code="internal")
    yield ev.RunEnded(agent=agent, session=session, run_id=run.run_id, reason=reason, detail=detail)


def _close_call(
    run: OpenRun, open_call: OpenCall, reason: ClosingReason, new_message_id: Callable[[], int]
) -> Iterator[RunEvent]:
    returned = open_call.returned
    if returned is None:
        returned = _interrupted(run, open_call, reason)
        yield returned
    yield tool_message(returned, new_message_id())


def _interrupted(run: OpenRun, open_call: OpenCall, reason: ClosingReason) -> ev.ToolReturned:
    return ev.ToolReturned(
        agent=run.agent,
        session=run.session,
        call_id=open_call.call.id,
        definition=open_call.definition,
        output=_closing_text(open_call, reason),
        is_error=True,
        outcome="cancelled" if reason == "canceled" else "interrupted",
    )


def tool_message(returned: ev.ToolReturned, message_id: int) -> ev.ToolMessageAdded:
    """Return the history's form of a call's end."""
    return ev.ToolMessageAdded(
        agent=returned.agent,
        session=returned.session,
        message_id=message_id,
        call_id=returned.call_id,
        content=returned.output or "(no output)",
        is_error=returned.is_error,
        media=returned.media,
    )


def _closing_text(open_call: OpenCall, reason: ClosingReason) -> str:
    if reason == "canceled":
        return CANCELED
    return OUTCOME_UNKNOWN if open_call.started else NOT_STARTED
