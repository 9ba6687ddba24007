"""OpenAI's Chat Completions on the wire: its requests as messages of a session, and its answers and chunks as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from actors.errors import Invalid
from actors.models.provider import FinishReason, Part, ToolCall, Usage
from actors.session.messages import HistoryMessage, UserInput

JSON = Any
DONE = b"data: [DONE]\n\n"
_MEDIA = "data:"


class ImageUrl(Struct):
    """``image_url`` of a content part."""

    url: str
    detail: str = ""


class InputAudio(Struct):
    """``input_audio`` of a content part."""

    data: str
    format: str = "wav"


class InputFile(Struct):
    """``file`` of a content part."""

    filename: str = ""
    file_data: str = ""


class ContentPart(Struct):
    """One entry of a message's ``content`` list."""

    type: str
    text: str = ""
    refusal: str = ""
    image_url: ImageUrl | None = None
    input_audio: InputAudio | None = None
    file: InputFile | None = None

    def neutral(self) -> Part:
        """Return the part as the runtime keeps it. Raises: Invalid, for a type nobody here can show a model."""
        if self.type in ("text", "refusal"):
            return Part("text", text=self.text or self.refusal)
        if self.type == "image_url" and self.image_url is not None:
            return Part("image", url=self.image_url.url, detail=self.image_url.detail)
        if self.type == "input_audio" and self.input_audio is not None:
            audio = self.input_audio
            return Part("audio", data=audio.data, mime_type=f"audio/{audio.format}")
        if self.type == "file" and self.file is not None and self.file.file_data:
            kind, data = _data_url(self.file.file_data)
            return Part("document", data=data, mime_type=kind, name=self.file.filename)
        raise Invalid(f"messages: a content part of type {self.type!r} cannot be used")


class FunctionCall(Struct):
    """``function`` of a tool call."""

    name: str = ""
    arguments: str = ""


class CallBody(Struct):
    """A tool call of an earlier answer."""

    id: str = ""
    function: FunctionCall = field(default_factory=FunctionCall)


class ChatMessage(Struct):
    """One message of a request."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None
    tool_calls: list[CallBody] | None = None
    tool_call_id: str = ""

    def parts(self) -> tuple[str, tuple[Part, ...]]:
        """Return the content as plain text, or as parts when there is more than text. Raises: Invalid."""
        if not isinstance(self.content, list):
            return self.content or "", ()
        parts = tuple(part.neutral() for part in self.content)
        if all(part.type == "text" for part in parts):
            return "\n".join(part.text for part in parts), ()
        return "", parts

    def stored(self, number: int) -> HistoryMessage:
        """Return the message as a session's history has it. Raises: Invalid.

        The system prompt is the agent's own: what a client puts there reaches the agent as something it was told.
        """
        content, parts = self.parts()
        role: Literal["user", "assistant", "tool"] = "user"
        if self.role == "assistant":
            role = "assistant"
        elif self.role in ("tool", "function"):
            role = "tool"
        return HistoryMessage(
            id=number,
            role=role,
            implicit=self.role in ("system", "developer"),
            content=content,
            parts=parts,
            tool_calls=tuple(
                ToolCall(c.id, c.function.name, c.function.arguments) for c in self.tool_calls or ()
            ),
            tool_call_id=self.tool_call_id,
        )

    def said(self) -> UserInput:
        """Return a user's message as a run takes it. Raises: Invalid."""
        return UserInput(*self.parts())


class StreamOptions(Struct):
    """``stream_options``."""

    include_usage: bool = False


class ChatRequest(Struct):
    """``POST /v1/chat/completions``.

    The agent brings its own tools and sampling: whatever else is sent is not looked at.
    """

    messages: list[ChatMessage]
    model: str = ""
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = 1

    def split(self) -> tuple[list[ChatMessage], list[ChatMessage]]:
        """Return what was said before, and the user's messages that are to be answered.

        Raises:
            Invalid: the last message is not the user's, or several answers are wanted.
        """
        if self.n not in (None, 1):
            raise Invalid("n: one answer is given", param="n")
        at = len(self.messages)
        while at and self.messages[at - 1].role == "user":
            at -= 1
        if at == len(self.messages):
            raise Invalid("messages: the last message must be the user's", param="messages")
        return self.messages[:at], self.messages[at:]

    @property
    def wants_usage(self) -> bool:
        """A stream's last chunk is to tell the usage."""
        return self.stream_options is not None and self.stream_options.include_usage


class Head(Struct, frozen=True):
    """What every answer and chunk of one completion says alike."""

    id: str
    created: int
    model: str


FINISH: dict[FinishReason, str] = {"length": "length", "content_filter": "content_filter"}
"""Why the model ended → OpenAI's word; anything else is ``stop``: the agent has run its tools itself."""


def models(ids: Sequence[str], created: int) -> JSON:
    """Return the body of ``GET /v1/models``."""
    return {"object": "list", "data": [model(each, created) for each in ids]}


def model(name: str, created: int) -> JSON:
    """Return one model."""
    return {"id": name, "object": "model", "created": created, "owned_by": "greenroom"}


def completion(head: Head, text: str, finish: FinishReason, usage: Usage) -> JSON:
    """Return a whole answer."""
    message = {"role": "assistant", "content": text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": FINISH.get(finish, "stop")}
    return _body("chat.completion", head, [choice], usage)


def chunk(head: Head, delta: JSON, finish: FinishReason | None = None) -> bytes:
    """Return a chunk of a streamed answer as an event; ``finish`` marks the last with a choice."""
    reason = None if finish is None else FINISH.get(finish, "stop")
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return event(_body("chat.completion.chunk", head, [choice], None))


def usage_chunk(head: Head, usage: Usage) -> bytes:
    """Return the chunk that tells the usage, which has no choice."""
    return event(_body("chat.completion.chunk", head, [], usage))


def event(body: JSON) -> bytes:
    """Return a body as a server-sent event."""
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def _body(kind: str, head: Head, choices: JSON, usage: Usage | None) -> JSON:
    body = {
        "id": head.id,
        "object": kind,
        "created": head.created,
        "model": head.model,
        "choices": choices,
    }
    if usage is not None:
        body["usage"] = {
            "prompt_tokens": usage.context_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.context_tokens + usage.output_tokens,
        }
    return body


def _data_url(text: str) -> tuple[str, str]:
    """Return media type and base64 of a data URL; other text is taken for a PDF's base64, as OpenAI does."""
    if text.startswith(_MEDIA) and ";base64," in text:
        kind, _, data = text.removeprefix(_MEDIA).partition(";base64,")
        return kind, data
    return "application/pdf", text
