"""The route table: which row answers a path, and what a row must be."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http import Request
from gateway.route import MethodNotAllowed, Route, Scope, SocketRunner, Table, socket
from gateway.routes import ROUTES
from tests.gateway.kit import row

TABLE = Table(
    [
        row("GET", "/api/sessions"),
        row("POST", "/api/sessions"),
        row("GET", "/api/sessions/{id}"),
        row("DELETE", "/api/sessions/{id}"),
        row("GET", "/api/sessions/{id}/events"),
        row("POST", "/api/sessions/batch/delete"),
        row("GET", "/api/files/{path...}"),
        row("GET", "/api/files/special"),
    ]
)


def matched(method: str, path: str) -> tuple[str, dict[str, str]] | None:
    found = TABLE.match(method, path)
    return None if found is None else (found.route.path, dict(found.path_params))


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/api/sessions", ("/api/sessions", {})),
        ("HEAD", "/api/sessions", ("/api/sessions", {})),
        ("GET", "/api/sessions/7", ("/api/sessions/{id}", {"id": "7"})),
        ("GET", "/api/sessions/a%2Fb", ("/api/sessions/{id}", {"id": "a/b"})),
        ("GET", "/api/sessions/%252F", ("/api/sessions/{id}", {"id": "%2F"})),
        ("GET", "/api/sessions/batch", ("/api/sessions/{id}", {"id": "batch"})),
        ("GET", "/api/sessions/batch/events", ("/api/sessions/{id}/events", {"id": "batch"})),
        ("POST", "/api/sessions/batch/delete", ("/api/sessions/batch/delete", {})),
        ("GET", "/api/files/a/b/", ("/api/files/{path...}", {"path": "a/b/"})),
        ("GET", "/api/files/special", ("/api/files/special", {})),
        ("GET", "/api/sessions/", None),
        ("GET", "/api/sessions/7/", None),
        ("GET", "/api", None),
        ("GET", "/", None),
        ("GET", "", None),
        ("GET", "//api/sessions", None),
    ],
)
def test_a_path_finds_its_row(method: str, path: str, expected: Any) -> None:
    assert matched(method, path) == expected


def test_a_known_path_with_another_method_tells_which_are_known() -> None:
    with pytest.raises(MethodNotAllowed) as caught:
        TABLE.match("PATCH", "/api/sessions/7")
    assert caught.value.allow == ("DELETE", "GET", "HEAD")


@given(st.text(st.characters(min_codepoint=1), min_size=1))
def test_any_id_survives_one_percent_encoding(text: str) -> None:
    try:
        path = "/api/sessions/" + quote(text, safe="")
    except UnicodeEncodeError:  # a lone surrogate is no text that a client could send
        return
    assert matched("GET", path) == ("/api/sessions/{id}", {"id": text})


def test_a_row_can_be_in_the_table_only_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        Table([row("GET", "/a/{x}"), row("GET", "/a/{y}")])


def test_a_row_has_either_a_handler_or_a_socket() -> None:
    with pytest.raises(ValueError, match="either"):
        Table([Route(method="GET", path="/a", scope=Scope.READ, summary="Nothing")])


def test_a_socket_row_is_told_from_a_get_by_its_operation_id() -> None:
    async def handler(_: Request, __: Any) -> SocketRunner:
        raise AssertionError("never called")

    assert socket("/a/{id}/ws", Scope.READ, handler, summary="A").operation_id == "ws_a_id_ws"
    assert row("GET", "/a/{id}").operation_id == "get_a_id"


def test_every_row_of_the_product_has_an_operation_id_of_its_own() -> None:
    ids = [each.operation_id for each in ROUTES]
    assert len(ids) == len(set(ids))
    assert all(each.summary for each in ROUTES)


def test_only_health_readiness_and_the_way_to_log_in_are_public() -> None:
    public = {each.path for each in ROUTES if each.scope is Scope.PUBLIC}
    assert {path for path in public if not path.startswith("/api/v1/auth/")} == {"/health", "/ready"}
