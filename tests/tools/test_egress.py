"""The way out: addresses, redirects, sizes, deadlines; and the fetch and webhook tools over it."""

from __future__ import annotations

import gzip
import itertools
import socket
import tracemalloc
import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest
import trio

from actors.tools import egress
from actors.tools.builtin.fetch import Fetch
from actors.tools.builtin.webhook import Webhook
from actors.tools.egress import Blocked, Egress, check_url, host_rules, is_public
from actors.tools.html_text import to_markdown, to_text
from actors.tools.options import FetchOptions, WebhookConfig, WebhookOptions
from actors.tools.tool import ToolError, ToolResult
from tests.tools.kit import Network, call, context_in, http, resolver_of, sample

PUBLIC = "93.184.216.34"
NAMES = {
    "stub.test": [PUBLIC],
    "other.test": ["93.184.216.35"],
    "127.0.0.1.nip.io": ["127.0.0.1"],
    "mixed.test": [PUBLIC, "10.0.0.1"],
    "localhost": ["127.0.0.1"],
}


def redirecting(_: str, head: str) -> Iterable[bytes]:
    """Answer like the stub of the samples."""
    target = head.split(" ")[1]
    if target.startswith("/redirect?to="):
        return http(302, b"", f"Location: {target.partition('to=')[2]}")
    return http(200, b"public content")


def reach(network: Network, **options: object) -> Egress:
    return Egress(resolver=resolver_of(NAMES), network=network, **options)  # type: ignore[arg-type]  # pyright: ignore


LINES = sample("urls/ssrf.txt")
ALLOWED = {"http://stub.test/ok", "https://stub.test/ok?x=1"}


@pytest.mark.parametrize("url", [line for line in LINES if line not in ALLOWED])
async def test_every_spelling_of_an_inner_address_is_blocked(url: str) -> None:
    network = Network(redirecting)
    with pytest.raises(Blocked):
        await reach(network).request("GET", url, seconds=5)
    assert all(address == PUBLIC for address, _ in network.requests)


@pytest.mark.parametrize("url", sorted(ALLOWED))
async def test_public_addresses_pass(url: str) -> None:
    response = await reach(Network(redirecting)).request("GET", url, seconds=5)
    assert (response.status, response.body) == (200, b"public content")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "location", ["http://10.0.0.1/", "//169.254.169.254/", "file:///etc/passwd", "gopher://x/"]
)
async def test_each_redirect_is_checked(status: int, location: str) -> None:
    network = Network(lambda _host, _head: http(status, b"", f"Location: {location}"))
    with pytest.raises(Blocked):
        await reach(network).request("GET", "http://stub.test/", seconds=5)
    assert len(network.requests) == 1


async def test_name_with_one_inner_address_is_blocked() -> None:
    with pytest.raises(Blocked, match=r"10\.0\.0\.1"):
        await reach(Network(redirecting)).request("GET", "http://mixed.test/", seconds=5)


async def test_checked_address_is_the_connected_one_though_the_name_changes() -> None:
    answers = itertools.chain([[PUBLIC]], itertools.repeat(["127.0.0.1"]))

    async def rebinding(host: str, port: int) -> list[str]:
        await trio.lowlevel.checkpoint()
        return next(answers)

    network = Network(redirecting)
    client = Egress(resolver=rebinding, network=network)
    assert (await client.request("GET", "http://stub.test/", seconds=5)).status == 200
    with pytest.raises(Blocked):
        await client.request("GET", "http://stub.test/", seconds=5)
    assert [address for address, _ in network.requests] == [PUBLIC]


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("127.0.0.1", False),
        ("0.0.0.0", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("ff02::1", False),
        ("nonsense", False),
    ],
)
def test_public_addresses_are_told_from_others(address: str, public: bool) -> None:
    assert is_public(address) is public


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "http://",
        "http:///a",
        "http://a b/",
        "http://a:99999/",
        "http://[::1",
        "http://a:0/",
        "ftp://a/",
    ],
)
def test_malformed_urls_are_refused(url: str) -> None:
    with pytest.raises(Blocked):
        check_url(url)


