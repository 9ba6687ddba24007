"""The toolsets of one agent: started when first used, kept for the run, closed with it.

A toolset that cannot start is left out and named; the run goes on without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import trio

from actors.errors import ActorsError
from actors.tools.tool import Tool, Toolset

logger = logging.getLogger("greenroom.agent")

CLOSE_DEADLINE = 5.0
"""Seconds a toolset may take to close before it is abandoned."""


@dataclass(frozen=True)
class ToolsetSpec:
    """How to make a toolset.

    Attributes:
        name: For warnings.
        build: Makes it; must be quick and open nothing (``start`` does).
        model: The model for the step that follows results of its tools; empty for the agent's own.
        defer: Tools that stay hidden until the model looks for them: all, or those named.
    """

    name: str
    build: Callable[[], Toolset]
    model: str = ""
    defer: bool | tuple[str, ...] = False

    def hides(self, tool: str) -> bool:
        """Whether the tool is not offered from the start."""
        return self.defer if isinstance(self.defer, bool) else tool in self.defer


class _Slot:
    def __init__(self, spec: ToolsetSpec) -> None:
        self.spec = spec
        self.toolset: Toolset | None = None
        self.started = False


class Toolbox:
    """See the module.

    Args:
        specs: The agent's toolsets, in file order; of two tools with one name the first is offered.
        readonly: Offer only tools that carry the read-only hint.
    """

    def __init__(self, specs: Sequence[ToolsetSpec], *, readonly: bool = False) -> None:
        self._slots = [_Slot(spec) for spec in specs]
        self._readonly = readonly
        self._revealed: set[str] = set()
        self._lock = trio.Lock()

    def attach(self, spec: ToolsetSpec) -> None:
        """Add a toolset between two runs; nothing happens when there is one of its name already."""
        if all(slot.spec.name != spec.name for slot in self._slots):
            self._slots.append(_Slot(spec))

    @property
    def loading(self) -> bool:
        """Whether some toolset has not started yet."""
        return not all(slot.started for slot in self._slots)

    async def start(self) -> list[str]:
        """Start what has not started, all at once; return one warning for each that could not.

        Cancellation: toolsets that were starting may be half open; :meth:`aclose` closes them.
        """
        warnings: list[str] = []
        async with self._lock, trio.open_nursery() as nursery:
            for slot in self._slots:
                if not slot.started:
                    nursery.start_soon(_start, slot, warnings)
        return warnings

    def tools(self) -> Mapping[str, Tool]:
        """Return the tools offered now by name; the list may change between two steps."""
        return {name: tool for name, (slot, tool) in self._found().items() if self._offered(slot, name)}

    def hidden(self) -> Mapping[str, Tool]:
        """Return the deferred tools that were not revealed yet."""
        return {name: tool for name, (slot, tool) in self._found().items() if not self._offered(slot, name)}

    @property
    def defers(self) -> bool:
        """Whether some toolset hides tools at first."""
        return any(slot.spec.defer for slot in self._slots)

    def reveal(self, name: str) -> None:
        """Offer a hidden tool from the next step on."""
        self._revealed.add(name)

    def model_after(self, names: Iterable[str]) -> str:
        """Return the model wanted for the step after calls of these tools; the last one that wants any decides."""
        found = self._found()
        wanted = [found[name][0].spec.model for name in names if name in found]
        return next((model for model in reversed(wanted) if model), "")

    def _found(self) -> dict[str, tuple[_Slot, Tool]]:
        found: dict[str, tuple[_Slot, Tool]] = {}
        for slot in self._slots:
            if slot.started and slot.toolset is not None:
                for tool in slot.toolset.tools():
                    if not self._readonly or tool.definition.annotations.read_only_hint:
                        found.setdefault(tool.definition.name, (slot, tool))
        return found

    def _offered(self, slot: _Slot, name: str) -> bool:
        return name in self._revealed or not slot.spec.hides(name)

    def instructions(self) -> list[str]:
        """Return what the started toolsets add to the system prompt."""
        return [
            slot.toolset.instruction
            for slot in self._slots
            if slot.started and slot.toolset is not None and slot.toolset.instruction
        ]

    async def aclose(self) -> None:
        """Close every toolset that was asked to start, each within its deadline."""
        for slot in reversed(self._slots):
            if slot.toolset is None:
                continue
            slot.started = False
            with trio.move_on_after(CLOSE_DEADLINE) as scope:
                await slot.toolset.aclose()
            if scope.cancelled_caught:
                logger.warning("toolset did not close in time", extra={"toolset": slot.spec.name})


async def _start(slot: _Slot, warnings: list[str]) -> None:
    try:
        if slot.toolset is None:
            slot.toolset = slot.spec.build()
        await slot.toolset.start()
    except ActorsError as error:
        warnings.append(f"{slot.spec.name}: {error.message}")
        return
    slot.started = True
