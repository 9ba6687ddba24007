"""Methods that read or change how a session works: mode, model, name, queue, agents, plan, remarks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actors.ids import new_uuid
from actors.session import messages as m
from gateway.copilot.door import Door, Method, text
from gateway.copilot.rpc import INVALID_PARAMS, Connection, RpcError

JSON = Any
MODES = ("interactive", "plan", "autopilot")
_LEVELS = {"info": ("session.info", "infoType"), "warning": ("session.warning", "warningType")}


async def get_mode(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Return the mode of the session's next message."""
    return door.attached(connection, params).mode


async def set_mode(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Set the mode."""
    live = door.attached(connection, params)
    mode = text(params, "mode", required=True)
    if mode not in MODES:
        raise RpcError(INVALID_PARAMS, f"mode must be one of: {', '.join(MODES)}")
    previous, live.mode = live.mode, mode
    if previous != mode:
        await live.note("session.mode_changed", {"previousMode": previous, "newMode": mode})
        door.lifecycle("updated", live.id)
    return {"status": "ok", "modelChanged": False}


async def switch_model(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Use another model from the next message on."""
    live = door.attached(connection, params)
    name = text(params, "modelId", required=True)
    previous, live.model = live.model, door.model_ref(name)
    await live.note(
        "session.model_change", {"previousModel": previous or None, "newModel": live.model or name}
    )
    return {"modelId": live.model or name}


async def current_model(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Return the model that was chosen, if any."""
    live = door.attached(connection, params)
    return {"modelId": live.model} if live.model else {}


async def get_name(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Return the session's title."""
    view = await door.attached(connection, params).session.view()
    return {"name": view.title or None}


async def set_name(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Rename the session."""
    live = door.attached(connection, params)
    name = text(params, "name").strip()
    if not name:
        raise RpcError(INVALID_PARAMS, "name must not be blank")
    await live.session.set_title(name)


async def log(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Put a remark of the program on record, or only tell the attached clients."""
    live = door.attached(connection, params)
    level = text(params, "level") or "info"
    kind, field = _LEVELS.get(level, ("session.error", "errorType"))
    data = {
        field: text(params, "type") or "notification",
        "message": text(params, "message", required=True),
        "url": params.get("url"),
    }
    if params.get("ephemeral") is True:
        return {"eventId": live.tell(kind, data)["id"]}
    await live.note(kind, data)
    return {"eventId": live.events.last_id or new_uuid()}


async def pending_items(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """List what waits for its turn."""
    waiting = door.attached(connection, params).events.waiting
    return {
        "items": [
            {"id": key, "kind": "message", "displayText": shown, "agentMode": "interactive", "messageId": key}
            for key, (kind, shown) in waiting.items()
            if kind == "queued"
        ],
        "steeringMessages": [shown for kind, shown in waiting.values() if kind == "steering"],
    }


async def clear_queue(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Drop what waits."""
    await door.attached(connection, params).session.ref.ask(m.ClearQueue())


async def accept(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Accept options that change nothing here: they concern features of another vendor's account."""
    door.attached(connection, params)
    return {"success": True}


async def list_agents(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """List the agents that programs defined for the session."""
    live = door.attached(connection, params)
    return {
        "agents": [
            {"name": agent.name, "displayName": agent.name, "description": agent.description}
            for agent in live.base.agents
        ]
    }


async def processing(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Return whether a run is going on."""
    return {"processing": door.attached(connection, params).events.running}


async def activity(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Return whether there is something to abort."""
    running = door.attached(connection, params).events.running
    return {"abortable": running, "hasActiveWork": running}


METHODS = (
    Method("session.mode.get", get_mode),
    Method("session.mode.set", set_mode),
    Method("session.model.switchTo", switch_model),
    Method("session.model.getCurrent", current_model),
    Method("session.name.get", get_name),
    Method("session.name.set", set_name),
    Method("session.log", log),
    Method("session.queue.pendingItems", pending_items),
    Method("session.queue.clear", clear_queue),
    Method("session.options.update", accept),
    Method("session.eventLog.registerInterest", accept),
    Method("session.agent.list", list_agents),
    Method("session.metadata.isProcessing", processing),
    Method("session.metadata.activity", activity),
)
