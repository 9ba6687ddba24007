"""The values of one declared HTTP call: what an author wrote, and the request and outcome made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeGuard, cast

from msgspec import Struct, field

from actors.errors import Invalid

JSON = Any
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
ResponseMode = Literal["wait", "fire_and_forget"]
AuthType = Literal["", "Basic", "Bearer"]
State = Literal["pending", "succeeded", "failed", "timed_out", "cancelled", "rejected"]

METHODS: tuple[Method, ...] = ("GET", "POST", "PUT", "PATCH", "DELETE")
DEFAULT_SECONDS = 30
REQUEST_LIMIT = 1024 * 1024
"""Bytes of a request's body."""
RESPONSE_LIMIT = 1024 * 1024
"""Decoded bytes of a response's body that are read."""
URL_LIMIT = 8192
"""Bytes of a finished URL."""


def is_array(value: object) -> TypeGuard[list[JSON]]:
    """Tell whether a value is a JSON array."""
    return isinstance(value, list)


def members(value: object) -> Mapping[str, JSON]:
    """Return a JSON object with its type; empty for anything else."""
    return cast("Mapping[str, JSON]", value) if isinstance(value, Mapping) else {}


class Place(Struct, frozen=True):
    """Where an argument goes when its method's rule does not say: ``name`` is what the server calls it."""

    where: Literal["query", "header", "body"]
    name: str


class ApiCall(Struct, frozen=True, kw_only=True):
    """One endpoint offered as a tool.

    Attributes:
        url: Absolute; may carry a query, ``{name}`` for an argument and ``{{name}}`` for a dynamic variable.
        headers: Values may hold ``{{name}}``.
        credentials: The secret of ``auth_type``; for Basic it is ``user:password``.
        seconds: For the whole exchange, to the last byte of the answer.
        parameters: JSON Schema of the arguments, of type object.
        places: Arguments that go elsewhere than the method's rule says.
        whole_body: Name of the argument that is the body itself; empty: the body is an object of arguments.
    """

    name: str
    url: str
    method: Method = "GET"
    description: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    auth_type: AuthType = ""
    credentials: str = ""
    seconds: float = DEFAULT_SECONDS
    parameters: Mapping[str, JSON] = field(default_factory=lambda: {"type": "object", "properties": {}})
    response_mode: ResponseMode = "wait"
    places: Mapping[str, Place] = field(default_factory=dict[str, Place])
    whole_body: str = ""


class BuiltRequest(Struct, frozen=True, kw_only=True):
    """A request ready to be sent. ``secrets`` are the texts that may not be shown to anyone."""

    method: Method
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None
    secrets: tuple[str, ...] = ()


class Outcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an exchange ended: with an answer (``status``), or with a ``kind`` of failure.

    Attributes:
        state: ``succeeded`` for 2xx only.
        headers: The answer's, with lower-cased names.
        cut: The answer was longer than what is read of one.
        kind: ``timeout``, ``dns``, ``connect``, ``tls``, ``reset``, ``blocked``, ``redirect``, ``too_large``,
            ``arguments``, ``busy``, ``cancelled`` or ``interrupted``.
        field: The argument at fault.
    """

    state: State
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    cut: bool = False
    kind: str = ""
    message: str = ""
    field: str = ""
    seconds: float = 0


class BadArguments(Invalid):
    """The arguments do not make a request; ``fields["field"]`` names the one at fault. Nothing was sent."""

    code = "bad_arguments"

    def __init__(self, message: str, at: str = "", kind: str = "arguments") -> None:
        super().__init__(message, field=at, kind=kind)
        self.at = at
        self.kind = kind
