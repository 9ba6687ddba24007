"""Small files of a workspace that the engine writes: whole ones by renaming, logs by appending. Synchronous."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

JSON = Any


def write_whole(path: Path, data: bytes) -> None:
    """Put a file in place: a reader or a crash meets the old content or the new. Raises: OSError."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def append_lines(path: Path, lines: Sequence[bytes]) -> None:
    """Append lines as one write. Raises: OSError."""
    if lines:
        with path.open("ab") as file:
            file.write(b"".join(line + b"\n" for line in lines))


def read_list(path: Path) -> list[JSON]:
    """Return a JSON array; empty when the file is missing or holds none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[JSON])
    except (FileNotFoundError, msgspec.MsgspecError):
        return []


def read_lines(path: Path) -> list[JSON]:
    """Return the JSON values of a file of lines; lines that are none are left out, a missing file is empty."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    found: list[JSON] = []
    for line in data.splitlines():
        try:
            found.append(msgspec.json.decode(line))
        except msgspec.DecodeError:
            continue
    return found
