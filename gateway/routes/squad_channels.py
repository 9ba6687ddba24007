"""Rows of the squads' live channels: SSE and WebSocket, of all squads and of one (squads contract 2.14)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

from msgspec import Struct

from actors.errors import Invalid, NotFound
from actors.runtime import Runtime
from gateway.dialect import SQUADS
from gateway.dialects.squad_events import Channel, ChannelSource, given_cursor, send_events, wanted_types
from gateway.http import JSON, Request, StreamReply
from gateway.route import Route, Scope, SocketRunner, Stream, route, socket
from gateway.sse import FAREWELL, HEADERS
from gateway.websocket import Socket

TAG = "Squads"
HEARTBEAT = 15.0
BASE = "/api/v1/squads"


class ChannelQuery(Struct, rename="camel"):
    """The query of a channel that can be resumed."""

    types: tuple[str, ...] = ()
    cursor: str = ""
    last_event_id: str = ""


class PlainQuery(Struct):
    """The query of a channel that cannot."""

    types: tuple[str, ...] = ()


async def _open(
    request: Request, runtime: Runtime, *, resumable: bool = True
) -> tuple[Channel, str, str | None]:
    """Check everything, and return the channel, the cursor it begins after and its squad."""
    bus = runtime.squads.bus
    types = wanted_types(request.params.types)
    cursor = given_cursor(request) if resumable else None
    squad_id = request.path_params.get("id")
    if squad_id is not None:
        await runtime.squad_store.squad(squad_id)
    # "From now on" is now, and not when the answer's head is on its way.
    start = cursor or f"{bus.boot}-{bus.last}"
    refused = partial(runtime.keys.was_revoked, request.principal.name)
    channel = Channel(bus.boot, types, squad_id, resumable=resumable, refused=refused)
    return channel, start, squad_id


async def _events(request: Request, runtime: Runtime, *, resumable: bool = True) -> StreamReply:
    channel, start, squad_id = await _open(request, runtime, resumable=resumable)

    @asynccontextmanager
    async def opened() -> AsyncGenerator[ChannelSource]:
        with runtime.squads.follow(squad_id, start) as follower:
            yield ChannelSource(follower, channel, HEARTBEAT)

    return StreamReply(opened, headers=HEADERS, farewell=FAREWELL)


async def _squad_events(request: Request, runtime: Runtime) -> StreamReply:
    return await _events(request, runtime, resumable=False)


async def _socket(request: Request, runtime: Runtime) -> SocketRunner:
    channel, start, squad_id = await _open(request, runtime)

    async def run(connection: Socket) -> None:
        with runtime.squads.follow(squad_id, start) as follower:
            await send_events(connection, follower, channel)

    return run


_STREAM = Stream(dict[str, JSON])
ROUTES: tuple[Route, ...] = (
    route(
        "GET",
        BASE + "/{id}/events",
        Scope.READ,
        _squad_events,
        summary="Follow a squad's events",
        params=PlainQuery,
        reply=_STREAM,
        dialect=SQUADS,
        errors=(Invalid, NotFound),
        tag=TAG,
    ),
    route(
        "GET",
        BASE + "/events",
        Scope.READ,
        _events,
        summary="Follow the events of all squads",
        params=ChannelQuery,
        reply=_STREAM,
        dialect=SQUADS,
        errors=(Invalid,),
        tag=TAG,
    ),
    socket(
        BASE + "/ws",
        Scope.READ,
        _socket,
        summary="Follow the events of all squads",
        params=ChannelQuery,
        dialect=SQUADS,
        tag=TAG,
    ),
    socket(
        BASE + "/{id}/ws",
        Scope.READ,
        _socket,
        summary="Follow a squad's events",
        params=ChannelQuery,
        dialect=SQUADS,
        tag=TAG,
    ),
)
