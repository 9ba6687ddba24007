"""Rows of the sessions API that read and change stored sessions (sessions contract 1.4 to 1.6)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import trio
from msgspec import Struct

from actors.config.duration import parse_duration
from actors.errors import ActorsError, Invalid, NotFound
from actors.models.provider import Usage
from actors.runtime import Runtime
from actors.session import messages as m
from gateway.dialects import docker_sessions as render
from gateway.dialects.docker_agent import events_wire
from gateway.dialects.docker_parts import timestamp
from gateway.errors import HttpFailure
from gateway.http import JSON, Answer, Reply, Request
from gateway.route import OpenFollower, Route, Scope, Stream, query, route
from gateway.sse import open_events, resume_point

TAG = "Sessions"
MAX_WAIT = 300.0
DELETE_WAIT = 10.0


class RulesBody(Struct):
    """``permissions`` of a session."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def neutral(self) -> m.PermissionRules:
        """Return the rules as the runtime keeps them."""
        return m.PermissionRules(self.allow, self.ask, self.deny)


class CreateBody(Struct):
    """``POST /api/sessions``."""

    title: str = ""
    working_dir: str = ""
    tools_approved: bool = False
    safety_policy: str = ""
    permissions: RulesBody | None = None
    max_iterations: int = 0
    max_consecutive_tool_calls: int = 0
    max_old_tool_call_tokens: int = 0
    max_tool_result_tokens: int = 0
    agent_model_overrides: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    custom_models_used: tuple[str, ...] = ()
    attributes: dict[str, JSON] = msgspec.field(default_factory=dict[str, JSON])


class TitleBody(Struct):
    """``PATCH .../title``."""

    title: str = ""


class PermissionsBody(Struct):
    """``PATCH .../permissions``."""

    permissions: RulesBody | None = None


class SafetyBody(Struct):
    """``PATCH .../safety-policy``."""

    safety_policy: str = ""


class ForkBody(Struct):
    """``POST .../fork``."""

    user_message_index: int = 0


class TokensBody(Struct):
    """``PATCH .../tokens``."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None


class StarredBody(Struct):
    """``PATCH .../starred``."""

    starred: bool = False


class MessageBody(Struct):
    """``POST .../messages`` and ``PATCH .../messages/:msg_id``."""

    message: render.StoredMessage | None = None


class UsageBody(Struct):
    """``usage`` of a summary."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cached_write_tokens: int = 0
    reasoning_tokens: int = 0


class SummaryBody(Struct):
    """``POST .../summaries``; ``tokens`` is an older name of ``first_kept_entry``."""

    summary: str = ""
    first_kept_entry: int = 0
    tokens: int = 0
    cost: float = 0.0
    model: str = ""
    usage: UsageBody | None = None


class BatchBody(Struct):
    """``POST .../batch/delete`` and ``.../batch/export``."""

    session_ids: tuple[str, ...] = ()
    format: str = ""


_LEGACY: dict[str, m.SafetyPolicy] = {
    "": "",
    "strict": "strict",
    "balanced": "balanced",
    "autonomous": "autonomous",
    "unsafe": "autonomous",
    "safer": "balanced",
    "safe-auto": "balanced",
}


def session_id(request: Request) -> str:
    """Return the path's session id."""
    return request.path_params["id"]


def wait_of(request: Request, name: str, default: float) -> float:
    """Return a query's Go duration in seconds, at most five minutes. Raises: Invalid."""
    text = request.first(name)
    if not text:
        return default
    try:
        return min(max(parse_duration(text), 0.0), MAX_WAIT)
    except ValueError as error:
        raise Invalid(f"invalid {name}: {error}") from None


class Page(Struct):
    """The part of the session list that is asked for; without a limit, all of it as the original gives it."""

    limit: Annotated[int, msgspec.Meta(ge=0, le=10_000)] | None = None
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0


async def _list(request: Request, runtime: Runtime) -> JSON:
    page: Page = request.params
    rows = await runtime.list_sessions(-1 if page.limit is None else page.limit, page.offset)
    return [render.list_entry(row) for row in rows]


async def _create(request: Request, runtime: Runtime) -> Reply:
    body: CreateBody = request.body
    policy = _LEGACY.get(body.safety_policy, "strict") if body.safety_policy else ""
    template = m.Template(
        title=body.title.strip(),
        working_dir=body.working_dir,
        safety_policy=policy or ("autonomous" if body.tools_approved else ""),
        permissions=None if body.permissions is None else body.permissions.neutral(),
        max_iterations=body.max_iterations,
        max_consecutive_tool_calls=body.max_consecutive_tool_calls,
        max_old_tool_call_tokens=body.max_old_tool_call_tokens,
        max_tool_result_tokens=body.max_tool_result_tokens,
        agent_model_overrides=body.agent_model_overrides,
        custom_models_used=body.custom_models_used,
        attributes=body.attributes,
    )
    return Reply(render.session_object(await runtime.create(template)))


async def _view(request: Request, runtime: Runtime) -> m.SessionView:
    return await runtime.session(session_id(request)).view()


