"""The agents of one source as run-time values: what each is, which models it uses, and its toolsets.

A team is made for one session: the toolsets it builds belong to that session. Nothing here reads YAML
(:mod:`actors.agent.build` does) and nothing runs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import trio

from actors.agent.hooks import HookSpec
from actors.agent.messages import TeamAgent
from actors.agent.toolbox import Toolbox, ToolsetSpec
from actors.models.provider import Message, ModelInfo, ModelRequest, Provider, ResponseSchema
from actors.tools.policy import Rules, SafetyMode

if TYPE_CHECKING:
    from actors.agent.background import BackgroundAgents

JSON = Any
_RANDOM = Random()  # noqa: S311 - a draw between models guards nothing
CLOSE_DEADLINE = 20.0
"""Seconds all of a team's toolsets together may take to close."""


@dataclass(frozen=True, kw_only=True)
class BoundModel:
    """A model ready to be called: its provider (retries and fallback included), catalogue entry and parameters.

    Attributes:
        provider: Where calls go; a wrapper that falls back reports it as ``Retrying``.
        info: The primary's catalogue entry.
        parameters: Keyword arguments for :class:`~actors.models.provider.ModelRequest` (temperature and so on).
        infos: Entries of the fallbacks by ``provider/model`` and by model name, to price what answered.
    """

    provider: Provider
    info: ModelInfo
    parameters: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    infos: Mapping[str, ModelInfo] = field(default_factory=dict[str, ModelInfo])

    def request(self, messages: Sequence[Message], **changes: Any) -> ModelRequest:
        """Return a call of this model with its own parameters; ``changes`` are fields of the request and win."""
        plain = ModelRequest(model=self.info.model, messages=tuple(messages))
        return msgspec.structs.replace(plain, **{**self.parameters, **changes})

    def info_of(self, answered: str) -> ModelInfo:
        """Return the entry of the model that answered; the primary's when it is not known."""
        return self.infos.get(answered, self.info)


class Binder(Protocol):
    """Turns model references into models that can be called."""

    def bind(self, agent: AgentSpec, ref: str) -> BoundModel:
        """Return ``agent``'s model ``ref`` (``provider/model`` or a named one) with the agent's fallbacks.

        Raises:
            Invalid: the reference names nothing usable.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Command:
    """A prompt the user may call as ``/name args``."""

    instruction: str = ""
    description: str = ""
    agent: str = ""


@dataclass(frozen=True, kw_only=True)
class CompactionSettings:
    """When the history is summarised: above ``threshold`` of the context window, by ``model`` or the agent's own."""

    enabled: bool = True
    threshold: float = 0.9
    model: str = ""


@dataclass(frozen=True, kw_only=True)
class AgentSpec:
    """One agent. Zero limits mean none; several ``models`` are an alloy, one is drawn for each step.

    ``ignored`` names the keys of its file that have no effect here; its runs say so.
    """

    name: str
    description: str = ""
    instruction: str = ""
    welcome: str = ""
    models: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    retries: int = 2
    cooldown: float = 60.0
    title_model: str = ""
    thinking: str = ""
    toolsets: tuple[ToolsetSpec, ...] = ()
    sub_agents: tuple[str, ...] = ()
    handoffs: tuple[str, ...] = ()
    force_handoff: str = ""
    max_iterations: int = 0
    max_consecutive_tool_calls: int = 5
    max_old_tool_call_tokens: int = 0
    max_tool_result_tokens: int = 0
    num_history_items: int = 0
    structured_output: ResponseSchema | None = None
    add_date: bool = False
    add_environment_info: bool = False
    add_description_parameter: bool = False
    prompt_files: tuple[str, ...] = ()
    hooks: tuple[HookSpec, ...] = ()
    commands: Mapping[str, Command] = field(default_factory=dict[str, Command])
    compaction: CompactionSettings = CompactionSettings()
    redact_secrets: bool = True
    readonly: bool = False
    safety: SafetyMode = ""
    budgets: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    background_agents: bool = False


