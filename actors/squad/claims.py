"""Which directory is which squad's workspace; asked without looking at the other squads. Synchronous."""

from __future__ import annotations

import os
import sys
from pathlib import PurePath


class Claims:
    """The workspaces' real paths. A claim is what its path meant when it was made; links may change later."""

    def __init__(self) -> None:
        self._owners: dict[PurePath, str] = {}
        self._paths: dict[str, PurePath] = {}
        self._below: dict[PurePath, dict[str, None]] = {}

    def claim(self, squad_id: str, path: PurePath) -> None:
        """Give a squad a path, made by :func:`real`, instead of the one it had."""
        self.release(squad_id)
        self._owners[path] = squad_id
        self._paths[squad_id] = path
        for parent in path.parents:
            self._below.setdefault(parent, {})[squad_id] = None

    def release(self, squad_id: str) -> None:
        """Take a squad's path away; one without is no error."""
        path = self._paths.pop(squad_id, None)
        if path is None:
            return
        if self._owners.get(path) == squad_id:
            del self._owners[path]
        for parent in path.parents:
            below = self._below[parent]
            below.pop(squad_id, None)
            if not below:
                del self._below[parent]

    def owner(self, path: PurePath, but: str = "") -> str | None:
        """Return a squad whose workspace is, holds or lies in ``path``, leaving out the squad ``but``."""
        for place in (path, *path.parents):
            found = self._owners.get(place)
            if found is not None and found != but:
                return found
        return next((found for found in self._below.get(path, ()) if found != but), None)


def real(text: str) -> PurePath:
    """Return where a path leads, links resolved, in the form in which claims are compared."""
    path = os.path.realpath(text)
    return PurePath(path.casefold() if sys.platform == "darwin" else path)
