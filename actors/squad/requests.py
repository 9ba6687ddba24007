"""What clients send to the squads' stored resources and what they get back, with the wire's field names. Values only.

In requests an absent field and ``null`` mean the same, except where a field says that null clears it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import UNSET, UnsetType, field

from actors.squad.values import (
    Agent,
    ContainerConfig,
    ModelPreferences,
    Priority,
    Role,
    SettingsOverrides,
    Squad,
    SquadStatus,
    Task,
    TaskStatus,
    ToolConfig,
    Wire,
)

JSON = Any
RoleGiven = Role | str
"""A role as clients write it: tagged, or its bare name."""


# --- squads -----------------------------------------------------------------------------------------------------


class AgentGiven(Wire, frozen=True, kw_only=True):
    """An agent as a client sends it; the server completes it."""

    name: str
    role: RoleGiven
    id: str | None = None
    description: str | None = None
    icon: str | None = None
    system_prompt: str | None = None
    instructions: str | None = None
    tool_config: ToolConfig | None = None
    model_preferences: ModelPreferences | None = None
    memory_enabled: bool | None = None
    settings_overrides: SettingsOverrides | None = None
    source_profile_id: str | None = None
    execution_mode: Literal["in_process", "container"] | None = None
    container_config: ContainerConfig | None = None


class CreateSquad(Wire, frozen=True, kw_only=True):
    """Row 2. Agents given win over the template's."""

    name: str
    workspace_path: str
    description: str | None = None
    template_id: str | None = None
    agents: tuple[AgentGiven, ...] | None = None
    planner_agent_id: str | None = None


class UpdateSquad(Wire, frozen=True, kw_only=True):
    """Row 4. ``planner_agent_id`` null clears the planner."""

    name: str | None = None
    description: str | None = None
    workspace_path: str | None = None
    agents: tuple[AgentGiven, ...] | None = None
    planner_agent_id: str | UnsetType | None = UNSET


class SquadSummary(Wire, frozen=True, kw_only=True):
    """A row of the list of squads."""

    id: str
    name: str
    description: str
    agent_count: int
    status: SquadStatus
    workspace_path: str
    created_at: str
    updated_at: str
    planner_agent_id: str | None = None


class ManifestHead(Wire, frozen=True, kw_only=True):
    """What a workspace's manifest says of itself."""

    squad_id: str
    squad_name: str
    app_version: str = ""
    initialized_at: str = ""


class RestoreConflicts(Wire, frozen=True, kw_only=True):
    """What stands in the way of restoring."""

    id_exists: bool
    path_in_use: bool


class RestorePreview(Wire, frozen=True, kw_only=True):
    """Row 6: the squad that would be restored; nothing is stored."""

    squad: Squad
    workspace_path: str
    manifest: ManifestHead
    conflicts: RestoreConflicts
    id: str
    name: str
    agents: tuple[Agent, ...]
    warnings: tuple[str, ...] = ()


# --- workspaces -------------------------------------------------------------------------------------------------


class PathVerdict(Wire, frozen=True, kw_only=True):
    """Row 7: whether a directory can become a workspace."""

    valid: bool
    exists: bool = False
    writable: bool = False
    is_empty: bool = False
    in_use_by_squad_id: str | None = None
    message: str | None = None


class WorkspaceStatus(Wire, frozen=True, kw_only=True):
    """Rows 8 and 9."""

    path: str
    exists: bool
    initialized: bool
    manifest_present: bool
    directories: Mapping[str, bool]
    missing: tuple[str, ...]


