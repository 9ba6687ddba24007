"""The server as a process of its own, and a client for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from tests.gateway.cli.conftest import AGENT


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
async def serving(
    tmp_path: Path, *flags: str, agents: str = AGENT, source: str = "", kind: str = "api"
) -> AsyncGenerator[Server]:
    """Start ``greenroom serve api`` or ``serve chat`` on a free port.

    Args:
        tmp_path: For its files.
        *flags: More options.
        agents: The agent file's text.
        source: What is served instead of the file.
        kind: ``api`` or ``chat``.
    """
    file = tmp_path / "agent.yaml"
    file.write_text(agents)
    command = [sys.executable, "-m", "gateway", "serve", kind, source or str(file)]
    if kind == "api":
        command += ["--session-db", str(tmp_path / "s.db")]
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
