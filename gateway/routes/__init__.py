"""The one table: every row of every API, in the order the documentation lists them."""

from __future__ import annotations

from gateway.route import Route, Table
from gateway.routes import agents, auth, operations, runs, sessions

ROUTES: tuple[Route, ...] = (*agents.ROUTES, *sessions.ROUTES, *runs.ROUTES, *operations.ROUTES, *auth.ROUTES)
TABLE = Table(ROUTES)
