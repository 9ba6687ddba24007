from __future__ import annotations

from typing import Any

import httpx2
import pytest
import trio
import trio.testing

from actors.models.http import IDLE_LIMIT, BodyReader, Transport, open_client
from actors.models.network import NetworkForbiddenError, allow_network, check_network

URL = "http://host.test/v1/x"


class Wire:
    """Connections whose server side the test plays by hand."""

    def __init__(self) -> None:
        self.servers: list[trio.StapledStream[Any, Any]] = []
        self.opened = trio.Event()

    async def connect(self, host: str, port: int, tls: bool) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        ours, theirs = trio.testing.memory_stream_pair()
        self.servers.append(theirs)
        self.opened.set()
        return ours


async def exchange(wire: Wire, client: httpx2.AsyncClient, *sent: bytes, close: bool = False) -> bytes:
    """Send one POST; the server side answers with ``sent`` on its newest connection."""
    got = b""

    async def call() -> None:
        nonlocal got
        async with client.stream("POST", URL, content=b"{}") as response:
            body = BodyReader(response)
            while data := await body.read():
                got += data

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        server = wire.servers[-1]
        assert (await server.receive_some()).startswith(b"POST /v1/x HTTP/1.1\r\n")
        for piece in sent:
            await server.send_all(piece)
            await trio.testing.wait_all_tasks_blocked()
        if close:
            await server.aclose()
    return got


def client_on(wire: Wire) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=Transport(wire.connect), timeout=None)


SIZED = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"


@pytest.mark.parametrize(
    "sent",
    [
        [SIZED],
        [SIZED[:20], SIZED[20:40], SIZED[40:]],
        [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nh\r\n", b"1\r\ni\r\n0\r\n\r\n"],
        [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + SIZED],
    ],
)
async def test_response_in_any_framing_and_the_connection_is_kept(sent: list[bytes]) -> None:
    wire = Wire()
    client = client_on(wire)
    assert await exchange(wire, client, *sent) == b"hi"
    assert await exchange(wire, client, *sent) == b"hi"
    assert len(wire.servers) == 1


@pytest.mark.parametrize(
    ("sent", "close"),
    [
        ([b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi"], False),
        ([b"HTTP/1.1 200 OK\r\n\r\nhi"], True),
        ([b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi"], False),
        ([SIZED + b"surplus"], False),
    ],
)
async def test_connection_that_cannot_be_used_again_is_not(sent: list[bytes], close: bool) -> None:
    wire = Wire()
    client = client_on(wire)
    assert await exchange(wire, client, *sent, close=close) == b"hi"
    assert await exchange(wire, client, SIZED) == b"hi"
    assert len(wire.servers) == 2


async def test_idle_connection_that_died_is_replaced_once() -> None:
    wire = Wire()
    client = client_on(wire)
    await exchange(wire, client, SIZED)
    await wire.servers[0].aclose()
    assert await exchange(wire, client, SIZED) == b"hi"
    assert len(wire.servers) == 2


async def test_old_idle_connection_is_not_trusted(autojump_clock: trio.testing.MockClock) -> None:
    wire = Wire()
    client = client_on(wire)
    await exchange(wire, client, SIZED)
    await trio.sleep(IDLE_LIMIT + 1)
    await exchange(wire, client, SIZED)
    assert len(wire.servers) == 2


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        ([b""], httpx2.RemoteProtocolError),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi"], httpx2.RemoteProtocolError),
        ([b"nonsense\r\n\r\n"], httpx2.RemoteProtocolError),
        ([b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000], httpx2.RemoteProtocolError),
    ],
)
async def test_broken_answer_is_an_error(sent: list[bytes], error: type[Exception]) -> None:
    wire = Wire()
    with pytest.RaisesGroup(error, flatten_subgroups=True):
        await exchange(wire, client_on(wire), *[piece for piece in sent if piece], close=True)


async def test_header_with_a_line_break_is_refused() -> None:
    wire = Wire()
    request = httpx2.Request("POST", URL, headers=[(b"x", b"a\r\nevil: 1")], content=b"")
    with pytest.raises(httpx2.LocalProtocolError):
        await Transport(wire.connect).handle_async_request(request)


async def test_refused_connection_is_a_connect_error() -> None:
    async def refuse(host: str, port: int, tls: bool) -> trio.abc.Stream:
        raise ConnectionRefusedError("nobody there")

    with pytest.raises(httpx2.ConnectError, match="nobody"):
        await httpx2.AsyncClient(transport=Transport(refuse)).post(URL)


async def test_connection_that_never_stands_times_out(autojump_clock: trio.testing.MockClock) -> None:
    async def hang(host: str, port: int, tls: bool) -> trio.abc.Stream:
        await trio.sleep_forever()
        raise AssertionError

    with pytest.raises(httpx2.ConnectTimeout):
        await httpx2.AsyncClient(transport=Transport(hang), timeout=None).post(URL)


async def test_closed_client_keeps_no_connection() -> None:
    wire = Wire()
    client = client_on(wire)
    await exchange(wire, client, SIZED)
    await client.aclose()
    assert await wire.servers[0].receive_some() == b""


def test_behind_a_proxy_the_stock_transport_is_used() -> None:
    with allow_network():
        proxied = open_client({"HTTPS_PROXY": "http://p"})
    assert not isinstance(proxied._transport, Transport)  # pyright: ignore[reportPrivateUsage]
    assert isinstance(open_client({})._transport, Transport)  # pyright: ignore[reportPrivateUsage]


async def test_real_hosts_are_out_of_reach_in_tests() -> None:
    with pytest.raises(NetworkForbiddenError):
        await open_client({}).post("http://api.example.test/v1")
    with pytest.raises(NetworkForbiddenError):
        open_client({"ALL_PROXY": "http://p"})


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_this_machine_is_within_reach(host: str) -> None:
    check_network(host)
