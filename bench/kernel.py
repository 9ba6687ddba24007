"""What an actor costs: the kernel beside asyncio tasks, pykka, thespian and Erlang, in one run.

``python -m bench.kernel`` prints one JSON document; ``--quick`` measures shapes instead of figures. Rivals that are not
installed are left out with a note.
"""

# The rivals may not be installed, and are typed loosely when they are.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportIncompatibleMethodOverride=false
# pyright: reportUntypedBaseClass=false
from __future__ import annotations

import argparse
import asyncio  # noqa: TID251 - the rival
import functools
import gc
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from actors.kernel import (
    Actor,
    Address,
    Bounds,
    Context,
    Control,
    Kind,
    Outcome,
    Request,
    System,
    open_system,
)
from bench.report import Goal, finish, spread

BURST = 100
"""Messages told between two turns of the scheduler; more at once is no pattern of a server."""
PAGE = 4096


class Get(Request[int], frozen=True): ...


class Increment(Request[int], frozen=True): ...


class Begin(Request[None], frozen=True): ...


class Ended(Control, frozen=True):
    outcome: Outcome[None]


class Counter(Actor[Any]):
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    async def receive(self, message: Any, ctx: Context[Any]) -> object:
        if type(message) is Increment:
            self.count += 1
        elif type(message) is Begin:
            ctx.start_work(trio.sleep_forever, done=Ended)
        return self.count


class AsyncioCounter:
    """The actor anyone writes on asyncio: a queue, a task, a future for each reply."""

    def __init__(self) -> None:
        self.count = 0
        self.queue: asyncio.Queue[tuple[Any, asyncio.Future[int] | None]] = asyncio.Queue()
        self.task = asyncio.create_task(self.run())

    async def run(self) -> None:
        while True:
            message, reply = await self.queue.get()
            result = await self.receive(message)
            if reply is not None:
                reply.set_result(result)

    async def receive(self, message: Any) -> int:
        if type(message) is Increment:
            self.count += 1
        return self.count

    def tell(self, message: Any) -> None:
        self.queue.put_nowait((message, None))

    async def ask(self, message: Any) -> int:
        reply: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.queue.put_nowait((message, reply))
        return await reply


KINDS = {"counter": Kind(lambda _: Counter(), bounds=Bounds(mail=1_000_000))}


def counter(system: System, key: object = 1) -> Any:
    return system.ref(Address("counter", str(key)))


