"""The execution's events as clients know them: each event of the stream becomes ``squad:*`` events. Pure.

The ledger is made of nothing else, so that it can be made again from the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_never

import msgspec
from msgspec import Struct

from actors.squad import events as names
from actors.squad import messages as m
from actors.squad.events import SquadEvent
from actors.squad.state import ExecutionState
from actors.squad.values import TaskStatus, TokenUsage, timestamp

JSON = Any


class Announcement(Struct, frozen=True):
    """An event for the ledger and, unless ``ledger_only``, for everybody."""

    event: SquadEvent
    ledger_only: bool = False


def announce(state: ExecutionState, event: m.ExecutionEvent, at: float) -> list[Announcement]:
    """Return what clients are told of ``event``, which is folded into ``state`` already.

    Nothing is told of what comes after the execution's end: late calls are only counted.
    """
    if state.terminal and not isinstance(
        event, m.ExecutionCompleted | m.ExecutionFailed | m.ExecutionCancelled
    ):
        return []
    return list(_announce(_Teller(state, at), state, event))


class _Teller:
    def __init__(self, state: ExecutionState, at: float) -> None:
        self._squad_id = state.squad_id
        self._base = {"squadId": state.squad_id, "executionId": state.id}
        self._at = at

    def __call__(self, name: str, /, **fields: JSON) -> Announcement:
        payload = {**self._base, **fields, "timestamp": timestamp(self._at)}
        return Announcement(SquadEvent(name, self._squad_id, payload, self._at))

    def moved(self, task_id: str, old: TaskStatus, new: TaskStatus) -> Announcement:
        return self(names.TASK_STATUS_CHANGED, taskId=task_id, oldStatus=old, newStatus=new)


def _announce(tell: _Teller, state: ExecutionState, event: m.ExecutionEvent) -> Iterator[Announcement]:
    match event:
        case m.ExecutionSubmitted() | m.EffectStarted() | m.RecordKept():
            return
        case m.PlanningStarted():
            yield tell(names.PLANNING_STARTED, request=state.request, iteration=event.iteration)
        case m.PlanProposed():
            yield from _plan_ready(tell, state, event)
        case m.PlanApproved():
            yield tell(
                names.PLAN_APPROVED,
                planId=event.plan.id,
                overridden=event.overridden,
                taskCount=len(event.plan.tasks),
            )
            for task in event.plan.tasks:
                yield tell(
                    names.TASK_CREATED,
                    taskId=task.id,
                    planId=event.plan.id,
                    title=task.title,
                    assignedTo=task.assigned_to,
                )
        case m.PlanRejected():
            plan_id = state.plan.id if state.plan else ""
            yield tell(
                names.PLAN_REJECTED, planId=plan_id, feedback=event.feedback, iteration=state.iteration
            )
        case m.ExecutionStarted():
            yield tell(names.EXECUTION_STARTED, totalTasks=len(state.tasks), totalWaves=len(state.waves))
        case m.WaveStarted():
            yield tell(
                names.TASK_WAVE_STARTED,
                waveIndex=event.wave,
                totalWaves=len(state.waves),
                taskIds=list(event.task_ids),
            )
        case m.WaveCompleted():
            yield tell(
                names.TASK_WAVE_COMPLETED,
                waveIndex=event.wave,
                totalWaves=len(state.waves),
                taskCounts=_plain(state.counts()),
            )
        case m.UsageCounted():
            total = state.usage
            yield tell(names.EXECUTION_TOKEN_USAGE, **_plain(total), total=total.total)
        case (
            m.TaskStarted()
            | m.FileChanged()
            | m.MemoryWritten()
            | m.TaskFinished()
            | m.TaskFailed()
            | m.TaskStopped()
            | m.TaskSkipped()
            | m.TaskRetried()
        ):
            yield from _of_task(tell, state, event)
        case m.Steered():
            yield _steered(tell, event)
        case m.ExecutionPaused():
            yield tell(
                names.EXECUTION_PAUSED,
                currentWave=state.wave,
                inFlightTaskIds=[task.id for task in state.running()],
                reason=event.reason,
                pausedBy=event.by,
            )
        case m.ExecutionResumed():
            yield tell(names.EXECUTION_RESUMED, currentWave=state.wave)
        case m.ExecutionRecovered():
            for task_id in event.returned:
                yield tell.moved(task_id, "in_progress", "pending")
            yield tell(names.EXECUTION_RECOVERED, status=state.phase, returnedTaskIds=list(event.returned))
        case m.AggregationStarted():
            yield tell(names.AGGREGATION_STARTED, taskIds=list(state.tasks))
        case m.ExecutionCompleted() | m.ExecutionFailed() | m.ExecutionCancelled():
            yield from _ended(tell, state, event)
        case _:
            assert_never(event)


def _plan_ready(tell: _Teller, state: ExecutionState, event: m.PlanProposed) -> Iterator[Announcement]:
    plan = event.plan
    warning = "; ".join(text for text in (event.degraded, *event.notes) if text)
    yield tell(
        names.PLAN_READY,
        planId=plan.id,
        title=plan.title,
        taskCount=len(plan.tasks),
        waves=[list(wave) for wave in plan.waves],
        autoApprove=state.auto_approve,
        **({"plannerWarning": warning} if warning else {}),
    )


def _steered(tell: _Teller, event: m.Steered) -> Announcement:
    directive = event.directive
    scope = directive.scope
    ids = {key: value for key, value in (("taskId", scope.task_id), ("agentId", scope.agent_id)) if value}
    return tell(
        names.EXECUTION_STEERED,
        directiveId=directive.id,
        message=directive.message,
        scope=_plain(scope),
        **ids,
    )


TaskEvent = (
    m.TaskStarted
    | m.FileChanged
    | m.MemoryWritten
    | m.TaskFinished
    | m.TaskFailed
    | m.TaskStopped
    | m.TaskSkipped
    | m.TaskRetried
)


def _of_task(tell: _Teller, state: ExecutionState, event: TaskEvent) -> Iterator[Announcement]:
    task_id = event.task_id
    agent_id = state.tasks[task_id].assigned_to
    match event:
        case m.TaskStarted():
            yield tell(names.TASK_ASSIGNED, taskId=task_id, agentId=agent_id, attempt=event.attempt)
            yield tell.moved(task_id, "pending", "in_progress")
            yield tell(names.AGENT_STATE_CHANGED, taskId=task_id, agentId=agent_id, state="running")
        case m.FileChanged():
            yield tell(
                names.WORKSPACE_FILE_CHANGED,
                taskId=task_id,
                agentId=agent_id,
                path=event.path,
                changeType=event.change,
            )
        case m.MemoryWritten():
            yield tell(names.MEMORY_UPDATED, taskId=task_id, agentId=event.agent_id, section=event.section)
        case m.TaskFinished() | m.TaskFailed() | m.TaskStopped():
            yield from _task_ended(tell, state, task_id, agent_id)
        case m.TaskSkipped():
            yield tell.moved(task_id, "pending", "cancelled")
            cause = {"cause": event.cause} if event.cause else {}
            yield tell(names.TASK_SKIPPED, taskId=task_id, reason=event.reason, **cause)
        case m.TaskRetried():
            yield tell.moved(task_id, event.was, "pending")
            for each in event.revived:
                yield tell.moved(each, "cancelled", "pending")
            attempt = state.runs[task_id].attempts + 1
            yield tell(
                names.TASK_RETRIED, taskId=task_id, attempt=attempt, revivedTaskIds=list(event.revived)
            )
        case _:
            assert_never(event)


def _task_ended(tell: _Teller, state: ExecutionState, task_id: str, agent_id: str) -> Iterator[Announcement]:
    task = state.tasks[task_id]
    usage = state.agent_usage.get(agent_id, TokenUsage())
    yield tell(names.AGENT_STATE_CHANGED, taskId=task_id, agentId=agent_id, state="idle")
    yield tell(names.TOKEN_USAGE_UPDATE, taskId=task_id, agentId=agent_id, **_plain(usage), total=usage.total)
    yield tell.moved(task_id, "in_progress", task.status)
    yield tell(
        names.TASK_COMPLETED,
        taskId=task_id,
        taskTitle=task.title,
        success=task.status == "done",
        error=task.error,
        taskCounts=_plain(state.counts()),
    )


def _ended(
    tell: _Teller,
    state: ExecutionState,
    event: m.ExecutionCompleted | m.ExecutionFailed | m.ExecutionCancelled,
) -> Iterator[Announcement]:
    counts, usage = _plain(state.counts()), _plain(state.usage)
    match event:
        case m.ExecutionCompleted():
            yield tell(names.EXECUTION_COMPLETED, result=event.result, taskCounts=counts, tokenUsage=usage)
        case m.ExecutionFailed():
            for task_id in event.task_ids:
                yield tell.moved(task_id, "pending", "cancelled")
            yield tell(names.EXECUTION_FAILED, error=event.error, taskCounts=counts, tokenUsage=usage)
        case m.ExecutionCancelled():
            for task_id in event.task_ids:
                yield tell.moved(task_id, "pending", "cancelled")
            yield tell(names.EXECUTION_CANCELLED, reason=event.reason, taskCounts=counts, tokenUsage=usage)
            if event.emergency:
                # Everybody else hears of the stop once for the whole squad.
                stopped = tell(names.EMERGENCY_STOPPED, cancelledExecutionIds=[state.id], reason=event.reason)
                yield Announcement(stopped.event, ledger_only=True)
        case _:
            assert_never(event)


def _plain(value: Struct) -> dict[str, JSON]:
    plain: dict[str, JSON] = msgspec.to_builtins(value)
    return plain
