"""The session room's words: commands a session actor accepts, the events of its stream, and its replies.

The gateway may import this module and nothing else of the room. A session's stream is ``session/<id>``; its events
are :data:`SessionEvent`. Commands that must overtake a full mailbox are :class:`~actors.kernel.Control`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from actors.agent.messages import Delivery, Event, RunEvent
from actors.kernel.message import Control, Request
from actors.models.provider import Part, ToolCall, Usage
from actors.tools.tool import Definition, Media

JSON = Any
SafetyPolicy = Literal["", "strict", "balanced", "autonomous"]
STEER_CAPACITY = 5
FOLLOW_UP_CAPACITY = 20
SEND_CAPACITY = 1000


class PermissionRules(Struct, frozen=True, omit_defaults=True):
    """Patterns of the session tier (sessions contract 6.4)."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Template(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a session is created with (sessions contract 1.4). Paths are resolved and checked before it is built."""

    title: str = ""
    working_dir: str = ""
    safety_policy: SafetyPolicy = ""
    permissions: PermissionRules | None = None
    max_iterations: int = 0
    max_consecutive_tool_calls: int = 0
    max_old_tool_call_tokens: int = 0
    max_tool_result_tokens: int = 0
    agent_model_overrides: Mapping[str, str] = field(default_factory=dict[str, str])
    custom_models_used: tuple[str, ...] = ()
    attributes: Mapping[str, JSON] = field(default_factory=dict[str, JSON])


