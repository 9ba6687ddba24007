"""Shortening JSON so that it stays JSON: trailing list entries go first, then the ends of long texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from actors.tools.http_api.call import is_array

JSON = Any
MARK = "…"


def size(value: JSON) -> int:
    """Return the characters of a value as JSON."""
    return len(dumps(value))


def dumps(value: JSON) -> str:
    """Return compact JSON; text stays as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def fit(value: JSON, room: int) -> JSON:
    """Return the value shortened to at most ``room`` characters of JSON (a little more when room is tiny).

    Lists lose entries from their ends; only when that is not enough are texts cut and trailing keys dropped.
    """
    if size(value) <= room:
        return value
    shorter = _shrink(value, room, texts=False)
    return shorter if size(shorter) <= room else _shrink(value, room, texts=True)


def _shrink(value: JSON, room: int, *, texts: bool) -> JSON:
    if size(value) <= room:
        return value
    if isinstance(value, str):
        return _cut(value, room) if texts else value
    if is_array(value):
        return _shrink_list(value, room - 2, texts=texts)
    if isinstance(value, Mapping):
        return _shrink_object(cast("Mapping[str, JSON]", value), room - 2, texts=texts)
    return value


def _shrink_list(items: list[JSON], room: int, *, texts: bool) -> list[JSON]:
    kept: list[JSON] = []
    used = 0
    for item in items:
        cost = size(item) + bool(kept)
        if used + cost > room:
            break
        kept.append(item)
        used += cost
    if not kept and items:
        smaller = _shrink(items[0], room, texts=texts)
        return [smaller] if size(smaller) <= room else []
    return kept


def _shrink_object(entries: Mapping[str, JSON], room: int, *, texts: bool) -> dict[str, JSON]:
    """Return the object with its room shared fairly: what is small stays whole, what is large is shortened."""
    names = list(entries)
    overhead = {name: size(name) + 2 for name in names}
    if texts:
        while names and sum(overhead[name] + 2 for name in names) > room:
            names.pop()
    left = room - sum(overhead[name] for name in names)
    sizes = {name: size(entries[name]) for name in names}
    if not texts:
        fixed = [name for name in names if not isinstance(entries[name], list | dict)]
        left -= sum(sizes[name] for name in fixed)
        sizes = {name: length for name, length in sizes.items() if name not in set(fixed)}
    shares: dict[str, int] = {}
    waiting = sorted(sizes, key=lambda name: sizes[name])
    for index, name in enumerate(waiting):
        shares[name] = min(sizes[name], max(left, 0) // (len(waiting) - index))
        left -= shares[name]
    return {
        name: _shrink(entries[name], shares[name], texts=texts) if name in shares else entries[name]
        for name in names
    }


def _cut(text: str, room: int) -> str:
    """Return the longest beginning of a text that fits with its quotes and a mark."""
    low, high = 0, max(min(len(text), room), 0)
    while low < high:
        middle = (low + high + 1) // 2
        if size(text[:middle] + MARK) <= room:
            low = middle
        else:
            high = middle - 1
    return text[:low] + MARK
