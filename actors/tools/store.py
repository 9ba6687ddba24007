"""Small files of the tools' own under the data directory: whole or not at all, one writer at a time."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from actors.ids import wall_clock

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file as a whole; directories are made. A crash leaves the old content or the new.

    Raises:
        OSError: the disk refuses; the old content is untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make a rename or removal in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold a lock file, against other threads and other processes. Blocks; for use in a worker thread."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def safe_name(text: str) -> str:
    """Return a file name made of ``text``: nothing but letters, digits, dot, dash and underscore."""
    return _UNSAFE.sub("_", text).lstrip(".")[:100] or "_"


def now() -> str:
    """Return the time as RFC 3339 in UTC."""
    return datetime.fromtimestamp(wall_clock(), UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
