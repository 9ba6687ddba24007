"""A squad's activity log on disk: its recent events of all executions together, written a little behind the events."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import trio
from msgspec import Struct

from actors.errors import ActorsError, NotFound
from actors.journal.ring import Frame
from actors.squad.events import SquadEvent
from actors.squad.files import append_lines, read_lines, write_whole
from actors.squad.values import timestamp

JSON = Any
logger = logging.getLogger("greenroom.squad")
KEPT = 1000
"""Lines kept when the file is cut; it is cut at twice as many."""
BEHIND = 0.25
"""Seconds the file may be behind."""


class Entry(Struct, frozen=True, rename="camel"):
    """One event in the log. ``id`` only grows within one process."""

    id: int
    event_type: str
    squad_id: str
    payload: JSON
    timestamp: str


_encoder = msgspec.json.Encoder()


def entry_of(frame: Frame) -> Entry:
    """Return the log's form of a published event."""
    event: SquadEvent = frame.event
    return Entry(frame.seq, event.name, event.squad_id, event.payload, timestamp(event.at))


class ActivityFiles:
    """Writes the events of all squads.

    Args:
        workspace_of: Returns a squad's workspace; raises NotFound when the squad is gone.
    """

    def __init__(self, workspace_of: Callable[[str], Awaitable[Path]]) -> None:
        self._workspace_of = workspace_of
        self._waiting: dict[str, list[Frame]] = {}
        self._lines: dict[str, int] = {}
        self._wake = trio.Event()
        self._lock = trio.Lock()

    def note(self, frame: Frame) -> None:
        """Have an event written soon. Checkpoint: never."""
        event: SquadEvent = frame.event
        waiting = self._waiting.setdefault(event.squad_id, [])
        waiting.append(frame)
        if len(waiting) > KEPT * 2:
            del waiting[:-KEPT]
        self._wake.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._wake.wait()
            await trio.sleep(BEHIND)
            self._wake = trio.Event()
            for squad_id in list(self._waiting):
                await self.flush(squad_id)

    async def flush(self, squad_id: str) -> None:
        """Write what waits for a squad; it is lost when the workspace is not there or cannot be written."""
        async with self._lock:
            frames = self._waiting.pop(squad_id, [])
            if not frames:
                return
            try:
                workspace = await self._workspace_of(squad_id)
                before = self._lines.get(squad_id)
                self._lines[squad_id] = await trio.to_thread.run_sync(_append, workspace, frames, before)
            except (FileNotFoundError, NotFound):
                logger.debug("no workspace to write the activity log to", extra={"squad": squad_id})
            except (OSError, ActorsError) as error:
                logger.warning("activity log not written", extra={"squad": squad_id, "error": str(error)})

    async def load(self, squad_id: str) -> Sequence[JSON]:
        """Return what the file holds, oldest first, newest events included."""
        await self.flush(squad_id)
        workspace = await self._workspace_of(squad_id)
        found = await trio.to_thread.run_sync(read_lines, activity_path(workspace))
        return found[-KEPT:]


def activity_path(workspace: Path) -> Path:
    """Return where a squad's activity log is."""
    return workspace / "logs" / "events.jsonl"


def _append(workspace: Path, frames: Sequence[Frame], before: int | None) -> int:
    """Append, cutting the file when it has grown; return how many lines it has."""
    path = activity_path(workspace)
    lines = [_encoder.encode(entry_of(frame)) for frame in frames]
    if before is None:
        try:
            before = path.read_bytes().count(b"\n")
        except FileNotFoundError:
            before = 0
    append_lines(path, lines)
    count = before + len(lines)
    if count >= KEPT * 2:
        kept = path.read_bytes().splitlines(keepends=True)[-KEPT:]
        write_whole(path, b"".join(kept))
        return len(kept)
    return count