def resident() -> int:
    """Return this process's resident set in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


# --- asks: microseconds of processor time for one round trip ---


async def ask_kernel(count: int) -> float:
    async with open_system(KINDS) as system:
        ref, message = counter(system), Get()
        await ref.ask(message)
        start = time.process_time()
        for _ in range(count):
            await ref.ask(message)
        return (time.process_time() - start) / count * 1e6


async def ask_asyncio(count: int) -> float:
    actor, message = AsyncioCounter(), Get()
    await actor.ask(message)
    start = time.process_time()
    for _ in range(count):
        await actor.ask(message)
    result = (time.process_time() - start) / count * 1e6
    actor.task.cancel()
    return result


# --- bursts: millions of messages told and handled in a second of processor time ---


async def burst_kernel(count: int) -> float:
    async with open_system(KINDS) as system:
        ref, message = counter(system), Increment()
        await ref.ask(Get())
        start = time.process_time()
        for _ in range(count // BURST):
            for _ in range(BURST):
                ref.tell(message)
            await trio.lowlevel.checkpoint()
        handled = await ref.ask(Get())
        result = handled / (time.process_time() - start) / 1e6
        assert handled == count // BURST * BURST
        return result


async def burst_asyncio(count: int) -> float:
    actor, message = AsyncioCounter(), Increment()
    await actor.ask(Get())
    start = time.process_time()
    for _ in range(count // BURST):
        for _ in range(BURST):
            actor.tell(message)
        await asyncio.sleep(0)
    handled = await actor.ask(Get())
    result = handled / (time.process_time() - start) / 1e6
    assert handled == count // BURST * BURST
    actor.task.cancel()
    return result


# --- each of the following in a process of its own ---


async def spawn_kernel(count: int) -> dict[str, float]:
    """Activate actors by a first message each; measure time and resident bytes."""
    async with open_system(KINDS, grace=60) as system:
        message = Increment()
        for key in range(count // 10):
            counter(system, f"warm{key}").tell(message)
        await trio.sleep(0.1)
        gc.collect()
        memory, start = resident(), time.process_time()
        for key in range(count):
            counter(system, key).tell(message)
            if key % BURST == 0:
                await trio.lowlevel.checkpoint()
        assert await counter(system, count - 1).ask(Get()) == 1
        took = time.process_time() - start
        gc.collect()
        return {"per_second": count / took, "bytes_per_idle_actor": (resident() - memory) / count}


async def spawn_asyncio(count: int) -> dict[str, float]:
    actors = [AsyncioCounter() for _ in range(count // 10)]
    await asyncio.sleep(0.1)
    gc.collect()
    memory, start = resident(), time.process_time()
    for key in range(count):
        actor = AsyncioCounter()
        actor.tell(Increment())
        actors.append(actor)
        if key % BURST == 0:
            await asyncio.sleep(0)
    assert await actors[-1].ask(Get()) == 1
    took = time.process_time() - start
    gc.collect()
    result = {"per_second": count / took, "bytes_per_idle_actor": (resident() - memory) / count}
    for actor in actors:
        actor.task.cancel()
    return result


async def stop_works(count: int) -> dict[str, float]:
    """Trip the switch over ``count`` actors with running work; wait until every actor has heard of its end."""
    async with open_system(KINDS, grace=60) as system:
        for key in range(count):
            await counter(system, key).ask(Begin())
        await trio.sleep(0.5)
        assert system.statistics().works == count
        start = time.perf_counter()
        hit = system.killswitch.trip("bench")
        tripped = time.perf_counter() - start
        while system.statistics().works:
            await trio.lowlevel.checkpoint()
        await counter(system, count - 1).ask(Get())
        assert hit == count
        return {"synchronous_seconds": tripped, "seconds": time.perf_counter() - start}


def run_pykka(count: int) -> dict[str, float]:
    import pykka

    class PykkaCounter(pykka.ThreadingActor):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        def on_receive(self, message: Any) -> int:
            if type(message) is Increment:
                self.count += 1
            return self.count

    ref = PykkaCounter.start()
    message = Increment()
    start = time.perf_counter()
    for _ in range(count):
        ref.ask(message)
    ask = (time.perf_counter() - start) / count * 1e6
    start = time.perf_counter()
    for _ in range(count):
        ref.tell(message)
    ref.ask(message)
    burst = count / (time.perf_counter() - start) / 1e6
    ref.stop()
    threads = min(count, 1_000)
    gc.collect()
    memory, start = resident(), time.perf_counter()
    refs = [PykkaCounter.start() for _ in range(threads)]
    took = time.perf_counter() - start
    used = (resident() - memory) / threads
    for each in refs:
        each.stop()
    return {
        "ask_us": ask,
        "burst_millions": burst,
        "per_second": threads / took,
        "bytes_per_idle_actor": used,
    }


def run_thespian(count: int) -> dict[str, float]:
    from thespian import actors as thespian

    class ThespianCounter(thespian.Actor):
        def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802 - its interface
            if message == "get":
                self.send(sender, 1)

    system = thespian.ActorSystem("simpleSystemBase")
    try:
        ref = system.createActor(ThespianCounter)
        start = time.perf_counter()
        for _ in range(count):
            system.ask(ref, "get", 5)
        ask = (time.perf_counter() - start) / count * 1e6
        start = time.perf_counter()
        for _ in range(count):
            system.tell(ref, "increment")
        system.ask(ref, "get", 5)
        burst = count / (time.perf_counter() - start) / 1e6
        gc.collect()
        memory, start = resident(), time.perf_counter()
        made = min(count, 2_000)
        for _ in range(made):
            system.createActor(ThespianCounter)
        took = time.perf_counter() - start
        used = (resident() - memory) / made
    finally:
        system.shutdown()
    return {"ask_us": ask, "burst_millions": burst, "per_second": made / took, "bytes_per_idle_actor": used}


ERLANG = """
-module(bench).
-export([main/1]).
loop(N) -> receive {ask, From} -> From ! {reply, N}, loop(N); increment -> loop(N + 1) end.
main([Arg]) ->
    Count = list_to_integer(Arg), Pid = spawn(fun() -> loop(0) end), Me = self(),
    {Ask, _} = timer:tc(fun() ->
        [begin Pid ! {ask, Me}, receive {reply, _} -> ok end end || _ <- lists:seq(1, Count)] end),
    {Burst, _} = timer:tc(fun() ->
        [Pid ! increment || _ <- lists:seq(1, Count)], Pid ! {ask, Me}, receive {reply, _} -> ok end end),
    Before = erlang:memory(processes),
    {Spawn, Pids} = timer:tc(fun() -> [spawn(fun() -> loop(0) end) || _ <- lists:seq(1, Count)] end),
    Used = (erlang:memory(processes) - Before) / length(Pids),
    io:format("~.3f ~.3f ~.1f ~.1f~n", [Ask / Count, Count / Burst, Count / Spawn * 1.0e6, Used]),
    halt(0).
