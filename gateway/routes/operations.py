"""Rows about the server itself: liveness, readiness, figures, and its own description (sessions contract 1.2)."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version
from importlib.resources import files

import trio

from actors.errors import ActorsError, NotFound
from actors.runtime import Runtime
from gateway import metrics, openapi
from gateway.errors import HttpFailure
from gateway.http import Reply, Request
from gateway.route import Route, Scope, route
from gateway.routes.sessions import wait_of

TAG = "Operations"
STORE_SECONDS = 0.1
READY_WAIT = 30.0
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".png": "image/png"}


async def _ping(_: Request, __: Runtime) -> Reply:
    return Reply({"status": "ok"})


async def _any_session_ready(request: Request, runtime: Runtime) -> Reply:
    with trio.move_on_after(wait_of(request, "timeout", READY_WAIT)) as scope:
        await runtime.bound.wait()
    if scope.cancelled_caught:
        raise HttpFailure(503, "no sessions registered within timeout")
    return Reply({"status": "ready"})


async def _health(_: Request, __: Runtime) -> Reply:
    return Reply({"status": "ok", "version": ""})


async def _ready(_: Request, runtime: Runtime) -> Reply:
    active = 0
    try:
        with trio.move_on_after(STORE_SECONDS):
            active = await runtime.count_sessions()
    except ActorsError:
        return Reply(
            {
                "ready": False,
                "active_sessions": 0,
                "store_connected": False,
                "toolset_health": "unavailable",
                "latest_error": "store disconnected",
            },
            503,
        )
    return Reply({"ready": True, "active_sessions": active, "store_connected": True, "toolset_health": "ok"})


async def _metrics(request: Request, _: Runtime) -> Reply:
    return Reply(request.server.metrics.render(), content_type=metrics.CONTENT_TYPE)


async def _openapi(request: Request, _: Runtime) -> Reply:
    server = request.server
    settings = server.settings
    secured = bool(settings.auth_token or settings.master_key or settings.require_auth)
    return Reply(openapi.document(server.table.routes, version("greenroom"), secured=secured))


async def _docs(_: Request, __: Runtime) -> Reply:
    return Reply(_asset("index.html"), content_type="text/html; charset=utf-8")


async def _docs_asset(request: Request, _: Runtime) -> Reply:
    name = request.path_params["file"]
    suffix = name[name.rfind(".") :]
    if suffix not in _TYPES or "/" in name:
        raise NotFound("Not Found")
    return Reply(_asset(name), content_type=_TYPES[suffix], headers=(("Cache-Control", "max-age=3600"),))


@lru_cache(maxsize=8)
def _asset(name: str) -> bytes:
    found = files("gateway").joinpath("console", "swagger", name)
    if not found.is_file():
        raise NotFound("Not Found")
    return found.read_bytes()


ROUTES: tuple[Route, ...] = (
    route("GET", "/api/ping", Scope.READ, _ping, summary="Whether the server answers", tag=TAG),
    route(
        "GET", "/api/ready", Scope.READ, _any_session_ready, summary="Wait until any session has run", tag=TAG
    ),
    route("GET", "/health", Scope.PUBLIC, _health, summary="Whether the process lives", tag=TAG),
    route("GET", "/ready", Scope.PUBLIC, _ready, summary="Whether the store answers", tag=TAG),
    route("GET", "/metrics", Scope.READ, _metrics, summary="Figures for a scraper", tag=TAG),
    route("GET", "/api/openapi.json", Scope.READ, _openapi, summary="This API's description", tag=TAG),
    route("GET", "/api/docs", Scope.READ, _docs, summary="This API's description for people", tag=TAG),
    route(
        "GET",
        "/api/docs/{file}",
        Scope.READ,
        _docs_asset,
        summary="Files of the description for people",
        tag=TAG,
        documented=False,
    ),
)
