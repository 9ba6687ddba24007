"""Rows for access keys, and for the login that lets a browser carry one as a cookie (squads contract 5.1)."""

from __future__ import annotations

from msgspec import Struct

from actors.auth.messages import AccessKey, ScopeName
from actors.errors import Invalid, NotFound
from actors.runtime import Runtime
from actors.squad.values import timestamp
from gateway.credentials import Credentials
from gateway.dialect import SQUADS
from gateway.errors import HttpFailure
from gateway.http import Reply, Request
from gateway.route import Route, Scope, query, route

TAG = "Access keys"
BASE = "/api/v1/auth"


class IssueBody(Struct, forbid_unknown_fields=True):
    """``POST /auth/keys``."""

    name: str
    scopes: tuple[ScopeName, ...]


class LoginBody(Struct, rename="camel"):
    """``POST /auth/login``."""

    api_key: str


class KeyView(Struct, rename="camel"):
    """An access key as the API shows it."""

    id: str
    name: str
    scopes: tuple[ScopeName, ...]
    created_at: str


class IssuedView(KeyView):
    """A new access key with its text, which is shown this once."""

    key: str


class Success(Struct):
    """What is answered when there is nothing to show."""

    success: bool = True


async def _issue(request: Request, runtime: Runtime) -> Reply:
    body: IssueBody = request.body
    issued = await runtime.keys.issue(body.name, body.scopes)
    key = issued.key
    view = IssuedView(key.id, key.name, key.scopes, timestamp(key.created_at), issued.text)
    return Reply(view, 201, headers=(("Cache-Control", "no-store"),))


async def _list(_: Request, runtime: Runtime) -> list[KeyView]:
    return [_view(key) for key in await runtime.keys.list()]


async def _revoke(request: Request, runtime: Runtime) -> Reply:
    await runtime.keys.revoke(request.path_params["key_id"])
    return Reply(Success())


async def _login(request: Request, _: Runtime) -> Reply:
    cookie = await _credentials(request).login(request.body.api_key)
    return Reply(Success(), headers=(("Set-Cookie", cookie), ("Cache-Control", "no-store")))


async def _logout(request: Request, _: Runtime) -> Reply:
    cookie = _credentials(request).logout(request)
    return Reply(Success(), headers=(("Set-Cookie", cookie),))


def _credentials(request: Request) -> Credentials:
    auth = request.server.auth
    if not isinstance(auth, Credentials):
        raise HttpFailure(501, "this server keeps no logins", "unsupported")
    return auth


def _view(key: AccessKey) -> KeyView:
    return KeyView(key.id, key.name, key.scopes, timestamp(key.created_at))


ROUTES: tuple[Route, ...] = (
    route(
        "POST",
        BASE + "/keys",
        Scope.ADMIN,
        _issue,
        summary="Issue an access key",
        body=IssueBody,
        reply=IssuedView,
        status=201,
        dialect=SQUADS,
        errors=(Invalid,),
        tag=TAG,
    ),
    query(
        BASE + "/keys",
        Scope.ADMIN,
        _list,
        summary="List the access keys",
        reply=list[KeyView],
        dialect=SQUADS,
        tag=TAG,
    ),
    route(
        "DELETE",
        BASE + "/keys/{key_id}",
        Scope.ADMIN,
        _revoke,
        summary="Revoke an access key",
        reply=Success,
        dialect=SQUADS,
        errors=(NotFound,),
        tag=TAG,
    ),
    route(
        "POST",
        BASE + "/login",
        Scope.PUBLIC,
        _login,
        summary="Log in with an access key",
        body=LoginBody,
        reply=Success,
        dialect=SQUADS,
        tag=TAG,
    ),
    route(
        "POST",
        BASE + "/logout",
        Scope.PUBLIC,
        _logout,
        summary="Log out",
        reply=Success,
        dialect=SQUADS,
        tag=TAG,
    ),
)
