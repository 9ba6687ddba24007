"""Server-sent events as bytes: what a hostile payload cannot do, and where a client goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http import Request
from gateway.sse import LAST_SEQ, EventSource, SseDialect, encode, event_block, resume_point
from tests.gateway.kit import Following, Frame

SAMPLE = Path(__file__).parents[1] / "data/sse/cr_injection.json"
HOSTILE = (
    "a\revent: done\rid: 999",
    "x\r\n\r\ndata: x",
    "\n\n:c\n",
    "id\0: 7",
    "\ufeffdata: x",
    "\u2028\x85",
)


def parse(stream: bytes) -> list[dict[str, str]]:
    """Read a stream as the WHATWG standard says: lines end at CRLF, LF or a lone CR."""
    events: list[dict[str, str]] = []
    current: dict[str, str] = {}
    for line in stream.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if not line:
            if "data" in current:
                events.append(current)
            current = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            current[name] = f"{current[name]}\n{value}" if name == "data" and name in current else value
    return events


WIRE = SseDialect("test", lambda frame: msgspec.json.encode({"text": frame.event}))


def payloads() -> list[str]:
    return [*HOSTILE, *(json.loads(SAMPLE.read_text())["values"] if SAMPLE.exists() else ())]


@pytest.mark.parametrize("text", payloads())
def test_text_cannot_forge_fields(text: str) -> None:
    [event] = parse(encode(Frame(7, text), WIRE))
    assert event.keys() == {"id", "data"}
    assert event["id"] == "7"
    assert json.loads(event["data"]) == {"text": text}


@given(st.lists(st.text(), max_size=8))
def test_every_text_is_one_event_with_its_own_number(texts: list[str]) -> None:
    stream = b"".join(encode(Frame(number, text), WIRE) for number, text in enumerate(texts, 1))
    assert [(event["id"], json.loads(event["data"])["text"]) for event in parse(stream)] == [
        (str(number), text) for number, text in enumerate(texts, 1)
    ]


@pytest.mark.parametrize("data", [b"a\nb", b"a\rb"])
def test_data_of_more_than_one_line_is_a_bug_not_an_event(data: bytes) -> None:
    with pytest.raises(AssertionError):
        event_block(data)


def test_a_dialect_chooses_fields_hides_frames_and_splits_them() -> None:
    wire = SseDialect(
        "named",
        lambda frame: None if frame.event == "hidden" else [b"{}", b"[]"],
        event=lambda frame: f"squad:{frame.event}",
        id=lambda frame: f"boot-{frame.seq}",
    )
    assert encode(Frame(1, "hidden"), wire) == b""
    assert encode(Frame(2, "a"), wire) == (
        b"id: boot-2\nevent: squad:a\ndata: {}\n\nid: boot-2\nevent: squad:a\ndata: []\n\n"
    )


async def test_frames_that_are_not_for_the_dialect_wake_nobody() -> None:
    wire = SseDialect("picky", lambda frame: b"{}" if frame.event else None)
    source = EventSource(Following([[Frame(1), Frame(2)], [Frame(3, "a")]]), wire, None)
    assert await source.next() == b"id: 3\ndata: {}\n\n"
    assert await source.next() is None


def asked(query: str = "", header: str | None = None) -> int | None:
    headers: dict[str, Any] = {} if header is None else {"last-event-id": header}
    return resume_point(Request("GET", "/", query, headers))


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("0", 0),
        ("7", 7),
        ("007", 7),
        (" 12 ", 12),
        ("9223372036854775807", LAST_SEQ),
        ("18446744073709551616", LAST_SEQ),
        ("9" * 5000, LAST_SEQ),
        ("3, 7", 3),
        ("1,2", 1),
        ("", None),
        ("abc", None),
        ("-1", None),
        ("1e3", None),
        ("1;2", None),
        ("%31", None),
        ("\u0661", None),
        ("\u00b2", None),
    ],
)
def test_a_last_event_id_is_an_unsigned_number_or_nothing(text: str, after: int | None) -> None:
    assert asked(header=text) == after


def test_since_wins_over_the_header() -> None:
    assert asked("since=3", "7") == 3
    assert asked("since=", "7") == 7
    assert asked("since=abc", "7") is None
    assert asked() is None
