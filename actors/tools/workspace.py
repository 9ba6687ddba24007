"""Where file tools may go: directories, and nothing outside them whatever links say.

A path is first resolved with its links and checked, then opened again one directory at a time without following any
link, so that a link swapped in between makes the call fail instead of leading it out.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from actors.tools.tool import ToolError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NAME_BYTES = 255


class Place(Struct, frozen=True):
    """A checked location: a permitted root and the names below it, none of them a link when it was checked."""

    root: Path
    names: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The absolute path."""
        return self.root.joinpath(*self.names)


class Workspace:
    """The places a call may use.

    Args:
        working_dir: Where relative paths start; permitted.
        allowed: More permitted directories, absolute or relative to ``working_dir``; ``~`` is the user's home.
        denied: Files and directories that are not, wherever they are.
    """

    def __init__(self, working_dir: Path, allowed: Sequence[str] = (), denied: Sequence[str] = ()) -> None:
        self.working_dir = Path(os.path.realpath(working_dir))
        self.roots = (self.working_dir, *(self._real(path) for path in allowed))
        self.denied = tuple(self._real(path) for path in denied)

    def _real(self, text: str) -> Path:
        return Path(os.path.realpath(self.working_dir / Path(text).expanduser()))

    def place(self, text: str) -> Place:
        """Check a path a model gave.

        Raises:
            ToolError: it is malformed, or leads out of the workspace, or to a denied place.
        """
        _check_text(text)
        real = Path(os.path.realpath(self.working_dir / text))
        for denied in self.denied:
            if real.is_relative_to(denied):
                raise ToolError(f"{text}: access to this path is denied")
        for root in self.roots:
            if real.is_relative_to(root):
                return Place(root, real.relative_to(root).parts)
        raise ToolError(f"{text}: the path is outside the working directory")

    def contains_denied(self, place: Place) -> bool:
        """Tell whether something denied lies below a place."""
        return any(denied.is_relative_to(place.path) for denied in self.denied)

    def is_denied(self, path: Path) -> bool:
        """Tell whether a path without links is denied."""
        return any(path.is_relative_to(denied) for denied in self.denied)

    def shown(self, place: Place) -> str:
        """Return a place as a model should see it: relative to the working directory where it lies in it."""
        if place.root == self.working_dir:
            return "/".join(place.names) or "."
        return str(place.path)


def _check_text(text: str) -> None:
    if not text:
        raise ToolError("the path is empty")
    if any(char < " " or char == "\x7f" or "\ud800" <= char <= "\udfff" for char in text):
        raise ToolError(f"{text!r}: the path has a control character or is not valid text")
    if text == "~" or text.startswith("~/"):
        raise ToolError(f"{text}: '~' is not expanded; give a path relative to the working directory")
    if text.lower().startswith("file:"):
        raise ToolError(f"{text}: give a path, not a URL")
    if any(len(name.encode()) > _NAME_BYTES for name in text.split("/")):
        raise ToolError("the path has a name of more than 255 bytes")


@contextmanager
def translated(text: str) -> Generator[None]:
    """Turn an operating-system error about ``text`` into the words a model can use.

    Raises:
        ToolError: for every ``OSError`` inside.
    """
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            raise ToolError(f"{text}: not a directory, or a link that leads nowhere safe") from error
        raise ToolError(f"{text}: {os.strerror(error.errno or 0).lower()}") from error


@contextmanager
def open_directory(place: Place, *, create: bool = False) -> Generator[int]:
    """Open a directory below a root without following links; the descriptor is closed at the end.

    Args:
        place: The directory.
        create: Make it and its parents where they are missing.

    Raises:
        OSError: it is missing, or something on the way is no directory, a link included.
    """
    descriptor = os.open(place.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in place.names:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=descriptor)
            following = os.open(name, _DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = following
        yield descriptor
    finally:
        os.close(descriptor)


def parent_of(place: Place, text: str) -> tuple[Place, str]:
    """Split a place into its directory and its name.

    Raises:
        ToolError: it is a root itself.
    """
    if not place.names:
        raise ToolError(f"{text}: this is the top of the workspace")
    return Place(place.root, place.names[:-1]), place.names[-1]


def read_bytes(place: Place, text: str, limit: int) -> tuple[bytes, os.stat_result]:
    """Read a regular file.

    Raises:
        ToolError: it is missing, not a regular file (a FIFO or device is not even waited for), larger than ``limit``
            bytes, or out of reach.
    """
    parent, name = parent_of(place, text)
    with translated(text), open_directory(parent) as directory:
        descriptor = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=directory
        )
        try:
            status = os.fstat(descriptor)
            _check_regular(status, text)
            if status.st_size > limit:
                raise ToolError(
                    f"{text}: the file has {status.st_size} bytes, more than the limit of {limit}"
                )
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(limit + 1)
        finally:
            os.close(descriptor)
    if len(data) > limit:
        raise ToolError(f"{text}: the file grew beyond the limit of {limit} bytes while it was read")
    return data, status


