"""The control plane beside a run: the sessions API over the run's own runtime, without agents to choose from."""

from __future__ import annotations

from typing import Any

from gateway.endpoint import Endpoint
from gateway.http import JSON, Request
from gateway.route import Scope, Table, query
from gateway.routes import operations, runs, sessions
from gateway.settings import MIB, Settings


async def _no_agents(_: Request, __: Any) -> JSON:
    return []


TABLE = Table(
    (
        query("/api/agents", Scope.READ, _no_agents, summary="Nothing: the run has its agent", tag="Agents"),
        *sessions.ROUTES,
        *runs.ROUTES,
        *operations.ROUTES,
    )
)


def control_plane(runtime: Any) -> Endpoint:
    """Return the endpoint: no credentials, and bodies of at most 1 MiB, whatever a server would be set to."""
    return Endpoint(TABLE, runtime, Settings(max_request_size=MIB))
