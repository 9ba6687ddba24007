"""Filling in ``${env.NAME}`` and ``${headers.NAME}`` in configured values when they are used."""

from __future__ import annotations

import re
from collections.abc import Mapping

from actors.tools.tool import ToolContext

_REFERENCE = re.compile(r"\$\{(env|headers)\.([\w.-]+)\}")


def expand(text: str, context: ToolContext) -> str:
    """Return ``text`` with references replaced; an unknown name becomes empty. Values are not expanded again."""

    def value(match: re.Match[str]) -> str:
        if match[1] == "env":
            return context.env.get(match[2], "")
        return context.headers.get(match[2].lower(), "")

    return _REFERENCE.sub(value, text)


def expand_all(values: Mapping[str, str], context: ToolContext) -> dict[str, str]:
    """Return a mapping with all values expanded."""
    return {name: expand(value, context) for name, value in values.items()}
