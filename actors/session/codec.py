"""Session events as journal records, and back.

One event is one record, but for transient ones (deltas, live tool output): consecutive pieces of the same text are
stored as one :class:`Batch`, which decodes to the very same events under the very same sequence numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec
from msgspec import Struct

from actors.agent.messages import Event, ReasoningDelta, TextDelta, ToolCallDelta, ToolOutput
from actors.journal.log import NewRecord, Record
from actors.models.provider import ToolCall
from actors.session.messages import SessionEvent

Delta = TextDelta | ReasoningDelta | ToolCallDelta | ToolOutput
DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta, ToolOutput)


class Batch(Struct, frozen=True, tag="batch", tag_field="type", omit_defaults=True):
    """``sizes[i]`` code points of ``event``'s text were the i-th piece; the last has the record's number."""

    event: TextDelta | ReasoningDelta | ToolCallDelta | ToolOutput
    sizes: tuple[int, ...]


class Numbered(Struct, frozen=True):
    """An event with its place in the stream; ``at`` is seconds since the epoch."""

    seq: int
    at: float
    event: SessionEvent


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[SessionEvent] = msgspec.json.Decoder(SessionEvent)
_batches = msgspec.json.Decoder(Batch)
BATCH_KIND = "batch"


def kind_of(event: Event) -> str:
    """Return the event's tag, which is its record's kind."""
    return str(type(event).__struct_config__.tag)


def encode(events: Iterable[Numbered]) -> list[NewRecord]:
    """Return the records for events in order, neighbouring pieces of one text merged."""
    records: list[NewRecord] = []
    run: list[Numbered] = []
    for item in events:
        if run and not _continues(run[-1], item):
            records.append(_encode_run(run))
            run = []
        if isinstance(item.event, DELTAS):
            run.append(item)
        else:
            records.append(NewRecord(item.seq, kind_of(item.event), _encoder.encode(item.event), item.at))
    if run:
        records.append(_encode_run(run))
    return records


def decode(record: Record) -> Sequence[Numbered]:
    """Return the record's events, oldest first.

    Raises:
        msgspec.ValidationError: The record was not written by :func:`encode`.
    """
    if record.kind != BATCH_KIND:
        return (Numbered(record.seq, record.at, _decoder.decode(record.data)),)
    batch = _batches.decode(record.data)
    first = record.seq - len(batch.sizes) + 1
    ends = [0]
    for size in batch.sizes:
        ends.append(ends[-1] + size)
    text = _text(batch.event)
    return tuple(
        Numbered(first + index, record.at, _with_text(batch.event, text[start:end], first=index == 0))
        for index, (start, end) in enumerate(pairwise(ends))
    )


def _continues(last: Numbered, item: Numbered) -> bool:
    old, new = last.event, item.event
    if type(old) is not type(new) or item.seq != last.seq + 1:
        return False
    if old.agent != new.agent or old.session != new.session:
        return False
    if isinstance(old, ToolCallDelta) and isinstance(new, ToolCallDelta):
        return old.call.id == new.call.id and old.call.name == new.call.name and new.definition is None
    if isinstance(old, ToolOutput) and isinstance(new, ToolOutput):
        return old.call_id == new.call_id
    return isinstance(new, DELTAS)


def _encode_run(run: Sequence[Numbered]) -> NewRecord:
    last = run[-1]
    first = run[0].event
    assert isinstance(first, DELTAS)
    if len(run) == 1:
        return NewRecord(last.seq, kind_of(first), _encoder.encode(first), last.at)
    texts = [_text(item.event) for item in run]
    merged = _with_text(first, "".join(texts), first=True)
    batch = Batch(merged, tuple(len(text) for text in texts))
    return NewRecord(last.seq, BATCH_KIND, _encoder.encode(batch), last.at)


def _text(event: SessionEvent) -> str:
    if isinstance(event, ToolCallDelta):
        return event.call.arguments
    assert isinstance(event, TextDelta | ReasoningDelta | ToolOutput)
    return event.text


def _with_text(event: Delta, text: str, *, first: bool) -> Delta:
    match event:
        case TextDelta():
            return TextDelta(agent=event.agent, session=event.session, text=text)
        case ReasoningDelta():
            return ReasoningDelta(agent=event.agent, session=event.session, text=text)
        case ToolOutput():
            return msgspec.structs.replace(event, text=text)
        case ToolCallDelta():
            call = ToolCall(event.call.id, event.call.name, text)
            definition = event.definition if first else None
            return ToolCallDelta(agent=event.agent, session=event.session, call=call, definition=definition)
