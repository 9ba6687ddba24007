"""The pure parts: when a snapshot is due, and events as bytes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from actors.journal.codec import Codec, Unknown
from actors.journal.snapshot import Cadence


@pytest.mark.parametrize(
    ("records", "size", "snapshot_size", "due"),
    [
        (0, 0, 0, False),
        (99, 999, 0, False),
        (100, 10, 0, True),
        (1, 1000, 0, True),
        (100, 10, 11, False),
        (1, 1000, 5000, False),
        (500, 5000, 5000, True),
    ],
)
def test_a_snapshot_is_due_when_the_replay_costs_more(
    records: int, size: int, snapshot_size: int, due: bool
) -> None:
    assert Cadence(records=100, bytes=1000).due(records, size, snapshot_size) is due


class Said(msgspec.Struct, frozen=True, tag="said"):
    text: str
    by: str = "nobody"


class Left(msgspec.Struct, frozen=True, tag="left"):
    by: str


def shout(value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "said", "text": value["words"].upper()}


@pytest.mark.parametrize("event", [Said("hé\0llo", by="ann"), Left("bob")])
def test_events_come_back_from_their_bytes(event: Said | Left) -> None:
    codec = Codec[Said | Left](Said, Left)
    kind, data = codec.encode(event)
    assert kind == event.__struct_config__.tag
    assert codec.decode(kind, data) == event


def test_a_kind_from_the_future_is_kept_as_unknown() -> None:
    assert Codec[Said](Said).decode("sung", b'{"type":"sung"}') == Unknown("sung", b'{"type":"sung"}')


def test_an_old_kind_lives_on_through_its_upcaster() -> None:
    codec = Codec[Said | Left](Said, Left, upcasters={"shouted": shout})
    assert codec.decode("shouted", b'{"type":"shouted","words":"hey"}') == Said("HEY")


def test_damaged_data_is_an_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        Codec[Said](Said).decode("said", b'{"type":"said"}')


def test_two_events_cannot_share_a_tag() -> None:
    with pytest.raises(ValueError, match="tag"):
        Codec[Said](Said, Said)
