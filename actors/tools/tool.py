"""What a tool is: the contract between the agent loop, toolsets and the approval policy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from actors.errors import ActorsError

JSON = Any


class Annotations(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Hints in MCP's words; ``read_only_hint`` decides whether a call asks in the default safety mode."""

    title: str = ""
    read_only_hint: bool = False
    destructive_hint: bool = False
    idempotent_hint: bool = False
    open_world_hint: bool = False


class Definition(Struct, frozen=True, omit_defaults=True):
    """A tool as models, clients and the policy see it. ``parameters`` is a JSON Schema of type object.

    ``lenient``: the tool checks its arguments itself, by rules that accept more than the schema does.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, JSON] = field(default_factory=lambda: {"type": "object", "properties": {}})
    category: str = ""
    annotations: Annotations = Annotations()
    output_schema: Mapping[str, JSON] | None = None
    lenient: bool = False


class Media(Struct, frozen=True, omit_defaults=True):
    """Binary or file-like output: base64 ``data`` or ``text``, with its type."""

    kind: Literal["image", "audio", "document"]
    mime_type: str
    data: str = ""
    text: str = ""
    name: str = ""
    uri: str = ""


class ToolResult(Struct, frozen=True, omit_defaults=True):
    """What a call produced.

    ``output`` is what the model reads; it is valid UTF-8 without NUL or lone surrogates.
    ``terminal`` ends the run when the call succeeds (a ``task_complete`` tool).
    """

    output: str
    is_error: bool = False
    media: tuple[Media, ...] = ()
    structured: JSON = None
    meta: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    terminal: bool = False


class ToolError(ActorsError):
    """A tool's own, expected failure; the text goes to the model as an error result."""

    code = "tool_failed"


class Elicitation(Struct, frozen=True, omit_defaults=True):
    """A question to the person: a form (``schema``) or a page to visit (``url``)."""

    message: str
    mode: Literal["form", "url"] = "form"
    title: str = ""
    schema: Mapping[str, JSON] | None = None
    url: str = ""
    meta: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    server_id: str = ""


class ElicitationReply(Struct, frozen=True, omit_defaults=True):
    """The person's answer; ``content`` comes with ``accept``."""

    action: str
    content: Mapping[str, JSON] = field(default_factory=dict[str, JSON])


async def _nobody(_: Elicitation) -> ElicitationReply:
    return ElicitationReply("cancel")


def _ignore(_: str) -> None:
    return None


class ToolContext(Struct, frozen=True, kw_only=True):
    """What a call may know and touch.

    Attributes:
        session_id: The session (or squad execution) on whose behalf it runs.
        agent: The calling agent's name.
        call_id: The model's id of this call.
        working_dir: Where relative paths resolve; an absolute path.
        data_dir: The runtime's data directory, for tools that keep files of their own.
        headers: Headers of the API request that started the run, lower-cased names, for ``${headers.NAME}``.
        env: Environment for child processes and ``${env.NAME}``.
        emit_output: Give out live output while running; never blocks.
        elicit: Ask the person; waits for the answer.
    """

    session_id: str
    agent: str
    call_id: str
    working_dir: Path
    data_dir: Path
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    emit_output: Callable[[str], None] = _ignore
    elicit: Callable[[Elicitation], Awaitable[ElicitationReply]] = _nobody


class Tool(Protocol):
    """One callable tool."""

    @property
    def definition(self) -> Definition:
        """The tool as models see it."""
        ...

    async def run(self, arguments: Mapping[str, JSON], context: ToolContext) -> ToolResult:
        """Do it. ``arguments`` is an object that passed the schema.

        Raises:
            ToolError: an expected failure, told to the model.

        Cancellation: everything the call started (processes, connections) is gone when it returns.
        """
        ...


class Toolset(Protocol):
    """A group of tools with a common life: opened for a session, closed with it.

    ``tools`` may change between two steps (an MCP server's list); ``instruction`` is added to the system
    prompt.
    """

    @property
    def name(self) -> str:
        """The toolset's type or given name, for messages about it."""
        ...

    @property
    def instruction(self) -> str:
        """Text for the system prompt; empty for none."""
        ...

    async def start(self) -> None:
        """Connect what it needs; idempotent. Raises: ToolError when it cannot; the run goes on without it."""
        ...

    async def aclose(self) -> None:
        """End what it started; idempotent."""
        ...

    def tools(self) -> Sequence[Tool]:
        """Return the tools as they are now."""
        ...
