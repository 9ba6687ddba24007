"""Rows of the API tools: the resource under both of its names, attachments, call history and flows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from actors.apitools import edit
from actors.apitools.messages import CallRecord, Page, StoredTool
from actors.apitools.service import ToolInUse
from actors.errors import Conflict, Invalid, NotFound, Unavailable
from actors.runtime import Runtime
from gateway.dialect import API_TOOLS
from gateway.http import JSON, Reply, Request
from gateway.route import Method, Route, Scope, route

TAG = "API tools"
BASES = ("/api/v1/api-tools", "/v3/tools")
Body = dict[str, Any]


class ListParams(Struct, frozen=True):
    """Of the listing."""

    limit: int = 50
    cursor: str = ""
    sort_order: Literal["asc", "desc"] = "desc"
    q: str = ""


class CallParams(Struct, frozen=True):
    """Of a call history."""

    id: str
    limit: int = 50
    cursor: str = ""


class TestBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A test run."""

    __test__ = False
    arguments: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    variables: Mapping[str, JSON] = field(default_factory=dict[str, JSON])


class ImportBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What to make a draft of: exactly one of ``curl`` and ``openapi`` (an object, or JSON or YAML text)."""

    curl: str = ""
    openapi: JSON = None
    operation_id: str = ""
    base_url: str = ""


class AttachBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The tools an agent or session has from its next run on; replaces the whole list."""

    tool_ids: list[str]


async def _create(request: Request, runtime: Runtime) -> Reply:
    return Reply(edit.rendered(await runtime.api_tools.create(request.body)), 201)


async def _list(request: Request, runtime: Runtime) -> Reply:
    given: ListParams = request.params
    page = await runtime.api_tools.page(
        limit=given.limit, cursor=given.cursor, descending=given.sort_order == "desc", search=given.q
    )
    return Reply(_page(page, edit.rendered))


async def _get(request: Request, runtime: Runtime) -> Reply:
    return Reply(edit.rendered(await runtime.api_tools.get(request.path_params["id"])))


async def _patch(request: Request, runtime: Runtime) -> Reply:
    return Reply(edit.rendered(await runtime.api_tools.patch(request.path_params["id"], request.body)))


async def _delete(request: Request, runtime: Runtime) -> Reply:
    await runtime.api_tools.delete(request.path_params["id"])
    return Reply(b"", 204)


async def _test(request: Request, runtime: Runtime) -> Reply:
    given: TestBody = request.body
    done = await runtime.api_tools.try_out(request.path_params["id"], given.arguments, given.variables)
    record = call_record(done.record)
    kept = ("state", "request", "response", "error_kind", "error_message", "duration_ms")
    return Reply({"model_text": done.text, **{name: record[name] for name in kept if name in record}})


async def _import(request: Request, runtime: Runtime) -> Reply:
    given: ImportBody = request.body
    draft = runtime.api_tools.draft(
        curl=given.curl, openapi=given.openapi, operation_id=given.operation_id, base=given.base_url
    )
    return Reply({"drafts": draft if isinstance(draft, list) else [draft]})


async def _calls_of_tool(request: Request, runtime: Runtime) -> Reply:
    given: CallParams = request.params
    await runtime.api_tools.get(given.id)
    page = await runtime.api_tools.history.of_tool(given.id, limit=_limit(given.limit), cursor=given.cursor)
    return Reply(_page(page, call_record))


async def _calls_of_session(request: Request, runtime: Runtime) -> Reply:
    given: CallParams = request.params
    await runtime.require_session(given.id)
    page = await runtime.api_tools.history.of_session(
        given.id, limit=_limit(given.limit), cursor=given.cursor
    )
    return Reply(_page(page, call_record))


async def _owner(request: Request, runtime: Runtime) -> str:
    """Return whom an attachment row is about. Raises: NotFound when there is no such agent or session."""
    names = request.path_params
    if "session_id" in names:
        await runtime.require_session(names["session_id"])
        return f"session/{names['session_id']}"
    source = await runtime.agents.only(names["id"])
    if "agent_name" not in names:
        return f"agent/{source}"
    if names["agent_name"] not in await runtime.agents.names(source):
        raise NotFound(f"agent not found: {names['agent_name']}")
    return f"agent/{source}/{names['agent_name']}"


