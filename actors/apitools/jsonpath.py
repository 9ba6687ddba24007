"""The part of JSONPath that response variables use: ``$``, ``.name``, ``['name']``, ``[n]`` and ``[*]``; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from actors.errors import Invalid
from actors.tools.http_api.call import is_array

JSON = Any
Step = str | int | None
"""A member's name, an entry's index (negative: from the end), or ``None`` for every entry."""
_STEP = re.compile(
    r"\.([A-Za-z_][\w-]*)|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]|\[(-?\d+)\]|\[(\*)\]|\.(\*)"
)


def parse_path(text: str) -> list[Step]:
    """Return a path's steps. Raises: Invalid when it is not of the supported part."""
    if not text.startswith("$"):
        raise Invalid(f"the JSONPath {text!r} must begin with $")
    steps: list[Step] = []
    at = 1
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise Invalid(f"the JSONPath {text!r} is not supported from {text[at:]!r} on")
        name = next((part for part in match.groups()[:3] if part is not None), None)
        if name is not None:
            steps.append(re.sub(r"\\(.)", r"\1", name))
        else:
            steps.append(int(match[4]) if match[4] else None)
        at = match.end()
    return steps


def first_match(text: str, value: JSON) -> tuple[bool, JSON]:
    """Return whether anything in ``value`` matches, and the first that does. Raises: Invalid for a bad path."""
    found = [value]
    for step in parse_path(text):
        found = [item for each in found for item in _children(each, step)]
    return (True, found[0]) if found else (False, None)


def _children(value: JSON, step: Step) -> list[JSON]:
    if step is None:
        if isinstance(value, Mapping):
            return list(cast("Mapping[str, JSON]", value).values())
        return value if is_array(value) else []
    if isinstance(step, str):
        if not isinstance(value, Mapping):
            return []
        named = cast("Mapping[str, JSON]", value)
        return [named[step]] if step in named else []
    items = value if is_array(value) else []
    return [items[step]] if -len(items) <= step < len(items) else []
