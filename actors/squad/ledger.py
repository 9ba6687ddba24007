"""An execution's event ledger: a JSON line per event naming it, numbered from 1 without holes, cut off at a cap.

Synchronous: writing and reading are done in a thread by the caller.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from actors.squad import events as names
from actors.squad.events import SquadEvent
from actors.squad.values import timestamp

JSON = Any


class Caps(Struct, frozen=True):
    """How much a ledger may hold; whichever is reached first ends it."""

    events: int = 10_000
    size: int = 8 << 20


class Line(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One record."""

    seq: int
    event: str
    execution_id: str
    squad_id: str
    timestamp: str
    payload: JSON
    task_id: str = ""
    agent_id: str = ""


class Page(Struct, frozen=True, rename="camel"):
    """Part of a ledger. ``last_seq`` is the last record's of the whole ledger."""

    execution_id: str
    events: tuple[Line, ...]
    last_seq: int
    has_more: bool
    truncated: bool


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Line)


def ledger_path(workspace: Path, execution_id: str) -> Path:
    """Return where an execution's ledger is."""
    return workspace / "logs" / f"{execution_id}.events.jsonl"


class Ledger:
    """The writing end; one per execution and process.

    Args:
        path: The file; its directory exists.
        caps: Where it ends.
    """

    def __init__(self, path: Path, caps: Caps) -> None:
        self._path = path
        self._caps = caps
        self._size = 0
        self.last = 0
        self.truncated: bool = False

    def resume(self) -> None:
        """Go on behind what the file holds; a line that a crash cut short is removed. Raises: OSError."""
        self.last, self._size, self.truncated = 0, 0, False
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        good = 0
        for line in data.splitlines(keepends=True):
            try:
                record = _decoder.decode(line)
            except msgspec.MsgspecError:
                break
            if not line.endswith(b"\n") or record.seq != self.last + 1:
                break
            good += len(line)
            self.last = record.seq
            self.truncated = record.event == names.LEDGER_TRUNCATED
        if good < len(data):
            os.truncate(self._path, good)
        self._size = good

    def append(self, events: Iterable[SquadEvent]) -> None:
        """Add a line for each event, as one write. Raises: OSError: nothing is counted as written."""
        lines: list[bytes] = []
        last, size, truncated = self.last, self._size, self.truncated
        for event in events:
            if truncated:
                break
            line = _line(last + 1, event)
            if last >= self._caps.events or size + len(line) > self._caps.size:
                reason = "event_limit" if last >= self._caps.events else "byte_limit"
                limit = self._caps.events if reason == "event_limit" else self._caps.size
                line = _line(last + 1, _cut(event, reason, limit))
                truncated = True
            lines.append(line)
            last += 1
            size += len(line)
        if not lines:
            return
        with self._path.open("ab") as file:
            file.write(b"".join(lines))
        self.last, self._size, self.truncated = last, size, truncated


def read_page(
    path: Path, execution_id: str, *, after: int = 0, types: Sequence[str] = (), limit: int = 200
) -> Page:
    """Return the records above ``after``, only those of ``types`` if any are given; the cut-off record always counts.

    Raises:
        FileNotFoundError: there is no ledger.
    """
    found: list[Line] = []
    last, more, truncated = 0, False, False
    with path.open("rb") as file:
        for raw in file:
            try:
                line = _decoder.decode(raw)
            except msgspec.MsgspecError:
                break  # a line that is being written
            last = line.seq
            cut = line.event == names.LEDGER_TRUNCATED
            truncated = truncated or cut
            if line.seq <= after or (types and line.event not in types and not cut):
                continue
            if len(found) < limit:
                found.append(line)
            else:
                more = True
    return Page(execution_id, tuple(found), last, more, truncated)


def _line(seq: int, event: SquadEvent) -> bytes:
    payload = event.payload
    return (
        _encoder.encode(
            Line(
                seq=seq,
                event=event.name,
                execution_id=event.execution_id,
                squad_id=event.squad_id,
                task_id=payload.get("taskId", ""),
                agent_id=payload.get("agentId", ""),
                timestamp=timestamp(event.at),
                payload=payload,
            )
        )
        + b"\n"
    )


def _cut(event: SquadEvent, reason: str, limit: int) -> SquadEvent:
    payload = {
        "squadId": event.squad_id,
        "executionId": event.execution_id,
        "reason": reason,
        "limit": limit,
        "timestamp": timestamp(event.at),
    }
    return SquadEvent(names.LEDGER_TRUNCATED, event.squad_id, payload, event.at)
