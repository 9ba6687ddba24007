"""A session's events as the docker agent server's clients know them (sessions contract, section 2).

Every event of the log has a wire form, so that the numbers on ``/events`` have no holes. Those that the original does
not know (``EXTENSIONS``) are left out of the run stream, whose documented order clients rely on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

import msgspec

from actors.agent import messages as run
from actors.models.provider import Usage
from actors.session import messages as ev
from actors.tools.tool import Media
from gateway.dialects.docker_parts import part, timestamp, tool, tool_call, usage
from gateway.dialects.docker_sessions import completed_object
from gateway.sse import Frame, SseDialect

JSON = Any
ZERO_TIME = "0001-01-01T00:00:00Z"
_UNTIMED = (run.Failed, run.ModelFellBack, ev.TitleChanged, run.IterationLimitReached)
EXTENSIONS = (
    ev.SessionCreated,
    ev.PermissionsChanged,
    ev.SafetyPolicyChanged,
    ev.ModelOverridden,
    ev.MessageAppended,
    ev.MessageReplaced,
    ev.AgentBound,
    ev.FollowUpQueued,
    ev.SteerQueued,
    ev.Starred,
    ev.TokensSet,
    ev.SubSessionStarted,
    run.RunResumed,
    run.StepEnded,
    run.ApprovalDecided,
    run.ElicitationAnswered,
    run.AgentHandedOff,
    run.TaskCompleted,
)
_encode = msgspec.json.encode


def events_wire(session_id: str) -> SseDialect:
    """Return the wire of ``GET /api/sessions/:id/events``."""
    return SseDialect(name="docker-agent", data=lambda frame: _encode(wire_event(frame, session_id)))


def run_wire(session_id: str) -> SseDialect:
    """Return the wire of a run's own stream: documented events only."""

    def data(frame: Frame) -> bytes | None:
        if isinstance(frame.event, EXTENSIONS):
            return None
        if isinstance(frame.event, run.UserMessageAdded) and frame.event.implicit:
            return None
        return _encode(wire_event(frame, session_id))

    return SseDialect(name="docker-agent-run", data=data)


def wire_event(frame: Frame, session_id: str) -> dict[str, JSON]:
    """Return the JSON object of one event.

    Args:
        frame: From the session's stream.
        session_id: The stream's session; sub-session events carry their own id.
    """
    event: Any = frame.event
    body: dict[str, JSON] = {"type": wire_type(event)}
    body.update(_fields(event, event.session or session_id))
    if isinstance(event, ev.SessionDeleted):
        return body
    if event.agent and not isinstance(event, run.UserMessageAdded):
        body["agent_name"] = event.agent
        body.setdefault("agent", event.agent)
    body["timestamp"] = ZERO_TIME if isinstance(event, _UNTIMED) else timestamp(getattr(frame, "at", 0.0))
    return body


_TYPES: Mapping[type, str] = {
    run.TeamAnnounced: "team_info",
    run.ToolsAnnounced: "toolset_info",
    run.ToolLoadingStarted: "mcp_init_started",
    run.ToolLoadingFinished: "mcp_init_finished",
    run.UserMessageAdded: "user_message",
    run.RunStarted: "stream_started",
    run.RunEnded: "stream_stopped",
    run.StepStarted: "agent_info",
    run.TextDelta: "agent_choice",
    run.ReasoningDelta: "agent_choice_reasoning",
    run.ToolCallDelta: "partial_tool_call",
    run.AssistantMessageAdded: "message_added",
    run.UsageReported: "token_usage",
    run.ToolStarted: "tool_call",
    run.ToolOutput: "tool_call_output",
    run.ToolReturned: "tool_call_response",
    run.ToolMessageAdded: "message_added",
    run.Warned: "warning",
    run.Failed: "error",
    run.ModelFellBack: "model_fallback",
    run.IterationLimitReached: "max_iterations_reached",
    run.ApprovalRequested: "tool_call_confirmation",
    run.ElicitationRequested: "elicitation_request",
    run.AgentSwitched: "agent_switching",
    run.CompactionStarted: "session_compaction",
    run.CompactionEnded: "session_compaction",
    run.Summarised: "session_summary",
    run.HookStarted: "hook_started",
    run.HookFinished: "hook_finished",
    run.HookBlocked: "hook_blocked",
    run.BudgetReported: "budget_usage",
    run.BudgetExceeded: "budget_exceeded",
    ev.TitleChanged: "session_title",
    ev.SubSessionCompleted: "sub_session_completed",
    ev.PlanChanged: "plan_changed",
    ev.SessionDeleted: "session_exited",
}


