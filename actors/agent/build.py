"""Agent files to run-time values: a parsed configuration becomes a :class:`~actors.agent.team.Team`.

Pure construction: nothing is opened, started or called here, so that a team can be made for each session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import structs

from actors.agent.background import BackgroundAgents
from actors.agent.hooks import HookSpec
from actors.agent.team import AgentSpec, BoundModel, BudgetSpec, Command, CompactionSettings, Team
from actors.agent.toolbox import ToolsetSpec
from actors.config.duration import parse_duration
from actors.config.expand import expand
from actors.config.schema import Agent, Config, Endpoint, HookMatcher, Model
from actors.errors import ActorsError, Invalid
from actors.models.catalog import Models, Overrides
from actors.models.fallback import Candidate, FallbackProvider
from actors.models.provider import ModelInfo, ResponseSchema
from actors.tools.options import Common
from actors.tools.policy import Rules
from actors.tools.tool import Toolset

JSON = Any
BuildToolset = Callable[[Common], Toolset]
AUTO = "auto"
BACKGROUND = "background_agents"
"""The one toolset type that the loop itself provides, because its tools act on runs."""
DEFAULT_RETRIES = 2
DEFAULT_COOLDOWN = 60.0


def build_team(
    config: Config,
    models: Models,
    build_toolset: BuildToolset,
    env: Mapping[str, str],
    default_model: str = "",
    extra: Mapping[str, ToolsetSpec] | None = None,
    background: BackgroundAgents | None = None,
) -> Team:
    """Return the agents of a configuration.

    Args:
        config: A loaded file; references in it are resolved.
        models: Where models come from.
        build_toolset: Makes a toolset of its options; called when a run first needs it.
        env: For ``${env.NAME}`` in model settings.
        default_model: What ``auto`` means; empty: the models' own default.
        extra: One more toolset for each agent named.
        background: Where agents with the ``background_agents`` toolset start others.
    """
    binder = ConfigBinder(config, models, env, default_model)
    budgets = [_budget(name, f"budgets.{name}", each) for name, each in config.budgets.items()]
    if config.budget is not None:
        budgets.append(_budget("budget", "budget", config.budget))
    rules = config.permissions
    more = extra or {}
    specs = [
        _agent(name, agent, build_toolset, background=background is not None)
        for name, agent in config.agents.items()
    ]
    return Team(
        [
            replace(spec, toolsets=(*spec.toolsets, more[spec.name])) if spec.name in more else spec
            for spec in specs
        ],
        binder,
        rules=None if rules is None else Rules(tuple(rules.allow), tuple(rules.ask), tuple(rules.deny)),
        budgets=budgets,
        safety=config.runtime.safety if config.runtime else "",
        background=background,
    )


class ConfigBinder:
    """Binds the models of one configuration; keeps each chain's cool-down between runs.

    Args:
        config: Its ``models`` and ``providers``.
        models: Where models come from.
        env: For ``${env.NAME}``.
        default_model: What ``auto`` means.
    """

    def __init__(self, config: Config, models: Models, env: Mapping[str, str], default_model: str) -> None:
        self._config = config
        self._models = models
        self._env = env
        self._default = default_model
        self._bound: dict[tuple[str, str], BoundModel] = {}

    def bind(self, agent: AgentSpec, ref: str) -> BoundModel:
        """Return ``agent``'s model ``ref`` with its fallbacks behind it.

        Raises:
            Invalid, Unsupported: the reference cannot be used; a fallback that cannot is left out.
        """
        known = self._bound.get((agent.name, ref))
        if known is None:
            known = self._bound[agent.name, ref] = self._bind(agent, ref)
        return known

    def _bind(self, agent: AgentSpec, ref: str) -> BoundModel:
        first, info, parameters = self._candidate(ref)
        chain, infos = [first], {info.ref: info, info.model: info}
        for fallback in agent.fallbacks:
            try:
                candidate, other, changes = self._candidate(fallback)
            except ActorsError:
                continue
            chain.append(Candidate(candidate.provider, candidate.model, {**_unset(parameters), **changes}))
            infos.setdefault(other.ref, other)
            infos.setdefault(other.model, other)
        provider = FallbackProvider(chain, retries=agent.retries, cooldown=agent.cooldown)
        return BoundModel(provider=provider, info=info, parameters=parameters, infos=infos)

    def _candidate(self, ref: str) -> tuple[Candidate, ModelInfo, Mapping[str, JSON]]:
        model = self._config.models.get(ref)
        if model is None:
            binding = self._models.resolve(self._models.default(self._default) if ref in ("", AUTO) else ref)
            return Candidate(binding.provider, binding.model), binding.info, {}
        if model.first_available:
            return self._first_available(ref, model)
        named = self._config.providers.get(model.provider)
        endpoint = model if named is None else _merged(named, model)
        vendor = model.provider if named is None else named.provider
        overrides = Overrides(
            base_url=expand(endpoint.base_url, self._env),
            token_key=endpoint.token_key,
            cost=None if model.cost is None else structs.asdict(model.cost),
            bypass_gateway=model.bypass_models_gateway,
        )
        binding = self._models.resolve(f"{vendor}/{expand(model.model, self._env)}", overrides)
        return Candidate(binding.provider, binding.model), binding.info, _parameters(endpoint)

    def _first_available(self, ref: str, model: Model) -> tuple[Candidate, ModelInfo, Mapping[str, JSON]]:
        reasons: list[str] = []
        for choice in model.first_available:
            try:
                return self._candidate(choice)
            except ActorsError as error:
                reasons.append(error.message)
        raise Invalid(f"model {ref!r}: none of first_available can be used: {'; '.join(reasons)}")


def _merged(base: Endpoint, own: Model) -> Model:
    """Return ``own`` with what it leaves unset taken from its named provider."""
    changes: dict[str, Any] = {}
    for name in Endpoint.__struct_fields__:
        if not getattr(own, name) and getattr(own, name) != 0 and getattr(base, name):
            changes[name] = getattr(base, name)
    if base.provider_opts and own.provider_opts:
        changes["provider_opts"] = {**base.provider_opts, **own.provider_opts}
    return structs.replace(own, **changes)


def _parameters(endpoint: Endpoint) -> Mapping[str, JSON]:
    given = {
        "max_tokens": endpoint.max_tokens,
        "temperature": endpoint.temperature,
        "top_p": endpoint.top_p,
        "frequency_penalty": endpoint.frequency_penalty,
        "presence_penalty": endpoint.presence_penalty,
        "parallel_tool_calls": endpoint.parallel_tool_calls,
        "thinking": endpoint.thinking_budget,
        "options": endpoint.provider_opts or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _unset(parameters: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """Return what undoes the first model's parameters for another one that has none of its own."""
    return {name: {} if name == "options" else None for name in parameters}


