"""The base of the built-in toolsets: a name, an instruction, a fixed list of tools, and no connection to keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from actors.tools.function import FunctionTool, function_tool
from actors.tools.tool import Annotations, Tool

READ_ONLY = Annotations(read_only_hint=True, idempotent_hint=True)
WRITES = Annotations()
DESTRUCTIVE = Annotations(destructive_hint=True)


class Builtin:
    """A toolset of methods. Subclasses set ``name`` and ``text`` and add their methods with :meth:`offer`."""

    name = ""
    text = ""

    def __init__(self) -> None:
        self._tools: list[FunctionTool] = []

    @property
    def instruction(self) -> str:
        """What the agent should know about these tools together."""
        return self.text

    def offer(
        self,
        function: Callable[..., Any],
        annotations: Annotations = READ_ONLY,
        *,
        name: str = "",
        inline: bool = False,
        rename: Mapping[str, str] | None = None,
    ) -> None:
        """Add a method as a tool (see :func:`actors.tools.function.function_tool`).

        A plain method that writes is waited for on cancellation, so that nothing changes after the call has ended.
        """
        self._tools.append(
            function_tool(
                function,
                name=name,
                category=self.name,
                annotations=annotations,
                rename=rename,
                inline=inline,
                abandon=annotations.read_only_hint,
            )
        )

    async def start(self) -> None:
        """Nothing to connect."""

    async def aclose(self) -> None:
        """Nothing to close."""

    def tools(self) -> Sequence[Tool]:
        """Return the tools."""
        return self._tools