def wire_type(event: run.Event) -> str:
    """Return the event's ``type`` on the wire; an extension's own tag when the original has none."""
    return _TYPES.get(type(event)) or str(type(event).__struct_config__.tag)


def _fields(event: ev.SessionEvent, session_id: str) -> dict[str, JSON]:  # a table, one arm an event
    match event:
        case run.TextDelta() | run.ReasoningDelta():
            return {"content": event.text, "session_id": session_id}
        case run.ToolCallDelta():
            definition = {} if event.definition is None else {"tool_definition": tool(event.definition)}
            return {"tool_call": tool_call(event.call), **definition}
        case run.ToolOutput():
            return {
                "tool_call_id": event.call_id,
                "tool_definition": tool(event.definition),
                "output": event.text,
            }
        case run.RunStarted():
            return {"session_id": session_id}
        case run.RunEnded():
            reason = {"terminal_tool": "normal", "interrupted": "canceled"}.get(event.reason, event.reason)
            return {"session_id": session_id} | ({} if reason == "max_iterations" else {"reason": reason})
        case run.UserMessageAdded():
            return _present(
                message=event.content,
                multi_content=[part(each) for each in event.parts] or None,
                session_id=session_id,
                session_position=event.position,
            )
        case run.AssistantMessageAdded() | run.ToolMessageAdded():
            return {"session_id": session_id, "message_id": event.message_id}
        case run.UsageReported():
            return {"session_id": session_id, "usage": _usage_report(event)}
        case run.ToolStarted():
            return {"tool_call": tool_call(event.call), "tool_definition": tool(event.definition)}
        case run.ToolReturned():
            return {
                "tool_call_id": event.call_id,
                "tool_definition": tool(event.definition),
                "response": event.output,
                "result": _result(event),
            }
        case run.ApprovalRequested():
            return _present(
                tool_call=tool_call(event.call),
                tool_definition=tool(event.definition),
                metadata=dict(event.metadata) or None,
                approval_id=event.approval_id,
                session_id=session_id,
            )
        case run.TeamAnnounced():
            return {
                "available_agents": [_team_agent(each) for each in event.agents],
                "current_agent": event.current,
            }
        case run.ToolsAnnounced():
            return {"available_tools": event.available, "loading": event.loading}
        case run.StepStarted():
            return _present(
                model=event.model,
                description=event.description,
                welcome_message=event.welcome or None,
                context_limit=event.context_limit or None,
            )
        case run.Warned():
            return {"message": event.message}
        case run.Failed():
            return _present(session_id=session_id, error=event.error, code=event.error_code or None)
        case run.ModelFellBack():
            return {
                "failed_model": event.failed_model,
                "fallback_model": event.fallback_model,
                "reason": event.reason,
                "attempt": event.attempt,
                "max_attempts": event.max_attempts,
            }
        case run.IterationLimitReached():
            return {"max_iterations": event.limit}
        case run.ElicitationRequested():
            return _present(
                message=event.message,
                mode=event.mode,
                title=event.title or None,
                schema=event.schema,
                url=event.url or None,
                elicitation_id=event.elicitation_id,
                server_elicitation_id=event.server_id or None,
                session_id=session_id,
                meta=dict(event.meta) or None,
            )
        case run.AgentSwitched():
            return _present(
                switching=event.switching,
                from_agent=event.from_agent or None,
                to_agent=event.to_agent or None,
            )
        case run.CompactionStarted():
            return {"session_id": session_id, "status": "started"}
        case run.CompactionEnded():
            return {"session_id": session_id, "status": "completed", "outcome": event.outcome}
        case run.Summarised():
            return _present(
                session_id=session_id,
                summary=event.summary,
                first_kept_entry=event.first_kept or None,
                cost=event.cost or None,
                model=event.model or None,
                usage=usage(event.usage) if event.usage != Usage() else None,
            )
        case run.HookStarted():
            return {"session_id": session_id, "hook_event": event.hook_event}
        case run.HookFinished():
            return _present(
                session_id=session_id,
                hook_event=event.hook_event,
                duration_ms=event.duration_ms,
                allowed=event.allowed,
                error=event.error or None,
                message=event.message or None,
            )
        case run.HookBlocked():
            return {
                "tool_call": tool_call(event.call),
                "tool_definition": tool(event.definition),
                "message": event.message,
            }
        case run.BudgetReported():
            return {"session_id": session_id, "budgets": list(event.budgets)}
        case run.BudgetExceeded():
            return {
                "session_id": session_id,
                "budget": event.budget,
                "limit": event.limit,
                "used": event.used,
                "max": event.max,
                "config_path": event.config_path,
                "message": event.message,
            }
        case ev.TitleChanged():
            return {"session_id": session_id, "title": event.title}
        case ev.SubSessionCompleted():
            return {"parent_session_id": session_id, "sub_session": completed_object(event)}
        case ev.PlanChanged():
            return _present(
                scope="shared", name=event.name, action=event.action, version=event.version or None
            )
        case ev.SessionDeleted():
            return {"reason": event.reason}
        case run.ToolLoadingStarted() | run.ToolLoadingFinished():
            return {}
        case (
            ev.SessionCreated()
            | ev.PermissionsChanged()
            | ev.SafetyPolicyChanged()
            | ev.ModelOverridden()
            | ev.MessageAppended()
            | ev.MessageReplaced()
            | ev.AgentBound()
            | ev.FollowUpQueued()
            | ev.SteerQueued()
            | ev.QueueCleared()
            | ev.Noted()
            | ev.Starred()
            | ev.TokensSet()
            | ev.SubSessionStarted()
            | run.RunResumed()
            | run.StepEnded()
            | run.ApprovalDecided()
            | run.ElicitationAnswered()
            | run.AgentHandedOff()
            | run.TaskCompleted()
        ):
            return _extension(event, session_id)
        case _:
            assert_never(event)


