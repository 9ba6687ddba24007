"""Rows of squad templates and of the registries they can be installed from (squads contract 2.12)."""

from __future__ import annotations

from actors.errors import Conflict, Denied, Invalid, Unavailable
from actors.runtime import Runtime
from actors.squad import requests as r
from gateway.http import JSON, Request
from gateway.route import Route, Scope
from gateway.routes.squad_rows import ONE, Success, row, squad_id

ALL = "/squad-templates"
TEMPLATE = ALL + "/{tpl_id}"
SOURCES = "/agent-registry/sources"
TAG = "Squad Templates"


async def _list(_: Request, runtime: Runtime) -> JSON:
    return await runtime.squad_store.templates.list()


async def _get(request: Request, runtime: Runtime) -> r.Template:
    return await runtime.squad_store.templates.get(request.path_params["tpl_id"])


async def _import(request: Request, runtime: Runtime) -> r.Template:
    return await runtime.squad_store.templates.add(request.body)


async def _delete(request: Request, runtime: Runtime) -> Success:
    await runtime.squad_store.templates.remove(request.path_params["tpl_id"])
    return Success()


async def _save(request: Request, runtime: Runtime) -> r.Template:
    return await runtime.squad_store.save_as_template(squad_id(request), request.body)


async def _install(request: Request, runtime: Runtime) -> r.InstalledTemplate:
    return await runtime.squad_store.registry.install(request.body)


async def _sources(_: Request, runtime: Runtime) -> JSON:
    return await runtime.squad_store.registry.sources()


async def _add_source(request: Request, runtime: Runtime) -> r.RegistrySource:
    return await runtime.squad_store.registry.add_source(request.body)


async def _remove_source(request: Request, runtime: Runtime) -> Success:
    await runtime.squad_store.registry.remove_source(request.path_params["source_id"])
    return Success()


ROUTES: tuple[Route, ...] = (
    row("GET", ALL, _list, "List the templates", list[r.Template], tag=TAG),
    row("GET", TEMPLATE, _get, "Read a template", r.Template, tag=TAG),
    row(
        "POST",
        ALL + "/import",
        _import,
        "Import a template",
        r.Template,
        body=dict[str, JSON],
        status=201,
        errors=(Invalid,),
        tag=TAG,
    ),
    row("GET", TEMPLATE + "/export", _get, "Export a template", r.Template, tag=TAG),
    row("DELETE", TEMPLATE, _delete, "Delete a template", Success, errors=(Denied,), tag=TAG),
    row(
        "POST",
        ONE + "/save-as-template",
        _save,
        "Make a template of a squad",
        r.Template,
        body=r.SaveAsTemplate,
        status=201,
        errors=(Invalid,),
        tag=TAG,
    ),
    row(
        "POST",
        "/squad-registry/install",
        _install,
        "Install a template",
        r.InstalledTemplate,
        body=r.InstallTemplate,
        status=201,
        errors=(Invalid, Conflict, Unavailable),
        tag=TAG,
    ),
    row("GET", SOURCES, _sources, "List the registries", list[r.RegistrySource], tag=TAG, documented=False),
    row(
        "POST",
        SOURCES,
        _add_source,
        "Add a registry",
        r.RegistrySource,
        body=r.AddSource,
        status=201,
        errors=(Invalid, Conflict),
        scope=Scope.ADMIN,
        tag=TAG,
        documented=False,
    ),
    row(
        "DELETE",
        SOURCES + "/{source_id}",
        _remove_source,
        "Remove a registry",
        Success,
        scope=Scope.ADMIN,
        tag=TAG,
        documented=False,
    ),
)
