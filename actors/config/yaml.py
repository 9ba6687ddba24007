"""YAML text → a tree of nodes that remember their lines; what YAML can be abused for is refused here.

Typing follows YAML 1.2: ``yes``, ``no``, ``on``, ``off``, ``y`` and ``n`` are text. Keys are text as they are written,
so ``1`` and ``"1"`` are the same key. What a value means is decided by :mod:`actors.config.decode`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from actors.config.errors import ConfigError

MAX_BYTES = 1 << 20
"""Largest file that is read."""
MAX_DEPTH = 100
"""Deepest nesting of maps and lists."""
MAX_WEIGHT = 200_000
"""Largest number of values after aliases are expanded; a text counts once more per 32 characters."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE = frozenset(("true", "True", "TRUE"))
_FALSE = frozenset(("false", "False", "FALSE"))
_INTEGER = re.compile(r"[-+]?[0-9]{1,40}|0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}

Value = Any
"""``None``, bool, int, float, str, or lists and maps of these."""


@dataclass(frozen=True)
class Scalar:
    """A single value. ``plain`` values have a type of their own; quoted and block ones are text."""

    text: str
    plain: bool
    line: int

    @property
    def value(self) -> bool | int | float | str | None:
        """The value with its type."""
        return _resolve(self.text) if self.plain else self.text

    @property
    def is_null(self) -> bool:
        """Whether nothing was written, or ``null``."""
        return self.plain and self.text in _NULL


@dataclass(frozen=True)
class Sequence:
    """A list."""

    items: list[Node]
    line: int


@dataclass(frozen=True)
class Entry:
    """A key's value and the line of the key."""

    node: Node
    line: int


@dataclass(frozen=True)
class Mapping:
    """A map in file order; merge keys are already expanded."""

    entries: dict[str, Entry]
    line: int


Node = Scalar | Sequence | Mapping


def plain(node: Node) -> Value:
    """Return the node as a plain value, for free-form parts."""
    match node:
        case Scalar():
            return node.value
        case Sequence():
            return [plain(item) for item in node.items]
        case Mapping():
            return {key: plain(entry.node) for key, entry in node.entries.items()}


def parse(text: str, file: str = "") -> Node | None:
    """Parse one YAML document; ``None`` when there is nothing in it.

    Raises:
        ConfigError: not YAML, more than one document, a duplicate key, a tag or key that is not supported, or more
            than the bounds above allow, with the line.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError("the file is not valid Unicode text", file) from None
    try:
        return _Builder(file).build(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, file) from error
    except yaml.YAMLError as error:
        problem = str(error).partition("\n")[0]
        raise ConfigError(f"invalid YAML: {problem}", file) from error


def _syntax_error(error: yaml.MarkedYAMLError, text: str, file: str) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 0
    lines = text.splitlines()
    if 0 < line <= len(lines):
        content = lines[line - 1]
        if "\t" in content[: len(content) - len(content.lstrip())]:
            return ConfigError("tabs cannot be used for indentation in YAML; use spaces", file, line)
    problem = error.problem or error.context or "not understood"
    if error.context and error.problem:
        problem = f"{error.problem} {error.context}"
    return ConfigError(f"invalid YAML: {problem}", file, line)


def _resolve(text: str) -> bool | int | float | str | None:
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INTEGER.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    special = _SPECIAL.get(text.lower())
    return float(special) if special else text


@dataclass
class _Frame:
    """A map or list that is being read."""

    node: Sequence | Mapping
    anchor: str | None
    started: int
    key: Scalar | None = None
    merges: list[Mapping] = field(default_factory=list[Mapping])

    @property
    def label(self) -> str:
        if isinstance(self.node, Sequence):
            return f"[{len(self.node.items)}]"
        return f".{self.key.text}" if self.key else ""


class _Builder:
    """Builds nodes from parser events without recursion, weighing aliases before anything expands them."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._frames: list[_Frame] = []
        self._anchors: dict[str, tuple[Node, int] | None] = {}
        self._weight = 0
        self._root: Node | None = None
        self._documents = 0

    def build(self, events: Iterator[Any]) -> Node | None:
        for event in events:
            line = event.start_mark.line + 1
            match event:
                case yaml.DocumentStartEvent():
                    self._documents += 1
                    if self._documents > 1:
                        raise self._error("a file may hold only one YAML document", line)
                case yaml.ScalarEvent():
                    self._scalar(event, line)
                case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                    self._open(event, line)
                case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                    self._close()
                case yaml.AliasEvent():
                    self._alias(str(event.anchor), line)
                case _:
                    pass
        root = self._root
        return None if isinstance(root, Scalar) and root.is_null else root

    def _error(self, problem: str, line: int, hint: str = "") -> ConfigError:
        path = "".join(frame.label for frame in self._frames).lstrip(".")
        return ConfigError(problem, self._file, line, path, hint)

    def _weigh(self, amount: int, line: int) -> None:
        self._weight += amount
        if self._weight > MAX_WEIGHT:
            raise self._error(f"the file expands to more than {MAX_WEIGHT} values", line)

    def _scalar(self, event: Any, line: int) -> None:
        text: str = event.value
        self._weigh(1 + len(text) // 32, line)
        if "\0" in text:
            raise self._error("NUL characters are not supported", line)
        tag: str | None = event.tag
        node = Scalar(text, bool(event.implicit[0]) and tag != "!", line)
        if tag and tag != "!":
            name = tag.removeprefix(_TAG)
            types: dict[str, tuple[type, ...]] = {
                "str": (str,),
                "int": (int,),
                "float": (int, float),
                "bool": (bool,),
                "null": (type(None),),
            }
            if name not in types:
                raise self._error(f"the tag {_shown(tag)} is not supported", line)
            node = Scalar(text, name != "str", line)
            if not isinstance(node.value, types[name]) or (name == "int" and isinstance(node.value, bool)):
                raise self._error(f"{text[:40]!r} is not of the type that its tag {_shown(tag)} says", line)
        if event.anchor:
            self._anchors[event.anchor] = (node, 1 + len(text) // 32)
        self._place(node, line)

    def _open(self, event: Any, line: int) -> None:
        is_list = isinstance(event, yaml.SequenceStartEvent)
        if event.tag not in (None, "!", _TAG + ("seq" if is_list else "map")):
            raise self._error(f"the tag {_shown(event.tag)} is not supported", line)
        if len(self._frames) >= MAX_DEPTH:
            raise self._error(f"maps and lists are nested deeper than {MAX_DEPTH} levels", line)
        parent = self._frames[-1] if self._frames else None
        if parent and isinstance(parent.node, Mapping) and parent.key is None:
            raise self._error("a key must be a single value, not a list or a map", line)
        if event.anchor:
            self._anchors[event.anchor] = None
        started = self._weight
        self._weigh(1, line)
        node: Sequence | Mapping = Sequence([], line) if is_list else Mapping({}, line)
        self._frames.append(_Frame(node, event.anchor, started))

    def _close(self) -> None:
        frame = self._frames.pop()
        if isinstance(frame.node, Mapping):
            for merged in frame.merges:
                for key, entry in merged.entries.items():
                    frame.node.entries.setdefault(key, entry)
        if frame.anchor:
            self._anchors[frame.anchor] = (frame.node, self._weight - frame.started)
        self._place(frame.node, frame.node.line)

    def _alias(self, anchor: str, line: int) -> None:
        if anchor not in self._anchors:
            raise self._error(f"the alias '*{anchor}' has no anchor before it", line)
        target = self._anchors[anchor]
        if target is None:
            raise self._error(f"the alias '*{anchor}' stands for something that contains it", line)
        node, weight = target
        self._weigh(weight, line)
        self._place(node, line)

    def _place(self, node: Node, line: int) -> None:
        if not self._frames:
            self._root = node
            return
        frame = self._frames[-1]
        if isinstance(frame.node, Sequence):
            frame.node.items.append(node)
        elif frame.key is None:
            frame.key = self._key(frame.node, node, line)
        else:
            key, frame.key = frame.key, None
            if key.plain and key.text == "<<":
                if frame.merges:
                    raise self._error("duplicate key '<<'", key.line, "write a list of aliases: <<: [*a, *b]")
                frame.merges = self._merged(node, line)
            else:
                frame.node.entries[key.text] = Entry(node, key.line)

    def _key(self, mapping: Mapping, node: Node, line: int) -> Scalar:
        if not isinstance(node, Scalar):
            raise self._error("a key must be a single value, not a list or a map", line)
        if node.plain and node.text == "":
            raise self._error("a key is empty", line)
        key = Scalar(node.text, node.plain, line)
        if key.text in mapping.entries:
            before = mapping.entries[key.text].line
            self._frames[-1].key = key  # for the path in the error
            raise self._error(f"duplicate key {key.text[:80]!r}", line, f"first given in line {before}")
        return key

    def _merged(self, node: Node, line: int) -> list[Mapping]:
        nodes = node.items if isinstance(node, Sequence) else [node]
        maps = [item for item in nodes if isinstance(item, Mapping)]
        if len(maps) != len(nodes) or not maps:
            raise self._error("'<<' takes a map or a list of maps", line)
        return maps


def _shown(tag: str) -> str:
    return repr("!!" + tag.removeprefix(_TAG) if tag.startswith(_TAG) else tag[:80])
