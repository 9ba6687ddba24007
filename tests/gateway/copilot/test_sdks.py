"""The official SDKs, unchanged, against the real command: over TCP, over stdio, and as a server they start."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.testing.stub_server import Reply, StubRequest, openai_call, openai_text
from tests.gateway.cli.conftest import AGENT, ServeModel
from tests.gateway.cli.conftest import serve_model as serve_model  # the fixture

PROGRAMS = Path(__file__).parent / "programs"
MODES = ("uri", "stdio", "tcp")
NODE_SDK = os.environ.get("GREENROOM_NODE_SDK", "")
"""A directory whose ``node_modules`` hold the Node SDK."""


def model(request: StubRequest) -> Reply:
    """Do what the last user message says."""
    messages = request.body["messages"]
    last = messages[-1]
    if last["role"] == "tool":
        return openai_text(f"result: {last['content']}")
    prompt = next(m["content"] for m in reversed(messages) if m["role"] == "user")
    if prompt.startswith("call "):
        _, name, arguments = prompt.split(" ", 2)
        return openai_call(name, arguments)
    return openai_text(f"echo: {prompt}", chunks=4, delay={"slow one": 0.1, "hang": 5.0}.get(prompt, 0.0))


def command(tmp_path: Path) -> list[str]:
    """Return the command an SDK starts, without what it adds itself."""
    file = tmp_path / "agent.yaml"
    file.write_text(AGENT)
    greenroom = str(Path(sys.executable).with_name("greenroom"))
    return [greenroom, "serve", "copilot", str(file), "--data-dir", str(tmp_path / "data")]


@asynccontextmanager
async def listening(tmp_path: Path) -> AsyncGenerator[str]:
    """Start the server and give its address."""
    process = await trio.lowlevel.open_process(
        [*command(tmp_path), "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with process.stdout:
            said = b""
            with trio.fail_after(20):
                while b"listening on port" not in said:
                    said += await process.stdout.receive_some()
            yield said.decode().split("Listening on ")[1].split()[0]
    finally:
        process.kill()
        with trio.CancelScope(shield=True):  # bounded: a killed process ends
            await process.wait()


async def seen_by(program: list[str], mode: str, tmp_path: Path, **environment: str) -> dict[str, Any]:
    """Run a program against the server and return what it printed."""

    async def run(*arguments: str) -> dict[str, Any]:
        with trio.fail_after(60):
            done = await trio.run_process(
                [*program, mode, *arguments],
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                env=os.environ | environment,
            )
        assert done.returncode == 0, done.stderr.decode()
        return dict(json.loads(done.stdout.splitlines()[-1]))

    if mode != "uri":
        return await run(*command(tmp_path))
    async with listening(tmp_path) as address:
        return await run(address)


@pytest.mark.skipif(find_spec("copilot") is None, reason="the Python SDK is not installed")
@pytest.mark.parametrize("mode", MODES)
async def test_a_program_of_the_python_sdk_runs_unchanged(
    serve_model: ServeModel, tmp_path: Path, mode: str
) -> None:
    await serve_model(handler=model)
    seen = await seen_by([sys.executable, str(PROGRAMS / "client.py")], mode, tmp_path)
    assert seen["tool"] == "result: HI"
    assert seen["hooked"] == ["shout"]
    assert seen["queue"] == "echo: third"
    assert seen["after abort"] == "echo: fine?"
    assert seen["resumed"] == "echo: back"
    assert seen["turns"][0] == seen["turns"][1] > 5
    assert seen["types"].count("abort") == 1
    assert "assistant.message_delta" in seen["types"]


@pytest.mark.skipif(
    not (NODE_SDK and shutil.which("node")), reason="node or GREENROOM_NODE_SDK, where its SDK is, is missing"
)
@pytest.mark.parametrize("mode", MODES)
async def test_a_program_of_the_node_sdk_runs_unchanged(
    serve_model: ServeModel, tmp_path: Path, mode: str
) -> None:
    await serve_model(handler=model)
    # Modules are found from where the program lies, hence the copy.
    program = Path(shutil.copy(PROGRAMS / "client.mjs", tmp_path))
    (tmp_path / "node_modules").symlink_to(Path(NODE_SDK) / "node_modules")
    seen = await seen_by(["node", str(program)], mode, tmp_path)
    assert seen["tool"] == "result: HI"
    assert seen["asked"] == "result: blue"
    assert "assistant.message_delta" in seen["types"]
    assert seen["types"][-1] == "session.idle"
