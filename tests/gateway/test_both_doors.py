"""What every HTTP client may rely on, through the front and through Quart alike."""

from __future__ import annotations

import json
import logging

import pytest
import trio

from .doors import open_door, parse, read_all

JSON = {"Content-Type": "application/json"}


@pytest.fixture(params=[True, False], ids=["front", "quart"])
async def door(request):
    async with open_door(front=request.param, max_request_size=1000, grace_seconds=0.5) as opened:
        yield opened


async def test_a_body_is_decoded_and_answered_with_a_newline(door):
    status, headers, body = await door.request("POST", "/api/echo", b'{"text":"hi"}', JSON)
    assert (status, body) == (200, b'{"text":"hi","number":0}\n')
    assert headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("body", "headers", "status", "message"),
    [
        (b"{", JSON, 400, "invalid request body: code=400, message=Syntax error: offset="),
        (
            b'{"number":"x"}',
            JSON,
            400,
            "invalid request body: code=400, message=Unmarshal type error: expected=",
        ),
        (b"{}", {}, 400, "invalid request body: code=415, message=Unsupported Media Type"),
        (b"", {}, 200, ""),
        (b'{"TEXT":"a","other":1} trailing', JSON, 200, ""),
        (b'{"text":null}', JSON, 200, ""),
    ],
)
async def test_the_lenient_body_rules(door, body, headers, status, message):
    found, _, answer = await door.request("POST", "/api/echo", body, headers)
    assert found == status
    if message:
        assert json.loads(answer)["message"].startswith(message)


async def test_the_strict_dialect_has_its_own_error_body(door):
    status, _, body = await door.request("POST", "/api/v1/echo", b"{", JSON)
    assert status == 400
    assert set(json.loads(body)["error"]) == {"code", "message"}


async def test_unknown_paths_and_methods_answer_in_the_contracts_body(door):
    status, _, body = await door.request("GET", "/api/unknown")
    assert (status, json.loads(body)) == (404, {"message": "Not Found"})
    status, headers, body = await door.request("DELETE", "/api/size")
    assert (status, json.loads(body)) == (405, {"message": "Method Not Allowed"})
    assert set(headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}
    status, _, body = await door.request("GET", "/api/v1/unknown")
    assert (status, "error" in json.loads(body)) == (404, True)


async def test_a_body_at_the_limit_passes_and_one_byte_more_is_refused(door):
    status, _, body = await door.request("POST", "/api/size", b"x" * 1000)
    assert (status, json.loads(body)["size"]) == (200, 1000)
    status, _, body = await door.request("POST", "/api/size", b"x" * 1001)
    assert (status, json.loads(body)) == (413, {"message": "Request Entity Too Large"})


async def test_a_chunked_body_cannot_get_around_the_limit(door):
    chunks = b"".join(b"64\r\n" + b"x" * 100 + b"\r\n" for _ in range(11)) + b"0\r\n\r\n"
    status, _, _ = await door.request("POST", "/api/size", chunks, {"Transfer-Encoding": "chunked"})
    assert status == 413
    chunks = b"".join(b"64\r\n" + b"x" * 100 + b"\r\n" for _ in range(10)) + b"0\r\n\r\n"
    status, _, body = await door.request("POST", "/api/size", chunks, {"Transfer-Encoding": "chunked"})
    assert (status, json.loads(body)["size"]) == (200, 1000)


async def test_a_claimed_length_over_the_limit_is_refused_before_the_body_comes(door):
    with trio.fail_after(2):
        status, _, _ = await door.request("POST", "/api/size", b"x", {"Content-Length": "99999999"})
    assert status == 413


async def test_a_bug_is_a_500_with_an_incident_in_the_log_only(door, caplog):
    with caplog.at_level(logging.ERROR, "gateway"):
        for path in ("/api/boom", "/api/group"):
            status, _, body = await door.request("GET", path)
            assert (status, json.loads(body)) == (500, {"message": "Internal Server Error"})
    assert len(caplog.records) == 2
    assert (await door.request("GET", "/api/size"))[0] == 200


