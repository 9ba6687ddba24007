"""Who may ask, and from where: credentials, and the Host and Origin checks against hostile web pages."""

from __future__ import annotations

import hmac
import ipaddress
from typing import Protocol
from urllib.parse import urlsplit

from gateway.errors import HttpFailure
from gateway.http import Principal, Request

ALL_SCOPES = frozenset({"agent_read", "agent_write", "admin"})


class Authenticator(Protocol):
    """Finds out who asks, from the head alone: it runs before the body is read."""

    async def authenticate(self, request: Request) -> Principal:
        """Return who asks.

        Raises:
            HttpFailure: 401, with the text the contract wants.
        """
        ...


class Open:
    """No credentials: everybody who gets past the Host and Origin checks may do everything."""

    async def authenticate(self, request: Request) -> Principal:  # noqa: ARG002
        """Return the local principal."""
        return LOCAL


LOCAL = Principal("local", ALL_SCOPES)


class BearerToken:
    """One shared token that grants everything (sessions contract 1.1)."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def authenticate(self, request: Request) -> Principal:
        """Return the token's principal; the comparison takes the same time wherever a wrong token differs."""
        header = request.headers.get("authorization", "")
        if not header:
            raise unauthorized("missing Authorization header")
        if not header.startswith("Bearer "):
            raise unauthorized("invalid Authorization header format")
        if not hmac.compare_digest(header[7:].encode(), self._token):
            raise unauthorized("invalid token")
        return TOKEN_HOLDER


TOKEN_HOLDER = Principal("token", ALL_SCOPES)


def unauthorized(message: str) -> HttpFailure:
    """Return the 401 with a text."""
    return HttpFailure(401, message, headers=(("WWW-Authenticate", "Bearer"),))


def authenticator(token: str) -> Authenticator:
    """Return the authenticator for a token; an empty one opens the door."""
    return BearerToken(token) if token else Open()


class Guard:
    """Refuses requests a web page could have made the user's browser send.

    A page whose name was rebound to 127.0.0.1 is same-origin for the browser and sends its own name as
    ``Host``; a page elsewhere sends an ``Origin`` with everything that changes state and with every
    WebSocket.

    Args:
        hosts: Names accepted besides loopback ones. When there are any, listeners on other addresses check
        too.
        origins: Origins accepted besides the server's own.
    """

    def __init__(self, hosts: tuple[str, ...] = (), origins: tuple[str, ...] = ()) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._known: set[str] = set()

    def check(self, request: Request, *, changes: bool) -> None:
        """Let the request pass or refuse it.

        Args:
            request: Its head.
            changes: It changes state or opens a socket.

        Raises:
            HttpFailure: 403.
        """
        host = request.headers.get("host", "")
        if request.bind != "unix" and (request.bind == "loopback" or self._hosts) and not self._is_ours(host):
            raise HttpFailure(403, "host not allowed")
        if changes:
            origin = request.headers.get("origin")
            if origin is not None and not self._is_own_origin(origin.lower(), host.lower()):
                raise HttpFailure(403, "origin not allowed")

    def _is_ours(self, host: str) -> bool:
        if host in self._known:
            return True
        name = _host_name(host)
        if name is None or not (is_loopback(name) or name in self._hosts):
            return False
        if len(self._known) < 64:
            self._known.add(host)
        return True

    def _is_own_origin(self, origin: str, host: str) -> bool:
        if origin in self._origins:
            return True
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and bool(host) and parts.netloc == host


def _host_name(host: str) -> str | None:
    """Return the name in a ``Host`` value, ``None`` when it is not one."""
    try:
        parts = urlsplit(f"//{host}")
        parts.port  # noqa: B018 - raises for a port that is no number
    except ValueError:
        return None
    if parts.netloc != host or "@" in host or parts.path or parts.query or parts.fragment:
        return None
    return parts.hostname


def is_loopback(name: str) -> bool:
    """Say whether a lower-case host name or address can only mean this machine."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