async def _get(request: Request, runtime: Runtime) -> JSON:
    return render.session_response(await _view(request, runtime))


async def _snapshot(request: Request, runtime: Runtime) -> Reply:
    try:
        return Reply(render.snapshot(await _view(request, runtime)))
    except NotFound:
        raise NotFound("session not found: session not found", code="unknown_session") from None


async def _status(request: Request, runtime: Runtime) -> Reply:
    found = session_id(request)
    if request.first("wait"):
        with trio.move_on_after(wait_of(request, "wait", 0.0)) as scope:
            await runtime.bound.wait(found)
        if scope.cancelled_caught:
            raise HttpFailure(503, "session not ready within timeout")
    elif found not in runtime.bound:
        raise NotFound(f"session not found: session {found} not found")
    return Reply(render.status(await _view(request, runtime)))


async def _events(request: Request, runtime: Runtime) -> Answer:
    found = session_id(request)
    await runtime.require_session(found)
    after = resume_point(request) or 0

    def follower() -> Any:
        return runtime.follow(found, after)

    opener: OpenFollower = follower
    return open_events(opener, events_wire(found))


async def _delete(request: Request, runtime: Runtime) -> Reply:
    seconds = wait_of(request, "timeout", DELETE_WAIT)
    session = runtime.session(session_id(request))
    await session.delete()
    if request.first("wait") == "true":
        with trio.move_on_after(seconds) as scope:
            await session.ref.wait_terminated()
        if scope.cancelled_caught:
            return Reply({"message": "session deleted, stop still in progress"}, 202)
    return Reply({"message": "session deleted"})


async def _title(request: Request, runtime: Runtime) -> Reply:
    session = runtime.session(session_id(request))
    await session.set_title(request.body.title)
    return Reply({"id": session.id, "title": request.body.title})


async def _permissions(request: Request, runtime: Runtime) -> Reply:
    given: RulesBody | None = request.body.permissions
    rules = None if given is None else given.neutral()
    await runtime.session(session_id(request)).ref.ask(m.SetPermissions(permissions=rules))
    return Reply({"message": "session permissions updated"})


async def _safety(request: Request, runtime: Runtime) -> Reply:
    policy = _LEGACY.get(request.body.safety_policy)
    if policy is None:
        raise Invalid(f'invalid safety_policy: "{request.body.safety_policy}"')
    await runtime.session(session_id(request)).set_safety(policy)
    return Reply({"message": "session safety policy updated"})


async def _toggle(request: Request, runtime: Runtime) -> Reply:
    await runtime.session(session_id(request)).ref.ask(m.ToggleYolo())
    return Reply(None)


async def _fork(request: Request, runtime: Runtime) -> Reply:
    return Reply(
        render.session_response(await runtime.fork(session_id(request), request.body.user_message_index))
    )


async def _tokens(request: Request, runtime: Runtime) -> Reply:
    body: TokensBody = request.body
    message = m.SetTokens(input_tokens=body.input_tokens, output_tokens=body.output_tokens, cost=body.cost)
    await runtime.session(session_id(request)).ref.ask(message)
    return Reply({"status": "updated"})


async def _starred(request: Request, runtime: Runtime) -> Reply:
    await runtime.session(session_id(request)).ref.ask(m.SetStarred(starred=request.body.starred))
    return Reply({"status": "updated"})


def _stored(request: Request) -> m.HistoryMessage:
    if request.body.message is None:
        raise HttpFailure(400, "message is required")
    stored: render.StoredMessage = request.body.message
    return stored.neutral()


async def _add_message(request: Request, runtime: Runtime) -> Reply:
    await runtime.session(session_id(request)).ref.ask(m.AppendMessage(message=_stored(request)))
    return Reply({"status": "added"}, 201)


async def _update_message(request: Request, runtime: Runtime) -> Reply:
    message = _stored(request)
    text = request.path_params["msg_id"]
    digits = text[: len(text) - len(text.lstrip("0123456789"))]
    if not digits:
        raise HttpFailure(500, f"failed to update message: invalid message ID: {text!r} is not a number")
    replace = m.ReplaceMessage(message_id=int(digits[:18]), message=message)
    await runtime.session(session_id(request)).ref.ask(replace)
    return Reply({"status": "updated"})


async def _summary(request: Request, runtime: Runtime) -> Reply:
    body: SummaryBody = request.body
    if not body.summary:
        raise Invalid("summary is required")
    if len(body.model) > 256:
        raise Invalid("model name exceeds 256 characters")
    if any(ord(character) < 32 or ord(character) == 127 for character in body.model):
        raise Invalid("model name must not contain control characters")
    counts = Usage() if body.usage is None else msgspec.convert(msgspec.to_builtins(body.usage), Usage)
    if any(count < 0 for count in msgspec.structs.astuple(counts)):
        raise Invalid("usage token counts must not be negative")
    summary = m.AppendSummary(
        summary=body.summary,
        first_kept=body.first_kept_entry or body.tokens,
        cost=body.cost,
        model=body.model,
        usage=counts,
    )
    await runtime.session(session_id(request)).ref.ask(summary)
    return Reply({"status": "added"}, 201)