async def test_redirects_end_and_lose_secrets_on_another_host() -> None:
    network = Network(lambda _host, _head: http(302, b"", "Location: http://other.test/x"))
    with pytest.raises(ToolError, match="more than 5 redirects"):
        await reach(network).request(
            "POST",
            "http://stub.test/",
            seconds=5,
            headers={"Authorization": "s3cret", "X-Key": "k"},
            body=b"body",
        )
    assert len(network.requests) == 6
    first, second = network.requests[0][1].lower(), network.requests[1][1].lower()
    assert "s3cret" in first
    assert "post / http" in first
    assert "s3cret" not in second
    assert "x-key" not in second
    assert "get /x http" in second


def compressed(data: Iterable[bytes]) -> Iterable[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"
    packer = zlib.compressobj(wbits=31)
    for piece in data:
        if out := packer.compress(piece):
            yield out
    yield packer.flush()


async def test_small_body_with_huge_content_is_cut_off_with_flat_memory() -> None:
    block = b"\0" * 1_000_000
    network = Network(lambda _host, _head: compressed(block for _ in range(4000)))
    tracemalloc.start()
    try:
        with pytest.raises(ToolError, match="larger than 5000000 bytes"):
            await reach(network).request("GET", "http://stub.test/", seconds=20)
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()


def endless(_host: str, _head: str) -> Iterable[bytes]:
    yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    while True:
        yield b"10\r\n" + b"x" * 16 + b"\r\n"


def endless_headers(_host: str, _head: str) -> Iterable[bytes]:
    yield b"HTTP/1.1 200 OK\r\n"
    while True:
        yield b"X-A: " + b"b" * 1000 + b"\r\n"


async def test_endless_body_and_headers_end_in_an_error() -> None:
    with pytest.raises(ToolError, match="larger than 1000 bytes"):
        await reach(Network(endless)).request("GET", "http://stub.test/", seconds=20, limit=1000)
    with pytest.raises(ToolError):
        await reach(Network(endless_headers)).request("GET", "http://stub.test/", seconds=20)


async def test_slow_drip_ends_at_the_deadline(autojump_clock: trio.testing.MockClock) -> None:
    began = trio.current_time()
    with pytest.raises(ToolError, match="no complete answer within 30 s"):
        await reach(Network(endless, pause=2)).request("GET", "http://stub.test/", seconds=30)
    assert trio.current_time() - began <= 31


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(b"hello")),
        ("deflate", zlib.compress(b"hello")),
        ("deflate", zlib.compress(b"hello")[2:-4]),
        ("identity", b"hello"),
    ],
)
async def test_compressed_answers_are_read(encoding: str, body: bytes) -> None:
    network = Network(lambda _host, _head: http(200, body, f"Content-Encoding: {encoding}"))
    assert (await reach(network).request("GET", "http://stub.test/", seconds=5)).body == b"hello"


@pytest.mark.parametrize(
    "answer",
    [
        http(200, b"junk", "Content-Encoding: gzip"),
        http(200, b"junk", "Content-Encoding: br"),
        [b"not http at all\r\n\r\n"],
        [b""],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"],
    ],
)
async def test_broken_answers_are_tool_errors(answer: list[bytes]) -> None:
    with pytest.raises(ToolError):
        await reach(Network(lambda _host, _head: answer)).request("GET", "http://stub.test/", seconds=5)


@pytest.mark.parametrize(
    "answer", [http(204), http(205), http(200), [b"HTTP/1.1 304 X\r\n\r\n"], http(201, b"", "Location: /x")]
)
async def test_answers_without_body_are_answers(answer: list[bytes]) -> None:
    network = Network(lambda _host, _head: answer)
    assert (await reach(network).request("GET", "http://stub.test/", seconds=5)).body == b""
    assert len(network.requests) == 1


async def test_request_line_keeps_the_query_and_escapes_what_it_must() -> None:
    network = Network(lambda _host, _head: http())
    await reach(network).request("GET", "http://stub.test:8080/a b/ü?key=1&q=x%20y&z={}#frag", seconds=5)
    head = network.requests[0][1]
    assert head.startswith("GET /a%20b/%C3%BC?key=1&q=x%20y&z=%7B%7D HTTP/1.1\r\n")
    assert "stub.test:8080" in head


