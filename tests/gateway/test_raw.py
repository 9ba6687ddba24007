"""Bytes no well-behaved client sends, and what they may not do: the front's HTTP/1.1 on the wire."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.front_io import PeekHangups, Transport
from gateway.front_parser import Incoming, RequestParser
from gateway.http import Reply, Request
from gateway.route import Route
from gateway.settings import Settings
from tests.gateway.kit import PATIENCE, QUICK, Connection, request_bytes, row, serving

HEALTH = row("GET", "/health")
ROWS: tuple[Route, ...] = (HEALTH, row("POST", "/api/echo"))


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost localhost\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\n\r\n", 400),
        (b"GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nA: b\r\n c: d\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        (b"GET /h\xc3\xa9 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 501),
        (b"GET ftp://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (
            b"POST /api/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        (
            b"POST /api/echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
            400,
        ),
        (
            b"POST /api/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
            400,
        ),
        (b"POST /api/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /api/echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
        (b"POST /api/echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 40_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000, 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200, 400),
    ],
)
async def test_what_is_no_request_is_refused_and_the_connection_closed(data: bytes, status: int) -> None:
    async with serving(ROWS) as server:
        answer = await server.raw(data)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:80]
        assert b"Connection: close" in answer
        assert (await server.request("GET", "/health")).status == 200


async def test_a_good_request_before_bad_bytes_is_answered_first() -> None:
    async with serving(ROWS) as server:
        answer = await server.raw(request_bytes("GET", "/health") + b"nonsense\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"HTTP/1.1 ") == 2


async def test_the_data_after_connection_close_is_not_a_request() -> None:
    async with serving(ROWS) as server:
        answer = await server.raw(
            request_bytes("GET", "/health", Connection="close") + request_bytes("GET", "/health")
        )
    assert answer.count(b"HTTP/1.1 ") == 1


async def test_http_1_0_closes_unless_asked_to_stay() -> None:
    async with serving(ROWS) as server, server.connect() as connection:
        await connection.send(b"GET /health HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n")
        assert (await connection.answer()).headers["connection"] == "keep-alive"
        await connection.send(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert (await connection.answer()).headers["connection"] == "close"
        assert await connection.closed()


async def test_a_refused_body_does_not_cost_the_client_the_answer() -> None:
    async with serving(ROWS, msgspec.structs.replace(QUICK, max_request_size=1000)) as server:
        answer = await server.raw(request_bytes("POST", "/api/echo", b"x" * 500_000))
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_a_trailer_and_chunk_extensions_do_not_reach_the_handler() -> None:
    async with serving(ROWS) as server, server.connect() as connection:
        await connection.send(
            b"POST /api/echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3;name=value\r\nabc\r\n0\r\nHost: evil\r\n\r\n"
        )
        assert (await connection.answer()).json["size"] == 3
        assert (await connection.request("GET", "/health")).status == 200


async def test_chunk_overhead_without_end_is_refused() -> None:
    async with serving(ROWS) as server, server.connect() as connection:
        await connection.send(
            b"POST /api/echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;"
        )
        with trio.fail_after(PATIENCE):
            try:
                while True:
                    await connection.send(b"x" * 65536)
            except trio.BrokenResourceError:
                pass
        assert (await server.request("GET", "/health")).status == 200


# --- deadlines ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"GET /health HT", b"P", b"PRI * HTTP/2"])
async def test_a_head_that_does_not_come_closes_the_connection(sent: bytes) -> None:
    async with serving(ROWS, msgspec.structs.replace(QUICK, header_seconds=0.1)) as server:
        assert await server.raw(sent) == b""


async def drip(connection: Connection) -> None:
    while True:
        await connection.send(b"X: y\r\n")
        await trio.sleep(0.02)


async def test_dripping_does_not_extend_the_heads_deadline() -> None:
    async with (
        serving(ROWS, msgspec.structs.replace(QUICK, header_seconds=0.2)) as server,
        server.connect() as connection,
    ):
        await connection.send(b"GET /health HTTP/1.1\r\n")
        with trio.fail_after(PATIENCE), pytest.raises(trio.BrokenResourceError):
            await drip(connection)


async def test_an_idle_connection_is_closed_and_a_second_request_has_its_own_deadline() -> None:
    async with (
        serving(ROWS, msgspec.structs.replace(QUICK, header_seconds=5.0, idle_seconds=0.1)) as server,
        server.connect() as connection,
    ):
        assert (await connection.request("GET", "/health")).status == 200
        assert await connection.closed()


async def test_a_handler_may_take_longer_than_any_deadline_of_the_client() -> None:
    async def slow(_: Request, __: Any) -> Reply:
        await trio.sleep(0.3)
        return Reply("done")

    quick = msgspec.structs.replace(QUICK, header_seconds=0.1, idle_seconds=0.1, send_seconds=0.1)
    async with serving([row("GET", "/slow", slow)], quick) as server:
        assert (await server.request("GET", "/slow")).json == "done"


# --- resources ----------------------------------------------------------------------------------------------


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = sum(1 for _ in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 40, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("few_descriptors")
async def test_running_out_of_descriptors_is_survived_quietly(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(ROWS) as server:
        held: list[trio.SocketStream] = []
        try:
            while True:
                held.append(await trio.open_tcp_stream("127.0.0.1", server.port))
        except OSError:
            pass
        await trio.sleep(0.3)
        for stream in held:
            stream.socket.close()
        with trio.fail_after(PATIENCE):
            assert (await server.request("GET", "/health")).status == 200
        refusals = server.endpoint.metrics.render().decode()
    assert caplog.text.count("cannot accept connections") <= 1
    [failures] = [
        line.split()[1] for line in refusals.splitlines() if line.startswith("greenroom_http_accept_f")
    ][:1]
    assert 0 < float(failures) < 20


async def test_the_watcher_for_systems_without_epoll_notices_who_left() -> None:
    hangups = PeekHangups(every=0.01)
    left = trio.Event()
    ours, theirs = trio.socket.socketpair()
    stayed, other = trio.socket.socketpair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hangups.run)
        for sock, then in ((ours, left.set), (stayed, nursery.cancel_scope.cancel)):
            hangups.watch(sock._sock, then)  # type: ignore[attr-defined]  # pyright: ignore
        theirs.close()
        with trio.fail_after(PATIENCE):
            await left.wait()
        await trio.sleep(0.05)
        hangups.unwatch(stayed._sock)  # type: ignore[attr-defined]  # pyright: ignore
        nursery.cancel_scope.cancel()
    hangups.close()
    for sock in (ours, stayed, other):
        sock.close()


# --- the parser ---------------------------------------------------------------------------------------------

STREAM = (
    request_bytes("GET", "/a?b=c", X_One="1")
    + request_bytes("POST", "/b", b'{"x": 1}')
    + b"POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    + b"GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nframes"
)


def shown(requests: list[Incoming]) -> list[Any]:
    return [
        (each.method, each.target, each.headers, b"".join(each.parts), each.complete) for each in requests
    ]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_requests_are_the_same_however_the_bytes_are_cut(cuts: list[int]) -> None:
    whole, parser = RequestParser(Settings()), RequestParser(Settings())
    whole.feed(STREAM)
    edges = [0, *sorted(cuts), len(STREAM)]
    tail = b""
    for start, end in pairwise(edges):
        if parser.requests and parser.requests[-1].upgrade:
            tail += STREAM[start:end]  # the owner has handed the connection over by now
        elif start != end:
            parser.feed(STREAM[start:end])
    assert shown(list(parser.requests)) == shown(list(whole.requests))
    assert parser.trailing + tail == whole.trailing == b"frames"
    assert [each.complete for each in whole.requests] == [True, True, True, True]


@given(st.binary(max_size=300))
def test_no_bytes_make_the_parser_raise(data: bytes) -> None:
    RequestParser(Settings()).feed(b"GET / HTTP/1.1\r\n" + data)
    RequestParser(Settings()).feed(data)


def test_a_head_is_rebuilt_for_another_server_to_read() -> None:
    parser = RequestParser(Settings())
    parser.feed(STREAM)
    upgrade = parser.requests[-1]
    assert upgrade.head_bytes() == STREAM[STREAM.index(b"GET /ws") : -len(b"frames")]


async def test_closing_a_transport_wakes_its_reader() -> None:
    ours, theirs = trio.socket.socketpair()
    transport = Transport(ours._sock)  # type: ignore[attr-defined]  # pyright: ignore
    received: list[bytes] = []

    async def read() -> None:
        received.append(await transport.receive())

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            transport.close()
    assert received == [b""]
    theirs.close()
