"""The squads' stored resources without an engine: a directory, and a record of what was published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from actors.models.catalog import Models
from actors.squad.registry import Fetch, fetch
from actors.squad.requests import AgentGiven, CreateSquad
from actors.squad.service import Squads
from actors.squad.values import BudgetUsage, HistoryRecord, Squad, SquadStatus

NOW = 1_700_000_000.0
"""2023-11-14T22:13:20Z."""


class Engine:
    """Says what runs; nothing does unless a test says so."""

    def __init__(self) -> None:
        self.published: list[tuple[str, str, Mapping[str, Any]]] = []
        self.active: list[str] = []
        self.busy: frozenset[str] = frozenset()
        self.records: list[HistoryRecord] = []

    async def active_executions(self, squad_id: str) -> Sequence[str]:
        return self.active

    async def busy_agents(self, squad_id: str) -> frozenset[str]:
        return self.busy

    async def squad_status(self, squad_id: str) -> SquadStatus:
        return SquadStatus("executing" if self.active else "idle")

    async def squad_statuses(self) -> Mapping[str, SquadStatus]:
        return {}

    async def usage(self, squad_id: str) -> BudgetUsage:
        return BudgetUsage()

    async def history(self, squad_id: str) -> Sequence[HistoryRecord]:
        return self.records

    async def publish(self, squad_id: str, name: str, payload: Mapping[str, Any]) -> None:
        self.published.append((squad_id, name, payload))

    def names(self) -> list[str]:
        return [name for _, name, _ in self.published]


class Shelf:
    """The service over ``root``; making another one is what a restart does."""

    def __init__(self, root: Path, get: Fetch = fetch) -> None:
        self.root = root
        self.engine = Engine()
        self.now = NOW
        self.squads = Squads(
            root / "data", Models({}, root / "data"), version="1.2.3", clock=lambda: self.now, get=get
        )
        self.squads.live = self.engine

    def workspace(self, name: str = "ws") -> str:
        return str(self.root / name)

    async def squad(self, *names: str, workspace: str = "ws", planner: bool = False) -> Squad:
        """Make a squad of agents whose ids are their names, the first one its planner if wished, and lay it out."""
        squad = await self.squads.create(
            CreateSquad(
                name="team",
                workspace_path=self.workspace(workspace),
                agents=tuple(AgentGiven(id=name, name=name, role="developer") for name in names),
                planner_agent_id=names[0] if planner else None,
            )
        )
        await self.squads.init_workspace(squad.id, squad.workspace_path)
        return squad
