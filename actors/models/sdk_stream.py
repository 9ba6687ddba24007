"""What both dialects share: one streaming POST through an SDK, its bytes fed to a reader of the dialect.

The SDKs come from one generator, so one caller serves both; what an event means is the reader's business.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal, Protocol

import httpx2
import trio

from actors.models.assembly import Assembler
from actors.models.failure import ErrorFrame, Origin, frame_failure, protocol_failure, translated
from actors.models.http import CLOSE_LIMIT, DRAIN_LIMIT, BodyReader
from actors.models.provider import ModelEvent, ModelStream, Usage
from actors.models.sse import EventTooLargeError, ServerSentEvent, SseDecoder
from actors.models.text import encode_json

_DOCUMENT_LIMIT = 64 * 1024 * 1024


class EventReader(Protocol):
    """A dialect's meaning of stream events. Feeds ``assembler`` and keeps what the ending needs.

    ``finish`` is the provider's word for why the answer ended, ``None`` until it said one.
    """

    assembler: Assembler
    finish: str | None
    usage: Usage
    model: str
    response_id: str

    def read_event(self, event: ServerSentEvent) -> bool:
        """Take one event; return whether it is the stream's end marker.

        Raises:
            ErrorFrame: the event is an error.
            ValueError: the event is not of this dialect.
        """
        ...

    def read_document(self, data: bytes) -> None:
        """Take a whole answer of a server that does not stream; raises as :meth:`read_event` does."""
        ...


async def post(
    sdk: Any, client: Any, path: str, body: Mapping[str, Any], headers: Mapping[str, str], origin: Origin
) -> httpx2.Response:
    """Send ``body`` through the SDK's client and return the response as soon as its head is in.

    Raises:
        ModelError: the server refused or could not be reached.

    Cancellation: the connection is closed.
    """
    sent = {"Content-Type": "application/json", "Accept-Encoding": "identity", **headers}
    with translated(sdk, origin):
        response: httpx2.Response = await client.post(
            path,
            cast_to=httpx2.Response,
            content=encode_json(body),
            options={"headers": sent},
            stream=True,
            stream_cls=sdk.AsyncStream[Any],
        )
    return response


@asynccontextmanager
async def open_batches(
    sdk: Any, response: httpx2.Response, reader: EventReader, origin: Origin
) -> AsyncGenerator[ModelStream]:
    """Give the response's events as batches, one per read from the network, and close it in the end."""
    try:
        yield _Batches(sdk, response, reader, origin)
    finally:
        with trio.move_on_after(CLOSE_LIMIT, shield=True):  # giving the connection back never waits long
            await response.aclose()


class _Batches:
    """Iterates over an answer: what each read brought, then the ending."""

    def __init__(self, sdk: Any, response: httpx2.Response, reader: EventReader, origin: Origin) -> None:
        self._sdk = sdk
        self._body = BodyReader(response)
        self._reader = reader
        self._origin = origin
        self._decoder = SseDecoder()
        self._whole = response.headers.get("content-type", "").startswith("application/json")
        self._state: Literal["reading", "read", "ended"] = "reading"
        self._done = False

    def __aiter__(self) -> _Batches:
        return self

    async def __anext__(self) -> Sequence[ModelEvent]:
        if self._state == "ended":
            await self._drain()
            raise StopAsyncIteration
        with translated(self._sdk, self._origin):
            while self._state == "reading":
                await self._read()
                if batch := self._reader.assembler.take():
                    return batch
            self._state = "ended"
            return _ending(self._reader, self._origin, done=self._done)

    async def _read(self) -> None:
        if self._whole:
            await _read_document(self._body, self._reader, self._origin)
            self._done = True
        else:
            data = await self._body.read()
            self._done = _read_events(self._decoder, data, self._reader, self._origin)
            if data and not self._done:
                return
        self._state = "read"

    async def _drain(self) -> None:
        """Read the body's end, if it is there: only then the connection can be used again."""
        with trio.move_on_after(DRAIN_LIMIT), suppress(httpx2.HTTPError):
            while await self._body.read():
                pass


def _read_events(decoder: SseDecoder, data: bytes, reader: EventReader, origin: Origin) -> bool:
    try:
        events = decoder.feed(data) if data else decoder.finish()
        return any(  # stops at the end marker: what follows it is not read
            reader.read_event(event) for event in events
        )
    except ErrorFrame as error:
        raise frame_failure(origin, error.frame) from None
    except EventTooLargeError as error:
        raise protocol_failure(origin, str(error)) from error
    except ValueError as error:
        raise protocol_failure(origin, f"sent an event that makes no sense: {error}") from error


async def _read_document(body: BodyReader, reader: EventReader, origin: Origin) -> None:
    document = bytearray()
    while data := await body.read():
        document += data
        if len(document) > _DOCUMENT_LIMIT:
            raise protocol_failure(origin, "the answer is too long")
    try:
        reader.read_document(bytes(document))
    except ErrorFrame as error:
        raise frame_failure(origin, error.frame) from None
    except ValueError as error:
        raise protocol_failure(origin, f"sent a document that makes no sense: {error}") from error


def _ending(reader: EventReader, origin: Origin, *, done: bool) -> list[ModelEvent]:
    """Return the last batch, or raise when the answer was cut off."""
    assembler = reader.assembler
    if reader.finish is None and (not done or assembler.empty):
        raise protocol_failure(origin, "the stream ended before the answer did")
    if reader.finish == "error":
        raise frame_failure(origin, {"message": "the provider ended the answer with an error"})
    try:
        completed = assembler.complete(
            reader.finish or "",
            reader.usage,
            model=reader.model or origin.model,
            response_id=reader.response_id,
        )
    except ValueError as error:
        raise protocol_failure(origin, str(error)) from error
    return [*assembler.take(), completed]
