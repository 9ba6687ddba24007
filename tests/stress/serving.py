"""The real ``greenroom serve api`` as processes on one database, with a stub model that refuses broken histories."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any, cast

import trio

from actors.models.provider import Message, ToolCall
from actors.testing.model import ScriptedModel
from actors.testing.strict import check_history
from actors.testing.stub_server import Reply, StubRequest, StubServer, openai_call, openai_text
from gateway.serve import Stop
from tests.flows.kit import Api
from tests.gateway.kit import Server

ROOT = Path(__file__).parents[2]
AGENT = """\
models:
  stub: {{provider: openai, model: gpt-4o-mini, base_url: {url}/v1}}
agents:
  root: {{model: stub, description: d, instruction: i, toolsets: [{{type: shell}}]}}
"""


def answer(request: StubRequest) -> Reply:
    """Answer by the last message: ``slow`` streams a second, ``tool`` calls one; a broken history is refused."""
    messages = request.body["messages"]
    check_history([_neutral(message) for message in messages])
    last = messages[-1]
    if last["role"] == "user" and "tool" in last["content"]:
        return openai_call("shell", '{"cmd": "echo ran >> trace"}', f"call_{len(messages)}")
    if last["role"] == "user" and "slow" in last["content"]:
        return openai_text("word " * 20, chunks=20, delay=0.05)
    return openai_text("ok")


def _neutral(message: dict[str, Any]) -> Message:
    calls = tuple(
        ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls", ())
    )
    return Message(
        message["role"],
        message.get("content") or "",
        tool_calls=calls,
        tool_call_id=message.get("tool_call_id", ""),
    )


@dataclass
class Process:
    """One server process and a client of it."""

    api: Api
    process: trio.Process

    async def kill(self) -> None:
        """End it without a chance to tidy up."""
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


@asynccontextmanager
async def stub_model(folder: Path) -> AsyncGenerator[None]:
    """Run the model and write the agent file that uses it."""
    async with trio.open_nursery() as nursery:
        url = await nursery.start(StubServer(answer).serve)
        folder.joinpath("agents").mkdir()
        folder.joinpath("agents", "my.yaml").write_text(AGENT.format(url=url))
        yield
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def greenroom(folder: Path) -> AsyncGenerator[Process]:
    """Start a server on ``folder``'s agents and database; it is killed at the end if it still runs."""
    command = [sys.executable, "-m", "gateway", "serve", "api", str(folder / "agents")]
    command += ["--listen", "127.0.0.1:0", "--session-db", str(folder / "s.db"), "--data-dir", str(folder)]
    env = {**os.environ, "OPENAI_API_KEY": "none", "PYTHONPATH": str(ROOT)}
    process = await trio.lowlevel.open_process(
        command, stdout=PIPE, stderr=PIPE, env=env, cwd=folder, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with process.stdout, process.stderr, trio.open_nursery() as nursery:
            nursery.start_soon(_drain, process.stderr)
            line = b""
            with trio.fail_after(20):
                while b"\n" not in line:
                    part = await process.stdout.receive_some()
                    assert part, "the server did not start"
                    line += part
            address = line.decode().split()[-1]
            server = Server(cast("Any", None), address, Stop(), nursery)
            yield Process(Api(server, cast("Any", None), ScriptedModel()), process)
            if process.returncode is None:
                process.terminate()
                with trio.move_on_after(8):
                    await process.wait()
            nursery.cancel_scope.cancel()
    finally:
        if process.returncode is None:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()


async def _drain(stream: trio.abc.ReceiveStream) -> None:
    while await stream.receive_some():
        pass
