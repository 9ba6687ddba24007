"""What both dialects share: one streaming POST through an SDK, its bytes fed to a reader of the dialect.

The SDKs come from one generator, so one caller serves both; what an event means is the reader's business.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Protocol

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
        async with aclosing(_batches(sdk, response, reader, origin)) as stream:
            yield stream
    finally:
        with trio.move_on_after(CLOSE_LIMIT, shield=True):  # giving the connection back never waits long
            await response.aclose()


async def _batches(
    sdk: Any, response: httpx2.Response, reader: EventReader, origin: Origin
) -> AsyncGenerator[Sequence[ModelEvent]]:
    body = BodyReader(response)
    with translated(sdk, origin):
        if response.headers.get("content-type", "").startswith("application/json"):
            await _read_document(body, reader, origin)
            yield _ending(reader, origin, done=True)
            return
        decoder = SseDecoder()
        done = ended = False
        while not (done or ended):
            data = await body.read()
            ended = not data
            done = _read_events(decoder, data, reader, origin)
            if batch := reader.assembler.take():
                yield batch
        yield _ending(reader, origin, done=done)
    with trio.move_on_after(DRAIN_LIMIT), suppress(httpx2.HTTPError):
        # The answer is complete; reading the body's end lets the connection be used again.
        while await body.read():
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
