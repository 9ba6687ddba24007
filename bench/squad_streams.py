"""Live channels over real sockets: many readers of one busy squad, half of them SSE and half WebSocket.

``python -m bench.squad_streams`` prints one JSON document; ``--quick`` measures shapes instead of figures. A stub
model, the server and this client are three processes. Every event must reach every reader.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio

from bench.client import connect, request
from bench.process import Measured, cores, raise_descriptor_limit, started
from bench.report import Goal, finish, spread

AGENT = "agents:\n  root:\n    model: openai/gpt-4o-mini\n    description: unused\n    instruction: unused\n"
LAST = b"squad:execution-completed"
SSE_EVENT = re.compile(rb"(?:^|\n)event: squad:")
SOCKET_EVENT = re.compile(rb'"event":"squad:')
STAMP = re.compile(rb'"timestamp":"([0-9T:.-]+)Z"')
SAMPLED = 50
"""One reader in so many also looks at how old events are."""
TAIL = 64
PING = b"\x89"


class Reader:
    """One follower: counts events as bytes."""

    def __init__(self, pattern: re.Pattern[bytes], *, sampled: bool) -> None:
        self.events = 0
        self.lags: list[float] = []
        self.done = trio.Event()
        self._pattern = pattern
        self._sampled = sampled

    async def run(self, address: str, head: bytes, *, task_status: trio.TaskStatus[None]) -> None:
        """Open the channel and read it until cancelled."""
        stream = await connect(address)
        async with stream:
            await stream.send_all(head)
            data = b""
            while b"\r\n\r\n" not in data:
                data += await self._more(stream)
            status, _, data = data.partition(b"\r\n\r\n")
            if status.split(b" ", 2)[1] not in (b"200", b"101"):
                raise RuntimeError(status.decode())
            task_status.started()
            while True:
                cut = self._take(data)
                data = data[cut:] + await self._more(stream)

    async def _more(self, stream: trio.SocketStream) -> bytes:
        data = bytes(await stream.receive_some(65536))
        if not data:
            raise RuntimeError("the server closed a channel")
        if data[:1] == PING:  # sent while nothing else is, so it comes alone
            size = data[1]
            await stream.send_all(b"\x8a" + bytes([0x80 | size]) + bytes(4) + data[2 : 2 + size])
            return data[2 + size :]
        return data

    def _take(self, data: bytes) -> int:
        """Count what is surely whole and return where the rest begins."""
        end = 0
        for found in self._pattern.finditer(data, 0, max(len(data) - TAIL, 0)):
            self.events += 1
            end = found.end()
        if self._sampled and end:
            now = time.time()
            self.lags += [
                now - datetime.fromisoformat(stamp.decode() + "+00:00").timestamp()
                for stamp in STAMP.findall(data)
            ]
        if LAST in data:
            self.events += len(self._pattern.findall(data, end))
            self.done.set()
            return len(data)
        return end


async def call(address: str, method: str, path: str, body: object = None) -> Any:
    """Make one request on a connection of its own and return the decoded answer."""
    stream = await connect(address)
    async with stream:
        raw = request(address, path, body if body is not None else {}, close=True)
        if method == "GET":
            raw = f"GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n".encode()
        await stream.send_all(raw)
        data = b""
        async for piece in stream:
            data += bytes(piece)
    head, _, payload = data.partition(b"\r\n\r\n")
    if not head.split(b" ", 2)[1].startswith(b"2"):
        raise RuntimeError(f"{method} {path}: {data[:300]!r}")
    if b"transfer-encoding: chunked" in head.lower():
        payload = _unchunked(payload)
    return msgspec.json.decode(payload)


def _unchunked(data: bytes) -> bytes:
    whole = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        whole, data = whole + data[:length], data[length + 2 :]
    return whole


@asynccontextmanager
async def running() -> AsyncGenerator[tuple[Measured, str, Path]]:
    """Run the stub and the server; yield the server, its address and a directory."""
    server_core, client_core = cores()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        (directory / "agent.yaml").write_text(AGENT)
        stub_command = [sys.executable, "-m", "actors.testing.stub_server", "--chunks", "5", "--delay", "0"]
        async with started(stub_command, core=client_core) as stub:
            command = [sys.executable, "-m", "gateway", "serve", "api", str(directory / "agent.yaml")]
            command += ["--listen", "127.0.0.1:0", "--session-db", str(directory / "greenroom.db")]
            env = {
                "OPENAI_API_KEY": "none",
                "OPENAI_BASE_URL": f"{stub.line}/v1",
                "GREENROOM_DATA_DIR": str(directory / "data"),
                "GREENROOM_DEFAULT_MODEL": "openai/gpt-4o-mini",
            }
            async with started(command, core=server_core, env=env) as server:
                yield server, server.line.removeprefix("Listening on ").strip(), directory


async def crowd(count: int) -> dict[str, Any]:
    """Let ``count`` readers follow one squad while it runs."""
    async with running() as (server, address, directory):
        agents = [{"name": "planner", "role": {"type": "planner"}}]
        agents += [{"name": f"worker {n}", "role": {"type": "developer"}} for n in range(10)]
        given = {"name": "busy", "workspacePath": str(directory / "space"), "agents": agents}
        squad = (await call(address, "POST", "/api/v1/squads", given))["id"]
        base = f"/api/v1/squads/{squad}"
        await call(address, "POST", f"{base}/workspace/init", {"path": given["workspacePath"]})
        await run_once(address, base)  # the first run imports what later ones find loaded
        before = server.memory()
        readers: list[Reader] = []
        async with trio.open_nursery() as nursery:
            for number in range(count):
                socket = number % 2 == 1
                head = f"GET {base}/{'ws' if socket else 'events'} HTTP/1.1\r\nhost: {address}\r\n"
                if socket:
                    head += "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
                    head += "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                reader = Reader(SOCKET_EVENT if socket else SSE_EVENT, sampled=number % SAMPLED < 2)
                readers.append(reader)
                await nursery.start(partial(reader.run, address, head.encode() + b"\r\n"))
            await trio.sleep(1)
            memory = server.memory() - before
            began, cpu = time.perf_counter(), server.cpu()
            events = await run_once(address, base)
            with trio.move_on_after(60):
                for reader in readers:
                    await reader.done.wait()
            seconds, used = time.perf_counter() - began, server.cpu() - cpu
            nursery.cancel_scope.cancel()
    deliveries = sum(reader.events for reader in readers)
    lags = [lag for reader in readers for lag in reader.lags]
    return {
        "followers": count,
        "events": events,
        "deliveries": deliveries,
        "missing": events * count - deliveries,
        "seconds": round(seconds, 3),
        "delivery_ms": spread(lags, 1000),
        "server_cpu_us_per_delivery": round(used / max(deliveries, 1) * 1e6, 2),
        "bytes_per_follower": round(memory / count),
    }


async def run_once(address: str, base: str) -> int:
    """Run an execution to its end and return how many events its ledger has."""
    started_run = await call(address, "POST", f"{base}/execute", {"request": "go", "autoApprove": True})
    path = f"{base}/executions/{started_run['executionId']}"
    phase = ""
    while phase not in ("completed", "failed", "cancelled"):
        await trio.sleep(0.1)
        phase = (await call(address, "GET", path))["phase"]
    page = await call(address, "GET", f"{base}/history/{started_run['executionId']}/events?limit=1000")
    return int(page["lastSeq"])


def main() -> int:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shapes instead of figures")
    crowds = (100,) if parser.parse_args().quick else (1000, 5000)
    raise_descriptor_limit()
    results = {f"followers_{count}": trio.run(crowd, count) for count in crowds}
    goals = [
        Goal(f"events missing at {count} followers", results[f"followers_{count}"]["missing"], 0)
        for count in crowds
    ]
    return finish("squad_streams", results, goals)


if __name__ == "__main__":
    raise SystemExit(main())
