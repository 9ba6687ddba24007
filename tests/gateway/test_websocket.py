"""WebSockets: refusals before the upgrade, limits, liveness, close codes, and followers and commands over them."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio_websocket import ConnectionClosed

from actors.errors import Conflict, Denied, Overloaded
from gateway.http import JSON, Reply, Request
from gateway.route import Route, Scope, SocketRunner, socket
from gateway.settings import Settings
from gateway.websocket import Socket, command_socket, follow_socket
from tests.gateway.kit import (
    PATIENCE,
    Answer,
    Connection,
    Following,
    Frame,
    Gap,
    Server,
    request_bytes,
    row,
    serving,
)

SAMPLE = Path(__file__).parents[1] / "data/raw/ws_upgrade_trailing_byte.http"
TRAILING = (
    b"GET /ws/echo HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\nx"
)


async def echo(connection: Socket) -> None:
    while True:
        await connection.send(await connection.receive())


def at(path: str, runner: SocketRunner, **options: Any) -> Route:
    async def handler(_: Request, __: Any) -> SocketRunner:
        return runner

    return socket(path, Scope.READ, handler, summary="A test's socket", **options)


ROWS: tuple[Route, ...] = (at("/ws/echo", echo), row("GET", "/health", scope=Scope.PUBLIC))


async def close_code(server: Server, path: str, *messages: str) -> tuple[int, str]:
    """Open a socket, send, and return the close code and reason it ends with."""
    with trio.fail_after(PATIENCE):
        async with server.websocket(path) as websocket:
            try:
                for message in messages:
                    await websocket.send_message(message)
                while True:
                    await websocket.get_message()
            except ConnectionClosed as exc:
                return (exc.reason.code, exc.reason.reason or "") if exc.reason else (0, "")


async def refusal(server: Server, path: str, **headers: str) -> Answer:
    """Ask for an upgrade that is refused and return the answer."""
    async with server.connect() as connection:
        await connection.send(upgrade_bytes(path, **headers))
        return await connection.answer()


async def test_messages_go_both_ways(door: Settings) -> None:
    async with serving(ROWS, door) as server, server.websocket("/ws/echo") as websocket:
        for message in ("text", b"bytes", "", "é" * 1000):
            await websocket.send_message(message)
            assert await websocket.get_message() == message


async def test_http_and_sockets_share_one_kept_connection(door: Settings) -> None:
    async with serving(ROWS, door) as server, server.connect() as connection:
        assert (await connection.request("GET", "/health")).status == 200
        await upgrade(connection)
        await connection.send(frame(0x1, b"hello"))
        assert await connection.exactly(7) == b"\x81\x05hello"


# --- refusals -----------------------------------------------------------------------------------------------


async def test_a_socket_is_refused_before_the_upgrade_with_the_http_answer(door: Settings) -> None:
    async def refuse(_: Request, __: Any) -> SocketRunner:
        raise Denied("not for you")

    rows = [socket("/ws/never", Scope.READ, refuse, summary="Refuses"), *ROWS]
    async with serving(rows, msgspec.structs.replace(door, auth_token="secret")) as server:
        assert (await refusal(server, "/ws/echo")).status == 401
        assert (await refusal(server, "/ws/never", Authorization="Bearer secret")).status == 403
        assert (await refusal(server, "/ws/nowhere", Authorization="Bearer secret")).status == 404
        async with server.websocket("/ws/echo", Authorization="Bearer secret") as websocket:
            await websocket.send_message("hello")
            assert await websocket.get_message() == "hello"


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
async def test_a_foreign_page_cannot_open_a_socket(door: Settings, origin: str) -> None:
    async with serving(ROWS, msgspec.structs.replace(door, auth_token="secret")) as server:
        assert (await refusal(server, "/ws/echo", Origin=origin, Authorization="Bearer secret")).status == 403
        assert (await refusal(server, "/ws/echo", Origin=origin)).status == 403


async def test_a_rebound_host_cannot_open_a_socket(door: Settings) -> None:
    async with serving(ROWS, door) as server:
        answer = await server.raw(TRAILING[:-1].replace(b"localhost", b"evil.example"))
    assert answer.startswith(b"HTTP/1.1 403 ")


async def test_a_plain_get_of_a_socket_says_upgrade_required(door: Settings) -> None:
    async with serving(ROWS, door) as server:
        answer = await server.request("GET", "/ws/echo")
    assert (answer.status, answer.headers["upgrade"]) == (426, "websocket")


async def test_one_stray_byte_after_the_upgrade_costs_only_its_own_connection(door: Settings) -> None:
    async with serving(ROWS, door) as server, server.websocket("/ws/echo") as other:
        for data in (TRAILING, TRAILING.replace(b"/ws/echo", b"/ws/nowhere"), *samples()):
            with trio.move_on_after(1):
                await server.raw(data)
        await other.send_message("still here")
        assert await other.get_message() == "still here"
        assert (await server.request("GET", "/health")).status == 200


async def test_a_stray_byte_after_the_upgrade_is_refused_without_a_word_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(ROWS, Settings()) as server:
        with trio.fail_after(PATIENCE):
            assert (await server.raw(TRAILING)).startswith(b"HTTP/1.1 400 ")
    assert caplog.records == []


def samples() -> list[bytes]:
    return [SAMPLE.read_bytes()] if SAMPLE.exists() else []


# --- framing and limits -------------------------------------------------------------------------------------


def upgrade_bytes(path: str, **headers: Any) -> bytes:
    """Return an upgrade request."""
    key = base64.b64encode(os.urandom(16)).decode()
    return request_bytes(
        "GET",
        path,
        Connection="Upgrade",
        Upgrade="websocket",
        Sec_WebSocket_Version="13",
        Sec_WebSocket_Key=key,
        **headers,
    )


async def upgrade(connection: Connection, path: str = "/ws/echo") -> None:
    await connection.send(upgrade_bytes(path, Sec_WebSocket_Extensions="permessage-deflate"))
    status, headers = await connection.head()
    assert status == 101
    assert "sec-websocket-extensions" not in headers


def frame(opcode: int, data: bytes, *, last: bool = True) -> bytes:
    """Return a client's frame, masked with zeros."""
    head = bytes([opcode | (0x80 if last else 0)])
    if len(data) < 126:
        head += bytes([0x80 | len(data)])
    elif len(data) < 65536:
        head += bytes([0x80 | 126]) + len(data).to_bytes(2, "big")
    else:
        head += bytes([0x80 | 127]) + len(data).to_bytes(8, "big")
    return head + b"\0\0\0\0" + data


