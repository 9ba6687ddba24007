"""The squads' records in the data directory: one JSON file each, and an index that is only a cache of them.

Every write is whole. The records are read once, when they are first needed, and kept.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path, PurePath
from typing import Any, TypeVar

import msgspec
import trio
from msgspec.structs import replace

from actors.errors import Unavailable
from actors.squad import disk
from actors.squad.claims import Claims, real
from actors.squad.errors import SquadNotFound
from actors.squad.requests import SquadSummary
from actors.squad.values import BudgetConfig, Squad, SquadStatus

JSON = Any
T = TypeVar("T")
INDEX = "index.json"
BUDGETS = "budgets"
BEHIND = 0.25
"""Seconds the index may be behind."""
logger = logging.getLogger("greenroom.squad")


class SquadRecords:
    """The stored squads and their budgets.

    Args:
        directory: Where they are; made when the first is stored.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._squads: dict[str, Squad] = {}
        self._damaged: set[str] = set()
        self._budgets: dict[str, BudgetConfig] = {}
        self._locks: dict[str, trio.Lock] = {}
        self._loading = trio.Lock()
        self._claims = Claims()
        self._loaded = False
        self._stale = trio.Event()

    async def all(self) -> Sequence[Squad]:
        """Return every squad that can be read, oldest first."""
        await self._load()
        return sorted(self._squads.values(), key=lambda squad: (squad.created_at, squad.id))

    async def get(self, squad_id: str) -> Squad:
        """Return a squad.

        Raises:
            SquadNotFound: there is none.
            Unavailable: its file is damaged.
        """
        await self._load()
        found = self._squads.get(squad_id)
        if found is not None:
            return found
        if squad_id in self._damaged:
            raise Unavailable(f"the record of squad {squad_id} is damaged; see the server's log")
        raise SquadNotFound(f"squad {squad_id} not found")

    @asynccontextmanager
    async def changing(self, squad_id: str) -> AsyncGenerator[Squad]:
        """Hold off other changes of a squad for the block, which is given the squad. Raises as :meth:`get`."""
        await self.get(squad_id)
        async with self._locks.setdefault(squad_id, trio.Lock()):
            yield await self.get(squad_id)

    async def put(self, squad: Squad) -> None:
        """Store a squad. Raises: Unavailable, the disk refuses; nothing has changed then.

        Cancellation: the squad is stored, or it is not.
        """
        await self._load()
        stored = replace(squad, status=SquadStatus())
        path = await _on_disk(partial(self._write_squad, stored))
        self._squads[squad.id] = stored
        self._claims.claim(squad.id, path)
        self._stale.set()

    async def remove(self, squad_id: str) -> None:
        """Forget a squad and its budget. Raises: Unavailable."""
        await self.get(squad_id)
        await _on_disk(partial(disk.remove_file, self._directory, [f"{squad_id}.json"]))
        self._squads.pop(squad_id, None)
        self._budgets.pop(squad_id, None)
        self._locks.pop(squad_id, None)
        self._claims.release(squad_id)
        self._stale.set()
        await _on_disk(partial(disk.remove_file, self._directory, [BUDGETS, f"{squad_id}.json"]))

    async def owner(self, path: str, but: str = "") -> str | None:
        """Return a squad whose workspace is, holds or lies in a path, leaving out the squad ``but``."""
        await self._load()
        return self._claims.owner(await trio.to_thread.run_sync(real, path), but)

    async def budget(self, squad_id: str) -> BudgetConfig:
        """Return a squad's limits, the defaults when none are stored. Raises as :meth:`get`."""
        await self.get(squad_id)
        if squad_id not in self._budgets:
            read = partial(disk.read_file, self._directory, [BUDGETS, f"{squad_id}.json"])
            self._budgets[squad_id] = _budget(squad_id, await _on_disk(read))
        return self._budgets[squad_id]

    async def put_budget(self, squad_id: str, budget: BudgetConfig) -> None:
        """Store a squad's limits. Raises: Unavailable."""
        await _on_disk(partial(self._write, f"{BUDGETS}/{squad_id}.json", budget))
        self._budgets[squad_id] = budget

    # --- files ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write the index a little behind the records until cancelled."""
        while True:
            await self._stale.wait()
            await trio.sleep(BEHIND)
            await self.flush()

    async def flush(self) -> None:
        """Write the index if it is behind."""
        if not self._stale.is_set():
            return
        self._stale = trio.Event()
        try:
            await trio.to_thread.run_sync(_write_index, self._directory, list(self._squads.values()))
        except OSError as error:  # a cache: the records themselves are written
            logger.warning("index of squads not written", extra={"error": str(error)})

    def _write_squad(self, squad: Squad) -> PurePath:
        self._write(f"{squad.id}.json", squad)
        return real(squad.workspace_path)

    def _write(self, name: str, value: JSON) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        disk.write_json(self._directory, name.split("/"), value)

    async def _load(self) -> None:
        if not self._loaded:
            async with self._loading:
                await self._load_once()

    async def _load_once(self) -> None:
        if self._loaded:
            return
        squads, damaged, index = await _on_disk(partial(_read_all, self._directory))
        paths = await trio.to_thread.run_sync(_real_paths, squads)
        for squad_id, path in paths.items():
            self._claims.claim(squad_id, path)
        self._squads, self._damaged, self._loaded = squads, damaged, True
        if index != _index(list(squads.values())):
            self._stale.set()
            await self.flush()


