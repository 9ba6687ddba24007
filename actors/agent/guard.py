"""The loop detector: a model that makes the same calls over and over is stopped (sessions contract 6.6). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from actors.models.provider import ToolCall

POLLING = frozenset(
    {
        "view_background_agent",
        "view_background_agents",
        "list_background_agent",
        "list_background_agents",
        "view_background_job",
    }
)
"""Tools that are meant to be called again and again; a batch of nothing else does not count."""


class LoopDetector:
    """Counts identical consecutive batches of calls.

    Args:
        limit: How many identical batches end the run; 0 never does.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._last: tuple[tuple[str, str], ...] = ()
        self._count = 0

    def add(self, calls: Sequence[ToolCall]) -> str:
        """Count one batch; return the error text once the limit is reached, else an empty text."""
        if all(call.name in POLLING for call in calls):
            return ""
        batch = tuple((call.name, call.arguments) for call in calls)
        self._count = self._count + 1 if batch == self._last else 1
        self._last = batch
        if not 0 < self._limit <= self._count:
            return ""
        return (
            f"Agent terminated: detected {self._count} consecutive identical calls to {calls[0].name}. "
            "This indicates a degenerate loop where the model is not making progress."
        )
