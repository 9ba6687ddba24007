"""The messages dialect as pure functions: requests to JSON, stream events to assembled events.

Knows nothing of sockets or SDKs; ``anthropic`` does the calling.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from actors.models.assembly import Assembler
from actors.models.failure import ErrorFrame
from actors.models.provider import Message, ModelRequest, Part, ToolCall, Usage
from actors.models.sse import ServerSentEvent
from actors.models.text import clean, decode_event

_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 32000, "max": 32000}
_CACHED = {"type": "ephemeral"}
_ANSWER_ROOM = 4096
_LEAST_BUDGET = 1024


class Dialect(Struct, frozen=True):
    """What is known of a model: learned from its 400s (:func:`repaired`).

    ``adaptive``: the model takes no token budget for thinking. ``structured``: it takes a JSON schema for its
    answer; otherwise the schema becomes an instruction.
    """

    adaptive: bool = False
    structured: bool = True


def request_body(request: ModelRequest, dialect: Dialect, output_limit: int) -> dict[str, Any]:
    """Return the JSON body of a streaming call. ``request.options`` win over what is derived here.

    Args:
        request: The call.
        dialect: What the model accepts.
        output_limit: ``max_tokens`` when the request has none; this vendor demands one.
    """
    body: dict[str, Any] = {
        "model": request.model,
        "messages": _messages(request.messages),
        "max_tokens": request.max_tokens or output_limit,
        "stream": True,
    }
    system = [
        message.content
        for message in request.messages
        if message.role == "system" and message.content.strip()
    ]
    if request.response_schema is not None:
        schema = request.response_schema.schema
        if dialect.structured:
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        else:
            text = msgspec.json.encode(schema).decode()
            system.append(f"Answer with JSON of this schema and with nothing else:\n{text}")
    if system:
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text} for text in system]
        blocks[-1]["cache_control"] = _CACHED
        body["system"] = blocks
    if request.tools:
        body["tools"] = [
            {"name": spec.name, "description": spec.description, "input_schema": spec.parameters}
            for spec in request.tools
        ]
        if request.tool_choice or request.parallel_tool_calls is False:
            body["tool_choice"] = _tool_choice(request.tool_choice or "auto", request.parallel_tool_calls)
    if not _set_thinking(body, request.thinking, dialect):
        for name in ("temperature", "top_p"):
            value = getattr(request, name)
            if value is not None:
                body[name] = value
    body.update(request.options)
    return body


def repaired(dialect: Dialect, body: Mapping[str, Any], message: str) -> Dialect | None:
    """Return the dialect that avoids what a 400 with ``message`` complains about, or ``None``."""
    thinking = body.get("thinking", {})
    if thinking.get("type") == "enabled" and "thinking" in message and "adaptive" in message:
        return msgspec.structs.replace(dialect, adaptive=True)
    if (
        dialect.structured
        and "format" in body.get("output_config", {})
        and re.search(r"output_(?:config|format)", message)
    ):
        return msgspec.structs.replace(dialect, structured=False)
    return None


def _set_thinking(body: dict[str, Any], thinking: str | int | None, dialect: Dialect) -> bool:
    """Ask for thinking; return whether it is on (sampling parameters are refused then)."""
    if thinking is None or thinking in {0, "none", ""}:
        return False
    if thinking == -1 or (isinstance(thinking, str) and thinking.startswith("adaptive")):
        level = thinking.partition("/")[2] if isinstance(thinking, str) else ""
        return _set_adaptive(body, level)
    if dialect.adaptive:
        return _set_adaptive(body, thinking if isinstance(thinking, str) else "")
    budget = _BUDGETS.get(thinking, _BUDGETS["medium"]) if isinstance(thinking, str) else thinking
    budget = max(budget, _LEAST_BUDGET)
    body["thinking"] = {"type": "enabled", "budget_tokens": budget}
    body["max_tokens"] = max(body["max_tokens"], budget + _ANSWER_ROOM)
    return True


def _set_adaptive(body: dict[str, Any], level: str) -> bool:
    body["thinking"] = {"type": "adaptive"}
    if level:
        body["output_config"] = {
            **body.get("output_config", {}),
            "effort": "low" if level == "minimal" else level,
        }
    return True


def _tool_choice(choice: str, parallel: bool | None) -> dict[str, Any]:
    kinds = {"auto": {"type": "auto"}, "none": {"type": "none"}, "required": {"type": "any"}}
    wire: dict[str, Any] = dict(kinds.get(choice, {"type": "tool", "name": choice}))
    if parallel is False and choice != "none":
        wire["disable_parallel_tool_use"] = True
    return wire


def _messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return alternating messages that begin with the user, tool results first in theirs."""
    wire: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if not blocks:
            continue
        if not wire and role == "assistant":
            wire.append({"role": "user", "content": [{"type": "text", "text": "Continue."}]})
        if wire and wire[-1]["role"] == role:
            wire[-1]["content"] += blocks
        else:
            wire.append({"role": role, "content": blocks})
    for item in wire:
        if item["role"] == "user":  # stable: keeps the order within each kind
            item["content"].sort(key=_after_results)
    if wire and wire[-1]["role"] == "user":
        wire[-1]["content"][-1]["cache_control"] = _CACHED
    return wire