async def test_private_addresses_pass_when_allowed() -> None:
    network = Network(redirecting)
    assert (
        await reach(network, allow_private=True).request("GET", "http://localhost/", seconds=5)
    ).status == 200
    assert network.requests[0][0] == "127.0.0.1"


async def test_host_lists_hold_for_redirects_too() -> None:
    network = Network(redirecting)
    only_stub = reach(network, accept_host=host_rules(["stub.test"], []))
    with pytest.raises(Blocked, match=r"other\.test"):
        await only_stub.request("GET", "http://stub.test/redirect?to=http://other.test/", seconds=5)
    accept = host_rules([], ["*.bad.test", "Evil.test."])
    assert [accept(host) for host in ("a.bad.test", "bad.test", "evil.test", "notbad.test")] == [
        False
    ] * 3 + [True]
    assert host_rules(["ok.test"], [])("xok.test") is False


async def test_every_resolved_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lookup(*_: object, **__: object) -> list[object]:
        await trio.lowlevel.checkpoint()
        return [
            (socket.AF_INET, None, None, "", (PUBLIC, 80)),
            (socket.AF_INET, None, None, "", (PUBLIC, 80)),
        ]

    monkeypatch.setattr(trio.socket, "getaddrinfo", lookup)
    assert await egress.resolve("stub.test", 80) == [PUBLIC]

    async def fails(host: str, port: int) -> list[str]:
        await trio.lowlevel.checkpoint()
        raise OSError("no such name")

    with pytest.raises(ToolError, match="cannot resolve"):
        await Egress(resolver=fails, network=Network(redirecting)).request(
            "GET", "http://stub.test/", seconds=5
        )


PAGE = b"""<html><head><title>T</title><style>x{}</style></head><body><h1>Head &amp; more</h1><script>bad()</script>
<p>Some <b>bold</b> and <a href="/rel">a link</a>.<br>Next</p><ul><li>one</li><li>two<ol><li>in</li></ol></li></ul>
<pre>  code
    x</pre><table><tr><th>a</th><td>b</td></tr></table><img alt="pic" src="p.png"><a href="javascript:x()">js</a>
</body></html>"""


def test_pages_become_markdown_and_text() -> None:
    markdown = to_markdown(PAGE.decode(), "http://stub.test/dir/")
    assert "# Head & more" in markdown
    assert "Some **bold** and [a link](http://stub.test/rel)." in markdown
    assert "- one\n- two\n\n  1. in" in markdown
    assert "```\n  code\n    x\n```" in markdown
    assert "![pic](http://stub.test/dir/p.png)" in markdown
    assert "| a | b" in markdown
    assert "bad()" not in markdown
    assert "javascript" not in markdown
    text = to_text(PAGE.decode())
    assert "Some bold and a link." in text
    assert "*" not in text


@pytest.mark.parametrize(
    "page", ["", "<", "<p", "</p></p>", "<script>", "<ol><li>", "<a href='http://[x'>y</a>", "<b>" * 2000]
)
def test_broken_pages_do_not_raise(page: str) -> None:
    to_markdown(page, "http://stub.test/")
    to_text(page)


def fetcher(network: Network, **options: object) -> Fetch:
    toolset = Fetch(FetchOptions(type="fetch", **options), resolver_of(NAMES))  # type: ignore[arg-type]  # pyright: ignore
    toolset._egress = reach(network, accept_host=toolset._egress._accept_host)  # pyright: ignore[reportPrivateUsage]
    return toolset


async def fetch(
    network: Network, tmp_path: Path, options: dict[str, object] | None = None, **arguments: object
) -> ToolResult:
    return await call(fetcher(network, **(options or {})), "fetch", context_in(tmp_path), **arguments)


async def test_fetch_formats_pages(tmp_path: Path) -> None:
    network = Network(lambda _host, _head: http(200, PAGE, "Content-Type: text/html; charset=utf-8"))
    urls = ["http://stub.test/"]
    assert "# Head & more" in (await fetch(network, tmp_path, urls=urls)).output
    assert "# Head" not in (await fetch(network, tmp_path, urls=urls, format="text")).output
    assert "<h1>" in (await fetch(network, tmp_path, urls=urls, format="html")).output


