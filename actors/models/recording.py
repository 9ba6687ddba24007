"""The file format of recorded model traffic: go-vcr's layout, reading, writing and comparing requests.

Knows no provider; ``cassette`` records and replays.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Struct, field

from actors.errors import Invalid
from actors.models.text import decode_or_text, is_array, is_object

OK = 200
_EDITS = (
    (re.compile(r"call_[a-z0-9-]+"), "call_ID"),
    (re.compile(r"Instructions from: [^\"\\]*"), "Instructions from: PATH"),
    (re.compile(r"The working directory is \\\"[^\"\\]*\\\""), r"The working directory is \"DIR\""),
)
_DROPPED = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"})
_DROPPED_OBJECTS = frozenset({"thinkingConfig", "reasoning"})


class Request(Struct, omit_defaults=False):
    """The request half of an interaction; what is not read keeps go-vcr's shape."""

    proto: str = "HTTP/1.1"
    proto_major: int = 1
    proto_minor: int = 1
    content_length: int = 0
    host: str = ""
    body: str = ""
    url: str = ""
    method: str = "POST"


class Response(Struct, omit_defaults=False):
    """The response half of an interaction."""

    proto: str = "HTTP/2.0"
    proto_major: int = 2
    proto_minor: int = 0
    content_length: int = -1
    body: str = ""
    headers: Any = field(default_factory=dict[str, Any])
    status: str = "200 OK"
    code: int = OK
    duration: str = "0s"


class Interaction(Struct):
    """One call and its answer."""

    id: int = 0
    request: Request = field(default_factory=Request)
    response: Response = field(default_factory=Response)


class Recording(Struct):
    """A whole file."""

    version: int = 2
    interactions: list[Interaction] = field(default_factory=list[Interaction])


def cassette_path(name: str) -> Path:
    """Return the file of a cassette: ``.yaml`` is added when missing."""
    return Path(name if name.endswith(".yaml") else name + ".yaml")


def normalised(body: str | bytes) -> Any:
    """Return a request body as JSON without what may differ between recording and replay.

    Ids of tool calls, output limits, thinking settings, a tool choice in words, and paths of instruction files and
    of the working directory do not count.
    """
    text = body if isinstance(body, str) else body.decode()
    for pattern, replacement in _EDITS:
        text = pattern.sub(replacement, text)
    return _without_settings(decode_or_text(text.encode()))


def _without_settings(value: Any) -> Any:
    if is_array(value):
        return [_without_settings(item) for item in value]
    if not is_object(value):
        return value
    return {
        key: _without_settings(item)
        for key, item in value.items()
        if not (
            (key in _DROPPED and isinstance(item, int))
            or (key in _DROPPED_OBJECTS and isinstance(item, dict))
            or (key == "tool_choice" and isinstance(item, str))
        )
    }


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, so that a recording can be read."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def read_recording(path: Path) -> Recording:
    """Return the contents of a file.

    Raises:
        Invalid: it cannot be read or has another layout.
    """
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return msgspec.convert(yaml.load(path.read_bytes(), Loader=loader), Recording)  # noqa: S506 a safe loader
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise Invalid(f"cassette {path}: {error}") from error


def write_recording(path: Path, recording: Recording) -> None:
    """Replace the file at once: a reader sees the old contents or the new."""
    text = "---\n" + yaml.dump(
        msgspec.to_builtins(recording),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=2**20,
        indent=4,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    os.close(descriptor)
    try:
        Path(temporary).write_text(text, encoding="utf-8")
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
