"""The execution actor's words: commands with their replies, and the events of the stream ``execution/<id>``.

The gateway may import this module. All commands overtake mail and are answered once their events are committed. What
clients see of the stream's events is made by :mod:`actors.squad.announce`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from actors.kernel.message import Control, Request
from actors.squad.values import (
    WHOLE,
    Agent,
    BudgetConfig,
    BudgetUsage,
    Directive,
    Execution,
    Plan,
    Scope,
    Squad,
    TaskStatus,
    TokenUsage,
)

JSON = Any
STEER_LIMIT = 8192
"""Bytes of a directive's message."""


class Event(Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="type"):
    """Base of an execution's events. Events are for ever: add fields with defaults, never rename or reuse a tag."""


class ExecutionSubmitted(Event, frozen=True, tag="execution_submitted"):
    """The stream's first event: the request, and the squad as it was."""

    squad_id: str
    squad_name: str
    workspace: str
    request: str
    auto_approve: bool = False


class PlanningStarted(Event, frozen=True, tag="planning_started"):
    """The planner begins its ``iteration``-th plan, counted from 1, in the process called ``owner``."""

    iteration: int = 1
    owner: str = ""


class PlanProposed(Event, frozen=True, tag="plan_proposed"):
    """There is a plan. ``degraded`` says why the planner did not make it; ``notes`` what was repaired in it."""

    plan: Plan
    degraded: str = ""
    notes: tuple[str, ...] = ()


class PlanApproved(Event, frozen=True, tag="plan_approved"):
    """The plan that will run; ``overridden`` when it replaces the planner's."""

    plan: Plan
    overridden: bool = False


class PlanRejected(Event, frozen=True, tag="plan_rejected"):
    """The plan was refused; the next one is made with the feedback in mind."""

    feedback: str


class ExecutionStarted(Event, frozen=True, tag="execution_started"):
    """Tasks are dispatched from now on, with the limits as they were then."""

    budget: BudgetConfig = BudgetConfig()
    agents: tuple[Agent, ...] = ()
    planner_id: str = ""
    owner: str = ""


class WaveStarted(Event, frozen=True, tag="wave_started"):
    """A wave, or an extra pass over retried tasks of it, begins with these tasks."""

    wave: int
    task_ids: tuple[str, ...]


class WaveCompleted(Event, frozen=True, tag="wave_completed"):
    """Every task of the pass is finished."""

    wave: int


class TaskStarted(Event, frozen=True, tag="task_started"):
    """An agent begins an attempt at a task, told these directives."""

    task_id: str
    agent_id: str
    attempt: int
    directive_ids: tuple[str, ...] = ()


class EffectStarted(Event, frozen=True, tag="effect_started"):
    """A tool that changes things is about to run; so that a later attempt knows what may have happened already."""

    task_id: str
    tool: str
    target: str = ""


class FileChanged(Event, frozen=True, tag="file_changed"):
    """A worker wrote a file of the workspace."""

    task_id: str
    path: str
    change: Literal["created", "modified", "deleted"] = "modified"


class MemoryWritten(Event, frozen=True, tag="memory_written"):
    """A worker wrote its memory."""

    task_id: str
    agent_id: str
    section: str


class UsageCounted(Event, frozen=True, tag="usage_counted"):
    """One model call was paid; ``task_id`` is empty for planning and aggregating."""

    agent_id: str
    usage: TokenUsage
    task_id: str = ""
    cost: float = 0.0


class TaskFinished(Event, frozen=True, tag="task_finished"):
    """The task is done."""

    task_id: str
    result: str = ""


class TaskFailed(Event, frozen=True, tag="task_failed"):
    """The task failed; its dependants will be skipped."""

    task_id: str
    error: str


class TaskStopped(Event, frozen=True, tag="task_stopped"):
    """A task under way when the execution ended has stopped; what it produced is dropped."""

    task_id: str
    reason: str = ""


class TaskSkipped(Event, frozen=True, tag="task_skipped"):
    """The task will not run: by an operator, or because ``cause`` (a task's id) did not succeed."""

    task_id: str
    reason: Literal["operator", "dependency_failed"] = "operator"
    cause: str = ""


class TaskRetried(Event, frozen=True, tag="task_retried"):
    """An operator has the task run once more, and with it the dependants that were skipped for its sake."""

    task_id: str
    revived: tuple[str, ...] = ()
    was: TaskStatus = "failed"


class Steered(Event, frozen=True, tag="steered"):
    """An operator's standing directive."""

    directive: Directive


class ExecutionPaused(Event, frozen=True, tag="execution_paused"):
    """Nothing is dispatched until resumed. ``active`` is the seconds that count for the time limit so far."""

    reason: str = ""
    by: str = "operator"
    active: float = 0.0


class ExecutionResumed(Event, frozen=True, tag="execution_resumed"):
    """Dispatching goes on, with the limits as they are now."""

    budget: BudgetConfig = BudgetConfig()
    agents: tuple[Agent, ...] = ()
    planner_id: str = ""
    owner: str = ""


