"""An engine on a memory journal with a store in memory and a scripted model: what the squad tests run on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import trio

from actors.errors import NotFound
from actors.ids import new_uuid
from actors.journal.log import EventLog
from actors.journal.memory import open_memory
from actors.journal.owner import LocalOwner
from actors.kernel import Kind, open_system
from actors.models.catalog import Models
from actors.models.provider import ModelRequest
from actors.squad.actor import ExecutionActor
from actors.squad.bus import Bus, Follower, Gap, Lagged
from actors.squad.engine import SquadEngine
from actors.squad.events import SquadEvent
from actors.squad.ledger import Caps
from actors.squad.lineup import Bench
from actors.squad.queries import ExecutionRows
from actors.squad.services import ExecutionServices, Owners
from actors.squad.values import (
    Agent,
    BudgetConfig,
    Execution,
    ModelPreferences,
    Phase,
    Role,
    Squad,
    Task,
    ToolConfig,
)
from actors.testing.model import Answer, ScriptedModel, calls, say

T = TypeVar("T")
ALL_TOOLS = (
    "read_file",
    "write_file",
    "list_files",
    "list_directory",
    "search_files",
    "diff_files",
    "read_memory",
    "write_memory",
    "search_memory",
)


def agent(
    name: str, role: str = "developer", *, tools: Sequence[str] = ALL_TOOLS, model: str = "scripted/m"
) -> Agent:
    """Return an agent whose id is ``a-<name>``."""
    return Agent(
        id=f"a-{name}",
        name=name,
        role=Role(role),
        tool_config=ToolConfig(enabled_tools=tuple(tools)),
        model_preferences=ModelPreferences(preferred_model_id=model),
    )


def squad(workspace: Path, *workers: str, squad_id: str = "squad-1") -> Squad:
    """Return a squad of a planner called ``pia`` and workers."""
    return Squad(
        id=squad_id,
        name="Testers",
        workspace_path=str(workspace),
        agents=(agent("pia", "planner"), *(agent(name) for name in workers or ("ann", "bob"))),
        planner_agent_id="a-pia",
    )


@dataclass
class MemoryStore:
    """The stored resources, kept in dictionaries."""

    squads: dict[str, Squad] = field(default_factory=dict[str, Squad])
    budgets: dict[str, BudgetConfig] = field(default_factory=dict[str, BudgetConfig])
    rows: dict[str, dict[str, Task]] = field(default_factory=dict[str, dict[str, Task]])
    memories: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    broken: bool = False

    async def squad(self, squad_id: str) -> Squad:
        if squad_id not in self.squads:
            raise NotFound(f"squad {squad_id} not found")
        return self.squads[squad_id]

    async def budget_config(self, squad_id: str) -> BudgetConfig:
        return self.budgets.get(squad_id, BudgetConfig())

    async def board(self, squad_id: str) -> Sequence[Task]:
        return list(self.rows.get(squad_id, {}).values())

    async def put_tasks(self, squad_id: str, rows: Sequence[Task]) -> None:
        if self.broken:
            raise OSError(28, "No space left on device")
        self.rows.setdefault(squad_id, {}).update({row.id: row for row in rows})

    async def read_memory(self, squad_id: str, agent_id: str) -> str:
        return self.memories.get((squad_id, agent_id), "")

    async def write_memory(self, squad_id: str, agent_id: str, section: str, content: str) -> None:
        key = (squad_id, agent_id)
        self.memories[key] = self.memories.get(key, "") + f"## {section}\n- {content}\n"

    async def search_memory(self, squad_id: str, query: str) -> Sequence[str]:
        return [
            f"{agent_id}: {line}"
            for (owner, agent_id), text in self.memories.items()
            if owner == squad_id
            for line in text.splitlines()
            if query.lower() in line.lower()
        ]


async def at_once(act: Callable[[], T]) -> T:
    """Touch files without a thread, whose time a jumping clock would not see."""
    await trio.lowlevel.checkpoint()
    return act()


class Dead:
    """This process, when every other one is gone."""

    def __init__(self) -> None:
        self.me = new_uuid()

    def alive(self, owner: str) -> bool:
        return owner == self.me


@asynccontextmanager
async def open_engine(
    store: MemoryStore,
    model: ScriptedModel,
    data_dir: Path,
    *,
    log: EventLog | None = None,
    owners: Owners | None = None,
    caps: Caps | None = None,
    idle_after: float = 30.0,
    recover: bool = True,
) -> AsyncGenerator[SquadEngine]:
    """Open an engine for the block; with ``log`` on that journal, as a new process would."""
    models = Models({}, data_dir)
    models.register("scripted", model)
    now = trio.current_time()

    def clock() -> float:
        return 1_700_000_000.0 + trio.current_time() - now

    engine = SquadEngine(store, Bus())
    async with open_memory() as memory, trio.open_nursery() as nursery:
        journal = log if log is not None else memory
        if log is None:
            journal.register(ExecutionRows())
        engine.services = ExecutionServices(
            log=journal,
            owners=owners or LocalOwner(),
            clock=clock,
            store=store,
            bench=Bench(models=models, env={}),
            publish=engine.show,
            switch=engine.switch,
            history_lock=engine.history_lock,
            caps=caps or Caps(),
            data_dir=data_dir,
            disk=at_once,
        )
        kinds = {
            "execution": Kind(
                lambda address: ExecutionActor(address.key, engine.services), idle_after=idle_after
            )
        }
        async with open_system(kinds, grace=1.0) as system:
            engine.system = system
            if recover:
                await engine.recover()
            nursery.start_soon(engine.run)
            yield engine
        nursery.cancel_scope.cancel()


def plan_calls(*tasks: tuple[str, str, list[str]]) -> Answer:
    """A planner's answer: ``create_task`` for each of (title, agent, titles or ids it depends on)."""
    return calls(
        [
            (
                "create_task",
                {"title": title, "description": f"do {title}", "assigned_to": who, "depends_on": needs},
            )
            for title, who, needs in tasks
        ]
    )