def _extension(event: run.Event, session_id: str) -> dict[str, JSON]:
    """Return an extension's own fields, without bodies of messages that ``GET`` session answers better."""
    fields = msgspec.to_builtins(event)
    for name in ("type", "agent", "session", "history", "message"):
        fields.pop(name, None)
    return {"session_id": session_id, **fields}


def _present(**fields: JSON) -> dict[str, JSON]:
    return {name: value for name, value in fields.items() if value is not None}


def _usage_report(event: run.UsageReported) -> dict[str, JSON]:
    body: dict[str, JSON] = {
        "input_tokens": event.context_tokens,
        "output_tokens": event.output_tokens,
        "context_length": event.context_tokens + event.output_tokens,
        "context_limit": event.context_limit,
        "cost": event.cost,
    }
    if event.last is not None:
        last: dict[str, JSON] = {**usage(event.last), "Cost": event.last_cost, "Model": event.model}
        if event.finish is not None:
            last["finish_reason"] = event.finish
        body["last_message"] = last
    if event.compaction_threshold:
        body["compaction_threshold"] = event.compaction_threshold
    return body


def _result(event: run.ToolReturned) -> dict[str, JSON]:
    body: dict[str, JSON] = {"output": event.output}
    if event.is_error:
        body["isError"] = True
    if event.meta:
        body["meta"] = dict(event.meta)
    for kind, key in (("image", "images"), ("audio", "audios"), ("document", "documents")):
        items = [_media(item) for item in event.media if item.kind == kind]
        if items:
            body[key] = items
    if event.structured is not None:
        body["structuredContent"] = event.structured
    return body


def _media(item: Media) -> dict[str, JSON]:
    return {"mimeType": item.mime_type} | {
        name: value
        for name, value in (("data", item.data), ("text", item.text), ("name", item.name), ("uri", item.uri))
        if value
    }


def _team_agent(agent: run.TeamAgent) -> dict[str, JSON]:
    return _present(
        name=agent.name,
        description=agent.description,
        provider=agent.provider,
        model=agent.model,
        thinking=agent.thinking or None,
        commands=agent.commands,
    )
