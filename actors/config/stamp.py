"""Stamps: what tells versions of a file apart without reading it, and how fresh the last change is."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from actors.config.errors import ConfigError
from actors.ids import wall_clock


class Stamp(Struct, frozen=True):
    """One version of some content.

    Attributes:
        version: Differs when the content may differ.
        age: Seconds since the last change; ``None`` for content that is never seen half written.
    """

    version: tuple[int, ...]
    age: float | None = None


ABSENT = Stamp((), 0.0)
"""The stamp of a file that is not there, which a writer may be about to put there."""


def file_stamp(path: Path) -> Stamp:
    """Return the stamp of a local file; symbolic links are followed.

    Raises:
        ConfigError: it is not there.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        raise ConfigError("no such file", str(path)) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"the file cannot be read: {error}", str(path)) from error
    version = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return Stamp(version, max(0.0, wall_clock() - found.st_ctime))  # unlike mtime, nobody can set ctime


def stamp_or_absent(path: Path) -> Stamp:
    """Return the stamp of a local file, :data:`ABSENT` when there is none."""
    try:
        return file_stamp(path)
    except ConfigError:
        return ABSENT
