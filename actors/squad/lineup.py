"""A squad's agents as the agent loop's: which model each uses, its system prompt and limits. Runs nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from actors.agent.build import ConfigBinder
from actors.agent.prompt import estimate_tokens
from actors.agent.team import AgentSpec, BoundModel, CompactionSettings, Team
from actors.agent.toolbox import ToolsetSpec
from actors.config.schema import Config
from actors.errors import Invalid
from actors.models.catalog import Models, known_models
from actors.models.provider import (
    Completed,
    ModelError,
    ModelEvent,
    ModelRequest,
    ModelStream,
    Provider,
    Usage,
)
from actors.squad.purse import Account, BudgetSpent, Purse
from actors.squad.values import Agent, BudgetConfig

JSON = Any
ANSWER_RESERVE = 1024
"""Tokens reserved for an answer when the call sets no limit of its own."""
Count = Callable[[Account, Usage, float], Awaitable[None]]


def model_ref(agent: Agent, models: Models, default: str = "") -> str:
    """Return the ``provider/model`` an agent uses: the one it prefers, else the application's default.

    Args:
        agent: Its preferences decide; a preferred model without a provider is looked for among the known ones.
        models: The registry.
        default: The application's default model; empty for the registry's own.

    Raises:
        Invalid: the preferred model is not known.
    """
    preferences = agent.model_preferences
    wanted = (preferences.preferred_model_id or "").strip()
    if not wanted or wanted == "default":
        return models.default(default)
    provider = (preferences.preferred_provider_id or "").strip()
    if provider:
        return wanted if wanted.startswith(provider + "/") else f"{provider}/{wanted}"
    name, slash, _ = wanted.partition("/")
    if slash and name in models.names():
        return wanted
    for info in (*models.available(), *known_models()):
        if wanted in (info.model, info.ref):
            return info.ref
    raise Invalid(f"agent {agent.name!r}: no model called {wanted!r} is known; write provider/model")


def check_model(agent: Agent, models: Models, default: str = "") -> str:
    """Return the agent's model if it can be called now. Raises: Invalid, Unsupported (no key)."""
    ref = model_ref(agent, models, default)
    models.resolve(ref)
    return ref


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What agents of squads are built with.

    Attributes:
        models: Where models come from.
        env: The runtime's environment.
        default_model: For agents that prefer none.
    """

    models: Models
    env: Mapping[str, str]
    default_model: str = ""

    def team(
        self,
        agent: Agent,
        *,
        instruction: str,
        limits: BudgetConfig,
        purse: Purse,
        account: Account,
        count: Count,
        toolsets: Sequence[ToolsetSpec] = (),
    ) -> Team:
        """Return a team of this one agent, whose model calls are paid from ``purse``.

        Args:
            agent: The squad's agent.
            instruction: Its system prompt.
            limits: The squad's limits.
            purse: The execution's.
            account: On whose behalf.
            count: Records each paid call, before its answer goes on.
            toolsets: Its tools.

        Raises:
            Invalid, Unsupported: its model cannot be used.
        """
        ref = check_model(agent, self.models, self.default_model)
        own = agent.settings_overrides
        turns = limits.max_agent_turns
        if own is not None and own.max_iterations:
            turns = min(turns, own.max_iterations)
        threshold = own.context_compression_threshold if own is not None else None
        spec = AgentSpec(
            name=agent.id,
            description=agent.description,
            instruction=instruction,
            models=(ref,),
            toolsets=tuple(toolsets),
            max_iterations=turns,
            compaction=CompactionSettings(threshold=threshold) if threshold else CompactionSettings(),
        )
        binder = ConfigBinder(Config(agents={}), self.models, self.env, self.default_model)
        parameters: dict[str, JSON] = (
            {"max_tokens": own.max_tokens} if own is not None and own.max_tokens else {}
        )
        return Team([spec], PayingBinder(binder, purse, account, count, parameters))


class PayingBinder:
    """Binds models so that each call is reserved, settled and counted.

    Args:
        inner: Finds the model.
        purse: Pays.
        account: For whom.
        count: Records what was paid.
        parameters: Added to each call's.
    """

    def __init__(
        self,
        inner: ConfigBinder,
        purse: Purse,
        account: Account,
        count: Count,
        parameters: Mapping[str, JSON],
    ) -> None:
        self._inner = inner
        self._purse = purse
        self._account = account
        self._count = count
        self._parameters = parameters

    def bind(self, agent: AgentSpec, ref: str) -> BoundModel:
        """Return the model, its provider wrapped. Raises: Invalid."""
        model = self._inner.bind(agent, ref)
        provider = PayingProvider(model, self._purse, self._account, self._count)
        return replace(model, provider=provider, parameters={**model.parameters, **self._parameters})


class PayingProvider:
    """A model whose calls wait for their reservation; see :mod:`actors.squad.purse`."""

    def __init__(self, model: BoundModel, purse: Purse, account: Account, count: Count) -> None:
        self.name = model.provider.name
        self._model = model
        self._inner: Provider = model.provider
        self._purse = purse
        self._account = account
        self._count = count

    @asynccontextmanager
    async def open_stream(self, request: ModelRequest) -> AsyncGenerator[ModelStream]:
        """Reserve, call, settle. Raises: ModelError, also for a spent budget."""
        estimate = estimate_tokens(request.messages) + (request.max_tokens or ANSWER_RESERVE)
        try:
            await self._purse.admit(self._account, estimate)
        except BudgetSpent as spent:
            raise ModelError(
                spent.message, kind="invalid_request", provider=self.name, model=request.model
            ) from spent
        with self._purse.reserve(self._account, estimate) as settle:
            async with self._inner.open_stream(request) as stream:
                yield _Paid(stream, self._model, self._account, self._count, settle)

    async def aclose(self) -> None:
        """Leave the shared provider open."""


class _Paid:
    """A stream that settles and records its call before its last batch goes on."""

    def __init__(
        self,
        stream: ModelStream,
        model: BoundModel,
        account: Account,
        count: Count,
        settle: Callable[[int, float], None],
    ) -> None:
        self._stream = stream
        self._model = model
        self._account = account
        self._count = count
        self._settle = settle

    def __aiter__(self) -> _Paid:
        return self

    async def __anext__(self) -> Sequence[ModelEvent]:
        batch = await anext(self._stream)
        for event in batch:
            if isinstance(event, Completed):
                usage = event.usage
                cost = self._model.info_of(event.model).cost(usage)
                self._settle(usage.context_tokens + usage.output_tokens, cost)
                await self._count(self._account, usage, cost)
        return batch
