"""The agent file as values: one struct per object of the latest version, with the defaults users rely on.

Nothing here reads YAML or checks what spans several objects (:mod:`actors.config.load` does). Toolset options are
declared beside the toolsets in :mod:`actors.tools.options`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from actors.config.duration import parse_duration
from actors.config.forms import DURATION, ONE_OR_MANY, PAIRS, PARAGRAPHS, REST, THINKING, Shorthand
from actors.tools.options import Common, McpOptions
from actors.tools.policy import SafetyMode

LATEST = 15
"""The version that a file without ``version`` has."""
JSON = Any
Toolset = Common
"""Options of any toolset; the loader makes the struct of its type, see ``OPTIONS`` in :mod:`actors.tools.options`."""

Count = Annotated[int, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Duration = Annotated[str, DURATION]
ThinkingBudget = Annotated[int | str, THINKING]
"""Tokens (0 is off, -1 is dynamic) or an effort word."""


class Object(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of everything below: immutable, and unknown keys are errors."""


class Command(Object, frozen=True):
    """A prompt called as ``/name arguments``; written as a string it is the instruction."""

    description: str = ""
    instruction: str = ""
    agent: str = ""
    url: str = ""


Commands = Annotated[dict[str, Annotated[Command, Shorthand("instruction")]], PAIRS]


class Skill(Object, frozen=True):
    """A skill; written as a string it is ``local``, a URL or the name of one (``source``).

    Attributes:
        context: ``fork`` runs the skill in a session of its own.
        toolsets: Names of top-level ``toolsets`` for a forked skill.
    """

    source: str = ""
    name: str = ""
    description: str = ""
    instructions: str = ""
    context: Literal["", "fork"] = ""
    model: str = ""
    allowed_tools: list[str] = field(default_factory=list[str])
    toolsets: list[str] = field(default_factory=list[str])


Skills = list[Annotated[Skill, Shorthand("source")]]


class Hook(Object, frozen=True):
    """Something to run at an event. ``timeout`` in seconds."""

    name: str = ""
    type: Literal["command", "builtin", "model"] = "command"
    command: str = ""
    args: list[str] = field(default_factory=list[str])
    timeout: Annotated[float, Meta(gt=0)] = 60
    env: dict[str, str] = field(default_factory=dict[str, str])
    working_dir: str = ""
    on_error: Literal["warn", "ignore", "block"] = "warn"
    model: str = ""
    prompt: str = ""
    schema: dict[str, JSON] | None = None


class HookMatcher(Object, frozen=True):
    """Hooks for the tools whose name matches ``matcher``: a regular expression, ``*`` or empty for all."""

    matcher: str = ""
    hooks: Annotated[list[Hook], ONE_OR_MANY] = field(default_factory=list[Hook])
    preempt_yolo: bool = False


PlainHooks = Annotated[list[Hook], ONE_OR_MANY]
ToolHooks = Annotated[list[HookMatcher], ONE_OR_MANY]


class Hooks(Object, frozen=True):
    """Event → what to run; the first four are matched by tool name."""

    pre_tool_use: ToolHooks = field(default_factory=list[HookMatcher])
    post_tool_use: ToolHooks = field(default_factory=list[HookMatcher])
    permission_request: ToolHooks = field(default_factory=list[HookMatcher])
    tool_response_transform: ToolHooks = field(default_factory=list[HookMatcher])
    session_start: PlainHooks = field(default_factory=list[Hook])
    session_end: PlainHooks = field(default_factory=list[Hook])
    user_prompt_submit: PlainHooks = field(default_factory=list[Hook])
    user_steering_messages_submit: PlainHooks = field(default_factory=list[Hook])
    user_followup_submit: PlainHooks = field(default_factory=list[Hook])
    turn_start: PlainHooks = field(default_factory=list[Hook])
    turn_end: PlainHooks = field(default_factory=list[Hook])
    before_llm_call: PlainHooks = field(default_factory=list[Hook])
    after_llm_call: PlainHooks = field(default_factory=list[Hook])
    pre_compact: PlainHooks = field(default_factory=list[Hook])
    before_compaction: PlainHooks = field(default_factory=list[Hook])
    after_compaction: PlainHooks = field(default_factory=list[Hook])
    subagent_stop: PlainHooks = field(default_factory=list[Hook])
    on_user_input: PlainHooks = field(default_factory=list[Hook])
    stop: PlainHooks = field(default_factory=list[Hook])
    notification: PlainHooks = field(default_factory=list[Hook])
    on_error: PlainHooks = field(default_factory=list[Hook])
    on_max_iterations: PlainHooks = field(default_factory=list[Hook])
    on_agent_switch: PlainHooks = field(default_factory=list[Hook])
    on_session_resume: PlainHooks = field(default_factory=list[Hook])
    on_tool_approval_decision: PlainHooks = field(default_factory=list[Hook])
    worktree_create: PlainHooks = field(default_factory=list[Hook])


