"""A session's journal events as the SDKs' events. Deterministic: the same stream gives the same events and ids.

One :class:`Translator` reads a stream from its beginning; it remembers only what later events refer to.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5

import msgspec

from actors.agent import messages as act
from actors.models.provider import ToolCall
from actors.session import messages as ev
from actors.tools.tool import Definition
from gateway.copilot.hooks import NAMES
from gateway.copilot.shapes import as_object

JSON = Any
Wire = dict[str, JSON]
_SPACE = UUID("6f0f5a3e-8f0c-5f0e-9a52-4a1b8f6a3c11")
NOBODY_ASKED = "permission could not be requested from the user"
CLIENT_TOOL = "client"
"""Category of tools that a program lends to a session."""
DELTAS = frozenset({"assistant.message_start", "assistant.message_delta", "assistant.reasoning_delta"}) | {
    "assistant.streaming_delta",
    "assistant.tool_call_delta",
}
"""Events that only clients with ``streaming`` get."""


class _Turn:
    """What a conversation of the stream, its own or a sub-session's, is at."""

    def __init__(self) -> None:
        self.turns = 0
        self.message_id = ""
        self.reasoning_id = ""
        self.started = False
        self.size = 0
        self.origin = ""
        self.model = ""


class Translator:
    """See the module.

    Args:
        session_id: The session.
        version: The server's, for ``session.start``.

    Attributes:
        seq: Number of the last event read.
        waiting: Ids of queued messages that no run has taken yet: follow-ups and steering.
        running: Whether a run is going on.
        stored: How many of the events given were stored ones.
    """

    def __init__(self, session_id: str, version: str) -> None:
        self._session_id = session_id
        self._version = version
        self.seq = 0
        self.waiting: dict[str, tuple[str, str]] = {}
        self.running = False
        self.autopilot = False
        self.stored = 0
        self.last_id: str | None = None
        self._turns: dict[str, _Turn] = {}
        self._tools: dict[tuple[str, str], ToolCall] = {}
        self._subs: dict[str, tuple[str, str, float]] = {}
        self._hooks: list[str] = []
        self._summary = ""
        self._title = ""
        self._out: list[Wire] = []
        self._at = 0.0
        self._index = 0

    def take(self, seq: int, at: float, event: JSON) -> list[Wire]:
        """Return the SDK's events for one of the journal's."""
        self.seq, self._at, self._index, self._out = seq, at, 0, []
        self._translate(event)
        return self._out

    def _new_id(self, word: str) -> str:
        return str(uuid5(_SPACE, f"{self._session_id}/{self.seq}/{word}"))

    def _emit(
        self, kind: str, data: Mapping[str, JSON], session: str = "", *, ephemeral: bool = False
    ) -> None:
        wire: Wire = {
            "id": self._new_id(str(self._index)),
            "timestamp": iso(self._at),
            "parentId": self.last_id,
            "type": kind,
            "data": dict(data),
        }
        self._index += 1
        if session:
            wire["agentId"] = session
        if ephemeral:
            wire["ephemeral"] = True
        else:
            self.last_id = wire["id"]
            self.stored += 1
        self._out.append(wire)

    def _turn(self, session: str) -> _Turn:
        found = self._turns.get(session)
        if found is None:
            found = self._turns[session] = _Turn()
        return found

    def _translate(self, event: JSON) -> None:  # one arm an event
        session: str = event.session
        turn = self._turn(session)
        data: Wire
        match event:
            case ev.SessionCreated():
                self._emit(
                    "session.start",
                    {
                        "sessionId": self._session_id,
                        "version": 1,
                        "producer": "greenroom",
                        "copilotVersion": self._version,
                        "startTime": iso(self._at),
                        "context": {"cwd": event.template.working_dir or "/"},
                    },
                )
            case ev.Noted():
                self._note(event)
            case ev.TitleChanged():
                if event.title == self._title:
                    return
                self._title = event.title
                self._emit("session.title_changed", {"title": event.title}, ephemeral=True)
            case ev.ModelOverridden():
                self._emit("session.model_change", {"newModel": event.model or "auto"})
            case ev.FollowUpQueued():
                self.waiting[event.item_id] = ("queued", event.content)
                self._emit("pending_messages.modified", {}, ephemeral=True)
            case ev.SteerQueued():
                self.waiting[event.item_id] = ("steering", event.content)
                self._emit("pending_messages.modified", {}, ephemeral=True)
            case ev.QueueCleared():
                self.waiting.clear()
                self._emit("pending_messages.modified", {}, ephemeral=True)
            case act.UserMessageAdded():
                self._user_message(event, turn)
            case act.RunStarted():
                if not session:
                    self.running = True
            case act.RunEnded():
                if not session:
                    self._run_ended(event)
            case act.StepStarted():
                turn.turns += 1
                turn.message_id, turn.reasoning_id = self._new_id("message"), self._new_id("reasoning")
                turn.started, turn.size, turn.model = False, 0, event.model
                self._emit(
                    "assistant.turn_start", {"turnId": str(turn.turns - 1), "model": event.model}, session
                )
            case act.StepEnded():
                self._emit(
                    "assistant.turn_end", {"turnId": str(turn.turns - 1), "model": event.model}, session
                )
            case act.TextDelta():
                self._delta(event, turn)
            case act.ReasoningDelta():
                data = {"reasoningId": turn.reasoning_id, "deltaContent": event.text}
                self._emit("assistant.reasoning_delta", data, session, ephemeral=True)
            case act.ToolCallDelta():
                data = {"toolCallId": event.call.id, "inputDelta": event.call.arguments}
                if event.call.name:
                    data["toolName"] = event.call.name
                self._emit("assistant.tool_call_delta", data, session, ephemeral=True)
            case act.AssistantMessageAdded():
                self._assistant_message(event, turn)
            case act.UsageReported():
                self._usage(event)
            case act.ToolStarted():
                self._tools[session, event.call.id] = event.call
                self._emit(
                    "tool.execution_start",
                    {
                        "toolCallId": event.call.id,
                        "toolName": event.call.name,
                        "arguments": arguments_of(event.call),
                        "turnId": str(max(turn.turns - 1, 0)),
                    },
                    session,
                )
            case act.ToolOutput():
                data = {"toolCallId": event.call_id, "partialOutput": event.text}
                self._emit("tool.execution_partial_result", data, session, ephemeral=True)
            case act.ToolReturned():
                self._tool_returned(event, turn)
            case act.ApprovalRequested():
                self._emit(
                    "permission.requested",
                    {
                        "requestId": event.approval_id,
                        "permissionRequest": permission_request(event.call, event.definition),
                    },
                    session,
                )
            case act.ApprovalDecided():
                self._emit(
                    "permission.completed",
                    {
                        "requestId": event.approval_id,
                        "toolCallId": event.call_id,
                        "result": permission_result(event),
                    },
                    session,
                )
            case act.ElicitationRequested():
                data = {
                    "requestId": event.elicitation_id,
                    "message": event.message,
                    "mode": event.mode,
                    "toolCallId": event.call_id or None,
                    "requestedSchema": event.schema,
                    "url": event.url or None,
                    "elicitationSource": event.server_id or None,
                }
                self._emit("elicitation.requested", present(data), session, ephemeral=True)
            case act.ElicitationAnswered():
                data = {"requestId": event.elicitation_id, "action": event.action}
                self._emit("elicitation.completed", data, session, ephemeral=True)
            case act.Failed():
                code = event.error_code or "query"
                data = {
                    "errorType": _ERROR_TYPES.get(code, "query"),
                    "errorCode": code,
                    "message": event.error or "the run failed",
                }
                if event.status:
                    data["statusCode"] = event.status
                    data["errorType"] = _STATUS_TYPES.get(event.status, data["errorType"])
                if session:
                    self._emit(
                        "session.warning", {"warningType": "subagent", "message": event.error}, session
                    )
                else:
                    self._emit("session.error", data)
            case act.Warned():
                self._emit("session.warning", {"warningType": "agent", "message": event.message}, session)
            case act.ModelFellBack():
                data = {
                    "turnId": str(max(turn.turns - 1, 0)),
                    "model": event.fallback_model,
                    "reason": event.reason,
                }
                self._emit("assistant.turn_retry", data, session, ephemeral=True)
            case act.CompactionStarted():
                self._emit("session.compaction_start", {"trigger": event.trigger}, session)
            case act.Summarised():
                self._summary = event.summary
            case act.CompactionEnded():
                data = {"success": event.outcome == "applied"}
                if event.outcome == "applied":
                    data["summaryContent"] = self._summary
                elif event.error:
                    data["error"] = event.error
                self._emit("session.compaction_complete", data, session)
            case act.HookStarted():
                self._hooks.append(self._new_id("hook"))
                data = {
                    "hookInvocationId": self._hooks[-1],
                    "hookType": NAMES.get(event.hook_event, event.hook_event),
                }
                self._emit("hook.start", data, session)
            case act.HookFinished():
                hook = self._hooks.pop() if self._hooks else self._new_id("hook")
                data = {
                    "hookInvocationId": hook,
                    "hookType": NAMES.get(event.hook_event, event.hook_event),
                    "success": not event.error,
                }
                if event.error:
                    data["error"] = {"message": event.error}
                self._emit("hook.end", data, session)
            case act.TaskCompleted():
                self._emit(
                    "session.task_complete", {"summary": event.summary, "success": event.success}, session
                )
            case act.AgentHandedOff():
                data = {"agentName": event.to_agent, "agentDisplayName": event.to_agent, "tools": None}
                self._emit("subagent.selected", data, session)
            case ev.SubSessionStarted():
                self._subs[event.sub_session] = (event.agent, self._calling(session), self._at)
                self._emit(
                    "subagent.started",
                    {
                        "toolCallId": self._subs[event.sub_session][1],
                        "agentName": event.agent,
                        "agentDisplayName": event.agent,
                        "agentDescription": event.title,
                    },
                    event.sub_session,
                )
            case ev.SubSessionCompleted():
                agent, call, began = self._subs.pop(event.sub_session, ("", "", self._at))
                self._emit(
                    "subagent.completed",
                    {
                        "toolCallId": call,
                        "agentName": agent,
                        "agentDisplayName": agent,
                        "durationMs": int((self._at - began) * 1000),
                    },
                    event.sub_session,
                )
            case act.BudgetExceeded():
                self._emit("session.error", {"errorType": "quota", "message": event.message})
            case _:
                pass  # what the SDKs have no event for

    def _calling(self, session: str) -> str:
        """Return the id of the latest call that delegates; empty when none is running."""
        calls = [call for (owner, _), call in self._tools.items() if owner == session]
        return calls[-1].id if calls else ""

    def _note(self, event: ev.Noted) -> None:
        data = dict(event.data)
        if event.kind == "session.resume":
            data["eventCount"] = self.stored
            data["resumeTime"] = iso(self._at)
        elif event.kind == "session.mode_changed":
            self.autopilot = data.get("newMode") == "autopilot"
        self._emit(event.kind, data)

    def _user_message(self, event: act.UserMessageAdded, turn: _Turn) -> None:
        if event.role != "user":
            return
        self.waiting.pop(event.client_id, None)
        message_id = event.client_id or self._new_id("user")
        if not event.session and not event.implicit:
            for _ in range(2 if event.delivery == "idle" else 1):
                self._emit("pending_messages.modified", {}, ephemeral=True)
        if not event.implicit:
            turn.origin = message_id
        data: Wire = {"content": event.content, "messageId": message_id, "delivery": event.delivery}
        if event.implicit:
            data["source"] = "system"
        if event.autopilot:
            data["isAutopilotContinuation"] = True
            data["agentMode"] = "autopilot"
        self._emit("user.message", data, event.session)

    def _run_ended(self, event: act.RunEnded) -> None:
        self.running = False
        self._tools.clear()
        if event.reason == "canceled":
            self._emit("abort", {"reason": abort_reason(event.detail)})
            self._emit("assistant.idle", {"aborted": True}, ephemeral=True)
            self._emit("session.idle", {"aborted": True}, ephemeral=True)
            return
        if event.reason == "interrupted":
            self._emit("session.error", {"errorType": "query", "message": event.detail or "interrupted"})
        if event.reason == "error" and self.waiting:
            return  # the next message's run begins at once, and the session is idle after that
        self._emit("assistant.idle", {}, ephemeral=True)
        self._emit("session.idle", {}, ephemeral=True)

    def _delta(self, event: act.TextDelta, turn: _Turn) -> None:
        if not turn.started:
            turn.started = True
            self._emit(
                "assistant.message_start", {"messageId": turn.message_id}, event.session, ephemeral=True
            )
        turn.size += len(event.text.encode())
        data = {"messageId": turn.message_id, "deltaContent": event.text}
        self._emit("assistant.message_delta", data, event.session, ephemeral=True)
        self._emit(
            "assistant.streaming_delta", {"totalResponseSizeBytes": turn.size}, event.session, ephemeral=True
        )

    def _assistant_message(self, event: act.AssistantMessageAdded, turn: _Turn) -> None:
        if event.reasoning:
            thought = {
                "reasoningId": turn.reasoning_id or self._new_id("reasoning"),
                "content": event.reasoning,
            }
            self._emit("assistant.reasoning", thought, event.session)
        data: Wire = {
            "messageId": turn.message_id or self._new_id("message"),
            "content": event.content,
            "originatingMessageId": turn.origin or None,
            "model": event.model or None,
            "turnId": str(max(turn.turns - 1, 0)),
            "reasoningText": event.reasoning or None,
            "outputTokens": event.usage.output_tokens or None,
            "toolRequests": [
                {
                    "toolCallId": call.id,
                    "name": call.name,
                    "arguments": arguments_of(call),
                    "type": "function",
                }
                for call in event.tool_calls
            ]
            or None,
        }
        self._emit("assistant.message", present(data), event.session)

    def _usage(self, event: act.UsageReported) -> None:
        used = event.last
        self._emit(
            "assistant.usage",
            {
                "model": event.model or "unknown",
                "inputTokens": used.context_tokens - used.output_tokens if used else event.context_tokens,
                "outputTokens": event.output_tokens,
                "cost": event.last_cost,
                "finishReason": event.finish or "stop",
            },
            event.session,
            ephemeral=True,
        )
        if not event.session:
            tokens = max(event.context_tokens, 1)
            self._emit(
                "session.usage_info",
                {
                    "currentTokens": tokens,
                    "tokenLimit": event.context_limit or max(tokens, 1),
                    "messagesLength": self.stored,
                },
                ephemeral=True,
            )

    def _tool_returned(self, event: act.ToolReturned, turn: _Turn) -> None:
        self._tools.pop((event.session, event.call_id), None)
        data: Wire = {
            "toolCallId": event.call_id,
            "success": not event.is_error,
            "turnId": str(max(turn.turns - 1, 0)),
        }
        if event.is_error:
            data["error"] = {"message": event.output, "code": event.outcome}
        else:
            data["result"] = {"content": event.output, "detailedContent": event.output}
        self._emit("tool.execution_complete", data, event.session)


