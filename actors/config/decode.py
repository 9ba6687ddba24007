"""Nodes → the schema's structs, collecting every problem with its line; rules across objects are elsewhere.

Text is taken as written where the schema wants text, so ``mode: off`` and ``version: 2`` mean what they look like.
"""

from __future__ import annotations

import difflib
import math
import types
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Meta, Struct, structs

from actors.config import yaml
from actors.config.duration import parse_duration
from actors.config.errors import ConfigError
from actors.config.forms import Form, Shorthand
from actors.config.schema import LATEST, Config, RagSource, Toolset
from actors.config.versions.keys import newer_hint, removed_hint, since
from actors.tools.options import OPTIONS, McpOptions

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "adaptive")
"""Words for ``thinking_budget``; ``adaptive/<word>`` is one too."""

BAD: Any = object()
"""Stands for a value that could not be decoded; its problem is recorded."""


class Field(NamedTuple):
    """One key of an object."""

    attribute: str
    type: Any
    required: bool
    collects_rest: bool


@cache
def fields_of(struct: type[Struct]) -> Mapping[str, Field]:
    """Return the keys that users may write in an object, by name."""
    hints = get_type_hints(struct, include_extras=True)
    found: dict[str, Field] = {}
    for item in structs.fields(struct):
        hint = hints[item.name]
        rest = Form.REST in getattr(hint, "__metadata__", ())
        required = item.default is NODEFAULT and item.default_factory is NODEFAULT
        if item.encode_name != "Name":  # an agent's name is its key in the file
            found[item.encode_name] = Field(item.name, hint, required, rest)
    return found


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` for the nearest known word, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else ""


class Decoder:
    """Decodes one file.

    Args:
        file: Name for messages.
        version: The file's version; keys that came later are unknown.

    Attributes:
        problems: What was wrong, in file order.
        lines: Line of every key that was decoded, by path.
    """

    def __init__(self, file: str, version: int = LATEST) -> None:
        self.file = file
        self.version = version
        self.problems: list[ConfigError] = []
        self.lines: dict[str, int] = {}

    def config(self, node: yaml.Mapping) -> Config | None:
        """Decode a whole file; ``None`` when it has problems."""
        config = self._struct(node, Config, "")
        if self.problems or not isinstance(config, Config):
            return None
        named = {name: structs.replace(agent, name=name) for name, agent in config.agents.items()}
        return structs.replace(config, agents=named)

    def report(self, problem: str, line: int, path: str, hint: str = "") -> Any:
        """Record a problem and return :data:`BAD`."""
        self.problems.append(ConfigError(problem, self.file, line, path, hint))
        return BAD

    def decode(self, node: yaml.Node, kind: Any, path: str) -> Any:
        """Decode ``node`` as ``kind``, which is any type that the schema uses."""
        origin = get_origin(kind)
        if origin is Annotated:
            return self._annotated(node, kind.__origin__, kind.__metadata__, path)
        if kind is Any:
            return self._free(node, path)
        if origin in (types.UnionType, Union):
            return self._union(node, get_args(kind), path)
        if origin is Literal:
            return self._word(node, get_args(kind), path)
        if origin is list:
            return self._list(node, get_args(kind)[0], path)
        if origin is dict:
            return self._dict(node, get_args(kind)[1], path)
        if isinstance(kind, type) and issubclass(kind, Struct):
            return self._object(node, kind, path)
        return self._scalar(node, kind, path)

    # --- objects ---

    def _object(self, node: yaml.Node, kind: type[Struct], path: str) -> Any:
        if isinstance(node, yaml.Scalar) and node.is_null:
            node = yaml.Mapping({}, node.line)
        if not isinstance(node, yaml.Mapping):
            return self._wrong(node, "a map", path)
        if kind is Toolset:
            return self._toolset(node, path)
        if kind is McpOptions and "type" not in node.entries:
            entries = {"type": yaml.Entry(yaml.Scalar("mcp", False, node.line), node.line), **node.entries}
            node = yaml.Mapping(entries, node.line)
        return self._struct(node, kind, path)

    def _struct(self, node: yaml.Mapping, kind: type[Struct], path: str) -> Any:
        known = fields_of(kind)
        rest_field = next((field for field in known.values() if field.collects_rest), None)
        values: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        failed = False
        for key, entry in node.entries.items():
            inner = f"{path}.{key}" if path else key
            self.lines[inner] = entry.line
            field = known.get(key)
            if field is None or field.collects_rest:
                if rest_field:
                    rest[key] = self._free(entry.node, inner)
                else:
                    self._unknown(key, entry.line, kind, known, path)
                continue
            if since(kind.__name__, key) > self.version:
                hint = newer_hint(kind.__name__, key, self.version)
                self.report(_unknown_key(key, path), entry.line, inner, hint)
                continue
            if isinstance(entry.node, yaml.Scalar) and entry.node.is_null and not field.required:
                continue
            value = self.decode(entry.node, field.type, inner)
            if value is BAD:
                failed = True
            else:
                values[field.attribute] = value
        if rest_field:
            values[rest_field.attribute] = rest
        for key, field in known.items():
            if field.required and key not in node.entries:
                failed = True
                self.report(f"{path or 'the file'} needs the key {key!r}", node.line, path)
        if failed:
            return BAD
        try:
            return kind(**values)
        except ValueError as error:
            return self.report(f"{path}: {error}", node.line, path)

    def _unknown(
        self, key: str, line: int, kind: type[Struct], known: Mapping[str, Field], path: str
    ) -> None:
        inner = f"{path}.{key}" if path else key
        if issubclass(kind, Toolset):
            owners = [repr(name) for name, options in OPTIONS.items() if key in fields_of(options)]
            if owners:
                listed = " or ".join(filter(None, (", ".join(owners[:-1]), owners[-1])))
                self.report(f"{key} can only be used with type {listed}", line, inner)
                return
        name = "Toolset" if issubclass(kind, Toolset) else kind.__name__
        self.report(_unknown_key(key, path), line, inner, removed_hint(name, key) or suggestion(key, known))

    def _toolset(self, node: yaml.Mapping, path: str) -> Any:
        entry = node.entries.get("type")
        if entry is None:
            return self.report(f"{path} needs the key 'type'", node.line, path)
        name = self.decode(entry.node, str, f"{path}.type")
        if name is BAD:
            return BAD
        options = OPTIONS.get(name)
        if options is None:
            return self.report(
                f"unknown toolset type {name[:80]!r} in {path}",
                entry.line,
                f"{path}.type",
                suggestion(name, OPTIONS),
            )
        source = node.entries.get("rag_config")
        if name == "rag" and source is not None:
            self.decode(source.node, RagSource, f"{path}.rag_config")
        return self._struct(node, options, path)

    # --- other shapes ---

    def _annotated(self, node: yaml.Node, kind: Any, marks: tuple[object, ...], path: str) -> Any:
        limits: Meta | None = None
        for mark in marks:
            match mark:
                case Shorthand(field) if isinstance(node, yaml.Scalar) and not node.is_null:
                    node = yaml.Mapping({field: yaml.Entry(node, node.line)}, node.line)
                case Form.ONE_OR_MANY if not isinstance(node, yaml.Sequence):
                    empty = isinstance(node, yaml.Scalar) and node.is_null
                    node = yaml.Sequence([] if empty else [node], node.line)
                case Form.PAIRS if isinstance(node, yaml.Sequence):
                    return self._pairs(node, kind, path)
                case Form.PARAGRAPHS if isinstance(node, yaml.Sequence):
                    texts = self._list(node, str, path)
                    return BAD if texts is BAD else "\n\n".join(texts)
                case Form.DURATION:
                    return self._duration(node, path)
                case Form.THINKING:
                    return self._thinking(node, path)
                case Meta():
                    limits = mark
                case _:
                    pass
        value = self.decode(node, kind, path)
        if limits is not None and value is not BAD:
            problem = _outside(value, limits)
            if problem:
                return self.report(f"{path} must be {problem}, not {value!r}", node.line, path)
        return value

    def _pairs(self, node: yaml.Sequence, kind: Any, path: str) -> Any:
        entries: dict[str, yaml.Entry] = {}
        for item in node.items:
            if not isinstance(item, yaml.Mapping) or len(item.entries) != 1:
                return self.report(f"{path}: each item must be a map with one key", item.line, path)
            ((key, entry),) = item.entries.items()
            if key in entries:
                hint = f"first given in line {entries[key].line}"
                return self.report(f"duplicate key {key[:80]!r}", entry.line, f"{path}.{key}", hint)
            entries[key] = entry
        return self.decode(yaml.Mapping(entries, node.line), kind, path)

    def _union(self, node: yaml.Node, kinds: tuple[Any, ...], path: str) -> Any:
        if type(None) in kinds and isinstance(node, yaml.Scalar) and node.is_null:
            return None
        members = [kind for kind in kinds if kind is not type(None)]
        if len(members) == 1:
            return self.decode(node, members[0], path)
        fitting = [kind for kind in members if _takes(kind, node)]
        if not fitting:
            return self._wrong(node, " or ".join(dict.fromkeys(map(_described, members))), path)
        return self.decode(node, fitting[0], path)

    def _list(self, node: yaml.Node, kind: Any, path: str) -> Any:
        if isinstance(node, yaml.Scalar) and node.is_null:
            return []
        if not isinstance(node, yaml.Sequence):
            return self._wrong(node, "a list", path)
        items: list[Any] = []
        for index, item in enumerate(node.items):
            inner = f"{path}[{index}]"
            self.lines[inner] = item.line
            items.append(self.decode(item, kind, inner))
        return BAD if BAD in items else items

    def _dict(self, node: yaml.Node, kind: Any, path: str) -> Any:
        if isinstance(node, yaml.Scalar) and node.is_null:
            return {}
        if not isinstance(node, yaml.Mapping):
            return self._wrong(node, "a map", path)
        found: dict[str, Any] = {}
        for key, entry in node.entries.items():
            inner = f"{path}.{key}"
            self.lines[inner] = entry.line
            found[key] = self.decode(entry.node, kind, inner)
        return BAD if BAD in found.values() else found

    def _free(self, node: yaml.Node, path: str) -> Any:
        for scalar in _scalars(node):
            value = scalar.value
            if isinstance(value, int | float) and not isinstance(value, bool) and not _is_number(value):
                return self.report(
                    f"{path} holds {scalar.text[:40]!r}, which is too large or no number", scalar.line, path
                )
        return yaml.plain(node)

    # --- single values ---

    def _scalar(self, node: yaml.Node, kind: Any, path: str) -> Any:
        if not isinstance(node, yaml.Scalar):
            return self._wrong(node, _described(kind), path)
        value = node.value
        if kind is str:
            return "" if node.is_null else node.text
        if kind is bool and isinstance(value, bool):
            return value
        if kind is int and isinstance(value, int) and _is_number(value):
            return value
        if kind is float and isinstance(value, int | float) and _is_number(value):
            return float(value)
        return self._wrong(node, _described(kind), path)

    def _word(self, node: yaml.Node, words: tuple[str, ...], path: str) -> Any:
        text = self._scalar(node, str, path)
        if text is BAD or text in words:
            return text
        listed = ", ".join(repr(word) for word in words if word)
        return self.report(
            f"{path} must be one of {listed}, not {text[:80]!r}", node.line, path, suggestion(text, words)
        )

    def _duration(self, node: yaml.Node, path: str) -> Any:
        text = self._scalar(node, str, path)
        if text is BAD or not text:
            return text
        try:
            seconds = parse_duration(text)
        except ValueError as error:
            return self.report(f"{path}: {error}", node.line, path)
        return (
            text if seconds >= 0 else self.report(f"{path}: a duration cannot be negative", node.line, path)
        )

    def _thinking(self, node: yaml.Node, path: str) -> Any:
        if isinstance(node, yaml.Scalar):
            value = node.value
            if isinstance(value, int) and not isinstance(value, bool) and -1 <= value < 2**63:
                return value
            base, slash, level = node.text.partition("/")
            if base in EFFORTS and (not slash or (base == "adaptive" and level in EFFORTS[1:-1])):
                return node.text
        return self._wrong(node, f"a number of tokens or one of {', '.join(EFFORTS)}, adaptive/<level>", path)

    def _wrong(self, node: yaml.Node, expected: str, path: str) -> Any:
        match node:
            case yaml.Mapping():
                found = "a map"
            case yaml.Sequence():
                found = "a list"
            case yaml.Scalar():
                found = "empty" if node.is_null else repr(node.text[:80])
        return self.report(f"{path or 'the file'} must be {expected}, not {found}", node.line, path)


def _unknown_key(key: str, path: str) -> str:
    return f"unknown key {key[:80]!r} in {path}" if path else f"unknown key {key[:80]!r} at the top level"


_NAMES: dict[Any, str] = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


def _is_number(value: Any) -> bool:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return numeric and math.isfinite(value) and abs(value) < 2**63


def _described(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        kind = kind.__origin__
    origin = get_origin(kind)
    return "a list" if origin is list else "a map" if origin is dict else _NAMES.get(kind, "a map")


def _takes(kind: Any, node: yaml.Node) -> bool:
    """Tell whether the node's shape is that of a union's member."""
    if get_origin(kind) is Annotated:
        kind = kind.__origin__
    match node:
        case yaml.Sequence():
            return get_origin(kind) is list
        case yaml.Mapping():
            return get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, Struct))
        case yaml.Scalar():
            value = node.value
            if kind is str:
                return not isinstance(value, bool)
            return kind in _NAMES and type(value) is kind


def _scalars(node: yaml.Node) -> Iterable[yaml.Scalar]:
    match node:
        case yaml.Scalar():
            yield node
        case yaml.Sequence():
            for item in node.items:
                yield from _scalars(item)
        case yaml.Mapping():
            for entry in node.entries.values():
                yield from _scalars(entry.node)


def _outside(value: Any, limits: Meta) -> str:
    """Return what the number should have been; empty when it is within the limits."""
    if limits.ge is not None and value < limits.ge:
        return f"at least {limits.ge}"
    if limits.gt is not None and value <= limits.gt:
        return f"more than {limits.gt}"
    if limits.le is not None and value > limits.le:
        return f"at most {limits.le}"
    return ""
