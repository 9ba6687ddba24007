"""The journal's table of executions: which there are and in which state, without waking any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

from actors.journal.log import Record
from actors.squad import messages as m
from actors.squad.codec import PREFIX, decode
from actors.squad.state import execution_status
from actors.squad.values import ExecutionSummary, Phase, timestamp

_SILENT = frozenset({"effect_started", "file_changed", "memory_written", "usage_counted"})
"""Kinds that change nothing here and come often."""
_COLUMNS = (
    "id, squad_id, request, auto_approve, phase, wave, waves, error, reason, paused_by,"
    " created_at, updated_at, completed_at"
)


class OpenRow(Struct, frozen=True):
    """An execution about which something is left to do."""

    id: str
    squad_id: str
    phase: Phase
    owner: str


class ExecutionRows:
    """The projection; rows of table ``executions``."""

    name = "executions"
    migrations = str(Path(__file__).with_name("migrations"))

    def apply(self, db: apsw.Connection, records: Sequence[Record]) -> None:
        """Bring the execution's row up to date, in the append's own transaction."""
        for record in records:
            if not record.stream.startswith(PREFIX):
                return
            if record.kind not in _SILENT:
                _apply(db, record.stream.removeprefix(PREFIX), record.at, decode(record))

    def purge(self, db: apsw.Connection, stream: str) -> None:
        """Forget a purged execution."""
        if stream.startswith(PREFIX):
            db.execute("DELETE FROM executions WHERE id = ?", (stream.removeprefix(PREFIX),))

    def reset(self, db: apsw.Connection) -> None:
        """Forget everything, before the log is replayed."""
        db.execute("DELETE FROM executions")


def list_executions(
    db: apsw.Connection, *, squad_id: str, phase: str = "", limit: int = -1, offset: int = 0
) -> list[ExecutionSummary]:
    """Return a squad's executions, newest first; only those in ``phase`` if it is given."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM executions WHERE squad_id = ? AND (? = '' OR phase = ?)"  # noqa: S608 - a constant
        " ORDER BY created_at DESC, id LIMIT ? OFFSET ?",
        (squad_id, phase, phase, limit, offset),
    )
    return [_summary(*row) for row in rows]


def live_executions(db: apsw.Connection, *, squad_id: str) -> list[str]:
    """Return the ids of the squad's executions that have not ended, oldest first."""
    rows = db.execute(
        "SELECT id FROM executions WHERE squad_id = ? AND live ORDER BY created_at, id", (squad_id,)
    )
    return [row[0] for row in rows]


def count_driven(db: apsw.Connection, *, squad_id: str) -> int:
    """Return how many of the squad's executions occupy a slot: live, and not left over from a dead process."""
    row = db.execute(
        "SELECT count(*) FROM executions WHERE squad_id = ? AND live AND driven", (squad_id,)
    ).fetchone()
    return int(row[0]) if row else 0


def squads_of(db: apsw.Connection) -> dict[str, list[Phase]]:
    """Return the states of the live executions by squad."""
    found: dict[str, list[Phase]] = {}
    for squad_id, phase in db.execute("SELECT squad_id, phase FROM executions WHERE live"):
        found.setdefault(squad_id, []).append(phase)
    return found


def phases_of(db: apsw.Connection, *, squad_id: str) -> list[Phase]:
    """Return the states of the squad's live executions."""
    return [
        row[0] for row in db.execute("SELECT phase FROM executions WHERE squad_id = ? AND live", (squad_id,))
    ]


def squad_of(db: apsw.Connection, *, execution_id: str) -> str:
    """Return the squad of an execution; empty when there is no such execution."""
    row = db.execute("SELECT squad_id FROM executions WHERE id = ?", (execution_id,)).fetchone()
    return str(row[0]) if row else ""


def plans_held(db: apsw.Connection, *, squad_id: str) -> Mapping[str, str]:
    """Return the live executions of the squad by the plan each holds."""
    rows = db.execute(
        "SELECT plan_id, id FROM executions WHERE squad_id = ? AND live AND plan_id <> ''", (squad_id,)
    )
    return dict(rows)


def open_executions(db: apsw.Connection) -> list[OpenRow]:
    """Return the executions that have not ended, or whose record is not kept yet."""
    return [
        OpenRow(*row)
        for row in db.execute("SELECT id, squad_id, phase, owner FROM executions WHERE NOT kept")
    ]


def _summary(*row: Any) -> ExecutionSummary:
    (
        execution_id,
        squad_id,
        request,
        auto,
        phase,
        wave,
        waves,
        error,
        reason,
        by,
        created,
        updated,
        completed,
    ) = row
    return ExecutionSummary(
        execution_id=execution_id,
        id=execution_id,
        squad_id=squad_id,
        request=request,
        auto_approve=bool(auto),
        status=execution_status(phase, wave=wave, waves=waves, error=error, reason=reason, by=by),
        phase=phase,
        created_at=timestamp(created),
        updated_at=timestamp(updated),
        completed_at=timestamp(completed) if completed else None,
    )


def _apply(db: apsw.Connection, execution_id: str, at: float, event: m.ExecutionEvent) -> None:
    match event:
        case m.ExecutionSubmitted():
            db.execute(
                "INSERT OR REPLACE INTO executions"
                " (id, squad_id, request, auto_approve, workspace, phase, created_at, updated_at)"
                " VALUES (?, ?, ?, ?, ?, 'planning', ?, ?)",
                (
                    execution_id,
                    event.squad_id,
                    event.request,
                    event.auto_approve,
                    event.workspace,
                    at,
                    at,
                ),
            )
        case m.PlanProposed():
            _set(db, execution_id, at, plan_id=event.plan.id, waves=len(event.plan.waves))
            db.execute(
                "UPDATE executions SET phase = 'awaiting_approval' WHERE id = ? AND NOT auto_approve",
                (execution_id,),
            )
        case m.PlanningStarted():
            _set(db, execution_id, at, phase="planning", owner=event.owner)
        case m.PlanApproved():
            _set(db, execution_id, at, plan_id=event.plan.id, waves=len(event.plan.waves))
        case m.ExecutionStarted() | m.ExecutionResumed():
            _set(
                db, execution_id, at, phase="executing", driven=1, owner=event.owner, reason="", paused_by=""
            )
        case m.WaveStarted():
            _set(db, execution_id, at, wave=event.wave)
        case m.ExecutionPaused():
            _set(db, execution_id, at, phase="paused", reason=event.reason, paused_by=event.by)
        case m.ExecutionRecovered():
            _set(db, execution_id, at, phase="paused", driven=0)
        case m.AggregationStarted():
            _set(db, execution_id, at, phase="aggregating")
        case m.ExecutionCompleted():
            _set(db, execution_id, at, phase="completed", live=0, completed_at=at)
        case m.ExecutionFailed():
            _set(db, execution_id, at, phase="failed", live=0, completed_at=at, error=event.error)
        case m.ExecutionCancelled():
            _set(db, execution_id, at, phase="cancelled", live=0, completed_at=at)
        case m.RecordKept():
            db.execute("UPDATE executions SET kept = 1 WHERE id = ?", (execution_id,))
        case _:
            _set(db, execution_id, at)


def _set(db: apsw.Connection, execution_id: str, at: float, **values: object) -> None:
    columns = "".join(f", {name} = ?" for name in values)
    db.execute(
        f"UPDATE executions SET updated_at = ?{columns} WHERE id = ?",  # noqa: S608 - names from this module
        (at, *values.values(), execution_id),
    )
