"""Tools that run in a client's program: the agent's side of them, and what the program said about them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec

from actors.errors import Invalid
from actors.tools.tool import Annotations, Definition, Media, ToolContext, ToolResult
from gateway.copilot.events import CLIENT_TOOL
from gateway.copilot.shapes import as_object

JSON = Any
CallClient = Callable[[str, Mapping[str, JSON], ToolContext], Awaitable[ToolResult]]


class Declared(msgspec.Struct, rename="camel"):
    """A tool as ``session.create`` names it."""

    name: str
    description: str | None = None
    parameters: dict[str, JSON] | None = None
    skip_permission: bool | None = None
    is_terminal: bool | None = None
    title: str | None = None


class Answer(msgspec.Struct, rename="camel"):
    """A program's result for a call."""

    text_result_for_llm: str = ""
    result_type: str = "success"
    error: str | None = None
    binary_results_for_llm: list[dict[str, JSON]] | None = None


def declared(raw: JSON) -> list[Declared]:
    """Return the tools of a request. Raises: Invalid."""
    try:
        return msgspec.convert(raw or [], list[Declared])
    except msgspec.ValidationError as error:
        raise Invalid(f"tools: {error}") from error


def result_of(params: Mapping[str, JSON], *, terminal: bool) -> ToolResult:
    """Return what the model reads of ``handlePendingToolCall``'s parameters."""
    if params.get("error") is not None:
        return ToolResult(str(params["error"]), is_error=True)
    given = params.get("result")
    raw = as_object(given)
    if raw is None:
        return ToolResult("" if given is None else str(given), terminal=terminal)
    try:
        answer = msgspec.convert(raw, Answer)
    except msgspec.ValidationError:
        return ToolResult(msgspec.json.encode(raw).decode(), terminal=terminal)
    failed = answer.result_type != "success"
    text = answer.text_result_for_llm or (answer.error or "" if failed else "")
    return ToolResult(
        text or (f"The tool call ended with: {answer.result_type}." if failed else ""),
        is_error=failed,
        media=tuple(_media(each) for each in answer.binary_results_for_llm or () if each.get("data")),
        terminal=terminal and not failed,
    )


def _media(given: Mapping[str, JSON]) -> Media:
    mime = str(given.get("mimeType") or "application/octet-stream")
    kind: Literal["image", "audio", "document"] = "document"
    if mime.startswith("image/"):
        kind = "image"
    elif mime.startswith("audio/"):
        kind = "audio"
    return Media(kind, mime, data=str(given["data"]), name=str(given.get("description") or ""))


class ClientTool:
    """A tool that a connected program runs. ``call`` asks it and waits."""

    def __init__(self, tool: Declared, call: CallClient) -> None:
        self._call = call
        parameters = tool.parameters or {}
        self.definition = Definition(
            tool.name,
            tool.description or "",
            {"type": "object", "properties": {}, **parameters},
            category=CLIENT_TOOL,
            annotations=Annotations(title=tool.title or "", read_only_hint=bool(tool.skip_permission)),
            lenient=True,
        )

    async def run(self, arguments: Mapping[str, JSON], context: ToolContext) -> ToolResult:
        """Ask the program."""
        return await self._call(self.definition.name, arguments, context)


ASK_USER = Definition(
    "ask_user",
    "Ask the person a question and wait for the answer. Use it when a decision is theirs.",
    {
        "type": "object",
        "properties": {
            "question": {"type": "string", "description": "The question."},
            "choices": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Answers to choose from.",
            },
            "allowFreeform": {
                "type": "boolean",
                "description": "Whether any text may be the answer; default true.",
            },
        },
        "required": ["question"],
    },
    category=CLIENT_TOOL,
    annotations=Annotations(read_only_hint=True),
)


class AskUser:
    """The tool by which the model asks the person at the program. ``ask`` does it."""

    definition = ASK_USER

    def __init__(self, ask: CallClient) -> None:
        self._ask = ask

    async def run(self, arguments: Mapping[str, JSON], context: ToolContext) -> ToolResult:
        """Ask."""
        return await self._ask(ASK_USER.name, arguments, context)