_ERROR_TYPES = {"rate_limited": "rate_limit", "context_exceeded": "context_limit"}
_STATUS_TYPES = {401: "authentication", 402: "quota", 403: "authorization", 429: "rate_limit"}
_ABORTS = ("user_initiated", "remote_command", "user_abort", "autopilot_credit_limit")


def iso(seconds: float) -> str:
    """Return a time as the SDKs read it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def present(data: Mapping[str, JSON]) -> Wire:
    """Return the fields that have a value."""
    return {name: value for name, value in data.items() if value is not None}


def abort_reason(detail: str) -> str:
    """Return why a run was aborted, in the words the SDKs know."""
    return detail if detail in _ABORTS else "user_initiated"


def arguments_of(call: ToolCall) -> JSON:
    """Return a call's arguments as an object; the text where the model wrote no JSON."""
    try:
        return msgspec.json.decode(call.arguments or "{}")
    except msgspec.DecodeError:
        return {"raw": call.arguments}


def permission_request(call: ToolCall, definition: Definition) -> Wire:
    """Return what a person is asked, in the shape that fits the tool."""
    arguments = arguments_of(call)
    given: Mapping[str, JSON] = as_object(arguments) or {}
    if definition.category != CLIENT_TOOL and isinstance(command := given.get("cmd"), str):
        return {
            "kind": "shell",
            "toolCallId": call.id,
            "fullCommandText": command,
            "intention": str(given.get("description") or definition.description or call.name),
            "commands": [{"identifier": command.split(" ")[0] if command else "", "readOnly": False}],
            "possiblePaths": [],
            "possibleUrls": [],
            "hasWriteFileRedirection": ">" in command,
            "canOfferSessionApproval": True,
        }
    return {
        "kind": "custom-tool",
        "toolCallId": call.id,
        "toolName": call.name,
        "toolDescription": definition.description,
        "args": arguments,
    }


def permission_result(event: act.ApprovalDecided) -> Wire:
    """Return a decision as the SDKs show it."""
    if event.verdict == "approved":
        return {"kind": "approved"}
    if event.verdict != "rejected":
        return {"kind": "cancelled"}
    if event.reason == NOBODY_ASKED:
        return {"kind": "denied-no-approval-rule-and-could-not-request-from-user"}
    result: Wire = {"kind": "denied-interactively-by-user"}
    if event.reason:
        result["feedback"] = event.reason
    return result
