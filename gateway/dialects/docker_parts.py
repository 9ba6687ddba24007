"""The small objects that events and stored messages of the docker agent dialect are made of (sessions contract 2.1)."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from actors.models.provider import Part, ToolCall, Usage
from actors.tools.tool import Definition

JSON = Any


def timestamp(at: float) -> str:
    """Return seconds since the epoch as RFC 3339 with microseconds, in UTC."""
    whole, fraction = divmod(at, 1)
    return f"{_seconds(int(whole))}.{int(fraction * 1_000_000):06d}Z"


@lru_cache(maxsize=64)
def _seconds(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def tool_call(call: ToolCall) -> dict[str, JSON]:
    """Return a tool call's wire object; its arguments stay JSON text."""
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


class _Same:
    """A definition compared by identity: it holds dictionaries, and all events of a run share it."""

    __slots__ = ("value",)

    def __init__(self, value: Definition) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value


@lru_cache(maxsize=1024)
def _tool_once(definition: _Same) -> dict[str, JSON]:
    return _tool(definition.value)


def tool(definition: Definition) -> dict[str, JSON]:
    """Return a tool definition's wire object."""
    return _tool_once(_Same(definition))


def _tool(definition: Definition) -> dict[str, JSON]:
    body: dict[str, JSON] = {"name": definition.name, "category": definition.category}
    if definition.description:
        body["description"] = definition.description
    body["parameters"] = definition.parameters
    body["annotations"] = msgspec.to_builtins(definition.annotations)
    body["outputSchema"] = definition.output_schema
    return body


def usage(value: Usage) -> dict[str, JSON]:
    """Return token counts as a chat message carries them."""
    body = {
        "input_tokens": value.input_tokens,
        "output_tokens": value.output_tokens,
        "cached_input_tokens": value.cached_input_tokens,
        "cached_write_tokens": value.cached_write_tokens,
    }
    if value.reasoning_tokens:
        body["reasoning_tokens"] = value.reasoning_tokens
    return body


def part(value: Part) -> dict[str, JSON]:
    """Return a message part's wire object (sessions contract 3.2)."""
    if value.type == "text":
        return {"type": "text", "text": value.text}
    if value.type == "image" and not value.name:
        url = value.url or f"data:{value.mime_type};base64,{value.data}"
        image = {"url": url} | ({"detail": value.detail} if value.detail else {})
        return {"type": "image_url", "image_url": image}
    source = {"inline_text": value.text} if value.text else {"inline_data": value.data}
    document = {"name": value.name, "mime_type": value.mime_type, "source": source}
    return {"type": "document", "document": document}
