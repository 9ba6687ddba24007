"""Methods about the server itself: the handshake, its state, its models, its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actors.models.provider import ModelInfo
from gateway.copilot.door import PROTOCOL_VERSION, Door, Method
from gateway.copilot.events import iso
from gateway.copilot.rpc import Connection

JSON = Any


async def connect(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Let a client in."""
    door.admit(params.get("token"))
    connection.authenticated = True
    return {"ok": True, "protocolVersion": PROTOCOL_VERSION, "version": door.version, "taskKinds": ["agent"]}


async def ping(door: Door, _connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Answer that the server is there."""
    return {
        "message": f"pong: {params.get('message') or ''}",
        "timestamp": iso(door.runtime.now()),
        "protocolVersion": PROTOCOL_VERSION,
    }


async def status(door: Door, _connection: Connection, _params: Mapping[str, JSON]) -> JSON:
    """Return the versions."""
    return {"version": door.version, "protocolVersion": PROTOCOL_VERSION}


async def auth_status(_door: Door, _connection: Connection, _params: Mapping[str, JSON]) -> JSON:
    """Return that no account is needed: the server's own keys call the models."""
    return {
        "isAuthenticated": True,
        "authType": "env",
        "statusMessage": "models are called with the server's keys",
    }


async def models(door: Door, _connection: Connection, _params: Mapping[str, JSON]) -> JSON:
    """List the models that can be called."""
    return {"models": [_model(info) for info in door.runtime.models.available()]}


def _model(info: ModelInfo) -> dict[str, JSON]:
    limits: dict[str, JSON] = {}
    if info.context_limit:
        limits = {"max_context_window_tokens": info.context_limit, "max_prompt_tokens": info.context_limit}
    return {
        "id": info.ref,
        "name": info.name or info.model,
        "capabilities": {
            "supports": {"vision": "image" in info.input_modalities, "reasoningEffort": False},
            "limits": {"max_context_window_tokens": 0, **limits},
        },
    }


async def shutdown(door: Door, connection: Connection, _params: Mapping[str, JSON]) -> JSON:
    """End the server that the client started."""
    door.end_with(connection)


async def foreground(_door: Door, _connection: Connection, _params: Mapping[str, JSON]) -> JSON:
    """Return that there is no window with a session in it."""
    return {}


async def set_foreground(_door: Door, _connection: Connection, _params: Mapping[str, JSON]) -> JSON:
    """Refuse: there is no window."""
    return {"success": False, "error": "this server has no window"}


METHODS = (
    Method("connect", connect, open=True),
    Method("ping", ping),
    Method("status.get", status),
    Method("auth.getStatus", auth_status),
    Method("models.list", models),
    Method("runtime.shutdown", shutdown),
    Method("session.getForeground", foreground),
    Method("session.setForeground", set_foreground),
)
