"""Toolsets around toolsets: another name for each tool, fewer of them, more instruction, less output."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec.structs import replace

from actors.tools.execute import bounded
from actors.tools.tool import JSON, Definition, Tool, ToolContext, ToolResult, Toolset


class Wrapper:
    """A toolset that passes everything through; the base of the others."""

    def __init__(self, inner: Toolset) -> None:
        self.inner = inner
        self.name = inner.name

    @property
    def instruction(self) -> str:
        """The inner toolset's instruction, read when asked because it may come with ``start``."""
        return self.inner.instruction

    async def start(self) -> None:
        """Start the inner toolset. Raises: ToolError when it cannot."""
        await self.inner.start()

    async def aclose(self) -> None:
        """Close the inner toolset."""
        await self.inner.aclose()

    def tools(self) -> Sequence[Tool]:
        """Return the inner toolset's tools."""
        return self.inner.tools()


class Renamed:
    """A tool under another name."""

    def __init__(self, inner: Tool, name: str) -> None:
        self.inner = inner
        self._name = name

    @property
    def definition(self) -> Definition:
        """The inner definition with this name."""
        return replace(self.inner.definition, name=self._name)

    async def run(self, arguments: Mapping[str, JSON], context: ToolContext) -> ToolResult:
        """Run the inner tool."""
        return await self.inner.run(arguments, context)


class Prefixed(Wrapper):
    """Puts ``prefix_`` before every tool's name."""

    def __init__(self, inner: Toolset, prefix: str) -> None:
        super().__init__(inner)
        self._prefix = prefix

    def tools(self) -> Sequence[Tool]:
        """Return the tools under their longer names."""
        return [Renamed(tool, f"{self._prefix}_{tool.definition.name}") for tool in self.inner.tools()]


class Filtered(Wrapper):
    """Offers only the tools that a predicate accepts."""

    def __init__(self, inner: Toolset, accept: Callable[[Definition], bool]) -> None:
        super().__init__(inner)
        self._accept = accept

    def tools(self) -> Sequence[Tool]:
        """Return the accepted tools."""
        return [tool for tool in self.inner.tools() if self._accept(tool.definition)]


class Instructed(Wrapper):
    """Adds text to the inner instruction."""

    def __init__(self, inner: Toolset, text: str) -> None:
        super().__init__(inner)
        self._text = text

    @property
    def instruction(self) -> str:
        """Both texts, the inner one first."""
        return "\n\n".join(part for part in (self.inner.instruction, self._text) if part)


class _Bounded:
    def __init__(self, inner: Tool, limit: int) -> None:
        self.inner = inner
        self._limit = limit

    @property
    def definition(self) -> Definition:
        return self.inner.definition

    async def run(self, arguments: Mapping[str, JSON], context: ToolContext) -> ToolResult:
        return bounded(await self.inner.run(arguments, context), self._limit)


class OutputBounded(Wrapper):
    """Keeps at most ``limit`` code points of each result."""

    def __init__(self, inner: Toolset, limit: int) -> None:
        super().__init__(inner)
        self._limit = limit

    def tools(self) -> Sequence[Tool]:
        """Return the tools with their results cut to the limit."""
        return [_Bounded(tool, self._limit) for tool in self.inner.tools()]


def only(inner: Toolset, names: Collection[str]) -> Toolset:
    """Offer only the named tools."""
    return Filtered(inner, lambda definition: definition.name in names)


def read_only(inner: Toolset) -> Toolset:
    """Offer only the tools that carry a read-only hint."""
    return Filtered(inner, lambda definition: definition.annotations.read_only_hint)
