"""Rows of the flows: the resource, its check without saving, and runs in sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from actors.apitools.messages import FlowRun, StoredFlow
from actors.errors import Conflict, Invalid, NotFound
from actors.runtime import Runtime
from actors.session.messages import Template
from gateway.dialect import API_TOOLS
from gateway.http import JSON, Reply, Request
from gateway.route import Route, Scope, route

TAG = "Flows"


class FlowBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A new flow; ``flow`` has ``nodes`` and ``edges``."""

    name: str
    flow: JSON


class FlowPatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Changes to a flow; ``expected_flow_revision`` is the one the client has seen."""

    expected_flow_revision: int
    name: str | None = None
    flow: JSON = None


class CheckBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A flow to check."""

    flow: JSON
    level: Literal["critical", "runtime", "all"] = "all"
    agent_id: str = ""


class RunBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A run; without ``session_id`` a session is made."""

    session_id: str = ""
    agent: str = ""
    agent_name: str = ""
    variables: Mapping[str, JSON] = field(default_factory=dict[str, JSON])


class InputBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What the person says."""

    content: str


class PageParams(Struct, frozen=True):
    """Of the listing."""

    limit: int = 50
    cursor: str = ""


async def _create(request: Request, runtime: Runtime) -> Reply:
    given: FlowBody = request.body
    return Reply(_flow(await runtime.flows.create(given.name, given.flow)), 201)


async def _list(request: Request, runtime: Runtime) -> Reply:
    given: PageParams = request.params
    page = await runtime.flows.page(limit=given.limit, cursor=given.cursor)
    items = [_flow(flow) for flow in page.items]
    return Reply({"items": items, "total_count": page.total, "next_cursor": page.next_cursor or None})


async def _get(request: Request, runtime: Runtime) -> Reply:
    return Reply(_flow(await runtime.flows.get(request.path_params["id"])))


async def _patch(request: Request, runtime: Runtime) -> Reply:
    given: FlowPatch = request.body
    flow_id = request.path_params["id"]
    return Reply(
        _flow(await runtime.flows.change(flow_id, given.name, given.flow, given.expected_flow_revision))
    )


async def _delete(request: Request, runtime: Runtime) -> Reply:
    await runtime.flows.delete(request.path_params["id"])
    return Reply(b"", 204)


async def _check(request: Request, runtime: Runtime) -> Reply:
    given: CheckBody = request.body
    if given.agent_id:
        await runtime.agents.only(given.agent_id)
    return Reply(msgspec.to_builtins(await runtime.flows.validate(given.flow, given.level)))


async def _start(request: Request, runtime: Runtime) -> Reply:
    given: RunBody = request.body
    source = await runtime.agents.only(given.agent)
    flow = await runtime.flows.get(request.path_params["id"])
    if given.session_id:
        await runtime.require_session(given.session_id)
    session_id = given.session_id or (await runtime.create(Template(title=flow.name))).id
    run = await runtime.flows.start(
        request.path_params["id"],
        session_id=session_id,
        source=source,
        agent=given.agent_name,
        variables=given.variables,
    )
    return Reply(_run(run), 201)


async def _run_view(request: Request, runtime: Runtime) -> Reply:
    return Reply(_run(await runtime.flows.run(request.path_params["id"])))


async def _say(request: Request, runtime: Runtime) -> Reply:
    given: InputBody = request.body
    return Reply(_run(await runtime.flows.say(request.path_params["id"], given.content)))


async def _cancel(request: Request, runtime: Runtime) -> Reply:
    return Reply(_run(await runtime.flows.cancel(request.path_params["id"])))


def _flow(flow: StoredFlow) -> JSON:
    return {
        "id": flow.id,
        "name": flow.name,
        "flow": flow.graph,
        "flow_revision": flow.revision,
        "created_at": flow.created_at,
        "updated_at": flow.updated_at,
    }


def _run(run: FlowRun) -> JSON:
    return {
        "id": run.id,
        "flow_id": run.flow_id,
        "session_id": run.session_id,
        "state": run.state,
        "node_id": run.node,
        "trail": list(run.trail),
        "variables": dict(run.variables),
        "reply": run.reply,
        "error": run.error or None,
        "created_at": run.created_at,
    }


def _row(method: Any, path: str, scope: Scope, handler: Any, summary: str, **options: Any) -> Route:
    return route(method, path, scope, handler, summary=summary, dialect=API_TOOLS, tag=TAG, **options)


BASE = "/api/v1/flows"
RUNS = "/api/v1/flow-runs/{id}"
ROUTES: tuple[Route, ...] = (
    _row(
        "POST", BASE, Scope.WRITE, _create, "Save a flow", body=FlowBody, status=201, errors=(Invalid,)
    ),
    _row("GET", BASE, Scope.READ, _list, "List the flows", params=PageParams),
    _row("POST", f"{BASE}/validate", Scope.READ, _check, "Check a flow", body=CheckBody),
    _row(
        "POST", "/v3/agents/validate-flow", Scope.READ, _check, "Check a flow", body=CheckBody, documented=False
    ),
    _row("GET", f"{BASE}/{{id}}", Scope.READ, _get, "A flow", errors=(NotFound,)),
    _row(
        "PATCH", f"{BASE}/{{id}}", Scope.WRITE, _patch, "Change a flow", body=FlowPatch, errors=(NotFound, Conflict)
    ),
    _row("DELETE", f"{BASE}/{{id}}", Scope.WRITE, _delete, "Delete a flow", status=204, errors=(NotFound,)),
    _row(
        "POST", f"{BASE}/{{id}}/runs", Scope.WRITE, _start, "Run a flow in a session", body=RunBody, status=201,
        errors=(NotFound, Invalid),
    ),
    _row("GET", RUNS, Scope.READ, _run_view, "A run of a flow", errors=(NotFound,)),
    _row(
        "POST", f"{RUNS}/input", Scope.WRITE, _say, "Say something to a run", body=InputBody,
        errors=(NotFound, Conflict),
    ),
    _row("POST", f"{RUNS}/cancel", Scope.WRITE, _cancel, "End a run of a flow", errors=(NotFound,)),
)  # fmt: skip
