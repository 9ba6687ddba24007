"""The server about itself: liveness, readiness, figures and its own description, over a real runtime."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from actors import Settings as RuntimeSettings
from actors import open_runtime
from actors.journal.log import JournalUnavailable
from actors.runtime import Runtime
from actors.session.messages import Template
from gateway.openapi import document
from gateway.routes import ROUTES, operations
from gateway.settings import Settings
from tests.gateway.kit import QUICK, Server, serving


@asynccontextmanager
async def operating(tmp_path: Path, settings: Settings = QUICK) -> AsyncGenerator[tuple[Server, Runtime]]:
    own = RuntimeSettings(data_dir=tmp_path, database=tmp_path / "session.db", working_dir=tmp_path)
    async with open_runtime(own) as runtime, serving(ROUTES, settings, runtime=runtime) as server:
        yield server, runtime


async def test_ping_health_and_readiness_say_what_the_contract_says(tmp_path: Path, door: Settings) -> None:
    async with operating(tmp_path, door) as (server, runtime):
        assert (await server.request("GET", "/api/ping")).body == b'{"status":"ok"}\n'
        assert (await server.request("GET", "/health")).body == b'{"status":"ok","version":""}\n'
        ready = {"ready": True, "active_sessions": 0, "store_connected": True, "toolset_health": "ok"}
        assert (await server.request("GET", "/ready")).json == ready
        await runtime.create(Template())
        assert (await server.request("GET", "/ready")).json["active_sessions"] == 1


async def test_a_broken_store_is_not_ready(tmp_path: Path) -> None:
    class Broken:
        async def count_sessions(self) -> int:
            raise JournalUnavailable("disk is full")

    async with serving(operations.ROUTES, runtime=Broken()) as server:
        answer = await server.request("GET", "/ready")
    assert answer.status == 503
    assert answer.json["latest_error"] == "store disconnected"
    assert answer.json["ready"] is False


async def test_a_slow_store_counts_as_connected() -> None:
    class Slow:
        async def count_sessions(self) -> int:
            return await trio.sleep_forever()

    async with serving(operations.ROUTES, runtime=Slow()) as server:
        answer = await server.request("GET", "/ready")
    assert (answer.status, answer.json["active_sessions"]) == (200, 0)


@pytest.mark.parametrize("wait", ["0", "1ms", "-5s"])
async def test_waiting_for_a_session_gives_up_in_time(tmp_path: Path, wait: str) -> None:
    async with operating(tmp_path) as (server, _):
        answer = await server.request("GET", f"/api/ready?timeout={wait}")
    assert (answer.status, answer.json) == (503, {"message": "no sessions registered within timeout"})


@pytest.mark.parametrize("wait", ["10", "soon", "1x"])
async def test_a_wait_that_is_no_duration_is_refused(tmp_path: Path, wait: str) -> None:
    async with operating(tmp_path) as (server, _):
        answer = await server.request("GET", f"/api/ready?timeout={wait}")
    assert answer.status == 400
    assert answer.json["message"].startswith("invalid timeout: ")


async def test_figures_cover_requests_actors_and_the_journal(tmp_path: Path) -> None:
    async with operating(tmp_path) as (server, _):
        await server.request("GET", "/api/ping")
        answer = await server.request("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in (
        b'greenroom_http_request_seconds_count{method="GET",route="/api/ping",status="200"} 1.0',
        b"greenroom_http_streams 0.0",
        b"greenroom_actors_actors 0.0",
        b"greenroom_journal_writes ",
    ):
        assert line in answer.body


async def test_the_token_guards_figures_and_documentation_but_not_health(tmp_path: Path) -> None:
    async with operating(tmp_path, msgspec.structs.replace(QUICK, auth_token="secret")) as (server, _):
        for path in (
            "/api/ping",
            "/api/ready",
            "/metrics",
            "/api/docs",
            "/api/openapi.json",
            "/api/docs/start.js",
        ):
            assert (await server.request("GET", path)).status == 401, path
        for path in ("/health", "/ready"):
            assert (await server.request("GET", path)).status == 200, path


async def test_the_documentation_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    async with operating(tmp_path) as (server, _):
        page = await server.request("GET", "/api/docs")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert b"http://" not in page.body
        assert b"https://" not in page.body
        for name, kind in (
            ("swagger-ui.css", "text/css"),
            ("swagger-ui-bundle.js", "text/javascript"),
            ("start.js", "text/javascript"),
        ):
            assert name.encode() in page.body
            asset = await server.request("GET", f"/api/docs/{name}")
            assert asset.status == 200
            assert asset.headers["content-type"].startswith(kind)
        for name in ("..%2F..%2Fserve.py", "LICENSE", "missing.js", "%2Fetc%2Fpasswd.js"):
            assert (await server.request("GET", f"/api/docs/{name}")).status == 404


async def test_the_description_is_served_and_names_every_documented_row(tmp_path: Path) -> None:
    async with operating(tmp_path) as (server, _):
        body = (await server.request("GET", "/api/openapi.json")).json
    described = {(method, path) for path, methods in body["paths"].items() for method in methods}
    rows = {(row.method.lower(), row.path.replace("...}", "}")) for row in ROUTES if row.documented}
    assert described == rows


def references(value: Any) -> set[str]:
    """Return every ``$ref`` in a document."""
    if isinstance(value, dict):
        found = {value["$ref"]} if isinstance(value.get("$ref"), str) else set[str]()
        return found.union(*map(references, value.values()))
    return set[str]().union(*map(references, value)) if isinstance(value, list) else set()


def test_the_description_is_consistent_in_itself() -> None:
    body = msgspec.json.decode(msgspec.json.encode(document(ROUTES, "1.0", secured=True)))
    assert body["openapi"] == "3.1.0"
    known = {f"#/components/schemas/{name}" for name in body["components"]["schemas"]}
    assert references(body) <= known
    assert {f"#/components/schemas/{name}" for name in ("Error", "SquadError")} <= references(body)
    operations_ids = [each["operationId"] for methods in body["paths"].values() for each in methods.values()]
    assert len(operations_ids) == len(set(operations_ids))
    health = body["paths"]["/health"]["get"]
    assert "security" not in health
    assert body["paths"]["/api/ping"]["get"]["security"] == [{"bearer": []}, {"key": []}, {"login": []}]
    for path, methods in body["paths"].items():
        for each in methods.values():
            named = {parameter["name"] for parameter in each["parameters"] if parameter["in"] == "path"}
            assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}
