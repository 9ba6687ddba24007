"""The dialects of the API: how each renders a failure and how it reads a body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from gateway.errors import Failure
from gateway.http import JSON


class BodyRule(Struct, frozen=True):
    """How a body is read.

    Attributes:
        lenient: Docker agent's rules: unknown fields ignored, names matched without regard to case, only
            the first JSON value read, ``null`` for a field means its default. Otherwise the body must fit
            the type exactly.
        typed: A non-empty body must come as ``application/json``.
        required: An empty body is an error instead of "every field at its default".
    """

    lenient: bool
    typed: bool = True
    required: bool = False


class Dialect(Struct, frozen=True):
    """One API's conventions. ``render`` makes the JSON of an error body."""

    name: str
    render: Callable[[Failure], JSON]
    body_rule: BodyRule


def _docker_agent(failure: Failure) -> JSON:
    code = failure.fields.get("code")
    body: dict[str, Any] = {} if code is None else {"code": code}
    body["message"] = failure.message
    return body


_SQUAD_CODES = {
    "unauthorized": "UNAUTHORIZED",
    "denied": "FORBIDDEN",
    "invalid": "BAD_REQUEST",
    "rejected": "CONFLICT",
    "internal_error": "INTERNAL_ERROR",
}


def _squads(failure: Failure) -> JSON:
    code = _SQUAD_CODES.get(failure.code) or failure.code.upper()
    return {"error": {"code": code, "message": failure.message}}


def _api_tools(failure: Failure) -> JSON:
    body = _squads(failure)
    if failure.fields:
        body["error"]["details"] = dict(failure.fields)
    return body


def _openai(failure: Failure) -> JSON:
    kind = "server_error" if failure.status >= 500 else "invalid_request_error"
    if failure.status in (401, 403):
        kind = "authentication_error" if failure.status == 401 else "permission_error"
    elif failure.status == 429:
        kind = "rate_limit_error"
    return {
        "error": {
            "message": failure.message,
            "type": kind,
            "param": failure.fields.get("param"),
            "code": failure.fields.get("code") or failure.code,
        }
    }


DOCKER_AGENT = Dialect("docker-agent", _docker_agent, BodyRule(lenient=True))
SQUADS = Dialect("squads", _squads, BodyRule(lenient=False, required=True))
API_TOOLS = Dialect("api-tools", _api_tools, BodyRule(lenient=False, required=True))
OPENAI = Dialect("openai", _openai, BodyRule(lenient=False, required=True))

RUN_BODY = BodyRule(lenient=True, typed=False, required=True)
"""The run route's rule: the content type is not looked at, and there must be a body."""

_PREFIXES: Sequence[tuple[str, Dialect]] = (("/api/v1", SQUADS), ("/v1", OPENAI), ("/v3", API_TOOLS))


def dialect_of(path: str) -> Dialect:
    """Return the dialect in which to refuse a path that no row answers."""
    for prefix, dialect in _PREFIXES:
        if path == prefix or path.startswith(prefix + "/"):
            return dialect
    return DOCKER_AGENT
