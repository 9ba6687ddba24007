"""Whether a squad's agents all have a model, before anything is run."""

from __future__ import annotations

from actors.errors import ActorsError
from actors.models.catalog import Models
from actors.squad.lineup import model_ref
from actors.squad.requests import AgentReadiness, Readiness
from actors.squad.values import Agent, Squad


def readiness(squad: Squad, models: Models, default_model: str) -> Readiness:
    """Return the verdict on each agent, in lineup order, and on all; what can be called now is only advice.

    Args:
        squad: The squad.
        models: The registry.
        default_model: For agents that prefer none.
    """
    agents = tuple(_verdict(agent, models, default_model) for agent in squad.agents)
    missing = [agent for agent in agents if not agent.available]
    healthy = bool(models.available()) or any(agent.model_served for agent in agents)
    if not agents:
        return Readiness(
            available=False,
            router_healthy=healthy,
            agents=(),
            cause="no_agents",
            message="the squad has no agents",
        )
    if missing:
        names = ", ".join(agent.agent_name for agent in missing)
        return Readiness(
            available=False,
            router_healthy=healthy,
            agents=agents,
            cause="model_unresolved",
            message=f"no model for {names}",
        )
    return Readiness(available=True, router_healthy=healthy, agents=agents)


def _verdict(agent: Agent, models: Models, default_model: str) -> AgentReadiness:
    try:
        ref = model_ref(agent, models, default_model)
    except ActorsError as error:
        return AgentReadiness(
            agent_id=agent.id,
            agent_name=agent.name,
            model_id=None,
            model_served=False,
            available=False,
            message=error.message,
        )
    try:
        models.resolve(ref)
    except ActorsError as error:
        problem: str | None = error.message
    else:
        problem = None
    return AgentReadiness(
        agent_id=agent.id,
        agent_name=agent.name,
        model_id=ref,
        model_served=problem is None,
        available=True,
        message=problem,
    )
