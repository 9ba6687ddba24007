"""Record model traffic to a file and answer from it later, over any provider.

The file has go-vcr's layout (version 2), one interaction per call: the request as the chat-completions dialect
writes it and the answer as that dialect streams it. Replay also reads interactions of the messages dialect.
Requests match by their parsed JSON, apart from what differs between runs without meaning (``recording``).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import trio

from actors.ids import new_id
from actors.models import anthropic_wire, openai_wire
from actors.models.assembly import Assembler
from actors.models.failure import ErrorFrame, Origin, frame_failure, protocol_failure, status_failure
from actors.models.provider import (
    Completed,
    ModelError,
    ModelEvent,
    ModelRequest,
    ModelStream,
    Provider,
    ReasoningDelta,
    Retrying,
    TextDelta,
    ToolCallDelta,
)
from actors.models.recording import (
    OK,
    Interaction,
    Recording,
    Request,
    Response,
    normalised,
    read_recording,
    write_recording,
)
from actors.models.sse import ServerSentEvent, SseDecoder
from actors.models.text import encode_json

DEFAULT_DELAY = 0.015
"""Seconds between two events when a paced replay is asked for without a figure."""
_DIALECT = openai_wire.Dialect(reasoning="send")


class Cassette(Protocol):
    """What the catalogue needs of a recorder or a player."""

    def bind(self, name: str, base_url: str, opener: Callable[[], Provider]) -> Provider:
        """Return the provider to use instead of the one that ``opener`` would open."""
        ...


class Recorder:
    """Records every call of the providers it binds. The file is complete and valid after each call.

    Args:
        path: The file; replaced if it exists.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._recording = Recording()

    def bind(self, name: str, base_url: str, opener: Callable[[], Provider]) -> Provider:
        """Return the provider, recorded."""
        return _Recorded(opener(), _chat_url(name, base_url), self)

    def add(self, url: str, request: bytes, response: bytes, code: int, duration: float) -> None:
        """Append an interaction and write the file: to a temporary one first, then in its place."""
        host = url.partition("://")[2].partition("/")[0]
        asked = Request(host=host, body=request.decode(), url=url)
        answered = Response(
            body=response.decode(), code=code, status=f"{code}", duration=f"{duration * 1000:.6f}ms"
        )
        self._recording.interactions.append(Interaction(len(self._recording.interactions), asked, answered))
        write_recording(self.path, self._recording)


class _Recorded:
    """A provider whose calls are recorded, whatever their end."""

    def __init__(self, provider: Provider, url: str, recorder: Recorder) -> None:
        self.name = provider.name
        self._provider = provider
        self._url = url
        self._recorder = recorder

    @asynccontextmanager
    async def open_stream(self, request: ModelRequest) -> AsyncGenerator[ModelStream]:
        """Start the call and record it when it ends; what has come until then if it is cancelled."""
        began = trio.current_time()
        pieces: list[bytes] = []
        code = OK
        try:
            async with (
                self._provider.open_stream(request) as inner,
                aclosing(_copied(inner, pieces)) as stream,
            ):
                yield stream
        except ModelError as error:
            failure: dict[str, Any] = {
                "message": error.message,
                "type": error.kind,
                "code": str(error.status or 500),
            }
            body = encode_json({"error": failure})
            if pieces:
                pieces.append(b"event: error\ndata: " + body + b"\n\n")
            else:
                code = error.status or 500
                pieces.append(body)
            raise
        finally:
            body = encode_json(openai_wire.request_body(request, _DIALECT))
            self._recorder.add(self._url, body, b"".join(pieces), code, trio.current_time() - began)

    async def aclose(self) -> None:
        """Close the provider."""
        await self._provider.aclose()


async def _copied(inner: ModelStream, pieces: list[bytes]) -> AsyncGenerator[Sequence[ModelEvent]]:
    async for batch in inner:
        pieces.extend(_chunks(batch))
        yield batch


def _chunks(batch: Sequence[ModelEvent]) -> Iterator[bytes]:
    """Yield the events as the chat-completions dialect streams them."""
    for event in batch:
        match event:
            case TextDelta(text):
                yield _chunk({"content": text})
            case ReasoningDelta(text):
                yield _chunk({"reasoning_content": text})
            case ToolCallDelta(index, call_id, name, arguments):
                function = {"name": name, "arguments": arguments}
                call = {"index": index, "id": call_id, "type": "function", "function": function}
                yield _chunk({"tool_calls": [call]})
            case Completed():
                yield from _ending(event)
            case Retrying():
                pass  # each attempt is an interaction of its own


