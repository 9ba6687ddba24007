"""Flavors: named patches of the file itself, laid over the document before anything reads it.

A patch is a JSON Merge Patch (RFC 7386) written in YAML: maps merge, other values replace, null removes. Two additions:
``key+`` appends to a list, ``key-`` removes from a list (equal items, or maps that contain the given keys) or from a
map (by key).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from actors.config import yaml
from actors.config.errors import ConfigError

logger = logging.getLogger("greenroom.config")


def apply_flavors(document: yaml.Mapping, names: Sequence[str], file: str = "") -> yaml.Mapping:
    """Return the document with the named flavors laid over it in order; unknown names change nothing.

    Raises:
        ConfigError: a flavor is no map, or patches something that has another shape.
    """
    entry = document.entries.get("flavors")
    flavors = entry.node.entries if entry and isinstance(entry.node, yaml.Mapping) else {}
    for name in names:
        flavor = flavors.get(name)
        if flavor is None:
            logger.debug("flavor not defined", extra={"flavor": name, "file": file})
            continue
        if isinstance(flavor.node, yaml.Scalar) and flavor.node.is_null:
            continue
        if not isinstance(flavor.node, yaml.Mapping):
            problem = f"flavors.{name} must be a map to lay over the file"
            raise ConfigError(problem, file, flavor.line, f"flavors.{name}")
        document = _Patch(file, f"flavors.{name}").merge(document, flavor.node)
    return document


class _Patch:
    def __init__(self, file: str, path: str) -> None:
        self._file = file
        self._path = path

    def _error(self, problem: str, entry: yaml.Entry) -> ConfigError:
        return ConfigError(f"{self._path}: {problem}", self._file, entry.line, self._path)

    def merge(self, base: yaml.Node | None, patch: yaml.Mapping) -> yaml.Mapping:
        entries = dict(base.entries) if isinstance(base, yaml.Mapping) else {}
        for key, entry in patch.entries.items():
            node = entry.node
            if len(key) > 1 and key.endswith("+"):
                self._append(entries, key[:-1], entry)
            elif len(key) > 1 and key.endswith("-"):
                self._remove(entries, key[:-1], entry)
            elif isinstance(node, yaml.Scalar) and node.is_null:
                entries.pop(key, None)
            elif isinstance(node, yaml.Mapping):
                before = entries.get(key)
                entries[key] = yaml.Entry(self.merge(before.node if before else None, node), entry.line)
            else:
                entries[key] = entry
        return yaml.Mapping(entries, base.line if base else patch.line)

    def _items(self, key: str, entry: yaml.Entry) -> list[yaml.Node]:
        if not isinstance(entry.node, yaml.Sequence):
            raise self._error(f"{key!r} needs a list", entry)
        return entry.node.items

    def _append(self, entries: dict[str, yaml.Entry], key: str, entry: yaml.Entry) -> None:
        added = self._items(f"{key}+", entry)
        before = entries.get(key)
        match before.node if before else None:
            case yaml.Mapping():
                raise self._error(f"'{key}+' appends to a list, but {key!r} is a map", entry)
            case yaml.Sequence(items):
                present = items
            case yaml.Scalar() as scalar if not scalar.is_null:
                present = [scalar]
            case _:
                present = []
        entries[key] = yaml.Entry(yaml.Sequence([*present, *added], entry.line), entry.line)

    def _remove(self, entries: dict[str, yaml.Entry], key: str, entry: yaml.Entry) -> None:
        removed = self._items(f"{key}-", entry)
        before = entries.get(key)
        if before is None or (isinstance(before.node, yaml.Scalar) and before.node.is_null):
            return
        match before.node:
            case yaml.Sequence(items, line):
                kept = [item for item in items if not any(_matches(item, wanted) for wanted in removed)]
                entries[key] = yaml.Entry(yaml.Sequence(kept, line), before.line)
            case yaml.Mapping(present, line):
                names = {item.text for item in removed if isinstance(item, yaml.Scalar)}
                if len(names) < len(removed):
                    raise self._error(f"'{key}-' removes keys of a map and takes their names", entry)
                left = {name: value for name, value in present.items() if name not in names}
                entries[key] = yaml.Entry(yaml.Mapping(left, line), before.line)
            case yaml.Scalar():
                raise self._error(f"'{key}-' removes from a list or a map, but {key!r} is neither", entry)


def _matches(item: yaml.Node, wanted: yaml.Node) -> bool:
    """Tell whether a list's item is the wanted one: a map has at least the wanted keys, the rest is equal."""
    if not isinstance(wanted, yaml.Mapping):
        return bool(yaml.plain(item) == yaml.plain(wanted))
    return isinstance(item, yaml.Mapping) and all(
        key in item.entries and _matches(item.entries[key].node, entry.node)
        for key, entry in wanted.entries.items()
    )
