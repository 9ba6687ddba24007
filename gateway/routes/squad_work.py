"""Rows of what squads work on and remember: task boards, memory banks and workspace files (squads contract 2.3-2.8)."""

from __future__ import annotations

from msgspec import Struct

from actors.errors import Conflict, Denied, Invalid
from actors.runtime import Runtime
from actors.squad import requests as r
from actors.squad.values import Task, TaskStatus
from gateway.http import JSON, Request
from gateway.route import Route
from gateway.routes.squad_rows import ONE, OPTIONAL, Success, row, squad_id

TASK = ONE + "/tasks/{tid}"
MEMORY = ONE + "/memory"


class TasksQuery(Struct, rename="camel"):
    """``GET .../tasks``."""

    status: TaskStatus | None = None
    assigned_to: str = ""
    plan_id: str = ""


class ForceQuery(Struct):
    """``DELETE .../tasks/{tid}``."""

    force: bool = False


class SearchQuery(Struct, rename="camel"):
    """``GET .../memory/search``; ``q`` is an alias of ``query``."""

    query: str = ""
    q: str = ""
    agent_id: str = ""
    section: str = ""
    case_sensitive: bool = False
    limit: int = 50


class PathQuery(Struct):
    """``GET .../workspace/files``."""

    path: str = ""


class FileQuery(Struct):
    """``GET .../workspace/files/content``."""

    path: str


class FindQuery(Struct):
    """``GET .../workspace/search``."""

    query: str
    limit: int = 100


def _task_id(request: Request) -> str:
    return request.path_params["tid"]


def _agent_id(request: Request) -> str:
    return request.path_params["aid"]


# --- tasks --------------------------------------------------------------------------------------------------------


async def _summaries(_: Request, runtime: Runtime) -> JSON:
    store = runtime.squad_store
    return [await store.tasks.summary(squad.id) for squad in await store.records.all()]


async def _tasks(request: Request, runtime: Runtime) -> JSON:
    query: TasksQuery = request.params
    return await runtime.squad_store.tasks.list(
        squad_id(request), status=query.status, assigned_to=query.assigned_to, plan_id=query.plan_id
    )


async def _create(request: Request, runtime: Runtime) -> Task:
    return await runtime.squad_store.tasks.create(squad_id(request), request.body)


async def _graph(request: Request, runtime: Runtime) -> r.TaskGraph:
    return await runtime.squad_store.tasks.graph(squad_id(request))


async def _task(request: Request, runtime: Runtime) -> Task:
    return await runtime.squad_store.tasks.get(squad_id(request), _task_id(request))


async def _patch(request: Request, runtime: Runtime) -> Task:
    return await runtime.squad_store.tasks.patch(squad_id(request), _task_id(request), request.body)


async def _delete(request: Request, runtime: Runtime) -> Success:
    await runtime.squad_store.tasks.delete(squad_id(request), _task_id(request), force=request.params.force)
    return Success()


async def _status(request: Request, runtime: Runtime) -> Task:
    return await runtime.squad_store.tasks.set_status(
        squad_id(request), _task_id(request), request.body.status
    )


async def _retry(request: Request, runtime: Runtime) -> Task:
    return await runtime.squad_store.tasks.retry(
        squad_id(request), _task_id(request), force=request.body.force
    )


# --- memory -------------------------------------------------------------------------------------------------------


async def _initialize(request: Request, runtime: Runtime) -> r.MemoryInitialized:
    return await runtime.squad_store.memory.initialize(squad_id(request))


async def _search(request: Request, runtime: Runtime) -> JSON:
    query: SearchQuery = request.params
    return await runtime.squad_store.memory.search(
        squad_id(request),
        query.query or query.q,
        agent_id=query.agent_id,
        section=query.section,
        case_sensitive=query.case_sensitive,
        limit=query.limit,
    )


async def _read(request: Request, runtime: Runtime) -> r.MemoryPage:
    return await runtime.squad_store.memory.read(squad_id(request), _agent_id(request))


async def _write(request: Request, runtime: Runtime) -> r.MemoryPage:
    return await runtime.squad_store.memory.write(squad_id(request), _agent_id(request), request.body)


async def _sections(request: Request, runtime: Runtime) -> JSON:
    return await runtime.squad_store.memory.sections(squad_id(request), _agent_id(request))


# --- files --------------------------------------------------------------------------------------------------------


async def _files(request: Request, runtime: Runtime) -> JSON:
    return await runtime.squad_store.files.list(squad_id(request), request.params.path)


async def _content(request: Request, runtime: Runtime) -> r.FileContent:
    return await runtime.squad_store.files.read(squad_id(request), request.params.path)


async def _find(request: Request, runtime: Runtime) -> JSON:
    return await runtime.squad_store.files.search(
        squad_id(request), request.params.query, request.params.limit
    )


ROUTES: tuple[Route, ...] = (
    row("GET", "/squads/tasks/summary", _summaries, "Count the tasks of all squads", list[r.TaskSummary]),
    row("GET", ONE + "/tasks", _tasks, "List the tasks", list[Task], params=TasksQuery),
    row(
        "POST",
        ONE + "/tasks",
        _create,
        "Create a task",
        Task,
        body=r.CreateTask,
        status=201,
        errors=(Invalid,),
    ),
    row("GET", ONE + "/tasks/graph", _graph, "The tasks in waves", r.TaskGraph),
    row("GET", TASK, _task, "Read a task", Task),
    row("PATCH", TASK, _patch, "Change a task", Task, body=r.TaskPatch, errors=(Invalid, Conflict)),
    row("DELETE", TASK, _delete, "Delete a task", Success, params=ForceQuery, errors=(Conflict,)),
    row(
        "PUT",
        TASK + "/status",
        _status,
        "Move a task to a state",
        Task,
        body=r.SetTaskStatus,
        errors=(Invalid, Conflict),
    ),
    row(
        "POST",
        TASK + "/retry",
        _retry,
        "Queue a task again",
        Task,
        body=r.RetryTask,
        body_rule=OPTIONAL,
        errors=(Conflict,),
    ),
    row(
        "POST",
        MEMORY + "/init",
        _initialize,
        "Give every agent a memory",
        r.MemoryInitialized,
        body=dict[str, JSON],
        body_rule=OPTIONAL,
        errors=(Conflict,),
    ),
    row("GET", MEMORY + "/search", _search, "Search the memories", list[r.MemoryHit], params=SearchQuery),
    row("GET", MEMORY + "/{aid}", _read, "Read an agent's memory", r.MemoryPage),
    row(
        "POST",
        MEMORY + "/{aid}",
        _write,
        "Add to an agent's memory",
        r.MemoryPage,
        body=r.WriteMemory,
        errors=(Invalid,),
    ),
    row("GET", MEMORY + "/{aid}/sections", _sections, "List a memory's sections", list[str]),
    row(
        "GET",
        ONE + "/workspace/files",
        _files,
        "List a directory",
        list[r.FileEntry],
        params=PathQuery,
        errors=(Invalid, Denied),
    ),
    row(
        "GET",
        ONE + "/workspace/files/content",
        _content,
        "Read a text file",
        r.FileContent,
        params=FileQuery,
        errors=(Invalid, Denied),
    ),
    row(
        "GET",
        ONE + "/workspace/search",
        _find,
        "Search the files",
        list[r.FileHit],
        params=FindQuery,
        errors=(Invalid,),
    ),
)
