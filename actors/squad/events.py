"""Every ``squad:*`` event name, and the event as readers, ledgers and activity logs get it.

A name is spelled here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

JSON = Any
PREFIX: Final = "squad:"

# Execution lifecycle
PLANNING_STARTED: Final = "squad:planning-started"
PLAN_READY: Final = "squad:plan-ready"
PLAN_APPROVED: Final = "squad:plan-approved"
PLAN_REJECTED: Final = "squad:plan-rejected"
EXECUTION_STARTED: Final = "squad:execution-started"
TASK_WAVE_STARTED: Final = "squad:task-wave-started"
TASK_WAVE_COMPLETED: Final = "squad:task-wave-completed"
AGGREGATION_STARTED: Final = "squad:aggregation-started"
EXECUTION_COMPLETED: Final = "squad:execution-completed"
EXECUTION_FAILED: Final = "squad:execution-failed"
EXECUTION_CANCELLED: Final = "squad:execution-cancelled"
EXECUTION_RECOVERED: Final = "squad:execution-recovered"

# Execution control
EXECUTION_PAUSED: Final = "squad:execution-paused"
EXECUTION_RESUMED: Final = "squad:execution-resumed"
EXECUTION_STEERED: Final = "squad:execution-steered"
TASK_SKIPPED: Final = "squad:task-skipped"
TASK_RETRIED: Final = "squad:task-retried"

# Agent sessions
AGENT_SESSION_STARTED: Final = "squad:agent-session-started"
AGENT_SESSION_STOPPED: Final = "squad:agent-session-stopped"
AGENT_MESSAGE_RECEIVED: Final = "squad:agent-message-received"
AGENT_RESPONSE: Final = "squad:agent-response"
AGENT_RESPONSE_CHUNK: Final = "squad:agent-response-chunk"
AGENT_ERROR: Final = "squad:agent-error"
TOOL_APPROVAL_REQUESTED: Final = "squad:tool-approval-requested"
TOOL_APPROVAL_RESOLVED: Final = "squad:tool-approval-resolved"

# Squad composition
AGENTS_CHANGED: Final = "squad:agents-changed"
CREATED: Final = "squad:created"
UPDATED: Final = "squad:updated"
DELETED: Final = "squad:deleted"

# Task lifecycle
TASK_CREATED: Final = "squad:task-created"
TASK_UPDATED: Final = "squad:task-updated"
TASK_DELETED: Final = "squad:task-deleted"
TASK_ASSIGNED: Final = "squad:task-assigned"
TASK_STATUS_CHANGED: Final = "squad:task-status-changed"
TASK_COMPLETED: Final = "squad:task-completed"

# Resource and state
AGENT_STATE_CHANGED: Final = "squad:agent-state-changed"
EXECUTION_TOKEN_USAGE: Final = "squad:execution-token-usage"  # noqa: S105 - an event's name
TOKEN_USAGE_UPDATE: Final = "squad:token-usage-update"  # noqa: S105 - an event's name
WORKSPACE_FILE_CHANGED: Final = "squad:workspace-file-changed"
MEMORY_UPDATED: Final = "squad:memory-updated"

# Budget and safety; the first two are declared and never sent
BUDGET_WARNING: Final = "squad:budget-warning"
BUDGET_EXCEEDED: Final = "squad:budget-exceeded"
EMERGENCY_STOPPED: Final = "squad:emergency-stopped"

# Container output
CONTAINER_OUTPUT: Final = "squad:container-output"
CONTAINER_STATUS: Final = "squad:container-status"

# Discussion rooms; these have an underscore after the prefix
DISCUSSION_CREATED: Final = "squad:discussion_created"
DISCUSSION_STARTED: Final = "squad:discussion_started"
DISCUSSION_TURN_STARTED: Final = "squad:discussion_turn_started"
DISCUSSION_MESSAGE: Final = "squad:discussion_message"
DISCUSSION_MESSAGE_CHUNK: Final = "squad:discussion_message_chunk"
DISCUSSION_MESSAGE_QUEUED: Final = "squad:discussion_message_queued"
DISCUSSION_MESSAGE_CANCELLED: Final = "squad:discussion_message_cancelled"
DISCUSSION_TURN_COMPLETED: Final = "squad:discussion_turn_completed"
DISCUSSION_STATUS_CHANGED: Final = "squad:discussion_status_changed"
DISCUSSION_PAUSED: Final = "squad:discussion_paused"
DISCUSSION_RESUMED: Final = "squad:discussion_resumed"
DISCUSSION_STOPPED: Final = "squad:discussion_stopped"
DISCUSSION_AWAITING_USER: Final = "squad:discussion_awaiting_user"
DISCUSSION_COMPLETED: Final = "squad:discussion_completed"
DISCUSSION_MODE_CHANGED: Final = "squad:discussion_mode_changed"
DISCUSSION_STRATEGY_CHANGED: Final = "squad:discussion_strategy_changed"
DISCUSSION_TURN_BUDGET_CHANGED: Final = "squad:discussion_turn_budget_changed"
DISCUSSION_CONCLUSION_READY: Final = "squad:discussion_conclusion_ready"
DISCUSSION_ERROR: Final = "squad:discussion_error"
DISCUSSION_DELETED: Final = "squad:discussion_deleted"

LEDGER_TRUNCATED: Final = "squad:ledger-truncated"
"""The last record of a ledger that reached its cap; in ledgers only."""

ALL: Final[frozenset[str]] = frozenset(
    value
    for value in dict(globals()).values()
    if isinstance(value, str) and value.startswith(PREFIX) and value != PREFIX
)
"""Every name."""


class SquadEvent(Struct, frozen=True):
    """One event. ``payload`` is what clients get: camelCase, with ``squadId`` and ``timestamp``."""

    name: str
    squad_id: str
    payload: Mapping[str, JSON]
    at: float

    @property
    def execution_id(self) -> str:
        """The execution it names; empty for none. Such events are in that execution's ledger."""
        found = self.payload.get("executionId", "")
        return found if isinstance(found, str) else ""
