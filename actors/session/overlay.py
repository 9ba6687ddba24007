"""What a client's program lends to the agents of one session while it is connected: tools, text, agents, filters.

Nothing of it is stored: the program brings it again when it resumes the session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial

from actors.agent.hooks import HookSpec
from actors.agent.team import AgentSpec, Team
from actors.agent.toolbox import ToolsetSpec
from actors.tools.tool import Tool, Toolset

Keeps = Callable[[str, bool], bool]
"""Whether to offer the tool of this name; the flag says that it is a lent one."""


@dataclass(frozen=True, kw_only=True)
class LentAgent:
    """An agent that the program defines. ``tools``: names of the session's tools it may use; ``None`` for all.

    ``offered``: the session's agent may delegate to it by itself.
    """

    name: str
    instruction: str
    description: str = ""
    model: str = ""
    tools: tuple[str, ...] | None = None
    offered: bool = True


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """See the module.

    Patterns are tool names with ``*``; ``custom:`` or ``builtin:`` before one restricts it to lent tools or to the
    agent's own.

    Attributes:
        tools: Return the lent tools; asked at the start of each run. They win over tools of the same name.
        instruction: Text for the system prompt; ``replaces`` puts it in the place of the agent's own.
        available: Patterns of the only tools to offer; ``None`` for all.
        excluded: Patterns of tools not to offer to anybody.
        hidden: Patterns of tools that only lent agents may use.
        agents: Agents the session's agent may delegate to.
        hooks: Points of a run at which the program is asked.
        compaction: Share of the context window at which to summarise, 0 for never; ``None``: the agent's own.
    """

    tools: Callable[[], Sequence[Tool]] = tuple
    instruction: str = ""
    replaces: bool = False
    available: tuple[str, ...] | None = None
    excluded: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    agents: tuple[LentAgent, ...] = field(default=())
    hooks: tuple[HookSpec, ...] = ()
    compaction: float | None = None

    def dress(self, team: Team, agent: str) -> Team:
        """Return ``team`` as a run of ``agent`` sees it, with toolsets of its own."""
        base = team.agents[agent]
        lent = [each for each in self.agents if each.name not in team.agents]
        compaction = base.compaction
        if self.compaction is not None:
            compaction = replace(compaction, enabled=self.compaction > 0, threshold=self.compaction or 1.0)
        text = self.instruction
        if base.instruction and not self.replaces:
            text = "\n\n".join(part for part in (base.instruction, text) if part)
        dressed = replace(
            base,
            instruction=text,
            toolsets=self._toolsets(base, self._for_main),
            sub_agents=(*base.sub_agents, *(each.name for each in lent if each.offered)),
            hooks=(*base.hooks, *self.hooks),
            compaction=compaction,
        )
        others = [spec for name, spec in team.agents.items() if name != agent]
        return team.with_agents([dressed, *others, *(self._lend(base, each) for each in lent)])

    def _lend(self, base: AgentSpec, agent: LentAgent) -> AgentSpec:
        def keeps(name: str, lent: bool) -> bool:
            return self._for_all(name, lent) and (agent.tools is None or _any(agent.tools, name, lent))

        return replace(
            base,
            name=agent.name,
            instruction=agent.instruction,
            description=agent.description,
            welcome="",
            models=(agent.model,) if agent.model else base.models,
            toolsets=self._toolsets(base, keeps),
            sub_agents=(),
            handoffs=(),
            force_handoff="",
            hooks=(),
            commands={},
        )

    def _toolsets(self, base: AgentSpec, keeps: Keeps) -> tuple[ToolsetSpec, ...]:
        lent = ToolsetSpec("client", lambda: _Lent(self.tools, keeps))
        return (lent, *(replace(each, build=partial(_Kept, each.build, keeps)) for each in base.toolsets))

    def _for_all(self, name: str, lent: bool) -> bool:
        if _any(self.excluded, name, lent):
            return False
        return self.available is None or _any(self.available, name, lent)

    def _for_main(self, name: str, lent: bool) -> bool:
        return self._for_all(name, lent) and not _any(self.hidden, name, lent)


class _Lent:
    """The toolset of the program's tools."""

    name = "client"
    instruction = ""

    def __init__(self, tools: Callable[[], Sequence[Tool]], keeps: Keeps) -> None:
        self._tools = tools
        self._keeps = keeps

    async def start(self) -> None:
        """Nothing to connect."""

    async def aclose(self) -> None:
        """Nothing to close."""

    def tools(self) -> Sequence[Tool]:
        """Return the tools as the program offers them now."""
        return [tool for tool in self._tools() if self._keeps(tool.definition.name, True)]


class _Kept:
    """A toolset of the agent's own, without the tools that the program filtered out."""

    def __init__(self, build: Callable[[], Toolset], keeps: Keeps) -> None:
        self._inner = build()
        self._keeps = keeps
        self.name = self._inner.name

    @property
    def instruction(self) -> str:
        """The toolset's text; it makes no sense once all its tools are gone."""
        tools = self._inner.tools()
        return self._inner.instruction if self.tools() or not tools else ""

    async def start(self) -> None:
        """Start the toolset."""
        await self._inner.start()

    async def aclose(self) -> None:
        """Close the toolset."""
        await self._inner.aclose()

    def tools(self) -> Sequence[Tool]:
        """Return what is left of its tools."""
        return [tool for tool in self._inner.tools() if self._keeps(tool.definition.name, False)]


def _any(patterns: Sequence[str], name: str, lent: bool) -> bool:
    for pattern in patterns:
        kind, colon, rest = pattern.partition(":")
        if colon and kind in ("custom", "builtin"):
            if (kind == "custom") is lent and fnmatchcase(name, rest):
                return True
        elif fnmatchcase(name, pattern):
            return True
    return False
