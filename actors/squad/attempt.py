"""One attempt at a task: its prompt, its tools, its reports to the execution, and its outcome."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from actors.agent.host import RunFacts
from actors.agent.toolbox import ToolsetSpec
from actors.errors import ActorsError
from actors.kernel.gate import Gate
from actors.squad import messages as m
from actors.squad import prompts
from actors.squad.lineup import Bench, Count
from actors.squad.ports import SquadStore
from actors.squad.purse import Account, Purse
from actors.squad.services import Disk
from actors.squad.state import ExecutionState
from actors.squad.tools import Change, Reports, WorkerTools, permission_rules
from actors.squad.values import Agent, Directive, PlanTask
from actors.squad.worker import Answer, WorkerHost, work

Record = Callable[[m.ExecutionEvent], Awaitable[None]]


class Bank:
    """An agent's memory, by way of the store."""

    def __init__(self, store: SquadStore, squad_id: str, agent_id: str) -> None:
        self._store = store
        self._squad_id = squad_id
        self._agent_id = agent_id

    async def read(self) -> str:
        """Return the agent's own memory."""
        return await self._store.read_memory(self._squad_id, self._agent_id)

    async def write(self, section: str, content: str) -> None:
        """Append to a section of it."""
        await self._store.write_memory(self._squad_id, self._agent_id, section, content)

    async def search(self, query: str) -> Sequence[str]:
        """Search the memories of all agents."""
        return await self._store.search_memory(self._squad_id, query)


class Reporter:
    """Tells the execution what an attempt does while it does it."""

    def __init__(self, task_id: str, agent_id: str, record: Record) -> None:
        self._task_id = task_id
        self._agent_id = agent_id
        self._record = record

    async def effect_started(self, tool: str, target: str) -> None:
        """Record a tool that is about to change something."""
        await self._record(m.EffectStarted(task_id=self._task_id, tool=tool, target=target))

    async def file_changed(self, path: str, change: Change) -> None:
        """Record a written file."""
        await self._record(m.FileChanged(task_id=self._task_id, path=path, change=change))

    async def memory_written(self, section: str) -> None:
        """Record a memory."""
        await self._record(m.MemoryWritten(task_id=self._task_id, agent_id=self._agent_id, section=section))


@dataclass(kw_only=True)
class Attempt:
    """See the module. Made when its ``TaskStarted`` is recorded.

    Attributes:
        state: The execution; read only.
        task: What to do.
        agent: Who does it.
        directives: What the operator wants of it.
        bench: Builds the agent.
        store: For the memory.
        purse: Pays.
        count: Records what was paid.
        record: Records what the attempt does.
        facts: Ids and directories.
        disk: Touches files.
        number: Which attempt it is, counted from 1.
    """

    state: ExecutionState
    task: PlanTask
    agent: Agent
    directives: Sequence[Directive]
    bench: Bench
    store: SquadStore
    purse: Purse
    count: Count
    record: Record
    facts: RunFacts
    disk: Disk
    number: int

    def __post_init__(self) -> None:
        self.reporter = Reporter(self.task.id, self.agent.id, self.record)
        self.host = WorkerHost(self.facts, permission_rules(self.agent), self.reporter)
        self.account = Account(self.agent.id, self.task.id, waits=True)

    async def run(self, gate: Gate) -> Answer:
        """Do it. Cancellation: nothing is left behind."""
        agent, state = self.agent, self.state
        if agent.execution_mode == "container":
            await trio.lowlevel.checkpoint()
            return Answer(
                "", "error", f"agent {agent.name!r} runs in a container, which this server cannot start"
            )
        if not await self.disk(Path(state.workspace).is_dir):
            return Answer("", "error", f"the workspace {state.workspace} is not there")
        bank = Bank(self.store, state.squad_id, agent.id)
        memory = await self._memory(bank) if agent.memory_enabled else ""
        reports = Reports(self.reporter.file_changed, self.reporter.memory_written)
        seconds = float(state.budget.task_timeout_secs)
        own = agent.settings_overrides
        if own is not None and own.default_timeout:
            seconds = min(seconds, own.default_timeout)
        return await work(
            lambda: self.bench.team(
                agent,
                instruction=prompts.worker_instruction(agent, state.squad_name),
                limits=state.budget,
                purse=self.purse,
                account=self.account,
                count=self.count,
                toolsets=[ToolsetSpec("workspace", lambda: WorkerTools(agent, bank, reports))],
            ),
            self.host,
            gate,
            self.account,
            prompt=prompts.worker_prompt(state, self.task, self.directives, memory),
            seconds=seconds,
        )

    async def _memory(self, bank: Bank) -> str:
        try:
            return await bank.read()
        except (OSError, ActorsError):
            return ""


def result_of(answer: Answer, files: Sequence[str]) -> str:
    """Return a task's result: the answer's text, or the files that were written instead."""
    if answer.text.strip():
        return answer.text
    return f"(no text; files written: {', '.join(files)})" if files else ""
