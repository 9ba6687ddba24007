"""``greenroom serve api`` as a process: its announcement, its refusals, a turn with a tool over HTTP, its end."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.testing.stub_server import openai_call, openai_text
from gateway.cli.main import main
from tests.gateway.cli.conftest import AGENT, ServeModel
from tests.gateway.cli.server import serving


def events(stream: bytes) -> list[dict[str, Any]]:
    """Return the JSON of every ``data:`` line."""
    return [json.loads(line[6:]) for line in stream.split(b"\n") if line.startswith(b"data: ")]


async def test_a_turn_with_a_real_tool_call_is_streamed(serve_model: ServeModel, tmp_path: Path) -> None:
    await serve_model(
        openai_call("shell", '{"cmd": "echo from-the-tool"}'), openai_text("All done", chunks=2)
    )
    async with serving(tmp_path) as server:
        template = {"title": "t", "tools_approved": True}
        session = json.loads(await server.post("/api/sessions", template))["id"]
        body = {"messages": [{"role": "user", "content": "run it"}]}
        seen = events(await server.post(f"/api/sessions/{session}/agent/agent", body))
        assert await server.stop() == 0
    types = [event["type"] for event in seen]
    assert types.count("tool_call") == types.count("tool_call_response") == 1
    assert "from-the-tool" in next(e["response"] for e in seen if e["type"] == "tool_call_response")
    assert "".join(e["content"] for e in seen if e["type"] == "agent_choice") == "All done"
    assert types[-1] == "stream_stopped"


async def test_with_a_token_nobody_else_gets_in(tmp_path: Path) -> None:
    async with serving(tmp_path, "--auth-token", "secret") as server:
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            await server.post("/api/sessions", {})
        refused.value.close()
        assert json.loads(await server.post("/api/sessions", {}, "secret"))["id"]
        assert await server.stop() == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), (0, 1)),
        (("--no-auth",), (3, 0)),
        (("--auth-token", "x"), (0, 0)),
        (("--master-key", "x"), (0, 0)),
    ],
)
async def test_listening_to_the_world_takes_a_token_or_a_deliberate_no(
    tmp_path: Path, flags: Sequence[str], said: tuple[int, int]
) -> None:
    async with serving(tmp_path, "--listen", "0.0.0.0:0", *flags) as server:
        assert await server.stop() == 0
        assert server.process.stderr is not None
        text = b""
        while piece := await server.process.stderr.receive_some():
            text += piece
    assert (text.count(b"WARNING:"), text.count(b"Clients must send this token")) == said


async def test_the_token_made_for_the_world_is_asked_for(tmp_path: Path) -> None:
    async with serving(tmp_path, "--listen", "0.0.0.0:0") as server:
        assert server.process.stderr is not None
        said = b""
        with trio.fail_after(10):
            while b"Clients must send this token" not in said or not said.endswith(b"\n"):
                said += await server.process.stderr.receive_some()
        line = next(line for line in said.decode().splitlines() if "Clients must send this token" in line)
        server.address = server.address.replace("0.0.0.0", "127.0.0.1")
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            await server.post("/api/sessions", {})
        refused.value.close()
        assert json.loads(await server.post("/api/sessions", {}, line.rpartition(" ")[2]))["id"]


async def test_a_stored_admin_key_is_enough_to_require_credentials(tmp_path: Path) -> None:
    async with serving(tmp_path, "--master-key", "m", "--require-auth") as server:
        body = {"name": "ops", "scopes": ["admin"]}
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            await server.post("/api/v1/auth/keys", body)
        refused.value.close()
        key = json.loads(await server.post("/api/v1/auth/keys", body, "m"))["key"]
        assert await server.stop() == 0
    async with serving(tmp_path, "--require-auth", "--hide-page", "/squad") as server:
        assert json.loads(await server.post("/api/sessions", {}, key))["id"]
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            await server.post("/api/v1/squads", {}, key)
        assert json.loads(refused.value.read())["error"]["code"] == "FEATURE_HIDDEN"
        refused.value.close()


async def test_agents_do_not_see_the_keys_of_their_server(
    serve_model: ServeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GREENROOM_MASTER_KEY", "canary-of-the-master")
    await serve_model(openai_call("shell", '{"cmd": "env"}'), openai_text("seen"))
    async with serving(tmp_path) as server:
        template = {"title": "t", "tools_approved": True}
        session = json.loads(await server.post("/api/sessions", template))["id"]
        body = {"messages": [{"role": "user", "content": "run it"}]}
        stream = await server.post(f"/api/sessions/{session}/agent/agent", body)
    assert b"PATH=" in stream
    assert b"canary-of-the-master" not in stream


async def test_a_unix_socket_is_announced_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "run" / "greenroom.sock"
    async with serving(tmp_path, "--listen", f"unix://{path}") as server:
        assert server.address == f"unix://{path}"
        assert path.is_socket()
        assert await server.stop() == 0
    assert not path.exists()


@pytest.mark.parametrize(
    ("flags", "status", "said"),
    [
        (["--pull-interval", "5"], 2, "only be used with OCI or URL references, not local files"),
        (["--auth-token", "x", "--no-auth"], 2, "contradict"),
        (["--master-key", "x", "--no-auth"], 2, "--master-key and --no-auth contradict"),
        (["--require-auth", "--no-auth"], 2, "--require-auth and --no-auth contradict"),
        (["--require-auth"], 1, "no stored access key has the scope admin"),
        (["--hide-page", "/nothing"], 2, "/nothing"),
        (["--fake", "a.yaml", "--record", "b.yaml"], 2, "exclude each other"),
        (["--fake", "missing.yaml"], 1, "missing.yaml"),
        (["--listen", "nowhere"], 1, "nowhere"),
        (["--listen", "127.0.0.1:99999"], 1, "99999"),
    ],
)
def test_a_start_that_cannot_work_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], status: int, said: str
) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(AGENT)
    command = ["serve", "api", str(file), "--session-db", str(tmp_path / "s.db"), "--data-dir", str(tmp_path)]
    assert main([*command, *flags]) == status
    printed = capsys.readouterr()
    assert said in printed.err
    assert "Traceback" not in printed.err
    assert "Listening" not in printed.out


@pytest.mark.parametrize(
    "text", ["agents: [", "agents:\n  root:\n    modle: x\n", ""], ids=["broken", "misspelt", "empty"]
)
def test_an_agent_file_that_cannot_be_used_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(text)
    assert (
        main(["serve", "api", str(file), "--listen", "127.0.0.1:0", "--session-db", str(tmp_path / "s.db")])
        == 1
    )
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith("greenroom: there is no usable agent: ")
    assert "agent.yaml" in error
    assert "Traceback" not in error