class StructuredOutput(Object, frozen=True):
    """The JSON Schema that answers have to follow."""

    name: str
    schema: dict[str, JSON]
    description: str = ""
    strict: bool = False


class Fallback(Object, frozen=True):
    """What to try when the model fails. ``retries``: -1 is none, 0 leaves the default of 2."""

    models: list[str] = field(default_factory=list[str])
    retries: Annotated[int, Meta(ge=-1)] = 0
    cooldown: Duration = ""

    @property
    def attempts(self) -> int:
        """How often one model is retried."""
        return max(self.retries, 0) if self.retries else 2

    @property
    def cooldown_seconds(self) -> float:
        """How long a working fallback is kept; one minute unless set."""
        return parse_duration(self.cooldown) if self.cooldown else 60.0


class Harness(Object, frozen=True):
    """An external command-line agent that answers instead of a model."""

    type: Literal["claude-code", "codex", "pi", "opencode"]
    model: str = ""
    effort: str = ""
    agent: str = ""
    thinking: str = ""


class AnswerCache(Object, frozen=True):
    """Replays an answer for the same question; in memory unless ``path`` names a file."""

    enabled: bool = False
    case_sensitive: bool = False
    trim_spaces: bool = False
    path: str = ""


class Agent(Object, frozen=True):
    """One agent. ``model`` empty means the runtime's default model; zero limits mean none."""

    name: str = field(default="", name="Name")
    model: str = ""
    description: str = ""
    instruction: Annotated[str, PARAGRAPHS] = ""
    instruction_file: Annotated[list[str], ONE_OR_MANY] = field(default_factory=list[str])
    welcome_message: str = ""
    toolsets: list[Toolset] = field(default_factory=list[Toolset])
    sub_agents: list[str] = field(default_factory=list[str])
    handoffs: list[str] = field(default_factory=list[str])
    force_handoff: str = ""
    commands: Commands = field(default_factory=dict[str, Command])
    skills: bool | Skills | None = None
    hooks: Hooks | None = None
    add_date: bool = False
    add_environment_info: bool = False
    add_prompt_files: list[str] = field(default_factory=list[str])
    add_description_parameter: bool = False
    max_iterations: Count = 0
    max_consecutive_tool_calls: Count = 5
    max_old_tool_call_tokens: int = 0
    max_tool_result_tokens: int = 0
    num_history_items: Count = 0
    structured_output: StructuredOutput | None = None
    fallback: Fallback | None = None
    harness: Harness | None = None
    code_mode_tools: bool = False
    safety: SafetyMode = ""
    readonly: bool = False
    redact_secrets: bool = True
    session_compaction: bool = True
    compaction_threshold: Fraction = 0.9
    compaction_model: str = ""
    cache: AnswerCache | None = None
    budgets: list[str] = field(default_factory=list[str])
    use_commands: list[str] = field(default_factory=list[str])
    use_skills: list[str] = field(default_factory=list[str])
    use_toolsets: list[str] = field(default_factory=list[str])

    @property
    def models(self) -> tuple[str, ...]:
        """The model references of a comma list, in order; empty when the default model is meant."""
        return tuple(part.strip() for part in self.model.split(",") if part.strip())


class RoutingRule(Object, frozen=True):
    """Requests like one of ``examples`` go to ``model``."""

    model: str
    examples: list[str] = field(default_factory=list[str])


class Capabilities(Object, frozen=True):
    """What the model can read, where the catalogue is wrong or silent."""

    image: bool | None = None
    pdf: bool | None = None


class Cost(Object, frozen=True):
    """USD per million tokens."""

    input: Amount = 0.0
    output: Amount = 0.0
    cache_read: Amount = 0.0
    cache_write: Amount = 0.0


class Endpoint(Object, frozen=True):
    """The settings that models and providers share; a model inherits its provider's where it has none.

    Attributes:
        token_key: Name of the environment variable that holds the key.
    """

    base_url: str = ""
    token_key: str = ""
    temperature: Temperature | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    parallel_tool_calls: bool | None = None
    provider_opts: dict[str, JSON] = field(default_factory=dict[str, JSON])
    track_usage: bool | None = None
    thinking_budget: ThinkingBudget | None = None
    task_budget: JSON = None
    auth: dict[str, JSON] | None = None
    compaction_model: str = ""


class Model(Endpoint, frozen=True):
    """A model with its settings. ``first_available`` lists references and excludes every other key."""

    provider: str = ""
    model: str = ""
    description: str = ""
    bypass_models_gateway: bool = False
    routing: list[RoutingRule] = field(default_factory=list[RoutingRule])
    first_available: list[str] = field(default_factory=list[str])
    title_model: str = ""
    compaction_threshold: Fraction | None = None
    capabilities: Capabilities | None = None
    cost: Cost | None = None

    @property
    def ref(self) -> str:
        """The ``provider/model`` reference; empty for a choice of several."""
        return f"{self.provider}/{self.model}" if self.model else ""


