"""Sending a built request through the egress guard: every end is an :class:`Outcome`, none an exception."""

from __future__ import annotations

from actors.tools.egress import Egress, Response
from actors.tools.http_api.call import RESPONSE_LIMIT, BadArguments, BuiltRequest, Outcome, State
from actors.tools.tool import ToolError

MESSAGES = {
    "dns": "the host name could not be resolved",
    "connect": "the server could not be reached",
    "tls": "a secure connection could not be made",
    "reset": "the server broke off or did not answer in valid HTTP",
    "blocked": "requests to this address are not allowed by the operator of this server",
    "redirect": "the server redirected in a way that is not followed",
    "too_large": "the answer was too large",
    "timeout": "the server did not answer completely in time",
    "arguments": "the request cannot be made of these arguments",
}
"""What a model is told: never an address or a header of the inside."""


class Executor:
    """Makes requests.

    Args:
        egress: The guard every connection passes.
    """

    def __init__(self, egress: Egress) -> None:
        self._egress = egress

    def refusal(self, request: BuiltRequest) -> Outcome | None:
        """Return why a request may not be sent, as far as its URL alone tells; ``None`` when it may be tried."""
        try:
            self._egress.check(request.url)
        except ToolError:
            return Outcome(state="rejected", kind="blocked", message=MESSAGES["blocked"])
        return None

    async def send(self, request: BuiltRequest, seconds: float) -> Outcome:
        """Send and read the whole answer, at most 1 MiB of it, within ``seconds`` for everything together.

        Cancellation: the connection is closed.
        """
        try:
            response = await self._egress.request(
                request.method,
                request.url,
                seconds=seconds,
                headers=request.headers,
                body=request.body,
                limit=RESPONSE_LIMIT,
                cut=True,
                careful=True,
            )
        except ToolError as error:
            kind = str(error.fields.get("kind") or "connect")
            state: State = "timed_out" if kind == "timeout" else "failed"
            return Outcome(state=state, kind=kind, message=MESSAGES.get(kind, ""), seconds=seconds)
        return _outcome(response)


def _outcome(response: Response) -> Outcome:
    return Outcome(
        state="succeeded" if 200 <= response.status < 300 else "failed",
        status=response.status,
        headers=response.headers,
        body=response.body,
        cut=response.cut,
    )


def rejection(error: BadArguments) -> Outcome:
    """Return the outcome of arguments that make no request."""
    return Outcome(state="rejected", kind=error.kind, message=error.message, field=error.at)
