"""An execution as the fold of its stream: its plan, tasks, waves, directives and use. Pure; decides nothing.

Longer than most files: it is one fold over one list of events, and the views of what it folds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import assert_never

import msgspec

from actors.squad import messages as m
from actors.squad.values import (
    FINISHED,
    TERMINAL,
    Agent,
    BudgetConfig,
    BudgetUsage,
    Directive,
    Execution,
    ExecutionStatus,
    Phase,
    Plan,
    PlanStatus,
    PlanTask,
    Squad,
    TaskCounts,
    TaskStatus,
    TokenUsage,
    timestamp,
)

TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    "planning": frozenset({"awaiting_approval", "executing", "failed", "cancelled"}),
    "awaiting_approval": frozenset({"planning", "executing", "cancelled"}),
    "executing": frozenset({"paused", "aggregating", "failed", "cancelled"}),
    "paused": frozenset({"executing", "failed", "cancelled"}),
    "aggregating": frozenset({"paused", "completed", "failed", "cancelled"}),
    "completed": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}
"""Which state may follow which (squads contract 3.7); ``aggregating`` falls back to ``paused`` after a restart."""


@dataclass
class TaskRun:
    """What an execution knows of a task beyond its plan.

    Attributes:
        skipped: Why it was skipped; empty when it was not.
        cause: The task whose failure skipped it.
        effects: Tools with effects that attempts have begun, with what they were used on.
    """

    attempts: int = 0
    skipped: str = ""
    cause: str = ""
    started_at: float = 0.0
    ended_at: float = 0.0
    seconds: float = 0.0
    usage: TokenUsage = field(default_factory=TokenUsage)
    effects: list[str] = field(default_factory=list[str])
    artifacts: list[str] = field(default_factory=list[str])


class ExecutionState:
    """See the module. Read its attributes; change it by :meth:`evolve` alone."""

    def __init__(self, execution_id: str) -> None:
        self.id = execution_id
        self.seq = 0
        self.squad_id = ""
        self.squad_name = ""
        self.workspace = ""
        self.request = ""
        self.auto_approve = False
        self.phase: Phase = "planning"
        self.iteration = 0
        self.feedback: list[str] = []
        self.plan: Plan | None = None
        self.tasks: dict[str, PlanTask] = {}
        self.runs: dict[str, TaskRun] = {}
        self.waves: tuple[tuple[str, ...], ...] = ()
        self.wave = 0
        self.passing: frozenset[str] | None = None
        self.degraded: str | None = None
        self.planned = False
        self.notes: tuple[str, ...] = ()
        self.directives: dict[str, Directive] = {}
        self.usage = TokenUsage()
        self.cost = 0.0
        self.agent_usage: dict[str, TokenUsage] = {}
        self.budget = BudgetConfig()
        self.agents: dict[str, Agent] = {}
        self.planner_id = ""
        self.owner = ""
        self.emergency = False
        self.kept = False
        self.pause_reason = ""
        self.paused_by = ""
        self.recovered = False
        self.active = 0.0
        self.result: str | None = None
        self.error: str | None = None
        self.created_at = 0.0
        self.started_at = 0.0
        self.updated_at = 0.0
        self.completed_at = 0.0

    # --- questions --------------------------------------------------------------------------------------------------

    @property
    def terminal(self) -> bool:
        """Whether it has ended."""
        return self.phase in TERMINAL

    def squad(self) -> Squad:
        """Return the squad as it was when dispatching began or was resumed."""
        return Squad(
            id=self.squad_id,
            name=self.squad_name,
            workspace_path=self.workspace,
            agents=tuple(self.agents.values()),
            planner_agent_id=self.planner_id or None,
        )

    def running(self) -> Iterator[PlanTask]:
        """Return the tasks under way."""
        return (task for task in self.tasks.values() if task.status == "in_progress")

    def satisfied(self, task_id: str) -> bool:
        """Whether dependants of the task may run: it is done, or an operator skipped it."""
        return self.tasks[task_id].status == "done" or self.runs[task_id].skipped == "operator"

    def lost(self, task_id: str) -> bool:
        """Whether dependants of the task cannot run: it is finished without being satisfied."""
        return self.tasks[task_id].status in FINISHED and not self.satisfied(task_id)

    def counts(self) -> TaskCounts:
        """Return how many tasks are in which state."""
        found = {"pending": 0, "running": 0, "completed": 0, "failed": 0, "skipped": 0, "cancelled": 0}
        names: dict[TaskStatus, str] = {
            "in_progress": "running",
            "review": "running",
            "done": "completed",
            "failed": "failed",
            "cancelled": "cancelled",
        }
        for task_id, task in self.tasks.items():
            found["skipped" if self.runs[task_id].skipped else names.get(task.status, "pending")] += 1
        return TaskCounts(total=len(self.tasks), **found)

    def view(self) -> Execution:
        """Return the execution as clients see it."""
        return Execution(
            execution_id=self.id,
            id=self.id,
            squad_id=self.squad_id,
            request=self.request,
            auto_approve=self.auto_approve,
            status=self.status(),
            phase=self.phase,
            current_wave=self.wave,
            total_waves=len(self.waves),
            plan=self.current_plan(),
            task_counts=self.counts(),
            task_attempts={task_id: run.attempts for task_id, run in self.runs.items()},
            skipped_task_ids=tuple(
                task_id for task_id, run in self.runs.items() if run.skipped == "operator"
            ),
            directives=tuple(self.directives.values()),
            planner_started=None if not self.planned else self.degraded is None,
            planner_degraded_reason=self.degraded,
            plan_iterations=max(self.iteration, 1),
            result=self.result,
            error=self.error,
            token_usage=self.usage,
            created_at=timestamp(self.created_at),
            started_at=timestamp(self.started_at) if self.started_at else None,
            updated_at=timestamp(self.updated_at),
            completed_at=timestamp(self.completed_at) if self.completed_at else None,
        )

    def status(self) -> ExecutionStatus:
        """Return the state with its data."""
        return execution_status(
            self.phase,
            wave=self.wave,
            waves=len(self.waves),
            error=self.error or "",
            reason=self.pause_reason,
            by=self.paused_by,
        )

    def current_plan(self) -> Plan | None:
        """Return the plan with its tasks as they are now."""
        plan = self.plan
        if plan is None:
            return None
        status = plan.status
        if status not in ("draft", "rejected"):
            ends: dict[Phase, PlanStatus] = {
                "completed": "completed",
                "failed": "failed",
                "cancelled": "cancelled",
            }
            status = ends.get(self.phase, status)
        return msgspec.structs.replace(
            plan,
            status=status,
            tasks=tuple(self.tasks.values()),
            waves=self.waves,
            updated_at=timestamp(self.updated_at),
        )

    # --- the fold ---------------------------------------------------------------------------------------------------

    def evolve(self, seq: int, at: float, event: m.ExecutionEvent) -> None:
        """Fold one event in."""
        self.seq = seq
        self.updated_at = at
        match event:
            case m.ExecutionSubmitted():
                self.squad_id, self.squad_name = event.squad_id, event.squad_name
                self.workspace, self.request = event.workspace, event.request
                self.auto_approve = event.auto_approve
                self.created_at = at
            case m.PlanningStarted():
                self._enter("planning")
                self.iteration, self.owner = event.iteration, event.owner
            case m.PlanProposed():
                self._take_plan(event.plan)
                self.planned = True
                self.degraded = event.degraded or self.degraded
                self.notes = event.notes
                if not self.auto_approve:
                    self._enter("awaiting_approval")
            case m.PlanApproved():
                self._take_plan(event.plan)
            case m.PlanRejected():
                self.feedback.append(event.feedback)
            case m.ExecutionStarted():
                self._enter("executing")
                self.started_at = at
                self._limits(event)
                self._plan_status("executing")
            case m.WaveStarted():
                self.wave, self.passing = event.wave, frozenset(event.task_ids)
            case m.WaveCompleted():
                self.passing = None
            case m.Steered():
                self.directives[event.directive.id] = event.directive
            case m.ExecutionPaused():
                self._enter("paused")
                self.pause_reason, self.paused_by, self.active = event.reason, event.by, event.active
            case m.ExecutionResumed():
                self._enter("executing")
                self.pause_reason = self.paused_by = ""
                self.recovered = False
                self._limits(event)
            case m.ExecutionRecovered():
                if self.phase != "paused":
                    self.pause_reason, self.paused_by = "the server restarted", "system"
                self._enter("paused")
                self.recovered = True
                self.passing = None
                for task_id in event.returned:
                    self._change(task_id, status="pending")
            case m.AggregationStarted():
                self._enter("aggregating")
            case m.ExecutionCompleted():
                self._end("completed", at, result=event.result)
            case m.ExecutionFailed():
                self._end("failed", at, result=event.result or None, error=event.error)
                for task_id in event.task_ids:
                    self._change(task_id, status="cancelled", error=event.error)
            case m.ExecutionCancelled():
                self._end("cancelled", at, error=event.reason or None)
                self.emergency = event.emergency
                for task_id in event.task_ids:
                    self._change(task_id, status="cancelled", error=event.reason)
            case m.RecordKept():
                self.kept = True
            case m.UsageCounted():
                self._count(event)
            case (
                m.TaskStarted()
                | m.EffectStarted()
                | m.FileChanged()
                | m.MemoryWritten()
                | m.TaskFinished()
                | m.TaskFailed()
                | m.TaskStopped()
                | m.TaskSkipped()
                | m.TaskRetried()
            ):
                self._evolve_task(at, event)
            case _:
                assert_never(event)

    def _evolve_task(self, at: float, event: TaskEvent) -> None:
        task_id = event.task_id
        run = self.runs[task_id]
        match event:
            case m.TaskStarted():
                run.attempts, run.started_at = event.attempt, at
                self._change(task_id, status="in_progress", result=None, error=None)
                for directive_id in event.directive_ids:
                    self._applied(directive_id, task_id)
            case m.EffectStarted():
                run.effects.append(f"{event.tool} {event.target}".strip())
            case m.FileChanged():
                if event.path not in run.artifacts:
                    run.artifacts.append(event.path)
            case m.MemoryWritten():
                pass
            case m.TaskFinished():
                self._finish_task(task_id, at, "done", result=event.result)
            case m.TaskFailed():
                self._finish_task(task_id, at, "failed", error=event.error)
            case m.TaskStopped():
                self._finish_task(task_id, at, "cancelled", error=event.reason)
            case m.TaskSkipped():
                run.skipped, run.cause = event.reason, event.cause
                self._change(task_id, status="cancelled", error=_skip_text(event))
            case m.TaskRetried():
                for each in (task_id, *event.revived):
                    self.runs[each].skipped = self.runs[each].cause = ""
                    self._change(each, status="pending", error=None, result=None)
                if self.passing is not None:
                    self.passing -= {task_id, *event.revived}
            case _:
                assert_never(event)

    def _finish_task(
        self,
        task_id: str,
        at: float,
        status: TaskStatus,
        *,
        result: str | None = None,
        error: str | None = None,
    ) -> None:
        run = self.runs[task_id]
        run.ended_at = at
        run.seconds += max(at - run.started_at, 0.0) if run.started_at else 0.0
        self._change(task_id, status=status, result=result, error=error)

    def _change(self, task_id: str, **changes: object) -> None:
        self.tasks[task_id] = msgspec.structs.replace(self.tasks[task_id], **changes)

    def _take_plan(self, plan: Plan) -> None:
        kept = self.runs
        self.plan, self.waves = plan, plan.waves
        self.tasks = {task.id: task for task in plan.tasks}
        self.runs = {task.id: kept.get(task.id) or TaskRun() for task in plan.tasks}
        self.wave, self.passing = 0, None

    def _plan_status(self, status: PlanStatus) -> None:
        if self.plan is not None:
            self.plan = msgspec.structs.replace(self.plan, status=status)

    def _limits(self, event: m.ExecutionStarted | m.ExecutionResumed) -> None:
        self.budget, self.owner, self.planner_id = event.budget, event.owner, event.planner_id
        self.agents = {agent.id: agent for agent in event.agents}

    def _applied(self, directive_id: str, task_id: str) -> None:
        directive = self.directives.get(directive_id)
        if directive is not None and task_id not in directive.applied_to_task_ids:
            self.directives[directive_id] = msgspec.structs.replace(
                directive, applied_to_task_ids=(*directive.applied_to_task_ids, task_id)
            )

    def _count(self, event: m.UsageCounted) -> None:
        self.usage = self.usage.plus(event.usage)
        self.cost += event.cost
        before = self.agent_usage.get(event.agent_id, TokenUsage())
        self.agent_usage[event.agent_id] = before.plus(event.usage)
        if event.task_id in self.runs:
            run = self.runs[event.task_id]
            run.usage = run.usage.plus(event.usage)

    def _enter(self, phase: Phase) -> None:
        assert phase == self.phase or phase in TRANSITIONS[self.phase], f"{self.phase} -> {phase}"
        self.phase = phase

    def _end(self, phase: Phase, at: float, *, result: str | None = None, error: str | None = None) -> None:
        self._enter(phase)
        self.completed_at = at
        self.result, self.error = result, error
        self.pause_reason = self.paused_by = ""
        self.passing = None


TaskEvent = (
    m.TaskStarted
    | m.EffectStarted
    | m.FileChanged
    | m.MemoryWritten
    | m.TaskFinished
    | m.TaskFailed
    | m.TaskStopped
    | m.TaskSkipped
    | m.TaskRetried
)


def execution_status(
    phase: Phase, *, wave: int = 0, waves: int = 0, error: str = "", reason: str = "", by: str = ""
) -> ExecutionStatus:
    """Return a state with the data that goes with it."""
    if phase in ("executing", "paused"):
        data: dict[str, object] = {"currentWave": wave, "totalWaves": waves}
        if phase == "paused":
            data.update({key: text for key, text in (("reason", reason), ("pausedBy", by)) if text})
        return ExecutionStatus(phase, data)
    if phase == "failed":
        return ExecutionStatus(phase, {"error": error})
    return ExecutionStatus(phase)


def _skip_text(event: m.TaskSkipped) -> str:
    if event.reason == "operator":
        return "skipped by the operator"
    return f"skipped: task {event.cause} did not succeed"


def usage_of(state: ExecutionState, limits: BudgetConfig) -> BudgetUsage:
    """Return what an execution has used, with the limits that hold for it now."""
    total = state.usage.total
    return BudgetUsage(
        total_tokens=total,
        per_agent_tokens={agent: usage.total for agent, usage in state.agent_usage.items()},
        tasks_created=len(state.tasks),
        plan_iterations=state.iteration,
        active_agents=len({task.assigned_to for task in state.running()}),
        started_at=timestamp(state.started_at or state.created_at),
        exceeded=bool(total_spent(limits, total, state.cost)),
        warning_emitted=total * 100 >= limits.max_total_tokens * limits.warning_threshold_percent,
        total_cost_usd=state.cost,
        budget=limits,
    )


def total_spent(limits: BudgetConfig, tokens: int, cost: float) -> str:
    """Return why an execution may spend no more; empty while it may."""
    if tokens >= limits.max_total_tokens:
        return f"budget exceeded: {tokens} of {limits.max_total_tokens} tokens are used"
    if limits.max_total_cost_usd is not None and cost >= limits.max_total_cost_usd and cost > 0:
        return f"budget exceeded: {cost:.4f} of {limits.max_total_cost_usd:.4f} USD are used"
    return ""
