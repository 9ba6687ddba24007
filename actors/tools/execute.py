"""Running one tool call: arguments checked, failures turned into results, output bounded.

Order, parallelism and approval of several calls are the agent loop's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from actors.errors import ActorsError, Invalid
from actors.tools.schema import check_arguments
from actors.tools.text import clean_text, truncate_output
from actors.tools.tool import JSON, Media, Tool, ToolContext, ToolResult

logger = logging.getLogger("actors.tools")

NO_OUTPUT = "(no output)"
MEDIA_LIMIT = 8_000_000
"""Characters of base64 or text in all media of one result."""


def parse_arguments(text: str) -> dict[str, JSON]:
    """Return the arguments object a model wrote; empty text means no arguments.

    Raises:
        Invalid: not JSON, or not an object; the message says what was wrong.
    """
    if not text.strip():
        return {}
    try:
        value: JSON = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise Invalid(f"the arguments are not valid JSON ({error})") from error
    except RecursionError as error:
        raise Invalid("the arguments are nested too deeply") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Invalid(f"the arguments must be a JSON object, not {type(cast('object', value)).__name__}")
    return cast("dict[str, JSON]", value)


def error_result(error: object) -> ToolResult:
    """Return the error result for a failure, in the words the model reads."""
    text = str(error) or type(error).__name__
    return ToolResult(f"Error calling tool: {clean_text(text)}", is_error=True)


def stored_output(result: ToolResult) -> str:
    """Return the text the conversation keeps; the live event carries ``result.output`` itself."""
    return result.output or NO_OUTPUT


async def run_call(
    tool: Tool, call_id: str, arguments: str | Mapping[str, JSON], context: ToolContext, limit: int
) -> ToolResult:
    """Run one call to its end, whatever happens in it.

    Args:
        tool: The tool.
        call_id: The model's id of the call, for the log.
        arguments: The model's text, or an object when a person or hook has changed it.
        context: What the call may know and touch.
        limit: Code points of output to keep.

    Returns:
        The tool's result, or an error result: bad arguments, a :class:`ToolError`, or a bug of the tool,
        which is logged. Output, structured value and media are bounded and safe to store.

    Cancellation: the tool's; nothing is returned.
    """
    try:
        given = parse_arguments(arguments) if isinstance(arguments, str) else dict(arguments)
        if not tool.definition.lenient:
            given = check_arguments(tool.definition.parameters, given)
        result = await tool.run(given, context)
        return bounded(result, limit)
    except ActorsError as error:
        return bounded(error_result(error.message), limit)
    except Exception as error:
        logger.warning(
            "tool failed",
            exc_info=True,
            extra={"tool": tool.definition.name, "call_id": call_id, "session_id": context.session_id},
        )
        return bounded(error_result(_root_cause(error)), limit)


def bounded(result: ToolResult, limit: int) -> ToolResult:
    """Return the result with text that can be stored and sent, and nothing in it above its bound."""
    output = truncate_output(clean_text(result.output), limit)
    media: list[Media] = []
    room = MEDIA_LIMIT
    for item in result.media:
        room -= len(item.data) + len(item.text)
        if room < 0:
            output = truncate_output(
                f"{output}\n[{item.kind} {item.name or item.mime_type} left out: too large]", limit
            )
            break
        media.append(replace(item, text=clean_text(item.text), name=clean_text(item.name)))
    structured = _bounded_json(result.structured, limit)
    meta: dict[str, JSON] = _bounded_json(dict(result.meta), limit) or dict[str, JSON]()
    return replace(result, output=output, media=tuple(media), structured=structured, meta=meta)


def _bounded_json(value: JSON, limit: int) -> JSON:
    """Return a JSON value as plain data without unsendable text, or ``None`` when it is too large or no JSON."""
    if value is None:
        return None
    try:
        encoded = msgspec.json.encode(_cleaned(value))
    except (TypeError, ValueError, RecursionError):
        return None
    return msgspec.json.decode(encoded) if len(encoded) <= 4 * limit else None


def _cleaned(value: JSON) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, JSON]", value)
        return {clean_text(str(name)): _cleaned(item) for name, item in entries.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in cast("list[JSON]", value)]
    return value


def _root_cause(error: Exception) -> BaseException:
    """Return the first single error in a group, since a group's own text tells a model nothing."""
    cause: BaseException = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cast("BaseExceptionGroup[BaseException]", cause).exceptions[0]
    return cause
