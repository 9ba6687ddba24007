"""The agents a server offers: one file, a directory of files, or given sources; found by id, listed, kept current."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import trio
from msgspec import UNSET, Struct, UnsetType

from actors.config.errors import ConfigError
from actors.config.load import SUFFIXES
from actors.config.sources import BUILTINS, BuiltinSource, FileSource, Source, agent_files, without_query
from actors.config.watch import Loaded, Watched
from actors.errors import Conflict, NotFound

logger = logging.getLogger("greenroom.config")

GRACE = 1.0
"""Seconds that a file may be missing from a directory (deleted to be written anew) before its agent is gone."""


class Listing(Struct, frozen=True, kw_only=True):
    """One row of ``GET /api/agents``: the first agent of a file."""

    name: str
    description: str
    multi: bool
    commands: list[str] | UnsetType = UNSET


class Catalog:
    """Agent sources by agent id.

    Args:
        sources: What is offered besides the directory's files; of two with one id the first is.
        directory: Every agent file in it is offered, and the directory is looked at on each access.
        flavors: Patches to lay over every file.
        fresh: Seconds for which a look at a source is good.
    """

    def __init__(
        self,
        sources: Iterable[Source] = (),
        *,
        directory: Path | None = None,
        flavors: Sequence[str] = (),
        fresh: float = 0.0,
    ) -> None:
        self._flavors = tuple(flavors)
        self._fresh = fresh
        self._directory = directory
        self._watched: dict[str, Watched] = {}
        self._files: dict[Path, str] = {}
        self._missing: dict[str, float] = {}
        self._refused: dict[str, ConfigError] = {}
        self._logged: set[str] = set()
        for source in sources:
            self.add(source)

    def add(self, source: Source) -> None:
        """Offer one more source; refused, and shown by :meth:`problems`, when its id is taken."""
        taken = self._watched.get(source.id)
        if taken is None:
            self._watched[source.id] = Watched(source, self._flavors, self._fresh)
        else:
            problem = f"the agent id {source.id!r} is taken by {taken.source.name}"
            self._refuse(source.name, ConfigError(problem, source.name))

    async def get(self, agent_id: str) -> Loaded:
        """Return the newest usable version of an agent file.

        An id that differs from a URL source's only in the URL's query finds it, when it is the only one.

        Raises:
            NotFound: no such agent.
            Conflict: several URL sources fit.
            ConfigError: the file was never usable.

        Cancellation: nothing changes.
        """
        if agent_id not in self._watched or agent_id in self._missing:
            await self._scan()
        watched = self._watched.get(agent_id) or self._by_url(agent_id)
        loaded = await watched.current()
        if self._directory and watched.problem and watched.loaded:
            await self._scan()  # it may be gone for good
        return loaded

    async def listing(self) -> list[Listing]:
        """Return a row for every usable file, sorted by name. Cancellation: nothing changes."""
        return sorted((_row(loaded) for loaded in await self.all()), key=lambda row: row.name)

    async def all(self) -> list[Loaded]:
        """Return every usable file's newest version; the others are in :meth:`problems`."""
        await self._scan()
        found: list[Loaded] = []
        for watched in list(self._watched.values()):
            try:
                found.append(await watched.current())
            except ConfigError:
                continue  # recorded and logged by the watcher
        return found

    def problems(self) -> Mapping[str, ConfigError]:
        """Return why sources are not, or not in their present version, in use: by agent id, or by file name."""
        broken = {name: watched.problem for name, watched in self._watched.items() if watched.problem}
        return {**self._refused, **broken}

    def _by_url(self, agent_id: str) -> Watched:
        bare = without_query(agent_id)
        near = [watched for name, watched in self._watched.items() if without_query(name) == bare]
        if len(near) > 1:
            raise Conflict(f"agent {agent_id!r} is ambiguous: {len(near)} sources differ in the query only")
        if not near:
            raise NotFound(f"agent source not found: agent not found: {agent_id}")
        return near[0]

    # --- the directory ---

    async def _scan(self) -> None:
        """Take up new files and let go of those that stay missing."""
        directory = self._directory
        if directory is None:
            return
        try:
            present = await trio.to_thread.run_sync(agent_files, directory)
        except ConfigError as error:
            self._refuse(str(directory), error)  # what is offered stays
            return
        self._refused = {}
        for path in present:
            self._take_up(path)
        self._logged &= self._refused.keys()
        now = trio.current_time()
        for path, agent_id in list(self._files.items()):
            if path in present:
                self._missing.pop(agent_id, None)
            elif now - self._missing.setdefault(agent_id, now) >= GRACE:
                del self._files[path], self._missing[agent_id], self._watched[agent_id]

    def _take_up(self, path: Path) -> None:
        if path in self._files:
            return
        if path.suffix not in SUFFIXES:
            problem = "HCL agent files are not supported; write the same keys as YAML"
            self._refuse(str(path), ConfigError(problem, str(path)))
            return
        source = FileSource(path)
        if source.id not in self._watched:
            self._files[path] = source.id
        self.add(source)

    def _refuse(self, name: str, error: ConfigError) -> None:
        self._refused[name] = error
        if name not in self._logged:
            self._logged.add(name)
            logger.warning("agent source is not served: %s", error, extra={"source": name})


def _row(loaded: Loaded) -> Listing:
    first = loaded.config.first
    commands = sorted(first.commands)
    return Listing(
        name=loaded.id,
        description=first.description,
        multi=len(loaded.config.agents) > 1,
        commands=commands or UNSET,
    )


def open_catalog(where: str | Path, *, flavors: Sequence[str] = (), fresh: float = 0.0) -> Catalog:
    """Return the catalogue of an agent file, a directory of them, or a built-in configuration's name.

    Only what the name means is settled here; files are read when they are first asked for.

    Raises:
        ConfigError: there is nothing of that name, or a file of a kind that is not supported.
    """
    path = Path(where)
    try:
        if path.is_dir():
            return Catalog(directory=path, flavors=flavors, fresh=fresh)
        exists = path.exists()
    except OSError as error:
        raise ConfigError(f"the path cannot be read: {error.strerror}", str(where)) from error
    if exists:
        if path.suffix == ".hcl":
            raise ConfigError("HCL agent files are not supported; write the same keys as YAML", str(where))
        return Catalog([FileSource(path)], flavors=flavors, fresh=fresh)
    if str(where) in BUILTINS:
        return Catalog([BuiltinSource(str(where))], flavors=flavors)
    raise ConfigError("no such agent file or directory", str(where))
