"""Agents that work in the background: a task is started in one run and outlives it, but not the process.

Nobody can be asked on behalf of such a task, so what would ask is denied (sessions contract 6.3). Its events stay with
the task until it is over; then the runtime may store them as a sub-session.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Literal

import msgspec
import trio

from actors.agent import messages as ev
from actors.agent.closing import OpenRuns, closing_events
from actors.agent.context import RunContext, RunResult
from actors.agent.delegation import run_delegated
from actors.agent.host import Decision, Incoming, LivePolicy, RunFacts, RunHost
from actors.agent.messages import RunEvent
from actors.agent.team import open_team
from actors.agent.transcript import Transcript
from actors.errors import NotFound, Overloaded
from actors.ids import new_uuid
from actors.kernel.gate import Gate
from actors.models.provider import Message
from actors.tools.tool import Elicitation, ElicitationReply

logger = logging.getLogger("greenroom.agent")

TITLE = "Background agent task"
MAX_RUNNING = 20
"""Tasks of one session that run at the same time."""
MAX_KEPT = 100
"""Tasks of one session that are remembered after their end."""
_DELTAS = (ev.TextDelta, ev.ReasoningDelta, ev.ToolCallDelta, ev.ToolOutput)
Status = Literal["running", "completed", "failed", "stopped"]
Ask = Callable[[RunFacts, str, Elicitation], Awaitable[ElicitationReply]]
"""Puts an agent's question to the person of a conversation's session and waits for the answer."""


class MemoryHost:
    """The owner of a background run: keeps its events and asks nobody.

    Args:
        facts: Of this task's own conversation.
        parent: Whose rules and model overrides hold here, too.
        ask: Puts the task's questions to a person; the parent itself without it, whose run may be over by then.
    """

    def __init__(self, facts: RunFacts, parent: RunHost, ask: Ask | None = None) -> None:
        self.facts = facts
        self.events: list[RunEvent] = []
        self.text: list[str] = []
        self.open = OpenRuns()
        self._parent = parent
        self._ask = ask
        self._transcript = Transcript()
        self._message_id = 0
        self._cost = 0.0

    def emit(self, event: RunEvent) -> None:
        """Fold an event in; deltas are not kept."""
        self.open.evolve(event)
        self._transcript.evolve(event)
        if isinstance(event, ev.TextDelta):
            self.text.append(event.text)
        elif isinstance(event, ev.StepStarted):
            self.text.clear()
        elif isinstance(event, ev.AssistantMessageAdded | ev.Summarised):
            self._cost += event.cost
        if not isinstance(event, _DELTAS):
            self.events.append(event)

    async def commit(self, *events: RunEvent) -> None:
        """Fold events in."""
        for event in events:
            self.emit(event)
        await trio.lowlevel.checkpoint()

    def history(self) -> Sequence[Message]:
        """Return the conversation for the next prompt."""
        return self._transcript.messages()

    def transcript(self) -> Transcript:
        """Return the conversation."""
        return self._transcript

    def new_message_id(self) -> int:
        """Return the next id of this conversation."""
        self._message_id += 1
        return self._message_id

    def policy(self) -> LivePolicy:
        """Return the parent's rules as they are now; nobody can be asked."""
        return msgspec.structs.replace(self._parent.policy(), interactive=False)

    async def approve(self, *_: object, **__: object) -> Decision:
        """Refuse: a person was never asked."""
        await trio.lowlevel.checkpoint()
        return Decision("rejected", "nobody can be asked in the background")

    async def continue_past_limit(self, agent: str, limit: int) -> bool:
        """Stop at the limit."""
        del agent, limit
        await trio.lowlevel.checkpoint()
        return False

    async def elicit(self, agent: str, call_id: str, question: Elicitation) -> ElicitationReply:
        """Pass the question on to the session that started the task."""
        if self._ask is None:
            return await self._parent.elicit(agent, call_id, question)
        return await self._ask(self.facts, agent, question)

    def take_steering(self) -> Sequence[Incoming]:
        """Nobody steers a background task."""
        return ()

    def take_follow_up(self) -> Incoming | None:
        """Nobody queues for a background task."""
        return None

    def model_override(self, agent: str) -> str:
        """Return the parent's override."""
        return self._parent.model_override(agent)

    def cost(self) -> float:
        """Return what the task has cost so far, in USD."""
        return self._cost

    def context_tokens(self) -> int:
        """Return the tokens of the last model call."""
        return self._transcript.last_tokens

    async def open_child(self, agent: str, title: str, *, interactive: bool = True) -> RunHost:
        """Open a sub-session of the task; its events stay with it."""
        del agent, title, interactive
        await trio.lowlevel.checkpoint()
        return MemoryHost(msgspec.structs.replace(self.facts, session_id=new_uuid()), self, self._ask)

    async def close_child(self, child: RunHost) -> None:
        """Take over what the sub-session cost."""
        await trio.lowlevel.checkpoint()
        self._cost += child.cost()


