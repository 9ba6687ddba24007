"""Who asks: the shared token, the master key, access keys, and the cookie that a login with one of them sets."""

from __future__ import annotations

import hmac
from typing import Protocol

from actors.auth.keys import Keys, digest_of
from actors.auth.logins import IDLE_SECONDS, Logins
from actors.auth.messages import SCOPES
from gateway.dialect import SQUADS, dialect_of
from gateway.errors import HttpFailure
from gateway.http import Principal, Request
from gateway.settings import Settings

COOKIE = "aigo_session"
LOCAL = Principal("local", SCOPES)
"""Everybody, where no credential is asked for."""


class Authenticator(Protocol):
    """Finds out who asks, from the head alone: it runs before the body is read."""

    async def authenticate(self, request: Request) -> Principal:
        """Return who asks.

        Raises:
            HttpFailure: 401, with the text the contract wants.
        """
        ...


class Credentials:
    """The usual authenticator.

    A credential is asked for when there is a token, when the settings require it, and on listeners that other machines
    can reach once there is a master key. Where none is asked for, none is looked at. It comes as ``X-API-Key``, as
    ``Authorization: Bearer`` or as the login's cookie; the first of these counts.

    Args:
        settings: Token, master key, and whether a credential is required.
        keys: The access keys; without them only token and master key are known.
    """

    def __init__(self, settings: Settings, keys: Keys | None = None) -> None:
        self._always = settings.require_auth or bool(settings.auth_token)
        self._network = bool(settings.master_key)
        self._shared = {
            digest_of(text): name
            for name, text in (("token", settings.auth_token), ("master", settings.master_key))
            if text
        }
        self._keys = keys
        self._logins = Logins()

    async def authenticate(self, request: Request) -> Principal:
        """See :class:`Authenticator`."""
        if not (self._always or (self._network and request.bind == "network")):
            return LOCAL
        squads = dialect_of(request.path) is SQUADS
        if given := request.headers.get("x-api-key", "").strip():
            return await self._holder(given, request)
        if header := request.headers.get("authorization", ""):
            if not header.startswith("Bearer "):
                raise unauthorized("invalid Authorization header format")
            return await self._holder(header[7:], request)
        if token := cookie(request):
            digest = self._logins.credential(token)
            principal = None if digest is None else await self._principal(digest)
            if principal is None:
                raise unauthorized("the login has ended")
            return Principal(principal.name, principal.scopes, by_cookie=True)
        raise unauthorized("a credential is required" if squads else "missing Authorization header")

    async def login(self, credential: str) -> str:
        """Begin a login and return the ``Set-Cookie`` value. Raises: HttpFailure, 401."""
        digest = digest_of(credential)
        if await self._principal(digest) is None:
            raise unauthorized("invalid API key")
        return _set_cookie(self._logins.open(digest), int(IDLE_SECONDS))

    def logout(self, request: Request) -> str:
        """End the login of a request, if it has one, and return the ``Set-Cookie`` value that drops the cookie."""
        if token := cookie(request):
            self._logins.close(token)
        return _set_cookie("", 0)

    async def _holder(self, given: str, request: Request) -> Principal:
        principal = await self._principal(digest_of(given))
        if principal is None:
            raise unauthorized("invalid API key" if dialect_of(request.path) is SQUADS else "invalid token")
        return principal

    async def _principal(self, digest: bytes) -> Principal | None:
        for shared, name in self._shared.items():
            if hmac.compare_digest(shared, digest):
                return Principal(name, SCOPES)
        key = None if self._keys is None else await self._keys.with_digest(digest)
        return None if key is None else Principal(key.id, key.grants)


def cookie(request: Request) -> str:
    """Return the login's token that a request carries, empty when it has none."""
    # HTTP/2 may send several Cookie fields, which are joined with a comma; the token has neither separator.
    for pair in request.headers.get("cookie", "").replace(",", ";").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == COOKIE:
            return value.strip('"')
    return ""


def _set_cookie(value: str, seconds: int) -> str:
    return f"{COOKIE}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}"


def unauthorized(message: str) -> HttpFailure:
    """Return the 401 with a text."""
    return HttpFailure(401, message, headers=(("WWW-Authenticate", "Bearer"),))
