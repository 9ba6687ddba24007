"""The room's values and events: what is stored, and what the gateway renders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from actors.kernel.message import Control, Request
from actors.tools.http_api.call import AuthType, Method, ResponseMode, State

JSON = Any
DocumentKind = Literal["tool", "flow", "attachment", "flow_run"]


class StoredTool(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as it is kept. Times are milliseconds; ``sealed`` is the encrypted secret, empty for none."""

    id: str
    name: str
    url: str
    method: Method
    input_schema: Mapping[str, JSON]
    created_at: int
    updated_at: int
    description: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    auth_type: AuthType = ""
    sealed: str = ""
    timeout_seconds: int = 30
    response_mode: ResponseMode = "wait"
    speak_during_execution: Mapping[str, JSON] | None = None
    allow_interruption_during_execution: bool = False


class Attachment(Struct, frozen=True, kw_only=True):
    """The tools given to an agent of a source (``agent/<source>/<name>``) or to a session (``session/<id>``)."""

    owner: str
    tool_ids: tuple[str, ...] = ()


class StoredFlow(Struct, frozen=True, kw_only=True):
    """A flow as it is kept; ``graph`` has ``nodes`` and ``edges`` and was valid when it was saved."""

    id: str
    name: str
    graph: Mapping[str, JSON]
    revision: int
    created_at: int
    updated_at: int


class RecordedRequest(Struct, frozen=True, omit_defaults=True):
    """What was sent, with secrets hidden; the body up to 16 KiB."""

    method: str = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: str | None = None


class RecordedResponse(Struct, frozen=True, omit_defaults=True):
    """What came back, with secrets hidden; the body up to 16 KiB."""

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: str | None = None
    truncated: bool = False


class CallRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call of a tool. Times are milliseconds; ``finished_at`` is 0 while it is pending."""

    id: str
    session_id: str
    tool_id: str
    tool_name: str
    state: State
    started_at: int
    tool_call_id: str = ""
    node_id: str = ""
    response_mode: ResponseMode = "wait"
    request: RecordedRequest | None = None
    response: RecordedResponse | None = None
    error_kind: str = ""
    error_message: str = ""
    finished_at: int = 0
    duration_ms: int = 0
    delivered_to_model: bool = False
    owner: str = ""


class DocumentSaved(Struct, frozen=True, tag="api_document_saved"):
    """A tool, flow, attachment or flow run has this content from now on; ``data`` is its JSON."""

    kind: DocumentKind
    id: str
    name: str
    created_at: int
    data: str


class CallsRecorded(Struct, frozen=True, tag="api_calls_recorded"):
    """Calls began or ended; the last record of an id counts."""

    calls: tuple[CallRecord, ...]


class Page(Struct, frozen=True):
    """A part of a listing; ``next_cursor`` is empty at the end."""

    items: tuple[JSON, ...]
    total: int
    next_cursor: str = ""


class Performed(Struct, frozen=True, kw_only=True):
    """A call as its caller sees it: what the model reads, and the record."""

    text: str
    is_error: bool
    record: CallRecord
    body: JSON = None


# --- runs of flows ----------------------------------------------------------------------------------------------

FlowState = Literal["running", "waiting", "ended", "failed", "cancelled"]


class FlowRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A flow being walked through in a session. Times are milliseconds.

    Attributes:
        graph: The flow as it was when the run began; later edits do not reach it.
        node: Where it is.
        trail: The nodes it came through, the last 200.
        reply: What the agent said last.
        error: Why it failed.
        owner: The process that walks.
    """

    id: str
    flow_id: str
    graph: Mapping[str, JSON]
    session_id: str
    source: str
    state: FlowState
    node: str
    created_at: int
    agent: str = ""
    variables: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    trail: tuple[str, ...] = ()
    reply: str = ""
    error: str = ""
    owner: str = ""


class StartFlow(Request[FlowRun], frozen=True, kw_only=True):
    """Begin a run. Conflict when the address has one."""

    run: FlowRun


class SayToFlow(Request[FlowRun], frozen=True, kw_only=True):
    """Say something to a run that waits. Conflict in any other state."""

    content: str


class GetFlowRun(Request[FlowRun], Control, frozen=True):
    """Answer the run as it was last saved."""


class CancelFlow(Request[FlowRun], Control, frozen=True):
    """End a run; nothing happens when it has ended."""