class BackgroundTask:
    """One task. ``status`` changes once, when it ends."""

    def __init__(self, task_id: str, owner: str, agent: str, task: str, host: MemoryHost) -> None:
        self.id = task_id
        self.owner = owner
        self.agent = agent
        self.task = task
        self.host = host
        self.status: Status = "running"
        self.result = ""
        self.started_at = trio.current_time()
        self.ended = trio.Event()
        self.scope = trio.CancelScope()

    def output(self) -> str:
        """Return the final answer, or what it is saying now."""
        return self.result if self.ended.is_set() else "".join(self.host.text)


class BackgroundAgents:
    """All background agents of a process; made by :func:`open_background_agents`.

    Args:
        nursery: Where tasks run.
        store: Told of each task that ended, to keep its conversation; must not wait.
        ask: See :class:`MemoryHost`.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        store: Callable[[BackgroundTask], None] | None = None,
        ask: Ask | None = None,
    ) -> None:
        self._nursery = nursery
        self._store = store
        self._ask = ask
        self._tasks: dict[str, BackgroundTask] = {}
        self._next = 1

    def start(
        self, ctx: RunContext, agent: str, task: str, expected_output: str, chain: tuple[str, ...]
    ) -> str:
        """Start ``agent`` on a task and return the task's id at once.

        Raises:
            Overloaded: the session has :data:`MAX_RUNNING` tasks running.
        """
        owner = ctx.host.facts.session_id
        mine = self.of(owner)
        if sum(each.status == "running" for each in mine) >= MAX_RUNNING:
            raise Overloaded(f"{MAX_RUNNING} background agents are running already")
        ended = [each for each in mine if each.status != "running"]
        for old in ended[: max(0, len(ended) - MAX_KEPT + 1)]:
            del self._tasks[old.id]
        facts = msgspec.structs.replace(
            ctx.host.facts, session_id=new_uuid(), root=ctx.host.facts.root or owner
        )
        host = MemoryHost(facts, ctx.host, self._ask)
        started = BackgroundTask(f"agent_task_{self._next}", owner, agent, task, host)
        self._next += 1
        self._tasks[started.id] = started
        self._nursery.start_soon(self._run, started, ctx, expected_output, chain)
        return started.id

    def of(self, owner: str) -> list[BackgroundTask]:
        """Return a session's tasks, oldest first."""
        return [task for task in self._tasks.values() if task.owner == owner]

    def get(self, owner: str, task_id: str) -> BackgroundTask:
        """Return a session's task. Raises: NotFound."""
        task = self._tasks.get(task_id)
        if task is None or task.owner != owner:
            raise NotFound(f"no background agent task {task_id}")
        return task

    def stop(self, owner: str, task_id: str) -> BackgroundTask:
        """Cancel a task; it is over shortly after. Raises: NotFound."""
        task = self.get(owner, task_id)
        task.scope.cancel()
        return task

    def stop_all(self, owner: str = "") -> int:
        """Cancel a session's tasks, or everybody's; return how many were running. Checkpoint: never."""
        running = [t for t in self._tasks.values() if t.status == "running" and owner in ("", t.owner)]
        for task in running:
            task.scope.cancel()
        return len(running)

    async def _run(
        self, task: BackgroundTask, ctx: RunContext, expected_output: str, chain: tuple[str, ...]
    ) -> None:
        outcome: RunResult | None = None
        with task.scope:
            outcome = await self._outcome(task, ctx, expected_output, chain)
        if outcome is None:
            task.status, task.result = "stopped", "".join(task.host.text)
            closing = closing_events(
                task.host.open, reason="canceled", new_message_id=task.host.new_message_id
            )
        else:
            task.status = "completed" if outcome.reason in ("normal", "terminal_tool") else "failed"
            task.result = outcome.text or outcome.error
            closing = closing_events(
                task.host.open, reason="error", detail=outcome.error, new_message_id=task.host.new_message_id
            )
        for event in closing:
            task.host.emit(event)
        task.ended.set()
        if self._store is not None:
            self._store(task)

    async def _outcome(
        self, task: BackgroundTask, ctx: RunContext, expected_output: str, chain: tuple[str, ...]
    ) -> RunResult:
        try:
            # Toolsets of its own: the starting run closes its team's when it ends.
            async with open_team(ctx.team.copy()) as team:
                own = replace(ctx, team=team, gate=Gate())
                return await run_delegated(
                    own, task.host, task.agent, task.task, expected_output, chain, pinned=True
                )
        except Exception as error:
            # This is the edge of the task's work: its bug must not end the other tasks of the process.
            logger.exception("background agent crashed", extra={"task": task.id, "agent": task.agent})
            return RunResult("error", "", f"internal error: {type(error).__name__}")


@asynccontextmanager
async def open_background_agents(
    store: Callable[[BackgroundTask], None] | None = None,
    ask: Ask | None = None,
) -> AsyncGenerator[BackgroundAgents]:
    """Lend a home for background agents; at the end those still running are cancelled.

    Args:
        store: See :class:`BackgroundAgents`.
        ask: Likewise.
    """
    async with trio.open_nursery() as nursery:
        yield BackgroundAgents(nursery, store, ask)
        nursery.cancel_scope.cancel()
