"""What all connections of the Copilot door share: the runtime, the live sessions, and which methods are served."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import trio

from actors import Runtime
from actors.errors import ActorsError
from gateway.copilot.live import Live
from gateway.copilot.log import EventFiles
from gateway.copilot.rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Call,
    Connection,
    RpcError,
    Stream,
)

logger = logging.getLogger("gateway.copilot")
JSON = Any
PROTOCOL_VERSION = 3
LEAVE_SECONDS = 1.0
"""How long a client that ended the server may take to leave."""
Serve = Callable[["Door", Connection, Mapping[str, JSON]], Awaitable[JSON]]


@dataclass(frozen=True)
class Method:
    """A row of the table. ``waits``: it may take long and is answered outside the order of its session."""

    name: str
    serve: Serve
    waits: bool = False
    open: bool = False


class Door:
    """See the module. Made by :func:`open_door`.

    Args:
        runtime: Where sessions run.
        files: Where their ``events.jsonl`` are kept.
        methods: What is served.
        nursery: For the followers of sessions.
        token: What clients must send with ``connect``; empty for nothing.
        source: The agent source of new sessions.
        shutdown: Called by ``runtime.shutdown``.
    """

    def __init__(
        self,
        runtime: Runtime,
        files: EventFiles,
        methods: Sequence[Method],
        nursery: trio.Nursery,
        *,
        token: str,
        source: str,
        shutdown: Callable[[], None],
    ) -> None:
        self.runtime = runtime
        self.files = files
        self.source = source
        self.shutdown = shutdown
        self.version = version("greenroom")
        self.connections: set[Connection] = set()
        self.lives: dict[str, Live] = {}
        self._methods = {method.name: method for method in methods}
        self._nursery = nursery
        self._token = token

    def find(self, connection: Connection, method: str) -> tuple[Call, bool]:
        """Return what serves a method. Raises: RpcError when nothing does, or the client is not let in."""
        found = self._methods.get(method)
        if found is None:
            raise RpcError(METHOD_NOT_FOUND, f"Unhandled method {method}")
        if self._token and not connection.authenticated and not found.open:
            raise RpcError(INTERNAL_ERROR, "AUTHENTICATION_FAILED: connect with the server's token first")

        async def call(asking: Connection, params: Mapping[str, JSON]) -> JSON:
            return await found.serve(self, asking, params)

        return call, found.waits

    def admit(self, token: JSON) -> None:
        """Check a client's token. Raises: RpcError."""
        given = token if isinstance(token, str) else ""
        if self._token and not secrets.compare_digest(given.encode(), self._token.encode()):
            raise RpcError(INTERNAL_ERROR, "AUTHENTICATION_FAILED: the connection token is wrong")

    def end_with(self, connection: Connection) -> None:
        """End the server once this client, which started it, has its answer and left."""
        self._nursery.start_soon(self._end_with, connection)

    async def _end_with(self, connection: Connection) -> None:
        with trio.move_on_after(LEAVE_SECONDS):
            await connection.gone.wait()
        self.shutdown()

    async def serve(self, stream: Stream) -> None:
        """Serve one client until it leaves."""
        connection = Connection(stream, self)
        self.connections.add(connection)
        try:
            await connection.run()
        finally:
            self.connections.discard(connection)
            for live in self.lives.values():
                live.detach(connection)

    # --- sessions ---------------------------------------------------------------------------------------------------

    def live(self, session_id: str) -> Live:
        """Return the session's shared side, following its stream."""
        found = self.lives.get(session_id)
        if found is None:
            found = self.lives[session_id] = Live(session_id, self.runtime, self.files, self.version)
            self._nursery.start_soon(found.follow)
        return found

    def attached(self, connection: Connection, params: Mapping[str, JSON]) -> Live:
        """Return the session that a request names. Raises: RpcError unless the client is attached to it."""
        session_id = text(params, "sessionId", required=True)
        live = self.lives.get(session_id)
        if live is None or connection not in live.attachments:
            raise RpcError(INTERNAL_ERROR, f"Session not found: {session_id}")
        return live

    def forget(self, session_id: str) -> None:
        """Drop a deleted session."""
        self.lives.pop(session_id, None)
        self.runtime.overlays.pop(session_id, None)
        self.files.remove(session_id)

    def lifecycle(self, kind: str, session_id: str) -> None:
        """Tell every client that a session came, changed or went."""
        for connection in self.connections:
            connection.notify("session.lifecycle", {"type": f"session.{kind}", "sessionId": session_id})

    def model_ref(self, name: str) -> str:
        """Return the reference of the model a client names; empty, for the agent's own, when there is no such.

        Programs name models of another vendor's server as a matter of course; they must run all the same.
        """
        if not name or name == "auto":
            return ""
        models = self.runtime.models
        known = [name] if "/" in name else [info.ref for info in models.available() if info.model == name]
        for ref in known:
            try:
                models.resolve(ref)
            except ActorsError as error:
                logger.info("model %s is not usable: %s", ref, error)
                continue
            return ref
        logger.warning("there is no model %r; the agent's own answers", name)
        return ""


def text(params: Mapping[str, JSON], name: str, *, required: bool = False) -> str:
    """Return a text parameter; empty when it is missing. Raises: RpcError when it is something else."""
    value = params.get(name)
    if value is None:
        value = ""
    if not isinstance(value, str) or (required and not value):
        raise RpcError(INVALID_PARAMS, f"{name} must be a text")
    return value


@asynccontextmanager
async def open_door(
    runtime: Runtime,
    methods: Sequence[Method],
    directory: Path,
    *,
    token: str = "",
    source: str = "",
    shutdown: Callable[[], None] = lambda: None,
) -> AsyncGenerator[Door]:
    """Open the door for the block.

    Args:
        runtime: Where sessions run.
        methods: What is served.
        directory: Where each session's ``events.jsonl`` is kept.
        token: What clients must send; empty for nothing.
        source: The agent source of new sessions; empty for the only one.
        shutdown: Called when a client ends the server it started.

    Raises:
        NotFound, Invalid: no such source, or several and none named.
    """
    source = await runtime.agents.only(source)
    files = EventFiles(directory)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(files.run)
        yield Door(runtime, files, methods, nursery, token=token, source=source, shutdown=shutdown)
        nursery.cancel_scope.cancel()
