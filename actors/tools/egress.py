"""The only way out for HTTP tools: every connection goes to an address that was checked after name resolution.

The address that is checked is the address that is connected to, for redirects too. Sizes count decoded bytes, and one
deadline covers a whole request.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress
from functools import cache
from typing import Any, Protocol, cast
from urllib.parse import urljoin, urlsplit

import httpcore2
import trio
from msgspec import Struct

from actors.errors import Invalid
from actors.tools.tool import ToolError

BODY_LIMIT = 5_000_000
"""Decoded bytes of a response body."""

MAX_REDIRECTS = 5
CAREFUL_REDIRECTS = 3
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_LOCAL_NAMES = ("localhost", "localdomain", "internal", "local", "home.arpa")
_CHUNK = 65536
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_PORTS = {"http": 80, "https": 443}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Blocked(ToolError):
    """The target may not be reached."""


class Reach:
    """What an operator lets tools reach although it is not on the public internet.

    Args:
        entries: Networks (``10.1.0.0/16``), addresses, or host names with or without a port (``crm.lan:8080``).
        everything: Let every address pass.

    Raises:
        Invalid: an entry is none of these.
    """

    def __init__(self, entries: Iterable[str] = (), *, everything: bool = False) -> None:
        self.everything = everything
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        self._hosts: set[tuple[str, int]] = set()
        for entry in entries:
            self._add(entry.strip())

    def _add(self, entry: str) -> None:
        with suppress(ValueError):
            self._networks.append(ipaddress.ip_network(entry.strip("[]"), strict=False))
            return
        try:
            parts = urlsplit(f"//{entry}")
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise Invalid(f"{entry!r} is no network, address or host") from error
        if not host or "/" in entry or "@" in entry:
            raise Invalid(f"{entry!r} is no network, address or host")
        self._hosts.add((host.rstrip(".").lower(), port or 0))

    def host(self, host: str, port: int) -> bool:
        """Tell whether a host name may be on a private network."""
        name = host.strip("[]").rstrip(".").lower()
        return self.everything or (name, 0) in self._hosts or (name, port) in self._hosts

    def address(self, text: str) -> bool:
        """Tell whether an address may be connected to whatever it is called."""
        if self.everything or is_public(text):
            return True
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            return False
        inner = getattr(address, "ipv4_mapped", None) or address
        return any(inner.version == network.version and inner in network for network in self._networks)


class Resolver(Protocol):
    """Finds the addresses of a host name."""

    async def __call__(self, host: str, port: int) -> list[str]:
        """Return addresses in the order to try them. Raises: OSError when there are none."""
        ...


class Response(Struct, frozen=True):
    """A finished exchange. ``headers`` has lower-cased names; ``url`` is where redirects led.

    ``cut``: the body was longer than the limit, and is its beginning.
    """

    status: int
    url: str
    headers: Mapping[str, str]
    body: bytes
    cut: bool = False


class _NoAddress(httpcore2.ConnectError):
    """The name has no address."""


async def resolve(host: str, port: int) -> list[str]:
    """Ask the system for a host's addresses; also turns ``127.1``, ``0x7f000001`` and the like into addresses."""
    found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_public(text: str) -> bool:
    """Tell whether an address is on the public internet; IPv4 inside an IPv6 form counts as that IPv4 address."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return all(found.is_global and not found.is_multicast for found in _contained(address))


def _contained(address: Address) -> Iterable[Address]:
    yield address
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            yield address.ipv4_mapped
        if address.sixtofour:
            yield address.sixtofour
        if address.teredo:
            yield from address.teredo
        if address in _NAT64:
            yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)


def check_url(url: str, *, allow_private: bool = False, reach: Reach | None = None) -> str:
    """Return the host of a URL that may be tried; its addresses are checked when connecting.

    Raises:
        Blocked: not http or https, no host, or a name that only exists on private networks.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise Blocked(f"{url}: not a valid URL ({error})") from error
    if parts.scheme.lower() not in _PORTS:
        raise Blocked(f"{url}: only http and https addresses can be used")
    if (
        not host
        or any(char < " " or char == "\x7f" for char in url)
        or any(char in ' "<>\\^`{|}' for char in host)
        or port == 0
    ):
        raise Blocked(f"{url}: not a valid URL")
    name = host.rstrip(".").lower()
    known = reach is not None and reach.host(name, port or _PORTS[parts.scheme.lower()])
    if not (allow_private or known) and any(
        name == local or name.endswith("." + local) for local in _LOCAL_NAMES
    ):
        raise Blocked(f"{url}: the host is on a private network")
    return name