Reply = Callable[[ModelRequest, str], "Answer | str"]


def always(answer: Answer) -> Reply:
    """Return what answers every worker alike."""
    return lambda *_: answer


class Team:
    """A scripted model that tells planner, workers and aggregator apart by what they are asked.

    Args:
        *tasks: The plan, see :func:`plan_calls`; made by tools.
        work: Answers a worker, given the request and the task's title.
        planner: Answers the planner instead of ``tasks``.
    """

    def __init__(
        self,
        *tasks: tuple[str, str, list[str]],
        work: Reply | None = None,
        planner: Callable[[ModelRequest], Answer | str] | None = None,
        aggregate: Callable[[ModelRequest], Answer | str] | None = None,
    ) -> None:
        self._tasks = tasks
        self._work = work
        self._planner = planner
        self._aggregate = aggregate
        self.worked: list[str] = []
        self.prompts: dict[str, str] = {}
        self.planner_calls = 0
        self.aggregator_calls = 0
        self.model = ScriptedModel(self._answer)

    def _answer(self, request: ModelRequest) -> Answer | str:
        system = request.messages[0].content
        prompt = next(message.content for message in request.messages if message.role == "user")
        if "Split the request into tasks" in system:
            self.planner_calls += 1
            if self._planner is not None:
                return self._planner(request)
            if request.messages[-1].role == "tool":
                return say("planned")
            return plan_calls(*self._tasks)
        if "Put their results together" in system:
            self.aggregator_calls += 1
            return self._aggregate(request) if self._aggregate is not None else say("the whole answer")
        title = prompt.partition("# Your task\n\n")[2].partition("\n")[0]
        if request.messages[-1].role != "tool":
            self.worked.append(title)
            self.prompts[title] = prompt
        return self._work(request, title) if self._work is not None else say(f"result of {title}")


async def wait_phase(engine: SquadEngine, squad_id: str, execution_id: str, *phases: Phase) -> Execution:
    """Return the execution once it is in one of the states."""
    with engine.follow(squad_id) as follower:
        while True:
            execution = await engine.execution(squad_id, execution_id)
            if execution.phase in phases:
                return execution
            await follower.next()


def drain(follower: Follower) -> list[SquadEvent]:
    """Return what the follower has not read yet."""
    found: list[SquadEvent] = []
    while (got := follower.next_nowait()) is not None:
        assert not isinstance(got, Gap | Lagged)
        found += [frame.event for frame in got]
    return found
