"""The contract between the agent loop and every language-model provider.

A provider turns a :class:`ModelRequest` into a stream of :class:`ModelEvent` batches that ends with one
:class:`Completed`. Everything vendor-specific (wire format, transport, quirks) stays in its file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from actors.errors import Unavailable

Role = Literal["system", "user", "assistant", "tool"]
FinishReason = Literal["stop", "length", "tool_calls", "refusal", "content_filter", "error"]
JSON = Any


class Part(Struct, frozen=True, omit_defaults=True):
    """A piece of a message that is not plain text, or text beside such a piece.

    ``type``: ``text`` (``text``), ``image`` and ``audio`` (``data`` base64 or ``url``, with ``mime_type``),
    ``document`` (``name``, ``mime_type``, and ``text`` or base64 ``data``).
    """

    type: Literal["text", "image", "audio", "document"]
    text: str = ""
    data: str = ""
    url: str = ""
    mime_type: str = ""
    name: str = ""
    detail: str = ""


class ToolCall(Struct, frozen=True, omit_defaults=True):
    """A tool call as the model wrote it. ``arguments`` is JSON text, possibly invalid; never repaired."""

    id: str
    name: str
    arguments: str = ""


class Message(Struct, frozen=True, omit_defaults=True):
    """One message of a conversation, provider-neutral.

    ``parts`` follow ``content`` when both are set. ``tool_calls``, ``reasoning``, ``reasoning_signature``
    belong to assistant messages (the reasoning goes back to providers that require it), ``tool_call_id`` and
    ``is_error`` to tool messages.
    """

    role: Role
    content: str = ""
    parts: tuple[Part, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    is_error: bool = False
    reasoning: str = ""
    reasoning_signature: str = ""


class ToolSpec(Struct, frozen=True, omit_defaults=True):
    """A tool as the model sees it. ``parameters`` is a JSON Schema of type object."""

    name: str
    description: str = ""
    parameters: Mapping[str, JSON] = field(default_factory=lambda: {"type": "object", "properties": {}})


class ResponseSchema(Struct, frozen=True):
    """Ask for an answer that is JSON of this schema."""

    name: str
    schema: Mapping[str, JSON]
    description: str = ""
    strict: bool = True


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One model call. ``None`` leaves the provider's default; ``options`` are passed through to it."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    thinking: str | int | None = None
    response_schema: ResponseSchema | None = None
    options: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class Usage(Struct, frozen=True, omit_defaults=True):
    """Tokens of one call. ``input_tokens`` excludes the cached ones, as the wire contract counts them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cached_write_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def context_tokens(self) -> int:
        """Tokens the call's prompt took in the context window."""
        return self.input_tokens + self.cached_input_tokens + self.cached_write_tokens


class TextDelta(Struct, frozen=True, tag=True):
    """More answer text; never empty."""

    text: str


class ReasoningDelta(Struct, frozen=True, tag=True):
    """More reasoning text; never empty."""

    text: str


class ToolCallDelta(Struct, frozen=True, tag=True):
    """A piece of a tool call: ``arguments`` is new; ``id`` and ``name`` are whole from its first delta on."""

    index: int
    id: str
    name: str
    arguments: str


class Completed(Struct, frozen=True, tag=True):
    """The end of a call: the assembled message. Always the last event, exactly once.

    ``finish`` is normalised from what the message holds, not from the provider's label alone: with complete
    tool calls it is ``tool_calls``. With ``length`` any tool calls are incomplete and must not run.
    """

    message: Message
    finish: FinishReason
    usage: Usage = Usage()
    model: str = ""
    response_id: str = ""


class Retrying(Struct, frozen=True, tag=True):
    """A wrapper is about to try again or another model; text so far of this call is void when ``discard``."""

    failed_model: str
    next_model: str
    reason: str
    attempt: int
    max_attempts: int
    wait: float = 0.0
    discard: bool = False


ModelEvent = TextDelta | ReasoningDelta | ToolCallDelta | Completed | Retrying
ModelErrorKind = Literal[
    "authentication",
    "rate_limited",
    "context_exceeded",
    "request_too_large",
    "invalid_request",
    "overloaded",
    "server",
    "network",
    "protocol",
]


class ModelError(Unavailable):
    """A model call failed for good (as far as the raising layer knows).

    ``retryable`` is true for faults that may pass (408, 429, 5xx, resets, overload frames inside a stream);
    ``retry_after`` is the provider's wish in seconds, already clamped to a sane range, or ``None``.
    """

    code = "model_error"

    def __init__(
        self,
        message: str,
        *,
        kind: ModelErrorKind,
        status: int | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
        provider: str = "",
        model: str = "",
    ) -> None:
        super().__init__(message, kind=kind, status=status, provider=provider, model=model)
        self.kind: ModelErrorKind = kind
        self.status = status
        self.retryable = retryable
        self.retry_after = retry_after
        self.provider = provider
        self.model = model


class ModelInfo(Struct, frozen=True, omit_defaults=True):
    """What the catalogue knows of a model. Prices are USD per million tokens; 0 limits mean unknown."""

    provider: str
    model: str
    name: str = ""
    family: str = ""
    context_limit: int = 0
    output_limit: int = 0
    input_cost: float = 0.0
    output_cost: float = 0.0
    cache_read_cost: float = 0.0
    cache_write_cost: float = 0.0
    input_modalities: tuple[str, ...] = ("text",)
    output_modalities: tuple[str, ...] = ("text",)

    @property
    def ref(self) -> str:
        """The ``provider/model`` reference."""
        return f"{self.provider}/{self.model}"

    def cost(self, usage: Usage) -> float:
        """Return the price of ``usage`` in USD (sessions contract 6.6); 0 when unpriced."""
        return (
            usage.input_tokens * self.input_cost
            + usage.output_tokens * self.output_cost
            + usage.cached_input_tokens * self.cache_read_cost
            + usage.cached_write_tokens * self.cache_write_cost
        ) / 1_000_000


ModelStream = AsyncIterator[Sequence[ModelEvent]]


class Provider(Protocol):
    """One vendor or wrapper. Shared by all sessions; safe to use from many tasks at once."""

    name: str

    def open_stream(self, request: ModelRequest) -> AbstractAsyncContextManager[ModelStream]:
        """Start a call; iterate batches (what one network read brought) until :class:`Completed`.

        Raises:
            ModelError: from the entry or from iteration.

        Cancellation: the connection is closed; nothing more arrives.
        """
        ...

    async def aclose(self) -> None:
        """Close the shared client; idempotent."""
        ...