def _ending(event: Completed) -> Iterator[bytes]:
    usage = event.usage
    prompt = usage.input_tokens + usage.cached_input_tokens
    counts = {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output_tokens,
        "total_tokens": prompt + usage.output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_input_tokens,
            "cache_write_tokens": usage.cached_write_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
    delta = (
        {"reasoning_signature": event.message.reasoning_signature}
        if event.message.reasoning_signature
        else {}
    )
    yield _chunk(delta, event.finish, id=event.response_id, model=event.model)
    head = {"id": event.response_id, "object": "chat.completion.chunk", "model": event.model}
    yield b"data: " + encode_json({**head, "choices": [], "usage": counts}) + b"\n\n"
    yield b"data: [DONE]\n\n"


def _chunk(delta: Mapping[str, Any], finish: str | None = None, **head: str) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + encode_json({**head, "object": "chat.completion.chunk", "choices": [choice]}) + b"\n\n"


class Player:
    """Answers from a recording. Each interaction is used once, the first match in the file's order.

    Args:
        path: The file.
        delay: Seconds to sleep after each event of a stream.

    Raises:
        Invalid: the file cannot be read.
    """

    def __init__(self, path: Path, delay: float = 0.0) -> None:
        self.delay = delay
        self._left = read_recording(path).interactions

    def bind(self, name: str, base_url: str, opener: Callable[[], Provider]) -> Provider:  # noqa: ARG002 nothing is called
        """Return a provider that answers from the recording; no key is needed."""
        return _Replayed(name, _chat_url(name, base_url), f"{base_url.rstrip('/')}/v1/messages", self)

    def take(self, request: ModelRequest, chat_url: str, messages_url: str, origin: Origin) -> Interaction:
        """Remove and return the interaction that matches.

        Raises:
            ModelError: none does; status 500, never retried.
        """
        chat = _wire(openai_wire.request_body(request, _DIALECT))
        messages: Any = None
        for position, interaction in enumerate(self._left):
            url = interaction.request.url.partition("?")[0]
            if url == chat_url:
                wanted = chat
            elif url == messages_url:
                messages = messages or _wire(
                    anthropic_wire.request_body(request, anthropic_wire.Dialect(), output_limit=1)
                )
                wanted = messages
            else:
                continue
            if normalised(interaction.request.body) == wanted:
                return self._left.pop(position)
        message = f"the cassette has no unused interaction for this request to {chat_url}; {len(self._left)} are left"
        raise origin.error(message, "server", status=500)


class _Replayed:
    """A provider that answers from a :class:`Player`."""

    def __init__(self, name: str, chat_url: str, messages_url: str, player: Player) -> None:
        self.name = name
        self._chat_url = chat_url
        self._messages_url = messages_url
        self._player = player

    @asynccontextmanager
    async def open_stream(self, request: ModelRequest) -> AsyncGenerator[ModelStream]:
        """Start the recorded answer.

        Raises:
            ModelError: nothing matches, or the recorded call failed.
        """
        origin = Origin(self.name, request.model)
        interaction = self._player.take(request, self._chat_url, self._messages_url, origin)
        await trio.lowlevel.checkpoint()
        response = interaction.response
        if response.code != OK:
            raise status_failure(origin, response.code, response.body.encode(), {}, 0.0)
        async with aclosing(_replay(interaction, origin, self._player.delay)) as stream:
            yield stream

    async def aclose(self) -> None:
        """Nothing is held open."""
        await trio.lowlevel.checkpoint()


async def _replay(
    interaction: Interaction, origin: Origin, delay: float
) -> AsyncGenerator[Sequence[ModelEvent]]:
    assembler = Assembler(partial(new_id, "call"))
    dialect = (
        anthropic_wire.MessageReader if "/messages" in interaction.request.url else openai_wire.ChunkReader
    )
    reader = dialect(assembler)
    body = interaction.response.body.encode()
    try:
        if body.startswith((b"data:", b"event:", b":")):
            for event in _events(body):
                done = reader.read_event(event)
                if batch := assembler.take():
                    await trio.sleep(delay)
                    yield batch
                if done:
                    break
        else:
            reader.read_document(body)
        if reader.finish is None and assembler.empty:
            raise protocol_failure(origin, "the recorded answer is cut off")
        await trio.lowlevel.checkpoint()
        completed = assembler.complete(
            reader.finish or "",
            reader.usage,
            model=reader.model or origin.model,
            response_id=reader.response_id,
        )
    except ErrorFrame as error:
        raise frame_failure(origin, error.frame) from None
    except ValueError as error:
        raise protocol_failure(origin, f"the recorded answer makes no sense: {error}") from error
    yield [*assembler.take(), completed]


def _events(body: bytes) -> list[ServerSentEvent]:
    decoder = SseDecoder()
    return [*decoder.feed(body), *decoder.finish()]


def _wire(body: Mapping[str, Any]) -> Any:
    return normalised(encode_json(body))


def _chat_url(name: str, base_url: str) -> str:
    base = base_url.rstrip("/") or f"https://{name}.invalid/v1"
    return f"{base}/chat/completions"
