"""Output stays valid text of bounded size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.tools.text import Excerpt, clean_text, decode_output, truncate_output

LIMITS = (0, 1, 10, 100, 1000)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("offset", range(-4, 5))
@pytest.mark.parametrize("unit", ["a", "😀", "👩‍👩‍👧"])
def test_truncation_around_the_limit_keeps_whole_characters(limit: int, offset: int, unit: str) -> None:
    length = max(limit + offset, 0)
    text = ("a" * max(length - 4, 0) + unit * 8)[:length]
    cut = truncate_output(text, limit)
    assert len(cut) <= max(limit, 0)
    assert cut.encode().decode() == cut
    if len(text) <= limit:
        assert cut == text


def test_truncation_keeps_head_and_tail_and_says_how_much_is_missing() -> None:
    cut = truncate_output("head" + "x" * 10_000 + "tail", 1000)
    assert cut.startswith("head")
    assert cut.endswith("tail")
    shown = cut.count("x") + 8
    assert f"[... {10_008 - shown} characters omitted ...]" in cut


def test_unsendable_characters_are_replaced() -> None:
    assert clean_text("a\0b\ud800c\udfffd") == "a\ufffdb\ufffdc\ufffdd"
    assert decode_output(b"\xff\x00ok") == "\ufffd\ufffdok"
    clean_text("\ufeff\ud83d\ude00").encode()


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(0, 200))
def test_excerpt_equals_truncated_whole(pieces: list[bytes], limit: int) -> None:
    excerpt = Excerpt(limit)
    for piece in pieces:
        excerpt.feed(piece)
    excerpt.finish()
    assert excerpt.text() == truncate_output(decode_output(b"".join(pieces)), limit)


def test_excerpt_joins_characters_split_between_pieces() -> None:
    excerpt = Excerpt()
    assert [excerpt.feed(bytes([byte])) for byte in "😀".encode()] == ["", "", "", "😀"]
    excerpt.feed("é".encode()[:1])
    assert excerpt.finish() == "\ufffd"


def test_endless_output_is_held_in_bounded_memory() -> None:
    excerpt = Excerpt(1000)
    for _ in range(20_000):
        excerpt.feed(b"x" * 100)
    for _ in range(5000):
        excerpt.feed(b"y")
    held = sum(map(len, excerpt._head)) + sum(map(len, excerpt._tail))  # pyright: ignore[reportPrivateUsage]
    assert held < 5000
    assert len(excerpt._tail) <= 1100  # pyright: ignore[reportPrivateUsage]
    assert len(excerpt.text()) <= 1000
    assert excerpt.text().endswith("y")
