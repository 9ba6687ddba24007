"""The squads' refusals, each with the code that clients are told (squads contract 5.3)."""

from __future__ import annotations

from actors.errors import Conflict, NotFound


class SquadNotFound(NotFound):
    """There is no such squad."""


class ExecutionNotFound(NotFound):
    """The squad has no such execution."""


class ExecutionTaskNotFound(NotFound):
    """The execution's plan has no such task."""


class NotAwaitingApproval(Conflict):
    """The execution does not wait for its plan to be approved."""

    code = "SQUAD_EXECUTION_NOT_AWAITING_APPROVAL"


class NotPausable(Conflict):
    """Only an executing execution can be paused."""

    code = "SQUAD_EXECUTION_NOT_PAUSABLE"


class NotRunning(Conflict):
    """The execution has ended, or is not paused when it should be resumed."""

    code = "SQUAD_EXECUTION_NOT_RUNNING"


class NotSteerable(Conflict):
    """The execution, or the task a directive is for, takes no directives any more."""

    code = "SQUAD_EXECUTION_NOT_STEERABLE"


class TaskNotSkippable(Conflict):
    """The task has started, or is finished."""

    code = "SQUAD_EXECUTION_TASK_NOT_SKIPPABLE"


class TaskNotRetriable(Conflict):
    """The task has not failed."""

    code = "SQUAD_EXECUTION_TASK_NOT_RETRIABLE"
