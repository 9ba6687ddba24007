"""A squad's agents as clients send and change them: completed, checked, patched, and copied from templates. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from actors.errors import Conflict, Invalid
from actors.squad.paths import check_agent_id
from actors.squad.requests import AgentGiven, AgentPatch, RoleGiven, TemplateAgent
from actors.squad.values import Agent, ModelPreferences, Role, ToolConfig

ROLES = ("planner", "developer", "reviewer", "writer")
PERMISSIONS = ("always_allow", "ask_once", "ask_always", "never_allow")
AGENTS_LIMIT = 100
NAME_LENGTH = 200
PROMPT_LENGTH = 200_000


def role_of(given: RoleGiven) -> Role:
    """Return a role as it is stored: one of the four whole, ignoring case, else a custom one with its label.

    Raises:
        Invalid: a custom role without a label.
    """
    if isinstance(given, str):
        label, kind = given.strip(), given.strip().casefold()
    elif given.type == "custom":
        label, kind = (given.value or "").strip(), "custom"
    else:
        label, kind = given.type.strip(), given.type.strip().casefold()
    if kind in ROLES:
        return Role(kind)
    if not label:
        raise Invalid("role is blank, or custom without a value")
    return Role("custom", label)


def role_text(role: Role) -> str:
    """Return a role as templates write it."""
    return role.value or role.type


def complete(given: AgentGiven, new_id: Callable[[], str]) -> Agent:
    """Return the agent a client described. Raises: Invalid, naming the field."""
    agent = Agent(
        id=check_agent_id(given.id) if given.id else new_id(),
        name=given.name,
        role=role_of(given.role),
        description=given.description or "",
        icon=given.icon or "",
        system_prompt=given.system_prompt or "",
        instructions=given.instructions or "",
        tool_config=given.tool_config or ToolConfig(),
        model_preferences=given.model_preferences or ModelPreferences(),
        memory_enabled=True if given.memory_enabled is None else given.memory_enabled,
        settings_overrides=given.settings_overrides,
        source_profile_id=given.source_profile_id,
        execution_mode=given.execution_mode or "in_process",
        container_config=given.container_config,
    )
    return _checked(agent)


def patched(agent: Agent, given: AgentPatch) -> Agent:
    """Return an agent with what is given put in the place of what it had, objects whole. Raises: Invalid."""
    changes = {
        name: value
        for name in AgentPatch.__struct_fields__
        if name not in ("role", "settings_overrides", "container_config")
        and (value := getattr(given, name)) is not None
    }
    agent = replace(agent, **changes)
    if given.role is not None:
        agent = replace(agent, role=role_of(given.role))
    if given.settings_overrides is not UNSET:
        agent = replace(agent, settings_overrides=given.settings_overrides)
    if given.container_config is not UNSET:
        agent = replace(agent, container_config=given.container_config)
    return _checked(agent)


def lineup(agents: Iterable[AgentGiven], new_id: Callable[[], str]) -> tuple[Agent, ...]:
    """Return a whole lineup. Raises: Invalid; Conflict, two agents have the same id."""
    made: tuple[Agent, ...] = ()
    for given in agents:
        made = joined(made, complete(given, new_id))
    return made


def joined(agents: Sequence[Agent], agent: Agent) -> tuple[Agent, ...]:
    """Return a lineup with one more agent.

    Raises:
        Conflict: its id is taken; ids that differ only by upper and lower case are the same directory.
        Invalid: the squad is full.
    """
    if len(agents) >= AGENTS_LIMIT:
        raise Invalid(f"a squad has at most {AGENTS_LIMIT} agents")
    if any(other.id.casefold() == agent.id.casefold() for other in agents):
        raise Conflict(f"agent id {agent.id!r} is taken")
    return (*agents, agent)


def from_template(agents: Iterable[TemplateAgent], new_id: Callable[[], str]) -> tuple[Agent, ...]:
    """Return a template's agents with ids of their own. Raises: Invalid."""
    return tuple(
        complete(
            AgentGiven(
                name=agent.name,
                role=agent.role,
                icon=agent.icon,
                system_prompt=agent.system_prompt,
                tool_config=agent.tool_config or ToolConfig(enabled_tools=agent.tools),
                model_preferences=agent.model_preferences,
                memory_enabled=agent.memory_enabled,
            ),
            new_id,
        )
        for agent in agents
    )


def to_template(agents: Iterable[Agent]) -> tuple[TemplateAgent, ...]:
    """Return a squad's agents as a template's, with all their tool settings and model preferences."""
    return tuple(
        TemplateAgent(
            name=agent.name,
            role=role_text(agent.role),
            system_prompt=agent.system_prompt,
            tools=agent.tool_config.enabled_tools,
            tool_config=agent.tool_config,
            model_preferences=agent.model_preferences,
            memory_enabled=agent.memory_enabled,
            icon=agent.icon,
        )
        for agent in agents
    )


def _checked(agent: Agent) -> Agent:
    name = agent.name.strip()
    if not name:
        raise Invalid("agent's name is blank")
    if len(name) > NAME_LENGTH:
        raise Invalid(f"agent's name is longer than {NAME_LENGTH} characters")
    if len(agent.system_prompt) > PROMPT_LENGTH or len(agent.instructions) > PROMPT_LENGTH:
        raise Invalid(
            f"agent {name!r}: systemPrompt and instructions may have {PROMPT_LENGTH} characters each"
        )
    for tool, permission in agent.tool_config.tool_permission_overrides.items():
        if permission not in PERMISSIONS:
            raise Invalid(
                f"agent {name!r}: toolPermissionOverrides.{tool} must be one of {', '.join(PERMISSIONS)}"
            )
    return replace(agent, name=name)