"""


def run_erlang(count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "bench.erl").write_text(ERLANG)
        subprocess.run(["erlc", "bench.erl"], cwd=folder, check=True)
        command = ["erl", "-noshell", "-run", "bench", "main", str(count)]
        printed = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    names = ("ask_us", "burst_millions", "per_second", "bytes_per_idle_actor")
    return dict(zip(names, map(float, printed.split()), strict=True))


CASES: dict[str, Callable[[int], dict[str, float]]] = {
    "kernel": functools.partial(trio.run, spawn_kernel),
    "asyncio": lambda count: asyncio.run(spawn_asyncio(count)),
    "works": functools.partial(trio.run, stop_works),
    "pykka": run_pykka,
    "thespian": run_thespian,
    "erlang": run_erlang,
}


def apart(case: str, count: int) -> dict[str, float]:
    """Run a case in a process of its own: what others left in memory would count, too."""
    command = [sys.executable, "-m", "bench.kernel", "--case", case, "--count", str(count)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result: dict[str, float] = json.loads(printed)
    return result


def installed(rival: str) -> bool:
    if rival == "erlang":
        return shutil.which("erl") is not None and shutil.which("erlc") is not None
    return importlib.util.find_spec(rival) is not None


def compare(rounds: int, count: int) -> tuple[dict[str, Any], float, float]:
    """Alternate kernel and asyncio in this process; return figures and the median ratios of asks and bursts."""
    asks: list[tuple[float, float]] = []
    bursts: list[tuple[float, float]] = []
    for _ in range(rounds):
        asks.append((trio.run(ask_kernel, count), asyncio.run(ask_asyncio(count))))
        bursts.append((trio.run(burst_kernel, count * 5), asyncio.run(burst_asyncio(count * 5))))
    results = {
        "ask_us": {"kernel": spread([a for a, _ in asks]), "asyncio": spread([b for _, b in asks])},
        "burst_millions": {
            "kernel": spread([a for a, _ in bursts]),
            "asyncio": spread([b for _, b in bursts]),
        },
    }
    return results, statistics.median(a / b for a, b in asks), statistics.median(a / b for a, b in bursts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few messages: shapes, not figures")
    parser.add_argument(
        "--case", choices=sorted(CASES), help="one case in this process (used by the bench itself)"
    )
    parser.add_argument("--count", type=int, default=10_000)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(CASES[arguments.case](arguments.count)))
        return 0
    many = 1_000 if arguments.quick else 10_000
    results, ask_ratio, burst_ratio = compare(2 if arguments.quick else 9, many)
    kernel = apart("kernel", many)
    works = min((apart("works", many) for _ in range(3)), key=lambda result: result["seconds"])
    rivals: dict[str, Any] = {"asyncio": apart("asyncio", many)}
    for rival in ("pykka", "thespian", "erlang"):
        rivals[rival] = apart(rival, many) if installed(rival) else "not installed"
    results |= {"kernel": kernel, "works": works, "rivals": rivals}
    return finish(
        "kernel",
        results,
        [
            Goal("ask / asyncio ask", ask_ratio, 1.6),
            Goal("burst tell / asyncio burst", burst_ratio, 1.0, ">="),
            Goal("bytes per idle actor", kernel["bytes_per_idle_actor"], 4096, unit="bytes"),
            Goal("spawns per second", kernel["per_second"], 24_000, ">=", "1/s"),
            Goal(f"{many} running works stopped", works["seconds"], 1.0, unit="s"),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