def _check_regular(status: os.stat_result, text: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "is a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise ToolError(f"{text}: {kind}")


def write_bytes(place: Place, text: str, data: bytes) -> None:
    """Put a file in place as a whole: a reader or a crash meets the old content or the new, never a mixture.

    Missing directories are made. An existing file keeps its mode.

    Raises:
        ToolError: the place is not a regular file, or the disk refuses; an existing file is then untouched.
    """
    parent, name = parent_of(place, text)
    with translated(text), open_directory(parent, create=True) as directory:
        mode: int | None = None
        with suppress(FileNotFoundError):
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            _check_regular(status, text)
            if not os.access(name, os.W_OK, dir_fd=directory):
                raise ToolError(f"{text}: permission denied")
            mode = stat.S_IMODE(status.st_mode)
        temporary = f".{secrets.token_hex(8)}.tmp"
        descriptor = os.open(
            temporary,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o666,
            dir_fd=directory,
        )
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                if mode is not None:
                    os.fchmod(descriptor, mode)
                file.flush()
                os.fsync(descriptor)
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise
        os.fsync(directory)


def remove_tree(place: Place, text: str) -> None:
    """Remove a directory and all in it; links in it are removed, not followed.

    Raises:
        ToolError: it is missing or no directory, or the system refuses.
    """
    parent, name = parent_of(place, text)
    with translated(text), open_directory(parent) as directory:
        _remove(name, directory)


def _remove(name: str, directory: int) -> None:
    inner = os.open(name, _DIRECTORY, dir_fd=directory)
    try:
        for entry in os.listdir(inner):  # noqa: PTH208 - of a descriptor
            if stat.S_ISDIR(os.stat(entry, dir_fd=inner, follow_symlinks=False).st_mode):
                _remove(entry, inner)
            else:
                os.unlink(entry, dir_fd=inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=directory)


class Entry(Struct, frozen=True):
    """One name in a directory. ``kind`` of a link is ``link``; it is not followed."""

    name: str
    kind: str
    size: int


def list_entries(place: Place) -> list[Entry]:
    """List a directory, directories first, then by name; names that are not valid text are left out.

    Raises:
        OSError: it cannot be opened.
    """
    entries: list[Entry] = []
    with open_directory(place) as directory:
        for name in os.listdir(directory):  # noqa: PTH208 - of a descriptor
            try:
                name.encode()
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            except (UnicodeEncodeError, FileNotFoundError):
                continue
            entries.append(Entry(name, _kind(status.st_mode), status.st_size))
    return sorted(entries, key=lambda entry: (entry.kind != "directory", entry.name))


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISLNK(mode):
        return "link"
    return "file" if stat.S_ISREG(mode) else "other"


def walk(place: Place, skip: WalkFilter) -> Iterator[tuple[Place, Entry]]:
    """Yield everything below a directory in order, depth first, without following links.

    Args:
        place: Where to begin.
        skip: Called with each directory before its entries and with each entry; true leaves the entry out.
    """
    try:
        entries = list_entries(place)
    except OSError:
        return  # gone or closed to us since it was listed
    skip.enter(place)
    for entry in entries:
        below = Place(place.root, (*place.names, entry.name))
        if skip.skips(below, entry):
            continue
        yield below, entry
        if entry.kind == "directory":
            yield from walk(below, skip)


class WalkFilter:
    """Decides what a walk leaves out; this one leaves out what is denied."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def enter(self, place: Place) -> None:
        """Note that the entries of a directory follow."""

    def skips(self, place: Place, entry: Entry) -> bool:
        """Tell whether to leave an entry and all below it out."""
        return self.workspace.is_denied(place.path) or entry.kind == "other"
