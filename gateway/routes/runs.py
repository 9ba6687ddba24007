"""Rows of the sessions API that concern a run: start, cancel, approve, answer, steer (contract 1.7 to 1.10)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
import trio
from msgspec import Struct

from actors.errors import Conflict, Invalid, NotFound
from actors.runtime import Runtime
from actors.session import messages as m
from gateway.dialect import RUN_BODY
from gateway.dialects.docker_agent import run_wire
from gateway.dialects.docker_sessions import ContentPart
from gateway.errors import HttpFailure
from gateway.http import JSON, Answer, Reply, Request
from gateway.route import Route, Scope, Stream, query, route
from gateway.routes.sessions import ONE, TAG, session_id
from gateway.run_follower import RunFollower
from gateway.sse import open_events


class InputBody(Struct):
    """One message of a run, steer or follow-up request; ``role`` only says whether it may be a command."""

    role: str = ""
    content: str = ""
    multi_content: tuple[ContentPart, ...] = ()

    def neutral(self) -> m.UserInput:
        """Return the message as the runtime takes it. Raises: Invalid."""
        parts = tuple(part.neutral() for part in self.multi_content)
        return m.UserInput(self.content, parts, literal=self.role not in ("", "user"))


class RunBody(Struct):
    """``POST .../agent/:agent``."""

    messages: tuple[InputBody, ...] = ()
    model: str = ""


class MessagesBody(Struct):
    """``POST .../steer`` and ``.../followup``."""

    messages: tuple[InputBody, ...] = ()


class ResumeBody(Struct):
    """``POST .../resume``."""

    confirmation: str = ""
    reason: str = ""
    tool_name: str = ""
    approval_id: str = ""


class ElicitationBody(Struct):
    """``POST .../elicitation``."""

    action: str = ""
    content: dict[str, JSON] | None = None
    elicitation_id: str = ""


class CancelBody(Struct):
    """``POST .../cancel``."""

    run_id: str = ""
    reason: str = ""


async def _run(request: Request, runtime: Runtime) -> Answer:
    body: RunBody = request.body
    found = session_id(request)
    start = m.StartRun(
        source=request.path_params["agent"],
        agent=request.path_params.get("name", ""),
        messages=tuple(message.neutral() for message in body.messages),
        model=body.model,
        headers=_forwardable(request),
    )
    session = runtime.session(found)
    try:
        accepted = await session.start_run(start)
    except Invalid as error:
        # A bad agent file, an agent it lacks, or a bad model reference: the contract's 500, not a fault of the body.
        raise HttpFailure(500, f"failed to run session: {error.message}") from None
    keep = (
        request.headers.get("x-on-disconnect", "").lower() == "continue"
        or not runtime.settings.cancel_on_disconnect
    )

    @asynccontextmanager
    async def follower() -> AsyncGenerator[RunFollower]:
        try:
            async with runtime.follow(found, accepted.after) as opened:
                yield RunFollower(opened, accepted.run_id)
        except trio.Cancelled:
            if not keep:
                session.ref.tell(m.CancelRun(run_id=accepted.run_id, reason="the client left"))
            raise

    return open_events(follower, run_wire(found))


def _forwardable(request: Request) -> dict[str, str]:
    """Return the headers a toolset may forward: all but those that belong to the connection or to this server."""
    dropped = {
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "cookie",
        "host",
        "transfer-encoding",
    }
    return {name: value for name, value in request.headers.items() if name not in dropped}


async def _cancel(request: Request, runtime: Runtime) -> Reply:
    body: CancelBody = request.body
    message = m.CancelRun(run_id=body.run_id, reason=body.reason or "cancelled")
    await runtime.session(session_id(request)).ref.ask(message)
    return Reply({"message": "session cancelled"})


async def _resume(request: Request, runtime: Runtime) -> Reply:
    body: ResumeBody = request.body
    await runtime.session(session_id(request)).decide(
        body.confirmation, reason=body.reason, tool_name=body.tool_name, approval_id=body.approval_id
    )
    return Reply({"message": "session resumed"})


async def _elicitation(request: Request, runtime: Runtime) -> Reply:
    body: ElicitationBody = request.body
    try:
        await runtime.session(session_id(request)).answer(body.action, body.content, body.elicitation_id)
    except Conflict as error:
        raise HttpFailure(500, f"failed to resume elicitation: {error.message}") from None
    return Reply(None)


def _inputs(request: Request) -> tuple[m.UserInput, ...]:
    body: MessagesBody = request.body
    if not body.messages:
        raise Invalid("at least one message is required")
    return tuple(message.neutral() for message in body.messages)


async def _steer(request: Request, runtime: Runtime) -> Reply:
    messages = _inputs(request)
    try:
        await runtime.session(session_id(request)).steer(*messages)
    except NotFound:
        raise Conflict("failed to steer session: session not found or not running") from None
    return Reply({"status": "queued"}, 202)


async def _follow_up(request: Request, runtime: Runtime) -> Reply:
    messages = _inputs(request)
    key = request.headers.get("idempotency-key", "")
    found = session_id(request)
    session = runtime.session(found)
    attached = runtime.attached.get(found)
    try:
        if attached is not None:
            queued = await attached.follow_up(session.ref, messages, key)
        else:
            queued = await session.follow_up(*messages, key=key)
    except NotFound:
        raise Conflict("failed to enqueue follow-up: session not found or not running") from None
    if queued.duplicate:
        return Reply({"status": "duplicate", "duplicate": True}, 202)
    return Reply(
        {"status": "queued_streaming" if queued.streaming else "queued_idle", "duplicate": False}, 202
    )


async def _queue(request: Request, runtime: Runtime) -> JSON:
    found = session_id(request)
    if found not in runtime.bound:
        raise NotFound("session not found or not running")
    view = await runtime.session(found).view()
    return {
        "steer": {"depth": view.steer_depth, "capacity": m.STEER_CAPACITY},
        "followup": {"depth": view.followup_depth, "capacity": m.FOLLOW_UP_CAPACITY},
    }


async def _models(request: Request, runtime: Runtime) -> JSON:
    found = session_id(request)
    if found not in runtime.bound:
        raise NotFound("session not found or not running")
    choice = await runtime.session(found).ref.ask(m.GetModels())
    body: dict[str, JSON] = {"agent": choice.agent}
    if choice.current:
        body["current_model_ref"] = choice.current
    body["models"] = [msgspec.to_builtins(model) for model in choice.models]
    return body


async def _oauth_callback(request: Request, _: Runtime) -> Reply:
    state = request.first("state")
    if not state:
        raise Invalid("missing state query parameter")
    if not (request.first("code") or request.first("error")):
        raise Invalid("missing both code and error query parameters")
    # A flow waits only for a toolset that signs in to a remote server, and no toolset of this server does.
    raise NotFound("no pending OAuth flow for the given state")


_RUN = "Run an agent and stream its events"
_RUNS = tuple(
    route(
        "POST",
        f"{ONE}/agent/{rest}",
        Scope.WRITE,
        _run,
        summary=_RUN,
        body=RunBody,
        body_rule=RUN_BODY,
        reply=Stream(),
        errors=(Conflict, NotFound),
        tag=TAG,
    )
    for rest in ("{agent}", "{agent}/{name}")
)
ROUTES: tuple[Route, ...] = (
    *_RUNS,
    route("POST", ONE + "/cancel", Scope.WRITE, _cancel, summary="Cancel the run", body=CancelBody, tag=TAG),
    route(
        "POST",
        ONE + "/resume",
        Scope.WRITE,
        _resume,
        summary="Decide the pending tool call",
        body=ResumeBody,
        tag=TAG,
        error_prefix="failed to resume session: ",
    ),
    route(
        "POST",
        ONE + "/elicitation",
        Scope.WRITE,
        _elicitation,
        summary="Answer a question of a tool",
        body=ElicitationBody,
        tag=TAG,
        error_prefix="failed to resume elicitation: ",
    ),
    route(
        "POST",
        ONE + "/steer",
        Scope.WRITE,
        _steer,
        summary="Steer the run",
        body=MessagesBody,
        status=202,
        tag=TAG,
    ),
    route(
        "POST",
        ONE + "/followup",
        Scope.WRITE,
        _follow_up,
        summary="Queue a message for after the run",
        body=MessagesBody,
        status=202,
        tag=TAG,
    ),
    route(
        "POST",
        "/api/mcp-oauth/callback",
        Scope.WRITE,
        _oauth_callback,
        summary="Deliver an OAuth answer to the flow that waits for it",
        tag=TAG,
    ),
    query(ONE + "/queue", Scope.READ, _queue, summary="Depth of the queues", tag=TAG),
    query(ONE + "/models", Scope.READ, _models, summary="Models to choose from", tag=TAG),
)
