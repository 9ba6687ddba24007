"""An event log that fails, stalls, lies or repeats itself on cue, over any real one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

import apsw
import trio

from actors.journal.log import (
    Append,
    CommandKey,
    CommandRecord,
    EventLog,
    Head,
    JournalUnavailable,
    Projection,
    Record,
)

T = TypeVar("T")

Fault = Literal["fail", "lose", "stall", "duplicate"]
Method = Literal["append", "head", "read", "command", "purge", "load_snapshot", "save_snapshot", "query"]


class FailingLog:
    """Passes everything on to ``log``, but for calls that a cue was given for.

    The faults: ``fail`` raises JournalUnavailable and does nothing; ``lose`` does it and then raises
    JournalUnavailable, as when the answer is lost; ``stall`` waits for :meth:`release` first; ``duplicate`` does it
    twice and gives the second outcome, as a retry would.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._cues: dict[Method, list[Fault | None]] = {}
        self._gate = trio.Event()
        self.calls: list[Method] = []
        """Every call so far, in order; a test sweeps its faults over ``len(calls)``."""
        self.stalled = 0
        """How many calls wait for :meth:`release` now."""

    def cue(self, fault: Fault, method: Method = "append", *, skip: int = 0, times: int = 1) -> None:
        """Let the fault happen to ``times`` calls of ``method``, after ``skip`` more that go well."""
        cues = self._cues.setdefault(method, [])
        cues.extend(None for _ in range(skip))
        cues.extend(fault for _ in range(times))

    def release(self) -> None:
        """Let the stalled calls go on."""
        self._gate.set()
        self._gate = trio.Event()

    async def append(self, append: Append) -> Head:
        """See :meth:`EventLog.append`."""
        return await self._do("append", lambda: self._log.append(append))

    async def head(self, stream: str) -> Head:
        """See :meth:`EventLog.head`."""
        return await self._do("head", lambda: self._log.head(stream))

    async def read(self, stream: str, after: int = 0, limit: int = 512) -> list[Record]:
        """See :meth:`EventLog.read`."""
        return await self._do("read", lambda: self._log.read(stream, after, limit))

    async def command(self, key: CommandKey) -> CommandRecord | None:
        """See :meth:`EventLog.command`."""
        return await self._do("command", lambda: self._log.command(key))

    async def purge(self, stream: str) -> None:
        """See :meth:`EventLog.purge`."""
        await self._do("purge", lambda: self._log.purge(stream))

    async def load_snapshot(self, stream: str) -> tuple[int, bytes] | None:
        """See :meth:`EventLog.load_snapshot`."""
        return await self._do("load_snapshot", lambda: self._log.load_snapshot(stream))

    async def save_snapshot(self, stream: str, seq: int, data: bytes) -> None:
        """See :meth:`EventLog.save_snapshot`."""
        await self._do("save_snapshot", lambda: self._log.save_snapshot(stream, seq, data))

    async def query(self, read: Callable[[apsw.Connection], T]) -> T:
        """See :meth:`EventLog.query`."""
        return await self._do("query", lambda: self._log.query(read))

    def register(self, projection: Projection) -> None:
        """See :meth:`EventLog.register`; takes no cue."""
        self._log.register(projection)

    async def _do(self, method: Method, call: Callable[[], Awaitable[T]]) -> T:
        self.calls.append(method)
        cues = self._cues.get(method)
        fault = cues.pop(0) if cues else None
        if fault == "fail":
            await trio.lowlevel.checkpoint()
            raise _failure(method)
        if fault == "stall":
            self.stalled += 1
            try:
                await self._gate.wait()
            finally:
                self.stalled -= 1
        if fault in {"lose", "duplicate"}:
            await call()
        if fault == "lose":
            raise _failure(method)
        return await call()


def _failure(method: Method) -> JournalUnavailable:
    return JournalUnavailable(f"the journal failed on cue at {method}")
