"""Hooks that run in a client's program: which points of a run it is asked at, and what its answers mean."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from actors.agent.hooks import HookResult, HookSpec
from gateway.copilot.shapes import as_object

JSON = Any
Invoke = Callable[[str, Mapping[str, JSON]], Awaitable[Mapping[str, JSON]]]
"""Asks the program: the hook's type and input, and its output; empty when it has nothing to say."""
NAMES: Mapping[str, str] = {
    "session_start": "sessionStart",
    "user_prompt_submit": "userPromptSubmitted",
    "pre_tool_use": "preToolUse",
    "post_tool_use": "postToolUse",
    "stop": "agentStop",
    "on_error": "errorOccurred",
}
"""The SDKs' names of the points, by the loop's."""
TIMEOUT = 3600.0
"""Seconds a program may take over an answer; people may sit behind it."""


def client_hooks(invoke: Invoke) -> tuple[HookSpec, ...]:
    """Return the hooks that ask a program at every point it knows."""

    async def ask(event: str, payload: Mapping[str, JSON]) -> HookResult:
        name = NAMES[event]
        if event == "post_tool_use" and payload.get("is_error"):
            name = "postToolUseFailure"
        return _meaning(name, await invoke(name, _input(name, payload)))

    return tuple(
        HookSpec(event=event, name=name, type="client", ask=ask, timeout=TIMEOUT)
        for event, name in NAMES.items()
    )


def _input(name: str, payload: Mapping[str, JSON]) -> dict[str, JSON]:
    common: dict[str, JSON] = {"cwd": payload.get("cwd", ""), "workingDirectory": payload.get("cwd", "")}
    match name:
        case "sessionStart":
            return {**common, "source": "new", "initialPrompt": payload.get("prompt")}
        case "userPromptSubmitted":
            return {**common, "prompt": payload.get("prompt", "")}
        case "preToolUse":
            return {**common, "toolName": payload.get("tool_name"), "toolArgs": payload.get("tool_input")}
        case "postToolUse" | "postToolUseFailure":
            text = payload.get("tool_response", "")
            outcome: dict[str, JSON] = {"error": text}
            if name == "postToolUse":
                outcome = {"toolResult": {"textResultForLlm": text, "resultType": "success"}}
            return {
                **common,
                "toolName": payload.get("tool_name"),
                "toolArgs": payload.get("tool_input"),
                **outcome,
            }
        case "agentStop":
            active = payload.get("stop_hook_active", False)
            return {**common, "stopReason": "end_turn", "transcriptPath": "", "stop_hook_active": active}
        case _:
            return {
                **common,
                "error": payload.get("error", ""),
                "errorContext": "model_call",
                "recoverable": False,
            }


def _meaning(name: str, output: Mapping[str, JSON]) -> HookResult:
    context = str(output.get("additionalContext") or "")
    match name:
        case "preToolUse":
            decision = output.get("permissionDecision")
            arguments = output.get("modifiedArgs")
            return HookResult(
                decision=decision if decision in ("allow", "deny", "ask") else "",
                reason=str(output.get("permissionDecisionReason") or "no reason"),
                arguments=as_object(arguments),
                context=context,
            )
        case "postToolUse" | "postToolUseFailure":
            return HookResult(output=_result_text(output.get("modifiedResult")), context=context)
        case "agentStop":
            blocked = output.get("decision") == "block"
            return HookResult(blocked=blocked, message=str(output.get("reason") or "") if blocked else "")
        case _:
            return HookResult(context=context)


def _result_text(modified: JSON) -> str | None:
    if isinstance(found := (as_object(modified) or {}).get("textResultForLlm"), str):
        return found
    if modified is None or isinstance(modified, str):
        return modified
    return msgspec.json.encode(modified).decode()