def summary(squad: Squad, status: SquadStatus | None = None) -> SquadSummary:
    """Return a squad's row in lists."""
    return SquadSummary(
        id=squad.id,
        name=squad.name,
        description=squad.description,
        agent_count=len(squad.agents),
        status=status or squad.status,
        workspace_path=squad.workspace_path,
        planner_agent_id=squad.planner_agent_id,
        created_at=squad.created_at,
        updated_at=squad.updated_at,
    )


async def _on_disk(act: Callable[[], T]) -> T:
    try:
        return await trio.to_thread.run_sync(act)
    except OSError as error:
        raise Unavailable(f"the squads' data directory cannot be used: {error}") from error


def _read_all(directory: Path) -> tuple[dict[str, Squad], set[str], JSON]:
    squads: dict[str, Squad] = {}
    damaged: set[str] = set()
    for name in disk.names_in(directory, [], ".json"):
        squad_id = name.removesuffix(".json")
        if name == INDEX or name.startswith("."):
            continue
        try:
            squad = msgspec.json.decode(disk.read_file(directory, [name]) or b"", type=Squad)
        except (OSError, ValueError) as error:
            damaged.add(squad_id)
            logger.warning("squad's record cannot be read", extra={"file": name, "error": str(error)})
            continue
        if squad.id == squad_id:
            squads[squad_id] = squad
    try:
        index = msgspec.json.decode(disk.read_file(directory, [INDEX]) or b"null")
    except (OSError, ValueError):
        index = None
    return squads, damaged, index


def _index(squads: Sequence[Squad]) -> JSON:
    rows = [summary(squad) for squad in squads]
    rows.sort(key=lambda row: (row.created_at, row.id))
    return msgspec.to_builtins(rows)


def _write_index(directory: Path, squads: Sequence[Squad]) -> None:
    if directory.exists():
        disk.write_json(directory, [INDEX], _index(squads), durable=False)


def _real_paths(squads: Mapping[str, Squad]) -> dict[str, PurePath]:
    return {squad_id: real(squad.workspace_path) for squad_id, squad in squads.items()}


def _budget(squad_id: str, data: bytes | None) -> BudgetConfig:
    if data is None:
        return BudgetConfig()
    try:
        return msgspec.json.decode(data, type=BudgetConfig)
    except msgspec.DecodeError as error:
        logger.warning("budget cannot be read; defaults hold", extra={"squad": squad_id, "error": str(error)})
        return BudgetConfig()
