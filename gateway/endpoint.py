"""The one adapter between a door and a handler: checks, decoding, errors and measurement.

The order is the contract's: Host and Origin, body limit as claimed, credentials, hidden pages, path and method,
scope, body, decoding, handler. This is one of the four places that catch ``Exception``; nothing here catches
``Cancelled``.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio
from msgspec import structs

from actors.kernel.errors import ActorStopped
from gateway.auth import Guard
from gateway.closing import Closing
from gateway.credentials import Authenticator, Credentials
from gateway.decode import decode_body, decode_params
from gateway.dialect import Dialect, dialect_of
from gateway.errors import BodyTooLarge, ClientGone, Failure, HttpFailure, bug, expected
from gateway.hiding import Hiding
from gateway.http import JSON_TYPE, Answer, ByteSource, Reply, Request, Response, StreamReply
from gateway.metrics import Metrics, Statistics
from gateway.route import Match, MethodNotAllowed, Route, Scope, SocketRunner, Table
from gateway.settings import Settings

log = logging.getLogger("gateway")

ReadBody = Callable[[int], Awaitable[bytes]]
"""Reads the whole body, up to a limit. Raises ``BodyTooLarge``, ``BodyTimeout`` or ``ClientGone``."""

_encoder = msgspec.json.Encoder()
_UNMATCHED = "unmatched"
_UPGRADE = (("Upgrade", "websocket"), ("Connection", "Upgrade"))


class Endpoint:
    """Serves every row of a table.

    Args:
        table: The rows.
        runtime: Handed to the handlers; never looked into.
        settings: Limits, token, hosts and origins.
        metrics: Where requests are counted.
        auth: Replaces the check of the settings' credentials and the runtime's access keys.

    Attributes:
        auth: Who asks, and logins.
        hiding: The pages an administrator has hidden.
        closing: Where streams and sockets that a door serves by itself ask to be told that the server stops.
    """

    def __init__(
        self,
        table: Table,
        runtime: Any,
        settings: Settings | None = None,
        metrics: Metrics | None = None,
        auth: Authenticator | None = None,
    ) -> None:
        self.table = table
        self.runtime = runtime
        self.settings = settings or Settings()
        self.metrics = metrics or Metrics()
        self.closing = Closing()
        self.auth = auth or Credentials(self.settings, getattr(runtime, "keys", None))
        self.hiding = Hiding(self.settings.hidden_pages)
        for name, part in (("actors", "system"), ("journal", "journal")):
            statistics = getattr(getattr(runtime, part, None), "statistics", None)
            if statistics is not None:
                self.metrics.observe(f"greenroom_{name}", _figures(statistics))
        self._guard = Guard(self.settings.allowed_hosts, self.settings.allowed_origins)

    @property
    def largest_body(self) -> int:
        """The largest limit of any row, for a door that must have one before it knows the row."""
        return max([self.settings.body_limit, *(row.body_limit or 0 for row in self.table.routes)])

    def _limit(self, row: Route | None) -> int:
        limit = row.body_limit if row is not None else None
        return self.settings.body_limit if limit is None else limit

    async def handle(self, request: Request, length: int, read_body: ReadBody) -> Response | StreamReply:
        """Answer one request; failures are answers too.

        Args:
            request: Its head; the rest is filled in here.
            length: The ``Content-Length`` it claims, 0 when it claims none.
            read_body: Called when, and only when, the body is wanted.

        Raises:
            ClientGone: the client left in mid-body.
        """
        began = trio.current_time()
        row: Route | None = None
        request.server = self
        try:
            match = await self._admit(request, length)
            row = match.route
            request.path_params = match.path_params
            if row.handler is None:
                raise HttpFailure(426, headers=_UPGRADE)  # noqa: TRY301
            request.raw = await read_body(self._limit(row))
            self._decode(request, row)
            try:
                answer = await row.handler(request, self.runtime)
            except ActorStopped:
                # The actor ended, idle or by request, before it took the message: the address has a new one.
                answer = await row.handler(request, self.runtime)
            response = self._finish(answer)
        except ClientGone:
            raise
        except Exception as exc:  # noqa: BLE001 - the edge: every failure is an answer
            response = self._fail(exc, request, row)
        self.metrics.answered(
            row.path if row else _UNMATCHED, request.method, response.status, trio.current_time() - began
        )
        return response

    async def admit_socket(self, request: Request) -> SocketRunner | Response:
        """Return what runs the socket, or the refusal to send instead of an upgrade."""
        row: Route | None = None
        request.server = self
        try:
            match = await self._admit(request, 0, socket=True)
            row = match.route
            request.path_params = match.path_params
            if row.socket is None:
                raise HttpFailure(400, "not a WebSocket endpoint")  # noqa: TRY301
            if row.params is not None:
                request.params = decode_params(request, row.params)
            return await row.socket(request, self.runtime)
        except Exception as exc:  # noqa: BLE001 - the edge: every failure is an answer
            return self._fail(exc, request, row)

    async def _admit(self, request: Request, length: int, *, socket: bool = False) -> Match:
        """Check everything that the head alone can tell."""
        changes = socket or request.method not in ("GET", "HEAD", "OPTIONS")
        self._guard.check(request, changes=changes)
        match: Match | None = None
        refused: MethodNotAllowed | None = None
        try:
            match = self.table.match(request.method, request.path)
        except MethodNotAllowed as exc:
            refused = exc
        if length > self._limit(match.route if match else None):
            raise BodyTooLarge
        if match is None or match.route.scope is not Scope.PUBLIC:
            request.principal = await self.auth.authenticate(request)
            if changes and request.principal.by_cookie:
                self._guard.check_fetch(request)
        self.hiding.check_path(request.path)
        if refused is not None:
            raise HttpFailure(405, headers=(("Allow", ", ".join(refused.allow)),))
        if match is None:
            raise HttpFailure(404)
        scope = match.route.scope
        if scope is not Scope.PUBLIC and scope.value not in request.principal.scopes:
            raise HttpFailure(403, f"this needs the scope {scope.value}", "denied")
        return match

    def _decode(self, request: Request, row: Route) -> None:
        if row.params is not None:
            request.params = decode_params(request, row.params)
        if row.body is not None:
            request.body = decode_body(request, row.body, row.body_rule or row.dialect.body_rule)

    def _finish(self, answer: Answer) -> Response | StreamReply:
        if isinstance(answer, StreamReply):
            return answer
        return encode_reply(answer)

    def _fail(self, exc: Exception, request: Request, row: Route | None) -> Response:
        failed = expected(exc, row.error_prefix if row else "")
        if failed is None:
            failed = bug()
            self.report(exc, f"{request.method} {row.path if row else request.path}", failed.incident)
        return render_failure(failed, row.dialect if row else dialect_of(request.path))

    def report(self, exc: Exception, where: str, incident: str = "") -> str:
        """Log a bug with its traceback and return its incident id."""
        incident = incident or bug().incident
        log.error(
            "request failed: %s (incident %s)", where, incident, exc_info=exc, extra={"incident": incident}
        )
        return incident

    @asynccontextmanager
    async def open_stream(self, reply: StreamReply) -> AsyncGenerator[ByteSource]:
        """Open a stream's source and count it while it is open."""
        self.metrics.streams.inc()
        try:
            async with reply.open() as source:
                yield source
        finally:
            self.metrics.streams.dec()


def _figures(statistics: Callable[[], Any]) -> Statistics:
    return lambda: structs.asdict(statistics())


def encode_reply(reply: Reply) -> Response:
    """Return the reply with its body as bytes."""
    body = reply.body
    data = body if isinstance(body, bytes) else _encoder.encode(body) + b"\n"
    headers = reply.headers
    if data or reply.status not in (204, 304):
        headers = (("Content-Type", reply.content_type), *headers)
    return Response(reply.status, data, headers)


def render_failure(failed: Failure, dialect: Dialect) -> Response:
    """Return the response for a failure, in a dialect."""
    headers = (("Content-Type", JSON_TYPE), *failed.headers)
    if failed.incident:
        headers = (*headers, ("X-Incident-Id", failed.incident))
    return Response(failed.status, _encoder.encode(dialect.render(failed)) + b"\n", headers)
