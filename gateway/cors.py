"""Cross-origin access for web pages an operator has named: preflights answered, their requests admitted and marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from gateway.endpoint import Endpoint, ReadBody
from gateway.http import Headers, Request, Response, StreamReply
from gateway.route import Table
from gateway.settings import Settings

ANY = "*"
_METHODS = "GET, POST, PUT, PATCH, DELETE, OPTIONS"
_MAX_AGE = "600"


class CorsEndpoint(Endpoint):
    """An endpoint that pages of other origins may call.

    Args:
        table: See :class:`Endpoint`.
        runtime: See :class:`Endpoint`.
        settings: See :class:`Endpoint`.
        origins: The origins, or ``*`` for all.
    """

    def __init__(self, table: Table, runtime: Any, settings: Settings, origins: Sequence[str]) -> None:
        super().__init__(table, runtime, settings)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    async def handle(self, request: Request, length: int, read_body: ReadBody) -> Response | StreamReply:
        """Answer one request; see :meth:`Endpoint.handle`."""
        origin = request.headers.get("origin", "")
        if not origin or not self._origins & {ANY, origin.lower()}:
            return await super().handle(request, length, read_body)
        allowed: Headers = (("Access-Control-Allow-Origin", origin), ("Vary", "Origin"))
        if request.method == "OPTIONS" and "access-control-request-method" in request.headers:
            wanted = request.headers.get("access-control-request-headers", "")
            return Response(
                204,
                b"",
                (
                    *allowed,
                    ("Access-Control-Allow-Methods", _METHODS),
                    ("Access-Control-Allow-Headers", wanted or "Authorization, Content-Type"),
                    ("Access-Control-Max-Age", _MAX_AGE),
                ),
            )
        # The operator vouches for this origin; the guard against foreign pages need not see it.
        request.headers = {name: value for name, value in request.headers.items() if name != "origin"}
        answer = await super().handle(request, length, read_body)
        return structs.replace(answer, headers=(*answer.headers, *allowed))
