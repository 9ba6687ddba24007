"""The one table: every row of every API, in the order the documentation lists them."""

from __future__ import annotations

from gateway.route import Route, Table
from gateway.routes import (
    agents,
    api_tools,
    auth,
    chat,
    flows,
    operations,
    runs,
    sessions,
    squad_channels,
    squad_executions,
    squad_templates,
    squad_work,
    squads,
)

ROUTES: tuple[Route, ...] = (
    *agents.ROUTES,
    *sessions.ROUTES,
    *runs.ROUTES,
    *operations.ROUTES,
    *auth.ROUTES,
    *api_tools.ROUTES,
    *flows.ROUTES,
    *chat.ROUTES,
    *squads.ROUTES,
    *squad_work.ROUTES,
    *squad_executions.ROUTES,
    *squad_channels.ROUTES,
    *squad_templates.ROUTES,
)
TABLE = Table(ROUTES)
