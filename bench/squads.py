"""What a squad's run costs: plan, waves, ledger and live events on an instant model, followers, and the emergency stop.

``python -m bench.squads`` prints one JSON document; ``--quick`` measures shapes instead of figures. Everything runs in
one process on a real journal and real workspaces; the same model calls in a bare ``asyncio.gather`` are the baseline.
"""

from __future__ import annotations

import argparse
import asyncio  # noqa: TID251 - the baseline
import gc
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import trio
import trio.testing

from actors.models.catalog import Models
from actors.models.provider import ModelRequest
from actors.runtime import Runtime, open_runtime
from actors.settings import Settings
from actors.squad.bus import Follower, Gap, Lagged
from actors.squad.ledger import read_page
from actors.squad.requests import AgentGiven, CreateSquad
from actors.squad.values import BudgetConfig, Role
from actors.testing.model import Answer, ScriptedModel, calls, hang, say
from bench.report import Goal, finish, spread

PAGE = 4096
TASKS = 10
CPU_PER_TASK_MS = 12.0
STOP_SECONDS = 1.0


class Team:
    """A model that plans ``tasks`` tasks and has workers answer at once, or never."""

    def __init__(self, tasks: int, agents: int, *, hanging: bool = False) -> None:
        self._plan = calls(
            [
                (
                    "create_task",
                    {
                        "title": f"task {number}",
                        "description": "answer",
                        "assigned_to": f"worker-{number % agents}",
                        # Two tasks of each wave feed the next one, so that there are barriers to cross.
                        "depends_on": [] if hanging or number < agents else [f"t{number - agents + 1}"],
                    },
                )
                for number in range(tasks)
            ]
        )
        self._hanging = hanging
        self.model = ScriptedModel(self._answer, strict=False)

    def _answer(self, request: ModelRequest) -> Answer | str:
        if request.tools and request.tools[0].name == "create_task":
            return say("planned") if request.messages[-1].role == "tool" else self._plan
        return hang() if self._hanging else say("the result of a task, a sentence long")


