"""The agents of stored squads: added, changed, removed; every change is told to who follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec.structs import replace

from actors.errors import Invalid
from actors.squad import lineups
from actors.squad.refusals import AgentIsPlanner, AgentNotFound
from actors.squad.requests import AgentGiven, AgentPatch, BulkModel
from actors.squad.values import Agent, ModelPreferences, Squad


class Records(Protocol):
    """Where squads are kept."""

    def changing(self, squad_id: str) -> AbstractAsyncContextManager[Squad]:
        """Hold off other changes for the block."""
        ...


class Home(Protocol):
    """What the lineups need of the service they are part of."""

    @property
    def records(self) -> Records:
        """Where squads are kept."""
        ...

    async def squad(self, squad_id: str) -> Squad:
        """Return a squad. Raises: SquadNotFound."""
        ...

    async def store(self, squad: Squad) -> Squad:
        """Store a changed squad."""
        ...

    async def tell_agents(self, squad: Squad, change: str, agent_ids: Sequence[str]) -> None:
        """Publish that a lineup changed."""
        ...

    async def check_free(self, squad_id: str, agent_ids: set[str]) -> None:
        """Raise AgentBusy if one of the agents is at work."""
        ...


class Members:
    """The lineups of all squads; every method raises SquadNotFound for a squad that does not exist.

    Args:
        home: The service.
        new_id: Makes ids.
    """

    def __init__(self, home: Home, new_id: Callable[[], str]) -> None:
        self._home = home
        self._new_id = new_id

    async def list(self, squad_id: str) -> Sequence[Agent]:
        """Return a squad's agents in order."""
        return (await self._home.squad(squad_id)).agents

    async def get(self, squad_id: str, agent_id: str) -> Agent:
        """Return an agent. Raises: AgentNotFound."""
        return _member(await self._home.squad(squad_id), agent_id)

    async def add(self, squad_id: str, given: AgentGiven) -> Agent:
        """Add an agent at the end. Raises: Invalid; Conflict, the id is taken."""
        agent = lineups.complete(given, self._new_id)
        async with self._home.records.changing(squad_id) as squad:
            stored = await self._home.store(replace(squad, agents=lineups.joined(squad.agents, agent)))
        await self._home.tell_agents(stored, "added", [agent.id])
        return agent

    async def patch(self, squad_id: str, agent_id: str, given: AgentPatch) -> Agent:
        """Replace what is given of an agent, objects whole. Raises: AgentNotFound, Invalid."""
        async with self._home.records.changing(squad_id) as squad:
            agent = lineups.patched(_member(squad, agent_id), given)
            stored = await self._home.store(_with(squad, {agent_id: agent}))
        await self._home.tell_agents(stored, "updated", [agent_id])
        return agent

    async def delete(self, squad_id: str, agent_id: str) -> None:
        """Remove an agent. Raises: AgentNotFound; AgentIsPlanner; AgentBusy."""
        async with self._home.records.changing(squad_id) as squad:
            _member(squad, agent_id)
            if squad.planner_agent_id == agent_id:
                raise AgentIsPlanner(f"agent {agent_id} is the squad's planner; clear plannerAgentId first")
            await self._home.check_free(squad_id, {agent_id})
            left = tuple(agent for agent in squad.agents if agent.id != agent_id)
            stored = await self._home.store(replace(squad, agents=left))
        await self._home.tell_agents(stored, "removed", [agent_id])

    async def update_models(self, squad_id: str, given: BulkModel) -> int:
        """Have several agents prefer one model, and return how many that are.

        Raises:
            Invalid: no agents, or a blank model.
            AgentNotFound: one of them is not in the squad; none is changed.
        """
        model = given.model_ref.strip()
        if not model:
            raise Invalid("modelRef is blank")
        if not given.agent_ids:
            raise Invalid("agentIds is empty")
        agent_ids = list(dict.fromkeys(given.agent_ids))
        async with self._home.records.changing(squad_id) as squad:
            changed: dict[str, Agent] = {}
            for agent_id in agent_ids:
                agent = _member(squad, agent_id)
                changed[agent_id] = replace(agent, model_preferences=_preferring(agent, model))
            stored = await self._home.store(_with(squad, changed))
        await self._home.tell_agents(stored, "bulk_updated", agent_ids)
        return len(agent_ids)


def _preferring(agent: Agent, model: str) -> ModelPreferences:
    # a provider stored for the model before would be put in front of this one
    return replace(agent.model_preferences, preferred_model_id=model, preferred_provider_id=None)


def _member(squad: Squad, agent_id: str) -> Agent:
    agent = squad.agent(agent_id)
    if agent is None:
        raise AgentNotFound(f"agent {agent_id} not found")
    return agent


def _with(squad: Squad, changed: dict[str, Agent]) -> Squad:
    return replace(squad, agents=tuple(changed.get(agent.id, agent) for agent in squad.agents))
