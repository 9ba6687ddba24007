"""Methods by which a program answers what a session asked: tool calls, permissions, questions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actors.errors import ActorsError
from gateway.copilot.door import Door, Method, text
from gateway.copilot.events import NOBODY_ASKED
from gateway.copilot.rpc import INVALID_PARAMS, Connection, RpcError
from gateway.copilot.shapes import as_object
from gateway.copilot.tools import declared

JSON = Any
_ONCE = frozenset({"approve-once", "approved", "approve-for-location"})
_SESSION = frozenset({"approve-for-session", "approved-for-session", "approve-permanently"})


async def tool_call(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Take the result of a tool that the program ran."""
    live = door.attached(connection, params)
    return {"success": live.answer_call(text(params, "requestId", required=True), params)}


async def set_tools(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Replace the tools that this client offers, from the next model call on."""
    live = door.attached(connection, params)
    live.attachments[connection].tools = {tool.name: tool for tool in declared(params.get("tools"))}
    return {}


async def permission(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Take a decision on a tool call."""
    live = door.attached(connection, params)
    decision = as_object(params.get("result")) or {}
    kind = decision.get("kind")
    if not isinstance(kind, str):
        raise RpcError(INVALID_PARAMS, "result must be a decision with a kind")
    request_id = text(params, "requestId", required=True)
    if kind in _ONCE:
        success = await live.answer_approval(request_id, "approve")
    elif kind in _SESSION:
        success = await live.answer_approval(request_id, "approve-tool")
    elif kind in ("user-not-available", "denied-no-approval-rule-and-could-not-request-from-user"):
        success = await live.answer_approval(request_id, "reject", NOBODY_ASKED)
    else:
        success = await live.answer_approval(request_id, "reject", str(decision.get("feedback") or ""))
    return {"success": success}


async def approve_all(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Run every tool unasked, or ask again."""
    live = door.attached(connection, params)
    await live.session.set_safety("autonomous" if params.get("enabled", True) is not False else "")
    return {"success": True}


async def elicitation(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Take the person's answer to a form or page."""
    live = door.attached(connection, params)
    given = as_object(params.get("result") or params.get("response")) or {}
    try:
        await live.session.answer(
            str(given.get("action") or "cancel"),
            as_object(given.get("content")) or {},
            text(params, "requestId", required=True),
        )
    except ActorsError:
        return {"success": False}
    return {"success": True}


async def nobody_asked(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Say that no such question is open: this server never asks it."""
    door.attached(connection, params)
    return {"success": False}


METHODS = (
    Method("session.tools.handlePendingToolCall", tool_call),
    Method("session.tools.set", set_tools),
    Method("session.permissions.handlePendingPermissionRequest", permission),
    Method("session.permissions.setApproveAll", approve_all),
    Method("session.ui.handlePendingElicitation", elicitation),
    Method("session.ui.handlePendingUserInput", nobody_asked),
    Method("session.ui.handlePendingExitPlanMode", nobody_asked),
    Method("session.ui.handlePendingAutoModeSwitch", nobody_asked),
    Method("session.ui.handlePendingSampling", nobody_asked),
)
