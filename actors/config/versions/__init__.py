"""Older versions of the agent file: which exist, and how a document of one becomes a document of the latest."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from actors.config import yaml
from actors.config.errors import ConfigError
from actors.config.schema import LATEST
from actors.config.versions import v6

UPGRADES = MappingProxyType[int, Callable[[yaml.Mapping], yaml.Mapping]]({6: v6.upgrade})
"""Version → pure function from its documents to the next version's; a version that is not here only added keys."""


def version_of(document: yaml.Mapping, file: str = "") -> int:
    """Return the document's version; without the key it is the latest.

    Raises:
        ConfigError: not a version, or one that is not supported.
    """
    entry = document.entries.get("version")
    if entry is None or (isinstance(entry.node, yaml.Scalar) and entry.node.is_null):
        return LATEST
    text = entry.node.text if isinstance(entry.node, yaml.Scalar) else ""
    if (
        text.isascii()
        and text.isdigit()
        and len(text) < 4
        and str(int(text)) == text
        and 1 <= int(text) <= LATEST
    ):
        return int(text)
    problem = f"unsupported config version: {text[:40] or 'not text'} (valid versions: 1 to {LATEST})"
    raise ConfigError(problem, file, entry.line, "version")


def upgrade(document: yaml.Mapping, version: int) -> yaml.Mapping:
    """Return the document as one of the latest version; the ``version`` key stays as written."""
    for step in range(version, LATEST):
        change = UPGRADES.get(step)
        if change is not None:
            document = change(document)
    return document
