"""Listening, announcing and the way down: addresses, signals, stuck clients, HTTP/2."""

from __future__ import annotations

import os
import signal
import socket
import stat
from pathlib import Path
from typing import Any, Self

import h2.config
import h2.connection
import h2.events
import msgspec
import pytest
import trio

from actors.errors import Invalid, Unavailable
from gateway.endpoint import Endpoint
from gateway.http import Reply, Request, StreamReply
from gateway.listeners import Listener, open_listeners
from gateway.route import Table
from gateway.serve import Stop, announce, serve, stop_on_signals
from gateway.settings import Settings
from gateway.sse import FAREWELL
from tests.gateway.kit import PATIENCE, QUICK, Connection, Feed, Server, request_bytes, row, serving

HEALTH = row("GET", "/health")


class Endless:
    """Sends as much as anybody takes."""

    async def next(self) -> bytes | None:
        await trio.lowlevel.checkpoint()
        return b"data: " + b"x" * 65536 + b"\n\n"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


def stream_row(path: str, feed: Any) -> Any:
    async def handler(_: Request, __: Any) -> StreamReply:
        return StreamReply(feed, farewell=FAREWELL)

    return row("GET", path, handler)


# --- the way down -------------------------------------------------------------------------------------------


async def test_a_stream_gets_its_last_word_at_an_event_border_and_a_clean_end(door: Settings) -> None:
    feed = Feed()
    async with (
        serving([stream_row("/api/stream", feed.open)], door) as server,
        server.connect() as connection,
    ):
        await connection.send(request_bytes("GET", "/api/stream"))
        await connection.head()
        feed.send(b"data: 1\n\n")
        assert await connection.event() == b"data: 1\n\n"
        server.stop.request("test")
        assert await connection.event() == FAREWELL
        assert await connection.chunk() == b""
        assert await connection.closed()
        await server.ended()
    assert feed.left.is_set()
    assert feed.left_by is None  # not as if the client had left


async def test_a_request_in_progress_is_answered_and_its_connection_closed(door: Settings) -> None:
    entered, go_on = trio.Event(), trio.Event()

    async def waits(_: Request, __: Any) -> Reply:
        entered.set()
        await go_on.wait()
        return Reply("done")

    async with serving([row("GET", "/api/wait", waits)], door) as server, server.connect() as connection:
        await connection.send(request_bytes("GET", "/api/wait"))
        await entered.wait()
        server.stop.request("test")
        await trio.sleep(0.05)
        go_on.set()
        assert (await connection.answer()).json == "done"
        assert await connection.closed()
        await server.ended()


async def test_idle_and_silent_connections_do_not_delay_the_end(door: Settings) -> None:
    patient = msgspec.structs.replace(door, grace_seconds=60.0)
    async with serving([HEALTH], patient) as server, server.connect() as idle, server.connect() as silent:
        assert (await idle.request("GET", "/health")).status == 200
        server.stop.request("test")
        assert await idle.closed()
        assert await silent.closed()
        await server.ended()


async def test_stuck_clients_and_handlers_do_not_hold_the_server_up(door: Settings) -> None:
    async def never(_: Request, __: Any) -> Reply:
        return await trio.sleep_forever()

    rows = [row("GET", "/api/never", never), stream_row("/api/endless", Endless), HEALTH]
    async with (
        serving(rows, door) as server,
        server.connect(receive_buffer=4096) as stuck,
        server.connect() as waiting,
    ):
        await stuck.send(request_bytes("GET", "/api/endless"))
        await stuck.head()
        await waiting.send(request_bytes("GET", "/api/never"))
        async with server.connect() as half:
            await half.send(b"POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nab")
            await trio.sleep(0.05)
            server.stop.request("test")
            with trio.fail_after(door.grace_seconds + 2):
                await server.ended()
            assert await half.closed()
            assert await waiting.closed()


async def test_nothing_is_accepted_any_more_and_the_port_is_free_at_once(door: Settings) -> None:
    async with serving([HEALTH], door) as server:
        assert (await server.request("GET", "/health")).status == 200
        server.stop.request("test")
        await server.ended()
        with pytest.raises(OSError):  # noqa: PT011 - whichever refusal the system gives
            await trio.open_tcp_stream("127.0.0.1", server.port)
        async with serving([HEALTH], door, address=server.address) as second:
            assert (await second.request("GET", "/health")).status == 200


async def test_a_cancelled_server_closes_every_connection(door: Settings) -> None:
    endpoint = Endpoint(Table([stream_row("/api/endless", Endless)]), None, door)
    async with trio.open_nursery() as nursery:

        async def run(task_status: trio.TaskStatus[list[str]]) -> None:
            await serve(endpoint, ["127.0.0.1:0"], Stop(), announce=lambda _: None, task_status=task_status)

        [address] = await nursery.start(run)
        server = Server(endpoint, address, Stop(), nursery)
        async with server.connect(receive_buffer=4096) as stuck:
            await stuck.send(request_bytes("GET", "/api/endless"))
            await stuck.head()
            with trio.fail_after(PATIENCE):
                nursery.cancel_scope.cancel()
                with trio.CancelScope(shield=True, deadline=trio.current_time() + PATIENCE):
                    await stuck.rest()


# --- signals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_asks_for_the_end(number: signal.Signals) -> None:
    with trio.fail_after(PATIENCE):
        async with stop_on_signals() as stop:
            os.kill(os.getpid(), number)
            await stop.wait()
        assert stop.reason == number.name


async def test_a_second_signal_cancels_what_is_still_closing() -> None:
    reached: list[str] = []
    with trio.fail_after(PATIENCE):
        async with stop_on_signals() as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            await stop.wait()
            reached.append("first")
            os.kill(os.getpid(), signal.SIGTERM)
            await trio.sleep(PATIENCE * 2)
            reached.append("not cancelled")
    assert reached == ["first"]


