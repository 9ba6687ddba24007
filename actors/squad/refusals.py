"""The stored resources' refusals, each with the code that clients are told (squads contract 5.3)."""

from __future__ import annotations

from actors.errors import Conflict, Denied, Invalid, NotFound


class TaskActive(Conflict):
    """The task runs: most of its fields, and the task itself, cannot be changed."""

    code = "SQUAD_TASK_ACTIVE"


class TaskTerminal(Conflict):
    """The task is finished and takes no changes."""

    code = "SQUAD_TASK_TERMINAL"


class TaskRetryExhausted(Conflict):
    """The task's retry budget is used up."""

    code = "SQUAD_TASK_RETRY_EXHAUSTED"


class AgentIsPlanner(Conflict):
    """The agent is its squad's planner."""

    code = "SQUAD_AGENT_IS_PLANNER"


class AgentBusy(Conflict):
    """The agent is at work."""

    code = "SQUAD_AGENT_BUSY"


class WorkspaceInUse(Conflict):
    """The directory is, holds or lies in another squad's workspace."""

    code = "SQUAD_WORKSPACE_IN_USE"


class AgentNotFound(NotFound):
    """The squad has no such agent."""


class TaskNotFound(NotFound):
    """The board has no such task."""


class FileRefused(Denied):
    """The path leads out of the workspace."""


class TooLarge(Invalid):
    """More than may be sent or read in one piece."""

    code = "PAYLOAD_TOO_LARGE"


class NotText(Invalid):
    """The file is binary."""

    code = "UNSUPPORTED_MEDIA_TYPE"


class UnverifiedTemplate(Conflict):
    """A template's checksum or signature is wrong, or missing where the source requires one."""

    code = "SQUAD_TEMPLATE_UNVERIFIED"
