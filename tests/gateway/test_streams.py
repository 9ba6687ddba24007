"""Streams on both doors: events, heartbeats, how a source is left, and last words."""

from __future__ import annotations

from typing import Any, Self

import msgspec
import pytest
import trio

from actors.errors import NotFound
from gateway.http import Reply, Request, StreamReply
from gateway.route import Route, Scope, Stream, follow
from gateway.settings import Settings
from gateway.sse import FAREWELL, PING, SseDialect, open_events
from tests.gateway.kit import PATIENCE, Feed, Following, Frame, Gap, Server, request_bytes, row, serving

WIRE = SseDialect("test", lambda frame: msgspec.json.encode(frame.event))


def streaming(feed: Feed, **options: Any) -> Route:
    async def handler(_: Request, __: Any) -> StreamReply:
        return StreamReply(feed.open, farewell=FAREWELL)

    return row("GET", "/api/stream", handler, reply=Stream(), **options)


async def quick(_: Request, __: Any) -> Reply:
    return Reply({"ok": True})


async def no_streams(server: Server) -> None:
    """Wait until the gauge of open streams is back at nothing."""
    with trio.fail_after(PATIENCE):
        while b"greenroom_http_streams 0.0" not in server.endpoint.metrics.render():  # noqa: ASYNC110
            await trio.sleep(0.01)


async def test_what_a_source_gives_is_sent_at_once_and_its_end_ends_the_answer(door: Settings) -> None:
    feed = Feed()
    async with serving([streaming(feed)], door) as server, server.connect() as connection:
        await connection.send(request_bytes("GET", "/api/stream"))
        status, headers = await connection.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        feed.send(b"data: 1\n\n")
        assert await connection.event() == b"data: 1\n\n"
        feed.send(b"data: 2\n\n", None)
        assert await connection.event() == b"data: 2\n\n"
        assert await connection.chunk() == b""
        await feed.was_left()
    assert feed.left_by is None


async def test_a_stream_ends_by_closing_for_an_http_1_0_client() -> None:
    feed = Feed()
    feed.send(b"data: 1\n\n", None)
    async with serving([streaming(feed)]) as server:
        answer = await server.raw(b"GET /api/stream HTTP/1.0\r\nHost: localhost\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body == b"data: 1\n\n"


@pytest.mark.parametrize("how", ["fin", "rst", "half"])
async def test_a_client_that_leaves_cancels_the_source(door: Settings, how: str) -> None:
    feed = Feed()
    async with serving([streaming(feed)], door) as server:
        async with server.connect() as connection:
            await connection.send(request_bytes("GET", "/api/stream"))
            await connection.head()
            if how == "half":
                await connection.stream.send_eof()
                await feed.was_left()
            elif how == "rst":
                connection.reset()
        await feed.was_left()
        await no_streams(server)
    assert isinstance(feed.left_by, trio.Cancelled)


async def test_a_client_that_pipelines_behind_a_stream_and_leaves_is_noticed() -> None:
    feed = Feed()
    async with serving([streaming(feed), row("GET", "/api/quick", quick)]) as server:
        async with server.connect() as connection:
            await connection.send(request_bytes("GET", "/api/stream") + request_bytes("GET", "/api/quick"))
            await connection.head()
        await feed.was_left()


async def test_a_request_pipelined_behind_a_stream_is_answered_after_its_end(door: Settings) -> None:
    feed = Feed()
    async with (
        serving([streaming(feed), row("GET", "/api/quick", quick)], door) as server,
        server.connect() as connection,
    ):
        await connection.send(request_bytes("GET", "/api/stream") + request_bytes("GET", "/api/quick"))
        await connection.head()
        feed.send(b": one\n\n", None)
        assert await connection.event() == b": one\n\n"
        assert await connection.chunk() == b""
        assert (await connection.answer()).json == {"ok": True}


async def test_two_hundred_cut_streams_leave_nothing_and_the_server_answers(door: Settings) -> None:
    feeds: list[Feed] = []

    async def handler(_: Request, __: Any) -> StreamReply:
        feeds.append(Feed())
        return StreamReply(feeds[-1].open)

    rows = [row("GET", "/api/stream", handler), row("GET", "/api/quick", quick)]
    async with serving(rows, door) as server:

        async def cut(number: int) -> None:
            async with server.connect() as connection:
                await connection.send(request_bytes("GET", "/api/stream"))
                await connection.head()
                if number % 2:
                    connection.reset()

        async with trio.open_nursery() as nursery:
            for number in range(200 if door.front else 40):
                nursery.start_soon(cut, number)
        for feed in feeds:
            await feed.was_left()
        await no_streams(server)
        assert (await server.request("GET", "/api/quick")).status == 200


async def test_a_source_that_fails_ends_its_own_stream_without_a_final_chunk(
    door: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        async def next(self) -> bytes | None:
            await trio.lowlevel.checkpoint()
            raise ValueError("broken source")

        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *_: object) -> None:
            return None

    async def handler(_: Request, __: Any) -> StreamReply:
        return StreamReply(Broken)

    async with serving([row("GET", "/api/stream", handler), row("GET", "/api/quick", quick)], door) as server:
        answer = await server.raw(request_bytes("GET", "/api/stream"))
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert not answer.endswith(b"0\r\n\r\n")
        assert (await server.request("GET", "/api/quick")).status == 200
        await no_streams(server)
    assert "broken source" in caplog.text


async def test_a_client_that_does_not_read_is_dropped_and_delays_nobody(door: Settings) -> None:
    class Endless:
        async def next(self) -> bytes | None:
            await trio.lowlevel.checkpoint()
            return b"x" * 65536

        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *_: object) -> None:
            return None

    async def handler(_: Request, __: Any) -> StreamReply:
        return StreamReply(Endless)

    settings = msgspec.structs.replace(door, send_seconds=0.2)
    rows = [row("GET", "/api/endless", handler), row("GET", "/api/quick", quick)]
    async with serving(rows, settings) as server, server.connect(receive_buffer=4096) as stuck:
        await stuck.send(request_bytes("GET", "/api/endless"))
        await stuck.head()
        with trio.fail_after(PATIENCE):
            assert (await server.request("GET", "/api/quick")).status == 200
        await no_streams(server)


