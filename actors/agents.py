"""The agents a runtime offers: files kept current on disk, and agents made in Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import trio

from actors.agent.background import BackgroundAgents
from actors.agent.build import build_team
from actors.agent.team import AgentSpec, Team, open_team
from actors.agent.toolbox import ToolsetSpec
from actors.config.catalog import Catalog, Listing, open_catalog
from actors.config.document import config_document
from actors.config.errors import ConfigError
from actors.config.remote import RemoteSource, remote_source
from actors.config.schema import Agent as AgentConfig
from actors.config.schema import Config
from actors.config.sources import BuiltinSource, Source
from actors.config.watch import Loaded
from actors.errors import Invalid, NotFound
from actors.models.catalog import Models
from actors.settings import Settings
from actors.tools.function import function_tool
from actors.tools.policy import SafetyMode
from actors.tools.registry import BUILDERS, Builder, Deps, build_toolset, read_options
from actors.tools.tool import Tool

JSON = Any
ASSISTANT = "assistant"
FRESH = 0.1
"""Seconds for which a look at an agent file is good: a busy server starts hundreds of runs in them."""


@dataclass(frozen=True, kw_only=True)
class Agent:
    """An agent made in Python.

    Attributes:
        name: What sessions call it; also its source id.
        model: ``provider/model``, or ``auto``.
        instruction: Its system prompt.
        description: For listings and for agents that delegate to it.
        tools: Typed functions or :class:`~actors.tools.tool.Tool` objects.
        toolsets: Built-in toolsets, as their YAML entries: ``{"type": "filesystem"}``.
        sub_agents: Agents it may delegate to.
        max_iterations: Model calls a run may make before a person is asked; 0 for no limit.
        safety: Its default safety mode; ``autonomous`` runs every tool unasked.
    """

    name: str
    model: str = "auto"
    instruction: str = ""
    description: str = ""
    tools: Sequence[Callable[..., Any] | Tool] = ()
    toolsets: Sequence[Mapping[str, JSON]] = ()
    sub_agents: Sequence[Agent] = ()
    max_iterations: int = 0
    safety: SafetyMode = ""


class Agents:
    """Agent sources by id.

    Args:
        models: Where their models come from.
        settings: The runtime's.
        deps: Makes what the toolsets of one session share, given its id.
        builders: How each type of toolset is built.
        background: Where background agents run.
    """

    def __init__(
        self,
        models: Models,
        settings: Settings,
        deps: Callable[[str], Deps],
        *,
        builders: Mapping[str, Builder] = BUILDERS,
        background: BackgroundAgents | None = None,
    ) -> None:
        self._builders = builders
        self._background = background
        self._models = models
        self._settings = settings
        self._deps = deps
        self._catalogs: list[Catalog] = []
        self._remote: list[RemoteSource] = []
        self._made: dict[str, Agent] = {}

    def add(self, agents: str | os.PathLike[str] | Agent | Sequence[Agent]) -> None:
        """Offer an agent file, a directory of them, or agents made in Python.

        Raises:
            Invalid: an agent's name is taken, or one of its toolsets does not exist.
        """
        if isinstance(agents, str | os.PathLike):
            if (remote := remote_source(os.fspath(agents))) is not None:
                self._remote.append(remote)
                self.add_source(remote)
                return
            self._catalogs.append(open_catalog(Path(agents), fresh=FRESH))
            return
        for agent in [agents] if isinstance(agents, Agent) else agents:
            if agent.name in self._made:
                raise Invalid(f"there is an agent called {agent.name!r} already")
            for each in _with_sub_agents(agent):
                for entry in each.toolsets:
                    read_options(entry)
            self._made[agent.name] = agent

    def add_source(self, source: Source) -> None:
        """Offer an agent file from anywhere."""
        self._catalogs.append(Catalog([source]))

    async def pull(self) -> None:
        """Get every agent from a URL or a registry again; what cannot be had stays as it is."""
        async with trio.open_nursery() as nursery:
            for source in self._remote:
                nursery.start_soon(source.refresh)

    async def keep_pulling(self, interval: float) -> None:
        """Pull every ``interval`` seconds, for ever."""
        while True:
            await trio.sleep(interval)
            await self.pull()

    def add_assistant(self) -> None:
        """Offer the built-in assistant."""
        self.add_source(BuiltinSource(ASSISTANT))

    async def only(self, agent: str) -> str:
        """Return the id of the source meant: ``agent``, or the only one when it is empty.

        Raises:
            NotFound: no such source, or none at all.
            Invalid: there are several and none is named.
        """
        if agent:
            if agent not in self._made:
                await self._get(agent)
            return agent
        ids = [row.name for row in await self.listing()]
        if not ids:
            problems = "; ".join(str(error) for error in self.problems().values())
            raise NotFound(f"there is no usable agent{': ' + problems if problems else ''}")
        if len(ids) > 1:
            raise Invalid(f"there are several agents, name one of: {', '.join(ids)}")
        return ids[0]

    async def listing(self) -> list[Listing]:
        """Return a row for each source, sorted by name (sessions contract 1.3)."""
        rows = [
            Listing(name=agent.name, description=agent.description, multi=bool(agent.sub_agents))
            for agent in self._made.values()
        ]
        for catalog in self._catalogs:
            rows += await catalog.listing()
        return sorted(rows, key=lambda row: row.name)

    def problems(self) -> Mapping[str, ConfigError]:
        """Return why some files are not in use, by agent id or file name."""
        found: dict[str, ConfigError] = {}
        for catalog in self._catalogs:
            found.update(catalog.problems())
        return found

    async def document(self, agent: str) -> dict[str, JSON]:
        """Return a source's configuration as ``GET /api/agents/:id`` gives it. Raises: NotFound."""
        if agent in self._made:
            return config_document(_as_config(self._made[agent]))
        return config_document((await self._get(agent)).config)

    async def names(self, agent: str) -> list[str]:
        """Return the names of a source's agents, in its order. Raises: NotFound."""
        made = self._made.get(agent)
        return [*(_as_config(made) if made else (await self._get(agent)).config).agents]

    async def open_team(self, agent: str, session: str = "") -> Team:
        """Return a new team of the source's agents, in its newest usable version, for a session's use.

        Raises:
            NotFound: no such source.
            Invalid: it was never usable.
        """
        made = self._made.get(agent)
        config = _as_config(made) if made else (await self._get(agent)).config
        return build_team(
            config,
            self._models,
            partial(build_toolset, deps=self._deps(session), builders=self._builders),
            self._settings.environment,
            self._settings.default_model,
            extra=_functions(made) if made else None,
            background=self._background,
        )

    async def count_tools(self, agent: str, name: str) -> int:
        """Return how many tools an agent of a source has, starting what must be started (sessions contract 1.3).

        Raises:
            NotFound: no such source or agent.
        """
        team = await self.open_team(agent)
        if name not in team.agents:
            raise NotFound(f"agent not found: {name}")
        async with open_team(team):
            await team.toolbox(name).start()
            return len(team.toolbox(name).tools()) + len(implied_tools(team.agents[name]))

    async def _get(self, agent: str) -> Loaded:
        for catalog in self._catalogs[:-1]:
            try:
                return await catalog.get(agent)
            except NotFound:
                continue
        if not self._catalogs:
            raise NotFound(f"agent source not found: agent not found: {agent}")
        return await self._catalogs[-1].get(agent)


