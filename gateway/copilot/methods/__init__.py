"""Every method the Copilot door serves, by name; all others answer -32601."""

from __future__ import annotations

from gateway.copilot.door import Method
from gateway.copilot.methods import answers, history, server, sessions, settings, workspace

METHODS: tuple[Method, ...] = (
    *server.METHODS,
    *sessions.METHODS,
    *answers.METHODS,
    *settings.METHODS,
    *history.METHODS,
    *workspace.METHODS,
)
