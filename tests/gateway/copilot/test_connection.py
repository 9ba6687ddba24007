"""The handshake, unknown and broken requests, and clients that leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from actors.testing.model import hang, say
from gateway.copilot.framing import frame
from tests.gateway.copilot.kit import Refused, opened


async def test_connect_tells_the_protocol_version(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        client = await world.client()
        answer = await client.call("connect")
        assert (answer["ok"], answer["protocolVersion"]) == (True, 3)
        assert (await client.call("ping", message="x"))["message"] == "pong: x"


async def test_an_unknown_method_is_refused_and_the_connection_goes_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        client = await world.client()
        with pytest.raises(Refused) as refused:
            await client.call("session.sendAndWait", sessionId="x")
        assert refused.value.code == -32601
        assert (await client.call("status.get"))["protocolVersion"] == 3


async def test_a_wrong_token_opens_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, token="right") as world:
        with pytest.raises(Refused, match="AUTHENTICATION_FAILED"):
            await world.client(token="wrong")
        stranger = world.clients[-1]
        with pytest.raises(Refused, match="AUTHENTICATION_FAILED"):
            await stranger.call("session.list")
        assert await (await world.client(token="right")).call("session.list") == {"sessions": []}


async def test_a_client_that_half_closes_gets_the_other_half_closed(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        client = await world.client()
        await client.stream.send_eof()
        assert await client.wait(lambda: client.closed)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"Content-Length: 3\r\n\r\nnot", -32700),
        (b"Content-Length: zero\r\n\r\n", -32700),
        (frame([1, 2]), -32600),
        (frame({"jsonrpc": "2.0", "id": 7, "method": 5}), -32600),
        (frame({"jsonrpc": "2.0", "id": 7, "method": "ping", "params": "x"}), -32602),
        (frame({"jsonrpc": "2.0", "id": 7, "method": "session.resume", "params": {"sessionId": 4}}), -32602),
    ],
)
async def test_nonsense_is_answered_with_its_kind_of_error(tmp_path: Path, sent: bytes, code: int) -> None:
    async with opened(tmp_path) as world:
        client = await world.client()
        client.answers.clear()
        await client.stream.send_all(sent)
        answers: list[dict[str, Any]] = await client.wait(lambda: list(client.answers.values()))
        assert answers[0]["error"]["code"] == code


async def test_a_client_that_vanishes_leaves_its_run_going(tmp_path: Path) -> None:
    async with opened(tmp_path, [hang(), say("later")]) as world:
        client = await world.client()
        session = await client.create()
        await client.call("session.send", sessionId=session, prompt="hi")
        await world.model.wait_requests(1)
        await client.stream.aclose()
        other = await world.client()
        await other.call("session.resume", sessionId=session)
        assert (await other.call("session.metadata.isProcessing", sessionId=session))["processing"]
        await other.call("session.abort", sessionId=session)
        await other.event("session.idle")
        assert await other.ask(session, "again") == "later"


async def test_hundreds_of_sessions_share_a_connection_in_order(tmp_path: Path) -> None:
    def answer(request: Any) -> str:
        return "re: " + request.messages[-1].content

    async with opened(tmp_path, answer) as world:
        client = await world.client()
        sessions = [await client.create() for _ in range(60)]
        async with trio.open_nursery() as nursery:
            for session in sessions:
                nursery.start_soon(client.call_many, session, ["one", "two", "three"])
        await client.event("assistant.turn_end", 180)
        for session in sessions:
            said = [
                line["data"]["content"]
                for line in await world.lines(session)
                if line["type"] == "user.message"
            ]
            assert said == ["one", "two", "three"]
