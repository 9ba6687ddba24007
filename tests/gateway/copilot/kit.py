"""The Copilot door over memory streams with a scripted model behind it, and a client that speaks JSON-RPC by hand."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import trio
import trio.testing

from actors import Runtime, Settings, open_runtime
from actors.models.catalog import Models
from actors.testing.model import Script, ScriptedModel
from gateway.copilot.door import Door, open_door
from gateway.copilot.framing import Frames, frame
from gateway.copilot.methods import METHODS

AGENT = """\
agents:
  root:
    model: scripted/x
    instruction: Help.
    toolsets: [{type: think}, {type: shell}]
"""
PATIENCE = 5.0
SHOUT = {"name": "shout", "description": "Shout", "parameters": {"type": "object", "properties": {}}}
QUIET = {**SHOUT, "skipPermission": True}


class Refused(Exception):
    """An error answer."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code = error["code"]


class Client:
    """A client. Whatever arrives is kept in ``events``, ``calls`` (requests of the server) and ``answers``."""

    def __init__(self, stream: trio.StapledStream[Any, Any]) -> None:
        self.stream = stream
        self.events: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self.answers: dict[Any, dict[str, Any]] = {}
        self.closed = False
        self._number = 0
        self._arrived = trio.Event()
        self._sending = trio.Lock()

    async def read(self) -> None:
        """Read until the server closes."""
        frames = Frames()
        try:
            while data := await self.stream.receive_some(65536):
                for body in frames.feed(data):
                    message = msgspec.json.decode(body)
                    if message.get("method") == "session.event":
                        self.events.append(message["params"]["event"])
                    elif "method" in message:
                        self.calls.append(message)
                    else:
                        self.answers[message["id"]] = message
                self._wake()
        except trio.ClosedResourceError:
            pass
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        self._arrived.set()
        self._arrived = trio.Event()

    async def wait(self, ready: Callable[[], Any]) -> Any:
        """Return the first truth of ``ready``, asked again whenever something arrives."""
        with trio.fail_after(PATIENCE):
            while not (found := ready()):
                await self._arrived.wait()
            return found

    async def call(self, method: str, **params: Any) -> Any:
        """Make a request and return its result. Raises: Refused."""
        self._number += 1
        number = self._number
        async with self._sending:
            await self.stream.send_all(
                frame({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            )
        answer = await self.wait(lambda: self.answers.get(number))
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    async def reply(self, request: dict[str, Any], result: Any) -> None:
        """Answer a request of the server."""
        await self.stream.send_all(frame({"jsonrpc": "2.0", "id": request["id"], "result": result}))

    async def event(self, kind: str, count: int = 1) -> dict[str, Any]:
        """Wait for the n-th event of a type and return its data."""
        await self.wait(lambda: len(self.of(kind)) >= count)
        return self.of(kind)[count - 1]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the data of all events of a type."""
        return [event["data"] for event in self.events if event["type"] == kind]

    def types(self, *, stored: bool = True) -> list[str]:
        """Return the types of what arrived."""
        return [event["type"] for event in self.events if not (stored and event.get("ephemeral"))]

    async def create(self, **options: Any) -> str:
        """Create a session and return its id."""
        return str((await self.call("session.create", requestPermission=True, **options))["sessionId"])

    async def call_many(self, session: str, prompts: list[str]) -> None:
        """Send messages one after the other, not waiting for answers of the model."""
        for prompt in prompts:
            await self.call("session.send", sessionId=session, prompt=prompt)

    async def ask(self, session: str, prompt: str, **options: Any) -> str:
        """Send, wait for idle, and return the last answer."""
        before = len(self.of("session.idle"))
        await self.call("session.send", sessionId=session, prompt=prompt, **options)
        await self.event("session.idle", before + 1)
        return str(self.of("assistant.message")[-1]["content"])


@dataclass
class World:
    """A door, what is behind it, and clients before it."""

    door: Door
    runtime: Runtime
    model: ScriptedModel
    directory: Path
    nursery: trio.Nursery
    clients: list[Client] = field(default_factory=list[Client])

    async def client(self, **params: Any) -> Client:
        """Connect one more client."""
        ours, theirs = trio.testing.memory_stream_pair()
        self.nursery.start_soon(self.door.serve, theirs)
        client = Client(ours)
        self.clients.append(client)
        self.nursery.start_soon(client.read)
        await client.call("connect", **params)
        return client

    async def lines(self, session: str) -> list[dict[str, Any]]:
        """Return the session's ``events.jsonl``."""
        await self.door.files.settled()
        text = (self.directory / session / "events.jsonl").read_text()
        return [msgspec.json.decode(line) for line in text.splitlines()]


@asynccontextmanager
async def opened(
    tmp_path: Path, script: Script = (), *, token: str = "", database: bool = False
) -> AsyncGenerator[World]:
    """Open a door on a scripted model."""
    file = tmp_path / "agent.yaml"
    file.write_text(AGENT)
    model = ScriptedModel(script)
    settings = Settings(
        data_dir=tmp_path / "data", working_dir=tmp_path, database=tmp_path / "s.db" if database else None
    )
    models = Models(settings.environment, settings.data_dir)
    models.register("scripted", model)
    directory = tmp_path / "session-state"
    async with (
        open_runtime(settings, agents=file, models=models) as runtime,
        open_door(runtime, METHODS, directory, token=token) as door,
        trio.open_nursery() as nursery,
    ):
        yield World(door, runtime, model, directory, nursery)
        nursery.cancel_scope.cancel()
