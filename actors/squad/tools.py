"""The tools of a squad's workers: files of the workspace and the memory bank, as far as the agent's configuration goes.

Whatever a configuration names, nothing here deletes, moves or runs anything (squads contract 3.3).
"""

# ruff: noqa: D417 - docstrings of tools are written for models, who do not see the context

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from functools import cache
from types import MethodType
from typing import Literal, Protocol

import trio
from msgspec import Struct

from actors.squad.values import Agent
from actors.tools.builtin.filesystem import Filesystem
from actors.tools.builtin.toolset import READ_ONLY, WRITES
from actors.tools.function import FunctionTool, function_tool
from actors.tools.options import FilesystemOptions
from actors.tools.policy import Rules
from actors.tools.textfile import decode
from actors.tools.tool import Tool, ToolContext
from actors.tools.workspace import WalkFilter, Workspace, read_bytes, translated, walk

Change = Literal["created", "modified", "deleted"]
OWN_FILES = (".squad.json", "plans", "tasks", "memory", "logs", "sessions", "discussions")
"""What of the workspace belongs to the squad itself; workers reach memories by the memory tools alone."""
MEMORY_TOOLS = frozenset({"read_memory", "write_memory", "search_memory"})
_DIFF_LIMIT = 2_000_000
_LIST_LIMIT = 2000


class Memory(Protocol):
    """The memory bank as one agent may use it."""

    async def read(self) -> str:
        """Return the agent's own memory."""
        ...

    async def write(self, section: str, content: str) -> None:
        """Append to a section of it."""
        ...

    async def search(self, query: str) -> Sequence[str]:
        """Return the lines of all agents' memories that contain ``query``."""
        ...


class Reports(Struct, frozen=True):
    """Whom the tools tell what they changed."""

    file_changed: Callable[[str, Change], Awaitable[None]]
    memory_written: Callable[[str], Awaitable[None]]


class WorkerTools:
    """See the module.

    Args:
        agent: Its ``toolConfig`` names the tools; without any it has none.
        memory: Its memory; offered only when it is enabled for the agent.
        reports: Told of changes.
    """

    name = "workspace"
    instruction = "Paths are relative to the squad's workspace, which all its agents share."

    def __init__(self, agent: Agent, memory: Memory, reports: Reports) -> None:
        self._memory = memory
        self._reports = reports
        config = agent.tool_config
        wanted = set(config.enabled_tools) - set(config.disabled_tools)
        if not agent.memory_enabled:
            wanted -= MEMORY_TOOLS
        self._tools = [_bound(tool, self) for tool in _described() if tool.definition.name in wanted]

    async def start(self) -> None:
        """Nothing to connect."""

    async def aclose(self) -> None:
        """Nothing to close."""

    def tools(self) -> Sequence[Tool]:
        """Return those the agent's configuration names; names that do not exist are ignored."""
        return self._tools

    async def write_file(self, path: str, content: str, context: ToolContext) -> str:
        """Write a file, replacing what it held; missing directories are made.

        Args:
            path: The file.
            content: Its whole new content.
        """
        workspace = _workspace(context)
        place = workspace.place(path)
        existed = await trio.to_thread.run_sync(place.path.exists)
        written = await _files().write_file(path, content, context)
        await self._reports.file_changed(workspace.shown(place), "modified" if existed else "created")
        return written

    def list_files(self, context: ToolContext, path: str = ".") -> str:
        """List all files below a directory, one a line.

        Args:
            path: The directory; "." is the workspace.
        """
        workspace = _workspace(context)
        found: list[str] = []
        for place, entry in walk(workspace.place(path), WalkFilter(workspace)):
            if entry.kind == "file":
                if len(found) == _LIST_LIMIT:
                    return "\n".join([*found, f"... cut off after {_LIST_LIMIT} files"])
                found.append(workspace.shown(place))
        return "\n".join(found) or "(no files)"

    def search_files(self, query: str, context: ToolContext, path: str = ".") -> str:
        """Search the text files below a directory, or one file; returns path:line: text.

        Args:
            query: The text to find within a line.
            path: The directory to search.
        """
        return _files().search_files_content(path, query, context)

    def diff_files(self, first: str, second: str, context: ToolContext) -> str:
        """Compare two text files; returns a unified diff.

        Args:
            first: One file.
            second: The other.
        """
        workspace = _workspace(context)
        before, after = (_lines(workspace, path) for path in (first, second))
        return "".join(difflib.unified_diff(before, after, first, second)) or "(the files are equal)"

    async def read_memory(self) -> str:
        """Read your own memory file."""
        return await self._memory.read() or "(empty)"

    async def write_memory(self, section: str, content: str) -> str:
        """Add to a section of your memory; it is made if there is none.

        Args:
            section: Its heading.
            content: What to remember.
        """
        await self._memory.write(section, content)
        await self._reports.memory_written(section)
        return f"Remembered under {section!r}."

    async def search_memory(self, query: str) -> str:
        """Search the memories of all agents of the squad.

        Args:
            query: A plain text; upper and lower case are the same.
        """
        return "\n".join(await self._memory.search(query)) or "(nothing found)"


@cache
def _files() -> Filesystem:
    """Return the file tools; they keep nothing between calls."""
    return Filesystem(FilesystemOptions(type="filesystem", deny_list=list(OWN_FILES)))


@cache
def _described() -> Sequence[FunctionTool]:
    """Return every tool of a worker, described once: making a description costs more than a short task."""
    nobody = object.__new__(WorkerTools)
    offered = (
        (_files().read_file, READ_ONLY),
        (nobody.write_file, WRITES),
        (nobody.list_files, READ_ONLY),
        (_files().list_directory, READ_ONLY),
        (nobody.search_files, READ_ONLY),
        (nobody.diff_files, READ_ONLY),
        (nobody.read_memory, READ_ONLY),
        (nobody.write_memory, WRITES),
        (nobody.search_memory, READ_ONLY),
    )
    return [
        function_tool(method, category="workspace", annotations=hints, abandon=hints.read_only_hint)
        for method, hints in offered
    ]


def _bound(tool: FunctionTool, owner: WorkerTools) -> FunctionTool:
    """Return a described tool as one of ``owner``'s."""
    method = tool.function
    assert isinstance(method, MethodType)
    if isinstance(method.__self__, WorkerTools):
        tool = copy(tool)
        tool.function = MethodType(method.__func__, owner)
    return tool


def permission_rules(agent: Agent) -> Rules:
    """Return the agent's permission overrides as rules. Nobody is there to ask, so tools that must ask are refused."""
    overrides = agent.tool_config.tool_permission_overrides
    return Rules(
        allow=tuple(name for name, level in overrides.items() if level == "always_allow"),
        ask=tuple(name for name, level in overrides.items() if level in ("ask_once", "ask_always")),
        deny=tuple(name for name, level in overrides.items() if level == "never_allow"),
    )


def _workspace(context: ToolContext) -> Workspace:
    return Workspace(context.working_dir, (), OWN_FILES)


def _lines(workspace: Workspace, path: str) -> list[str]:
    with translated(path):
        data, _ = read_bytes(workspace.place(path), path, _DIFF_LIMIT)
    return decode(data, path).shown().splitlines(keepends=True)
