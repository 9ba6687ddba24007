"""A stub model over loopback, and an agent file that uses it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from actors.testing.stub_server import Handler, Reply, StubServer

ServeModel = Callable[..., Awaitable[StubServer]]
AGENT = """\
agents:
  root:
    model: openai/gpt-4o-mini
    description: Answers
    instruction: You are a helpful assistant.
    toolsets:
      - type: shell
"""


@pytest.fixture
async def serve_model(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> ServeModel:
    """Return a function that starts a stub model with a script and points the environment at it.

    Replies are given in order; a run without a title makes one more call, at any time, so it takes a handler.
    """
    await trio.lowlevel.checkpoint()

    async def start(*replies: Reply, handler: Handler | None = None) -> StubServer:
        server = StubServer(handler or replies)
        address: str = await nursery.start(server.serve)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        return server

    return start


@pytest.fixture
def agent_file(tmp_path: Path) -> Path:
    """Return an agent file for the stub model."""
    path = tmp_path / "agent.yaml"
    path.write_text(AGENT)
    return path
