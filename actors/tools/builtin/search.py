"""Finding text in files: line by line, bounded in time, size and number of matches."""

from __future__ import annotations

import re
from typing import Protocol, cast

import re2  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

from actors.tools.textfile import decode
from actors.tools.tool import ToolError
from actors.tools.workspace import Place, WalkFilter, Workspace, list_entries, read_bytes, walk

FILE_LIMIT = 2_000_000
"""Bytes of a file that is searched."""

_MATCHES = 300
_FILES = 20_000
_SHOWN = 300


class _Pattern(Protocol):
    def search(self, text: str, /) -> object | None: ...


class Search:
    """One search.

    Args:
        workspace: Says how places are shown.
        query: What to find in a line.
        is_regex: The query is a regular expression in RE2's syntax, which takes linear time whatever it says.

    Raises:
        ToolError: the query is empty or no regular expression.
    """

    def __init__(self, workspace: Workspace, query: str, *, is_regex: bool) -> None:
        if not query:
            raise ToolError("the query is empty")
        self._workspace = workspace
        self._query = query
        self._pattern = _compile(query) if is_regex else cast("_Pattern", re.compile(re.escape(query)))
        self._lines: list[str] = []
        self._files = 0
        self._skipped = 0
        self._full = False

    def run(self, place: Place, text: str, skip: WalkFilter) -> None:
        """Search a file, or all files below a directory.

        Raises:
            ToolError: nothing is there, or the single file cannot be searched.
        """
        try:
            list_entries(place)
        except NotADirectoryError:
            self._search(place, *read_bytes(place, text, FILE_LIMIT)[:1])
            return
        except OSError as error:
            raise ToolError(f"{text}: {(error.strerror or 'cannot be opened').lower()}") from error
        for below, entry in walk(place, skip):
            if self._full or self._files >= _FILES:
                self._full = True
                return
            if entry.kind != "file":
                continue
            try:
                data, _ = read_bytes(below, entry.name, FILE_LIMIT)
                self._search(below, data)
            except ToolError:
                self._skipped += 1

    def _search(self, place: Place, data: bytes) -> None:
        text = decode(data, place.names[-1]).shown()
        self._files += 1
        shown = self._workspace.shown(place)
        for number, line in enumerate(text.split("\n"), 1):
            if self._pattern.search(line) is None:
                continue
            if len(self._lines) >= _MATCHES:
                self._full = True
                return
            self._lines.append(f"{shown}:{number}: {line[:_SHOWN]}{'...' if len(line) > _SHOWN else ''}")

    def report(self) -> str:
        """Return the matches, and what the search did not cover."""
        lines = self._lines or [f"No matches for {self._query!r} in {self._files} files."]
        if self._full:
            lines = [*lines, f"... cut off after {len(self._lines)} matches in {self._files} files"]
        if self._skipped:
            lines = [*lines, f"({self._skipped} files were not searched: binary, too large or unreadable)"]
        return "\n".join(lines)


def _compile(query: str) -> _Pattern:
    try:
        return cast("_Pattern", re2.compile(query))
    except cast("type[Exception]", re2.error) as error:
        reason: object = error.args[0] if error.args else ""
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise ToolError(f"not a valid regular expression: {text}") from error
