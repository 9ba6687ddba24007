"""A session's stream cut down to one run, for whoever answers with just that run."""

from __future__ import annotations

from collections.abc import Sequence

from actors.agent.messages import RunEnded, RunStarted
from actors.journal.ring import Frame
from actors.journal.tail import Follower, Gap


class RunFollower:
    """A session's frames from a run's first to its last."""

    def __init__(self, follower: Follower, run_id: str) -> None:
        self._follower = follower
        self._run_id = run_id
        self._ended = False

    async def next(self) -> Sequence[Frame] | Gap | None:
        """Return the next frames; ``None`` once the run's end was returned, or another run has begun.

        A session's runs never overlap, so the beginning of another says that this one's end is not coming: it fell
        into a gap, or another process on the same journal wrote it where this reader was already past.
        """
        if self._ended:
            return None
        batch = await self._follower.next()
        if batch is None or isinstance(batch, Gap):
            return batch
        frames: list[Frame] = []
        for frame in batch:
            event = frame.event
            if isinstance(event, RunStarted) and not event.session and event.run_id != self._run_id:
                self._ended = True
                break
            frames.append(frame)
            if isinstance(event, RunEnded) and not event.session and event.run_id == self._run_id:
                self._ended = True
                break
        return frames or None
