"""What must hold between the objects of a file: references exist, nothing hands over in circles, texts compile."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from actors.config.decode import fields_of, suggestion
from actors.config.errors import ConfigError
from actors.config.references import external_name, is_external
from actors.config.schema import Agent, Command, Config, Hooks, Model, Skill, Toolset
from actors.tools.options import McpOptions, ModelPickerOptions, RagOptions

NO_AGENTS = "at least one agent must be configured (add an entry under 'agents')"
AUTO = "auto"
"""The model reference that takes the first provider with credentials."""


def check_rules(config: Config, lines: Mapping[str, int], file: str = "") -> list[ConfigError]:
    """Return every violation, roughly in file order.

    Args:
        config: Decoded, with references not yet merged.
        lines: Line of each key by path.
        file: Name for messages.
    """
    return list(_Rules(config, lines, file).violations())


Violation = Iterator[ConfigError]


class _Rules:
    def __init__(self, config: Config, lines: Mapping[str, int], file: str) -> None:
        self.config = config
        self._lines = lines
        self._file = file

    def error(self, problem: str, path: str, hint: str = "") -> ConfigError:
        place = path
        while place and place not in self._lines:
            place = place[: max(place.rfind("."), place.rfind("["), 0)]
        return ConfigError(problem, self._file, self._lines.get(place, 0), path, hint)

    def violations(self) -> Violation:
        if not self.config.agents:
            yield self.error(NO_AGENTS, "agents")
        for name, agent in self.config.agents.items():
            yield from self.agent(name, agent)
        yield from self.handoff_cycles()
        for name, model in self.config.models.items():
            yield from self.model(name, model)
        for name in self.config.providers:
            if not name.strip() or name != name.strip() or "/" in name:
                yield self.error(f"{name!r} is not usable as a provider's name", f"providers.{name}")
        for name, toolset in self.config.toolsets.items():
            yield from self.toolset(f"toolsets.{name}", toolset)
        for name, server in self.config.mcps.items():
            yield from self.mcp(f"mcps.{name}", name, server)
        for name, commands in self.config.commands.items():
            yield from self.commands(f"commands.{name}", commands)
        for name, skills in self.config.skills.items():
            yield from self.skills(f"skills.{name}", skills)

    # --- agents ---

    def agent(self, name: str, agent: Agent) -> Violation:
        path = f"agents.{name}"
        if not name.strip() or "/" in name:
            yield self.error(f"{name!r} is not usable as an agent's name", path)
        if agent.instruction and agent.instruction_file:
            problem = (
                f"agent '{name}': 'instruction' and 'instruction_file' are mutually exclusive, set only one"
            )
            yield self.error(problem, f"{path}.instruction_file")
        for ref in agent.models:
            yield from self.model_ref(ref, f"{path}.model")
        yield from self.model_ref(agent.compaction_model, f"{path}.compaction_model")
        for index, ref in enumerate(agent.fallback.models if agent.fallback else ()):
            yield from self.model_ref(ref, f"{path}.fallback.models[{index}]")
        yield from self.agent_refs(name, agent)
        for index, toolset in enumerate(agent.toolsets):
            yield from self.toolset(f"{path}.toolsets[{index}]", toolset)
        yield from self.commands(f"{path}.commands", agent.commands)
        if isinstance(agent.skills, list):
            yield from self.skills(f"{path}.skills", agent.skills)
        if agent.hooks:
            yield from self.hooks(f"{path}.hooks", agent.hooks)
        for key, names, section in (
            ("budgets", agent.budgets, self.config.budgets),
            ("use_commands", agent.use_commands, self.config.commands),
            ("use_skills", agent.use_skills, self.config.skills),
            ("use_toolsets", agent.use_toolsets, self.config.toolsets),
        ):
            yield from self.defined(names, section, f"{path}.{key}", key.removeprefix("use_"))

    def agent_refs(self, name: str, agent: Agent) -> Violation:
        path, agents = f"agents.{name}", self.config.agents
        forced = [agent.force_handoff] if agent.force_handoff else []
        for key, what, refs in (
            ("sub_agents", "sub-agent", agent.sub_agents),
            ("handoffs", "handoff agent", agent.handoffs),
            ("force_handoff", "force_handoff agent", forced),
        ):
            for index, ref in enumerate(refs):
                inner = f"{path}.{key}" if refs is forced else f"{path}.{key}[{index}]"
                if ref in agents:
                    continue
                if not is_external(ref):
                    problem = f"agent '{name}' references non-existent {what} '{ref[:80]}'"
                    yield self.error(problem, inner, suggestion(ref, agents))
                elif external_name(ref)[0] in agents:
                    problem = (
                        f"agent '{name}': external {what} '{ref[:80]}' resolves to name '{external_name(ref)[0]}' "
                        "which conflicts with a locally-defined agent"
                    )
                    yield self.error(problem, inner)

    def handoff_cycles(self) -> Violation:
        agents = self.config.agents
        settled: set[str] = set()
        for name in agents:
            chain: list[str] = []
            step = name
            while step in agents and step not in settled and step not in chain:
                chain.append(step)
                step = agents[step].force_handoff
            if step in chain:
                path = f"agents.{step}.force_handoff"
                if agents[step].force_handoff == step:
                    yield self.error(f"agent '{step}' cannot force_handoff to itself", path)
                else:
                    yield self.error(f"force_handoff cycle detected involving agent '{step}'", path)
            settled.update(chain)

    # --- models ---

    def model_ref(self, ref: str, path: str) -> Violation:
        if not ref or ref == AUTO or ref in self.config.models:
            return
        provider, slash, model = ref.partition("/")
        if not (slash and provider and model):
            problem = f"{path}: {ref[:80]!r} is neither a key of 'models' nor of the form 'provider/model'"
            yield self.error(problem, path, suggestion(ref, self.config.models))

    def model(self, name: str, model: Model) -> Violation:
        path = f"models.{name}"
        if model.first_available:
            others = [
                key
                for key, field in fields_of(Model).items()
                if key != "first_available"
                and getattr(model, field.attribute) != getattr(_EMPTY, field.attribute)
            ]
            if others:
                problem = f"{path}: 'first_available' cannot be combined with {others[0]!r}"
                yield self.error(problem, f"{path}.{others[0]}")
        else:
            for key in ("provider", "model"):
                if not getattr(model, key):
                    yield self.error(f"{path} needs the key {key!r}", path)
        for index, ref in enumerate(model.first_available):
            inner = f"{path}.first_available[{index}]"
            if ref == name:
                yield self.error(f"{inner}: the model refers to itself", inner)
            yield from self.model_ref(ref, inner)
        for index, rule in enumerate(model.routing):
            yield from self.model_ref(rule.model, f"{path}.routing[{index}].model")
        yield from self.model_ref(model.title_model, f"{path}.title_model")
        yield from self.model_ref(model.compaction_model, f"{path}.compaction_model")

    # --- toolsets and what agents may be given ---

    def toolset(self, path: str, toolset: Toolset) -> Violation:
        yield from self.model_ref(toolset.model, f"{path}.model")
        if toolset.toon:
            yield from self.regex(toolset.toon, f"{path}.toon")
        match toolset:
            case McpOptions(ref=ref) if ref and not ref.startswith("docker:"):
                yield from self.defined([ref], self.config.mcps, f"{path}.ref", "mcps")
            case RagOptions(ref=ref) if ref:
                yield from self.defined([ref], self.config.rag, f"{path}.ref", "rag")
            case ModelPickerOptions(models=models):
                for index, ref in enumerate(models):
                    yield from self.model_ref(ref, f"{path}.models[{index}]")
            case _:
                pass

    def mcp(self, path: str, name: str, server: McpOptions) -> Violation:
        if server.type != "mcp":
            yield self.error(f"{path}.type must be 'mcp', not {server.type[:80]!r}", f"{path}.type")
        if server.ref and not server.ref.startswith("docker:"):
            yield self.error(f"{path}.ref: {name!r} must say how to reach its server", f"{path}.ref")
        yield from self.model_ref(server.model, f"{path}.model")

    def commands(self, path: str, commands: Mapping[str, Command]) -> Violation:
        for name, command in commands.items():
            inner = f"{path}.{name}"
            if not name or any(character.isspace() for character in name):
                yield self.error(f"{inner}: {name!r} is not usable as a command's name", inner)
            if command.agent and command.agent not in self.config.agents and not is_external(command.agent):
                problem = f"{inner} references non-existent agent '{command.agent[:80]}'"
                yield self.error(problem, f"{inner}.agent", suggestion(command.agent, self.config.agents))

    def skills(self, path: str, skills: list[Skill]) -> Violation:
        for index, skill in enumerate(skills):
            inner = f"{path}[{index}]"
            if not skill.source and not (skill.name and skill.instructions):
                yield self.error(f"{inner} needs a 'name' and 'instructions'", inner)
            yield from self.model_ref(skill.model, f"{inner}.model")
            yield from self.defined(skill.toolsets, self.config.toolsets, f"{inner}.toolsets", "toolsets")

    def hooks(self, path: str, hooks: Hooks) -> Violation:
        for event in fields_of(Hooks):
            for index, item in enumerate(getattr(hooks, event)):
                inner = f"{path}.{event}[{index}]"
                matched = getattr(item, "hooks", None)
                if matched is not None and item.matcher not in ("", "*"):
                    yield from self.regex(item.matcher, f"{inner}.matcher")
                for hook in [item] if matched is None else matched:
                    if hook.type != "model" and not hook.command:
                        yield self.error(f"{inner}: a hook of type {hook.type!r} needs a 'command'", inner)
                    if hook.type == "model" and not hook.prompt:
                        yield self.error(f"{inner}: a hook of type 'model' needs a 'prompt'", inner)
                    yield from self.model_ref(hook.model, f"{inner}.model")

    def regex(self, text: str, path: str) -> Violation:
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            yield self.error(f"{path}: {text[:80]!r} is no regular expression: {error}", path)

    def defined(
        self, names: Iterable[str], section: Mapping[str, object], path: str, title: str
    ) -> Violation:
        for index, name in enumerate(names):
            if name not in section:
                inner = path if path.endswith(".ref") else f"{path}[{index}]"
                problem = f"{inner}: {name[:80]!r} is not defined under '{title}'"
                yield self.error(problem, inner, suggestion(name, section))


_EMPTY = Model()
