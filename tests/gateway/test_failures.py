"""Every expected failure has a status of its own, and every dialect a body for it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import msgspec
import pytest

import actors
from actors.errors import ActorsError, Invalid, Rejected
from gateway.dialect import DOCKER_AGENT, OPENAI, SQUADS, dialect_of
from gateway.endpoint import render_failure
from gateway.errors import STATUS, Failure, HttpFailure, bug, expected, status_of


def product_errors() -> Iterator[type[ActorsError]]:
    """Import every room and return all its expected failures."""
    for module in pkgutil.walk_packages(actors.__path__, "actors."):
        if not module.name.startswith("actors.testing"):
            importlib.import_module(module.name)
    waiting = ActorsError.__subclasses__()
    while waiting:
        each = waiting.pop()
        waiting += each.__subclasses__()
        if each.__module__.startswith("actors."):
            yield each


def test_every_expected_failure_is_mapped_by_a_base_that_says_whose_fault_it_is() -> None:
    unmapped = [
        each.__name__ for each in product_errors() if not any(base in STATUS for base in each.__mro__)
    ]
    assert not unmapped
    assert all(400 <= status_of(each) < 600 for each in product_errors())


def test_a_squads_code_is_the_errors_own_unless_it_is_a_general_one() -> None:
    class AgentBusy(Rejected):
        code = "squad_agent_busy"

    for failure, code in ((AgentBusy("a"), "SQUAD_AGENT_BUSY"), (Invalid("a"), "BAD_REQUEST")):
        found = expected(failure)
        assert found is not None
        assert SQUADS.render(found)["error"]["code"] == code


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "server_error"),
        (503, "server_error"),
    ],
)
def test_openai_errors_name_their_type(status: int, kind: str) -> None:
    body = OPENAI.render(Failure(status, "some_code", "text", {"param": "model"}))
    assert body == {"error": {"message": "text", "type": kind, "param": "model", "code": "some_code"}}


def test_a_bug_is_told_by_its_incident_only() -> None:
    failed = bug()
    response = render_failure(failed, DOCKER_AGENT)
    assert msgspec.json.decode(response.body) == {"message": "Internal Server Error"}
    assert ("X-Incident-Id", failed.incident) in response.headers
    assert expected(ValueError("a")) is None


def test_an_http_failure_fills_in_the_status_phrase() -> None:
    assert HttpFailure(413).failure.code == "request_entity_too_large"
    assert HttpFailure(422, "no", "not_so").failure == Failure(422, "not_so", "no")


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/api/v1", SQUADS),
        ("/api/v1/x", SQUADS),
        ("/api/v10", DOCKER_AGENT),
        ("/v1/models", OPENAI),
        ("/", DOCKER_AGENT),
    ],
)
def test_a_path_no_row_answers_is_refused_in_the_dialect_of_its_prefix(path: str, dialect: object) -> None:
    assert dialect_of(path) is dialect
