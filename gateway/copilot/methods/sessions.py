"""Methods of a session's life: create, resume, send, abort, leave, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actors.errors import ActorsError, Conflict, NotFound
from actors.ids import new_uuid
from actors.session import messages as m
from actors.session.overlay import LentAgent, Overlay
from gateway.copilot.door import Door, Method, text
from gateway.copilot.live import Attachment, Live
from gateway.copilot.prompt import prompt_of
from gateway.copilot.rpc import INTERNAL_ERROR, INVALID_PARAMS, Connection, RpcError
from gateway.copilot.shapes import as_list, as_object
from gateway.copilot.tools import declared

JSON = Any


def _object(params: Mapping[str, JSON], name: str) -> Mapping[str, JSON]:
    value = params.get(name)
    found = as_object(value)
    if value is not None and found is None:
        raise RpcError(INVALID_PARAMS, f"{name} must be an object")
    return found or {}


def _names(value: JSON, name: str) -> tuple[str, ...]:
    if value is None:
        return ()
    found = as_list(value)
    if found is None or not all(isinstance(each, str) for each in found):
        raise RpcError(INVALID_PARAMS, f"{name} must be a list of texts")
    return tuple(found)


def _agents(door: Door, params: Mapping[str, JSON]) -> tuple[LentAgent, ...]:
    agents: list[LentAgent] = []
    for given in as_list(params.get("customAgents")) or []:
        each = as_object(given)
        if each is None or not each.get("name"):
            raise RpcError(INVALID_PARAMS, "a custom agent has a name and a prompt")
        tools = each.get("tools")
        agents.append(
            LentAgent(
                name=str(each["name"]),
                instruction=str(each.get("prompt") or ""),
                description=str(each.get("description") or each.get("displayName") or ""),
                model=door.model_ref(str(each.get("model") or "")),
                tools=None if tools is None else _names(tools, "tools"),
                offered=each.get("infer") is not False,
            )
        )
    return tuple(agents)


def overlay_of(door: Door, params: Mapping[str, JSON]) -> Overlay:
    """Return what a program lends to a session's agents. Raises: RpcError."""
    system = _object(params, "systemMessage")
    infinite = _object(params, "infiniteSessions")
    available = params.get("availableTools")
    compaction: float | None = None
    if infinite.get("enabled") is False:
        compaction = 0.0
    elif isinstance(threshold := infinite.get("backgroundCompactionThreshold"), int | float):
        compaction = float(threshold)
    return Overlay(
        instruction=str(system.get("content") or ""),
        replaces=system.get("mode") == "replace",
        available=None if available is None else _names(available, "availableTools"),
        excluded=_names(params.get("excludedTools"), "excludedTools"),
        hidden=_names(_object(params, "defaultAgent").get("excludedTools"), "excludedTools"),
        agents=_agents(door, params),
        compaction=compaction,
    )


def _attach(door: Door, connection: Connection, live: Live, params: Mapping[str, JSON], after: int) -> None:
    attachment = Attachment(
        connection,
        after=after,
        streaming=params.get("streaming") is True,
        sub_streaming=params.get("includeSubAgentStreamingEvents") is not False,
        permission=params.get("requestPermission") is True,
        user_input=params.get("requestUserInput") is True,
        elicitation=params.get("requestElicitation") is True,
        hooks=params.get("hooks") is True,
        tools={tool.name: tool for tool in declared(params.get("tools"))},
    )
    autopilot = _object(params, "autopilot")
    if isinstance(most := autopilot.get("maxContinues"), int) and most >= 0:
        live.max_continues = most
    if autopilot.get("continuationEnabled") is False:
        live.max_continues = 0
    if params.get("model"):
        live.model = door.model_ref(text(params, "model"))
    live.attach(attachment, overlay_of(door, params))


def _opened(door: Door, live: Live, params: Mapping[str, JSON]) -> JSON:
    infinite = _object(params, "infiniteSessions").get("enabled") is not False
    place = door.files.place(live.id)
    return {
        "sessionId": live.id,
        "workspacePath": str(place) if infinite and place is not None else None,
        "capabilities": {"ui": {"elicitation": params.get("requestElicitation") is True}},
    }


