"""The events of a run: one agent answering, step by step.

A *run* is everything one request to an agent causes; a *step* is one model call with the tool calls it asked for
(agent-loop contract 1: the loop's "turn"). These are the neutral events; the wire dialects in ``gateway`` render
each of them. ``session`` names the sub-session an event belongs to and is empty for the stream's own session.

Events are for ever: add fields with defaults, never rename or reuse a tag.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from actors.models.provider import FinishReason, Part, ToolCall, Usage
from actors.tools.tool import Definition, Media

JSON = Any

RunReason = Literal[
    "normal",
    "error",
    "canceled",
    "hook_blocked",
    "loop_detected",
    "budget_exceeded",
    "max_iterations",
    "interrupted",
    "terminal_tool",
]
Delivery = Literal["idle", "queued", "steering"]


class Event(Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="type"):
    """Base of all events of a session's stream."""

    agent: str = ""
    session: str = ""


class TeamAgent(Struct, frozen=True, omit_defaults=True):
    """An agent of the team, for listings."""

    name: str
    description: str = ""
    provider: str = ""
    model: str = ""
    thinking: str = ""
    commands: Mapping[str, JSON] | None = None


class TeamAnnounced(Event, frozen=True, tag="team_announced"):
    """Start of a run, or the current agent changed."""

    agents: tuple[TeamAgent, ...] = ()
    current: str = ""


class ToolsAnnounced(Event, frozen=True, tag="tools_announced"):
    """How many tools the agent has; ``loading`` while toolsets are still starting."""

    available: int = 0
    loading: bool = False


class ToolLoadingStarted(Event, frozen=True, tag="tool_loading_started"):
    """Toolsets begin to start."""


class ToolLoadingFinished(Event, frozen=True, tag="tool_loading_finished"):
    """Every toolset has started or failed."""


class UserMessageAdded(Event, frozen=True, tag="user_message_added"):
    """A user message entered the history. ``implicit`` ones are hidden from people; ``autopilot``: a nudge."""

    message_id: int = 0
    content: str = ""
    parts: tuple[Part, ...] = ()
    position: int = -1
    implicit: bool = False
    delivery: Delivery = "idle"
    client_id: str = ""
    role: Literal["user", "system"] = "user"
    autopilot: bool = False


class RunStarted(Event, frozen=True, tag="run_started"):
    """A run began; exactly one ``RunEnded`` of the same ``session`` follows, also after a crash.

    ``owner`` names the process that runs it, for others on the same journal.
    """

    run_id: str = ""
    owner: str = ""


class RunResumed(Event, frozen=True, tag="run_resumed"):
    """A run that waited for an approval when its process ended goes on in the process ``owner``."""

    run_id: str = ""
    owner: str = ""


class RunEnded(Event, frozen=True, tag="run_ended"):
    """The run is over."""

    run_id: str = ""
    reason: RunReason = "normal"
    detail: str = ""


class StepStarted(Event, frozen=True, tag="step_started"):
    """A model call is about to be made. ``StepEnded`` follows after its tool calls (loop rule L2)."""

    step: int = 0
    model: str = ""
    description: str = ""
    welcome: str = ""
    context_limit: int = 0


class StepEnded(Event, frozen=True, tag="step_ended"):
    """The step's model call and all its tool calls are done, failed or cancelled."""

    step: int = 0
    model: str = ""


class TextDelta(Event, frozen=True, tag="text_delta"):
    """More answer text. Transient: written in batches, see ``session.codec``."""

    text: str = ""


class ReasoningDelta(Event, frozen=True, tag="reasoning_delta"):
    """More reasoning text. Transient."""

    text: str = ""


class ToolCallDelta(Event, frozen=True, tag="tool_call_delta"):
    """A piece of a tool call while the model writes it; ``definition`` only on a call's first piece. Transient."""

    call: ToolCall = ToolCall("", "")
    definition: Definition | None = None


class AssistantMessageAdded(Event, frozen=True, tag="assistant_message_added"):
    """The model's answer entered the history, whole or, with ``interrupted``, as far as it came."""

    message_id: int = 0
    content: str = ""
    reasoning: str = ""
    reasoning_signature: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    definitions: tuple[Definition, ...] = ()
    finish: FinishReason = "stop"
    usage: Usage = Usage()
    model: str = ""
    cost: float = 0.0
    interrupted: bool = False


class UsageReported(Event, frozen=True, tag="usage_reported"):
    """Token counts after a model call or a compaction. ``cost`` is the session's total so far in USD."""

    context_tokens: int = 0
    output_tokens: int = 0
    context_limit: int = 0
    cost: float = 0.0
    last: Usage | None = None
    last_cost: float = 0.0
    model: str = ""
    finish: FinishReason | None = None
    compaction_threshold: float = 0.0


class ToolStarted(Event, frozen=True, tag="tool_started"):
    """A tool really starts: after approval, before its first effect. Committed before the tool runs."""

    call: ToolCall = ToolCall("", "")
    definition: Definition = Definition("")


class ToolOutput(Event, frozen=True, tag="tool_output"):
    """Live output of a running tool. Transient."""

    call_id: str = ""
    definition: Definition = Definition("")
    text: str = ""


class ToolReturned(Event, frozen=True, tag="tool_returned"):
    """End of every call, also refused, unknown and cancelled ones. ``outcome`` tells these apart."""

    call_id: str = ""
    definition: Definition = Definition("")
    output: str = ""
    is_error: bool = False
    outcome: Literal[
        "done", "failed", "rejected", "denied", "unknown", "cancelled", "interrupted", "expired"
    ] = "done"
    media: tuple[Media, ...] = ()
    structured: JSON = None
    meta: Mapping[str, JSON] = field(default_factory=dict[str, JSON])


