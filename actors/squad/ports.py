"""What the squads' engine and their stored resources ask of each other, so that neither imports the other.

The runtime joins them: the engine gets a :class:`SquadStore`, the store a :class:`LiveExecutions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from actors.squad.values import BudgetConfig, BudgetUsage, HistoryRecord, Squad, SquadStatus, Task

JSON = Any


class SquadStore(Protocol):
    """The stored resources, as the engine uses them."""

    async def squad(self, squad_id: str) -> Squad:
        """Return a squad. Raises: NotFound."""
        ...

    async def budget_config(self, squad_id: str) -> BudgetConfig:
        """Return its limits; the defaults when none were set."""
        ...

    async def board(self, squad_id: str) -> Sequence[Task]:
        """Return every row of its board."""
        ...

    async def put_tasks(self, squad_id: str, rows: Sequence[Task]) -> None:
        """Insert or replace rows by id, files included; publishes no event.

        Raises:
            OSError: the workspace cannot be written.
        """
        ...

    async def read_memory(self, squad_id: str, agent_id: str) -> str:
        """Return an agent's memory file; empty when there is none."""
        ...

    async def write_memory(self, squad_id: str, agent_id: str, section: str, content: str) -> None:
        """Append to a section of an agent's memory file; publishes no event."""
        ...

    async def search_memory(self, squad_id: str, query: str) -> Sequence[str]:
        """Return the lines of all agents' memories that contain ``query``, each with where it stands."""
        ...


class LiveExecutions(Protocol):
    """The engine, as the stored resources use it."""

    async def active_executions(self, squad_id: str) -> Sequence[str]:
        """Return the ids of executions that have not ended."""
        ...

    async def busy_agents(self, squad_id: str) -> frozenset[str]:
        """Return the agents to whom an undone task of a live execution is assigned, planners of live plans included."""
        ...

    async def squad_status(self, squad_id: str) -> SquadStatus:
        """Return the most advanced live execution's state, else ``idle``."""
        ...

    async def squad_statuses(self) -> Mapping[str, SquadStatus]:
        """Return the state of each squad that is not idle."""
        ...

    async def usage(self, squad_id: str) -> BudgetUsage:
        """Return what its live executions have used, with the limits."""
        ...

    async def history(self, squad_id: str) -> Sequence[HistoryRecord]:
        """Return the records of ended executions, newest first."""
        ...

    async def publish(self, squad_id: str, name: str, payload: Mapping[str, JSON]) -> None:
        """Send a ``squad:*`` event (a name of :mod:`actors.squad.events`) to the activity log and all followers.

        ``squadId`` and ``timestamp`` are added to the payload. With an ``executionId`` in it, the event enters that
        execution's ledger first.
        """
        ...
