"""Exchanges with a server that misbehaves in every way: what the model is told, and when."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest
import trio

from actors.tools.egress import Egress, Reach
from actors.tools.http_api.answer import MODEL_LIMIT, render
from actors.tools.http_api.call import ApiCall, Outcome
from actors.tools.http_api.executor import Executor
from actors.tools.http_api.request import build_request
from tests.apitools.target import Target, target
from tests.tools.kit import Network, http

LOOPBACK = Reach(["127.0.0.0/8"])


async def ask(server: Target, path: str, *, method: Any = "GET", seconds: float = 5, **call: Any) -> Any:
    """Call a path of the server and return the JSON a model would read."""
    request = build_request(ApiCall(name="t", url=server.url(path), method=method, **call), {})
    outcome = await Executor(Egress(reach=LOOPBACK)).send(request, seconds)
    return msgspec.json.decode(render(outcome, request.secrets).output)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/ok", {"status": 200, "body": {"ok": True}}),
        ("/gzip", {"status": 200, "body": {"packed": True}}),
        ("/none", {"status": 204, "body": None}),
        ("/empty", {"status": 200, "body": None}),
        ("/created", {"status": 201, "body": None}),
        ("/broken", {"status": 200, "body": '{"half": ', "parse_error": True}),
        ("/latin", {"status": 200, "body": "café", "content_type": "text/plain"}),
        ("/png", {"status": 200, "body": "<binary 7 bytes image/png>", "content_type": "image/png"}),
        ("/missing", {"status": 404, "error": True, "body": {"error": "알 수 없는 지점입니다."}}),
        ("/down", {"status": 503, "error": True, "retry_after": "7", "body": {"error": "down"}}),
        ("/page", {"status": 500, "error": True, "body": "<h1>Oops</h1>", "content_type": "text/html"}),
        ("/moved", {"status": 200, "body": {"ok": True}}),
    ],
)
async def test_every_answer_reaches_the_model(path: str, expected: dict[str, Any]) -> None:
    async with target() as server:
        assert await ask(server, path) == expected


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/reset", "reset"), ("/short", "reset"), ("/garbage", "reset"), ("/endless-head", "reset"),
     ("/loop", "redirect"), ("/inside", "blocked")],
)  # fmt: skip
async def test_every_failure_has_a_kind_and_names_nothing_inside(path: str, kind: str) -> None:
    async with target() as server:
        result = await ask(server, path)
    assert (result["error"], result["kind"]) == (True, kind)
    assert "127.0.0.1" not in str(result)
    assert "169.254" not in str(result)


async def test_numbers_and_key_order_stay_as_they_came() -> None:
    async with target() as server:
        request = build_request(ApiCall(name="t", url=server.url("/numbers")), {})
        outcome = await Executor(Egress(reach=LOOPBACK)).send(request, 5)
    assert render(outcome).output == '{"status":200,"body":{"b":1.10,"a":12345678901234567890123}}'


@pytest.mark.parametrize("path", ["/hang", "/drip"])
async def test_the_timeout_covers_everything_to_the_last_byte(path: str) -> None:
    async with target() as server:
        began = trio.current_time()
        result = await ask(server, path, seconds=0.3)
        assert result == {
            "error": True,
            "kind": "timeout",
            "timeout_seconds": 0.3,
            "message": "the server did not answer completely in time",
        }
        assert 0.25 < trio.current_time() - began < 1.3
        with trio.fail_after(2):
            await server.gone.wait()


async def test_a_big_answer_is_shortened_and_stays_json() -> None:
    async with target() as server:
        result = await ask(server, "/big")
    assert result["truncated"] is True
    assert len(msgspec.json.encode(result).decode()) <= MODEL_LIMIT


async def test_a_long_list_loses_its_end_and_nothing_else() -> None:
    body = msgspec.json.encode({"total": 500, "note": "n" * 3000, "items": [{"n": n} for n in range(5000)]})
    headers = {"content-type": "application/json"}
    result = msgspec.json.decode(
        render(Outcome(state="succeeded", status=200, headers=headers, body=body)).output
    )
    assert result["body"]["note"] == "n" * 3000
    kept = result["body"]["items"]
    assert kept == [{"n": n} for n in range(len(kept))]
    assert 500 < len(kept) < 5000


@pytest.mark.parametrize("path", ["/bomb", "/endless-body"])
async def test_decoded_bytes_are_bounded(path: str) -> None:
    async with target() as server:
        tracemalloc.start()
        result = await ask(server, path, seconds=20)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert result["truncated"] is True
    assert peak < 24_000_000


async def test_redirects_of_a_body_are_returned_not_followed() -> None:
    async with target() as server:
        assert await ask(server, "/moved", method="POST") == {"status": 302, "location": "/ok", "body": None}
        assert len(server.seen) == 1


async def test_secrets_and_configured_headers_do_not_follow_to_another_host() -> None:
    def answer(_: str, head: str) -> list[bytes]:
        elsewhere = "Host: a.test" in head or "host: a.test" in head
        return list(http(302, b"", "Location: http://b.test/") if elsewhere else http(200, b"{}"))

    async def resolver(host: str, port: int) -> list[str]:
        await trio.lowlevel.checkpoint()
        assert port == 80
        return {"a.test": ["93.184.216.34"], "b.test": ["93.184.216.35"]}[host]

    network = Network(answer)
    egress = Egress(resolver=resolver, network=network)
    call = ApiCall(
        name="t",
        url="http://a.test/",
        auth_type="Bearer",
        credentials="TOPSECRET",
        headers={"X-Team": "blue"},
    )
    outcome = await Executor(egress).send(build_request(call, {}), 5)
    assert outcome.status == 200
    assert "TOPSECRET" in network.requests[0][1]
    assert "TOPSECRET" not in network.requests[1][1]
    assert "blue" not in network.requests[1][1]


async def test_a_name_that_resolves_inside_the_second_time_is_asked_once() -> None:
    asked: list[str] = []

    async def resolver(host: str, port: int) -> list[str]:
        await trio.lowlevel.checkpoint()
        asked.append(f"{host}:{port}")
        return ["93.184.216.34"] if len(asked) == 1 else ["127.0.0.1"]

    network = Network(lambda _host, _head: http(200, b"{}"))
    executor = Executor(Egress(resolver=resolver, network=network))
    request = build_request(ApiCall(name="t", url="http://flip.test/"), {})
    assert (await executor.send(request, 5)).status == 200
    assert [address for address, _ in network.requests] == ["93.184.216.34"]
    assert (await executor.send(request, 5)).kind == "blocked"
    assert len(network.requests) == 1


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/", "http://[::1]/", "http://169.254.169.254/", "http://2130706433/", "http://0x7f.1/",
     "http://[::ffff:10.0.0.1]/", "http://localhost/", "http://metadata.google.internal/"],
)  # fmt: skip
async def test_inner_addresses_are_refused_before_anything_is_sent(url: str) -> None:
    network = Network(lambda _host, _head: http(200, b"{}"))
    request = build_request(ApiCall(name="t", url=url), {})
    refusal = Executor(Egress(network=network)).refusal(request)
    assert refusal is not None
    assert refusal.kind == "blocked"
    assert (await Executor(Egress(network=network)).send(request, 5)).kind == "blocked"
    assert network.requests == []


async def test_an_operator_may_allow_a_network_a_host_or_a_port() -> None:
    async with target() as server:
        request = build_request(ApiCall(name="t", url=server.url("/ok")), {})
        named = build_request(ApiCall(name="t", url=f"http://localhost:{server.port}/ok"), {})
        for entry in ("127.0.0.0/8", "127.0.0.1", f"127.0.0.1:{server.port}"):
            assert (await Executor(Egress(reach=Reach([entry]))).send(request, 5)).status == 200
        assert (await Executor(Egress(reach=Reach(["127.0.0.1:1"]))).send(request, 5)).kind == "blocked"
        assert (
            await Executor(Egress(reach=Reach([f"localhost:{server.port}"]))).send(named, 5)
        ).status == 200


async def test_names_ports_and_certificates_fail_in_words_of_their_own() -> None:
    async def nowhere(host: str, port: int) -> list[str]:
        await trio.lowlevel.checkpoint()
        raise OSError(f"no such name: {host}:{port}")

    lost = await Executor(Egress(resolver=nowhere)).send(
        build_request(ApiCall(name="t", url="http://no.test/"), {}), 5
    )
    async with target() as server:
        port = server.port
        tls = await Executor(Egress(reach=LOOPBACK)).send(
            build_request(ApiCall(name="t", url=f"https://127.0.0.1:{port}/"), {}), 5
        )
    closed = await Executor(Egress(reach=LOOPBACK)).send(
        build_request(ApiCall(name="t", url=f"http://127.0.0.1:{port}/"), {}), 5
    )
    assert [lost.kind, tls.kind, closed.kind] == ["dns", "tls", "connect"]


async def test_an_echoed_secret_is_hidden_from_the_model() -> None:
    async with target() as server:
        result = await ask(server, "/echo-secret", auth_type="Bearer", credentials="s3cr3t-value")
        assert server.seen[0].headers["authorization"] == "Bearer s3cr3t-value"
    assert "s3cr3t" not in str(result)
    assert "***" in str(result)


async def test_cancelling_closes_the_connection() -> None:
    async with target() as server:
        with trio.move_on_after(0.1):
            await ask(server, "/hang", seconds=60)
        with trio.fail_after(1):
            await server.gone.wait()
