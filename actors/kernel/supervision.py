"""The decision whether a crashed actor starts again. Pure: values in, values out."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Restart(Struct, frozen=True):
    """Start a new incarnation after ``delay`` seconds."""

    delay: float


class Escalate(Struct, frozen=True):
    """Give up: ``crashes`` happened within the policy's period."""

    crashes: int


class RestartPolicy(Struct, frozen=True):
    """How often an actor may crash before it ends as crashed, and how long it rests between.

    Attributes:
        max_restarts: Restarts allowed within ``within``; 0 ends the actor at its first crash.
        within: The period, in seconds.
        backoff: Seconds before the first restart; doubled by every further crash within the period.
        backoff_max: The longest rest, in seconds.
    """

    max_restarts: int = 3
    within: float = 60.0
    backoff: float = 0.1
    backoff_max: float = 5.0

    def decide(self, crashes: Sequence[float], now: float) -> Restart | Escalate:
        """Return what to do after the last of ``crashes``, instants in seconds, rising, at most ``now``."""
        recent = sum(1 for crash in crashes if now - crash < self.within)
        if recent > self.max_restarts:
            return Escalate(recent)
        doublings = min(max(recent - 1, 0), 63)
        return Restart(min(self.backoff * 2.0**doublings, self.backoff_max))