async def test_a_slow_handler_is_cancelled_when_its_client_leaves(door: Settings) -> None:
    cancelled = trio.Event()

    async def waits(_: Request, __: Any) -> Reply:
        try:
            return await trio.sleep_forever()
        except trio.Cancelled:
            cancelled.set()
            raise

    async with serving([row("GET", "/api/wait", waits)], door) as server:
        async with server.connect() as connection:
            await connection.send(request_bytes("GET", "/api/wait"))
            await trio.sleep(0.01)
        with trio.fail_after(PATIENCE):
            await cancelled.wait()


async def test_head_of_a_stream_does_not_open_it(door: Settings) -> None:
    feed = Feed()
    async with serving([streaming(feed)], door) as server:
        answer = await server.request("HEAD", "/api/stream")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    assert not feed.entered.is_set()


# --- events -------------------------------------------------------------------------------------------------


def following(*batches: Any, ends: bool = True, **options: Any) -> Route:
    async def subscribe(request: Request, _: Any, after: int | None) -> Any:
        if request.path_params["id"] != "known":
            raise NotFound("session not found")
        return Following(batches, ends=ends).open

    return follow("/api/sessions/{id}/events", Scope.READ, subscribe, WIRE, summary="Follow", **options)


async def test_a_follow_row_streams_frames_gaps_and_the_contracts_headers(door: Settings) -> None:
    rows = [following([Frame(3, {"a": 1}), Frame(5, {"b": 2})], Gap(), [Frame(9, {"c": 3})])]
    async with serving(rows, door) as server:
        answer = await server.request("GET", "/api/sessions/known/events", Accept_Encoding="gzip, br")
        missing = await server.request("GET", "/api/sessions/other/events")
    assert answer.body == (
        b'id: 3\ndata: {"a":1}\n\nid: 5\ndata: {"b":2}\n\ndata: {"type":"gap"}\n\nid: 9\ndata: {"c":3}\n\n'
    )
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in answer.headers
    assert (missing.status, missing.json) == (404, {"message": "session not found"})


async def test_silence_is_filled_with_pings_that_carry_no_id(door: Settings) -> None:
    async with (
        serving([following([Frame(1, {})], ends=False, heartbeat=0.02)], door) as server,
        server.connect() as connection,
    ):
        await connection.send(request_bytes("GET", "/api/sessions/known/events"))
        await connection.head()
        assert await connection.event() == b"id: 1\ndata: {}\n\n"
        assert await connection.event() == PING
        assert await connection.event() == PING


async def test_an_idle_stream_has_no_deadline(door: Settings) -> None:
    settings = msgspec.structs.replace(door, header_seconds=0.05, idle_seconds=0.05, body_seconds=0.05)
    feed = Feed()
    async with serving([streaming(feed)], settings) as server, server.connect() as connection:
        await connection.send(request_bytes("GET", "/api/stream"))
        await connection.head()
        await trio.sleep(0.3)
        feed.send(b"data: 1\n\n")
        assert await connection.event() == b"data: 1\n\n"


async def test_readers_share_one_encoding_of_an_event(autojump_clock: trio.testing.MockClock) -> None:
    made = 0

    def encode(_: Any) -> bytes:
        nonlocal made
        made += 1
        return b"{}"

    frames = [Frame(1), Frame(2)]
    for _ in range(3):
        reply = open_events(Following([frames]).open, SseDialect("counted", encode))
        async with reply.open() as source:
            assert await source.next() == b"id: 1\ndata: {}\n\nid: 2\ndata: {}\n\n"
            assert await source.next() is None
    assert made == 2
