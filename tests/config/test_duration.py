"""Durations in Go's syntax, read and written."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.config.duration import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds", "shown"),
    [
        ("0", 0, "0s"),
        ("1m", 60, "1m0s"),
        ("1m30s", 90, "1m30s"),
        ("2h", 7200, "2h0m0s"),
        ("300ms", 0.3, "300ms"),
        ("1.5s", 1.5, "1.5s"),
        (".5h", 1800, "30m0s"),
        ("-10s", -10, "-10s"),
        ("+1us", 1e-6, "1µs"),
        ("1µs", 1e-6, "1µs"),
        ("100ns", 1e-7, "100ns"),
        ("1h1ms", 3600.001, "1h0m0.001s"),
    ],
)
def test_durations_are_read_and_shown_as_go_does(text: str, seconds: float, shown: str) -> None:
    assert parse_duration(text) == pytest.approx(seconds)
    assert format_duration(seconds) == shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10", "invalid duration '10': missing unit (such as '10s' or '1m30s')"),
        ("1.5", "invalid duration '1.5': missing unit (such as '10s' or '1m30s')"),
        ("", "invalid duration ''"),
        ("s", "invalid duration 's'"),
        (".s", "invalid duration '.s'"),
        ("1 s", "invalid duration '1 s'"),
        ("1d", "invalid duration '1d'"),
        ("--1s", "invalid duration '--1s'"),
        ("٣s", "invalid duration '٣s'"),
        ("9999999h", "invalid duration '9999999h'"),
    ],
)
def test_what_is_no_duration_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"^invalid duration") as caught:
        parse_duration(text)
    assert str(caught.value) == message


@given(st.integers(-(10**15), 10**15))
def test_what_is_shown_can_be_read_again(microseconds: int) -> None:
    seconds = microseconds / 1e6
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds)


@given(st.text(alphabet="0123456789.hmsnuµ-+ ", max_size=20))
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert abs(parse_duration(text)) < 2**63