async def test_refusals_have_their_status_and_retry_after(door):
    assert (await door.request("GET", "/api/refused/404"))[0] == 404
    assert (await door.request("GET", "/api/refused/409"))[0] == 409
    status, headers, _ = await door.request("GET", "/api/refused/429")
    assert (status, headers["retry-after"]) == (429, "4")


async def test_a_stream_ends_by_itself_and_is_not_compressed(door):
    status, headers, body = await door.request("GET", "/api/short", headers={"Accept-Encoding": "gzip, br"})
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    assert "content-encoding" not in headers
    assert body == b"data: 1 \n\ndata: 2 \n\ndata: 3 \n\n"


@pytest.mark.parametrize("how", ["fin", "reset"])
async def test_a_client_that_leaves_cancels_its_stream_and_its_handler(door, how):
    import socket as stdlib
    import struct

    for path in ("/api/endless", "/api/slow"):
        stream = await door.connect()
        opened = door.world.opened
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: {door.host}\r\n\r\n".encode())
        while door.world.opened == opened:
            await trio.sleep(0.01)
        if how == "reset":
            stream.setsockopt(stdlib.SOL_SOCKET, stdlib.SO_LINGER, struct.pack("ii", 1, 0))
        await stream.aclose()
        with trio.fail_after(5):
            while len(door.world.cancelled) < (1 if path == "/api/endless" else 2):
                await trio.sleep(0.01)
    assert (await door.request("GET", "/api/size"))[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "a b"])
async def test_a_foreign_host_is_refused_before_any_handler(door, host):
    for path in ("/api/size", "/health", "/api/short", "/api/unknown"):
        status, _, _ = await door.request("GET", path, headers={"Host": host})
        assert 400 <= status < 500


@pytest.mark.parametrize(
    ("origin", "status"), [("https://evil.example", 403), ("null", 403), (None, 200), ("own", 200)]
)
async def test_pages_elsewhere_cannot_change_state(door, origin, status):
    own = f"http://{door.host}:{door.port}"
    headers = {} if origin is None else {"Origin": own if origin == "own" else origin}
    assert (await door.request("POST", "/api/size", b"x", headers))[0] == status


async def test_head_answers_like_get_without_a_body(door):
    status, headers, body = await door.request("HEAD", "/api/size")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 0


async def test_a_deeply_nested_body_is_an_error_and_not_a_crash(door):
    deep = b"[" * 400 + b"]" * 400
    status, _, _ = await door.request("POST", "/api/echo", deep, JSON)
    assert status == 400


async def test_garbage_is_refused_and_others_go_on(door):
    for raw in (
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
        b"\r\n\r\n\r\n",
    ):
        stream = await door.connect()
        async with stream:
            await stream.send_all(raw)
            await stream.send_eof()
            with trio.move_on_after(2):
                await read_all(stream)
    assert (await door.request("GET", "/api/size"))[0] == 200


async def test_a_stray_byte_after_an_upgrade_ends_only_that_connection(door):
    raw = (
        f"GET /api/chat HTTP/1.1\r\nHost: {door.host}:{door.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\nX"
    ).encode()
    for _ in range(3):
        stream = await door.connect()
        async with stream:
            await stream.send_all(raw)
            with trio.move_on_after(1):
                await read_all(stream)
    assert (await door.request("GET", "/api/size"))[0] == 200


@pytest.mark.parametrize("front", [True, False], ids=["front", "quart"])
async def test_the_token_is_asked_for_before_the_path_and_the_body(front):
    async with open_door(front=front, auth_token="t", grace_seconds=0.5) as door:
        for header, message in (
            (None, "missing Authorization header"),
            ("Basic x", "invalid Authorization header format"),
            ("Bearer u", "invalid token"),
            ("bearer t", "invalid Authorization header format"),
        ):
            headers = {} if header is None else {"Authorization": header}
            for path in ("/api/size", "/api/unknown"):
                status, _, body = await door.request("GET", path, headers=headers)
                assert (status, json.loads(body)) == (401, {"message": message})
        assert (await door.request("GET", "/health"))[0] == 200
        assert (await door.request("GET", "/api/size", headers={"Authorization": "Bearer t"}))[0] == 200
        status, _, _ = await door.request("POST", "/api/size", b"x", {"Content-Length": "99999999"})
        assert status == 413


