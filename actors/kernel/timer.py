"""One task and one heap for all of a system's timers, because a task or cancel scope for each would cost more."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from math import inf

import trio

_COMPACT_AT = 64


class Timer:
    """Something that will be called once, unless cancelled before."""

    __slots__ = ("_fire", "_timers")

    def __init__(self, timers: Timers, fire: Callable[[], None]) -> None:
        self._timers = timers
        self._fire: Callable[[], None] | None = fire

    @property
    def pending(self) -> bool:
        """Whether it was neither called nor cancelled."""
        return self._fire is not None

    def cancel(self) -> None:
        """Do not call it. Idempotent, also after it was called."""
        if self._fire is not None:
            self._fire = None
            self._timers.note_cancelled()

    def fire(self) -> None:
        """Call it now, if still pending."""
        if (fire := self._fire) is not None:
            self._fire = None
            fire()


class Timers:
    """A heap of timers; :meth:`run` calls what is due. Callbacks are synchronous and must not raise."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._cancelled = 0
        self._sleep = trio.CancelScope()

    def at(self, deadline: float, fire: Callable[[], None]) -> Timer:
        """Call ``fire`` at ``deadline``, in seconds of :func:`trio.current_time`; equal deadlines keep their order."""
        timer = Timer(self, fire)
        heapq.heappush(self._heap, (deadline, next(self._order), timer))
        if deadline < self._sleep.deadline:
            self._sleep.deadline = deadline
        return timer

    def count(self) -> int:
        """Return how many timers the heap holds, some of them cancelled."""
        return len(self._heap)

    def note_cancelled(self) -> None:
        """Count a cancelled timer; drop them from the heap when they are most of it."""
        self._cancelled += 1
        if self._cancelled > max(_COMPACT_AT, len(self._heap) // 2):
            self._heap = [entry for entry in self._heap if entry[2].pending]
            heapq.heapify(self._heap)
            self._cancelled = 0

    async def run(self) -> None:
        """Call timers as they fall due, until cancelled."""
        while True:
            now = trio.current_time()
            while self._heap and self._heap[0][0] <= now:
                _, _, timer = heapq.heappop(self._heap)
                if timer.pending:
                    timer.fire()
                else:
                    self._cancelled = max(0, self._cancelled - 1)
            with trio.CancelScope(deadline=self._heap[0][0] if self._heap else inf) as self._sleep:
                await trio.sleep_forever()
