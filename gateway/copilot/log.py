"""``events.jsonl`` of each session in the data directory: one stored event a line, as on the wire.

The journal is the truth; a file is made from it again when a session is opened and differs.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import trio

logger = logging.getLogger("gateway.copilot")
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


class EventFiles:
    """See the module. :meth:`run` writes beside; nothing here waits for the disk.

    Args:
        directory: Holds a directory for each session.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._whole: dict[str, bytes] = {}
        self._more: dict[str, bytearray] = {}
        self._gone: set[str] = set()
        self._tasks: list[tuple[Callable[..., Awaitable[None]], tuple[Any, ...]]] = []
        self._wake = trio.Event()
        self._written = trio.Event()

    def place(self, session_id: str) -> Path | None:
        """Return the session's directory; ``None`` when its id makes no file name."""
        return self._directory / session_id if _SAFE.fullmatch(session_id) else None

    def append(self, session_id: str, events: Sequence[Any]) -> None:
        """Add events to a session's file."""
        self._more.setdefault(session_id, bytearray()).extend(lines(events))
        self._wake.set()

    def write(self, session_id: str, events: Sequence[Any]) -> None:
        """Make a session's file hold exactly these events."""
        self._whole[session_id] = lines(events)
        self._more.pop(session_id, None)
        self._wake.set()

    def remove(self, session_id: str) -> None:
        """Remove a deleted session's directory."""
        self._whole.pop(session_id, None)
        self._more.pop(session_id, None)
        self._gone.add(session_id)
        self._wake.set()

    def spawn(self, call: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run ``call`` beside, soon."""
        self._tasks.append((call, args))
        self._wake.set()

    async def settled(self) -> None:
        """Wait until everything given so far is on disk."""
        while self._whole or self._more or self._gone or self._busy:
            await self._written.wait()

    _busy = False

    async def run(self) -> None:
        """Write what is given, for ever.

        Cancellation: what was given is written first.
        """
        async with trio.open_nursery() as nursery:
            try:
                while True:
                    await self._wake.wait()
                    self._wake = trio.Event()
                    tasks, self._tasks = self._tasks, []
                    for call, args in tasks:
                        nursery.start_soon(call, *args)
                    await self._flush()
            finally:
                # The last events of a session are its file's most wanted lines; the disk gets a moment for them.
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 2.0):
                    await self._flush()

    async def _flush(self) -> None:
        jobs = (self._whole, self._more, self._gone)
        if not any(jobs):
            return
        self._whole, self._more, self._gone = {}, {}, set()
        self._busy = True
        try:
            await trio.to_thread.run_sync(self._store, *jobs)
        finally:
            self._busy = False
            self._written.set()
            self._written = trio.Event()

    def _store(self, whole: dict[str, bytes], more: dict[str, bytearray], gone: set[str]) -> None:
        for session_id in gone:
            if (place := self.place(session_id)) is not None:
                shutil.rmtree(place, ignore_errors=True)
        for session_id, data in whole.items():
            self._guarded(session_id, data, replace=True)
        for session_id, added in more.items():
            self._guarded(session_id, bytes(added), replace=False)

    def _guarded(self, session_id: str, data: bytes, *, replace: bool) -> None:
        place = self.place(session_id)
        if place is None:
            return
        path = place / "events.jsonl"
        try:
            place.mkdir(parents=True, exist_ok=True)
            if not replace:
                with path.open("ab") as file:
                    file.write(data)
            elif not path.exists() or path.read_bytes() != data:
                fresh = path.with_suffix(".new")
                fresh.write_bytes(data)
                fresh.replace(path)
        except OSError as error:
            logger.warning("events of %s not written: %s", session_id, error)


def lines(events: Sequence[Any]) -> bytes:
    """Return events as lines of JSON."""
    return b"".join(msgspec.json.encode(event) + b"\n" for event in events)
