"""A typed client of the sessions API, this server's or docker agent's: sessions, runs and their events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2
import msgspec
import trio
from msgspec import Struct

from actors.errors import ActorsError, Invalid, NotFound, Unavailable
from actors.groups import ungrouped
from actors.models.sse import SseDecoder
from gateway.errors import STATUS

R = TypeVar("R")
JSON = Any
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
SILENCE_SECONDS = 60.0
"""A run's stream carries a comment every 15 seconds; one that is silent for longer is dead."""
_BUFFERED = 64


class AgentRow(Struct):
    """One agent of ``GET /api/agents``."""

    name: str
    description: str = ""
    multi: bool = False
    commands: tuple[str, ...] = ()


class SessionRow(Struct):
    """One session of ``GET /api/sessions``."""

    id: str
    title: str = ""
    created_at: str = ""
    num_messages: int = 0


class RefusedByServer(ActorsError):
    """The server refused a request; the message is the server's."""

    code = "refused"


class Client:
    """See the module. Open it with :func:`open_client`."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http

    async def agents(self) -> list[AgentRow]:
        """Return what the server offers. Raises: as :meth:`_call`."""
        return await self._call("GET", "/api/agents", list[AgentRow])

    async def sessions(self) -> list[SessionRow]:
        """Return the stored sessions, the newest first."""
        return await self._call("GET", "/api/sessions", list[SessionRow])

    async def create_session(self, template: Mapping[str, JSON] | None = None) -> SessionRow:
        """Create a session from a template in the API's words."""
        return await self._call("POST", "/api/sessions", SessionRow, template or {})

    async def toggle_yolo(self, session: str) -> None:
        """Switch automatic approval."""
        await self._call("POST", f"{_one(session)}/tools/toggle", object)

    async def resume(
        self, session: str, confirmation: str, *, reason: str = "", approval_id: str = ""
    ) -> None:
        """Decide the pending tool call, or whether to go on."""
        body = {"confirmation": confirmation, "reason": reason, "approval_id": approval_id}
        await self._call("POST", f"{_one(session)}/resume", object, body)

    async def answer(
        self, session: str, action: str, content: Mapping[str, JSON], elicitation_id: str
    ) -> None:
        """Answer a tool's question."""
        body = {"action": action, "content": content, "elicitation_id": elicitation_id}
        await self._call("POST", f"{_one(session)}/elicitation", object, body)

    async def cancel(self, session: str) -> None:
        """Cancel the run going on."""
        await self._call("POST", f"{_one(session)}/cancel", object, {})

    @asynccontextmanager
    async def run(
        self,
        session: str,
        agent: str,
        messages: Sequence[Mapping[str, JSON]],
        *,
        name: str = "",
        model: str = "",
    ) -> AsyncGenerator[trio.MemoryReceiveChannel[dict[str, JSON]]]:
        """Run an agent for the block and yield its events as they come; the channel ends with the run.

        Args:
            session: The session's id.
            agent: The server's agent file.
            messages: In the API's words.
            name: The file's agent to start with; empty for its default.
            model: Used from now on; empty leaves it.

        Raises:
            RefusedByServer, NotFound: the run was not started.
            Unavailable: the connection was lost.

        Cancellation: the connection is closed, which cancels the run unless the server is set otherwise.
        """
        path = f"{_one(session)}/agent/{quote(agent, safe='')}" + (f"/{quote(name, safe='')}" if name else "")
        body = msgspec.json.encode({"messages": messages, "model": model})
        send, receive = trio.open_memory_channel[dict[str, JSON]](_BUFFERED)
        with ungrouped():
            async with trio.open_nursery() as nursery:
                await nursery.start(self._pump, path, body, send)
                async with receive:
                    yield receive
                nursery.cancel_scope.cancel()

    async def _pump(
        self,
        path: str,
        body: bytes,
        send: trio.MemorySendChannel[dict[str, JSON]],
        *,
        task_status: trio.TaskStatus[None],
    ) -> None:
        decoder = SseDecoder()
        limits = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS, read=SILENCE_SECONDS)
        headers = {"Content-Type": "application/json"}
        try:
            async with (
                send,
                self._http.stream("POST", path, content=body, headers=headers, timeout=limits) as response,
            ):
                if response.status_code != 200:
                    raise _refusal(response.status_code, await response.aread())
                task_status.started()
                async with aclosing(response.aiter_bytes()) as pieces:
                    async for piece in pieces:
                        for event in decoder.feed(piece):
                            await send.send(msgspec.json.decode(event.data))
        except httpx2.HTTPError as error:
            raise _lost(error) from error
        except trio.BrokenResourceError:
            return  # nobody listens any more

    async def _call(self, method: str, path: str, kind: type[R], body: JSON = None) -> R:
        """Send a request and return its answer.

        Raises:
            RefusedByServer, NotFound: the server says no.
            Unavailable: it cannot be reached, or does not answer.
        """
        content = b"" if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            answer = await self._http.request(method, path, content=content, headers=headers)
        except httpx2.HTTPError as error:
            raise _lost(error) from error
        if not answer.is_success:
            raise _refusal(answer.status_code, answer.content)
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except msgspec.MsgspecError as error:
            raise Unavailable(f"the server's answer cannot be read: {error}") from None


@asynccontextmanager
async def open_client(address: str, token: str = "") -> AsyncGenerator[Client]:
    """Open a client of a server.

    Args:
        address: ``http(s)://host:port``, ``host:port`` or ``unix:///path``.
        token: Its bearer token; empty for none.

    Raises:
        Invalid: the address is none of these.
    """
    transport = None
    base = address.rstrip("/")
    if address.startswith("unix://"):
        transport = httpx2.AsyncHTTPTransport(uds=address.removeprefix("unix://"))
        base = "http://localhost"
    elif "://" not in address:
        base = f"http://{base}"
    if not base.startswith(("http://", "https://")):
        raise Invalid(
            f"cannot connect to {address!r}: expected http(s)://host:port, host:port or unix:///path"
        )
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    limits = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
    try:
        http = httpx2.AsyncClient(base_url=base, headers=headers, timeout=limits, transport=transport)
    except httpx2.InvalidURL as error:
        raise Invalid(f"cannot connect to {address!r}: {error}") from None
    async with http:
        yield Client(http)


def _one(session: str) -> str:
    return f"/api/sessions/{quote(session, safe='')}"


def _refusal(status: int, body: bytes) -> ActorsError:
    try:
        message = str(msgspec.json.decode(body, type=dict[str, JSON])["message"])
    except (msgspec.MsgspecError, KeyError):
        message = f"the server answered {status}"
    return NotFound(message) if status == STATUS[NotFound] else RefusedByServer(message, status=status)


def _lost(error: Exception) -> Unavailable:
    return Unavailable(f"the server cannot be reached: {str(error) or type(error).__name__}")
