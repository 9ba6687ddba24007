"""The 95 endpoints of the squads API as data: number, method, path, scope, and the test that uses each for real.

``docs/squads-endpoints.md`` is made of it: ``python -m tests.gateway.squad_endpoints``.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[2] / "docs" / "squads-endpoints.md"


class Endpoint(NamedTuple):
    """One row. ``test`` is ``file::function`` below ``tests/``, empty for an endpoint that is not served."""

    number: int
    method: str
    path: str
    test: str

    @property
    def scope(self) -> str:
        """What a key needs for it."""
        return "agent_read" if self.method in ("GET", "WS") or self.number in (7, 91) else "agent_write"


_FLOW = "gateway/test_squad_flows.py::"
_LIFE = _FLOW + "test_a_squad_lives_from_creation_to_deletion"
_SPACE = _FLOW + "test_a_workspace_is_checked_laid_out_restored_and_cleaned"
_TASKS = _FLOW + "test_a_task_goes_over_the_board"
_MEMORY = _FLOW + "test_a_memory_is_written_read_and_searched"
_AGENTS = _FLOW + "test_agents_are_added_changed_and_removed"
_RUN = _FLOW + "test_a_request_is_planned_approved_and_run"
_CONTROL = _FLOW + "test_a_run_is_paused_steered_and_resumed"
_TASK_CONTROL = _FLOW + "test_a_task_of_a_run_is_skipped_and_retried"
_DECIDE = _FLOW + "test_a_plan_is_rejected_and_an_execution_cancelled"
_FILES = _FLOW + "test_files_are_listed_read_and_searched"
_RECORD = _FLOW + "test_an_ended_run_leaves_history_log_events_and_report"
_ACTIVITY = _FLOW + "test_activity_is_empty_after_a_restart_until_it_is_loaded"
_MONEY = _FLOW + "test_limits_are_set_and_refused_and_use_is_shown"
_STOP = _FLOW + "test_an_emergency_stop_cancels_every_run_and_says_so_once"
_TEMPLATES = _FLOW + "test_templates_are_saved_exported_imported_and_deleted"
_INSTALL = _FLOW + "test_a_template_is_installed_from_a_folder_that_was_added"
_CHANNEL = "gateway/test_squad_channels.py::test_a_channel_carries_what_happens_after_it_was_opened"

S = "/squads/{id}"
A = S + "/agents/{aid}"
E = S + "/executions/{eid}"
D = "/squad-discussions/{id}"
_ROWS: tuple[tuple[str, str, str], ...] = (
    ("GET", "/squads", _LIFE),
    ("POST", "/squads", _LIFE),
    ("GET", S, _LIFE),
    ("PUT", S, _LIFE),
    ("DELETE", S, _LIFE),
    ("POST", "/squads/restore", _SPACE),
    ("POST", "/squads/workspace/validate", _SPACE),
    ("POST", S + "/workspace/init", _SPACE),
    ("GET", S + "/workspace/status", _SPACE),
    ("GET", S + "/readiness", _LIFE),
    ("POST", S + "/workspace/clean", _SPACE),
    ("GET", "/squads/tasks/summary", _TASKS),
    ("GET", S + "/tasks", _TASKS),
    ("POST", S + "/tasks", _TASKS),
    ("GET", S + "/tasks/graph", _TASKS),
    ("GET", S + "/tasks/{tid}", _TASKS),
    ("PATCH", S + "/tasks/{tid}", _TASKS),
    ("DELETE", S + "/tasks/{tid}", _TASKS),
    ("PUT", S + "/tasks/{tid}/status", _TASKS),
    ("POST", S + "/tasks/{tid}/retry", _TASKS),
    ("POST", S + "/memory/init", _MEMORY),
    ("GET", S + "/memory/search", _MEMORY),
    ("GET", S + "/memory/{aid}", _MEMORY),
    ("POST", S + "/memory/{aid}", _MEMORY),
    ("GET", S + "/memory/{aid}/sections", _MEMORY),
    ("GET", S + "/agents", _AGENTS),
    ("POST", S + "/agents", _AGENTS),
    ("PATCH", A, _AGENTS),
    ("DELETE", A, _AGENTS),
    ("POST", S + "/agents/bulk-update-model", _AGENTS),
    ("POST", A + "/start", ""),
    ("POST", A + "/stop", ""),
    ("GET", A + "/status", ""),
    ("POST", A + "/message", ""),
    ("GET", A + "/response", ""),
    ("GET", A + "/conversation", ""),
    ("GET", A + "/sessions", ""),
    ("POST", A + "/sessions", ""),
    ("GET", A + "/sessions/{sid}", ""),
    ("DELETE", A + "/sessions/{sid}", ""),
    ("GET", S + "/executions", _RUN),
    ("POST", S + "/execute", _RUN),
    ("GET", E, _RUN),
    ("POST", E + "/approve", _RUN),
    ("POST", E + "/reject", _DECIDE),
    ("POST", E + "/cancel", _DECIDE),
    ("POST", E + "/pause", _CONTROL),
    ("POST", E + "/resume", _CONTROL),
    ("POST", E + "/steer", _CONTROL),
    ("POST", E + "/tasks/{tid}/skip", _TASK_CONTROL),
    ("POST", E + "/tasks/{tid}/retry", _TASK_CONTROL),
    ("GET", S + "/workspace/files", _FILES),
    ("GET", S + "/workspace/files/content", _FILES),
    ("GET", S + "/workspace/search", _FILES),
    ("GET", S + "/activity-log", _ACTIVITY),
    ("GET", S + "/activity-log/load", _ACTIVITY),
    ("GET", S + "/history", _RECORD),
    ("GET", S + "/history/{eid}", _RECORD),
    ("GET", S + "/history/{eid}/logs", _RECORD),
    ("GET", S + "/history/{eid}/events", _RECORD),
    ("POST", S + "/history/{eid}/report", _RECORD),
    ("GET", S + "/analytics", _RECORD),
    ("GET", S + "/budget", _MONEY),
    ("PUT", S + "/budget", _MONEY),
    ("GET", S + "/budget/usage", _MONEY),
    ("POST", S + "/emergency-stop", _STOP),
    ("GET", S + "/events", _CHANNEL),
    ("GET", "/squad-templates", _TEMPLATES),
    ("GET", "/squad-templates/{tpl_id}", _TEMPLATES),
    ("POST", "/squad-templates/import", _TEMPLATES),
    ("GET", "/squad-templates/{tpl_id}/export", _TEMPLATES),
    ("DELETE", "/squad-templates/{tpl_id}", _TEMPLATES),
    ("POST", S + "/save-as-template", _TEMPLATES),
    ("POST", "/squad-registry/install", _INSTALL),
    ("GET", S + "/discussions", ""),
    ("GET", S + "/discussions/completed", ""),
    ("POST", "/squad-discussions", ""),
    ("GET", D, ""),
    ("DELETE", D, ""),
    ("POST", D + "/start", ""),
    ("POST", D + "/pause", ""),
    ("POST", D + "/resume", ""),
    ("POST", D + "/stop", ""),
    ("POST", D + "/messages", ""),
    ("DELETE", D + "/messages/{mid}", ""),
    ("PUT", D + "/mode", ""),
    ("PUT", D + "/strategy", ""),
    ("PUT", D + "/turn-budget", ""),
    ("POST", D + "/conclude", ""),
    ("POST", D + "/handoff", ""),
    ("POST", D + "/export", ""),
    ("GET", D + "/analytics", ""),
    ("GET", "/squads/events", _CHANNEL),
    ("WS", "/squads/ws", _CHANNEL),
    ("WS", S + "/ws", _CHANNEL),
)
ENDPOINTS = tuple(Endpoint(number, *row) for number, row in enumerate(_ROWS, 1))


_REST = """

