"""``greenroom serve api`` as a process: its announcement, its refusals, a turn with a tool over HTTP, its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.testing.stub_server import openai_call, openai_text
from gateway.cli.main import main
from tests.gateway.cli.conftest import AGENT, ServeModel


class Server:
    """A running server. ``address`` is what it announced."""

    def __init__(self, process: trio.Process, address: str) -> None:
        self.process = process
        self.address = address

    async def post(self, path: str, body: object, token: str = "") -> bytes:
        """POST over HTTP and return the whole answer."""
        headers = {"content-type": "application/json"} | (
            {"authorization": f"Bearer {token}"} if token else {}
        )
        request = urllib.request.Request(f"http://{self.address}{path}", json.dumps(body).encode(), headers)

        def send() -> bytes:
            with urllib.request.urlopen(request) as answer:
                return bytes(answer.read())

        return await trio.to_thread.run_sync(send)

    async def stop(self) -> int:
        """Send SIGTERM and return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        with trio.fail_after(5):
            return await self.process.wait()


@asynccontextmanager
async def serving(tmp_path: Path, *flags: str, agents: str = AGENT) -> AsyncGenerator[Server]:
    """Start the server on a free port."""
    file = tmp_path / "agent.yaml"
    file.write_text(agents)
    command = [
        sys.executable,
        "-m",
        "gateway",
        "serve",
        "api",
        str(file),
        "--session-db",
        str(tmp_path / "s.db"),
    ]
    command += flags if "--listen" in flags else ["--listen", "127.0.0.1:0", *flags]
    env = os.environ | {"GREENROOM_DATA_DIR": str(tmp_path / "data")}
    process = await trio.lowlevel.open_process(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with process.stdout, process.stderr:
            line = b""
            with trio.fail_after(20):
                while not line.endswith(b"\n"):
                    piece = await process.stdout.receive_some()
                    assert piece, (await process.stderr.receive_some()).decode()
                    line += piece
            yield Server(process, line.decode().removeprefix("Listening on ").strip())
    finally:
        process.kill()
        with trio.CancelScope(shield=True):  # bounded: a killed process ends
            await process.wait()


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
    ("flags", "warned"), [((), True), (("--no-auth",), False), (("--auth-token", "x"), False)]
)
async def test_listening_to_the_world_without_a_token_warns(
    tmp_path: Path, flags: Sequence[str], warned: bool
) -> None:
    async with serving(tmp_path, "--listen", "0.0.0.0:0", *flags) as server:
        assert await server.stop() == 0
        assert server.process.stderr is not None
        said = b""
        while piece := await server.process.stderr.receive_some():
            said += piece
    assert (said.count(b"WARNING:") == 3) is warned


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