async def _attach(request: Request, runtime: Runtime) -> Reply:
    given: AttachBody = request.body
    done = await runtime.api_tools.attach(await _owner(request, runtime), given.tool_ids)
    return Reply({"tool_ids": list(done.tool_ids)})


async def _attached(request: Request, runtime: Runtime) -> Reply:
    found = await runtime.api_tools.attached(await _owner(request, runtime))
    return Reply({"tool_ids": list(found.tool_ids)})


def _limit(limit: int) -> int:
    if not 1 <= limit <= 100:
        raise Invalid("limit: must be from 1 to 100", field="limit")
    return limit


def _page(page: Page, render: Callable[[Any], JSON]) -> JSON:
    return {
        "items": [render(item) for item in page.items],
        "total_count": page.total,
        "next_cursor": page.next_cursor or None,
    }


def call_record(record: CallRecord) -> dict[str, Any]:
    """Return a call as clients see it."""
    body: dict[str, Any] = msgspec.to_builtins(record)
    body.pop("owner", None)
    return {**body, "response_mode": record.response_mode, "delivered_to_model": record.delivered_to_model}


Handler = Callable[[Request, Any], Awaitable[Reply]]


def _rows() -> list[Route]:
    rows: list[Route] = []

    def add(method: Method, path: str, scope: Scope, handler: Handler, summary: str, **options: Any) -> None:
        options = {"dialect": API_TOOLS, "tag": TAG, **options}
        rows.append(route(method, path, scope, handler, summary=summary, **options))

    for base in BASES:
        first = base == BASES[0]
        add(
            "POST", base, Scope.WRITE, _create, "Create an API tool", body=Body, status=201,
            reply=StoredTool, errors=(Invalid,), documented=first,
        )  # fmt: skip
        add("GET", base, Scope.READ, _list, "List the API tools", params=ListParams, documented=first)
        add(
            "POST", f"{base}/import", Scope.READ, _import, "Draft tools from curl or OpenAPI",
            body=ImportBody, body_limit=10_000_000, errors=(Invalid,), documented=first,
        )  # fmt: skip
        one = f"{base}/{{id}}"
        add("GET", one, Scope.READ, _get, "An API tool", errors=(NotFound,), documented=first)
        add(
            "PATCH", one, Scope.WRITE, _patch, "Change an API tool", body=Body,
            errors=(NotFound, Conflict), documented=first,
        )  # fmt: skip
        add(
            "DELETE", one, Scope.WRITE, _delete, "Delete an API tool", status=204,
            errors=(NotFound, ToolInUse), documented=first,
        )  # fmt: skip
        add(
            "POST", f"{one}/test", Scope.WRITE, _test, "Call an API tool once, for real", body=TestBody,
            errors=(NotFound, Unavailable), documented=first,
        )  # fmt: skip
        add(
            "GET", f"{one}/calls", Scope.READ, _calls_of_tool, "A tool's calls", params=CallParams,
            errors=(NotFound,), documented=first,
        )  # fmt: skip
    for path in ("agents/{id}", "agents/{id}/{agent_name}", "sessions/{session_id}"):
        whole = f"{BASES[0]}/attachments/{path}"
        add("GET", whole, Scope.READ, _attached, "The API tools attached", errors=(NotFound,))
        add(
            "PUT",
            whole,
            Scope.WRITE,
            _attach,
            "Attach API tools",
            body=AttachBody,
            errors=(NotFound, Invalid),
        )
    for index, path in enumerate(("/api/sessions/{id}/tool-calls", "/v3/sessions/{id}/tool-calls")):
        add(
            "GET", path, Scope.READ, _calls_of_session, "A session's API tool calls", params=CallParams,
            errors=(NotFound,), documented=not index,
        )  # fmt: skip
    return rows


ROUTES: tuple[Route, ...] = tuple(_rows())
