"""What the squads' stored resources cost as boards and memories grow; nothing may scan what it need not.

Run it with ``python -m bench.surface``; it needs some 150 MB of temporary disk.
"""

# ruff: noqa: ARG002 - the engine's interface

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import trio

from actors.models.catalog import Models
from actors.squad.board import Board, Change
from actors.squad.requests import AgentGiven, CreateSquad, CreateTask, TaskPatch
from actors.squad.service import Squads
from actors.squad.values import BudgetUsage, HistoryRecord, Squad, SquadStatus, Task
from bench.report import Goal, finish, spread

SIZES = (100, 1_000, 10_000)
AGENTS = (1, 10, 100)
MEMORY_BYTES = 1_000_000
ROUNDS = 50
SEARCHES = 5


class Nothing:
    """An engine in which nothing runs."""

    async def active_executions(self, squad_id: str) -> Sequence[str]:
        return ()

    async def busy_agents(self, squad_id: str) -> frozenset[str]:
        return frozenset()

    async def squad_status(self, squad_id: str) -> SquadStatus:
        return SquadStatus()

    async def squad_statuses(self) -> Mapping[str, SquadStatus]:
        return {}

    async def usage(self, squad_id: str) -> BudgetUsage:
        return BudgetUsage()

    async def history(self, squad_id: str) -> Sequence[HistoryRecord]:
        return ()

    async def publish(self, squad_id: str, name: str, payload: Mapping[str, Any]) -> None:
        return


def rows(squad_id: str, count: int) -> list[Task]:
    """Return a plan of ``count`` tasks, each of which waits for the one ten before it."""
    return [
        Task(
            id=f"task-{number}",
            squad_id=squad_id,
            plan_id="plan",
            title=f"Task {number}",
            description="A task like many others. " * 10,
            status="pending" if number >= 10 else "ready",
            depends_on=(f"task-{number - 10}",) if number >= 10 else (),
            created_at=f"2026-01-01T00:00:00.{number:06}Z",
        )
        for number in range(count)
    ]


async def timed(act: Callable[[int], Awaitable[object]], rounds: int = ROUNDS) -> list[float]:
    """Return the seconds that each call took."""
    taken: list[float] = []
    for number in range(rounds):
        began = time.perf_counter()
        await act(number)
        taken.append(time.perf_counter() - began)
    return taken


def timed_values(act: Callable[[int], object], rounds: int = ROUNDS) -> list[float]:
    """Return the seconds that each call took."""
    taken: list[float] = []
    for number in range(rounds):
        began = time.perf_counter()
        act(number)
        taken.append(time.perf_counter() - began)
    return taken


async def board(squads: Squads, squad: Squad, count: int) -> dict[str, Any]:
    """Measure a board of ``count`` tasks; milliseconds, files included."""
    began = time.perf_counter()
    await squads.put_tasks(squad.id, rows(squad.id, count))
    filled = time.perf_counter() - began
    await squads.tasks.flush()
    squads.tasks.close(squad.id)
    began = time.perf_counter()
    await squads.tasks.list(squad.id)
    opened = time.perf_counter() - began
    tasks = squads.tasks
    made: list[str] = []

    async def create(number: int) -> None:
        given = CreateTask(title=f"new {number}", description="", depends_on=(f"task-{number}",))
        made.append((await tasks.create(squad.id, given)).id)

    results: dict[str, Sequence[float]] = {
        "create": await timed(create),
        "patch": await timed(
            lambda number: tasks.patch(squad.id, f"task-{number + 20}", TaskPatch(priority="high"))
        ),
        "status": await timed(lambda number: tasks.set_status(squad.id, f"task-{number}", "done")),
        "get": await timed(lambda number: tasks.get(squad.id, f"task-{number}")),
        "summary": await timed(lambda _: tasks.summary(squad.id)),
        "graph_first": await timed(lambda _: tasks.graph(squad.id), 1),
        "graph_again": await timed(lambda _: tasks.graph(squad.id)),
        "list_status": await timed(lambda _: tasks.list(squad.id, status="failed")),
        "delete": await timed(lambda number: tasks.delete(squad.id, made[number])),
    }
    began = time.perf_counter()
    await tasks.flush()
    results["index"] = [time.perf_counter() - began]
    found: dict[str, Any] = {name: spread(taken, 1000) for name, taken in results.items()}
    return {"fill_s": round(filled, 3), "open_s": round(opened, 3), "ms": found}


def board_values(count: int) -> dict[str, float]:
    """Measure the board without its files; median microseconds."""
    found = Board(rows("s", count))
    squad = Squad(id="s", name="s", workspace_path="/w")

    def apply(change: Change) -> None:
        found.apply(change)

    def create(number: int) -> None:
        given = CreateTask(title="new", description="", depends_on=(f"task-{number}",))
        apply(found.create(given, task_id=f"new-{number}", squad=squad, now=""))

    operations: dict[str, Callable[[int], object]] = {
        "create": create,
        "patch": lambda number: apply(
            found.patch(f"task-{number + 20}", TaskPatch(priority="high"), squad=squad)
        ),
        "status": lambda number: apply(found.set_status(f"task-{number}", "done", now="")),
        "delete": lambda number: apply(found.remove(f"new-{number}", force=False, now="")),
    }
    return {name: statistics.median(timed_values(act)) * 1e6 for name, act in operations.items()}