@dataclass(frozen=True, kw_only=True)
class BudgetSpec:
    """A limit on what a run and its delegated runs may use; 0 leaves that side open. ``max_time`` in seconds."""

    name: str
    max_cost: float = 0.0
    max_tokens: int = 0
    max_time: float = 0.0
    config_path: str = "budget"


class Team:
    """The agents of one source, in file order.

    Args:
        agents: At least one; names are unique.
        binder: Finds their models.
        rules: The permission rules of the team tier.
        budgets: Limits that hold for the team's runs; an agent's ``budgets`` name some of them.
        safety: The author's default safety mode.
        random: Draws an alloy's model; give a seeded one for repeatable runs.
        background: Where background agents run; agents that may start some are told when there is no such place.
    """

    def __init__(
        self,
        agents: Sequence[AgentSpec],
        binder: Binder,
        *,
        rules: Rules | None = None,
        budgets: Sequence[BudgetSpec] = (),
        safety: SafetyMode = "",
        random: Random | None = None,
        background: BackgroundAgents | None = None,
    ) -> None:
        self.agents: Mapping[str, AgentSpec] = {agent.name: agent for agent in agents}
        self.default = "root" if "root" in self.agents else next(iter(self.agents))
        self.rules = rules or Rules()
        self.budgets = tuple(budgets)
        self.safety: SafetyMode = safety
        self.background = background
        self._binder = binder
        self._random = random or _RANDOM
        self._toolboxes: dict[str, Toolbox] = {}

    def copy(self) -> Team:
        """Return the same agents with toolsets of their own."""
        return self.with_agents(list(self.agents.values()))

    def with_agents(self, agents: Sequence[AgentSpec]) -> Team:
        """Return a team of other agents in all else like this one, with toolsets of its own."""
        team = Team(
            agents,
            self._binder,
            rules=self.rules,
            budgets=self.budgets,
            safety=self.safety,
            random=self._random,
            background=self.background,
        )
        team.default = self.default if self.default in team.agents else team.default
        return team

    def bind(self, agent: str, override: str = "") -> BoundModel:
        """Return the model for ``agent``'s next step; ``override`` is the session's choice.

        Raises:
            Invalid: no such model can be used.
        """
        spec = self.agents[agent]
        ref = override or (spec.models[0] if len(spec.models) == 1 else self._draw(spec))
        return self._binder.bind(spec, ref)

    def _draw(self, spec: AgentSpec) -> str:
        return self._random.choice(spec.models) if spec.models else ""

    def toolbox(self, agent: str) -> Toolbox:
        """Return the agent's toolsets, started or not."""
        box = self._toolboxes.get(agent)
        if box is None:
            spec = self.agents[agent]
            box = self._toolboxes[agent] = Toolbox(spec.toolsets, readonly=spec.readonly)
        return box

    def budgets_of(self, agent: str) -> tuple[BudgetSpec, ...]:
        """Return the limits that hold for a run that ``agent`` begins: the team's own and those the agent names."""
        named = self.agents[agent].budgets
        return tuple(
            budget for budget in self.budgets if budget.name in named or budget.config_path == "budget"
        )

    def listing(self) -> tuple[TeamAgent, ...]:
        """Return the agents as clients see them."""
        return tuple(_listed(agent) for agent in self.agents.values())

    async def aclose(self) -> None:
        """Close every toolset that was started; they start again when next used. Idempotent."""
        for box in self._toolboxes.values():
            await box.aclose()


def _listed(agent: AgentSpec) -> TeamAgent:
    provider, _, model = (agent.models[0] if agent.models else "").partition("/")
    return TeamAgent(
        name=agent.name,
        description=agent.description,
        provider=provider if model else "",
        model=model or provider,
        thinking=agent.thinking,
        commands={name: {"description": command.description} for name, command in agent.commands.items()}
        or None,
    )


@asynccontextmanager
async def open_team(team: Team) -> AsyncGenerator[Team]:
    """Lend ``team`` for a run and close what its toolsets opened, also when the run is cancelled."""
    try:
        yield team
    finally:
        # Processes and connections must be closed although the run was cancelled; each toolset has its own deadline.
        with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_DEADLINE):
            await team.aclose()