class _GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to checked addresses only."""

    def __init__(self, resolver: Resolver, network: httpcore2.AsyncNetworkBackend, reach: Reach) -> None:
        self._resolver = resolver
        self._reach = reach
        self._network = network
        self._opened: list[httpcore2.AsyncNetworkStream] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface's
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            addresses = await self._resolver(host, port)
        except (OSError, UnicodeError) as error:
            raise _NoAddress(f"cannot resolve {host}: {error}") from error
        if not self._reach.host(host, port) and (
            blocked := [text for text in addresses if not self._reach.address(text)]
        ):
            raise Blocked(f"{host}: the address {blocked[0]} is not on the public internet")
        problem: Exception = _NoAddress(f"{host} has no address")
        for address in addresses:
            try:
                stream = await self._network.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                problem = error
            else:
                self._opened.append(stream)
                return stream
        raise problem

    async def aclose(self) -> None:
        """Close what is left open: a handshake that was cancelled forgets its connection."""
        # A connection in the middle of something is dropped, which does not wait for the other side.
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
            for stream in self._opened:
                await stream.aclose()

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ARG002, ASYNC109 - the interface's
        socket_options: Iterable[Any] | None = None,  # noqa: ARG002 - the interface's
    ) -> httpcore2.AsyncNetworkStream:
        raise Blocked(f"{path}: sockets of this machine cannot be used")

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)


class _Exchange(Struct, frozen=True):
    """One call of :meth:`Egress.request`."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes | None
    limit: int
    cut: bool
    careful: bool