async def test_a_message_in_fragments_with_pings_between_is_one_message(door: Settings) -> None:
    async with serving(ROWS, door) as server, server.connect() as connection:
        await upgrade(connection)
        parts = [b"one ", b"com", b"mand", b" in", b" se", b"ven", b" parts"]
        for number, part in enumerate(parts):
            await connection.send(frame(0x1 if number == 0 else 0x0, part, last=number == 6))
            await connection.send(frame(0x9, b"p%d" % number))
        expected = b"".join(parts)
        received = b""
        while received.count(b"\x8a\x02p") < 7 or expected not in received:
            received += await connection.exactly(1)
        assert received.count(b"\x81") == 1


@pytest.mark.parametrize("pieces", [1, 5])
async def test_the_message_limit_is_reported_when_it_is_passed(door: Settings, pieces: int) -> None:
    limit = 1000
    settings = msgspec.structs.replace(door, max_message_size=limit)
    async with serving(ROWS, settings) as server, server.connect() as connection:
        await upgrade(connection)
        for size in (limit - 1, limit):
            await send_pieces(connection, size, pieces)
            assert (await connection.exactly(4 + size))[4:] == b"x" * size
        await send_pieces(connection, limit + 1, pieces)
        closing = await connection.exactly(4)
        assert closing[0] == 0x88
        assert int.from_bytes(closing[2:4], "big") == 1009
        assert b"1000 bytes" in await connection.exactly(closing[1] - 2)


async def send_pieces(connection: Connection, size: int, pieces: int) -> None:
    each = size // pieces
    for number in range(pieces):
        part = b"x" * (each if number < pieces - 1 else size - each * (pieces - 1))
        await connection.send(frame(0x1 if number == 0 else 0x0, part, last=number == pieces - 1))


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"\xc1\x80\0\0\0\0", 1002), (b"\x81\x82\0\0\0\0\xff\xfe", 1007), (b"\x83\x80\0\0\0\0", 1002)],
)
async def test_a_violation_is_answered_with_its_close_code(door: Settings, data: bytes, code: int) -> None:
    async with serving(ROWS, door) as server, server.connect() as connection:
        await upgrade(connection)
        await connection.send(data)
        closing = await connection.exactly(4)
    assert (closing[0], int.from_bytes(closing[2:4], "big")) == (0x88, code)


# --- liveness -----------------------------------------------------------------------------------------------


async def test_a_peer_that_answers_no_pings_is_dropped(door: Settings) -> None:
    settings = msgspec.structs.replace(door, ping_seconds=0.1)
    async with serving(ROWS, settings) as server, server.connect() as connection:
        await upgrade(connection)
        received = await connection.rest()
    assert received.count(b"\x89\x00") == 2


async def test_an_idle_peer_that_answers_pings_stays(door: Settings) -> None:
    settings = msgspec.structs.replace(door, ping_seconds=0.05, header_seconds=0.1, idle_seconds=0.1)
    async with serving(ROWS, settings) as server, server.websocket("/ws/echo") as websocket:
        await trio.sleep(0.5)
        await websocket.send_message("still here")
        assert await websocket.get_message() == "still here"


async def test_a_peer_that_leaves_cancels_its_runner(door: Settings) -> None:
    cancelled = trio.Event()

    async def waits(_: Socket) -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            cancelled.set()
            raise

    async with serving([at("/ws/wait", waits)], door) as server:
        async with server.connect() as connection:
            await upgrade(connection, "/ws/wait")
        with trio.fail_after(PATIENCE):
            await cancelled.wait()


