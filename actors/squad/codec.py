"""Execution events as journal records, and back."""

from __future__ import annotations

import msgspec

from actors.journal.log import NewRecord, Record
from actors.squad.messages import Event, ExecutionEvent

PREFIX = "execution/"
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[ExecutionEvent] = msgspec.json.Decoder(ExecutionEvent)


def stream_of(execution_id: str) -> str:
    """Return the name of the execution's stream."""
    return PREFIX + execution_id


def kind_of(event: Event) -> str:
    """Return the event's tag, which is its record's kind."""
    return str(type(event).__struct_config__.tag)


def encode(event: ExecutionEvent, seq: int, at: float) -> NewRecord:
    """Return the event's record."""
    return NewRecord(seq, kind_of(event), _encoder.encode(event), at)


def decode(record: Record) -> ExecutionEvent:
    """Return the record's event. Raises: msgspec.ValidationError: it was not written by :func:`encode`."""
    return _decoder.decode(record.data)
