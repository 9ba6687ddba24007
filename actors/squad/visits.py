"""The files of stored squads' workspaces, for readers; see :mod:`actors.squad.browse` for what they may see."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio

from actors.squad import browse
from actors.squad.boards import Find
from actors.squad.requests import FileContent, FileEntry, FileHit


class WorkspaceFiles:
    """The files of all workspaces; every method raises SquadNotFound for a squad that does not exist.

    Args:
        find: Returns a squad.
    """

    def __init__(self, find: Find) -> None:
        self._find = find

    async def list(self, squad_id: str, path: str = "") -> Sequence[FileEntry]:
        """Return what a directory holds. Raises: as :func:`browse.list_directory`."""
        return await trio.to_thread.run_sync(browse.list_directory, await self._root(squad_id), path)

    async def read(self, squad_id: str, path: str) -> FileContent:
        """Return a text file. Raises: as :func:`browse.read_text`."""
        return await trio.to_thread.run_sync(browse.read_text, await self._root(squad_id), path)

    async def search(self, squad_id: str, query: str, limit: int = browse.HITS) -> Sequence[FileHit]:
        """Return lines that contain ``query``. Raises: as :func:`browse.search`.

        Cancellation: the search stops at the next file.
        """
        search = partial(browse.search, await self._root(squad_id), query, limit)
        return await trio.to_thread.run_sync(search)

    async def _root(self, squad_id: str) -> Path:
        return Path((await self._find(squad_id)).workspace_path)
