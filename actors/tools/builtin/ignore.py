"""Leaving out of listings and searches what version control leaves out."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pathspec

from actors.tools.tool import ToolError
from actors.tools.workspace import Entry, Place, WalkFilter, Workspace, read_bytes

_VCS = frozenset({".git", ".hg", ".svn", ".jj"})
_IGNORE_FILE = ".gitignore"
_IGNORE_BYTES = 1_000_000


class Ignore(WalkFilter):
    """Leaves out what is denied, version control's own directories, and what ``.gitignore`` files name.

    Args:
        workspace: Whose denied places are left out as well.
        vcs: Whether to look at version control at all.
        excluded: More patterns to leave out, in the syntax of ``.gitignore``, relative to where the walk begins.
        start: Where the walk begins; ignore files between the root and there count too.
    """

    def __init__(
        self, workspace: Workspace, start: Place, *, vcs: bool = True, excluded: Iterable[str] = ()
    ) -> None:
        super().__init__(workspace)
        self._vcs = vcs
        self._start = start
        self._excluded = _parse(excluded)
        self._specs: dict[tuple[str, ...], pathspec.GitIgnoreSpec] = {}
        if vcs:
            for length in range(len(start.names)):
                self._read(Place(start.root, start.names[:length]))

    def enter(self, place: Place) -> None:
        """Read the directory's ignore file."""
        if self._vcs:
            self._read(place)

    def skips(self, place: Place, entry: Entry) -> bool:
        """Tell whether to leave an entry and all below it out."""
        if super().skips(place, entry):
            return True
        slash = "/" if entry.kind == "directory" else ""
        if self._excluded.match_file("/".join(place.names[len(self._start.names) :]) + slash):
            return True
        if not self._vcs:
            return False
        if entry.name in _VCS:
            return True
        for length in range(len(place.names) - 1, -1, -1):  # the nearest file with an opinion decides
            spec = self._specs.get(place.names[:length])
            if spec is not None:
                verdict = spec.check_file("/".join(place.names[length:]) + slash).include
                if verdict is not None:
                    return verdict
        return False

    def _read(self, directory: Place) -> None:
        place = Place(directory.root, (*directory.names, _IGNORE_FILE))
        if directory.names in self._specs or not os.path.lexists(place.path):
            return
        try:
            data, _ = read_bytes(place, _IGNORE_FILE, _IGNORE_BYTES)
        except ToolError:
            return  # a link or device in its place names nothing
        self._specs[directory.names] = _parse(data.decode("utf-8", "replace").splitlines())


def _parse(lines: Iterable[str]) -> pathspec.GitIgnoreSpec:
    """Read patterns, passing over those that are malformed, as git does."""
    good: list[str] = []
    for line in lines:
        try:
            pathspec.GitIgnoreSpec.from_lines([line])
        except ValueError:
            continue
        good.append(line)
    return pathspec.GitIgnoreSpec.from_lines(good)
