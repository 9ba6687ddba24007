r"""``${env.NAME}`` and ``${headers.NAME}`` in values, filled in when they are used; a pure function of the mappings.

Only exactly these two forms mean anything. ``$${env.NAME}`` is the literal text ``${env.NAME}``. Every other dollar
sign (``$``, ``$$``, ``$X``, ``${X}``, ``${}``, ``\$``) and ``%X%`` is left alone, and what a value brings in is never
expanded again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

JSON = Any

_FORM = re.compile(r"(\$?)\$\{(?:env\.([A-Za-z_][A-Za-z0-9_]*)|headers\.([A-Za-z0-9!#$%&'*+.^_`|~-]+))\}")
_NOTHING: Mapping[str, str] = {}


def expand(text: str, env: Mapping[str, str], headers: Mapping[str, str] = _NOTHING) -> str:
    """Return ``text`` with its references replaced; one that has no value becomes empty.

    Args:
        text: Any text.
        env: Environment variables by name.
        headers: Headers of the API request by lower-case name.
    """
    if "${" not in text:
        return text

    def value(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        return env.get(found[2], "") if found[2] else headers.get(found[3].lower(), "")

    return _FORM.sub(value, text)


def expand_all(value: JSON, env: Mapping[str, str], headers: Mapping[str, str] = _NOTHING) -> JSON:
    """Return ``value`` with every text in it expanded, at any depth of lists and maps; keys stay."""
    if isinstance(value, str):
        return expand(value, env, headers)
    if isinstance(value, list):
        return [expand_all(item, env, headers) for item in cast("Sequence[JSON]", value)]
    if isinstance(value, dict):
        return {
            key: expand_all(item, env, headers) for key, item in cast("Mapping[str, JSON]", value).items()
        }
    return value


def variables(value: JSON) -> Iterator[str]:
    """Yield the names of the environment variables that expanding ``value`` would read."""
    if isinstance(value, str):
        yield from (found[2] for found in _FORM.finditer(value) if found[2] and not found[1])
    elif isinstance(value, list):
        for item in cast("Sequence[JSON]", value):
            yield from variables(item)
    elif isinstance(value, dict):
        for item in cast("Mapping[str, JSON]", value).values():
            yield from variables(item)