class ExecutionRecovered(Event, frozen=True, tag="execution_recovered"):
    """The process that ran it ended. It is paused now; the tasks that were under way wait to be run again."""

    returned: tuple[str, ...] = ()


class AggregationStarted(Event, frozen=True, tag="aggregation_started"):
    """All tasks are finished; the result is being put together."""


class ExecutionCompleted(Event, frozen=True, tag="execution_completed"):
    """The end, with a result."""

    result: str = ""


class ExecutionFailed(Event, frozen=True, tag="execution_failed"):
    """The end, with an error, also of these tasks; ``result`` is what there is all the same."""

    error: str
    result: str = ""
    task_ids: tuple[str, ...] = ()


class ExecutionCancelled(Event, frozen=True, tag="execution_cancelled"):
    """The end, by an operator or a limit, also of these tasks. ``emergency`` when a squad was stopped as a whole."""

    reason: str = ""
    emergency: bool = False
    task_ids: tuple[str, ...] = ()


class RecordKept(Event, frozen=True, tag="record_kept"):
    """The history record and the ledger are complete; nothing is left to do, ever."""


ExecutionEvent = (
    ExecutionSubmitted
    | PlanningStarted
    | PlanProposed
    | PlanApproved
    | PlanRejected
    | ExecutionStarted
    | WaveStarted
    | WaveCompleted
    | TaskStarted
    | EffectStarted
    | FileChanged
    | MemoryWritten
    | UsageCounted
    | TaskFinished
    | TaskFailed
    | TaskStopped
    | TaskSkipped
    | TaskRetried
    | Steered
    | ExecutionPaused
    | ExecutionResumed
    | ExecutionRecovered
    | AggregationStarted
    | ExecutionCompleted
    | ExecutionFailed
    | ExecutionCancelled
    | RecordKept
)
"""Every event of an execution's stream."""


# --- commands ---------------------------------------------------------------------------------------------------


class OverrideTask(Struct, frozen=True, kw_only=True, rename="camel"):
    """A task of a plan override; absent fields keep the stored task's values (squads contract 3.6, R2)."""

    id: str | None = None
    title: str | None = None
    description: str | None = None
    assigned_to: str | None = None
    depends_on: tuple[str, ...] | None = None
    priority: Literal["low", "medium", "high", "critical"] | None = None
    max_retries: int | None = None


class PlanOverride(Struct, frozen=True, kw_only=True, rename="camel"):
    """A plan that replaces the stored one whole."""

    tasks: tuple[OverrideTask, ...]
    title: str | None = None


class BoardHold(Struct, frozen=True):
    """An id that is taken on the squad's board: by which plan (none: made by hand), and its live execution if any."""

    id: str
    plan_id: str | None = None
    execution_id: str = ""


class GetExecution(Request[Execution], Control, frozen=True):
    """Answer the execution as it is now."""


class GetUsage(Request[BudgetUsage], Control, frozen=True):
    """Answer what the execution has used."""


class Recover(Request[bool], Control, frozen=True):
    """The process was started: take note of what its predecessor left; answers whether there was anything."""


class BeginPlanning(Request[Execution], Control, frozen=True, kw_only=True):
    """Start the first plan; sent once, right after the submission was recorded."""

    squad: Squad
    budget: BudgetConfig = BudgetConfig()


class Approve(Request[Execution], Control, frozen=True, kw_only=True):
    """Run the plan, or the one given instead. ``board`` lists the ids taken."""

    squad: Squad
    budget: BudgetConfig = BudgetConfig()
    override: PlanOverride | None = None
    board: Sequence[BoardHold] = ()


class Reject(Request[Execution], Control, frozen=True, kw_only=True):
    """Have the planner plan anew with this feedback; cancels when its iterations are used up."""

    squad: Squad
    feedback: str
    budget: BudgetConfig = BudgetConfig()


class Cancel(Request[Execution], Control, frozen=True, kw_only=True):
    """End it. Tasks under way finish their model call, and what they produce is dropped."""

    reason: str = "cancelled by the operator"


class Pause(Request[Execution], Control, frozen=True, kw_only=True):
    """Dispatch nothing more; tasks under way run to their end."""

    reason: str = ""
    by: str = "operator"


class Resume(Request[Execution], Control, frozen=True, kw_only=True):
    """Dispatch again, with the squad and its limits as given."""

    squad: Squad
    budget: BudgetConfig = BudgetConfig()


class Steer(Request[Execution], Control, frozen=True, kw_only=True):
    """Add a standing directive for the task turns to come. ``agent_ids``: the squad's agents now."""

    message: str
    scope: Scope = WHOLE
    agent_ids: tuple[str, ...] = ()


class SkipTask(Request[Execution], Control, frozen=True, kw_only=True):
    """Do not run a task that has not started; it counts as satisfied for its dependants."""

    task_id: str


class RetryTask(Request[Execution], Control, frozen=True, kw_only=True):
    """Run a failed, cancelled or skipped task once more."""

    task_id: str


class EmergencyStop(Request[bool], Control, frozen=True, kw_only=True):
    """Record that all work was cut off; answers whether the execution was still alive."""

    reason: str = "emergency stop"
