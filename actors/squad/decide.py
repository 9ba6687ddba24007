"""What an operator may do with an execution in which state, and the events it causes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from actors.errors import Invalid
from actors.squad import messages as m
from actors.squad.errors import (
    ExecutionTaskNotFound,
    NotAwaitingApproval,
    NotPausable,
    NotRunning,
    NotSteerable,
    TaskNotRetriable,
    TaskNotSkippable,
)
from actors.squad.override import apply_override
from actors.squad.plan import layers
from actors.squad.schedule import dependants
from actors.squad.state import ExecutionState
from actors.squad.values import FINISHED, BudgetConfig, Directive, PlanTask, Squad

Events = Sequence[m.ExecutionEvent]


def approve(state: ExecutionState, command: m.Approve, *, owner: str, new_id: Callable[[], str]) -> Events:
    """Run the plan. A recovered execution accepts its approval once more, which only resumes it.

    Raises:
        NotAwaitingApproval: there is nothing to approve.
        Invalid: the override breaks a rule; nothing has changed.
    """
    if state.phase == "paused" and state.recovered and command.override is None:
        return (_resumed(command.squad, command.budget, owner),)
    plan = state.current_plan()
    if state.phase != "awaiting_approval" or plan is None:
        raise NotAwaitingApproval(
            f"the execution is {state.phase}; only a plan that awaits approval can be approved"
        )
    if command.override is not None:
        plan = apply_override(
            plan,
            command.override,
            squad=command.squad,
            board=command.board,
            limit=command.budget.max_tasks_per_plan,
            new_id=new_id,
        )
    else:
        layers({task.id: task.depends_on for task in plan.tasks})
        for task in plan.tasks:
            if command.squad.agent(task.assigned_to) is None:
                raise Invalid(f"task {task.id!r} is assigned to {task.assigned_to!r}, who has left the squad")
    return (
        m.PlanApproved(
            plan=msgspec.structs.replace(plan, status="approved"), overridden=command.override is not None
        ),
        started(command.squad, command.budget, owner),
    )


def started(squad: Squad, budget: BudgetConfig, owner: str) -> m.ExecutionStarted:
    """Return the start of dispatching."""
    return m.ExecutionStarted(budget=budget, agents=squad.agents, planner_id=_planner_id(squad), owner=owner)


def reject(state: ExecutionState, command: m.Reject, *, owner: str) -> Events:
    """Plan anew with the feedback, or end when there were plans enough. Raises: NotAwaitingApproval, Invalid."""
    if state.phase != "awaiting_approval":
        raise NotAwaitingApproval(
            f"the execution is {state.phase}; only a plan that awaits approval can be rejected"
        )
    if not command.feedback.strip():
        raise Invalid("feedback must not be blank")
    rejected = m.PlanRejected(feedback=command.feedback)
    if state.iteration >= command.budget.max_plan_iterations:
        reason = f"the plan was rejected {state.iteration} times, as often as the budget allows (maxPlanIterations)"
        return (rejected, *end_cancelled(state, reason))
    return (rejected, m.PlanningStarted(iteration=state.iteration + 1, owner=owner))


def cancel(state: ExecutionState, reason: str) -> Events:
    """End it. Raises: NotRunning."""
    require_alive(state)
    return end_cancelled(state, reason)


def end_cancelled(state: ExecutionState, reason: str, *, emergency: bool = False) -> Events:
    """Return the end of the execution and of all its tasks; what those under way produce later is dropped."""
    stopped, unstarted = _unfinished(state, reason)
    return (*stopped, m.ExecutionCancelled(reason=reason, emergency=emergency, task_ids=unstarted))


def end_failed(state: ExecutionState, error: str) -> Events:
    """Return the end of the execution by a limit or a failure of its own, and of all its tasks."""
    stopped, unstarted = _unfinished(state, error)
    return (*stopped, m.ExecutionFailed(error=error, task_ids=unstarted))


def _unfinished(state: ExecutionState, reason: str) -> tuple[Events, tuple[str, ...]]:
    stopped = [m.TaskStopped(task_id=task.id, reason=reason) for task in state.running()]
    unstarted = (
        task.id
        for task in state.tasks.values()
        if task.status not in FINISHED and task.status != "in_progress"
    )
    return stopped, tuple(unstarted)


def pause(state: ExecutionState, command: m.Pause, *, active: float) -> Events:
    """Dispatch nothing more. Raises: NotPausable."""
    if state.phase != "executing":
        raise NotPausable(f"the execution is {state.phase}; only an executing one can be paused")
    return (m.ExecutionPaused(reason=command.reason, by=command.by, active=active),)


def resume(state: ExecutionState, command: m.Resume, *, owner: str) -> Events:
    """Dispatch again. Raises: NotRunning."""
    if state.phase != "paused":
        raise NotRunning(f"the execution is {state.phase}; only a paused one can be resumed")
    return (_resumed(command.squad, command.budget, owner),)


def steer(state: ExecutionState, command: m.Steer, *, directive_id: str, now: str) -> Events:
    """Add a directive. Raises: NotSteerable, Invalid."""
    if state.phase not in ("awaiting_approval", "executing", "paused"):
        raise NotSteerable(f"the execution is {state.phase} and takes no directives")
    if not command.message.strip():
        raise Invalid("message must not be blank")
    if len(command.message.encode(errors="replace")) > m.STEER_LIMIT:
        raise Invalid(f"message is longer than {m.STEER_LIMIT} bytes")
    scope = command.scope
    if scope.type == "task":
        task = state.tasks.get(scope.task_id or "")
        if task is None:
            raise Invalid(f"scope.taskId {scope.task_id!r} is not a task of the plan")
        if task.status in FINISHED:
            raise NotSteerable(f"task {task.id!r} is finished ({task.status}) and takes no directives")
    if scope.type == "agent" and scope.agent_id not in command.agent_ids:
        raise Invalid(f"scope.agentId {scope.agent_id!r} is not an agent of the squad")
    return (
        m.Steered(directive=Directive(id=directive_id, message=command.message, scope=scope, created_at=now)),
    )


def skip(state: ExecutionState, task_id: str) -> Events:
    """Leave a task out. Raises: NotRunning, ExecutionTaskNotFound, TaskNotSkippable."""
    require_alive(state)
    task = _task(state, task_id)
    if state.phase not in ("awaiting_approval", "executing", "paused") or task.status != "pending":
        raise TaskNotSkippable(
            f"task {task_id!r} is {task.status}; only a task that has not started can be skipped"
        )
    return (m.TaskSkipped(task_id=task_id, reason="operator"),)


def retry(state: ExecutionState, task_id: str) -> Events:
    """Run a task once more. Raises: NotRunning, ExecutionTaskNotFound, TaskNotRetriable."""
    require_alive(state)
    task = _task(state, task_id)
    if state.phase not in ("executing", "paused") or task.status not in ("failed", "cancelled"):
        raise TaskNotRetriable(
            f"task {task_id!r} is {task.status} in an execution that is {state.phase};"
            " only a failed, cancelled or skipped task of one that is executing or paused can be retried"
        )
    revived = tuple(
        each for each in dependants(state, task_id) if state.runs[each].skipped == "dependency_failed"
    )
    return (m.TaskRetried(task_id=task_id, revived=revived, was=task.status),)


def finish(state: ExecutionState, result: str) -> Events:
    """End an aggregated execution: failed only when some task failed and none succeeded."""
    counts = state.counts()
    if counts.failed and not counts.completed:
        errors = "; ".join(
            f"{task.title}: {task.error}" for task in state.tasks.values() if task.status == "failed"
        )
        return (m.ExecutionFailed(error=f"no task succeeded: {errors}", result=result),)
    return (m.ExecutionCompleted(result=result),)


def recover(state: ExecutionState, *, booted: bool) -> Events:
    """Return what becomes of an execution that nobody runs any more (squads contract 6.8).

    Args:
        state: As it was left.
        booted: The process has just started; else its actor alone was lost.
    """
    if state.phase == "planning":
        return (m.ExecutionFailed(error="server restarted while planning"),)
    returned = tuple(task.id for task in state.running())
    forgotten = booted and not state.recovered
    if state.phase in ("executing", "aggregating") or (state.phase == "paused" and (returned or forgotten)):
        return (m.ExecutionRecovered(returned=returned),)
    return ()


def require_alive(state: ExecutionState) -> None:
    """Raise NotRunning when the execution has ended."""
    if state.terminal:
        raise NotRunning(f"the execution has ended ({state.phase})")


def _task(state: ExecutionState, task_id: str) -> PlanTask:
    task = state.tasks.get(task_id)
    if task is None:
        raise ExecutionTaskNotFound(f"task {task_id} not found in the execution's plan")
    return task


def _resumed(squad: Squad, budget: BudgetConfig, owner: str) -> m.ExecutionResumed:
    return m.ExecutionResumed(budget=budget, agents=squad.agents, planner_id=_planner_id(squad), owner=owner)


def _planner_id(squad: Squad) -> str:
    return squad.planner.id if squad.planner is not None else ""