class Egress:
    """Makes requests from tools to the outside.

    Args:
        allow_private: Let addresses of private networks and of this machine pass.
        resolver: Finds addresses; the system unless given.
        network: Connects to checked addresses; the system unless given.
        accept_host: Called with the host of every URL, redirects included; false refuses it.
        reach: Private targets that may be reached all the same.
    """

    def __init__(
        self,
        *,
        allow_private: bool = False,
        resolver: Resolver = resolve,
        network: httpcore2.AsyncNetworkBackend | None = None,
        accept_host: Callable[[str], bool] = lambda _: True,
        reach: Reach | None = None,
    ) -> None:
        self._reach = Reach(everything=True) if allow_private else reach or Reach()
        self._resolver = resolver
        self._network = network or cast("httpcore2.AsyncNetworkBackend", httpcore2.TrioBackend())
        self._accept_host = accept_host

    def check(self, url: str) -> None:
        """Check what can be checked of a URL without resolving its host.

        Raises:
            Blocked: it may not be requested.
        """
        host = check_url(url, allow_private=self._reach.everything, reach=self._reach)
        if not self._accept_host(host):
            raise Blocked(f"{host}: requests to this host are not allowed", kind="blocked")
        parts = urlsplit(url)
        address = _numeric(host)
        if address and not (
            self._reach.host(host, parts.port or _PORTS[parts.scheme.lower()]) or self._reach.address(address)
        ):
            raise Blocked(f"{host}: the address {address} is not on the public internet", kind="blocked")

    async def request(
        self,
        method: str,
        url: str,
        *,
        seconds: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        limit: int = BODY_LIMIT,
        cut: bool = False,
        careful: bool = False,
    ) -> Response:
        """Make a request and read the whole answer; any status is an answer.

        Redirects are followed up to five times, each checked like the first URL. Headers that carry secrets, and
        those given here, are not sent to another host.

        Args:
            method: HTTP method.
            url: Absolute http or https URL.
            seconds: Deadline for everything together.
            headers: More request headers.
            body: Request body.
            limit: Decoded bytes of the answer's body.
            cut: Return the beginning of a longer body instead of failing.
            careful: Follow redirects of GET only, at most three and never from https to http.

        Raises:
            Blocked: the URL or a redirect leads where it may not.
            ToolError: no answer in time, too large an answer, or the network failed; ``fields["kind"]`` is
                ``timeout``, ``dns``, ``connect``, ``tls``, ``reset``, ``blocked``, ``redirect``, ``too_large`` or
                ``arguments``.
        """
        exchange = _Exchange(method.upper(), url, dict(headers or {}), body, limit, cut, careful)
        try:
            with trio.fail_after(seconds):
                return await self._follow(exchange)
        except trio.TooSlowError as error:
            raise ToolError(f"{url}: no complete answer within {seconds:g} s", kind="timeout") from error
        except Blocked as error:
            raise Blocked(error.message, kind="blocked") from error
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
            raise ToolError(f"{url}: {str(error) or type(error).__name__}", kind=_kind_of(error)) from error
        except (httpcore2.UnsupportedProtocol, UnicodeError, ValueError, TypeError) as error:
            raise ToolError(f"{url}: the request cannot be made ({error})", kind="arguments") from error

    async def _follow(self, exchange: _Exchange) -> Response:
        url, method, headers, body = exchange.url, exchange.method, exchange.headers, exchange.body
        most = CAREFUL_REDIRECTS if exchange.careful else MAX_REDIRECTS
        backend = _GuardedBackend(self._resolver, self._network, self._reach)
        async with (
            aclosing(backend),
            httpcore2.AsyncConnectionPool(
                ssl_context=_tls() if url.lower().startswith("https") else None,
                network_backend=backend,
                max_connections=1,
            ) as pool,
        ):
            for _ in range(most + 1):
                self.check(url)
                response = await self._exchange(pool, method, url, headers, body, exchange)
                location = response.headers.get("location")
                if response.status not in _REDIRECTS or not location:
                    return response
                if exchange.careful and method != "GET":
                    return response
                target = urljoin(url, location)
                if _origin(target) != _origin(url):
                    if exchange.careful and _origin(url)[0] == "https" and _origin(target)[0] == "http":
                        raise ToolError(f"{url}: redirected from https to http", kind="redirect")
                    headers = {
                        name: value
                        for name, value in headers.items()
                        if name.lower() in {"accept", "user-agent"}
                    }
                if response.status == 303 or (response.status in {301, 302} and method == "POST"):
                    method, body = "GET", None
                url = target
        raise ToolError(f"{url}: more than {most} redirects", kind="redirect")

    async def _exchange(
        self,
        pool: httpcore2.AsyncConnectionPool,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        exchange: _Exchange,
    ) -> Response:
        parts = urlsplit(url)
        host = (
            (parts.hostname or "").encode("idna").decode()
            if not _is_ipv6(parts.hostname)
            else f"[{parts.hostname}]"
        )
        port = parts.port or _PORTS[parts.scheme.lower()]
        authority = host if port == _PORTS[parts.scheme.lower()] else f"{host}:{port}"
        fields = {
            "host": authority,
            "accept-encoding": "gzip, deflate",
            "connection": "close",
            **{name.lower(): value for name, value in headers.items()},
        }
        if body is not None:
            fields["content-length"] = str(len(body))
        target = _quoted(parts.path or "/") + (f"?{_quoted(parts.query)}" if parts.query else "")
        request = httpcore2.Request(
            method,
            httpcore2.URL(
                scheme=parts.scheme.lower().encode(),
                host=host.strip("[]").encode(),
                port=port,
                target=target.encode(),
            ),
            headers=[(name.encode("ascii"), value.encode("latin-1")) for name, value in fields.items()],
            content=body,
        )
        response = await pool.handle_async_request(request)
        try:
            received = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers
            }
            inflater = _Inflater(received.get("content-encoding", ""))
            chunks: list[bytes] = []
            room = exchange.limit
            stream = cast("AsyncGenerator[bytes]", aiter(cast("AsyncIterable[bytes]", response.stream)))
            async with aclosing(stream):
                async for data in stream:
                    for chunk in inflater.feed(data) if data else ():
                        chunks.append(chunk[:room] if len(chunk) > room else chunk)
                        room -= len(chunk)
                        if room < 0:
                            break
                    if room < 0:
                        break
            if room < 0 and not exchange.cut:
                raise ToolError(f"{url}: the answer is larger than {exchange.limit} bytes", kind="too_large")
        finally:
            # A connection in the middle of an answer is dropped, which does not wait for the other side.
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                await response.aclose()
        return Response(response.status, url, received, b"".join(chunks), cut=room < 0)


