"""The squads' value types, with the field names and defaults of the wire: shared by engine, store and gateway.

Values only: nothing here reads a file, a clock or a journal. Times are RFC 3339 texts, see :func:`timestamp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

JSON = Any

TaskStatus = Literal["pending", "ready", "assigned", "in_progress", "review", "done", "failed", "cancelled"]
"""States of a task, on the board and in a plan."""
FINISHED: frozenset[TaskStatus] = frozenset({"done", "failed", "cancelled"})
RUNNING: frozenset[TaskStatus] = frozenset({"in_progress", "review"})
Priority = Literal["low", "medium", "high", "critical"]
PlanStatus = Literal["draft", "approved", "executing", "completed", "failed", "cancelled", "rejected"]
Phase = Literal[
    "planning",
    "awaiting_approval",
    "executing",
    "paused",
    "aggregating",
    "completed",
    "failed",
    "cancelled",
]
"""States of an execution."""
TERMINAL: frozenset[Phase] = frozenset({"completed", "failed", "cancelled"})


def timestamp(at: float) -> str:
    """Return seconds since the epoch as an RFC 3339 UTC text with fractional seconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class Wire(Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of what clients and files see."""


# --- agents and squads ------------------------------------------------------------------------------------------


class Role(Struct, frozen=True, omit_defaults=True):
    """What an agent is for; ``value`` is the label of a ``custom`` role."""

    type: str
    value: str | None = None


class ToolConfig(Wire, frozen=True, kw_only=True):
    """Which tools an agent has. No ``enabled_tools``: none at all. Unknown names are kept and ignored."""

    enabled_tools: tuple[str, ...] = ()
    disabled_tools: tuple[str, ...] = ()
    tool_permission_overrides: Mapping[str, str] = field(default_factory=dict[str, str])
    custom_tool_configs: Mapping[str, JSON] = field(default_factory=dict[str, JSON])


class ModelPreferences(Wire, frozen=True, kw_only=True):
    """Which model an agent wants; see :mod:`actors.squad.lineup` for how it is found."""

    preferred_model_id: str | None = None
    preferred_provider_id: str | None = None
    min_context_window: int | None = None
    requires_tool_calling: bool = True
    requires_vision: bool = False


class SettingsOverrides(Wire, frozen=True, kw_only=True):
    """An agent's own limits; ``default_timeout`` is in seconds."""

    max_iterations: int | None = None
    max_tool_calls: int | None = None
    default_timeout: float | None = None
    context_compression_threshold: float | None = None
    max_tokens: int | None = None
    allowed_paths: tuple[str, ...] | None = None


class ExtraMount(Wire, frozen=True, kw_only=True):
    """A host directory inside an agent's container."""

    host_path: str
    name: str
    read_only: bool = True


class ContainerConfig(Wire, frozen=True, kw_only=True):
    """How an agent's container runs."""

    image: str = "aigo-agent-runner:latest"
    timeout_secs: int = 1800
    extra_mounts: tuple[ExtraMount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])


class Agent(Wire, frozen=True, kw_only=True):
    """One member of a squad's lineup."""

    id: str
    name: str
    role: Role
    description: str = ""
    icon: str = ""
    system_prompt: str = ""
    instructions: str = ""
    tool_config: ToolConfig = ToolConfig()
    model_preferences: ModelPreferences = ModelPreferences()
    memory_enabled: bool = True
    settings_overrides: SettingsOverrides | None = None
    source_profile_id: str | None = None
    execution_mode: Literal["in_process", "container"] = "in_process"
    container_config: ContainerConfig | None = None

    @property
    def is_planner(self) -> bool:
        """Whether its role is planning."""
        return self.role.type == "planner"


class SquadStatus(Struct, frozen=True):
    """The most advanced live execution's state, or ``idle``."""

    type: str = "idle"


class Squad(Wire, frozen=True, kw_only=True):
    """A squad. The order of its agents is meaningful."""

    id: str
    name: str
    workspace_path: str
    description: str = ""
    agents: tuple[Agent, ...] = ()
    planner_agent_id: str | None = None
    status: SquadStatus = SquadStatus()
    created_at: str = ""
    updated_at: str = ""

    def agent(self, agent_id: str | None) -> Agent | None:
        """Return the member of that id, if there is one."""
        return next((agent for agent in self.agents if agent.id == agent_id), None)

    @property
    def planner(self) -> Agent | None:
        """Who plans and aggregates: the one named, else the first whose role it is."""
        named = self.agent(self.planner_agent_id)
        return named or next((agent for agent in self.agents if agent.is_planner), None)


# --- tasks and plans --------------------------------------------------------------------------------------------


class Task(Wire, frozen=True, kw_only=True):
    """A row of a squad's board; rows outlive every run. ``token_usage`` is a total."""

    id: str
    squad_id: str
    title: str
    description: str
    plan_id: str | None = None
    assigned_to: str | None = None
    created_by: str = "user"
    status: TaskStatus = "pending"
    priority: Priority = "medium"
    depends_on: tuple[str, ...] = ()
    result: str | None = None
    error: str | None = None
    artifacts: tuple[JSON, ...] = ()
    token_usage: int = 0
    retry_count: int = 0
    max_retries: int = 3
    created_at: str | None = None
    started_at: str | None = None
    completed_at: str | None = None


class PlanTask(Wire, frozen=True, kw_only=True):
    """A task of a plan."""

    id: str
    title: str
    description: str
    assigned_to: str
    depends_on: tuple[str, ...] = ()
    priority: Priority = "medium"
    status: TaskStatus = "pending"
    max_retries: int = 3
    result: str | None = None
    error: str | None = None


