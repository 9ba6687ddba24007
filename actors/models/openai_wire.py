"""The chat-completions dialect as pure functions: requests to JSON, stream chunks to assembled events.

Knows the dialect's many readings, and nothing of sockets or SDKs; ``openai_compatible`` does the calling.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from actors.models.assembly import Assembler
from actors.models.failure import ErrorFrame
from actors.models.provider import Message, ModelRequest, Part, ToolSpec, Usage
from actors.models.sse import ServerSentEvent
from actors.models.text import decode_event, decode_or_text, is_array, is_object

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_UNSUPPORTED = re.compile(
    r"unsupported|not support|unrecognized|unknown|unexpected|extra (?:field|input)|additional propert"
    r"|not permitted|not allowed|no such (?:field|parameter)",
    re.IGNORECASE,
)
_MISSING = re.compile(
    r"missing|required|must be (?:passed|provided|sent|included)|must include", re.IGNORECASE
)
_DROPPABLE = (
    "stream_options",
    "parallel_tool_calls",
    "reasoning_effort",
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
)


class Dialect(Struct, frozen=True):
    """How one server reads the dialect; starts from a table and learns from its 400s (:func:`repaired`).

    ``reasoning``: ``send`` puts a message's reasoning back as ``reasoning_content``, ``always`` does so even
    when it is empty on a tool-calling message, ``omit`` leaves it out.
    """

    reasoning: str = "send"
    token_field: str = "max_tokens"  # noqa: S105 tokens of text
    dropped: frozenset[str] = frozenset()


def request_body(request: ModelRequest, dialect: Dialect, *, stream: bool = True) -> dict[str, Any]:
    """Return the JSON body of a call. ``request.options`` win over what is derived here."""
    body: dict[str, Any] = {"model": request.model, "messages": _messages(request.messages, dialect)}
    if stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [_tool(spec) for spec in request.tools]
        if request.tool_choice:
            body["tool_choice"] = _tool_choice(request.tool_choice)
        if request.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = request.parallel_tool_calls
    if request.max_tokens is not None:
        body[dialect.token_field] = request.max_tokens
    for name in ("temperature", "top_p", "frequency_penalty", "presence_penalty"):
        value = getattr(request, name)
        if value is not None:
            body[name] = value
    if request.thinking is not None and (effort := reasoning_effort(request.thinking)):
        body["reasoning_effort"] = effort
    if request.response_schema is not None:
        wanted = request.response_schema
        schema = {"name": wanted.name, "schema": wanted.schema, "strict": wanted.strict}
        if wanted.description:
            schema["description"] = wanted.description
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    body.update(request.options)
    for name in dialect.dropped:
        body.pop(name, None)
    return body


def reasoning_effort(thinking: str | int) -> str:
    """Return the effort word for a thinking budget; empty for "let the model decide"."""
    if isinstance(thinking, str):
        effort = thinking.rpartition("/")[2]
        return effort if effort in _EFFORTS else ""
    if thinking < 0:
        return ""
    for limit, effort in ((0, "none"), (1024, "minimal"), (4096, "low"), (16384, "medium")):
        if thinking <= limit:
            return effort
    return "high"


def repaired(dialect: Dialect, body: Mapping[str, Any], message: str) -> Dialect | None:
    """Return the dialect that avoids what a 400 with ``message`` complains about, or ``None``.

    Only fields that were sent are dropped, so a dialect is repaired a bounded number of times.
    """
    if "reasoning_content" in message or "reasoning content" in message.lower():
        sent = any("reasoning_content" in item for item in body["messages"])
        if sent and not _MISSING.search(message):
            return msgspec.structs.replace(dialect, reasoning="omit")
        if dialect.reasoning != "always" and _MISSING.search(message):
            return msgspec.structs.replace(dialect, reasoning="always")
        return None
    if dialect.token_field in body and dialect.token_field in message:
        other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}[
            dialect.token_field
        ]
        if other in message or _UNSUPPORTED.search(message):
            return msgspec.structs.replace(dialect, token_field=other)
    if _UNSUPPORTED.search(message):
        named = {name for name in _DROPPABLE if name in body and re.search(rf"\b{name}\b", message)}
        if named:
            return msgspec.structs.replace(dialect, dropped=dialect.dropped | named)
    return None


def _messages(messages: Sequence[Message], dialect: Dialect) -> list[dict[str, Any]]:
    wire: list[dict[str, Any]] = []
    pictures: list[dict[str, Any]] = []
    for message in messages:
        if message.role != "tool" and pictures:
            wire.append({"role": "user", "content": pictures})
            pictures = []
        if message.role == "tool":
            text, media = _tool_content(message)
            wire.append({"role": "tool", "tool_call_id": message.tool_call_id, "content": text})
            pictures += media
        elif message.role == "assistant":
            wire.append(_assistant(message, dialect))
        else:
            wire.append({"role": message.role, "content": _content(message)})
    if pictures:
        wire.append({"role": "user", "content": pictures})
    return wire


def _assistant(message: Message, dialect: Dialect) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": "assistant", "content": _content(message)}
    if message.tool_calls:
        wire["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments or "{}"},
            }
            for call in message.tool_calls
        ]
    if (message.reasoning and dialect.reasoning != "omit") or (
        message.tool_calls and dialect.reasoning == "always"
    ):
        wire["reasoning_content"] = message.reasoning
    return wire


def _content(message: Message) -> str | list[dict[str, Any]]:
    if not message.parts:
        return message.content
    parts = [{"type": "text", "text": message.content}] if message.content else []
    return parts + [_part(part) for part in message.parts]


def _tool_content(message: Message) -> tuple[str, list[dict[str, Any]]]:
    """Return a tool result's text and its media, which this dialect takes only from a user message."""
    texts = [message.content] if message.content else []
    texts += [part.text for part in message.parts if part.type == "text"]
    media = [_part(part) for part in message.parts if part.type != "text"]
    return "\n".join(texts), media


