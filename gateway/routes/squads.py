"""Rows of squads, their workspaces and agents, and of what they may spend and have spent (squads contract 2)."""

from __future__ import annotations

from msgspec import Struct

from actors.errors import Conflict, Invalid
from actors.runtime import Runtime
from actors.squad import requests as r
from actors.squad.values import Agent, BudgetConfig, BudgetUsage, Squad
from gateway.http import JSON, Request
from gateway.route import Route, Scope
from gateway.routes.squad_rows import ONE, OPTIONAL, Success, row, squad_id


class DeleteQuery(Struct, rename="camel"):
    """``DELETE /squads/{id}``."""

    keep_workspace: bool = True


class RestoreBody(Struct, rename="camel"):
    """``POST /squads/restore``."""

    workspace_path: str


class PathBody(Struct):
    """``POST .../workspace/validate`` and ``.../workspace/init``."""

    path: str


class CleanBody(Struct):
    """``POST .../workspace/clean``."""

    archive: bool = False


class PeriodQuery(Struct):
    """``GET .../analytics``."""

    period: r.Period = "all"


class Stopped(Struct, rename="camel"):
    """What an emergency stop answers."""

    squad_id: str
    cancelled_execution_ids: tuple[str, ...]


# --- squads -------------------------------------------------------------------------------------------------------


async def _list(_: Request, runtime: Runtime) -> JSON:
    return await runtime.squad_store.list()


async def _create(request: Request, runtime: Runtime) -> Squad:
    return await runtime.squad_store.create(request.body)


async def _get(request: Request, runtime: Runtime) -> Squad:
    return await runtime.squad_store.get(squad_id(request))


async def _update(request: Request, runtime: Runtime) -> Squad:
    return await runtime.squad_store.update(squad_id(request), request.body)


async def _delete(request: Request, runtime: Runtime) -> Success:
    await runtime.squad_store.delete(squad_id(request), keep_workspace=request.params.keep_workspace)
    return Success()


async def _restore(request: Request, runtime: Runtime) -> r.RestorePreview:
    return await runtime.squad_store.restore_preview(request.body.workspace_path)


# --- workspaces ---------------------------------------------------------------------------------------------------


async def _validate(request: Request, runtime: Runtime) -> r.PathVerdict:
    return await runtime.squad_store.validate_path(request.body.path)


async def _init(request: Request, runtime: Runtime) -> r.WorkspaceStatus:
    return await runtime.squad_store.init_workspace(squad_id(request), request.body.path)


async def _status(request: Request, runtime: Runtime) -> r.WorkspaceStatus:
    return await runtime.squad_store.workspace_status(squad_id(request))


async def _readiness(request: Request, runtime: Runtime) -> r.Readiness:
    return await runtime.squad_store.readiness(squad_id(request))


async def _clean(request: Request, runtime: Runtime) -> r.Cleaned:
    return await runtime.squad_store.clean_workspace(squad_id(request), archive=request.body.archive)


# --- agents -------------------------------------------------------------------------------------------------------


async def _agents(request: Request, runtime: Runtime) -> JSON:
    return await runtime.squad_store.agents.list(squad_id(request))


async def _agent(request: Request, runtime: Runtime) -> Agent:
    return await runtime.squad_store.agents.get(squad_id(request), request.path_params["aid"])


async def _add(request: Request, runtime: Runtime) -> Agent:
    return await runtime.squad_store.agents.add(squad_id(request), request.body)


async def _patch(request: Request, runtime: Runtime) -> Agent:
    return await runtime.squad_store.agents.patch(squad_id(request), request.path_params["aid"], request.body)


async def _remove(request: Request, runtime: Runtime) -> Success:
    await runtime.squad_store.agents.delete(squad_id(request), request.path_params["aid"])
    return Success()


async def _models(request: Request, runtime: Runtime) -> r.BulkUpdated:
    count = await runtime.squad_store.agents.update_models(squad_id(request), request.body)
    return r.BulkUpdated(updated_count=count)


# --- budget, analytics, emergency stop ----------------------------------------------------------------------------


async def _analytics(request: Request, runtime: Runtime) -> r.Analytics:
    return await runtime.squad_store.analytics(squad_id(request), request.params.period)