## Live channels

Four channels carry `squad:*` events as they happen: those of all squads and those of one, as server-sent events and as
WebSocket messages. `?types=` names the wanted ones, separated by commas; a name of another kind is refused with 400.
All but the server-sent events of one squad give a cursor with each event, which `?cursor=` or `Last-Event-ID` takes
back: what was missed comes first, and nothing twice. `stream:gap` says that some of it is not kept any more,
`stream:lagged` that the client was too slow and how many events were dropped for it. Whatever is wrong with a request
is answered before a stream or a socket exists. The durable record of a run is `history/{eid}/events`.

## What is not promised

Fields may be added to any answer and event. A cursor is good for one process: after a restart it is answered with a
gap. A login ends with the process, too; keys do not.
A channel carries nothing more once its key is revoked; other streams go on until they end.
"""


def page() -> str:
    """Return the page."""
    served = sum(1 for each in ENDPOINTS if each.test)
    lines = [
        "<!-- Generated by tests/gateway/squad_endpoints.py; do not edit. -->",
        "",
        "# Endpoints of the squads API",
        "",
        "Paths are below `/api/v1`. Each served endpoint also has the tests that are derived from its row, in "
        "`gateway/test_squad_rows.py`: no credential, no scope, an unknown squad, a body that does not fit. "
        f"{served} of {len(ENDPOINTS)} are served; the others answer 404.",
        "",
        "| # | method | path | scope | used for real by |",
        "|---|---|---|---|---|",
    ]
    for each in ENDPOINTS:
        test = f"`{each.test}`" if each.test else "not served yet"
        lines.append(f"| {each.number} | {each.method} | `{each.path}` | {each.scope} | {test} |")
    return "\n".join(lines) + _REST


if __name__ == "__main__":
    PAGE.write_text(page())
