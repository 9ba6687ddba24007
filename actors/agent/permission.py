"""Whether one tool call may run: hooks, rules, safety mode and, last, a person (sessions contract 6.4).

The rules themselves are :func:`actors.tools.policy.decide`; here is the order in which the parties are asked, and the
exact texts that refusals put into the history.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from actors.agent import messages as ev
from actors.agent.context import RunContext
from actors.agent.hooks import HookResult
from actors.models.provider import ToolCall
from actors.tools import policy
from actors.tools.policy import Verdict
from actors.tools.tool import Definition

JSON = Any
RefusedAs = Literal["rejected", "denied", "expired", "cancelled"]


@dataclass(frozen=True)
class Permit:
    """The call may run with these arguments."""

    arguments: Mapping[str, JSON]


@dataclass(frozen=True)
class Refusal:
    """The call must not run; ``text`` is its result."""

    text: str
    outcome: RefusedAs


async def permit(
    ctx: RunContext,
    call: ToolCall,
    definition: Definition,
    arguments: Mapping[str, JSON],
    my_turn: Callable[[], Awaitable[None]],
) -> Permit | Refusal:
    """Decide on one call, asking a person when nothing else decides.

    Args:
        ctx: The run.
        call: As the model wrote it.
        definition: Of the tool called.
        arguments: Of the call, decoded.
        my_turn: Awaited before anybody is asked, so that questions come in the order of the calls.
    """
    forced_ask = False
    if ctx.has_hooks("pre_tool_use", call.name):
        first = await ctx.hook("pre_tool_use", _fields(call, arguments), tool=call.name, preempt=True)
        if first.decision == "deny":
            return Refusal(_rejected_by("pre_tool_use", first), "denied")
        forced_ask = first.decision == "ask" and not policy.session_allows(
            ctx.host.policy().rules, definition, arguments
        )
    verdict = judge(ctx, definition, arguments)
    if verdict.outcome == "deny":
        return Refusal(verdict.refusal, "denied")
    hooked = HookResult()
    if ctx.has_hooks("pre_tool_use", call.name):
        hooked = await ctx.hook("pre_tool_use", _fields(call, arguments), tool=call.name)
        if hooked.blocked:
            ctx.host.emit(
                ev.HookBlocked(agent=ctx.agent, call=call, definition=definition, message=hooked.message)
            )
            return Refusal(f"Tool call blocked by hook: {hooked.message}", "denied")
        if hooked.decision == "deny":
            return Refusal(_rejected_by("pre_tool_use", hooked), "denied")
        if hooked.arguments is not None:
            arguments = hooked.arguments
            verdict = judge(ctx, definition, arguments)
            if verdict.outcome == "deny":
                return Refusal(verdict.refusal, "denied")
    asks = forced_ask or hooked.decision == "ask"
    if not asks and (verdict.outcome == "allow" or (hooked.decision == "allow" and not verdict.standing)):
        return Permit(arguments)
    return await _ask(ctx, call, definition, arguments, verdict, hooked, my_turn, forced=asks)


def judge(ctx: RunContext, definition: Definition, arguments: Mapping[str, JSON]) -> Verdict:
    """Return what the rules and the safety mode say at this instant."""
    live = ctx.host.policy()
    return policy.decide(definition, arguments, live.mode, live.rules, ctx.team.rules)


async def _ask(
    ctx: RunContext,
    call: ToolCall,
    definition: Definition,
    arguments: Mapping[str, JSON],
    verdict: Verdict,
    hooked: HookResult,
    my_turn: Callable[[], Awaitable[None]],
    *,
    forced: bool,
) -> Permit | Refusal:
    if ctx.has_hooks("permission_request", call.name):
        asked = await ctx.hook("permission_request", _fields(call, arguments), tool=call.name)
        if asked.decision == "deny":
            return Refusal(_rejected_by("permission_request", asked), "denied")
        if asked.decision == "allow":
            return Permit(arguments if asked.arguments is None else asked.arguments)
    if not ctx.host.policy().interactive:
        return Refusal(policy.unattended(call.name), "denied")
    await my_turn()

    def still_needed() -> bool:
        return forced or judge(ctx, definition, arguments).outcome == "ask"

    await ctx.hook("on_user_input", _fields(call, arguments), tool=call.name)
    shown = msgspec.structs.replace(call, arguments=msgspec.json.encode(arguments).decode())
    decision = await ctx.host.approve(
        ctx.agent,
        call if hooked.arguments is None else shown,
        definition,
        {**verdict.label.metadata(), **hooked.metadata},
        still_needed=still_needed,
    )
    await ctx.hook(
        "on_tool_approval_decision",
        {**_fields(call, arguments), "decision": decision.verdict, "reason": decision.reason},
        tool=call.name,
    )
    match decision.verdict:
        case "approved":
            arguments = arguments if decision.arguments is None else decision.arguments
            # Rules may have changed while the question was open, and the arguments with the answer.
            late = judge(ctx, definition, arguments)
            return Refusal(late.refusal, "denied") if late.outcome == "deny" else Permit(arguments)
        case "rejected":
            return Refusal("The user rejected the tool call." + _reason(decision.reason), "rejected")
        case "expired":
            return Refusal("The tool call was not approved in time and did not run.", "expired")
        case "cancelled":
            return Refusal("The tool call was canceled by the user.", "cancelled")


def _fields(call: ToolCall, arguments: Mapping[str, JSON]) -> dict[str, JSON]:
    return {"tool_name": call.name, "tool_use_id": call.id, "tool_input": arguments}


def _rejected_by(event: str, result: HookResult) -> str:
    return f"The tool call was rejected by a {event} hook." + _reason(result.reason or result.message)


def _reason(reason: str) -> str:
    return f" Reason: {reason.strip()}" if reason.strip() else ""