def _after_results(block: Mapping[str, Any]) -> bool:
    kind: str = block["type"]
    return kind != "tool_result"


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": _wire_id(message.tool_call_id)}
        content = _text_blocks(message)
        if content:
            result["content"] = content
        if message.is_error:
            result["is_error"] = True
        return [result]
    blocks = _thinking_blocks(message) if message.role == "assistant" else []
    blocks += _text_blocks(message)
    return blocks + [_tool_use(call) for call in message.tool_calls]


def _text_blocks(message: Message) -> list[dict[str, Any]]:
    """Return text and parts; the vendor refuses blank text."""
    blocks = [{"type": "text", "text": message.content}] if message.content.strip() else []
    return blocks + [_part(part) for part in message.parts if part.type != "text" or part.text.strip()]


def _thinking_blocks(message: Message) -> list[dict[str, Any]]:
    """Return the thinking that this vendor signed; unsigned reasoning of others would be refused."""
    signature = message.reasoning_signature
    if signature.startswith("["):
        blocks: list[dict[str, Any]] = msgspec.json.decode(signature)
        return blocks
    if signature and message.reasoning:
        return [{"type": "thinking", "thinking": message.reasoning, "signature": signature}]
    return []


def _tool_use(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = msgspec.json.decode(call.arguments or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError):
        arguments = None
    if not isinstance(arguments, dict):
        arguments = {"invalid_arguments": call.arguments}
    return {"type": "tool_use", "id": _wire_id(call.id), "name": call.name, "input": arguments}


def _wire_id(call_id: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", call_id)


def _part(part: Part) -> dict[str, Any]:
    match part.type:
        case "text":
            return {"type": "text", "text": part.text}
        case "image":
            return {"type": "image", "source": _source(part)}
        case "audio":
            return {"type": "text", "text": "[audio, which this model cannot hear]"}
        case "document":
            if part.text or not (part.data or part.url):
                return {"type": "text", "text": f"{part.name}:\n{part.text}"}
            document: dict[str, Any] = {"type": "document", "source": _source(part)}
            return {**document, "title": part.name} if part.name else document


def _source(part: Part) -> dict[str, Any]:
    if part.url and not part.data:
        return {"type": "url", "url": part.url}
    return {"type": "base64", "media_type": part.mime_type, "data": part.data}


class _Block(Struct):
    type: str = ""
    id: str = ""
    name: str = ""
    input: Any = None
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""


class _Delta(Struct):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""
    stop_reason: str | None = None


class _Head(Struct):
    id: str = ""
    model: str = ""
    usage: dict[str, Any] | None = None
    content: list[_Block] | None = None
    stop_reason: str | None = None


class _Event(_Head):
    type: str = ""
    index: int = 0
    message: _Head | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    error: Any = None


_DECODER = msgspec.json.Decoder(_Event)


class MessageReader:
    """The dialect's :class:`~actors.models.sdk_stream.EventReader`."""

    def __init__(self, assembler: Assembler) -> None:
        self.assembler = assembler
        self.finish: str | None = None
        self.usage = Usage()
        self.model = ""
        self.response_id = ""
        self._counts: dict[str, int] = {}
        self._thoughts: dict[int, dict[str, str]] = {}

    def read_event(self, event: ServerSentEvent) -> bool:
        """Take one event; see the protocol."""
        if not event.data.strip():
            return False
        decoded = decode_event(_DECODER, _Event, event.data)
        if decoded.type == "error" or event.event == b"error" or decoded.error:
            raise ErrorFrame({"error": decoded.error})
        match decoded.type:
            case "content_block_delta" if decoded.delta is not None:
                self._take_delta(decoded.index, decoded.delta)
            case "content_block_start" if decoded.content_block is not None:
                self._begin_block(decoded.index, decoded.content_block)
            case "message_start" if decoded.message is not None:
                self._take_head(decoded.message)
            case "message_delta":
                self._count(decoded.usage)
                if decoded.delta is not None and decoded.delta.stop_reason:
                    self.finish = decoded.delta.stop_reason
            case "message_stop":
                self._sign()
                return True
            case _:
                pass  # ping, content_block_stop and what the vendor may add
        return False

    def read_document(self, data: bytes) -> None:
        """Take a whole message."""
        decoded = decode_event(_DECODER, _Event, data)
        if decoded.error:
            raise ErrorFrame({"error": decoded.error})
        self._take_head(decoded)
        for index, block in enumerate(decoded.content or ()):
            self._begin_block(index, block)
        self.finish = decoded.stop_reason
        self._sign()

    def _take_head(self, head: _Head) -> None:
        self.response_id = head.id
        self.model = head.model
        self._count(head.usage)

    def _begin_block(self, index: int, block: _Block) -> None:
        match block.type:
            case "text":
                self.assembler.add_text(block.text)
            case "thinking":
                self._thoughts[index] = {
                    "type": "thinking",
                    "thinking": block.thinking,
                    "signature": block.signature,
                }
                self.assembler.add_reasoning(block.thinking)
            case "redacted_thinking":
                self._thoughts[index] = {"type": "redacted_thinking", "data": block.data}
            case "tool_use":
                self.assembler.add_call_fragment(
                    index=index, call_id=block.id, name=block.name, arguments=block.input or None
                )
            case _:
                pass

    def _take_delta(self, index: int, delta: _Delta) -> None:
        match delta.type:
            case "text_delta":
                self.assembler.add_text(delta.text)
            case "input_json_delta":
                self.assembler.add_call_fragment(index=index, arguments=delta.partial_json)
            case "thinking_delta":
                self._thought(index)["thinking"] += clean(delta.thinking)
                self.assembler.add_reasoning(delta.thinking)
            case "signature_delta":
                self._thought(index)["signature"] += delta.signature
            case _:
                pass

    def _thought(self, index: int) -> dict[str, str]:
        return self._thoughts.setdefault(index, {"type": "thinking", "thinking": "", "signature": ""})

    def _sign(self) -> None:
        """Keep what the vendor wants back: the bare signature of one thought, else all blocks as JSON."""
        thoughts = [self._thoughts[index] for index in sorted(self._thoughts)]
        if len(thoughts) == 1 and thoughts[0]["type"] == "thinking":
            self.assembler.signature = thoughts[0]["signature"]
        elif thoughts:
            self.assembler.signature = msgspec.json.encode(thoughts).decode()

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        """Take counts; later ones replace earlier ones, absent ones stay."""
        for name, value in (usage or {}).items():
            if isinstance(value, int):
                self._counts[name] = value
        self.usage = Usage(
            input_tokens=self._counts.get("input_tokens", 0),
            output_tokens=self._counts.get("output_tokens", 0),
            cached_input_tokens=self._counts.get("cache_read_input_tokens", 0),
            cached_write_tokens=self._counts.get("cache_creation_input_tokens", 0),
        )
