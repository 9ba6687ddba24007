"""One task that stores what sessions emitted: all dirty streams together, so that a thousand of them are one commit."""

from __future__ import annotations

import trio

from actors.session.recorder import FLUSH_INTERVAL, Recorder


class Flusher:
    """Stores emitted events at most :data:`FLUSH_INTERVAL` seconds after the first of them."""

    def __init__(self) -> None:
        self._dirty: set[Recorder] = set()
        self._wake = trio.Event()

    def dirty(self, recorder: Recorder) -> None:
        """Note that ``recorder`` has events to store. Checkpoint: never."""
        if not self._dirty:
            self._wake.set()
        self._dirty.add(recorder)

    async def run(self) -> None:
        """Work until cancelled; what is dirty then is stored by the actors' own last commits."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            await trio.sleep(FLUSH_INTERVAL)
            due, self._dirty = self._dirty, set()
            async with trio.open_nursery() as nursery:
                for recorder in due:
                    if not recorder.idle:
                        nursery.start_soon(recorder.flush)
