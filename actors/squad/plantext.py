"""A plan out of a model's text: JSON in fences or prose, with trailing commas, comments and fields of any spelling."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import msgspec

from actors.squad.plan import Draft

JSON = Any
TEXT_LIMIT = 400_000
"""Characters of an answer that are searched."""
_STARTS = 200
"""Openings of JSON that are tried."""

_ID = ("id", "taskid", "key", "name")
_TITLE = ("title", "name", "summary")
_DESCRIPTION = ("description", "goal", "details", "instructions", "prompt", "task")
_AGENT = ("assignedto", "agent", "agentid", "assignee", "assigned", "owner", "role")
_DEPENDS = ("dependson", "dependencies", "deps", "after", "needs", "requires", "blockedby")
_LISTS = ("tasks", "plan", "steps", "subtasks")
# One pass over strings, comments and commas, so that none of them is looked for inside another.
_LENIENT = re.compile(
    r"""("(?:[^"\\]|\\.)*")|(//[^\n]*|/\*.*?\*/)|(,(?=(?:\s|//[^\n]*|/\*.*?\*/)*[}\]]))""", re.DOTALL
)


def read_drafts(text: str) -> list[Draft]:
    """Return the tasks of the JSON value in ``text`` that has the most of them; empty when there is none."""
    best: list[Draft] = []
    for value in _values(text[:TEXT_LIMIT]):
        drafts = _drafts(value)
        if len(drafts) > len(best):
            best = drafts
    return best


def _values(text: str) -> Iterator[JSON]:
    """Return the outermost JSON objects and arrays in the text."""
    at = tried = 0
    while tried < _STARTS:
        found = re.compile(r"[{\[]").search(text, at)
        if found is None:
            return
        tried += 1
        end = _end_of(text, found.start())
        value = _decode(text[found.start() : end]) if end else None
        if value is None:
            at = found.start() + 1
            continue
        at = end
        yield value


def _end_of(text: str, start: int) -> int:
    """Return where the bracket at ``start`` is closed, 0 when it never is; brackets in strings do not count."""
    depth = 0
    for found in re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL).finditer(text, start):
        mark = found[0]
        if mark in "{[":
            depth += 1
        elif mark in "}]":
            depth -= 1
            if depth == 0:
                return found.end()
    return 0


def _decode(text: str) -> JSON:
    for candidate in (text, _LENIENT.sub(lambda found: found[1] or "", text)):
        try:
            return msgspec.json.decode(candidate)
        except (msgspec.DecodeError, UnicodeError):
            continue
    return None


def _drafts(value: JSON) -> list[Draft]:
    if _is_object(value):
        fields = _fields(value)
        for name in _LISTS:
            if name in fields and (drafts := _drafts(fields[name])):
                return drafts
        return []
    if not _is_array(value):
        return []
    found = [draft for item in value if _is_object(item) and (draft := _draft(item)) is not None]
    return found if len(found) * 2 >= len(value) else []


def _is_object(value: JSON) -> TypeGuard[Mapping[str, JSON]]:
    return isinstance(value, dict)


def _is_array(value: JSON) -> TypeGuard[Sequence[JSON]]:
    return isinstance(value, list)


def _draft(item: Mapping[str, JSON]) -> Draft | None:
    fields = _fields(item)
    title, description = _text(fields, _TITLE), _text(fields, _DESCRIPTION)
    if not title and not description:
        return None
    return Draft(
        id=_text(fields, _ID),
        title=title,
        description=description,
        agent=_text(fields, _AGENT),
        depends_on=_names(fields),
        priority=_text(fields, ("priority",)),
    )


def _fields(item: Mapping[str, JSON]) -> dict[str, JSON]:
    return {re.sub(r"[^a-z]", "", str(key).lower()): value for key, value in item.items()}


def _text(fields: Mapping[str, JSON], names: tuple[str, ...]) -> str:
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and value.strip():
            return value.strip()
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
    return ""


def _names(fields: Mapping[str, JSON]) -> tuple[str, ...]:
    for name in _DEPENDS:
        value = fields.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool):
            value = [value]
        if _is_array(value):
            return tuple(
                str(each).strip() for each in value if isinstance(each, str | int) and str(each).strip()
            )
    return ()