class Cleaned(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """Row 11."""

    removed: bool
    archive_path: str | None = None


class FileEntry(Wire, frozen=True, kw_only=True):
    """Row 52: one name in a directory of the workspace; ``size`` in bytes."""

    name: str
    path: str
    is_directory: bool
    size: int
    modified_at: str


class FileContent(Wire, frozen=True, kw_only=True):
    """Row 53: a text file; ``size`` in bytes, of the whole file."""

    path: str
    content: str
    size: int
    encoding: str
    truncated: bool = False


class FileHit(Wire, frozen=True, kw_only=True):
    """Row 54: a line that contains what was searched for."""

    path: str
    line: int
    content: str


# --- agents -----------------------------------------------------------------------------------------------------


class AgentPatch(Wire, frozen=True, kw_only=True):
    """Row 28. Objects replace the stored ones whole; null clears the last two and is as good as absent elsewhere."""

    name: str | None = None
    role: RoleGiven | None = None
    description: str | None = None
    icon: str | None = None
    system_prompt: str | None = None
    instructions: str | None = None
    tool_config: ToolConfig | None = None
    model_preferences: ModelPreferences | None = None
    memory_enabled: bool | None = None
    source_profile_id: str | None = None
    execution_mode: Literal["in_process", "container"] | None = None
    settings_overrides: SettingsOverrides | UnsetType | None = UNSET
    container_config: ContainerConfig | UnsetType | None = UNSET


class BulkModel(Wire, frozen=True, kw_only=True):
    """Row 30."""

    agent_ids: tuple[str, ...]
    model_ref: str


class BulkUpdated(Wire, frozen=True, kw_only=True):
    """Row 30's answer."""

    updated_count: int


class AgentReadiness(Wire, frozen=True, kw_only=True):
    """Whether one agent has a model. ``model_served`` is advice: whether it could be called now."""

    agent_id: str
    agent_name: str
    model_id: str | None
    model_served: bool
    available: bool
    message: str | None = None


class Readiness(Wire, frozen=True, kw_only=True):
    """Row 10: whether every agent has a model. ``router_healthy`` is advice and never lowers ``available``."""

    available: bool
    router_healthy: bool
    agents: tuple[AgentReadiness, ...]
    cause: Literal["no_agents", "model_unresolved"] | None = None
    message: str | None = None


# --- tasks ------------------------------------------------------------------------------------------------------


class CreateTask(Wire, frozen=True, kw_only=True):
    """Row 14."""

    title: str
    description: str
    assigned_to: str | None = None
    priority: Priority | None = None
    depends_on: tuple[str, ...] | None = None
    max_retries: int | None = None
    plan_id: str | None = None


class TaskPatch(Wire, frozen=True, kw_only=True):
    """Row 17. ``assigned_to`` null takes the task from its agent."""

    title: str | None = None
    description: str | None = None
    priority: Priority | None = None
    assigned_to: str | UnsetType | None = UNSET
    depends_on: tuple[str, ...] | None = None
    max_retries: int | None = None


class SetTaskStatus(Wire, frozen=True, kw_only=True):
    """Row 19."""

    status: TaskStatus


class RetryTask(Wire, frozen=True, kw_only=True):
    """Row 20; ``force`` allows one attempt beyond the budget."""

    force: bool = False


class TaskGraph(Wire, frozen=True, kw_only=True):
    """Row 15."""

    tasks: tuple[Task, ...] = ()
    waves: tuple[tuple[str, ...], ...] = ()
    ready_task_ids: tuple[str, ...] = ()


class TaskSummary(Wire, frozen=True, kw_only=True):
    """Row 12: how many tasks of a squad are in which state, zeros included."""

    squad_id: str
    total: int
    by_status: Mapping[str, int]


# --- memory -----------------------------------------------------------------------------------------------------


class MemoryPage(Wire, frozen=True, kw_only=True):
    """Rows 23 and 24: an agent's memory file and its sections' names."""

    agent_id: str
    content: str
    sections: tuple[str, ...]


class WriteMemory(Wire, frozen=True, kw_only=True):
    """Row 24."""

    section: str
    content: str
    overwrite: bool = False


class MemoryInitialized(Wire, frozen=True, kw_only=True):
    """Row 21: the agents that have a memory file now."""

    initialized: tuple[str, ...]


class MemoryHit(Wire, frozen=True, kw_only=True):
    """Row 22: a line of an agent's memory, numbered from 1, with the lines around it."""

    agent_id: str
    agent_name: str
    section: str
    line: int
    content: str
    context_before: tuple[str, ...] = ()
    context_after: tuple[str, ...] = ()


# --- analytics --------------------------------------------------------------------------------------------------


class DailyUsage(Wire, frozen=True, kw_only=True):
    """What one day (UTC) used."""

    date: str
    tokens: int
    executions: int


class Analytics(Wire, frozen=True, kw_only=True):
    """Row 62. ``success_rate`` is 0 to 1."""

    total_executions: int = 0
    total_tokens: int = 0
    per_agent_tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    success_rate: float = 0.0
    avg_duration_ms: int = 0
    daily_usage: tuple[DailyUsage, ...] = ()
    completed_count: int = 0
    failed_count: int = 0
    cancelled_count: int = 0


Period = Literal["day", "week", "month", "all"]


# --- templates and registry -------------------------------------------------------------------------------------


class TemplateAgent(Wire, frozen=True, kw_only=True):
    """One member of a template's lineup; what is not here does not survive an import."""

    name: str
    role: str
    system_prompt: str = ""
    tools: tuple[str, ...] = ()
    tool_config: ToolConfig | None = None
    model_preferences: ModelPreferences | None = None
    memory_enabled: bool = True
    icon: str = ""
    i18n_key: str | None = None


Category = Literal["development", "content", "research", "review", "custom"]


class Template(Wire, frozen=True, kw_only=True):
    """A reusable lineup, without a workspace and without ids of agents."""

    id: str
    name: str
    agents: tuple[TemplateAgent, ...]
    schema_version: int = 1
    description: str = ""
    icon: str = ""
    category: Category = "custom"
    is_builtin: bool = False
    suggested_models: tuple[str, ...] = ()
    source_url: str | None = None
    installed_at: str | None = None
    i18n_key: str | None = None


class SaveAsTemplate(Wire, frozen=True, kw_only=True):
    """Row 73."""

    name: str
    description: str | None = None
    icon: str | None = None


class InstallTemplate(Wire, frozen=True, kw_only=True):
    """Row 74; ``source_id`` absent is the first enabled source."""

    path: str
    source_id: str | None = None


Verification = Literal["verified", "trusted", "unverified"]
"""``trusted``: the checksum is right, but no signature vouches for it."""


class InstalledTemplate(Template, frozen=True, kw_only=True):
    """Row 74's answer: the template as stored, and what vouches for it."""

    verification: Verification = "unverified"


class AddSource(Wire, frozen=True, kw_only=True):
    """A registry to be added. ``url`` is https or a local folder; ``public_key`` is Ed25519, in base64, hex or PEM."""

    name: str
    url: str
    public_key: str | None = None
    require_verification: bool = False
    enabled: bool = True


class RegistrySource(Wire, frozen=True, kw_only=True):
    """A registry of templates and agent profiles."""

    id: str
    name: str
    url: str
    public_key: str | None = None
    require_verification: bool = False
    enabled: bool = True
    created_at: str = ""
