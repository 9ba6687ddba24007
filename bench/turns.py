"""The whole server under turns: a stub model, the server and this load client, each a process of its own.

Run it with ``python -m bench.turns``; ``bench/README.md`` says what each figure means.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio
from msgspec import Struct

from bench.client import KeptAlive, Turn, streamed
from bench.process import Measured, cores, raise_descriptor_limit, started
from bench.report import Goal, finish, spread

CHUNKS = 20
TURNS_PER_SESSION = 5
"""A session is replaced after this many turns, so that growing prompts do not decide the figures."""
SLOW_DELAY = 0.1
SPREAD = 12.0
"""Seconds over which the same streams begin in the second, calmer measurement."""
SLOW_IDEAL = (CHUNKS - 1) * SLOW_DELAY
MESSAGE = {"messages": [{"role": "user", "content": "hi"}]}
AGENT = """\
models:
  stub:
    provider: openai
    model: gpt-4o-mini
    base_url: {url}/v1
agents:
  root:
    model: stub
    description: Answers from a stub
    instruction: You are a helpful assistant.
"""


class Plan(Struct, frozen=True):
    """How much is measured."""

    loads: tuple[tuple[int, int], ...] = ((1, 200), (50, 1_500), (200, 3_000))
    slow: int = 1_000
    idle: int = 10_000
    limit: float = 60.0


QUICK = Plan(loads=((1, 50), (50, 300), (200, 600)), slow=200, idle=2_000, limit=20.0)


class Bench:
    """The running programs and what is known of them."""

    def __init__(self, server: Measured, stub: Measured, plan: Plan) -> None:
        self.server = server
        self.stub = stub
        self.plan = plan
        self.address = server.line.removeprefix("Listening on ").strip()
        self.stub_address = stub.line.removeprefix("http://").strip()

    async def create(self, count: int, *, title: str = "bench", connections: int = 16) -> list[str]:
        """Create sessions over a few kept-alive connections and return their ids."""
        ids: list[str] = []
        body = {"title": title} if title else {}

        async def worker(share: int) -> None:
            client = KeptAlive(self.address)
            for _ in range(share):
                ids.append(msgspec.json.decode(await client.post("/api/sessions", body))["id"])
            await client.aclose()

        async with trio.open_nursery() as nursery:
            for n in range(connections):
                nursery.start_soon(worker, count // connections + (n < count % connections))
        return ids

    async def turn(self, session: str, agent: str) -> Turn:
        """Run one turn of ``session`` and read its stream to the end."""
        path = f"/api/sessions/{session}/agent/{agent}"
        return await streamed(self.address, path, MESSAGE, chunk=b'"agent_choice"', last=b'"stream_stopped"')

    async def direct(self, _: str) -> Turn:
        """Call the stub model without a server in between."""
        body = {"model": "stub", "stream": True, **MESSAGE}
        path = "/v1/chat/completions"
        return await streamed(self.stub_address, path, body, chunk=b'"content":"w', last=b"[DONE]")


async def closed_loop(
    workers: int, jobs: Sequence[str], run: Callable[[str], Awaitable[Turn]], limit: float
) -> tuple[list[Turn], float]:
    """Let ``workers`` tasks do the jobs, each its own share in order; return the turns and the seconds they took.

    Equal jobs must lie ``workers`` apart (or a multiple of it): a session's turns are then one worker's, and no two
    of them overlap.
    """
    turns: list[Turn] = []

    async def worker(number: int) -> None:
        for job in jobs[number::workers]:
            turns.append(await run(job))

    began = time.perf_counter()
    with trio.move_on_after(limit):
        async with trio.open_nursery() as nursery:
            for number in range(workers):
                nursery.start_soon(worker, number)
    return turns, time.perf_counter() - began


def summary(turns: list[Turn], seconds: float, planned: int) -> dict[str, Any]:
    """Return the figures of one load."""
    good = [turn for turn in turns if turn.ok]
    bad = [turn.detail for turn in turns if not turn.ok]
    return {
        "turns": len(good),
        "failed": len(bad),
        "unfinished": planned - len(turns),
        "turns_per_second": round(len(good) / seconds, 1),
        "latency_ms": spread([turn.total for turn in good], 1000),
        "first_text_ms": spread([turn.first for turn in good], 1000),
        "text_events_per_turn": round(sum(turn.chunks for turn in good) / max(len(good), 1), 1),
        **({"first_failure": bad[0]} if bad else {}),
    }


async def load(bench: Bench, workers: int, count: int, *, title: str = "bench") -> dict[str, Any]:
    """Measure ``count`` turns of instant answers, ``workers`` at a time."""
    wanted = max(workers, count // TURNS_PER_SESSION)
    sessions = await bench.create(wanted - wanted % workers, title=title)
    jobs = [sessions[n % len(sessions)] for n in range(count)]
    before, stub_before = bench.server.cpu(), bench.stub.cpu()
    turns, seconds = await closed_loop(workers, jobs, partial(bench.turn, agent="instant"), bench.plan.limit)
    used, stub_used = bench.server.cpu() - before, bench.stub.cpu() - stub_before
    done = max(len(turns), 1)
    result = summary(turns, seconds, count)
    result["server_cpu_ms_per_turn"] = round(used * 1000 / done, 3)
    result["stub_cpu_ms_per_turn"] = round(stub_used * 1000 / done, 3)
    return result


async def baseline(bench: Bench, workers: int, count: int) -> dict[str, Any]:
    """Measure the same load against the stub alone: what any server adds to."""
    turns, seconds = await closed_loop(workers, [""] * count, bench.direct, bench.plan.limit)
    return summary(turns, seconds, count)


async def slow_streams(bench: Bench, spread_over: float) -> dict[str, Any]:
    """Measure many answers that arrive token by token, begun evenly over some seconds whatever the server does."""
    count = bench.plan.slow
    sessions = await bench.create(count)
    before = bench.server.cpu()
    turns: list[Turn] = []

    async def one(session: str, after: float) -> None:
        await trio.sleep(after)
        turns.append(await bench.turn(session, "slow"))

    began = time.perf_counter()
    with trio.move_on_after(bench.plan.limit):
        async with trio.open_nursery() as nursery:
            for n, session in enumerate(sessions):
                nursery.start_soon(one, session, spread_over * n / count)
    seconds = time.perf_counter() - began
    result = summary(turns, seconds, count)
    result["ideal_ms"] = SLOW_IDEAL * 1000
    result["overhead_ms"] = spread([turn.total - SLOW_IDEAL for turn in turns if turn.ok], 1000)
    result["server_cpu_ms_per_turn"] = round((bench.server.cpu() - before) * 1000 / max(len(turns), 1), 3)
    return result


async def idle_sessions(bench: Bench) -> dict[str, Any]:
    """Measure creating sessions and what one costs that nobody uses."""
    count = bench.plan.idle
    before_memory, before_cpu = bench.server.memory(), bench.server.cpu()
    began = time.perf_counter()
    await bench.create(count, connections=32)
    seconds = time.perf_counter() - began
    cpu = bench.server.cpu() - before_cpu
    await trio.sleep(1)
    return {
        "created": count,
        "created_per_second": round(count / seconds, 1),
        "server_cpu_ms_each": round(cpu * 1000 / count, 3),
        "bytes_per_session": round((bench.server.memory() - before_memory) / count),
    }


@asynccontextmanager
async def running(plan: Plan) -> AsyncGenerator[Bench]:
    """Start both stub models and the server, and stop them again."""
    server_core, client_core = cores()
    stub_command = [
        sys.executable,
        "-m",
        "actors.testing.stub_server",
        "--port",
        "0",
        "--chunks",
        str(CHUNKS),
    ]
    with tempfile.TemporaryDirectory() as folder:
        agents = Path(folder, "agents")
        agents.mkdir()
        async with (
            started([*stub_command, "--delay", "0"], core=client_core) as instant,
            started([*stub_command, "--delay", str(SLOW_DELAY)], core=client_core) as slow,
        ):
            agents.joinpath("instant.yaml").write_text(AGENT.format(url=instant.line))
            agents.joinpath("slow.yaml").write_text(AGENT.format(url=slow.line))
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
                yield Bench(server, instant, plan)


async def measure(plan: Plan) -> tuple[dict[str, Any], list[Goal]]:
    """Run every measurement once, idle figures first."""
    results: dict[str, Any] = {}
    async with running(plan) as bench:
        await trio.sleep(1)
        results["start_seconds"] = round(bench.server.started_in, 3)
        results["idle_mb"] = round(bench.server.memory() / 1e6, 1)
        await load(bench, 1, 5)  # the first turn imports what later ones find loaded
        results["idle_sessions"] = await idle_sessions(bench)
        for workers, count in plan.loads:
            note(f"{workers} sessions")
            results[f"sessions_{workers}"] = await load(bench, workers, count)
            results[f"baseline_{workers}"] = await baseline(bench, workers, count)
        workers, count = plan.loads[1]
        note("with generated titles")
        results[f"sessions_{workers}_titles"] = await load(bench, workers, count // 3, title="")
        note("slow streams")
        results["slow_streams"] = await slow_streams(bench, 0)
        results["slow_streams_spread"] = await slow_streams(bench, SPREAD)
        results["after_mb"] = round(bench.server.memory() / 1e6, 1)
    return results, goals(results, plan)


def goals(results: dict[str, Any], plan: Plan) -> list[Goal]:
    """Hold the figures against what the server promises."""
    found = [
        Goal(
            f"CPU per turn at {n} sessions", results[f"sessions_{n}"]["server_cpu_ms_per_turn"], 6, unit="ms"
        )
        for n, _ in plan.loads
    ]
    most = results[f"sessions_{plan.loads[-1][0]}"]
    slow, spread_out = results["slow_streams"], results["slow_streams_spread"]
    idle = results["idle_sessions"]
    return [
        *found,
        Goal("failed or unfinished turns at full load", most["failed"] + most["unfinished"], 0),
        Goal("slow streams failed or unfinished", slow["failed"] + slow["unfinished"], 0),
        Goal("slow streams begun over 12 s, median overhead", _median(spread_out), 1, "<", "s"),
        Goal("slow streams begun at once, median overhead", _median(slow), 1, "<", "s"),
        Goal("sessions created per second", idle["created_per_second"], 1_000, ">="),
        Goal("memory per idle session", idle["bytes_per_session"] / 1024, 8, unit="KiB"),
        Goal("idle server", results["idle_mb"], 90, unit="MB"),
        Goal("start", results["start_seconds"], 1.5, unit="s"),
    ]


def _median(streams: dict[str, Any]) -> float:
    """Return a load's median overhead in seconds."""
    return float(streams["overhead_ms"].get("p50", float("inf"))) / 1000


def note(text: str) -> None:
    """Tell a waiting person what is being measured."""
    print(f"... {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Run the benchmark; exit status 0 when every goal holds."""
    parser = argparse.ArgumentParser(prog="python -m bench.turns", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer turns: shapes, not figures")
    options = parser.parse_args()
    raise_descriptor_limit()
    plan = QUICK if options.quick else Plan()
    results, held = trio.run(measure, plan)
    return finish("turns", results, held)


if __name__ == "__main__":
    raise SystemExit(main())