def _with_sub_agents(agent: Agent) -> list[Agent]:
    found = {agent.name: agent}
    queue = [*agent.sub_agents]
    while queue:
        each = queue.pop(0)
        if each.name not in found:
            found[each.name] = each
            queue += each.sub_agents
    return list(found.values())


def _as_config(agent: Agent) -> Config:
    return Config(
        agents={
            each.name: AgentConfig(
                name=each.name,
                model=each.model,
                description=each.description,
                instruction=each.instruction,
                toolsets=[read_options(entry) for entry in each.toolsets],
                sub_agents=[sub.name for sub in each.sub_agents],
                max_iterations=each.max_iterations,
                safety=each.safety,
            )
            for each in _with_sub_agents(agent)
        }
    )


class Functions:
    """A toolset of tools made in Python."""

    name = "functions"
    instruction = ""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = tools

    async def start(self) -> None:
        """Nothing to connect."""

    async def aclose(self) -> None:
        """Nothing to close."""

    def tools(self) -> Sequence[Tool]:
        """Return the tools."""
        return self._tools


def _functions(agent: Agent) -> Mapping[str, ToolsetSpec]:
    return {
        each.name: ToolsetSpec("functions", partial(Functions, [_as_tool(tool) for tool in each.tools]))
        for each in _with_sub_agents(agent)
        if each.tools
    }


def implied_tools(spec: AgentSpec) -> list[str]:
    """Return the tools an agent has without a toolset: those of its sub-agents, handoffs and position."""
    found = ["transfer_task"] if spec.sub_agents else []
    if spec.background_agents:
        found += [f"{verb}_background_agent" for verb in ("run", "view", "stop")] + ["list_background_agents"]
    return [*found, "handoff"] if spec.handoffs else found


def _as_tool(given: Callable[..., Any] | Tool) -> Tool:
    if callable(given):
        return function_tool(given)
    return given