async def test_a_peer_that_does_not_read_is_dropped_and_delays_nobody(door: Settings) -> None:
    ended = trio.Event()

    async def floods(connection: Socket) -> None:
        try:
            while True:
                await connection.send("x" * 65536)
        finally:
            ended.set()

    settings = msgspec.structs.replace(door, send_seconds=0.2)
    async with (
        serving([at("/ws/flood", floods), *ROWS], settings) as server,
        server.connect(receive_buffer=4096) as stuck,
    ):
        await upgrade(stuck, "/ws/flood")
        assert (await server.request("GET", "/health")).status == 200
        with trio.fail_after(PATIENCE):
            await ended.wait()


# --- close codes --------------------------------------------------------------------------------------------


async def test_close_codes_tell_an_end_from_a_refusal_and_a_bug(
    door: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    def raising(failure: Exception) -> SocketRunner:
        async def run(_: Socket) -> None:
            raise failure

        return run

    async def ends(connection: Socket) -> None:
        await connection.send("the end")

    rows = [
        at("/ws/end", ends),
        at("/ws/bug", raising(ValueError("secret text"))),
        at("/ws/group", raising(ExceptionGroup("g", [ValueError("secret text")]))),
        at("/ws/conflict", raising(Conflict("already running"))),
        at("/ws/busy", raising(Overloaded("too much"))),
        *ROWS,
    ]
    async with serving(rows, door) as server:
        assert await close_code(server, "/ws/end") == (1000, "")
        assert await close_code(server, "/ws/conflict") == (4409, "already running")
        assert await close_code(server, "/ws/busy") == (1013, "too much")
        for path in ("/ws/bug", "/ws/group"):
            code, reason = await close_code(server, path)
            assert code == 1011
            assert "secret" not in reason
            assert reason.rpartition(" ")[2] in caplog.text
        assert (await server.request("GET", "/health")).status == 200


async def test_a_stopping_server_says_1012(door: Settings) -> None:
    async with serving(ROWS, door) as server:
        with trio.fail_after(PATIENCE):
            async with server.websocket("/ws/echo") as websocket:
                server.stop.request("test")
                with pytest.raises(ConnectionClosed):
                    await websocket.get_message()
                assert websocket.closed is not None
                assert websocket.closed.code == 1012
        await server.ended()


# --- what runs over them ------------------------------------------------------------------------------------


async def test_a_follower_sends_frames_and_gaps_and_ignores_what_the_client_says(door: Settings) -> None:
    def encode(each: Any) -> bytes | None:
        return (
            None if each.event == "hidden" else msgspec.json.encode({"id": str(each.seq), "data": each.event})
        )

    following = Following([[Frame(1, "a"), Frame(2, "hidden")], Gap(7), [Frame(8, "b")]], ends=False)
    runner = follow_socket(following.open, encode, lambda gap: msgspec.json.encode({"gap": gap.resume}))
    async with (
        serving([at("/ws/follow", runner)], door) as server,
        server.websocket("/ws/follow") as websocket,
    ):
        for _ in range(100):
            await websocket.send_message("ignored")
        got = [msgspec.json.decode(await websocket.get_message()) for _ in range(3)]
    assert got == [{"id": "1", "data": "a"}, {"gap": 7}, {"id": "8", "data": "b"}]


async def test_commands_are_answered_by_ref_in_order(door: Settings) -> None:
    async def answer(command: dict[str, JSON]) -> JSON:
        if command["op"] == "fail":
            raise Conflict("not now")
        if command["op"] == "bug":
            raise ValueError
        return command["op"]

    async with serving([at("/ws/commands", command_socket(answer))], door) as server:
        async with server.websocket("/ws/commands") as websocket:
            for message in ('{"ref":1,"op":"a"}', '{"ref":"x","op":"fail"}', "[]", '{"op":"b"}'):
                await websocket.send_message(message)
            got = [msgspec.json.decode(await websocket.get_message()) for _ in range(4)]
        assert got[0] == {"ref": 1, "reply": "a"}
        assert got[1] == {"ref": "x", "error": {"status": 409, "code": "conflict", "message": "not now"}}
        assert got[2]["error"]["status"] == 400
        assert got[3] == {"ref": None, "reply": "b"}
        assert (await close_code(server, "/ws/commands", '{"op":"bug"}'))[0] == 1011


async def test_open_sockets_are_counted(door: Settings) -> None:
    def gauge(server: Server) -> bool:
        return b"greenroom_http_sockets 1.0" in server.endpoint.metrics.render()

    async with serving(ROWS, door) as server:
        async with server.websocket("/ws/echo") as websocket:
            await websocket.send_message("a")
            await websocket.get_message()
            assert gauge(server)
        with trio.fail_after(PATIENCE):
            while gauge(server):  # noqa: ASYNC110
                await trio.sleep(0.01)


async def test_an_upgrade_of_a_plain_row_is_refused(door: Settings) -> None:
    async def plain(_: Request, __: Any) -> Reply:
        return Reply("plain")

    async with serving([row("GET", "/api/plain", plain)], door) as server:
        assert (await refusal(server, "/api/plain")).status == 400
