"""The squads API on a real server over a real runtime with a scripted team, and a client for its JSON."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from actors import Runtime, Settings, open_runtime
from actors.models.catalog import Models
from gateway.http import JSON
from gateway.routes import auth, squad_channels, squad_executions, squad_templates, squad_work, squads
from gateway.settings import Settings as Limits
from tests.gateway.kit import QUICK, Answer, Server, serving
from tests.squad.kit import Team

ROUTES = (
    *auth.ROUTES,
    *squads.ROUTES,
    *squad_work.ROUTES,
    *squad_executions.ROUTES,
    *squad_channels.ROUTES,
    *squad_templates.ROUTES,
)
BASE = "/api/v1"


@dataclass
class Api:
    """A server with its runtime."""

    server: Server
    runtime: Runtime
    directory: Path

    async def ask(self, method: str, path: str, body: JSON = None, **headers: str) -> Answer:
        """Send a request below the API's prefix."""
        data = b"" if body is None else msgspec.json.encode(body)
        return await self.server.request(method, BASE + path, data, **headers)

    async def get(self, path: str) -> JSON:
        return succeeded(await self.ask("GET", path))

    async def post(self, path: str, body: JSON = None) -> JSON:
        return succeeded(await self.ask("POST", path, body))

    async def squad(self, name: str = "Testers", *workers: str) -> str:
        """Create a squad of a planner and workers with a workspace of its own, and return its id."""
        made = await self.post("/squads", squad_body(self.directory / name, name, *workers))
        found: str = made["id"]
        return found

    async def finished(self, squad_id: str, execution_id: str, *phases: str) -> JSON:
        """Wait until an execution is in one of the phases, or has ended, and return it."""
        with self.runtime.squads.follow(squad_id) as follower:
            while True:
                execution = await self.get(f"/squads/{squad_id}/executions/{execution_id}")
                if execution["phase"] in (*phases, "completed", "failed", "cancelled"):
                    return execution
                await follower.next()


def succeeded(answer: Answer) -> JSON:
    """Return the JSON of an answer that is no failure."""
    assert 200 <= answer.status < 300, answer
    return answer.json


def failed(answer: Answer, status: int, code: str = "") -> str:
    """Return the message of a refusal with this status and code."""
    assert answer.status == status, answer
    error = answer.json["error"]
    assert error.keys() == {"code", "message"}
    assert not code or error["code"] == code
    message: str = error["message"]
    assert message
    return message


def squad_body(workspace: Path, name: str = "Testers", *workers: str) -> JSON:
    """Return the body that creates a squad."""
    return {
        "name": name,
        "workspacePath": str(workspace),
        "agents": [agent_body("pia", "planner"), *(agent_body(each) for each in workers or ("ann", "bob"))],
        "plannerAgentId": "a-pia",
    }


def agent_body(name: str, role: str = "developer") -> JSON:
    """Return the body that adds an agent."""
    return {
        "id": f"a-{name}",
        "name": name,
        "role": {"type": role},
        "modelPreferences": {"preferredModelId": "scripted/m"},
    }


@asynccontextmanager
async def open_api(
    directory: Path,
    team: Team | None = None,
    *,
    limits: Limits = QUICK,
    database: Path | None = None,
    **settings: Any,
) -> AsyncGenerator[Api]:
    """Serve the squads API; with ``database`` on that file, as a new process would."""
    team = team or Team(("first", "ann", []), ("second", "bob", ["t1"]))
    models = Models({}, directory / "data")
    models.register("scripted", team.model)
    given = Settings(
        data_dir=directory / "data",
        database=database,
        environment={},
        default_model="scripted/m",
        **settings,
    )
    async with (
        open_runtime(given, models=models) as runtime,
        serving(ROUTES, limits, runtime=runtime) as server,
    ):
        yield Api(server, runtime, directory)