class ToolMessageAdded(Event, frozen=True, tag="tool_message_added"):
    """The call's result entered the history. One for every tool call of every assistant message, always."""

    message_id: int = 0
    call_id: str = ""
    content: str = ""
    is_error: bool = False
    media: tuple[Media, ...] = ()


class Warned(Event, frozen=True, tag="warned"):
    """Something a person should know that does not end the run."""

    message: str = ""


class Failed(Event, frozen=True, tag="failed"):
    """The run failed; ``RunEnded`` with reason ``error`` follows."""

    error: str = ""
    error_code: str = ""
    status: int = 0


class ModelFellBack(Event, frozen=True, tag="model_fell_back"):
    """A model call is retried or goes to another model."""

    failed_model: str = ""
    fallback_model: str = ""
    reason: str = ""
    attempt: int = 1
    max_attempts: int = 1


class IterationLimitReached(Event, frozen=True, tag="iteration_limit_reached"):
    """The run made ``limit`` model calls; a decision like an approval's is awaited."""

    limit: int = 0


class ApprovalRequested(Event, frozen=True, tag="approval_requested"):
    """A tool call waits for a person. Committed before anybody can answer it."""

    approval_id: str = ""
    call: ToolCall = ToolCall("", "")
    definition: Definition = Definition("")
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])


class ApprovalDecided(Event, frozen=True, tag="approval_decided"):
    """The one decision on an approval (D07-08: the five outcomes stay distinguishable)."""

    approval_id: str = ""
    call_id: str = ""
    verdict: Literal["approved", "rejected", "expired", "cancelled", "shutdown", "deleted"] = "approved"
    reason: str = ""
    by: str = ""


class ElicitationRequested(Event, frozen=True, tag="elicitation_requested"):
    """A tool asks the person something."""

    elicitation_id: str = ""
    message: str = ""
    mode: Literal["form", "url"] = "form"
    title: str = ""
    schema: Mapping[str, JSON] | None = None
    url: str = ""
    meta: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    server_id: str = ""
    call_id: str = ""


class ElicitationAnswered(Event, frozen=True, tag="elicitation_answered"):
    """The person answered, or the question was withdrawn (action ``cancel``)."""

    elicitation_id: str = ""
    action: str = "cancel"


class AgentSwitched(Event, frozen=True, tag="agent_switched"):
    """Delegation begins (``switching``) or ends."""

    switching: bool = False
    from_agent: str = ""
    to_agent: str = ""


class AgentHandedOff(Event, frozen=True, tag="agent_handed_off"):
    """The session's current agent changed for good (handoff tool, agent command)."""

    to_agent: str = ""


class CompactionStarted(Event, frozen=True, tag="compaction_started"):
    """The history is about to be summarised."""

    trigger: str = "threshold"


class Summarised(Event, frozen=True, tag="summarised"):
    """A summary stands for everything before history item ``first_kept`` in later prompts."""

    summary: str = ""
    first_kept: int = 0
    cost: float = 0.0
    model: str = ""
    usage: Usage = Usage()


class CompactionEnded(Event, frozen=True, tag="compaction_ended"):
    """``outcome`` says whether the history is shorter now; on failure it is unchanged."""

    outcome: Literal["applied", "skipped", "failed"] = "applied"
    error: str = ""


class HookStarted(Event, frozen=True, tag="hook_started"):
    """A hook begins."""

    hook_event: str = ""
    hook_id: str = ""


class HookFinished(Event, frozen=True, tag="hook_finished"):
    """A hook ended."""

    hook_event: str = ""
    hook_id: str = ""
    duration_ms: int = 0
    allowed: bool = True
    error: str = ""
    message: str = ""


class HookBlocked(Event, frozen=True, tag="hook_blocked"):
    """A pre-tool hook refused a call."""

    call: ToolCall = ToolCall("", "")
    definition: Definition = Definition("")
    message: str = ""


class BudgetReported(Event, frozen=True, tag="budget_reported"):
    """Budget use, in the wire's shape (sessions contract 2.2)."""

    budgets: tuple[Mapping[str, JSON], ...] = ()


class BudgetExceeded(Event, frozen=True, tag="budget_exceeded"):
    """A budget's limit was reached; the run stops."""

    budget: str = ""
    limit: str = ""
    used: float = 0.0
    max: float = 0.0
    config_path: str = ""
    message: str = ""


class TaskCompleted(Event, frozen=True, tag="task_completed"):
    """The model declared its whole task done (``task_complete`` tool)."""

    summary: str = ""
    success: bool = True


RunEvent = (
    TeamAnnounced
    | ToolsAnnounced
    | ToolLoadingStarted
    | ToolLoadingFinished
    | UserMessageAdded
    | RunStarted
    | RunResumed
    | RunEnded
    | StepStarted
    | StepEnded
    | TextDelta
    | ReasoningDelta
    | ToolCallDelta
    | AssistantMessageAdded
    | UsageReported
    | ToolStarted
    | ToolOutput
    | ToolReturned
    | ToolMessageAdded
    | Warned
    | Failed
    | ModelFellBack
    | IterationLimitReached
    | ApprovalRequested
    | ApprovalDecided
    | ElicitationRequested
    | ElicitationAnswered
    | AgentSwitched
    | AgentHandedOff
    | CompactionStarted
    | Summarised
    | CompactionEnded
    | HookStarted
    | HookFinished
    | HookBlocked
    | BudgetReported
    | BudgetExceeded
    | TaskCompleted
)
"""Every event a run can emit; ``assert_never`` closes matches over it."""