class Plan(Wire, frozen=True, kw_only=True):
    """An execution's plan; ``waves`` are the layers of its graph, as task ids."""

    id: str
    squad_id: str
    execution_id: str
    title: str
    status: PlanStatus = "draft"
    tasks: tuple[PlanTask, ...] = ()
    waves: tuple[tuple[str, ...], ...] = ()
    created_at: str = ""
    updated_at: str = ""


# --- executions -------------------------------------------------------------------------------------------------


class TokenUsage(Wire, frozen=True, kw_only=True):
    """Tokens by direction."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def total(self) -> int:
        """Both together."""
        return self.prompt_tokens + self.completion_tokens

    def plus(self, other: TokenUsage) -> TokenUsage:
        """Return the sum."""
        return TokenUsage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
        )


class TaskCounts(Wire, frozen=True, kw_only=True):
    """How many tasks of an execution are in which state; ``skipped`` ones are not counted as cancelled."""

    total: int = 0
    pending: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    skipped: int = 0
    cancelled: int = 0


class Scope(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a directive is for: the whole execution, one task's turns or one agent's."""

    type: Literal["execution", "task", "agent"]
    task_id: str | None = None
    agent_id: str | None = None


WHOLE = Scope("execution")


class Directive(Wire, frozen=True, kw_only=True):
    """An operator's standing instruction: part of every later task turn that its scope matches."""

    id: str
    message: str
    scope: Scope = WHOLE
    created_at: str = ""
    applied_to_task_ids: tuple[str, ...] = ()


class ExecutionStatus(Struct, frozen=True, omit_defaults=True):
    """``data``: the wave while executing or paused, with the reason of the pause; the error of a failed one."""

    type: Phase
    data: Mapping[str, JSON] | None = None


class Execution(Wire, frozen=True, kw_only=True):
    """One request's run, as clients see it."""

    execution_id: str
    id: str
    squad_id: str
    request: str
    auto_approve: bool
    status: ExecutionStatus
    phase: Phase
    current_wave: int = 0
    total_waves: int = 0
    plan: Plan | None = None
    task_counts: TaskCounts = TaskCounts()
    task_attempts: Mapping[str, int] = field(default_factory=dict[str, int])
    skipped_task_ids: tuple[str, ...] = ()
    directives: tuple[Directive, ...] = ()
    planner_started: bool | None = None
    planner_degraded_reason: str | None = None
    plan_iterations: int = 1
    result: str | None = None
    error: str | None = None
    token_usage: TokenUsage = TokenUsage()
    created_at: str = ""
    started_at: str | None = None
    updated_at: str = ""
    completed_at: str | None = None


class ExecutionSummary(Wire, frozen=True, kw_only=True):
    """A row of a squad's executions."""

    execution_id: str
    id: str
    squad_id: str
    request: str
    auto_approve: bool
    status: ExecutionStatus
    phase: Phase
    created_at: str
    updated_at: str
    completed_at: str | None = None


# --- budgets ----------------------------------------------------------------------------------------------------

Seconds = Annotated[int, Meta(ge=1, le=86_400)]
Tokens = Annotated[int, Meta(ge=1, le=100_000_000)]


class BudgetConfig(Wire, frozen=True, kw_only=True):
    """A squad's limits. Task limit ≤ agent limit ≤ total; ``max_total_cost_usd`` null is none."""

    max_total_tokens: Tokens = 100_000
    max_tokens_per_agent: Tokens = 30_000
    max_tokens_per_task: Tokens = 10_000
    max_concurrent_agents: Annotated[int, Meta(ge=1, le=50)] = 3
    max_tasks_per_plan: Annotated[int, Meta(ge=1, le=200)] = 20
    max_plan_iterations: Annotated[int, Meta(ge=1, le=20)] = 3
    max_agent_turns: Annotated[int, Meta(ge=1, le=200)] = 20
    execution_timeout_secs: Seconds = 1800
    task_timeout_secs: Seconds = 300
    agent_idle_timeout_secs: Seconds = 60
    warning_threshold_percent: Annotated[int, Meta(ge=0, le=100)] = 80
    max_total_cost_usd: Annotated[float, Meta(ge=0)] | None = None


class BudgetUsage(Wire, frozen=True, kw_only=True):
    """What a squad's live executions have used, with the limits."""

    total_tokens: int = 0
    per_agent_tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    tasks_created: int = 0
    plan_iterations: int = 0
    active_agents: int = 0
    started_at: str | None = None
    exceeded: bool = False
    warning_emitted: bool = False
    emergency_stopped: bool = False
    total_cost_usd: float = 0.0
    budget: BudgetConfig = BudgetConfig()


# --- history ----------------------------------------------------------------------------------------------------


class HistoryTask(Wire, frozen=True, kw_only=True):
    """A task as its run left it; ``output`` is kept whole."""

    task_id: str
    title: str
    agent_id: str
    agent_name: str
    status: str
    output: str | None = None
    error: str | None = None
    duration_ms: int = 0
    token_usage: TokenUsage = TokenUsage()


class HistoryRecord(Wire, frozen=True, kw_only=True):
    """What an execution did; written once, when it ends."""

    execution_id: str
    squad_id: str
    squad_name: str
    request: str
    plan_title: str = ""
    tasks: tuple[HistoryTask, ...] = ()
    final_result: str | None = None
    status: str = "completed"
    total_token_usage: TokenUsage = TokenUsage()
    per_agent_token_usage: Mapping[str, TokenUsage] = field(default_factory=dict[str, TokenUsage])
    duration_ms: int = 0
    artifacts: tuple[str, ...] = ()
    started_at: str | None = None
    completed_at: str | None = None
