"""Rows of executions: submit, decide on the plan, control, and what is left behind (squads contract 2.7-2.10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from actors.errors import Conflict, Invalid
from actors.runtime import Runtime
from actors.squad.activity import Entry
from actors.squad.history import Level
from actors.squad.ledger import Page
from actors.squad.messages import PlanOverride
from actors.squad.values import (
    Execution,
    ExecutionStatus,
    ExecutionSummary,
    HistoryRecord,
    Phase,
    Scope,
)
from gateway.http import JSON, Request
from gateway.route import Route
from gateway.routes.squad_rows import ONE, OPTIONAL, Limit, Paging, row, squad_id

ALL = ONE + "/executions"
EXECUTION = ALL + "/{eid}"
TASK = EXECUTION + "/tasks/{tid}"
HISTORY = ONE + "/history"
RECORD = HISTORY + "/{eid}"
NOTHING: Any = dict[str, JSON]


class ExecutionsQuery(Paging):
    """``GET .../executions``."""

    status: Phase | None = None


class WaitQuery(Struct):
    """``POST .../execute``: with ``wait`` the answer comes when there is a plan."""

    wait: bool = False


class ExecuteBody(Struct, rename="camel"):
    """``POST .../execute``."""

    request: str
    auto_approve: bool = False


class ApproveBody(Struct, rename="camel"):
    """``POST .../approve``."""

    plan_override: PlanOverride | None = None


class RejectBody(Struct):
    """``POST .../reject``."""

    feedback: str


class SteerBody(Struct, forbid_unknown_fields=True):
    """``POST .../steer``. A field that is not here would be silently without effect: it is refused."""

    message: str
    scope: Scope | None = None


class LogsQuery(Struct, rename="camel"):
    """``GET .../logs``."""

    agent_id: str = ""
    min_level: Level = "debug"
    limit: Limit | None = None


class EventsQuery(Struct, rename="camel"):
    """``GET .../history/{eid}/events``; at most 1,000 are returned at once."""

    after_seq: Annotated[int, Meta(ge=0)] = 0
    event_types: tuple[str, ...] = ()
    limit: Annotated[int, Meta(ge=1)] = 200


class Submitted(Struct, rename="camel"):
    """What a submission answers."""

    execution_id: str
    status: ExecutionStatus
    phase: Phase
    planner_started: bool | None
    planner_degraded_reason: str | None = None


class Approved(Execution, frozen=True, kw_only=True):
    """An approved execution; ``executor_started`` tells whether it runs."""

    executor_started: bool


class ActivityPage(Struct):
    """Part of an activity log, newest last; ``total`` is before paging."""

    entries: Sequence[JSON | Entry]
    total: int


def _execution_id(request: Request) -> str:
    return request.path_params["eid"]


# --- submit and decide --------------------------------------------------------------------------------------------


async def _list(request: Request, runtime: Runtime) -> JSON:
    query: ExecutionsQuery = request.params
    return await runtime.squads.executions(
        squad_id(request),
        phase=query.status or "",
        limit=-1 if query.limit is None else query.limit,
        offset=query.offset,
    )


async def _execute(request: Request, runtime: Runtime) -> Submitted:
    found, body = squad_id(request), request.body
    execution = await runtime.squads.submit(found, body.request, auto_approve=body.auto_approve)
    if request.params.wait:
        execution = await runtime.squads.wait_planned(found, execution.execution_id)
    return Submitted(
        execution.execution_id,
        execution.status,
        execution.phase,
        execution.planner_started,
        execution.planner_degraded_reason,
    )


async def _get(request: Request, runtime: Runtime) -> Execution:
    return await runtime.squads.execution(squad_id(request), _execution_id(request))


async def _approve(request: Request, runtime: Runtime) -> Approved:
    body: ApproveBody = request.body
    execution = await runtime.squads.approve(squad_id(request), _execution_id(request), body.plan_override)
    return Approved(**msgspec.structs.asdict(execution), executor_started=execution.phase == "executing")


async def _reject(request: Request, runtime: Runtime) -> Execution:
    if not request.body.feedback.strip():
        raise Invalid("invalid input: feedback must not be blank")
    return await runtime.squads.reject(squad_id(request), _execution_id(request), request.body.feedback)


# --- control ------------------------------------------------------------------------------------------------------


async def _cancel(request: Request, runtime: Runtime) -> Execution:
    return await runtime.squads.cancel(squad_id(request), _execution_id(request))


async def _pause(request: Request, runtime: Runtime) -> Execution:
    return await runtime.squads.pause(squad_id(request), _execution_id(request))


async def _resume(request: Request, runtime: Runtime) -> Execution:
    return await runtime.squads.resume(squad_id(request), _execution_id(request))


async def _steer(request: Request, runtime: Runtime) -> Execution:
    body: SteerBody = request.body
    return await runtime.squads.steer(squad_id(request), _execution_id(request), body.message, body.scope)


async def _skip(request: Request, runtime: Runtime) -> Execution:
    return await runtime.squads.skip_task(
        squad_id(request), _execution_id(request), request.path_params["tid"]
    )


async def _retry(request: Request, runtime: Runtime) -> Execution:
    return await runtime.squads.retry_task(
        squad_id(request), _execution_id(request), request.path_params["tid"]
    )


# --- what is left behind ------------------------------------------------------------------------------------------


async def _activity(request: Request, runtime: Runtime) -> ActivityPage:
    entries = await runtime.squads.activity(squad_id(request))
    return ActivityPage(request.params.part(entries), len(entries))


async def _load_activity(request: Request, runtime: Runtime) -> ActivityPage:
    entries = await runtime.squads.load_activity(squad_id(request))
    return ActivityPage(request.params.part(entries), len(entries))


async def _history(request: Request, runtime: Runtime) -> JSON:
    return request.params.part(await runtime.squads.history(squad_id(request)))


async def _record(request: Request, runtime: Runtime) -> HistoryRecord:
    return await runtime.squads.record(squad_id(request), _execution_id(request))


async def _logs(request: Request, runtime: Runtime) -> JSON:
    query: LogsQuery = request.params
    return await runtime.squads.logs(
        squad_id(request),
        _execution_id(request),
        agent_id=query.agent_id,
        min_level=query.min_level,
        limit=query.limit,
    )


async def _events(request: Request, runtime: Runtime) -> Page:
    query: EventsQuery = request.params
    names = [name.strip() for text in query.event_types for name in text.split(",")]
    return await runtime.squads.events(
        squad_id(request),
        _execution_id(request),
        after=query.after_seq,
        types=[name for name in names if name],
        limit=query.limit,
    )


async def _report(request: Request, runtime: Runtime) -> str:
    return await runtime.squads.report(squad_id(request), _execution_id(request))


ROUTES: tuple[Route, ...] = (
    row("GET", ALL, _list, "List the executions", list[ExecutionSummary], params=ExecutionsQuery),
    row(
        "POST",
        ONE + "/execute",
        _execute,
        "Submit a request",
        Submitted,
        body=ExecuteBody,
        params=WaitQuery,
        errors=(Invalid, Conflict),
    ),
    row("GET", EXECUTION, _get, "Read an execution", Execution),
    row(
        "POST",
        EXECUTION + "/approve",
        _approve,
        "Run the plan, or another one",
        Approved,
        body=ApproveBody,
        body_rule=OPTIONAL,
        errors=(Invalid, Conflict),
    ),
    row(
        "POST",
        EXECUTION + "/reject",
        _reject,
        "Have the plan made anew",
        Execution,
        body=RejectBody,
        errors=(Invalid, Conflict),
    ),
    *(
        row("POST", path, act, summary, Execution, body=NOTHING, body_rule=OPTIONAL, errors=(Conflict,))
        for path, act, summary in (
            (EXECUTION + "/cancel", _cancel, "End an execution"),
            (EXECUTION + "/pause", _pause, "Dispatch nothing more"),
            (EXECUTION + "/resume", _resume, "Dispatch again"),
            (TASK + "/skip", _skip, "Leave a task out"),
            (TASK + "/retry", _retry, "Run a task again"),
        )
    ),
    row(
        "POST",
        EXECUTION + "/steer",
        _steer,
        "Add a standing instruction",
        Execution,
        body=SteerBody,
        errors=(Invalid, Conflict),
    ),
    row("GET", ONE + "/activity-log", _activity, "Recent events", ActivityPage, params=Paging),
    row("GET", ONE + "/activity-log/load", _load_activity, "Stored events", ActivityPage, params=Paging),
    row("GET", HISTORY, _history, "List the records", list[HistoryRecord], params=Paging),
    row("GET", RECORD, _record, "Read a record", HistoryRecord),
    row("GET", RECORD + "/logs", _logs, "Read an execution's log", list[JSON], params=LogsQuery),
    row("GET", RECORD + "/events", _events, "Read an execution's events", Page, params=EventsQuery),
    row(
        "POST",
        RECORD + "/report",
        _report,
        "Write a report on the server",
        str,
        body=NOTHING,
        body_rule=OPTIONAL,
        errors=(Conflict,),
    ),
)
