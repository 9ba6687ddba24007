"""Tools for finding tools: an agent with deferred toolsets looks for what it needs instead of carrying it all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from actors.agent.delegation import text_of
from actors.agent.toolbox import Toolbox
from actors.tools.tool import Annotations, Definition, Tool, ToolContext, ToolError, ToolResult

JSON = Any
MAX_FOUND = 20
_READ_ONLY = Annotations(read_only_hint=True)


def tools(box: Toolbox) -> dict[str, Tool]:
    """Return ``search_tool`` and ``add_tool`` when the agent has deferred toolsets."""
    return {"search_tool": SearchTool(box), "add_tool": AddTool(box)} if box.defers else {}


class SearchTool:
    """Find hidden tools by words of their names and descriptions."""

    definition = Definition(
        "search_tool",
        "Find tools that are available but not loaded. Load one with add_tool before you call it.",
        {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "Words to look for; empty lists all."}},
        },
        category="deferred",
        annotations=_READ_ONLY,
    )

    def __init__(self, box: Toolbox) -> None:
        self._box = box

    async def run(self, arguments: Mapping[str, JSON], context: ToolContext) -> ToolResult:
        """List the tools that hold every word, best names first."""
        del context
        await trio.lowlevel.checkpoint()
        words = text_of(arguments, "query").lower().split()
        found = [
            tool.definition
            for tool in self._box.hidden().values()
            if all(word in f"{tool.definition.name} {tool.definition.description}".lower() for word in words)
        ]
        found.sort(key=lambda each: (not any(word in each.name.lower() for word in words), each.name))
        lines = [f"- {each.name}: {each.description}" for each in found[:MAX_FOUND]]
        if len(found) > MAX_FOUND:
            lines.append(f"… and {len(found) - MAX_FOUND} more; use more words.")
        return ToolResult("\n".join(lines) or "No tool matches.")


class AddTool:
    """Load a hidden tool."""

    definition = Definition(
        "add_tool",
        "Load a tool that search_tool found; you can call it from your next message on.",
        {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        category="deferred",
        annotations=_READ_ONLY,
    )

    def __init__(self, box: Toolbox) -> None:
        self._box = box

    async def run(self, arguments: Mapping[str, JSON], context: ToolContext) -> ToolResult:
        """Reveal it. Raises: ToolError when there is no such hidden tool."""
        del context
        await trio.lowlevel.checkpoint()
        name = text_of(arguments, "name")
        if name not in self._box.hidden():
            raise ToolError(f"no tool named {name} can be loaded; search_tool lists those that can")
        self._box.reveal(name)
        return ToolResult(f"{name} is loaded.")
