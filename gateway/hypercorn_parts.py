"""Hypercorn's per-connection server, configured and with its WebSocket stream corrected; imports Hypercorn."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import hypercorn.protocol.h2
import hypercorn.protocol.h11
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Event as ProtocolEvent
from hypercorn.events import Updated
from hypercorn.protocol.events import Event, Request, StreamClosed
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.protocol.ws_stream import WSStream
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework, ConnectionState
from wsproto.connection import ConnectionState as SocketState
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage
from wsproto.frame_protocol import CloseReason

from gateway.http import Bind
from gateway.settings import Settings

if TYPE_CHECKING:
    from gateway.handover import HandedStream

_MISSED = 2
_POLL_SECONDS = 0.01


class Worker:
    """What Hypercorn's connections share: the app, the configuration and the word that the server stops."""

    def __init__(self, app: Any, settings: Settings) -> None:
        self._app = ASGIWrapper(cast("ASGIFramework", app))
        self._config = hypercorn_config(settings)
        self._context = WorkerContext(None)
        self._connections: set[IdlingServer] = set()

    async def serve(self, stream: HandedStream, bind: Bind) -> None:
        """Serve one connection to its end."""
        state = ConnectionState({"bind": bind})
        connection = IdlingServer(self._app, self._config, self._context, state, cast("Any", stream))
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    async def begin_closing(self, patience: float) -> None:
        """Let idle connections close and no connection take another request.

        Args:
            patience: Seconds to wait for HTTP/2 streams that are ending: once Hypercorn knows of the end, it
                says goodbye to the connection before the stream's last frame.
        """
        with trio.move_on_after(patience):
            while any(each.is_sending for each in self._connections):  # noqa: ASYNC110 - Hypercorn tells nobody
                await trio.sleep(_POLL_SECONDS)
        await self._context.terminated.set()


class IdlingServer(TCPServer):
    """Hypercorn's server of one connection, which never loses its idle timer.

    The timer is restarted by the app's task, and Quart cancels that task at this very moment, because the end of
    an answer reaches it as the client's disconnect. The new timer would be cancelled with it, and the connection
    would stay open for ever.
    """

    @property
    def is_sending(self) -> bool:
        """An HTTP/2 stream's end is still to be sent."""
        wrapper = getattr(self, "protocol", None)  # set when the connection has started
        protocol = getattr(wrapper, "protocol", None)
        return isinstance(protocol, H2Protocol) and bool(protocol.stream_buffers)

    async def protocol_send(self, event: ProtocolEvent) -> None:
        """Pass an event on to the socket."""
        if isinstance(event, Updated):
            # Two steps of the scheduler and no I/O; the deadline is for form.
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1.0):
                await super().protocol_send(event)
        else:
            await super().protocol_send(event)


def hypercorn_config(settings: Settings) -> Config:
    """Return the settings in Hypercorn's terms."""
    config = Config()
    config.accesslog = None
    config.errorlog = logging.getLogger("gateway.hypercorn")
    config.include_server_header = False
    config.keep_alive_timeout = settings.header_seconds
    config.h11_max_incomplete_size = settings.max_head_size
    config.websocket_ping_interval = settings.ping_seconds
    config.websocket_max_message_size = settings.max_message_size
    return config


class CheckedWSStream(WSStream):
    """Hypercorn's WebSocket with limits that hold.

    A message over the limit is refused with a reason and before it is kept; a peer that leaves two pings
    unanswered is dropped; a protocol violation is answered with its close code; compression is not
    negotiated, because a small frame may hold a thousand times its size.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._unanswered = 0
        self._size = 0
        self._refused = False
        self._ended = trio.Event()

    async def handle(self, event: Event) -> None:
        """Pass an event on, the handshake without extensions."""
        if isinstance(event, Request):
            headers = [pair for pair in event.headers if pair[0].lower() != b"sec-websocket-extensions"]
            event = replace(event, headers=headers)
        elif isinstance(event, StreamClosed):
            self._ended.set()  # the pings' task would keep the connection for an interval more
        await super().handle(event)

    async def _handle_events(self) -> None:
        for event in self.connection.events():
            if isinstance(event, TextMessage | BytesMessage):
                await self._take(event)
            elif isinstance(event, Ping):
                await self._send_wsproto_event(event.response())
            elif isinstance(event, Pong):
                self._unanswered = 0
            elif isinstance(event, CloseConnection):
                if self.connection.state is SocketState.REMOTE_CLOSING:
                    await self._send_wsproto_event(event.response())
                elif self.connection.state is SocketState.OPEN:  # what wsproto says about a violation
                    await self._send_wsproto_event(event)
                await self.send(StreamClosed(stream_id=self.stream_id))
                return

    async def _take(self, event: TextMessage | BytesMessage) -> None:
        if self._refused:
            return
        self._size += len(event.data) if isinstance(event, BytesMessage) else len(event.data.encode())
        limit = self.config.websocket_max_message_size
        if self._size > limit:
            self._refused = True
            self.buffer.clear()
            await self._send_wsproto_event(
                CloseConnection(
                    code=CloseReason.MESSAGE_TOO_BIG, reason=f"a message may have at most {limit} bytes"
                )
            )
            return
        self.buffer.extend(event)
        if event.message_finished:
            assert self.app_put is not None
            await self.app_put(self.buffer.to_message())
            self.buffer.clear()
            self._size = 0

    async def _send_pings(self) -> None:
        interval = self.config.websocket_ping_interval
        assert interval is not None
        while not self.closed:
            with trio.move_on_after(interval):
                await self._ended.wait()
                return
            if self._unanswered >= _MISSED:
                await self.send(StreamClosed(stream_id=self.stream_id))
                return
            self._unanswered += 1
            await self._send_wsproto_event(Ping())


# Both protocols look the class up in their own module at each handshake, and offer no other way to choose it.
for _protocol in (hypercorn.protocol.h11, hypercorn.protocol.h2):
    assert issubclass(_protocol.WSStream, WSStream), "this Hypercorn chooses its stream differently"
    setattr(_protocol, "WSStream", CheckedWSStream)  # noqa: B010 - a module attribute on purpose