async def create(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Create a session and attach the client to it."""
    session_id = text(params, "sessionId") or new_uuid()
    overlay_of(door, params)  # what is wrong with the request shows before anything exists
    declared(params.get("tools"))
    template = m.Template(
        title=text(params, "name"),
        working_dir=text(params, "workingDirectory"),
        attributes={"client": text(params, "clientName") or "copilot-sdk"},
    )
    try:
        view = await door.runtime.create(template, session_id=session_id)
    except Conflict as error:
        raise RpcError(INTERNAL_ERROR, f"Session already exists: {session_id}") from error
    live = door.live(session_id)
    _attach(door, connection, live, params, 0)
    await live.caught_up(view.seq)
    door.lifecycle("created", session_id)
    return _opened(door, live, params)


async def resume(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Attach the client to a stored session."""
    session_id = text(params, "sessionId", required=True)
    overlay_of(door, params)
    declared(params.get("tools"))
    try:
        view = await door.runtime.session(session_id).view()
    except NotFound as error:
        raise RpcError(INTERNAL_ERROR, f"Session not found: {session_id}") from error
    active = session_id in door.lives
    live = door.live(session_id)
    _attach(door, connection, live, params, view.seq)
    await live.caught_up(view.seq)
    if params.get("disableResume") is not True:
        await live.note(
            "session.resume",
            {
                "sessionWasActive": active,
                "selectedModel": live.model or None,
                "continuePendingWork": params.get("continuePendingWork") is True or None,
            },
        )
    return _opened(door, live, params)


async def send(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Queue a message, or start a run with it, and answer before the model is called."""
    live = door.attached(connection, params)
    steer = params.get("mode") == "immediate"
    if steer and params.get("responseFormat") is not None:
        raise RpcError(INVALID_PARAMS, "responseFormat cannot be used with an immediate message")
    for name in ("wait", "prepend"):
        if params.get(name):
            raise RpcError(INVALID_PARAMS, f"{name} is not supported by this server")
    content, parts = prompt_of(text(params, "prompt"), params.get("attachments"))
    return {"messageId": await say(door, live, content, parts, steer=steer, mode=text(params, "agentMode"))}


async def say(
    door: Door, live: Live, content: str, parts: tuple[JSON, ...] = (), *, steer: bool = False, mode: str = ""
) -> str:
    """Send a message to a session and return its id."""
    message_id = new_uuid()
    autopilot = (mode or live.mode) == "autopilot"
    live.driving = True
    await live.session.ref.ask(
        m.Send(
            source=door.source,
            message=m.UserInput(content, parts, message_id),
            steer=steer,
            model=live.model,
            max_continues=live.max_continues if autopilot else -1,
        )
    )
    return message_id


async def send_messages(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Send several messages, in order."""
    given = as_list(params.get("messages"))
    if given is None:
        raise RpcError(INVALID_PARAMS, "messages must be a list")
    ids: list[str] = []
    for each in given:
        body = as_object(each) or {}
        answer = await send(door, connection, {**body, "sessionId": params.get("sessionId")})
        ids.append(answer["messageId"])
    return {"messageIds": ids}


async def abort(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Cancel the run going on and drop what waits; a success when idle, too."""
    live = door.attached(connection, params)
    await live.session.ref.ask(m.ClearQueue())
    await live.session.cancel(text(params, "reason") or "user_initiated")
    return {"success": True}


async def detach(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Let a client go; the session stays."""
    live = door.lives.get(text(params, "sessionId", required=True))
    if live is not None:
        live.detach(connection)
        await door.files.settled()
    return {"success": True}


async def delete(door: Door, _connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Delete a session for good."""
    session_id = text(params, "sessionId", required=True)
    try:
        await door.runtime.require_session(session_id)
        await door.runtime.session(session_id).delete()
    except ActorsError as error:
        return {"success": False, "error": f"Session not found: {error.message}"}
    door.forget(session_id)
    await door.files.settled()
    door.lifecycle("deleted", session_id)
    return {"success": True}


METHODS = (
    Method("session.create", create),
    Method("session.resume", resume),
    Method("session.send", send),
    Method("session.sendMessages", send_messages),
    Method("session.abort", abort),
    Method("session.detach", detach),
    Method("session.destroy", detach),
    Method("session.delete", delete),
)
