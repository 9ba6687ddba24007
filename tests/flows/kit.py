"""The real server over a loopback socket with a scripted model behind it, and a client that speaks its wire."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import trio

from actors import Runtime, Settings, open_runtime
from actors.models.catalog import Models
from actors.testing.model import Script, ScriptedModel
from gateway.routes import TABLE
from gateway.settings import Settings as Limits
from tests.gateway.kit import PATIENCE, Answer, Connection, Server, request_bytes, serving

MY = """\
agents:
  root:
    model: scripted/x
    description: Helps
    instruction: Help.
    toolsets: [{type: think}, {type: filesystem}, {type: shell}, {type: user_prompt}]
"""
QUICK = Limits(grace_seconds=0.3)


@dataclass
class Event:
    """One server-sent event; ``id`` is empty when it has none. A comment has no data."""

    id: str = ""
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    comment: str = ""

    @property
    def type(self) -> str:
        return self.data.get("type", "")

    def __getitem__(self, name: str) -> Any:
        return self.data[name]


class Stream:
    """A response that is a stream of events."""

    def __init__(self, connection: Connection, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self.headers = headers
        self.seen: list[Event] = []
        self._connection = connection
        self._buffer = b""
        self._ended = False

    async def next(self) -> Event | None:
        """Return the next event or comment; ``None`` at the end of the stream."""
        while b"\n\n" not in self._buffer:
            if self._ended:
                assert not self._buffer, f"half an event: {self._buffer!r}"
                return None
            part = await self._connection.chunk()
            self._ended = not part
            self._buffer += part
        block, _, self._buffer = self._buffer.partition(b"\n\n")
        event = Event()
        for line in block.decode().split("\n"):
            if line.startswith(":"):
                event.comment = line[1:].strip()
            elif line.startswith("id: "):
                event.id = line[4:]
            elif line.startswith("data: "):
                event.data = msgspec.json.decode(line[6:])
            else:
                raise AssertionError(f"unexpected line {line!r}")
        self.seen.append(event)
        return event

    async def until(self, kind: str, **fields: Any) -> Event:
        """Read up to the next event of a type (with these fields) and return it."""
        while (event := await self.next()) is not None:
            if event.type == kind and all(event.data.get(name) == value for name, value in fields.items()):
                return event
        raise AssertionError(f"no {kind} in {[event.type for event in self.seen]}")

    async def rest(self) -> list[Event]:
        """Read to the end and return every event of the stream, from its first."""
        while await self.next() is not None:
            pass
        return [event for event in self.seen if event.data]


def types(events: list[Event]) -> list[str]:
    """Return the events' types."""
    return [event.type for event in events]


def text(events: list[Event]) -> str:
    """Return the streamed answer."""
    return "".join(event["content"] for event in events if event.type == "agent_choice")


@dataclass
class Api:
    """A running server and what is behind it."""

    server: Server
    runtime: Runtime
    model: ScriptedModel

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Make one request; ``body`` is sent as JSON unless it is bytes."""
        data = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
        return await self.server.request(method, path, data, **headers)

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.call("GET", path, **headers)

    async def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return await self.call("POST", path, body, **headers)

    async def patch(self, path: str, body: Any = None) -> Answer:
        return await self.call("PATCH", path, body)

    async def delete(self, path: str) -> Answer:
        return await self.call("DELETE", path)

    async def create(self, **template: Any) -> str:
        """Create a session and return its path; it is titled, so that no model call makes a title."""
        answer = await self.post("/api/sessions", {"title": "t", **template})
        assert answer.status == 200, answer.body
        return f"/api/sessions/{answer.json['id']}"

    async def view(self, session: str) -> dict[str, Any]:
        """Return ``GET`` of the session."""
        return (await self.get(session)).json

    async def contents(self, session: str) -> list[tuple[str, str]]:
        """Return role and text of each message of the session."""
        found = (await self.view(session)).get("messages", [])
        return [(each["message"]["role"], each["message"]["content"]) for each in found]

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Stream]:
        """Open a stream; leaving the block hangs up."""
        async with self.server.connect() as connection:
            await connection.send(request_bytes(method, path, body, **(headers or {})))
            status, found = await connection.head()
            yield Stream(connection, status, found)

    @asynccontextmanager
    async def run(
        self,
        session: str,
        *messages: Any,
        agent: str = "my",
        headers: Mapping[str, str] | None = None,
        **body: Any,
    ) -> AsyncGenerator[Stream]:
        """Start a run and follow its own stream."""
        given = [each if isinstance(each, dict) else {"role": "user", "content": each} for each in messages]
        data = msgspec.json.encode({"messages": given, **body})
        async with self.stream("POST", f"{session}/agent/{agent}", data, headers) as stream:
            assert stream.status == 200, stream.headers
            yield stream

    async def turn(self, session: str, *messages: Any, agent: str = "my", **body: Any) -> list[Event]:
        """Run to the end and return the events."""
        async with self.run(session, *messages, agent=agent, **body) as stream:
            return await stream.rest()

    async def refused(self, session: str, *messages: str, agent: str = "my", **body: Any) -> Answer:
        """Start a run that is refused and return the answer."""
        given = [{"role": "user", "content": each} for each in messages]
        return await self.post(f"{session}/agent/{agent}", {"messages": given, **body})

    @asynccontextmanager
    async def events(self, session: str, query: str = "", **headers: str) -> AsyncGenerator[Stream]:
        """Follow the session."""
        async with self.stream("GET", f"{session}/events{query}", headers=headers) as stream:
            assert stream.status == 200, stream.headers
            yield stream


@asynccontextmanager
async def open_api(
    folder: Path,
    script: Script | ScriptedModel = (),
    *,
    agents: Mapping[str, str] | None = None,
    limits: Limits = QUICK,
    patience: float = PATIENCE * 4,
    **settings: Any,
) -> AsyncGenerator[Api]:
    """Serve agent files (``my`` by default) whose ``scripted/…`` models follow ``script``.

    Args:
        folder: For the files.
        script: See :class:`ScriptedModel`; a model made already is used as it is.
        agents: Agent files' text by name.
        limits: The gateway's settings.
        patience: Seconds after which the test fails.
        settings: Fields of the runtime's settings; without ``database`` everything is kept in memory.
    """
    served = folder / "agents"
    served.mkdir(exist_ok=True)
    for name, content in ({"my": MY} if agents is None else agents).items():
        served.joinpath(f"{name}.yaml").write_text(content)
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
    models = Models({}, folder)
    models.register("scripted", model)
    given = msgspec.structs.replace(Settings(data_dir=folder, working_dir=folder), **settings)
    with trio.fail_after(patience):
        async with (
            open_runtime(given, agents=served, models=models) as runtime,
            serving(TABLE.routes, limits, runtime=runtime) as server,
        ):
            yield Api(server, runtime, model)