def memory_text(agent: int) -> bytes:
    """Return a memory of a megabyte with fifty sections and one line that only this agent has."""
    line = "- [2026-01-01] The build takes nine minutes on the small machine and two on the large one.\n"
    section = (line * (MEMORY_BYTES // 50 // len(line))).encode()
    parts = [b"# Agent\n"]
    for number in range(50):
        parts.append(f"\n## Section {number}\n\n".encode() + section)
    parts.append(f"- [2026-01-02] secret-{agent} is known to one agent\n".encode())
    return b"".join(parts)


async def memories(squads: Squads, squad: Squad, count: int) -> dict[str, float]:
    """Measure searches over the memories of ``count`` agents; median milliseconds."""
    folder = Path(squad.workspace_path) / "memory"
    for number in range(count):
        (folder / f"agent-{number}.md").write_bytes(memory_text(number))
    search = squads.memory.search
    last = f"agent-{count - 1}"
    operations: dict[str, Callable[[int], Awaitable[object]]] = {
        "nothing_found": lambda _: search(squad.id, "no such words"),
        "nothing_found_other_alphabet": lambda _: search(squad.id, "Überraschung"),
        "found_at_the_end": lambda _: search(squad.id, f"secret-{count - 1}"),
        "one_agent": lambda _: search(squad.id, "secret", agent_id=last),
        "one_section_of_one_agent": lambda _: search(
            squad.id, "nine minutes", agent_id=last, section="Section 3"
        ),
        "first_hit_is_enough": lambda _: search(squad.id, "nine minutes", limit=1),
    }
    found: dict[str, float] = {}
    for name, act in operations.items():
        found[name] = round(statistics.median(await timed(act, SEARCHES)) * 1000, 3)
    return found


async def measure(directory: Path) -> int:
    """Measure everything and print the report; return the exit status."""
    squads = Squads(directory / "data", Models({}, directory))
    squads.live = Nothing()
    boards: dict[str, Any] = {}
    values: dict[str, dict[str, float]] = {}
    for count in SIZES:
        squad = await open_squad(squads, directory / f"board-{count}", 0)
        boards[str(count)] = await board(squads, squad, count)
        values[str(count)] = board_values(count)
    searches: dict[str, dict[str, float]] = {}
    for count in AGENTS:
        squad = await open_squad(squads, directory / f"memory-{count}", count)
        searches[str(count)] = await memories(squads, squad, count)
    small, large = str(SIZES[0]), str(SIZES[-1])
    goals = [
        Goal(
            f"board {name}: {large} tasks against {small}",
            _ratio(boards, name, small, large),
            3,
            unit="times",
        )
        for name in ("create", "patch", "status", "delete", "get", "summary")
    ]
    goals += [
        Goal(
            f"board {name} without files: {large} against {small}",
            round(values[large][name] / values[small][name], 2),
            3,
            unit="times",
        )
        for name in values[large]
    ]
    goals.append(
        Goal(
            f"board graph: a task of {large} against one of {small}",
            round(_ratio(boards, "graph_first", small, large) * SIZES[0] / SIZES[-1], 2),
            3,
            unit="times",
        )
    )
    one, many = searches[str(AGENTS[0])], searches[str(AGENTS[-1])]
    goals += [
        Goal(f"memory {name}: 100 agents against 1", round(many[name] / one[name], 2), 3, unit="times")
        for name in ("one_agent", "one_section_of_one_agent", "first_hit_is_enough")
    ]
    goals.append(Goal("memory, 100 MB without a hit", many["nothing_found"], 1000, unit="ms"))
    return finish(
        "surface", {"boards": boards, "boards_without_files_us": values, "searches_ms": searches}, goals
    )


def _ratio(boards: Mapping[str, Any], name: str, small: str, large: str) -> float:
    def median(size: str) -> float:
        return boards[size]["ms"][name]["p50"] or 0.001

    return round(median(large) / median(small), 2)


async def open_squad(squads: Squads, workspace: Path, agents: int) -> Squad:
    """Make a squad of so many agents and lay its workspace out."""
    squad = await squads.create(
        CreateSquad(
            name=workspace.name,
            workspace_path=str(workspace),
            agents=tuple(
                AgentGiven(id=f"agent-{number}", name=f"agent {number}", role="writer")
                for number in range(agents)
            ),
        )
    )
    await squads.init_workspace(squad.id, squad.workspace_path)
    return squad


def main() -> int:
    """Run the benchmark."""
    with tempfile.TemporaryDirectory(prefix="greenroom-surface-") as directory:
        return trio.run(measure, Path(directory))


if __name__ == "__main__":
    sys.exit(main())