class Provider(Endpoint, frozen=True):
    """A reusable endpoint; models name it as their ``provider``."""

    provider: str = "openai"
    api_type: Literal["", "openai_chatcompletions", "openai_responses"] = ""
    unload_api: str = ""


class Metadata(Object, frozen=True):
    """Who made the file, for people and listings."""

    author: str = ""
    license: str = ""
    description: str = ""
    readme: str = ""
    version: str = ""
    tags: list[str] = field(default_factory=list[str])


class Permissions(Object, frozen=True):
    """Patterns of the team tier."""

    allow: list[str] = field(default_factory=list[str])
    ask: list[str] = field(default_factory=list[str])
    deny: list[str] = field(default_factory=list[str])


class RagTool(Object, frozen=True):
    """How the search tool is offered; ``name`` empty takes the source's name."""

    name: str = ""
    description: str = ""
    instruction: str = ""


class Chunking(Object, frozen=True):
    """How documents are cut, sizes in characters; 0 leaves the strategy's default."""

    size: Count = 0
    overlap: Count = 0
    respect_word_boundaries: bool = False
    code_aware: bool = False


class RagStrategy(Object, frozen=True):
    """One way to search; keys that only its type knows are in ``parameters``."""

    type: str
    docs: list[str] = field(default_factory=list[str])
    database: JSON = None
    chunking: Chunking | None = None
    limit: Count = 0
    parameters: Annotated[dict[str, JSON], REST] = field(default_factory=dict[str, JSON])


class Fusion(Object, frozen=True):
    """How the strategies' results become one list."""

    strategy: Literal["", "rrf", "weighted", "max"] = ""
    k: Count = 0
    weights: dict[str, float] = field(default_factory=dict[str, float])


class Reranking(Object, frozen=True):
    """A model orders the results once more."""

    model: str
    top_k: Count = 0
    threshold: float = 0.0
    criteria: str = ""


class RagResults(Object, frozen=True):
    """What the search returns."""

    limit: Count = 15
    fusion: Fusion | None = None
    reranking: Reranking | None = None
    deduplicate: bool = True
    include_score: bool = False
    return_full_content: bool = False


class RagSource(Object, frozen=True):
    """Documents to search and how."""

    tool: RagTool = RagTool()
    docs: list[str] = field(default_factory=list[str])
    respect_vcs: bool = True
    strategies: list[RagStrategy] = field(default_factory=list[RagStrategy])
    results: RagResults = RagResults()


class Runtime(Object, frozen=True):
    """Defaults the author asks of the runtime."""

    sandbox: bool = False
    safety: SafetyMode = ""
    network_allowlist: list[str] = field(default_factory=list[str])


class Budget(Object, frozen=True):
    """Limits of a run with its delegated runs; what is unset is not limited. ``max_cost`` in USD."""

    max_cost: Amount = 0.0
    max_tokens: Count = 0
    max_time: Duration = ""

    @property
    def max_seconds(self) -> float:
        """``max_time`` in seconds; 0 when not limited."""
        return parse_duration(self.max_time) if self.max_time else 0.0


class Config(Object, frozen=True):
    """A whole file. ``agents`` keep file order; ``version`` is empty when the file has none."""

    version: str = ""
    agents: dict[str, Agent] = field(default_factory=dict[str, Agent])
    providers: dict[str, Provider] = field(default_factory=dict[str, Provider])
    models: dict[str, Model] = field(default_factory=dict[str, Model])
    mcps: dict[str, McpOptions] = field(default_factory=dict[str, McpOptions])
    rag: dict[str, RagSource] = field(default_factory=dict[str, RagSource])
    commands: dict[str, Commands] = field(default_factory=dict[str, Commands])
    skills: dict[str, Skills] = field(default_factory=dict[str, Skills])
    toolsets: dict[str, Toolset] = field(default_factory=dict[str, Toolset])
    metadata: Metadata = Metadata()
    permissions: Permissions | None = None
    runtime: Runtime | None = None
    budget: Budget | None = None
    budgets: dict[str, Budget] = field(default_factory=dict[str, Budget])
    flavors: dict[str, JSON] = field(default_factory=dict[str, JSON])

    @property
    def first(self) -> Agent:
        """The first agent in the file, which listings describe."""
        return next(iter(self.agents.values()))

    @property
    def default(self) -> Agent:
        """The agent that runs when none is named: ``root``, else the first."""
        return self.agents.get("root") or self.first

    def model(self, ref: str) -> Model:
        """Return the named model, or an inline ``provider/model`` as a model without settings.

        Raises:
            KeyError: ``ref`` is neither.
        """
        named = self.models.get(ref)
        if named is not None:
            return named
        provider, slash, model = ref.partition("/")
        if not (slash and provider and model):
            raise KeyError(ref)
        return Model(provider=provider, model=model)