async def test_fetch_of_several_urls_reports_each(tmp_path: Path) -> None:
    def answer(_: str, head: str) -> Iterable[bytes]:
        return (
            http(404, b"gone") if "/no" in head else http(200, b'{"a":1}', "Content-Type: application/json")
        )

    network = Network(answer)
    result = await fetch(
        network, tmp_path, urls=["http://stub.test/a", "http://stub.test/no", "http://10.0.0.1/"]
    )
    assert '=== http://stub.test/a ===\n{"a":1}' in result.output
    assert "HTTP status 404\ngone" in result.output
    assert "Error: 10.0.0.1: the address 10.0.0.1 is not on the public internet" in result.output
    assert not result.is_error
    assert (await fetch(network, tmp_path, urls=["http://10.0.0.1/"])).is_error
    assert (await fetch(network, tmp_path, urls=[])).is_error
    assert (await fetch(network, tmp_path, urls=["http://stub.test/"] * 21)).is_error


async def test_fetch_decodes_and_refuses_binary(tmp_path: Path) -> None:
    network = Network(
        lambda _host, _head: http(200, "café".encode("latin-1"), "Content-Type: text/plain; charset=latin-1")
    )
    assert (await fetch(network, tmp_path, urls=["http://stub.test/"])).output == "café"
    network = Network(
        lambda _host, _head: http(200, b"\xff\xfe", "Content-Type: text/plain; charset=nonsense")
    )
    assert (await fetch(network, tmp_path, urls=["http://stub.test/"])).output == "\ufffd\ufffd"
    network = Network(lambda _host, _head: http(200, b"PK\0\0", "Content-Type: application/zip"))
    assert (
        "not text but application/zip" in (await fetch(network, tmp_path, urls=["http://stub.test/"])).output
    )


async def test_fetch_obeys_its_domains_and_sends_its_headers(tmp_path: Path) -> None:
    network = Network(lambda _host, _head: http(200, b"x"))
    options: dict[str, object] = {"allowed_domains": ["stub.test"], "headers": {"X-Token": "${env.HOME}"}}
    assert (await fetch(network, tmp_path, options, urls=["http://other.test/"])).is_error
    await fetch(network, tmp_path, options, urls=["http://stub.test/"])
    assert f"x-token: {tmp_path}" in network.requests[0][1]
    assert (
        await fetch(network, tmp_path, {"blocked_domains": ["stub.test"]}, urls=["http://stub.test/"])
    ).is_error


@pytest.mark.parametrize(
    ("provider", "body"),
    [("slack", '{"text":"hi"}'), ("discord", '{"content":"hi"}'), ("telegram", '{"chat_id":"7","text":"hi"}'),
     ("ifttt", '{"value1":"hi","value2":"two"}'), ("", '{"message":"hi","value2":"two"}')],
)  # fmt: skip
async def test_webhook_sends_the_services_shape(tmp_path: Path, provider: str, body: str) -> None:
    network = Network(lambda _host, _head: http(204))
    config = WebhookConfig(url="http://stub.test/hook", provider=provider, chat_id="7")
    toolset = Webhook(WebhookOptions(type="webhook", webhook_config=config))
    toolset._egress = reach(network)  # pyright: ignore[reportPrivateUsage]
    result = await call(toolset, "send_webhook", context_in(tmp_path), message="hi", value2="two")
    assert result.output == "Message sent."
    assert network.requests[0][1].endswith(body)


async def test_webhook_reports_refusals_and_is_guarded(tmp_path: Path) -> None:
    config = WebhookConfig(url="http://127.0.0.1/hook")
    toolset = Webhook(WebhookOptions(type="webhook", webhook_config=config))
    assert (
        "not on the public internet"
        in (await call(toolset, "send_webhook", context_in(tmp_path), message="x")).output
    )
    toolset = Webhook(WebhookOptions(type="webhook", webhook_config=WebhookConfig(url="http://stub.test/")))
    toolset._egress = reach(Network(lambda _host, _head: http(500, b"broken")))  # pyright: ignore[reportPrivateUsage]
    assert (
        "status 500: broken"
        in (await call(toolset, "send_webhook", context_in(tmp_path), message="x")).output
    )
