"""What is kept of an execution that has ended: its history record, the report made of it, and the log people read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from actors.squad import messages as m
from actors.squad.files import append_lines, read_lines, read_list, write_whole
from actors.squad.prompts import agent_name
from actors.squad.state import ExecutionState
from actors.squad.values import HistoryRecord, HistoryTask, timestamp

JSON = Any
Level = Literal["debug", "info", "warning", "error"]
LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")
SYSTEM = "system"


class LogLine(Struct, frozen=True, rename="camel"):
    """One line of the readable log; ``agent_id`` is ``system`` for the engine's."""

    timestamp: str
    level: Level
    agent_id: str
    message: str


_encoder = msgspec.json.Encoder()


def history_record(state: ExecutionState) -> HistoryRecord:
    """Return the record of an ended execution."""
    assert state.terminal, "a record is made of an ended execution"
    began = state.started_at or state.created_at
    artifacts = sorted({path for run in state.runs.values() for path in run.artifacts})
    return HistoryRecord(
        execution_id=state.id,
        squad_id=state.squad_id,
        squad_name=state.squad_name,
        request=state.request,
        plan_title=state.plan.title if state.plan else "",
        tasks=tuple(_history_task(state, task_id) for task_id in state.tasks),
        final_result=state.result if state.result is not None else state.error,
        status=state.phase,
        total_token_usage=state.usage,
        per_agent_token_usage=dict(state.agent_usage),
        duration_ms=max(round((state.completed_at - began) * 1000), 0),
        artifacts=tuple(artifacts),
        started_at=timestamp(began),
        completed_at=timestamp(state.completed_at),
    )


def _history_task(state: ExecutionState, task_id: str) -> HistoryTask:
    task, run = state.tasks[task_id], state.runs[task_id]
    return HistoryTask(
        task_id=task_id,
        title=task.title,
        agent_id=task.assigned_to,
        agent_name=agent_name(state, task.assigned_to),
        status="skipped" if run.skipped else task.status,
        output=task.result,
        error=task.error,
        duration_ms=round(run.seconds * 1000),
        token_usage=run.usage,
    )


def narrate(state: ExecutionState, event: m.ExecutionEvent, at: float) -> list[LogLine]:
    """Return the readable log's lines for an event that is folded into ``state`` already."""
    told = _tell(state, event)
    return [LogLine(timestamp(at), level, agent or SYSTEM, text) for level, agent, text in told]


def _tell(state: ExecutionState, event: m.ExecutionEvent) -> list[tuple[Level, str, str]]:
    match event:
        case m.PlanningStarted():
            begun = "Run started" if event.iteration == 1 else f"Planning again ({event.iteration})"
            return [("info", "", f"{begun}: {state.request}")]
        case m.PlanProposed():
            degraded = f" without the planner: {event.degraded}" if event.degraded else ""
            made = f"Plan generated with {len(event.plan.tasks)} tasks{degraded}"
            return [
                ("warning" if event.degraded else "info", "", made),
                *(("warning", "", note) for note in event.notes),
            ]
        case m.PlanRejected():
            return [("info", "", f"Plan rejected: {event.feedback}")]
        case m.WaveStarted():
            count = len(event.task_ids)
            return [("info", "", f"Wave {event.wave + 1}/{len(state.waves)} starting with {count} tasks")]
        case m.WaveCompleted():
            return [("info", "", f"Wave {event.wave + 1}/{len(state.waves)} completed")]
        case m.Steered():
            return [("info", "", f"Operator: {event.directive.message}")]
        case m.ExecutionPaused():
            return [("info", "", f"Run paused by {event.by}" + (f": {event.reason}" if event.reason else ""))]
        case m.ExecutionResumed():
            return [("info", "", "Run resumed")]
        case m.ExecutionRecovered():
            return [
                (
                    "warning",
                    "",
                    f"Server restarted; {len(event.returned)} tasks under way wait to be run again",
                )
            ]
        case m.AggregationStarted():
            return [("info", "", "Putting the results together")]
        case m.ExecutionCompleted():
            counts = state.counts()
            return [("info", "", f"Run completed: {counts.completed} of {counts.total} tasks done")]
        case m.ExecutionFailed():
            return [("error", "", f"Run failed: {event.error}")]
        case m.ExecutionCancelled():
            return [("warning", "", f"Run cancelled: {event.reason}")]
        case (
            m.TaskStarted()
            | m.TaskFinished()
            | m.TaskFailed()
            | m.TaskStopped()
            | m.TaskSkipped()
            | m.TaskRetried()
        ):
            return [_tell_task(state, event)]
        case _:
            return []


