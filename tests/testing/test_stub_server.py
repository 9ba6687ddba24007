from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from actors.testing.stub_server import StubServer, assistant, json_reply


async def ask(server: StubServer, path: str, body: dict[str, Any] | None = None) -> tuple[int, bytes]:
    """Send one request over memory streams; return status and raw response."""
    async with trio.open_nursery() as nursery:
        stream = await server.connect(nursery)("h", 1, False)
        data = msgspec.json.encode(body) if body is not None else b""
        method = b"POST" if data else b"GET"
        await stream.send_all(
            method + f" {path} HTTP/1.1\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data
        )
        answer = b""
        while not answer.endswith(b"0\r\n\r\n"):
            answer += await stream.receive_some()
        nursery.cancel_scope.cancel()
    return int(answer.split()[1]), answer


USER = {"role": "user", "content": "hi"}


async def test_replies_come_in_order_and_then_run_out() -> None:
    server = StubServer([json_reply({"a": 1}), json_reply({}, 503)])
    assert [(await ask(server, "/x"))[0] for _ in range(3)] == [200, 503, 418]
    assert [request.path for request in server.requests] == ["/x"] * 3


async def test_assistant_speaks_both_dialects_and_lists_models() -> None:
    server = StubServer(assistant("hello", chunks=2))
    assert b"[DONE]" in (await ask(server, "/v1/chat/completions", {"stream": True, "messages": [USER]}))[1]
    assert b'chat.completion"' in (await ask(server, "/v1/chat/completions", {"messages": [USER]}))[1]
    assert b"message_stop" in (await ask(server, "/v1/messages", {"messages": [USER]}))[1]
    assert b"stub" in (await ask(server, "/v1/models"))[1]
    assert (await ask(server, "/v1/else"))[0] == 404


async def test_assistant_calls_an_offered_tool_once_per_user_message() -> None:
    server = StubServer(assistant("done", tool="t", arguments='{"a":1}'))
    tools = [{"type": "function", "function": {"name": "t"}}]
    first = {"stream": True, "messages": [USER], "tools": tools}
    assert b"tool_calls" in (await ask(server, "/v1/chat/completions", first))[1]
    result = {"role": "tool", "tool_call_id": "c", "content": "r"}
    assert b"done" in (await ask(server, "/v1/chat/completions", {**first, "messages": [USER, result]}))[1]
    assert b"done" in (await ask(server, "/v1/chat/completions", {"stream": True, "messages": [USER]}))[1]


async def test_strict_assistant_refuses_an_orphan_result() -> None:
    server = StubServer(assistant("x", strict=True))
    orphan = {"role": "tool", "tool_call_id": "c", "content": "r"}
    status, answer = await ask(server, "/v1/chat/completions", {"stream": True, "messages": [USER, orphan]})
    assert status == 400
    assert b"no open tool call" in answer


async def test_delay_is_between_pieces(autojump_clock: trio.testing.MockClock) -> None:
    server = StubServer(assistant("abc", chunks=3, delay=2))
    await ask(server, "/v1/chat/completions", {"stream": True, "messages": [USER]})
    assert trio.current_time() == pytest.approx(4, abs=0.01)


@pytest.mark.stress
def test_program_prints_the_address_it_listens_on() -> None:
    command = [sys.executable, "-m", "actors.testing.stub_server", "--port", "0", "--chunks", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
    assert line.startswith("http://127.0.0.1:")
