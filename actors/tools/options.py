"""The options of each toolset type as users write them in YAML; the configuration checks files against these.

The keys common to every toolset (``type``, ``tools``, ``instruction``, ``toon``, ``readonly``, ``model``,
``defer``) are in :class:`Common`. Each type's struct lists its own keys, with unknown keys forbidden.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

JSON = Any
Environment = dict[str, str]


class Common(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """Keys that every toolset accepts.

    Attributes:
        tools: Names of the tools to offer; empty means all.
        instruction: Text added to the agent's system prompt.
        toon: Regular expression of tool names whose JSON output is compressed.
        readonly: Offer only the tools that carry a read-only hint.
        model: Model for the turn that follows this toolset's results.
        defer: Hide all tools (``true``) or the named ones until the agent looks for them.
    """

    type: str
    name: str = ""
    tools: list[str] = field(default_factory=list[str])
    instruction: str = ""
    toon: str = ""
    readonly: bool = False
    model: str = ""
    defer: bool | list[str] = False


class ShellOptions(Common, frozen=True, kw_only=True):
    """``sudo_askpass``: program that sudo asks for a password; ``safer`` is accepted and has no effect."""

    env: Environment = field(default_factory=dict[str, str])
    sudo_askpass: bool | str = False
    safer: bool = False


class PostEdit(Struct, frozen=True, forbid_unknown_fields=True):
    """A command run after a file matching the glob ``path`` was written; ``$path`` names the file."""

    path: str
    cmd: str


class FilesystemOptions(Common, frozen=True, kw_only=True):
    """``allow_list`` adds directories to the working directory; ``deny_list`` takes paths away, and wins."""

    ignore_vcs: bool = True
    post_edit: list[PostEdit] = field(default_factory=list[PostEdit])
    allow_list: list[str] = field(default_factory=list[str])
    deny_list: list[str] = field(default_factory=list[str])


class OAuth(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """A registered OAuth client for a remote MCP server."""

    client_id: str = ""
    client_secret: str = ""
    callback_port: int = 0
    scopes: list[str] = field(default_factory=list[str])
    callback_redirect_url: str = field(default="", name="callbackRedirectURL")


class Remote(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where a remote MCP server is."""

    url: str
    transport_type: Literal["", "sse", "streamable"] = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    oauth: OAuth | None = None