@asynccontextmanager
async def runtime(team: Team, **settings: Any) -> AsyncGenerator[tuple[Runtime, Path]]:
    """Open a runtime on a directory of its own."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        models = Models({}, directory)
        models.register("scripted", team.model)
        given = Settings(
            data_dir=directory / "data",
            database=directory / "greenroom.db",
            environment={},
            default_model="scripted/m",
            **settings,
        )
        async with open_runtime(given, models=models) as opened:
            yield opened, directory


async def make_squad(opened: Runtime, directory: Path, number: int, agents: int) -> str:
    """Create a squad of a planner and workers with an initialised workspace; return its id."""
    store = opened.squad_store
    members = [AgentGiven(name="planner", role=Role("planner"), memory_enabled=False)]
    members += [
        AgentGiven(id=f"w-{number}-{n}", name=f"worker-{n}", role=Role("developer"), memory_enabled=False)
        for n in range(agents)
    ]
    given = CreateSquad(
        name=f"squad {number}", workspace_path=str(directory / f"space-{number}"), agents=tuple(members)
    )
    squad = await store.create(given)
    await store.init_workspace(squad.id, squad.workspace_path)
    await store.set_budget(
        squad.id,
        BudgetConfig(
            max_total_tokens=10_000_000,
            max_tokens_per_agent=10_000_000,
            max_tokens_per_task=10_000_000,
            max_concurrent_agents=50,
            max_tasks_per_plan=200,
        ),
    )
    return squad.id


async def wait_ended(opened: Runtime, runs: Sequence[tuple[str, str]]) -> None:
    """Wait until all executions have ended."""
    left = {execution_id for _, execution_id in runs}
    with opened.squads.follow(None) as follower:
        for squad_id, execution_id in runs:
            if (await opened.squads.execution(squad_id, execution_id)).completed_at:
                left.discard(execution_id)
        while left:
            got = await follower.next()
            if isinstance(got, Gap | Lagged):
                for squad_id, execution_id in runs:
                    if (
                        execution_id in left
                        and (await opened.squads.execution(squad_id, execution_id)).completed_at
                    ):
                        left.discard(execution_id)
                continue
            for frame in got:
                if frame.event.name in ("squad:execution-completed", "squad:execution-failed"):
                    left.discard(frame.event.execution_id)


async def throughput(squads: int) -> dict[str, Any]:
    """Run one execution of ten tasks in each of many squads at once."""
    async with runtime(Team(TASKS, 5)) as (opened, directory):
        ids = [await make_squad(opened, directory, number, 5) for number in range(squads)]
        gc.collect()
        began, cpu = time.perf_counter(), time.process_time()
        runs: list[tuple[str, str]] = []

        async def submit(squad_id: str) -> None:
            runs.append((squad_id, (await opened.squads.submit(squad_id, "do it", auto_approve=True)).id))

        async with trio.open_nursery() as nursery:
            for squad_id in ids:
                nursery.start_soon(submit, squad_id)
        await wait_ended(opened, runs)
        seconds, used = time.perf_counter() - began, time.process_time() - cpu
        done = 0
        events = 0
        holes = 0
        for squad_id, execution_id in runs:
            execution = await opened.squads.execution(squad_id, execution_id)
            done += execution.task_counts.completed
            path = directory / f"space-{ids.index(squad_id)}" / "logs" / f"{execution_id}.events.jsonl"
            page = await trio.to_thread.run_sync(lambda path=path: read_page(path, "", limit=100_000))
            events += len(page.events)
            holes += [line.seq for line in page.events] != list(range(1, page.last_seq + 1))
    tasks = squads * TASKS
    return {
        "squads": squads,
        "tasks": tasks,
        "tasks_done": done,
        "seconds": round(seconds, 3),
        "executions_per_second": round(squads / seconds, 2),
        "cpu_ms_per_task": round(used / tasks * 1000, 3),
        "ledger_events": events,
        "ledger_events_per_second": round(events / seconds, 1),
        "events_per_task": round(events / tasks, 2),
        "ledgers_with_holes": holes,
        "model_calls": squads * (TASKS + 3),
    }


def baseline(model_calls: int) -> dict[str, Any]:
    """Make as many model calls by a bare ``asyncio.gather``: no plan, no record, no control."""

    async def call(number: int) -> str:
        await asyncio.sleep(0)
        return f"the result of a task, a sentence long {number}"

    async def gather() -> None:
        await asyncio.gather(*(call(number) for number in range(model_calls)))

    began, cpu = time.perf_counter(), time.process_time()
    asyncio.run(gather())
    return {
        "model_calls": model_calls,
        "seconds": round(time.perf_counter() - began, 4),
        "cpu_ms_per_call": round((time.process_time() - cpu) / model_calls * 1000, 5),
    }


async def followers(count: int) -> dict[str, Any]:
    """Let many readers follow one busy squad; every event must reach every reader."""
    async with runtime(Team(TASKS, 5)) as (opened, directory):
        squad_id = await make_squad(opened, directory, 0, 5)
        counts = [0] * count
        lags: list[float] = []
        lost = 0
        gc.collect()
        before = _resident()

        async def follow(index: int) -> None:
            nonlocal lost
            with opened.squads.follow(squad_id) as follower:
                while True:
                    counts[index] += await _take(follower, lags if index % 50 == 0 else None)

        async with trio.open_nursery() as nursery:
            for index in range(count):
                nursery.start_soon(follow, index)
            await trio.testing.wait_all_tasks_blocked()
            memory = _resident() - before
            started = opened.squads.bus.last
            began, cpu = time.perf_counter(), time.process_time()
            execution = await opened.squads.submit(squad_id, "do it", auto_approve=True)
            await wait_ended(opened, [(squad_id, execution.id)])
            with trio.move_on_after(10):
                await trio.testing.wait_all_tasks_blocked(0.05)
            seconds, used = time.perf_counter() - began, time.process_time() - cpu
            published = opened.squads.bus.last - started
            nursery.cancel_scope.cancel()
    return {
        "followers": count,
        "events": published,
        "deliveries": sum(counts),
        "missing": published * count - sum(counts) + lost,
        "seconds": round(seconds, 3),
        "delivery_ms": spread(lags, 1000),
        "cpu_us_per_delivery": round(used / max(sum(counts), 1) * 1e6, 3),
        "bytes_per_follower": round(memory / count),
    }


async def _take(follower: Follower, lags: list[float] | None) -> int:
    got = await follower.next()
    if isinstance(got, Gap | Lagged):
        return 0
    if lags is not None:
        now = time.time()
        lags.extend(max(now - frame.at, 0.0) for frame in got)
    return len(got)


async def stop(workers: int) -> dict[str, Any]:
    """Stop a squad whose workers all hang, and time it from the request until every execution has recorded it."""
    agents = 50
    executions = max(workers // agents, 1)
    team = Team(agents, agents, hanging=True)
    async with runtime(team, squad_executions=executions) as (opened, directory):
        squad_id = await make_squad(opened, directory, 0, agents)
        for _ in range(executions):
            await opened.squads.submit(squad_id, "hang", auto_approve=True)
        with trio.move_on_after(120):
            await team.model.wait_requests(executions * (2 + agents))
        hanging = team.model.running
        began = time.perf_counter()
        cancelled = await opened.squads.emergency_stop(squad_id)
        seconds = time.perf_counter() - began
        left = team.model.running
        recorded = len(await opened.squads.executions(squad_id, phase="cancelled"))
    return {
        "hanging_workers": hanging,
        "executions": executions,
        "cancelled": len(cancelled),
        "recorded": recorded,
        "left_running": left,
        "seconds": round(seconds, 4),
    }


def _resident() -> int:
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
    return 0


def main() -> int:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shapes instead of figures")
    quick = parser.parse_args().quick
    squads, crowds, workers = (10, (100,), 100) if quick else (100, (1000, 5000), 1000)
    results: dict[str, Any] = {"throughput": trio.run(throughput, squads)}
    results["asyncio_gather"] = baseline(results["throughput"]["model_calls"])
    for crowd in crowds:
        results[f"followers_{crowd}"] = trio.run(followers, crowd)
    results["emergency_stop"] = trio.run(stop, workers)
    speed, stopped = results["throughput"], results["emergency_stop"]
    goals = [
        Goal("tasks done of all", speed["tasks_done"] / speed["tasks"], 1.0, ">="),
        Goal("ledgers with holes", speed["ledgers_with_holes"], 0),
        Goal("CPU per task", speed["cpu_ms_per_task"], CPU_PER_TASK_MS, unit="ms"),
        *(
            Goal(f"events missing at {crowd} followers", results[f"followers_{crowd}"]["missing"], 0)
            for crowd in crowds
        ),
        Goal("workers left running after the stop", stopped["left_running"], 0),
        Goal("executions not recorded", stopped["executions"] - stopped["recorded"], 0),
        Goal("emergency stop", stopped["seconds"], STOP_SECONDS, unit="s"),
    ]
    return finish("squads", results, goals)


if __name__ == "__main__":
    raise SystemExit(main())
