"""What API tools cost: many waits at once, processor time per call, and background calls in flight.

``python -m bench.tools [--quick]`` starts a target server in a process of its own and prints JSON.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
import trio.lowlevel

from actors.apitools.caller import Bounds, Caller, open_caller
from actors.apitools.history import open_history
from actors.apitools.queries import ApiRows
from actors.ids import wall_clock
from actors.journal import open_sqlite
from actors.tools.egress import Egress, Reach
from actors.tools.http_api.call import ApiCall
from actors.tools.http_api.executor import Executor
from bench.report import Goal, finish, spread

DELAY = 1.0
_BODY = b'{"ok":true}'
_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
)


async def target() -> None:
    """Answer ``/slow`` after a second, ``/hold`` after sixty, everything else at once; print the port."""

    async def answer(stream: trio.SocketStream) -> None:
        async with stream:
            try:
                head = await stream.receive_some(4096)
                await trio.sleep(DELAY if b" /slow" in head else 60 if b" /hold" in head else 0)
                await stream.send_all(_ANSWER % (len(_BODY), _BODY))
            except trio.BrokenResourceError:
                return

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=16_384)
    print(listeners[0].socket.getsockname()[1], flush=True)
    await trio.serve_listeners(answer, listeners)


@asynccontextmanager
async def caller(bounds: Bounds) -> AsyncGenerator[Caller]:
    """Open a caller on a database of its own."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_sqlite(Path(folder) / "bench.db") as log:
            log.register(ApiRows())
            executor = Executor(Egress(reach=Reach(["127.0.0.0/8"])))
            async with (
                open_history(log, "bench", wall_clock) as history,
                open_caller(executor, history, wall_clock, bounds) as opened,
            ):
                yield opened


async def waits(port: int, count: int) -> dict[str, float]:
    """Make ``count`` calls at once of an endpoint that takes a second."""
    call = ApiCall(name="slow", url=f"http://127.0.0.1:{port}/slow", seconds=60)
    ok = 0

    async def one(made: Caller, number: int) -> None:
        nonlocal ok
        done = await made.perform("t", call, {"n": number}, {}, session_id=f"s{number}")
        ok += done.record.state == "succeeded"

    async with caller(Bounds()) as made:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(one, made, number)
        seconds = trio.current_time() - began
    return {"calls": count, "succeeded": ok, "seconds": round(seconds, 3)}


async def cost(port: int, count: int) -> dict[str, float]:
    """Make calls one after the other and return the processor time of each in milliseconds."""
    call = ApiCall(name="quick", url=f"http://127.0.0.1:{port}/", seconds=60)
    async with caller(Bounds()) as made:
        await made.perform("t", call, {}, {}, session_id="s")
        began, wall = time.process_time(), trio.current_time()
        for number in range(count):
            await made.perform("t", call, {"n": number}, {}, session_id="s")
        used, took = time.process_time() - began, trio.current_time() - wall
    return {"calls": count, "cpu_ms": round(used / count * 1000, 3), "wall_ms": round(took / count * 1000, 3)}


async def background(port: int, count: int) -> dict[str, Any]:
    """Keep ``count`` background calls in flight and time what a turn notices: the hand-over of one more."""
    call = ApiCall(
        name="hold", url=f"http://127.0.0.1:{port}/hold", seconds=120, response_mode="fire_and_forget"
    )
    async with caller(Bounds(session=10, server=count + 1000)) as made:
        alone = await handovers(made, call, 200, "a")
        before = _memory()
        for number in range(count):
            await made.perform("t", call, {"n": number}, {}, session_id=f"s{number}")
        await trio.sleep(2)
        crowded = await handovers(made, call, 200, "b")
        grown = _memory() - before
        flying = made.in_flight
        refused = sum(
            ["busy" in (await made.perform("t", call, {}, {}, session_id="a0")).text for _ in range(20)]
        )
        made._nursery.cancel_scope.cancel()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - sixty seconds saved
    return {
        "in_flight": flying,
        "memory_kib_each": round(grown / 1024 / count, 2),
        "handover_ms_alone": spread(alone, 1000),
        "handover_ms_crowded": spread(crowded, 1000),
        "refused_of_20": refused,
    }


async def handovers(made: Caller, call: ApiCall, count: int, name: str) -> list[float]:
    """Return how long each hand-over took."""
    times: list[float] = []
    for number in range(count):
        began = trio.current_time()
        await made.perform("t", call, {}, {}, session_id=f"{name}{number // 10}")
        times.append(trio.current_time() - began)
        await trio.lowlevel.checkpoint()
    return times


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> int:
    """Run all three and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the load")
    parser.add_argument("--target", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.target:
        trio.run(target)
        return 0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    scale = 10 if options.quick else 1
    room = hard - 500
    with subprocess.Popen(
        [sys.executable, "-m", "bench.tools", "--target"], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            waited = trio.run(waits, port, 1000 // scale)
            costs = trio.run(cost, port, 1000 // scale)
            held = trio.run(background, port, min(10_000 // scale, room))
        finally:
            server.terminate()
    alone, crowded = held["handover_ms_alone"], held["handover_ms_crowded"]
    memory = held["memory_kib_each"]
    goals = [
        Goal("1,000 waits on a 1 s endpoint", waited["seconds"], DELAY + 2.0, unit="s"),
        Goal("processor time per call", costs["cpu_ms"], 4.0, unit="ms"),
        Goal("hand-over with all in flight", crowded["p50"], max(alone["p50"] * 3, 1.0), unit="ms"),
        Goal("memory per call in flight", memory, 128.0, unit="KiB"),
    ]
    return finish("tools", {"waits": waited, "cost": costs, "background": held, "files": soft}, goals)


if __name__ == "__main__":
    sys.exit(main())
