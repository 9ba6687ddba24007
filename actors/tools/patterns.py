r"""The pattern language of permission rules: ``tool`` or ``tool:argument=glob[:argument=glob]...``.

Matching ignores case. ``*`` and ``?`` match anything, newlines and slashes included; ``[...]`` is a class,
``\\`` takes the next character literally. What a match means is :mod:`actors.tools.policy`'s business.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

JSON = Any

_CONDITION = re.compile(r":(\w+)=")
_FLAGS = re.DOTALL | re.IGNORECASE


class Pattern(Struct, frozen=True):
    """A parsed rule: a glob for the tool's name and one glob per named argument, all of which must match."""

    tool: str
    conditions: tuple[tuple[str, str], ...] = ()


@lru_cache(4096)
def parse(text: str) -> Pattern:
    """Split a rule at every ``:<word>=``; a colon elsewhere is an ordinary character."""
    tool, *rest = _CONDITION.split(text)
    return Pattern(tool, tuple(zip(rest[::2], rest[1::2], strict=True)))


def as_text(value: JSON) -> str:
    """Return an argument as the text that globs are matched with: strings as they are, the rest as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def matches(glob: str, text: str) -> bool:
    """Tell whether the whole of ``text`` matches; time grows at most with the product of both lengths."""
    return _compile(glob, whole_words=False).fullmatch(text) is not None


def matches_words(glob: str, text: str) -> bool:
    """Like :func:`matches`, but a final ``*`` right after a word goes on only with a blank.

    ``git status*`` matches ``git status -s`` and not ``git statusx``.
    """
    return _compile(glob, whole_words=True).fullmatch(text) is not None


def is_exact(glob: str) -> bool:
    """Tell whether the glob has no special character and so names exactly one text."""
    return not any(special in glob for special in "*?[\\")


def matches_call(rule: str, tool: str, arguments: Mapping[str, JSON]) -> bool:
    """Tell whether a rule matches a call as it stands. A missing argument never matches."""
    pattern = parse(rule)
    return matches(pattern.tool, tool) and all(
        name in arguments and matches(glob, as_text(arguments[name])) for name, glob in pattern.conditions
    )


@lru_cache(4096)
def _compile(glob: str, *, whole_words: bool) -> re.Pattern[str]:
    segments: list[str] = [""]
    last_literal = ""
    index = 0
    while index < len(glob):
        char = glob[index]
        index += 1
        if char == "*":
            if segments[-1] or len(segments) == 1:
                segments.append("")
            continue
        if char == "?":
            segments[-1] += "."
            last_literal = ""
        elif char == "[" and (end := _class_end(glob, index)):
            segments[-1] += _class(glob[index:end])
            last_literal = ""
            index = end + 1
        else:
            if char == "\\" and index < len(glob):
                char = glob[index]
                index += 1
            segments[-1] += re.escape(char)
            last_literal = char
    open_ended = len(segments) > 1 and not segments[-1] and glob.endswith("*")
    if whole_words and open_ended and (last_literal.isalnum() or last_literal == "_"):
        ending = r"(?:[ \t].*)?"
    else:
        ending = ".*" + segments[-1] if len(segments) > 1 else ""
    # An atomic group commits to the first place a middle segment fits, so there is no exponential search.
    middle = segments[1:-1]
    if middle and whole_words and ending.startswith("(?:"):
        # Only here may an early fit be the wrong one, because the word must end where the segment does.
        *middle, final = middle
        return re.compile(
            segments[0] + "".join(f"(?>.*?{part})" for part in middle) + f".*?{final}{ending}", _FLAGS
        )
    return re.compile(segments[0] + "".join(f"(?>.*?{part})" for part in middle) + ending, _FLAGS)


def _class_end(glob: str, start: int) -> int:
    """Return where the class that begins at ``start`` closes; 0 when it does not (``[`` is then literal)."""
    first = start + (glob[start : start + 1] in {"!", "^"})
    return max(glob.find("]", first + 1), 0)


def _class(body: str) -> str:
    negated = body[0] in "!^"
    members = body[1:] if negated else body
    out = ""
    index = 0
    while index < len(members):
        low = members[index]
        if members[index + 1 : index + 2] == "-" and index + 2 < len(members):
            high = members[index + 2]
            out += f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""
            index += 3
        else:
            out += re.escape(low)
            index += 1
    if not out:
        return "." if negated else r"(?!)"
    return f"[{'^' if negated else ''}{out}]"
