"""Any server that speaks chat completions, called through the official ``openai`` SDK.

The SDK builds, authenticates and sends the request; the stream's bytes are decoded here, since one SDK object
per chunk would cost more than the rest of a turn. The SDK's own retries are off: ``fallback`` retries.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any

import httpx2
import openai
import trio

from actors.ids import new_id
from actors.models.assembly import Assembler
from actors.models.failure import Origin, frame_failure, protocol_failure, translated
from actors.models.http import CLOSE_LIMIT, DRAIN_LIMIT, BodyReader
from actors.models.openai_wire import ChunkReader, Dialect, ErrorFrame, repaired, request_body
from actors.models.provider import ModelError, ModelEvent, ModelRequest, ModelStream
from actors.models.sse import EventTooLargeError, SseDecoder
from actors.models.text import decode_json_leniently, encode_json

_REPAIRABLE = frozenset({400, 422})
_DOCUMENT_LIMIT = 64 * 1024 * 1024


class OpenAICompatible:
    """A :class:`~actors.models.provider.Provider` for one base URL and key.

    Args:
        name: The provider's name in references and errors.
        base_url: Up to and without ``/chat/completions``.
        key: The bearer key; empty for servers without one.
        http_client: The client that carries the calls; closed with the provider.
        dialect: What is known of the server from the start; per model it learns from answered 400s.
        headers: Sent with every call.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        key: str,
        http_client: httpx2.AsyncClient,
        *,
        dialect: Dialect | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.base_url = base_url
        self._secrets: Collection[str] = (key,) if key else ()
        self._dialect = dialect or Dialect()
        self._learned: dict[str, Dialect] = {}
        self._client = openai.AsyncOpenAI(
            api_key=key or "none",
            base_url=base_url,
            max_retries=0,
            http_client=http_client,
            default_headers=dict(headers or {}),
        )

    @asynccontextmanager
    async def open_stream(self, request: ModelRequest) -> AsyncGenerator[ModelStream]:
        """Start a call.

        A 400 that names a field this server does not know (or misses) is answered once with a corrected
        request; the correction is kept for the model.

        Raises:
            ModelError: from the entry or from iteration.

        Cancellation: the connection is closed.
        """
        origin = Origin(self.name, request.model, tuple(self._secrets))
        response = await self._send_repaired(request, origin)
        try:
            async with aclosing(self._batches(response, origin)) as stream:
                yield stream
        finally:
            with trio.move_on_after(
                CLOSE_LIMIT, shield=True
            ):  # closing gives the connection back; it never waits long
                await response.aclose()

    async def aclose(self) -> None:
        """Close the shared client."""
        await self._client.close()

    async def _send_repaired(self, request: ModelRequest, origin: Origin) -> httpx2.Response:
        dialect = self._learned.get(request.model, self._dialect)
        body = request_body(request, dialect)
        try:
            return await self._send(request, body, origin)
        except ModelError as error:
            better = repaired(dialect, body, error.message) if error.status in _REPAIRABLE else None
            if better is None:
                raise
        response = await self._send(request, request_body(request, better), origin)
        self._learned[request.model] = better
        return response

    async def _send(self, request: ModelRequest, body: dict[str, Any], origin: Origin) -> httpx2.Response:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **request.headers}
        with translated(openai, origin):
            return await self._client.post(
                "/chat/completions",
                cast_to=httpx2.Response,
                content=encode_json(body),
                options={"headers": headers},
                stream=True,
                stream_cls=openai.AsyncStream[Any],
            )

    async def _batches(
        self, response: httpx2.Response, origin: Origin
    ) -> AsyncGenerator[Sequence[ModelEvent]]:
        assembler = Assembler(partial(new_id, "call"))
        reader = ChunkReader(assembler)
        body = BodyReader(response)
        done = False
        with translated(openai, origin):
            if response.headers.get("content-type", "").startswith("application/json"):
                await _read_document(body, reader, origin)
                yield _ending(assembler, reader, origin, done=True)
                return
            decoder = SseDecoder()
            data = b"-"
            while data and not done:
                data = await body.read()
                done = _read_events(decoder, data, reader, origin)
                if batch := assembler.take():
                    yield batch
            yield _ending(assembler, reader, origin, done=done)
        with trio.move_on_after(DRAIN_LIMIT), suppress(httpx2.HTTPError):
            # The answer is complete; reading the body's end lets the connection be used again.
            while await body.read():
                pass


async def _read_document(body: BodyReader, reader: ChunkReader, origin: Origin) -> None:
    """Read the answer of a server that does not stream."""
    document = bytearray()
    while data := await body.read():
        document += data
        if len(document) > _DOCUMENT_LIMIT:
            raise protocol_failure(origin, "the answer is too long")
    _read_chunk(reader, bytes(document), origin)


def _read_events(decoder: SseDecoder, data: bytes, reader: ChunkReader, origin: Origin) -> bool:
    """Feed the reader; return whether the stream's end marker was among the events."""
    try:
        events = decoder.feed(data) if data else decoder.finish()
    except EventTooLargeError as error:
        raise protocol_failure(origin, str(error)) from error
    for event in events:
        if event.data.strip() == b"[DONE]":
            return True
        if event.event == b"error":
            raise frame_failure(origin, _frame(event.data))
        _read_chunk(reader, event.data, origin)
    return False


def _read_chunk(reader: ChunkReader, data: bytes, origin: Origin) -> None:
    try:
        reader.read(data)
    except ErrorFrame as error:
        raise frame_failure(origin, error.frame) from None
    except ValueError as error:
        raise protocol_failure(origin, f"sent something that is not a chunk: {error}") from error


def _frame(data: bytes) -> Any:
    try:
        return decode_json_leniently(data)
    except ValueError:
        return data.decode("utf-8", "replace")


def _ending(assembler: Assembler, reader: ChunkReader, origin: Origin, *, done: bool) -> list[ModelEvent]:
    if reader.finish is None and (not done or assembler.empty):
        raise protocol_failure(origin, "the stream ended before the answer did")
    finish = "refusal" if reader.refused else (reader.finish or "")
    if finish == "error":
        raise frame_failure(origin, {"message": "the provider ended the answer with an error"})
    try:
        completed = assembler.complete(
            finish, reader.usage, model=reader.model or origin.model, response_id=reader.response_id
        )
    except ValueError as error:
        raise protocol_failure(origin, str(error)) from error
    return [*assembler.take(), completed]