def _part(part: Part) -> dict[str, Any]:
    match part.type:
        case "text":
            return {"type": "text", "text": part.text}
        case "image":
            image = {"url": part.url or f"data:{part.mime_type};base64,{part.data}"}
            return {
                "type": "image_url",
                "image_url": {**image, "detail": part.detail} if part.detail else image,
            }
        case "audio":
            kind = part.mime_type.rpartition("/")[2].removeprefix("x-")
            return {
                "type": "input_audio",
                "input_audio": {"data": part.data, "format": {"mpeg": "mp3"}.get(kind, kind)},
            }
        case "document":
            if part.text or not part.data:
                return {"type": "text", "text": f"{part.name}:\n{part.text}" if part.name else part.text}
            data = f"data:{part.mime_type};base64,{part.data}"
            return {"type": "file", "file": {"filename": part.name or "document", "file_data": data}}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}


def _tool_choice(choice: str) -> Any:
    if choice in {"auto", "none", "required"}:
        return choice
    return {"type": "function", "function": {"name": choice}}


class _Chunk(Struct):
    """What is read of a chunk. Loosely typed where servers disagree."""

    id: Any = None
    model: Any = None
    choices: list[_Choice | None] | None = None
    usage: Any = None
    error: Any = None
    object: Any = None
    message: Any = None
    x_groq: Any = None


class _Choice(Struct):
    index: Any = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: Any = None
    error: Any = None
    usage: Any = None


class _Delta(Struct):
    content: Any = None
    refusal: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    thinking: Any = None
    reasoning_signature: Any = None
    tool_calls: list[_Fragment | None] | None = None
    function_call: _Function | None = None


class _Fragment(Struct):
    index: Any = None
    id: Any = None
    function: _Function | None = None
    name: Any = None
    arguments: Any = None


class _Function(Struct):
    name: Any = None
    arguments: Any = None


_DECODER = msgspec.json.Decoder(_Chunk)