class Backoff(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Waiting between restarts; durations are text such as ``1s``."""

    initial: str = "1s"
    max: str = "32s"
    multiplier: float = 2.0
    jitter: float = 0.0


class Lifecycle(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a server process or connection is started and kept; durations are text such as ``30s``."""

    profile: Literal["", "resilient", "strict", "best-effort"] = ""
    required: bool | None = None
    startup_timeout: str = ""
    call_timeout: str = ""
    restart: str = ""
    max_restarts: int = 5
    backoff: Backoff = field(default_factory=Backoff)


class McpOptions(Common, frozen=True, kw_only=True):
    """Exactly one of ``command``, ``remote`` and ``ref``."""

    command: str = ""
    args: list[str] = field(default_factory=list[str])
    env: Environment = field(default_factory=dict[str, str])
    working_dir: str = ""
    version: str = ""
    remote: Remote | None = None
    ref: str = ""
    config: JSON = None
    allow_private_ips: bool = False
    lifecycle: Lifecycle | None = None

    def __post_init__(self) -> None:
        """Check that the server is named in exactly one way."""
        if sum(bool(way) for way in (self.command, self.remote, self.ref)) != 1:
            raise ValueError("a toolset of type 'mcp' needs exactly one of 'command', 'remote' and 'ref'")


class ThinkOptions(Common, frozen=True, kw_only=True):
    """No options of its own."""


class TodoOptions(Common, frozen=True, kw_only=True):
    """``shared``: one list for all agents of the session instead of one each."""

    shared: bool = False


class FetchOptions(Common, frozen=True, kw_only=True):
    """``timeout`` in seconds for a whole call; one of the two domain lists at most."""

    timeout: float = 30
    allowed_domains: list[str] = field(default_factory=list[str])
    blocked_domains: list[str] = field(default_factory=list[str])
    allow_private_ips: bool = False
    headers: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        """Check the timeout and that the two lists are not mixed."""
        if self.timeout <= 0:
            raise ValueError("'timeout' must be positive")
        if self.allowed_domains and self.blocked_domains:
            raise ValueError("'allowed_domains' and 'blocked_domains' cannot be used together")


class UserPromptOptions(Common, frozen=True, kw_only=True):
    """No options of its own."""


class BackgroundJobsOptions(Common, frozen=True, kw_only=True):
    """``recall``: whether a job tells the agent when it ends, unless the call says otherwise."""

    env: Environment = field(default_factory=dict[str, str])
    recall: bool = False


class RagOptions(Common, frozen=True, kw_only=True):
    """Exactly one of ``ref`` (a key of the top-level ``rag``) and ``rag_config`` (such an entry in place)."""

    ref: str = ""
    rag_config: JSON = None

    def __post_init__(self) -> None:
        """Check that the source is named in exactly one way."""
        if bool(self.ref) == (self.rag_config is not None):
            raise ValueError("a toolset of type 'rag' needs exactly one of 'ref' and 'rag_config'")


class ScriptArgument(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One argument of a script tool; a JSON Schema in small."""

    type: Literal["string", "integer", "number", "boolean", "array", "object"] = "string"
    description: str = ""
    enum: list[JSON] | None = None
    default: JSON = None
    items: dict[str, JSON] | None = None


class ScriptTool(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A shell command offered as a tool; its arguments reach it as environment variables.

    Attributes:
        required: Names of the required arguments; ``None`` makes every argument required.
    """

    cmd: str
    description: str = ""
    args: dict[str, ScriptArgument] = field(default_factory=dict[str, ScriptArgument])
    required: list[str] | None = None
    env: Environment = field(default_factory=dict[str, str])
    working_dir: str = ""

    def __post_init__(self) -> None:
        """Check names that become environment variables."""
        for name in self.args:
            if not (name.isascii() and name.isidentifier()):
                raise ValueError(f"script argument {name!r} is not usable as an environment variable name")
        for name in self.required or ():
            if name not in self.args:
                raise ValueError(f"'required' names {name!r}, which is not in 'args'")


class ScriptOptions(Common, frozen=True, kw_only=True):
    """One tool per entry of ``shell``."""

    shell: dict[str, ScriptTool] = field(default_factory=dict[str, ScriptTool])


class MemoryOptions(Common, frozen=True, kw_only=True):
    """``path`` of the memory file, relative to the data directory's ``memory`` folder unless absolute."""

    path: str = ""


class BackgroundAgentsOptions(Common, frozen=True, kw_only=True):
    """No options of its own."""


class PlanOptions(Common, frozen=True, kw_only=True):
    """No options of its own."""


class SessionPlanOptions(Common, frozen=True, kw_only=True):
    """No options of its own."""


class TasksOptions(Common, frozen=True, kw_only=True):
    """``path`` of the task file, relative to the working directory."""

    path: str = "tasks.json"


class ApiConfig(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One HTTP call offered as a tool; ``${arg}`` in the endpoint is filled with arguments."""

    name: str
    endpoint: str
    method: Literal["GET", "POST"] = "GET"
    instruction: str = ""
    args: dict[str, dict[str, JSON]] = field(default_factory=dict[str, dict[str, JSON]])
    required: list[str] = field(default_factory=list[str])
    headers: dict[str, str] = field(default_factory=dict[str, str])
    output_schema: dict[str, JSON] | None = None


class ApiOptions(Common, frozen=True, kw_only=True):
    """``timeout`` in seconds for a whole call."""

    api_config: ApiConfig
    timeout: float = 30
    allow_private_ips: bool = False


class OpenApiOptions(Common, frozen=True, kw_only=True):
    """``url`` of the OpenAPI document; ``timeout`` in seconds for a whole call."""

    url: str
    headers: dict[str, str] = field(default_factory=dict[str, str])
    timeout: float = 30
    allow_private_ips: bool = False


class LspOptions(Common, frozen=True, kw_only=True):
    """The language server's command and the file types it is asked about."""

    command: str
    args: list[str] = field(default_factory=list[str])
    env: Environment = field(default_factory=dict[str, str])
    file_types: list[str] = field(default_factory=list[str])
    version: str = ""
    working_dir: str = ""
    lifecycle: Lifecycle | None = None


class McpCatalogOptions(Common, frozen=True, kw_only=True):
    """Which servers of the catalogue the agent may find."""

    allowed_servers: list[str] = field(default_factory=list[str])
    blocked_servers: list[str] = field(default_factory=list[str])


class A2aOptions(Common, frozen=True, kw_only=True):
    """Where the remote agent is; ``timeout`` in seconds for a whole call."""

    url: str
    headers: dict[str, str] = field(default_factory=dict[str, str])
    timeout: float = 0
    allow_private_ips: bool = False


class ModelPickerOptions(Common, frozen=True, kw_only=True):
    """The models the agent may change to."""

    models: list[str] = field(default_factory=list[str])


class OpenUrlOptions(Common, frozen=True, kw_only=True):
    """The page that ``open_url`` opens; empty lets the agent name one."""

    url: str = ""


class SessionContextOptions(Common, frozen=True, kw_only=True):
    """No options of its own."""


class GitOptions(Common, frozen=True, kw_only=True):
    """No options of its own."""


class SchedulerOptions(Common, frozen=True, kw_only=True):
    """No options of its own."""


class WebhookConfig(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where a message goes and in which service's shape."""

    url: str = ""
    provider: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    chat_id: str = ""


class WebhookOptions(Common, frozen=True, kw_only=True):
    """One destination."""

    webhook_config: WebhookConfig
    timeout: float = 30
    allow_private_ips: bool = False


OPTIONS: dict[str, type[Common]] = {
    "a2a": A2aOptions,
    "api": ApiOptions,
    "background_agents": BackgroundAgentsOptions,
    "background_jobs": BackgroundJobsOptions,
    "fetch": FetchOptions,
    "filesystem": FilesystemOptions,
    "git": GitOptions,
    "lsp": LspOptions,
    "mcp": McpOptions,
    "mcp_catalog": McpCatalogOptions,
    "memory": MemoryOptions,
    "model_picker": ModelPickerOptions,
    "open_url": OpenUrlOptions,
    "openapi": OpenApiOptions,
    "plan": PlanOptions,
    "rag": RagOptions,
    "scheduler": SchedulerOptions,
    "script": ScriptOptions,
    "session_context": SessionContextOptions,
    "session_plan": SessionPlanOptions,
    "shell": ShellOptions,
    "tasks": TasksOptions,
    "think": ThinkOptions,
    "todo": TodoOptions,
    "user_prompt": UserPromptOptions,
    "webhook": WebhookOptions,
}
"""Toolset type → its options."""
