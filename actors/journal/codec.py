"""From events to a record's kind and bytes and back, for any tagged union; tolerant of kinds it does not know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

E = TypeVar("E", bound=Struct)

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
"""Turns an old record's JSON object, tag included, into one that the present types accept; pure."""


class Unknown(Struct, frozen=True):
    """A record of a kind that this version has no type for: it is kept, shown as unknown, and never dropped."""

    kind: str
    data: bytes


class Codec(Generic[E]):
    """Encodes and decodes one union of tagged structs as JSON.

    Args:
        events: The union's members; each has a string tag of its own, which is its record's kind.
        upcasters: By kind, how records of old versions become readable. An upcaster may change the tag, so that
            a kind that no type has any more lives on as another.
    """

    def __init__(self, *events: type[E], upcasters: Mapping[str, Upcaster] | None = None) -> None:
        by_kind: dict[str, type[E]] = {}
        for event in events:
            kind = event.__struct_config__.tag
            if not isinstance(kind, str) or kind in by_kind:
                msg = f"{event.__name__}: needs a string tag that no other event has"
                raise ValueError(msg)
            by_kind[kind] = event
        self._decoders = {kind: msgspec.json.Decoder(event) for kind, event in by_kind.items()}
        self._encoder = msgspec.json.Encoder()
        self._upcasters = dict(upcasters or {})

    def encode(self, event: E) -> tuple[str, bytes]:
        """Return a record's kind and data."""
        return str(event.__struct_config__.tag), self._encoder.encode(event)

    def decode(self, kind: str, data: bytes) -> E | Unknown:
        """Return the event of a record.

        Raises:
            msgspec.DecodeError: the data is not what :meth:`encode` of any version wrote.
        """
        upcaster = self._upcasters.get(kind)
        if upcaster is not None:
            value = upcaster(msgspec.json.decode(data, type=dict[str, Any]))
            kind = str(value.get("type", kind))
            data = self._encoder.encode(value)
        decoder = self._decoders.get(kind)
        return Unknown(kind, data) if decoder is None else decoder.decode(data)
