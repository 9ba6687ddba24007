"""Through the real server: a recording answers like the model it recorded, and secrets stay where they are."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.testing.stub_server import openai_call, openai_text
from tests.gateway.cli.conftest import ServeModel
from tests.gateway.cli.server import Server, serving

CANARY = "canary-5f0e1b7c9d"
VARYING = re.compile(
    rb'("(?:timestamp|session_id|id|run_id|created_at|message_id|duration|duration_ms)":)(?:"[^"]*"|[\d.]+)'
)


async def _get(server: Server, path: str) -> bytes:
    def send() -> bytes:
        with urllib.request.urlopen(f"http://{server.address}{path}") as answer:
            return bytes(answer.read())

    return await trio.to_thread.run_sync(send)


async def _converse(server: Server) -> tuple[list[bytes], Any]:
    """Hold a conversation of two turns with a tool call; return its streams and the stored messages."""
    template = {"title": "t", "tools_approved": True}
    session = json.loads(await server.post("/api/sessions", template))["id"]
    streams: list[bytes] = []
    for text in ("run it", "and again"):
        body = {"messages": [{"role": "user", "content": text}]}
        stream = await server.post(f"/api/sessions/{session}/agent/agent", body)
        # Clocks, and how what arrived was cut into pieces by the network, are no part of what was said.
        streams.append(VARYING.sub(rb"\1X", stream.replace(session.encode(), b"S")))
    stored = json.loads(await _get(server, f"/api/sessions/{session}"))["messages"]
    return streams, [(m["message"]["role"], m["message"].get("content")) for m in stored]


async def test_a_recording_reproduces_a_session_byte_for_byte_without_the_model(
    serve_model: ServeModel, tmp_path: Path
) -> None:
    cassette = tmp_path / "cassette.yaml"
    model = await serve_model(
        openai_call("shell", '{"cmd": "echo from-the-tool"}'),
        openai_text("Done", chunks=2),
        openai_text("Again"),
    )
    (tmp_path / "first").mkdir()
    async with serving(tmp_path / "first", "--record", str(cassette)) as server:
        recorded, stored = await _converse(server)
        assert await server.stop() == 0
    calls = len(model.requests)
    (tmp_path / "second").mkdir()
    async with serving(tmp_path / "second", "--fake", str(cassette)) as server:
        replayed, stored_again = await _converse(server)
    assert replayed == recorded
    assert stored_again == stored
    assert len(model.requests) == calls
    assert b"from-the-tool" in recorded[0]


async def test_a_provider_key_shows_nowhere_but_in_the_request_it_is_for(
    serve_model: ServeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = await serve_model(openai_call("shell", '{"cmd": "echo hi"}'), openai_text("Done"))
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.setenv("GREENROOM_MASTER_KEY", "")
    cassette = tmp_path / "cassette.yaml"
    agents = """\
agents:
  root:
    model: openai/gpt-4o-mini
    instruction: Help.
    toolsets:
      - type: shell
        env: {TOKEN: "${env.OPENAI_API_KEY}"}
"""
    async with serving(tmp_path, "--record", str(cassette), "--debug", agents=agents) as server:
        streams, _ = await _converse(server)
        answers = [
            await _get(server, path)
            for path in ("/api/agents", "/api/agents/agent", "/api/openapi.json", "/metrics", "/api/sessions")
        ]
        assert await server.stop() == 0
        assert server.process.stderr is not None
        logged = b""
        while piece := await server.process.stderr.receive_some():
            logged += piece
    assert any(CANARY in str(request.headers) for request in model.requests)
    assert b"${env.OPENAI_API_KEY}" in answers[1]
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not [text for text in (*streams, *answers, logged, *kept) if CANARY.encode() in text]


async def test_the_servers_own_token_never_reaches_a_tool(serve_model: ServeModel, tmp_path: Path) -> None:
    await serve_model(openai_call("shell", '{"cmd": "env"}'), openai_text("Done"), openai_text("Again"))
    async with serving(tmp_path, "--auth-token", CANARY) as server:
        template = {"title": "t", "tools_approved": True}
        session = json.loads(await server.post("/api/sessions", template, CANARY))["id"]
        body = {"messages": [{"role": "user", "content": "look"}]}
        stream = await server.post(f"/api/sessions/{session}/agent/agent", body, CANARY)
    assert b"PATH=" in stream
    assert CANARY.encode() not in stream