class _Inflater:
    """Undoes compression in pieces of bounded size, so that a small body cannot become a huge one in memory."""

    def __init__(self, encoding: str) -> None:
        self._name = encoding.strip().lower()
        if self._name not in {"", "identity", "gzip", "x-gzip", "deflate"}:
            raise ToolError(
                f"the answer is compressed in a way that was not asked for: {encoding}", kind="reset"
            )
        self._inflate = zlib.decompressobj(wbits=47)
        self._started = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what the next compressed bytes become.

        Raises:
            ToolError: they are not what the header said.
        """
        if self._name in {"", "identity"}:
            yield data
            return
        if not self._started and self._name == "deflate" and data[0] & 0x0F != 8:
            self._inflate = zlib.decompressobj(wbits=-15)  # some servers leave the zlib header out
        self._started = True
        while data and not self._inflate.eof:
            try:
                piece = self._inflate.decompress(data, _CHUNK)
            except zlib.error as error:
                raise ToolError(f"the answer's compression is broken: {error}", kind="reset") from error
            data = self._inflate.unconsumed_tail
            if piece:
                yield piece


@cache
def _tls() -> ssl.SSLContext:
    """Return the context of all tools: reading the system's certificates takes longer than a request."""
    return ssl.create_default_context()


def _numeric(host: str) -> str:
    """Return the address a host is a spelling of, ``127.1`` and ``0x7f000001`` included; empty for a name."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return ""
    return str(found[0][4][0])


def _kind_of(error: BaseException) -> str:
    """Return which part of an exchange failed."""
    if isinstance(error, _NoAddress):
        return "dns"
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError):
            return "tls"
        seen = seen.__cause__ or seen.__context__
    if isinstance(error, httpcore2.ConnectError | httpcore2.ConnectTimeout):
        return "connect"
    return "reset"


def _origin(url: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(url)
        return (
            parts.scheme.lower(),
            (parts.hostname or "").lower(),
            parts.port or _PORTS.get(parts.scheme.lower()),
        )
    except ValueError:
        return "", url, None


def _is_ipv6(host: str | None) -> bool:
    return ":" in (host or "")


def _quoted(text: str) -> str:
    """Percent-encode what may not stand in a request line; existing escapes stay."""
    return "".join(
        char if char.isascii() and char > " " and char not in '"<>\\^`{|}\x7f' else _percent(char)
        for char in text
    )


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode())


def host_rules(allowed: Iterable[str], blocked: Iterable[str]) -> Callable[[str], bool]:
    """Return a test of host names from two lists of domains; a domain covers its subdomains.

    Args:
        allowed: If not empty, only these.
        blocked: Never these.
    """
    allow = [_domain(entry) for entry in allowed]
    block = [_domain(entry) for entry in blocked]

    def accept(host: str) -> bool:
        if any(_covers(domain, host) for domain in block):
            return False
        return not allow or any(_covers(domain, host) for domain in allow)

    return accept


def _domain(entry: str) -> str:
    return entry.strip().lower().removeprefix("*.").lstrip(".").rstrip(".")


def _covers(domain: str, host: str) -> bool:
    return host == domain or host.endswith("." + domain)