def _budget(name: str, path: str, budget: Any) -> BudgetSpec:
    return BudgetSpec(
        name=name,
        max_cost=budget.max_cost,
        max_tokens=budget.max_tokens,
        max_time=budget.max_seconds,
        config_path=path,
    )


def _agent(name: str, agent: Agent, build_toolset: BuildToolset, *, background: bool) -> AgentSpec:
    fallback = agent.fallback
    return AgentSpec(
        name=name,
        description=agent.description,
        instruction=agent.instruction,
        welcome=agent.welcome_message,
        models=tuple(part.strip() for part in agent.model.split(",") if part.strip()) or (AUTO,),
        fallbacks=tuple(fallback.models) if fallback else (),
        retries=max(fallback.retries, 0) if fallback and fallback.retries else DEFAULT_RETRIES,
        cooldown=parse_duration(fallback.cooldown) if fallback and fallback.cooldown else DEFAULT_COOLDOWN,
        toolsets=tuple(
            ToolsetSpec(
                options.name or options.type,
                partial(build_toolset, options),
                model=options.model,
                defer=options.defer if isinstance(options.defer, bool) else tuple(options.defer),
            )
            for options in agent.toolsets
            if options.type != BACKGROUND or not background
        ),
        sub_agents=tuple(agent.sub_agents),
        handoffs=tuple(agent.handoffs),
        force_handoff=agent.force_handoff,
        max_iterations=agent.max_iterations,
        max_consecutive_tool_calls=agent.max_consecutive_tool_calls,
        max_old_tool_call_tokens=agent.max_old_tool_call_tokens,
        max_tool_result_tokens=agent.max_tool_result_tokens,
        num_history_items=agent.num_history_items,
        structured_output=_schema(agent),
        add_date=agent.add_date,
        add_environment_info=agent.add_environment_info,
        add_description_parameter=agent.add_description_parameter,
        prompt_files=tuple(agent.add_prompt_files),
        hooks=tuple(_hooks(agent)),
        commands={
            key: Command(instruction=each.instruction, description=each.description, agent=each.agent)
            for key, each in agent.commands.items()
        },
        compaction=CompactionSettings(
            enabled=agent.session_compaction,
            threshold=agent.compaction_threshold,
            model=agent.compaction_model,
        ),
        redact_secrets=agent.redact_secrets,
        readonly=agent.readonly,
        safety=agent.safety,
        budgets=tuple(agent.budgets),
        background_agents=any(options.type == BACKGROUND for options in agent.toolsets),
        ignored=tuple(_ignored(agent)),
    )


def _ignored(agent: Agent) -> Iterator[str]:
    """Name the keys that are read and checked, but that nothing here obeys."""
    if agent.skills:
        yield "skills"
    if agent.harness is not None:
        yield "harness"
    if agent.code_mode_tools:
        yield "code_mode_tools"
    if agent.cache is not None and agent.cache.enabled:
        yield "cache"
    if any(toolset.toon for toolset in agent.toolsets):
        yield "toon"


def _schema(agent: Agent) -> ResponseSchema | None:
    wanted = agent.structured_output
    if wanted is None:
        return None
    return ResponseSchema(wanted.name, wanted.schema, wanted.description, wanted.strict)


def _hooks(agent: Agent) -> Iterator[HookSpec]:
    if agent.hooks is None:
        return
    for event in agent.hooks.__struct_fields__:
        for entry in getattr(agent.hooks, event):
            matcher, hooks, preempt = "", [entry], False
            if isinstance(entry, HookMatcher):
                matcher, hooks, preempt = entry.matcher, entry.hooks, entry.preempt_yolo
            for hook in hooks:
                yield HookSpec(
                    event=event,
                    name=hook.name,
                    type=hook.type,
                    command=hook.command,
                    args=tuple(hook.args),
                    timeout=hook.timeout,
                    env=hook.env,
                    working_dir=hook.working_dir,
                    on_error=hook.on_error,
                    matcher=matcher,
                    preempt=preempt,
                    model=hook.model,
                    prompt=hook.prompt,
                    schema=hook.schema,
                )