async def _budget(request: Request, runtime: Runtime) -> BudgetConfig:
    return await runtime.squad_store.budget_config(squad_id(request))


async def _set_budget(request: Request, runtime: Runtime) -> BudgetConfig:
    return await runtime.squad_store.set_budget(squad_id(request), request.body)


async def _usage(request: Request, runtime: Runtime) -> BudgetUsage:
    return await runtime.squads.usage(squad_id(request))


async def _stop(request: Request, runtime: Runtime) -> Stopped:
    found = squad_id(request)
    return Stopped(found, tuple(await runtime.squads.emergency_stop(found)))


BULK = ONE + "/agents/bulk-update-model"
ROUTES: tuple[Route, ...] = (
    row("GET", "/squads", _list, "List the squads", list[r.SquadSummary]),
    row(
        "POST",
        "/squads",
        _create,
        "Create a squad",
        Squad,
        body=r.CreateSquad,
        status=201,
        errors=(Invalid, Conflict),
    ),
    row("GET", ONE, _get, "Read a squad", Squad),
    row("PUT", ONE, _update, "Change a squad", Squad, body=r.UpdateSquad, errors=(Invalid, Conflict)),
    row("DELETE", ONE, _delete, "Delete a squad", Success, params=DeleteQuery, errors=(Conflict,)),
    row(
        "POST",
        "/squads/restore",
        _restore,
        "Preview a squad from its workspace",
        r.RestorePreview,
        body=RestoreBody,
        errors=(Invalid,),
    ),
    row(
        "POST",
        "/squads/workspace/validate",
        _validate,
        "Check a directory for use as a workspace",
        r.PathVerdict,
        body=PathBody,
        scope=Scope.READ,
    ),
    row(
        "POST",
        ONE + "/workspace/init",
        _init,
        "Lay out a workspace",
        r.WorkspaceStatus,
        body=PathBody,
        errors=(Invalid, Conflict),
    ),
    row("GET", ONE + "/workspace/status", _status, "Which parts of a workspace there are", r.WorkspaceStatus),
    row("GET", ONE + "/readiness", _readiness, "Whether every agent has a model", r.Readiness),
    row(
        "POST",
        ONE + "/workspace/clean",
        _clean,
        "Remove a workspace",
        r.Cleaned,
        body=CleanBody,
        errors=(Conflict,),
    ),
    row("GET", ONE + "/agents", _agents, "List the agents", list[Agent]),
    row(
        "POST",
        ONE + "/agents",
        _add,
        "Add an agent",
        Agent,
        body=r.AgentGiven,
        status=201,
        errors=(Invalid, Conflict),
    ),
    row("GET", ONE + "/agents/{aid}", _agent, "Read an agent", Agent, documented=False),
    row(
        "PATCH",
        ONE + "/agents/{aid}",
        _patch,
        "Change an agent",
        Agent,
        body=r.AgentPatch,
        errors=(Invalid,),
    ),
    row("DELETE", ONE + "/agents/{aid}", _remove, "Remove an agent", Success, errors=(Conflict,)),
    row(
        "POST", BULK, _models, "Set several agents' model", r.BulkUpdated, body=r.BulkModel, errors=(Invalid,)
    ),
    row(
        "PUT",
        BULK,
        _models,
        "Set several agents' model",
        r.BulkUpdated,
        body=r.BulkModel,
        errors=(Invalid,),
        documented=False,
    ),
    row("GET", ONE + "/analytics", _analytics, "What executions add up to", r.Analytics, params=PeriodQuery),
    row("GET", ONE + "/budget", _budget, "Read the limits", BudgetConfig),
    row(
        "PUT",
        ONE + "/budget",
        _set_budget,
        "Set the limits",
        BudgetConfig,
        body=BudgetConfig,
        errors=(Invalid,),
    ),
    row("GET", ONE + "/budget/usage", _usage, "What live executions have used", BudgetUsage),
    row(
        "POST",
        ONE + "/emergency-stop",
        _stop,
        "Cut off all work of a squad",
        Stopped,
        body=dict[str, JSON],
        body_rule=OPTIONAL,
    ),
)