@pytest.mark.parametrize("front", [True, False], ids=["front", "quart"])
async def test_shutdown_gives_streams_a_last_word_and_is_not_held_up_by_a_stalled_reader(front):
    async with open_door(front=front, grace_seconds=0.5, send_seconds=1.0) as door:
        flood, endless = await door.connect(), await door.connect()
        host = f"Host: {door.host}\r\n\r\n"
        await flood.send_all(f"GET /api/flood HTTP/1.1\r\n{host}".encode())
        await endless.send_all(f"GET /api/endless HTTP/1.1\r\n{host}".encode())
        while door.world.opened < 2:
            await trio.sleep(0.01)
        await trio.sleep(0.1)
        door.stop.request("test")
        with trio.fail_after(5):
            data = await read_all(endless)
        await flood.aclose()
        await endless.aclose()
    assert b"data: 1" in data
    assert b": bye" in data


async def test_pipelined_requests_are_answered_in_order():
    async with open_door() as door:
        heads = [f"GET /api/size?n={n} HTTP/1.1\r\nHost: {door.host}\r\n" for n in range(5)]
        heads[-1] += "Connection: close\r\n"
        data = await door.send("".join(head + "\r\n" for head in heads).encode())
    bodies = [part.partition(b"\r\n\r\n")[2].split(b"\n")[0] for part in data.split(b"HTTP/1.1 200")[1:]]
    assert [json.loads(body)["query"]["n"] for body in bodies] == [[str(n)] for n in range(5)]


async def test_a_request_split_at_every_byte_is_one_request():
    body = b'{"text":"hi"}'
    async with open_door() as door:
        head = (
            f"POST /api/echo HTTP/1.1\r\nHost: {door.host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        raw = head.encode() + body
        stream = await door.connect()
        async with stream:
            for index in range(len(raw)):
                await stream.send_all(raw[index : index + 1])
            status, _, answer = parse(await read_all(stream))
    assert (status, json.loads(answer)) == (200, {"text": "hi", "number": 0})


async def test_length_and_chunked_together_are_refused():
    async with open_door() as door:
        status, _, _ = await door.request(
            "POST", "/api/size", b"0\r\n\r\n", {"Content-Length": "5", "Transfer-Encoding": "chunked"}
        )
    assert status == 400


async def test_a_head_that_does_not_end_is_given_up():
    async with open_door(header_seconds=0.3, idle_seconds=0.3) as door:
        stream = await door.connect()
        async with stream:
            await stream.send_all(b"GET /api/size HTTP/1.1\r\nHost: 127.")
            with trio.fail_after(3):
                await read_all(stream)


async def test_an_oversized_head_is_refused():
    async with open_door(max_head_size=4096) as door:
        status, _, _ = await door.request("GET", "/api/size", headers={"X-Big": "x" * 10_000})
        assert status == 431
        many = {f"X-{n}": "1" for n in range(500)}
        assert (await door.request("GET", "/api/size", headers=many))[0] == 431


async def test_continue_is_sent_when_the_body_is_wanted():
    async with open_door() as door:
        stream = await door.connect()
        async with stream:
            await stream.send_all(
                f"POST /api/size HTTP/1.1\r\nHost: {door.host}\r\nExpect: 100-continue\r\nContent-Length: 2\r\n"
                "Connection: close\r\n\r\n".encode()
            )
            assert (await stream.receive_some(1000)).startswith(b"HTTP/1.1 100")
            await stream.send_all(b"hi")
            assert b'"size":2' in await read_all(stream)
