"""Makes the rows of the squads API, which differ in path, types and one call; nothing here knows a squad."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct

from actors.errors import ActorsError, NotFound
from actors.runtime import Runtime
from gateway.dialect import SQUADS, BodyRule
from gateway.http import Reply, Request
from gateway.route import Method, Route, Scope, route

T = TypeVar("T")
BASE = "/api/v1"
ONE = "/squads/{id}"
OPTIONAL = BodyRule(lenient=False, required=False)
"""An empty body stands for an empty object."""
Act = Callable[[Request, Runtime], Awaitable[Any]]
Limit = Annotated[int, Meta(ge=0, le=100_000)]


class Paging(Struct):
    """Which part of a list is wanted; no limit is all of it."""

    limit: Limit | None = None
    offset: Annotated[int, Meta(ge=0)] = 0

    def part(self, items: Sequence[T]) -> Sequence[T]:
        """Return the part of a list."""
        return items[self.offset : None if self.limit is None else self.offset + self.limit]


class Success(Struct):
    """What a deletion answers."""

    success: bool = True


def row(
    method: Method,
    path: str,
    act: Act,
    summary: str,
    reply: Any,
    *,
    errors: tuple[type[ActorsError], ...] = (),
    scope: Scope | None = None,
    status: int = 200,
    tag: str = "Squads",
    **options: Any,
) -> Route:
    """Make a row that answers with what ``act`` returns.

    Args:
        method: As in :class:`Route`.
        path: Below the API's prefix.
        act: Does it.
        summary: As in :class:`Route`.
        reply: Type of the answer.
        errors: What ``act`` may raise besides NotFound.
        scope: By default reading for GET and writing for everything else.
        status: Of the answer.
        tag: As in :class:`Route`.
        **options: The other fields of :class:`Route`.
    """

    async def handler(request: Request, runtime: Runtime) -> Reply:
        return Reply(await act(request, runtime), status)

    scope = scope or (Scope.READ if method == "GET" else Scope.WRITE)
    found = (*errors, NotFound) if "{" in path else errors
    return route(
        method,
        BASE + path,
        scope,
        handler,
        summary=summary,
        reply=reply,
        status=status,
        errors=found,
        tag=tag,
        dialect=SQUADS,
        **options,
    )


def squad_id(request: Request) -> str:
    """Return the path's squad id."""
    return request.path_params["id"]
