"""Rows of the sessions API that show the agents on offer (sessions contract 1.3)."""

from __future__ import annotations

import msgspec

from actors.errors import NotFound, Unavailable
from actors.runtime import Runtime
from gateway.http import JSON, Reply, Request
from gateway.route import Route, Scope, query, route

TAG = "Agents"


async def _list(_: Request, runtime: Runtime) -> JSON:
    return [msgspec.to_builtins(row) for row in await runtime.agents.listing()]


async def _document(request: Request, runtime: Runtime) -> JSON:
    return await runtime.agents.document(request.path_params["id"])


async def _count(request: Request, runtime: Runtime) -> Reply:
    count = await runtime.agents.count_tools(request.path_params["id"], request.path_params["agent_name"])
    return Reply({"available_tools": count})


ROUTES: tuple[Route, ...] = (
    query("/api/agents", Scope.READ, _list, summary="List the agents", tag=TAG),
    query(
        "/api/agents/{id}",
        Scope.READ,
        _document,
        summary="An agent's configuration",
        tag=TAG,
        errors=(NotFound,),
    ),
    route(
        "GET",
        "/api/agents/{id}/{agent_name}/tools/count",
        Scope.READ,
        _count,
        summary="How many tools an agent has",
        tag=TAG,
        errors=(NotFound, Unavailable),
        error_prefix="failed to get agent tool count: ",
    ),
)
