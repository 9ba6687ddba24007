"""Followers that drop and resume during one long turn: each must see every event's number exactly once.

Run it with ``python -m bench.reconnect``; ``bench/README.md`` says what each figure means.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio
from msgspec import Struct

from bench.client import READ, KeptAlive, connect, request
from bench.process import Measured, cores, raise_descriptor_limit, started
from bench.report import Goal, finish, spread

AGENT = """\
models:
  stub: {{provider: openai, model: gpt-4o-mini, base_url: {url}/v1}}
agents:
  root: {{model: stub, description: Answers from a stub, instruction: Help.}}
"""
LAST = b'"stream_stopped"'


class Plan(Struct, frozen=True):
    """How much is measured: followers, how often each comes back, and the turn's length in seconds and tokens."""

    followers: int = 500
    drops: int = 20
    seconds: float = 40.0
    tokens: int = 400
    limit: float = 150.0


QUICK = Plan(followers=100, drops=5, seconds=6.0, tokens=120, limit=40.0)


class Follower:
    """One client: reads for a while, hangs up, and goes on after the last number it has."""

    def __init__(self, address: str, session: str, drops: int, pause: float) -> None:
        self._address = address
        self._path = f"/api/sessions/{session}/events"
        self._drops = drops
        self._pause = pause
        self.seen: list[int] = []
        self.resumes: list[float] = []
        self.failure = ""

    async def run(self) -> None:
        """Follow the session to the end of its turn."""
        for drop in range(self._drops + 1):
            last = drop == self._drops
            with trio.move_on_after(float("inf") if last else self._pause * random.uniform(0.5, 1.5)):
                if await self._read(first=drop == 0):
                    return

    async def _read(self, *, first: bool) -> bool:
        """Read until the turn's end (true), or the connection's (false)."""
        after = self.seen[-1] if self.seen else 0
        began = time.perf_counter()
        stream = await connect(self._address)
        async with stream:
            await stream.send_all(_get(self._address, f"{self._path}?since={after}"))
            data = b""
            answered = first
            while piece := await stream.receive_some(READ):
                data += piece
                *blocks, data = data.split(b"\n\n")
                for block in blocks:
                    number = _number(block)
                    if number is None:
                        continue
                    if not answered:
                        self.resumes.append(time.perf_counter() - began)
                        answered = True
                    self.seen.append(number)
                    if LAST in block:
                        return True
        return False


def _get(address: str, path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n".encode()


def _number(block: bytes) -> int | None:
    """Return an event's number; a chunk's size line may stand before it."""
    at = block.find(b"id: ")
    return int(block[at + 4 : block.index(b"\n", at)]) if at >= 0 else None


@asynccontextmanager
async def running(plan: Plan) -> AsyncGenerator[Measured]:
    """Start the stub model and the server, and stop them again."""
    server_core, client_core = cores()
    delay = plan.seconds / plan.tokens
    stub = [sys.executable, "-m", "actors.testing.stub_server", "--port", "0"]
    stub += ["--chunks", str(plan.tokens), "--delay", str(delay), "--text", "w " * plan.tokens]
    with tempfile.TemporaryDirectory() as folder:
        agents = Path(folder, "agents")
        agents.mkdir()
        async with started(stub, core=client_core) as model:
            agents.joinpath("slow.yaml").write_text(AGENT.format(url=model.line))
            command = [
                sys.executable,
                "-m",
                "gateway",
                "serve",
                "api",
                str(agents),
                "--listen",
                "127.0.0.1:0",
            ]
            command += ["--session-db", str(Path(folder, "session.db"))]
            env = {"OPENAI_API_KEY": "none", "GREENROOM_DATA_DIR": folder}
            async with started(command, core=server_core, env=env) as server:
                yield server


async def measure(plan: Plan) -> tuple[dict[str, Any], list[Goal]]:
    """Let every follower drop and come back during one turn."""
    async with running(plan) as server:
        address = server.line.removeprefix("Listening on ").strip()
        client = KeptAlive(address)
        session = msgspec.json.decode(await client.post("/api/sessions", {"title": "bench"}))["id"]
        await client.aclose()
        pause = plan.seconds * 0.8 / (plan.drops + 1)
        followers = [Follower(address, session, plan.drops, pause) for _ in range(plan.followers)]
        before, began = server.cpu(), time.perf_counter()
        with trio.move_on_after(plan.limit):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_turn, address, session)
                for follower in followers:
                    nursery.start_soon(follower.run)
        seconds, used = time.perf_counter() - began, server.cpu() - before
    return report(plan, followers, seconds, used)


async def _turn(address: str, session: str) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    async with await connect(address) as stream:
        await stream.send_all(request(address, f"/api/sessions/{session}/agent/slow", body, close=True))
        while await stream.receive_some(READ):
            pass


def report(
    plan: Plan, followers: list[Follower], seconds: float, used: float
) -> tuple[dict[str, Any], list[Goal]]:
    """Return the figures, and hold them against what the server promises."""
    longest = max(len(follower.seen) for follower in followers)
    whole = list(range(1, longest + 1))
    exact = sum(follower.seen == whole for follower in followers)
    resumes = [took for follower in followers for took in follower.resumes]
    share = round(used / seconds, 3)
    results: dict[str, Any] = {
        "followers": plan.followers,
        "events": longest,
        "exact": exact,
        "resumes": len(resumes),
        "resumes_per_second": round(len(resumes) / seconds, 1),
        "resume_ms": spread(resumes, 1000),
        "seconds": round(seconds, 1),
        "server_cpu_share": share,
        "server_cpu_ms_per_resume": round(used * 1000 / max(len(resumes), 1), 3),
    }
    return results, [
        Goal("followers that saw every number exactly once", exact, plan.followers, ">="),
        Goal("resumes", len(resumes), plan.followers * plan.drops, ">="),
        Goal("server CPU share", share, 0.9),
    ]


def main() -> int:
    """Run the benchmark; exit status 0 when every goal holds."""
    parser = argparse.ArgumentParser(prog="python -m bench.reconnect", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer followers: shapes, not figures")
    options = parser.parse_args()
    raise_descriptor_limit()
    results, held = trio.run(measure, QUICK if options.quick else Plan())
    return finish("reconnect", results, held)


if __name__ == "__main__":
    sys.exit(main())