def _tell_task(
    state: ExecutionState,
    event: m.TaskStarted | m.TaskFinished | m.TaskFailed | m.TaskStopped | m.TaskSkipped | m.TaskRetried,
) -> tuple[Level, str, str]:
    task = state.tasks[event.task_id]
    agent, title = task.assigned_to, task.title
    match event:
        case m.TaskStarted():
            return "info", agent, f"Task assigned to {agent_name(state, agent)}: {title}"
        case m.TaskFinished():
            return "info", agent, f"Task completed: {title}"
        case m.TaskFailed():
            return "error", agent, f"Task failed: {title}: {event.error}"
        case m.TaskStopped():
            return "warning", agent, f"Task stopped: {title}: {event.reason}"
        case m.TaskSkipped():
            return "warning", "", f"Task skipped: {title}: {task.error}"
        case m.TaskRetried():
            return "info", "", f"Task to be run again: {title}"


# --- files ------------------------------------------------------------------------------------------------------


def log_path(workspace: Path, execution_id: str) -> Path:
    """Return where an execution's readable log is."""
    return workspace / "logs" / f"{execution_id}.jsonl"


def write_log(workspace: Path, execution_id: str, lines: Sequence[LogLine]) -> None:
    """Append lines to the readable log. Raises: OSError."""
    append_lines(log_path(workspace, execution_id), [_encoder.encode(line) for line in lines])


def read_log(
    workspace: Path,
    execution_id: str,
    *,
    agent_id: str = "",
    min_level: Level = "debug",
    limit: int | None = None,
) -> list[JSON]:
    """Return lines of the readable log, oldest first; the newest ``limit`` of those that match."""
    lowest = LEVELS.index(min_level)
    found = [
        line
        for line in read_lines(log_path(workspace, execution_id))
        if (not agent_id or line.get("agentId") == agent_id)
        and LEVELS.index(line.get("level", "info")) >= lowest
    ]
    return found if limit is None else found[max(len(found) - limit, 0) :]


def read_history(workspace: Path) -> list[HistoryRecord]:
    """Return the records, newest first; one that cannot be read is left out."""
    records: list[HistoryRecord] = []
    for raw in read_list(workspace / "logs" / "history.json"):
        try:
            records.append(msgspec.convert(raw, HistoryRecord))
        except msgspec.ValidationError:
            continue
    return records


def keep_record(workspace: Path, record: HistoryRecord) -> None:
    """Put a record into the history, once, and its row into the log index. Raises: OSError."""
    kept = [each for each in read_history(workspace) if each.execution_id != record.execution_id]
    write_whole(workspace / "logs" / "history.json", _encoder.encode([record, *kept]))
    index = workspace / "logs" / "index.json"
    rows = [row for row in read_list(index) if row.get("executionId") != record.execution_id]
    row = {
        "executionId": record.execution_id,
        "squadId": record.squad_id,
        "startedAt": record.started_at,
        "lastUpdatedAt": record.completed_at,
        "entryCount": len(read_lines(log_path(workspace, record.execution_id))),
    }
    write_whole(index, _encoder.encode([row, *rows]))


def write_report(workspace: Path, record: HistoryRecord) -> Path:
    """Write the report of a record and return where it is. Raises: OSError."""
    path = workspace / "artifacts" / "reports" / f"{record.execution_id}-report.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, report(record).encode())
    return path


def report(record: HistoryRecord) -> str:
    """Return the report as markdown."""
    usage = record.total_token_usage
    counts = {
        status: sum(task.status == status for task in record.tasks)
        for status in ("done", "failed", "skipped", "cancelled")
    }
    lines = [
        f"# {_cell(record.plan_title or record.request)}",
        "",
        "## Summary",
        "",
        "| | |",
        "| --- | --- |",
        f"| Execution | {record.execution_id} |",
        f"| Squad | {_cell(record.squad_name)} |",
        f"| Request | {_cell(record.request)} |",
        f"| Status | {record.status} |",
        f"| Tasks | {len(record.tasks)}: "
        + ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        + " |",
        f"| Started | {record.started_at} |",
        f"| Completed | {record.completed_at} |",
        f"| Duration | {record.duration_ms / 1000:.1f} s |",
        "",
        "## Tasks",
        "",
        "| Task | Agent | Status | Duration | Tokens |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {_cell(task.title)} | {_cell(task.agent_name)} | {task.status} | {task.duration_ms / 1000:.1f} s"
        f" | {task.token_usage.total} |"
        for task in record.tasks
    ]
    lines += [
        "",
        "## Resource usage",
        "",
        f"{usage.total} tokens: {usage.prompt_tokens} in prompts, {usage.completion_tokens} in answers.",
        "",
    ]
    lines += [f"- {agent}: {each.total}" for agent, each in record.per_agent_token_usage.items()]
    lines += ["", "## Final result", "", record.final_result or "(none)"]
    failed = [task for task in record.tasks if task.status == "failed"]
    if failed:
        lines += ["", "## Failed tasks", ""]
        lines += [f"- {task.title}: {task.error}" for task in failed]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
