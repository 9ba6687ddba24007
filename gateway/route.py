"""The route table: one row per operation, and the makers for the three usual kinds of row.

The rows are data. The doors' URL rules, scope checks, decoding, the OpenAPI document and the per-row tests
are all derived from them; nothing here reads a socket.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Any, Literal
from urllib.parse import unquote

from msgspec import Struct

from actors.errors import ActorsError
from gateway.dialect import DOCKER_AGENT, BodyRule, Dialect
from gateway.http import Answer, Reply, Request, StreamReply
from gateway.sse import Follower, SseDialect, open_events, resume_point
from gateway.websocket import Socket

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Handler = Callable[[Request, Any], Awaitable[Answer]]
SocketRunner = Callable[[Socket], Awaitable[None]]
SocketHandler = Callable[[Request, Any], Awaitable[SocketRunner]]
OpenFollower = Callable[[], AbstractAsyncContextManager[Follower]]


class Scope(Enum):
    """What a credential must grant. There is no default: an open row says ``PUBLIC``."""

    PUBLIC = "public"
    READ = "agent_read"
    WRITE = "agent_write"
    ADMIN = "admin"


class Stream(Struct, frozen=True):
    """Stands in ``Route.reply`` for a stream: what its events look like, for the OpenAPI document."""

    event: Any = None
    content_type: str = "text/event-stream"


class Route(Struct, frozen=True, kw_only=True):
    """One operation.

    Attributes:
        path: Template of ``{name}`` segments; a last ``{name...}`` takes the rest of the path, slashes
        included.
        params: Struct for path and query together; text is converted to the fields' types. A field of a
            list type gets every value of a repeated query parameter, any other field the first.
        body: Struct (or other type) the body is decoded as by the dialect's rules.
        body_rule: Departure from the dialect's body rules; ``None`` keeps them.
        body_limit: Bytes; ``None`` for the server's ``max_request_size``.
        reply: Type of the answer's JSON, or a :class:`Stream`, for the OpenAPI document; ``None`` when it
        has none.
        status: Success code, for the document; a handler's ``Reply`` decides what is sent.
        errors: Expected failures beyond those every row can have, for the document.
        error_prefix: Put before the text of an expected failure, e.g. ``"failed to delete session: "``.
        documented: Whether the row is in the OpenAPI document; aliases are not.
        socket: Set on a WebSocket row instead of ``handler``: checks, may raise, and returns what runs the
            socket after the upgrade.
    """

    method: Method
    path: str
    scope: Scope
    summary: str
    handler: Handler | None = None
    socket: SocketHandler | None = None
    dialect: Dialect = DOCKER_AGENT
    params: type[Struct] | None = None
    body: Any = None
    body_rule: BodyRule | None = None
    body_limit: int | None = None
    reply: Any = None
    status: int = 200
    errors: tuple[type[ActorsError], ...] = ()
    error_prefix: str = ""
    tag: str = ""
    documented: bool = True

    @property
    def operation_id(self) -> str:
        """A unique name made of method and path, e.g. ``post_api_sessions_id_fork``."""
        words = self.path.replace("{", "").replace("}", "").replace("...", "").replace("-", "_").split("/")
        return "_".join([self.method.lower() if self.socket is None else "ws", *filter(None, words)])


def route(
    method: Method, path: str, scope: Scope, handler: Handler, *, summary: str, **options: Any
) -> Route:
    """Make a row for a hand-written handler. ``options`` are the other fields of :class:`Route`."""
    return Route(method=method, path=path, scope=scope, handler=handler, summary=summary, **options)


def command(
    method: Method,
    path: str,
    scope: Scope,
    message: Callable[[Request], Any],
    *,
    to: Callable[[Request, Any], Any],
    summary: str,
    render: Callable[[Any, Request], Any] | None = None,
    status: int = 200,
    **options: Any,
) -> Route:
    """Make a row that sends one message to one actor and answers with its reply.

    Args:
        method: As in :class:`Route`.
        path: As in :class:`Route`.
        scope: As in :class:`Route`.
        message: Makes the ``kernel.Request`` of a request (its ``body`` and ``params`` are decoded by then).
        to: Resolves the ref: ``to(request, runtime)``; again when the actor stopped in between.
        summary: As in :class:`Route`.
        render: Makes the answer's JSON of the actor's reply; without it the reply itself is sent.
        status: As in :class:`Route`.
        **options: The other fields of :class:`Route`.
    """

    async def handler(request: Request, runtime: Any) -> Reply:
        result = await to(request, runtime).ask(message(request))
        return Reply(result if render is None else render(result, request), status)

    return Route(
        method=method, path=path, scope=scope, handler=handler, summary=summary, status=status, **options
    )


def query(
    path: str,
    scope: Scope,
    read: Callable[[Request, Any], Awaitable[Any]],
    *,
    summary: str,
    **options: Any,
) -> Route:
    """Make a ``GET`` row that answers with what ``await read(request, runtime)`` returns."""

    async def handler(request: Request, runtime: Any) -> Reply:
        return Reply(await read(request, runtime))

    return Route(method="GET", path=path, scope=scope, handler=handler, summary=summary, **options)


def follow(
    path: str,
    scope: Scope,
    subscribe: Callable[[Request, Any, int | None], Awaitable[OpenFollower]],
    wire: SseDialect,
    *,
    summary: str,
    heartbeat: float | None = 15.0,
    event: Any = None,
    **options: Any,
) -> Route:
    """Make a ``GET`` row that follows a stream as server-sent events.

    Args:
        path: As in :class:`Route`.
        scope: As in :class:`Route`.
        subscribe: ``await subscribe(request, runtime, after)`` checks that the stream exists (``NotFound``
            before anything is sent) and returns what opens the follower. ``after`` is the client's resume
            point, ``None`` when it gave none.
        wire: How frames look.
        summary: As in :class:`Route`.
        heartbeat: Seconds between ``: ping`` comments; ``None`` for none.
        event: Type of an event, for the OpenAPI document.
        **options: The other fields of :class:`Route`.
    """

    async def handler(request: Request, runtime: Any) -> StreamReply:
        opener = await subscribe(request, runtime, resume_point(request))
        return open_events(opener, wire, heartbeat)

    return Route(
        method="GET",
        path=path,
        scope=scope,
        handler=handler,
        summary=summary,
        reply=Stream(event),
        **options,
    )


def socket(path: str, scope: Scope, handler: SocketHandler, *, summary: str, **options: Any) -> Route:
    """Make a WebSocket row: ``handler`` refuses by raising, before the upgrade, or returns the socket's runner."""
    return Route(method="GET", path=path, scope=scope, socket=handler, summary=summary, status=101, **options)


