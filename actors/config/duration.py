"""Durations in Go's syntax, as agent files and query parameters write them: text ↔ seconds, nothing else."""

from __future__ import annotations

import re

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_LIMIT = 2**63
_LONGEST = 100


def parse_nanoseconds(text: str) -> int:
    """Return the nanoseconds of a duration such as ``300ms``, ``1m30s`` or ``-1.5h``.

    Raises:
        ValueError: not a duration: no unit (only ``0`` may go without), or beyond 292 years.
    """
    problem = f"invalid duration {text[:_LONGEST]!r}"
    negative = text.startswith("-")
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    if not rest or len(text) > _LONGEST:
        raise ValueError(problem)
    total, position = 0, 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None or not (part[1] or part[2]):
            missing = re.fullmatch(r"[0-9]*\.?[0-9]+", rest)
            raise ValueError(f"{problem}: missing unit (such as '10s' or '1m30s')" if missing else problem)
        unit = _UNITS[part[3]]
        fraction = part[2] or ""
        total += int(part[1] or 0) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)
        position = part.end()
    if total >= _LIMIT:
        raise ValueError(problem)
    return -total if negative else total


def parse_duration(text: str) -> float:
    """Return the seconds of a duration in Go's syntax.

    Raises:
        ValueError: see :func:`parse_nanoseconds`.
    """
    return parse_nanoseconds(text) / 1e9


def format_duration(seconds: float) -> str:
    """Return ``seconds`` the way Go prints a duration: ``1m0s``, ``1.5s``, ``300ms``, ``0s``."""
    nanoseconds = round(seconds * 1e9)
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest == 0:
        return "0s"
    if rest < _UNITS["s"]:
        unit = "ms" if rest >= _UNITS["ms"] else "µs" if rest >= _UNITS["us"] else "ns"
        return f"{sign}{_decimal(rest, _UNITS[unit])}{unit}"
    hours, rest = divmod(rest, _UNITS["h"])
    minutes, rest = divmod(rest, _UNITS["m"])
    text = f"{_decimal(rest, _UNITS['s'])}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else sign + text


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    digits = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)