async def _recovery(request: Request, runtime: Runtime) -> JSON:
    view = await _view(request, runtime)
    body = render.session_response(view)
    return {"messages": [], "permissions": None, "working_dir": "", **body}


async def _batch_delete(request: Request, runtime: Runtime) -> Reply:
    failed: list[str] = []
    for each in _batch(request):
        try:
            await runtime.session(each).delete()
        except ActorsError:
            failed.append(each)
    body: dict[str, JSON] = {
        "deleted_count": len(request.body.session_ids) - len(failed),
        "failed_count": len(failed),
    }
    return Reply(body | ({"failed_ids": failed} if failed else {}))


async def _batch_export(request: Request, runtime: Runtime) -> Reply:
    sessions: list[JSON] = []
    for each in _batch(request):
        try:
            view = await runtime.session(each).view()
        except NotFound:
            continue
        sessions.append({"messages": [], "working_dir": "", **render.session_response(view)})
    return Reply(
        {
            "export_format": "json",
            "timestamp": timestamp(runtime.now()),
            "sessions": sessions,
            "session_count": len(sessions),
        }
    )


def _batch(request: Request) -> tuple[str, ...]:
    ids: tuple[str, ...] = request.body.session_ids
    if not ids:
        raise Invalid("session_ids cannot be empty")
    return ids


BASE = "/api/sessions"
ONE = BASE + "/{id}"
ROUTES: tuple[Route, ...] = (
    query(
        BASE,
        Scope.READ,
        _list,
        summary="List sessions, the newest first",
        params=Page,
        tag=TAG,
        error_prefix="failed to get sessions: ",
    ),
    route("POST", BASE, Scope.WRITE, _create, summary="Create a session", body=CreateBody, tag=TAG),
    route(
        "POST",
        BASE + "/batch/delete",
        Scope.WRITE,
        _batch_delete,
        summary="Delete sessions",
        body=BatchBody,
        tag=TAG,
    ),
    route(
        "POST",
        BASE + "/batch/export",
        Scope.READ,
        _batch_export,
        summary="Export sessions",
        body=BatchBody,
        tag=TAG,
    ),
    query(ONE, Scope.READ, _get, summary="Read a session", tag=TAG, error_prefix="session not found: "),
    route("GET", ONE + "/status", Scope.READ, _status, summary="Run-time status", tag=TAG),
    route("GET", ONE + "/snapshot", Scope.READ, _snapshot, summary="Whole state in one answer", tag=TAG),
    route("GET", ONE + "/events", Scope.READ, _events, summary="Follow the events", reply=Stream(), tag=TAG),
    route(
        "DELETE",
        ONE,
        Scope.WRITE,
        _delete,
        summary="Delete",
        tag=TAG,
        error_prefix="failed to delete session: ",
    ),
    route(
        "PATCH",
        ONE + "/title",
        Scope.WRITE,
        _title,
        summary="Rename",
        body=TitleBody,
        tag=TAG,
        error_prefix="failed to update session title: ",
    ),
    route(
        "PATCH",
        ONE + "/permissions",
        Scope.WRITE,
        _permissions,
        summary="Replace the permission rules",
        body=PermissionsBody,
        tag=TAG,
        error_prefix="failed to update session permissions: ",
    ),
    route(
        "PATCH",
        ONE + "/safety-policy",
        Scope.WRITE,
        _safety,
        summary="Set the safety mode",
        body=SafetyBody,
        tag=TAG,
    ),
    route(
        "POST",
        ONE + "/tools/toggle",
        Scope.WRITE,
        _toggle,
        summary="Toggle automatic approval",
        tag=TAG,
        error_prefix="failed to toggle session tool approval mode: ",
    ),
    route(
        "POST",
        ONE + "/fork",
        Scope.WRITE,
        _fork,
        summary="Fork before a user message",
        body=ForkBody,
        tag=TAG,
    ),
    route(
        "PATCH", ONE + "/tokens", Scope.WRITE, _tokens, summary="Store token counts", body=TokensBody, tag=TAG
    ),
    route("PATCH", ONE + "/starred", Scope.WRITE, _starred, summary="Star", body=StarredBody, tag=TAG),
    route(
        "POST",
        ONE + "/messages",
        Scope.WRITE,
        _add_message,
        summary="Add a message without a run",
        body=MessageBody,
        status=201,
        tag=TAG,
    ),
    route(
        "PATCH",
        ONE + "/messages/{msg_id}",
        Scope.WRITE,
        _update_message,
        summary="Replace a message's body",
        body=MessageBody,
        tag=TAG,
    ),
    route(
        "POST",
        ONE + "/summaries",
        Scope.WRITE,
        _summary,
        summary="Store a summary",
        body=SummaryBody,
        status=201,
        tag=TAG,
    ),
    query(ONE + "/recovery", Scope.READ, _recovery, summary="Export a session", tag=TAG),
)