class Match(Struct, frozen=True):
    """A row and the values of its template's names."""

    route: Route
    path_params: Mapping[str, str]


class MethodNotAllowed(Exception):
    """The path is known, the method is not; ``allow`` lists what is."""

    def __init__(self, allow: Sequence[str]) -> None:
        super().__init__("Method Not Allowed")
        self.allow = tuple(allow)


class _Node:
    __slots__ = ("children", "parameter", "rest", "routes")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.rest: _Node | None = None
        self.routes: dict[str, tuple[Route, tuple[str, ...]]] = {}


class Table:
    """The rows, and which one answers a request.

    A literal segment wins over a ``{name}``, and that over a ``{name...}``. Segments are compared after one
    percent-decoding, so that ``%2F`` stays inside its segment.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._root = _Node()
        for row in self.routes:
            self._add(row)

    def _add(self, row: Route) -> None:
        if (row.handler is None) == (row.socket is None):
            raise ValueError(f"{row.method} {row.path}: a row has either a handler or a socket")
        node = self._root
        names: list[str] = []
        for segment in row.path.split("/")[1:]:
            if segment.startswith("{"):
                name = segment[1:-1]
                names.append(name.removesuffix("..."))
                if name.endswith("..."):
                    node.rest = node.rest or _Node()
                    node = node.rest
                else:
                    node.parameter = node.parameter or _Node()
                    node = node.parameter
            else:
                node = node.children.setdefault(segment, _Node())
        if row.method in node.routes:
            raise ValueError(f"{row.method} {row.path} is in the table twice")
        node.routes[row.method] = (row, tuple(names))

    def match(self, method: str, path: str) -> Match | None:
        """Return the row for a method and an undecoded path; ``None`` for an unknown path.

        ``HEAD`` is answered by the ``GET`` row.

        Raises:
            MethodNotAllowed: another method would be answered.
        """
        if not path.startswith("/"):
            return None
        segments = [unquote(segment) if "%" in segment else segment for segment in path.split("/")[1:]]
        found = _find(self._root, segments, 0)
        if found is None:
            return None
        node, values = found
        entry = node.routes.get("GET" if method == "HEAD" else method)
        if entry is None:
            allow = sorted([*node.routes, "HEAD"] if "GET" in node.routes else node.routes)
            raise MethodNotAllowed(allow)
        row, names = entry
        return Match(row, dict(zip(names, values, strict=True)))


def _find(node: _Node, segments: list[str], at: int) -> tuple[_Node, list[str]] | None:
    if at == len(segments):
        return (node, []) if node.routes else None
    segment = segments[at]
    child = node.children.get(segment)
    if child is not None and (found := _find(child, segments, at + 1)) is not None:
        return found
    if (
        node.parameter is not None
        and segment
        and (found := _find(node.parameter, segments, at + 1)) is not None
    ):
        found[1].insert(0, segment)
        return found
    if node.rest is not None:
        return node.rest, ["/".join(segments[at:])]
    return None
