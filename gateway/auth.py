"""From where may be asked: the Host, Origin and fetch checks against hostile web pages."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from gateway.errors import HttpFailure
from gateway.http import Request


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

    def check_fetch(self, request: Request) -> None:
        """Refuse what another page made the browser send along with our cookie.

        Called for requests known by a cookie that change state or open a socket, after :meth:`check`. A browser
        too old to say where a request comes from is held off by the cookie's ``SameSite``.

        Raises:
            HttpFailure: 403.
        """
        site = request.headers.get("sec-fetch-site", "same-origin")
        if "origin" not in request.headers and site not in ("same-origin", "none"):
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
