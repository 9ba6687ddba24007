"""What the tests of this room share: contexts, calls, samples, and a network without sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import httpcore2
import msgspec
import trio

from actors.tools.execute import run_call
from actors.tools.registry import Deps, build_toolset, read_options
from actors.tools.tool import ToolContext, ToolResult, Toolset

DATA = Path(__file__).parent.parent / "data"
NO_DEPS = Deps()


def context_in(working_dir: Path, **changes: Any) -> ToolContext:
    """Return a context whose data directory is beside the working directory."""
    values: dict[str, Any] = {
        "session_id": "s-1",
        "agent": "root",
        "call_id": "call-1",
        "working_dir": working_dir,
        "data_dir": working_dir.parent / "data",
        "env": {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(working_dir)},
    }
    return ToolContext(**(values | changes))


def build(kind: str, deps: Deps = NO_DEPS, /, **options: Any) -> Toolset:
    """Build a toolset from options as the YAML file has them."""
    return build_toolset(read_options({"type": kind, **options}), deps)


async def call(toolset: Toolset, name: str, context: ToolContext, /, **arguments: Any) -> ToolResult:
    """Call a tool the way the agent loop does."""
    tool = next(tool for tool in toolset.tools() if tool.definition.name == name)
    return await run_call(tool, context.call_id, msgspec.json.encode(arguments).decode(), context, 64_000)


def sample(path: str) -> list[str]:
    """Return the lines of a sample file that are not comments."""
    text = (DATA / path).read_bytes().decode("utf-8", "surrogateescape")
    return [line for line in text.split("\n")[:-1] if not line.startswith("# ")]


class Network(httpcore2.AsyncNetworkBackend):
    """Answers connections from a function: host and request head in, pieces of bytes out.

    Args:
        answer: Given the address and the request's first bytes; returns the pieces of the answer.
        pause: Seconds between pieces.
    """

    def __init__(self, answer: Callable[[str, str], Iterable[bytes]], pause: float = 0) -> None:
        self.answer = answer
        self.pause = pause
        self.requests: list[tuple[str, str]] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface's
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore2.AsyncNetworkStream:
        await trio.lowlevel.checkpoint()
        return _Connection(self, host)


class _Connection(httpcore2.AsyncNetworkStream):
    def __init__(self, network: Network, host: str) -> None:
        self._network = network
        self._host = host
        self._sent = b""
        self._pieces: list[bytes] | None = None
        self._iterator: Any = None

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the interface's
        await trio.lowlevel.checkpoint()
        self._sent += buffer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the interface's
        if self._iterator is None:
            head = self._sent.decode("latin-1")
            self._network.requests.append((self._host, head))
            self._iterator = iter(self._network.answer(self._host, head))
        await trio.sleep(self._network.pause)
        return next(self._iterator, b"")

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    async def start_tls(
        self,
        ssl_context: Any,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore2.AsyncNetworkStream:
        await trio.lowlevel.checkpoint()
        return self

    def get_extra_info(self, info: str) -> Any:
        return None


def resolver_of(addresses: dict[str, Sequence[str]]) -> Callable[[str, int], Any]:
    """Return a resolver for test names; numeric hosts go to the system's own reading of them."""

    async def resolve(host: str, port: int) -> list[str]:
        if host in addresses:
            await trio.lowlevel.checkpoint()
            return list(addresses[host])
        from actors.tools.egress import resolve as system

        return await system(host, port)

    return resolve


def http(status: int = 200, body: bytes = b"", *headers: str) -> list[bytes]:
    """Return a whole HTTP answer in one piece."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers]
    return [("\r\n".join(lines) + "\r\n\r\n").encode() + body]
