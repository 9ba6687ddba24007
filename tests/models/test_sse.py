from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.models.sse import EventTooLargeError, ServerSentEvent, SseDecoder


def decode(*pieces: bytes) -> list[ServerSentEvent]:
    decoder = SseDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.finish()


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_every_line_ending_ends_a_line(end: bytes) -> None:
    stream = end.join([b": hi", b"event: x", b"data: a", b"data:b", b"id: 7", b"", b"data: c", b"", b""])
    assert decode(stream) == [ServerSentEvent(b"x", b"a\nb"), ServerSentEvent(b"", b"c")]


def test_unicode_separators_do_not_cut_lines() -> None:
    text = "a\u2028b\u2029c\x85d\x0be\x0cf".encode()
    assert decode(b"data: " + text + b"\n\n") == [ServerSentEvent(b"", text)]


def test_missing_last_blank_line_still_ends_the_event() -> None:
    assert decode(b"data: [DONE]") == [ServerSentEvent(b"", b"[DONE]")]


def test_byte_order_mark_is_dropped_even_when_cut() -> None:
    assert decode(b"\xef", b"\xbb", b"\xbfdata: a\n\n") == [ServerSentEvent(b"", b"a")]


def test_event_name_does_not_leak_into_the_next_event() -> None:
    assert decode(b"event: x\n\ndata: a\n\n") == [ServerSentEvent(b"", b"a")]


def test_oversized_line_and_oversized_event_are_refused() -> None:
    with pytest.raises(EventTooLargeError):
        SseDecoder(limit=10).feed(b"data: 0123456789")
    with pytest.raises(EventTooLargeError):
        SseDecoder(limit=10).feed(b"data: 012345\ndata: 6789ab\n")


@given(
    st.lists(
        st.sampled_from([b"data: a", b"data: \xe2\x80\xa8", b"event: e", b": c", b"", b"data"]), max_size=12
    ),
    st.lists(st.sampled_from([b"\n", b"\r", b"\r\n"]), min_size=12, max_size=12),
    st.lists(st.integers(0, 200), max_size=6),
)
def test_result_does_not_depend_on_how_the_bytes_are_cut(
    lines: list[bytes], ends: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(line + end for line, end in zip(lines, ends, strict=False))
    places = sorted({min(cut, len(stream)) for cut in cuts})
    pieces = [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]
    assert decode(*pieces) == decode(stream)