# --- addresses ----------------------------------------------------------------------------------------------


def listen(address: str) -> Listener:
    [listener] = open_listeners([address], QUICK)
    return listener


@pytest.mark.parametrize(
    ("address", "shown", "bind"),
    [
        ("127.0.0.1:0", "127.0.0.1:", "loopback"),
        ("localhost:0", "127.0.0.1:", "loopback"),
        ("0.0.0.0:0", "0.0.0.0:", "network"),
        (":0", "0.0.0.0:", "network"),
    ],
)
def test_a_tcp_address_is_bound_and_announced_as_it_is(
    address: str, shown: str, bind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    listener = listen(address)
    announce(listener)
    assert capsys.readouterr().out == f"Listening on {shown}{listener.sock.getsockname()[1]}\n"
    assert listener.bind == bind
    listener.close()
    listener.close()


@pytest.mark.parametrize(
    "address",
    [
        "",
        "8080",
        "localhost",
        "127.0.0.1:http",
        "127.0.0.1:70000",
        "::1:80",
        "http://x:1",
        "unix://",
        "fd://2",
        "fd://x",
    ],
)
def test_a_malformed_address_is_refused_by_name(address: str) -> None:
    with pytest.raises(Invalid, match=r"cannot listen on '") as caught:
        listen(address)
    assert address in str(caught.value)


def test_an_address_in_use_is_refused_and_the_others_are_let_go() -> None:
    first = listen("127.0.0.1:0")
    with pytest.raises(Unavailable, match="Address already in use"):
        open_listeners(["127.0.0.1:0", first.address], QUICK)
    first.close()


async def test_a_unix_socket_is_private_serves_and_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "greenroom.sock"
    async with serving([HEALTH], address=f"unix://{path}") as server:
        assert server.address == f"unix://{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        sock = trio.socket.socket(socket.AF_UNIX)
        await sock.connect(str(path))
        stream = trio.SocketStream(sock)
        assert (await Connection(stream).request("GET", "/health", host="any.example")).status == 200
        stream.socket.close()
    assert not path.exists()


def test_a_stale_unix_socket_is_replaced_a_live_one_and_a_file_are_not(tmp_path: Path) -> None:
    path = tmp_path / "greenroom.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    live = listen(f"unix://{path}")
    with pytest.raises(Unavailable, match="another server is using it"):
        listen(f"unix://{path}")
    live.close()
    path.write_text("precious")
    with pytest.raises(Unavailable, match="not a socket"):
        listen(f"unix://{path}")
    assert path.read_text() == "precious"


async def test_an_inherited_socket_is_served() -> None:
    inherited = socket.socket()
    inherited.bind(("127.0.0.1", 0))
    port = inherited.getsockname()[1]
    async with serving([HEALTH], address=f"fd://{inherited.detach()}") as server:
        assert server.port == port
        assert (await server.request("GET", "/health")).status == 200


# --- HTTP/2 -------------------------------------------------------------------------------------------------


async def http2(server: Server, path: str, *, until: bytes = b"") -> tuple[dict[str, str], bytes, bool]:
    """Ask over HTTP/2 with prior knowledge; return headers, body, and whether the stream has ended."""
    connection = h2.connection.H2Connection(
        h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
    )
    connection.initiate_connection()
    connection.send_headers(
        1,
        [(":method", "GET"), (":path", path), (":scheme", "http"), (":authority", "localhost")],
        end_stream=True,
    )
    headers: dict[str, str] = {}
    body = b""
    async with server.connect() as client:
        await client.send(connection.data_to_send())
        with trio.fail_after(PATIENCE):
            while True:
                data = await client.stream.receive_some()
                if not data:
                    return headers, body, False
                for event in connection.receive_data(data):
                    if isinstance(event, h2.events.ResponseReceived):
                        headers = {str(name): str(value) for name, value in event.headers or ()}
                    elif isinstance(event, h2.events.DataReceived):
                        body += event.data or b""
                        if until and until in body:
                            server.stop.request("test")
                    elif isinstance(event, h2.events.StreamEnded):
                        return headers, body, True
                    elif isinstance(event, h2.events.ConnectionTerminated | h2.events.StreamReset):
                        return headers, body, False
                await client.send(connection.data_to_send())


async def test_http_2_with_prior_knowledge_is_served_on_the_same_port(door: Settings) -> None:
    async with serving([HEALTH], door) as server:
        headers, body, ended = await http2(server, "/health?a=b")
    assert ended
    assert headers[":status"] == "200"
    assert msgspec.json.decode(body)["query"] == {"a": ["b"]}


async def test_http_2_streams_get_their_last_word_too(door: Settings) -> None:
    feed = Feed()
    feed.send(b"data: 1\n\n")
    async with serving([stream_row("/api/stream", feed.open)], door) as server:
        headers, body, ended = await http2(server, "/api/stream", until=b"data: 1")
        await server.ended()
    assert headers["content-type"] == "text/event-stream"
    assert body == b"data: 1\n\n" + FAREWELL
    assert ended
    assert feed.left_by is None


async def test_an_http_2_upgrade_with_a_body_is_served_as_http_1(door: Settings) -> None:
    async with serving([row("POST", "/api/echo")], door) as server:
        answer = await server.request(
            "POST",
            "/api/echo",
            b"hello",
            Connection="Upgrade, HTTP2-Settings",
            Upgrade="h2c",
            HTTP2_Settings="AAMAAABkAAQAAP__",
        )
    assert (answer.status, answer.json["size"]) == (200, 5)