class HistoryMessage(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One stored message, flat. ``id`` is what ``PATCH .../messages/:msg_id`` takes: unique within its session."""

    id: int
    role: Literal["system", "user", "assistant", "tool"]
    agent: str = ""
    content: str = ""
    parts: tuple[Part, ...] = ()
    reasoning: str = ""
    reasoning_signature: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    definitions: tuple[Definition, ...] = ()
    tool_call_id: str = ""
    is_error: bool = False
    media: tuple[Media, ...] = ()
    implicit: bool = False
    interrupted: bool = False
    usage: Usage | None = None
    model: str = ""
    cost: float = 0.0
    finish: str = ""
    at: float = 0.0
    session: str = ""


class SubSessionView(Struct, frozen=True):
    """A delegated conversation inside a session; its messages carry its id."""

    id: str
    parent: str
    title: str
    agent: str
    created_at: float


# --- events that are not part of a run --------------------------------------------------------------------------


class SessionCreated(Event, frozen=True, tag="session_created"):
    """The stream's first event."""

    template: Template = Template()
    forked_from: str = ""
    history: tuple[HistoryMessage, ...] = ()
    subs: tuple[SubSessionView, ...] = ()


class TitleChanged(Event, frozen=True, tag="title_changed"):
    """``generated`` titles never replace one a person gave."""

    title: str = ""
    generated: bool = False


class PermissionsChanged(Event, frozen=True, tag="permissions_changed"):
    """The session's own rules were replaced."""

    permissions: PermissionRules | None = None


class SafetyPolicyChanged(Event, frozen=True, tag="safety_policy_changed"):
    """The safety mode changed; ``prior`` is what toggling YOLO off goes back to.

    ``by_author``: it is the agent author's default, which a client's own choice always replaces.
    """

    safety_policy: SafetyPolicy = ""
    prior: SafetyPolicy = ""
    by_author: bool = False


class ModelOverridden(Event, frozen=True, tag="model_overridden"):
    """``model`` is used for ``agent`` from now on; empty: back to the configured one."""

    model: str = ""
    custom: bool = False


class MessageAppended(Event, frozen=True, tag="message_appended"):
    """A message was put into the history from outside, without a run."""

    message: HistoryMessage = HistoryMessage(id=0, role="user")


class MessageReplaced(Event, frozen=True, tag="message_replaced"):
    """A stored message's body was replaced."""

    message: HistoryMessage = HistoryMessage(id=0, role="user")


class AgentBound(Event, frozen=True, tag="agent_bound"):
    """The first run bound the session to an agent source and its starting agent (fact 7 of the contract)."""

    source: str = ""


class FollowUpQueued(Event, frozen=True, tag="followup_queued"):
    """A follow-up waits for its own turn."""

    content: str = ""
    parts: tuple[Part, ...] = ()
    item_id: str = ""
    idempotency_key: str = ""


class SteerQueued(Event, frozen=True, tag="steer_queued"):
    """A steering message waits for the next model call."""

    content: str = ""
    parts: tuple[Part, ...] = ()
    item_id: str = ""


class QueueCleared(Event, frozen=True, tag="queue_cleared"):
    """Every waiting follow-up and steering message was dropped."""


class Noted(Event, frozen=True, tag="noted"):
    """A client's program or its door put a fact of their own on record; ``kind`` says what, ``data`` holds it."""

    kind: str = ""
    data: Mapping[str, JSON] = field(default_factory=dict[str, JSON])


class Starred(Event, frozen=True, tag="starred"):
    """The star was set or cleared."""

    starred: bool = False


class TokensSet(Event, frozen=True, tag="tokens_set"):
    """A remote client reported the counters."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None


class SubSessionStarted(Event, frozen=True, tag="sub_session_started"):
    """A delegated session began; ``agent`` works in it and ``session`` is its parent."""

    sub_session: str = ""
    title: str = ""
    interactive: bool = True


class SubSessionCompleted(Event, frozen=True, tag="sub_session_completed"):
    """A delegated session finished; its history is part of the parent's.

    The event has that history, too, with that of the sub-sessions below: a follower who comes late gets it whole.
    ``background``: nothing of it was on this stream before.
    """

    sub_session: str = ""
    messages: tuple[HistoryMessage, ...] = ()
    subs: tuple[SubSessionView, ...] = ()
    safety_policy: SafetyPolicy = ""
    background: bool = False


class PlanChanged(Event, frozen=True, tag="plan_changed"):
    """A shared plan changed somewhere in this process; identity and version only."""

    name: str = ""
    action: Literal["write", "status", "delete"] = "write"
    version: int = 0


class SessionDeleted(Event, frozen=True, tag="session_deleted"):
    """The stream's last event."""

    reason: str = "session ended"


SessionEvent = (
    RunEvent
    | SessionCreated
    | TitleChanged
    | PermissionsChanged
    | SafetyPolicyChanged
    | ModelOverridden
    | MessageAppended
    | MessageReplaced
    | AgentBound
    | FollowUpQueued
    | SteerQueued
    | QueueCleared
    | Noted
    | Starred
    | TokensSet
    | SubSessionStarted
    | SubSessionCompleted
    | PlanChanged
    | SessionDeleted
)
"""Every event of a session's stream."""


# --- commands ---------------------------------------------------------------------------------------------------


class UserInput(Struct, frozen=True, omit_defaults=True):
    """One message a client sends. ``literal``: it is no command, even if it begins like one."""

    content: str = ""
    parts: tuple[Part, ...] = ()
    client_id: str = ""
    literal: bool = False


class Accepted(Struct, frozen=True):
    """The command's events are committed up to ``seq``."""

    seq: int


class RunAccepted(Struct, frozen=True):
    """A run began; its events have ``seq > after``, and it ends with the ``RunEnded`` of ``run_id``."""

    run_id: str
    after: int


class QueueAccepted(Struct, frozen=True):
    """``streaming``: a run was going on; ``duplicate``: the idempotency key was known and nothing was queued."""

    streaming: bool
    duplicate: bool = False


class SessionView(Struct, frozen=True, kw_only=True):
    """A session as of ``seq``: metadata and the flat history."""

    id: str
    template: Template
    title: str
    created_at: float
    safety_policy: SafetyPolicy
    permissions: PermissionRules | None
    messages: tuple[HistoryMessage, ...]
    input_tokens: int
    output_tokens: int
    cost: float
    starred: bool
    streaming: bool
    bound: bool
    agent: str
    seq: int
    run_id: str = ""
    model_overrides: Mapping[str, str] = field(default_factory=dict[str, str])
    custom_models: tuple[str, ...] = ()
    steer_depth: int = 0
    followup_depth: int = 0
    subs: tuple[SubSessionView, ...] = ()


class ModelChoice(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One model a session may switch to, as clients list it (sessions contract 1.10)."""

    name: str
    ref: str
    provider: str = ""
    model: str = ""
    is_default: bool = False
    is_current: bool = False
    is_custom: bool = False
    is_catalog: bool = False
    family: str = ""
    input_cost: float = 0.0
    output_cost: float = 0.0
    cache_read_cost: float = 0.0
    cache_write_cost: float = 0.0
    context_limit: int = 0
    output_limit: int = 0
    input_modalities: tuple[str, ...] = ()
    output_modalities: tuple[str, ...] = ()


class ModelChoices(Struct, frozen=True):
    """The current agent, its override (empty: none), and what could be chosen."""

    agent: str
    current: str
    models: tuple[ModelChoice, ...]


class GetModels(Request[ModelChoices], Control, frozen=True):
    """List the models for the current agent. NotFound when the session has not run in this process."""


class GetView(Request[SessionView], Control, frozen=True):
    """Answer the session as it is now, also while a run streams."""


class StartRun(Request[RunAccepted], frozen=True, kw_only=True):
    """Start a run (sessions contract 1.7). Conflict while one is going on; nothing is stored then."""

    source: str
    agent: str = ""
    messages: tuple[UserInput, ...] = ()
    model: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class SendAccepted(Struct, frozen=True):
    """What became of a message: it began a run, waits for its own turn, or waits for the next model call."""

    delivery: Delivery


class Send(Request[SendAccepted], frozen=True, kw_only=True):
    """Say something whatever the session is doing: start a run when it is idle, queue it when it is not.

    Unlike :class:`StartRun`, ``FollowUp`` and ``Steer`` it never loses a race with a run's end. The message's
    ``client_id`` names it in the queue and in the history. ``max_continues`` at or above 0 makes a run on autopilot.
    Overloaded when the queue is full.
    """

    source: str
    agent: str = ""
    message: UserInput
    steer: bool = False
    model: str = ""
    max_continues: int = -1


class Note(Request[Accepted], Control, frozen=True, kw_only=True):
    """Record :class:`Noted`."""

    kind: str
    data: Mapping[str, JSON] = field(default_factory=dict[str, JSON])


class ClearQueue(Request[Accepted], Control, frozen=True):
    """Drop every waiting follow-up and steering message."""


class CancelRun(Request[Accepted], Control, frozen=True, kw_only=True):
    """Cancel the run going on (only ``run_id`` when given); accepted when idle, too."""

    run_id: str = ""
    reason: str = "cancelled"


class Steer(Request[QueueAccepted], Control, frozen=True, kw_only=True):
    """Queue messages for the next model call. Overloaded when the queue (5) is full; all or nothing."""

    messages: tuple[UserInput, ...]


class FollowUp(Request[QueueAccepted], Control, frozen=True, kw_only=True):
    """Queue messages, each for a turn of its own. Overloaded when the queue (20) is full; all or nothing."""

    messages: tuple[UserInput, ...]
    idempotency_key: str = ""


class Decide(Request[Accepted], Control, frozen=True, kw_only=True):
    """Answer the pending approval or iteration limit (sessions contract 1.8)."""

    confirmation: str
    reason: str = ""
    tool_name: str = ""
    approval_id: str = ""


class Answer(Request[Accepted], Control, frozen=True, kw_only=True):
    """Answer a pending elicitation; without an id, the only one pending."""

    action: str
    content: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    elicitation_id: str = ""


class SetTitle(Request[Accepted], Control, frozen=True, kw_only=True):
    """Rename; an empty title lets the next run generate one."""

    title: str


class SetPermissions(Request[Accepted], Control, frozen=True, kw_only=True):
    """Replace the session's rules, live."""

    permissions: PermissionRules | None


class SetSafetyPolicy(Request[Accepted], Control, frozen=True, kw_only=True):
    """Set the safety mode, live."""

    safety_policy: SafetyPolicy


class ToggleYolo(Request[Accepted], Control, frozen=True):
    """Switch between autonomous and the mode before it, live."""


class SetStarred(Request[Accepted], Control, frozen=True, kw_only=True):
    """Set or clear the star."""

    starred: bool


class SetTokens(Request[Accepted], Control, frozen=True, kw_only=True):
    """Store counters a remote client reports."""

    input_tokens: int
    output_tokens: int
    cost: float | None = None


class AppendMessage(Request[Accepted], frozen=True, kw_only=True):
    """Add a message without a run. Conflict while one is going on."""

    message: HistoryMessage


class ReplaceMessage(Request[Accepted], frozen=True, kw_only=True):
    """Replace a stored message's body. Conflict while a run is going on, NotFound for an unknown id."""

    message_id: int
    message: HistoryMessage


class AppendSummary(Request[Accepted], frozen=True, kw_only=True):
    """Store a summary made elsewhere; later prompts start from it."""

    summary: str
    first_kept: int = 0
    cost: float = 0.0
    model: str = ""
    usage: Usage = Usage()


class DeleteSession(Request[Accepted], Control, frozen=True, kw_only=True):
    """Cancel what runs, write the last event and purge the stream."""

    reason: str = "session ended"