class ChunkReader:
    """The dialect's :class:`~actors.models.sdk_stream.EventReader`."""

    def __init__(self, assembler: Assembler) -> None:
        self.assembler = assembler
        self.finish: str | None = None
        self._refused = False
        self.usage = Usage()
        self.model = ""
        self.response_id = ""

    def read_event(self, event: ServerSentEvent) -> bool:
        """Take one chunk; see the protocol."""
        data = event.data.strip()
        if data == b"[DONE]":
            return True
        if not data:
            return False
        if event.event == b"error":
            raise ErrorFrame(decode_or_text(event.data))
        self.read_document(event.data)
        return False

    def read_document(self, data: bytes) -> None:
        """Take one chunk, or one whole completion, which has the same outline."""
        chunk = decode_event(_DECODER, _Chunk, data)
        if chunk.error or (chunk.object == "error"):
            raise ErrorFrame(decode_or_text(data))
        if chunk.id and isinstance(chunk.id, str):
            self.response_id = chunk.id
        if chunk.model and isinstance(chunk.model, str):
            self.model = chunk.model
        if chunk.usage:
            self._take_usage(chunk.usage)
        elif isinstance(chunk.x_groq, dict):
            self._take_usage(chunk.x_groq.get("usage"))
        for choice in chunk.choices or ():
            if choice is not None and choice.index in {0, None}:
                self._take_choice(choice)

    def _take_choice(self, choice: _Choice) -> None:
        if choice.error:
            raise ErrorFrame({"error": choice.error})
        delta = choice.delta or choice.message
        if delta is not None:
            self._take_delta(delta)
        if choice.usage:
            self._take_usage(choice.usage)
        if isinstance(choice.finish_reason, str) and choice.finish_reason:
            self.finish = "refusal" if self._refused else choice.finish_reason

    def _take_delta(self, delta: _Delta) -> None:
        assembler = self.assembler
        for piece in (delta.reasoning_content, delta.reasoning, delta.thinking):
            if piece and isinstance(piece, str):
                assembler.add_reasoning(piece)
                break  # some servers send the same text under two names
        if isinstance(delta.reasoning_signature, str):
            assembler.signature = delta.reasoning_signature
        content = delta.content
        if content:
            if isinstance(content, str):
                assembler.add_text(content)
            else:
                self._take_parts(content)
        if delta.refusal and isinstance(delta.refusal, str):
            self._refused = True
            assembler.add_text(delta.refusal)
        for fragment in delta.tool_calls or ():
            if fragment is not None:
                function = fragment.function or _Function(fragment.name, fragment.arguments)
                assembler.add_call_fragment(
                    index=fragment.index if isinstance(fragment.index, int) else None,
                    call_id=_text(fragment.id),
                    name=_text(function.name),
                    arguments=function.arguments,
                )
        if delta.function_call is not None:
            function = delta.function_call
            assembler.add_call_fragment(index=0, name=_text(function.name), arguments=function.arguments)

    def _take_parts(self, content: Any) -> None:
        for kind, text in _part_texts(content):
            if kind == "thinking":
                self.assembler.add_reasoning(text)
            else:
                self.assembler.add_text(text)

    def _take_usage(self, usage: Any) -> None:
        if not is_object(usage):
            return
        prompt = _count(usage.get("prompt_tokens"))
        details: dict[str, Any] = usage.get("prompt_tokens_details") or {}
        cached = _count(details.get("cached_tokens")) or _count(usage.get("prompt_cache_hit_tokens"))
        output_details: dict[str, Any] = usage.get("completion_tokens_details") or {}
        self.usage = Usage(
            input_tokens=max(prompt - cached, 0),
            output_tokens=_count(usage.get("completion_tokens")),
            cached_input_tokens=cached,
            cached_write_tokens=_count(details.get("cache_write_tokens")),
            reasoning_tokens=_count(output_details.get("reasoning_tokens")),
        )


def _part_texts(content: Any) -> Iterator[tuple[str, str]]:
    """Yield kind and text of content that comes as a list of parts."""
    if not is_array(content):
        return
    for part in content:
        if isinstance(part, str):
            yield "text", part
        elif is_object(part):
            kind = "thinking" if part.get("type") in {"thinking", "reasoning"} else "text"
            inner = part.get("text") or part.get("thinking")
            if isinstance(inner, str):
                yield kind, inner
            else:
                yield from ((kind, text) for _, text in _part_texts(inner))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
