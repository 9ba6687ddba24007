"""Files below a directory that others can write to: read and replaced without following any link. Synchronous."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from actors.tools.workspace import Place, open_directory

JSON = Any
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
RECORD_LIMIT = 64 * 1024 * 1024
"""Bytes of a file that is read whole."""


def write_file(root: Path, names: Sequence[str], data: bytes, *, durable: bool = True) -> None:
    """Put a file in place as a whole; missing directories below ``root`` are made.

    Args:
        root: An existing directory; it may be reached through links.
        names: The file below it.
        data: Its content.
        durable: Wait until the disk has it; else a power cut may lose the change, and leave an empty file.

    Raises:
        OSError: the disk refuses, or a link stands in the way; an existing file is then untouched.
    """
    with open_directory(Place(root, tuple(names[:-1])), create=True) as directory:
        temporary = f".{secrets.token_hex(8)}.tmp"
        descriptor = os.open(temporary, _NEW, 0o666, dir_fd=directory)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                if durable:
                    file.flush()
                    os.fsync(descriptor)
            os.rename(temporary, names[-1], src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise
        if durable:
            os.fsync(directory)


def write_json(root: Path, names: Sequence[str], value: JSON, *, durable: bool = True) -> None:
    """Put a JSON file in place, indented for people. Raises: OSError."""
    data = msgspec.json.format(msgspec.json.encode(value), indent=2)
    write_file(root, names, data + b"\n", durable=durable)


def read_file(root: Path, names: Sequence[str], limit: int = RECORD_LIMIT) -> bytes | None:
    """Return a file's content, or nothing when there is none.

    Raises:
        OSError: it is not a regular file, has more than ``limit`` bytes, or cannot be read.
    """
    try:
        with open_directory(Place(root, tuple(names[:-1]))) as directory:
            descriptor = os.open(names[-1], _READ, dir_fd=directory)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{'/'.join(names)} is not a regular file")
        if status.st_size > limit:
            raise OSError(f"{'/'.join(names)} has {status.st_size} bytes, more than {limit}")
        return file.read(limit)


def remove_file(root: Path, names: Sequence[str]) -> None:
    """Remove a file; one that is not there is no error. Raises: OSError."""
    with suppress(FileNotFoundError), open_directory(Place(root, tuple(names[:-1]))) as directory:
        os.unlink(names[-1], dir_fd=directory)


def names_in(root: Path, names: Sequence[str], ending: str) -> list[str]:
    """Return the names with this ending in a directory, sorted; none when it is missing. Raises: OSError."""
    try:
        with open_directory(Place(root, tuple(names))) as directory:
            return sorted(name for name in os.listdir(directory) if name.endswith(ending))  # noqa: PTH208
    except FileNotFoundError:
        return []
