"""What an executing plan does next: waves with a barrier, skips for failed dependencies, retries in extra passes. Pure.

Asked again after every event, until it has nothing to say. Whatever happened, it goes on or the execution ends: a task
waits only for tasks that are under way or will be dispatched before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from actors.squad import messages as m
from actors.squad.state import ExecutionState, total_spent
from actors.squad.values import Directive, PlanTask


def advance(state: ExecutionState) -> Sequence[m.ExecutionEvent]:
    """Return the events that are due; empty when there is only to wait, for tasks under way or for an operator."""
    if state.phase != "executing":
        return ()
    if state.passing is None:
        return _next_wave(state)
    waiting = [
        state.tasks[task_id] for task_id in _in_order(state) if state.tasks[task_id].status == "pending"
    ]
    skipped = [
        m.TaskSkipped(task_id=task.id, reason="dependency_failed", cause=cause)
        for task in waiting
        if (cause := _lost_dependency(state, task))
    ]
    if skipped:
        return skipped
    ready = [task for task in waiting if all(state.satisfied(needed) for needed in task.depends_on)]
    running = list(state.running())
    if not ready and not any(task.id in state.passing for task in running):
        return (m.WaveCompleted(wave=state.wave),)
    if not ready:
        return ()
    if spent := total_spent(state.budget, state.usage.total, state.cost):
        return (m.ExecutionPaused(reason=spent, by="budget"),)
    return _dispatch(state, ready, running)


def directives_for(state: ExecutionState, task: PlanTask) -> list[Directive]:
    """Return the standing directives that a task's next turn is told."""
    return [
        directive
        for directive in state.directives.values()
        if directive.scope.type == "execution"
        or (directive.scope.type == "task" and directive.scope.task_id == task.id)
        or (directive.scope.type == "agent" and directive.scope.agent_id == task.assigned_to)
    ]


def dependants(state: ExecutionState, task_id: str) -> list[str]:
    """Return the tasks that depend on a task, directly or not, in the plan's order."""
    found = {task_id}
    for wave in state.waves:
        for each in wave:
            if found.intersection(state.tasks[each].depends_on):
                found.add(each)
    return [each for each in state.tasks if each in found and each != task_id]


def _next_wave(state: ExecutionState) -> Sequence[m.ExecutionEvent]:
    for index, wave in enumerate(state.waves):
        pending = tuple(task_id for task_id in wave if state.tasks[task_id].status == "pending")
        if pending:
            return (m.WaveStarted(wave=index, task_ids=pending),)
    if any(True for _ in state.running()):
        return ()
    return (m.AggregationStarted(),)


def _dispatch(
    state: ExecutionState, ready: Sequence[PlanTask], running: Sequence[PlanTask]
) -> Sequence[m.ExecutionEvent]:
    """Start what there is room for; an agent does one task at a time."""
    busy = {task.assigned_to for task in running}
    room = state.budget.max_concurrent_agents - len(running)
    started: list[m.ExecutionEvent] = []
    for task in ready:
        if len(started) >= room:
            break
        if task.assigned_to in busy:
            continue
        busy.add(task.assigned_to)
        started.append(
            m.TaskStarted(
                task_id=task.id,
                agent_id=task.assigned_to,
                attempt=state.runs[task.id].attempts + 1,
                directive_ids=tuple(directive.id for directive in directives_for(state, task)),
            )
        )
    return started


def _lost_dependency(state: ExecutionState, task: PlanTask) -> str:
    return next((needed for needed in task.depends_on if state.lost(needed)), "")


def _in_order(state: ExecutionState) -> Iterator[str]:
    passing = state.passing or frozenset[str]()
    return (task_id for task_id in state.waves[state.wave] if task_id in passing)
