"""A squad's workspace for readers: directories, text files and lines found in them; nothing outside it. Synchronous."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import trio

from actors.errors import Invalid, NotFound, Rejected
from actors.squad.paths import check_relative
from actors.squad.refusals import FileRefused, NotText, TooLarge
from actors.squad.requests import FileContent, FileEntry, FileHit
from actors.squad.values import timestamp
from actors.tools.textfile import TextFile, decode
from actors.tools.tool import ToolError
from actors.tools.workspace import Place, WalkFilter, Workspace, open_directory, read_bytes, walk

READ_LIMIT = 10_000_000
"""Bytes of a file whose content is given."""
SHOWN = 1_000_000
"""Characters of it that are given."""
SEARCH_LIMIT = 2_000_000
"""Bytes of a file that is searched."""
LINE_LENGTH = 500
HITS = 100
HITS_LIMIT = 1000


def list_directory(root: Path, path: str) -> list[FileEntry]:
    """Return what a directory of the workspace holds, directories first.

    Raises:
        Invalid: the path is malformed, has a ``..`` component, or is no directory.
        FileRefused: it leads out of the workspace.
        NotFound: there is no such directory.
    """
    place = _place(root, path)
    entries: list[FileEntry] = []
    try:
        with open_directory(place) as directory:
            for name in os.listdir(directory):  # noqa: PTH208 - of a descriptor
                try:
                    name.encode()
                    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                except (UnicodeEncodeError, FileNotFoundError):
                    continue
                entries.append(
                    FileEntry(
                        name=name,
                        path="/".join([*place.names, name]),
                        is_directory=stat.S_ISDIR(status.st_mode),
                        size=status.st_size if stat.S_ISREG(status.st_mode) else 0,
                        modified_at=timestamp(status.st_mtime),
                    )
                )
    except OSError as error:
        raise _translated(error, path) from error
    return sorted(entries, key=lambda entry: (not entry.is_directory, entry.name))


def read_text(root: Path, path: str) -> FileContent:
    """Return a text file of the workspace.

    Raises:
        Invalid: the path is malformed, has a ``..`` component, or is no regular file.
        FileRefused: it leads out of the workspace, or may not be read.
        NotFound: there is no such file.
        TooLarge: it has more than ten million bytes.
        NotText: it is binary.
    """
    if not check_relative(path):
        raise Invalid("path is empty")
    place = _place(root, path)
    status = _regular(place, path)
    if status.st_size > READ_LIMIT:
        raise TooLarge(f"{path} has {status.st_size} bytes, more than {READ_LIMIT}")
    try:
        data, status = read_bytes(place, path, READ_LIMIT)
    except ToolError as error:
        raise Invalid(error.message) from error
    try:
        file = decode(data, path)
    except ToolError as error:
        raise NotText(error.message) from error
    return FileContent(
        path="/".join(place.names),
        content=file.text[:SHOWN],
        size=status.st_size,
        encoding=file.encoding,
        truncated=len(file.text) > SHOWN,
    )


def search(root: Path, query: str, limit: int = HITS) -> list[FileHit]:
    """Return lines of the workspace's text files that contain ``query``, whatever the case of their letters.

    Stops when it has enough, and when the call that it runs for is cancelled.

    Raises:
        Invalid: an empty query, or a limit out of range.
        NotFound: there is no workspace.
    """
    if not query.strip() or "\n" in query:
        raise Invalid("query is empty or more than a line")
    if not 1 <= limit <= HITS_LIMIT:
        raise Invalid(f"limit must be 1 to {HITS_LIMIT}")
    folded = query.casefold()
    hits: list[FileHit] = []
    place = _place(root, "")
    for below, entry in walk(place, WalkFilter(Workspace(place.root))):
        trio.from_thread.check_cancelled()
        if entry.kind != "file" or entry.size > SEARCH_LIMIT:
            continue
        for number, line in _lines_with(below, folded):
            hits.append(FileHit(path="/".join(below.names), line=number, content=line[:LINE_LENGTH]))
            if len(hits) == limit:
                return hits
    return hits


def _lines_with(place: Place, folded: str) -> Iterator[tuple[int, str]]:
    name = "/".join(place.names)
    try:
        file: TextFile = decode(read_bytes(place, name, SEARCH_LIMIT)[0], name)
    except ToolError:
        return  # binary, out of reach, or gone since it was listed
    if folded not in file.text.casefold():
        return
    for number, line in enumerate(file.text.split("\n"), 1):
        if folded in line.casefold():
            yield number, line.rstrip("\r")


def _place(root: Path, path: str) -> Place:
    names = check_relative(path)
    if not root.is_dir():
        raise NotFound(f"the workspace {root} does not exist")
    try:
        return Workspace(root).place("/".join(names) or ".")
    except ToolError as error:
        raise FileRefused(f"{path}: the path leads out of the workspace") from error
    except OSError as error:
        raise _translated(error, path) from error


def _regular(place: Place, path: str) -> os.stat_result:
    try:
        status = place.path.lstat()
    except OSError as error:
        raise _translated(error, path) from error
    if not stat.S_ISREG(status.st_mode):
        raise Invalid(f"{path} is {'a directory' if stat.S_ISDIR(status.st_mode) else 'not a regular file'}")
    return status


def _translated(error: OSError, path: str) -> Rejected:
    match error:
        case FileNotFoundError():
            return NotFound(f"{path or 'the workspace'} does not exist")
        case NotADirectoryError():
            return Invalid(f"{path} is not a directory")
        case PermissionError():
            return FileRefused(f"{path}: permission denied")
        case _:
            return Invalid(f"{path}: {os.strerror(error.errno or 0).lower()}")
