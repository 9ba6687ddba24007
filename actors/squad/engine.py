"""The squads' engine as the runtime offers it: submit, control, stop, read and follow executions.

Everything an execution does happens in its actor; here are the checks that need stored resources, the questions
answered from the journal's table or the workspace's files, and what concerns a squad's executions together.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from actors.errors import ActorsError, Conflict, Invalid, Unavailable
from actors.ids import new_uuid
from actors.journal.log import Append
from actors.kernel import Address, KillSwitch, Ref, System
from actors.kernel.message import Request
from actors.squad import codec, history, queries
from actors.squad import events as names
from actors.squad import messages as m
from actors.squad.activity import ActivityFiles, Entry, entry_of
from actors.squad.actor import EMERGENCY, Command
from actors.squad.bus import Bus, Follower
from actors.squad.errors import ExecutionNotFound
from actors.squad.events import SquadEvent
from actors.squad.history import Level
from actors.squad.ledger import Page, ledger_path, read_page
from actors.squad.ports import SquadStore
from actors.squad.services import ExecutionServices
from actors.squad.values import (
    WHOLE,
    BudgetConfig,
    BudgetUsage,
    Execution,
    ExecutionSummary,
    HistoryRecord,
    Phase,
    Scope,
    Squad,
    SquadStatus,
    timestamp,
)

JSON = Any
logger = logging.getLogger("greenroom.squad")
LIVE_LIMIT = 5
"""Executions of one squad that may be live at once."""
SUBMIT_SECONDS = 30.0
"""How long a submission may take to be recorded."""
STOP_SECONDS = 30.0
"""How long an emergency stop waits for executions to record it."""
LEDGER_PAGE = 1000
_ADVANCE: tuple[Phase, ...] = ("aggregating", "executing", "paused", "awaiting_approval", "planning")
"""Live states, the most advanced first."""


class SquadEngine:
    """See the module. Made by the runtime, which sets ``system`` before use and runs :meth:`run`.

    Args:
        store: The squads' stored resources.
        bus: Where live events go.
        live_limit: Executions of one squad that may be live at once.
    """

    def __init__(self, store: SquadStore, bus: Bus, live_limit: int = LIVE_LIMIT) -> None:
        self.system: System
        self.services: ExecutionServices
        self.bus = bus
        self._store = store
        self._live_limit = live_limit
        self._activity = ActivityFiles(self._workspace)
        self._switches: dict[str, KillSwitch] = {}
        self._locks: dict[str, trio.Lock] = {}
        self._history_locks: dict[str, trio.Lock] = {}
        self._emergency: set[str] = set()

    async def run(self) -> None:
        """Write activity logs until cancelled; :meth:`recover` first, once."""
        await self._activity.run()

    async def recover(self) -> None:
        """Take note of what a dead process left: nothing stays running with no one running it."""
        services = self.services
        for row in await services.log.query(queries.open_executions):
            if row.phase == "awaiting_approval" or (
                row.owner != services.owners.me and services.owners.alive(row.owner)
            ):
                continue
            try:
                await self._ref(row.id).ask(m.Recover())
            except ActorsError as error:
                logger.warning("execution not recovered", extra={"execution": row.id, "error": str(error)})

    # --- executions -------------------------------------------------------------------------------------------------

    async def submit(self, squad_id: str, request: str, *, auto_approve: bool = False) -> Execution:
        """Start an execution and return it while it is being planned.

        Raises:
            NotFound: no such squad.
            Invalid: the request is blank, or the squad has as many live executions as it may.
            Conflict: the squad has no agents, its workspace cannot be written, or it is being stopped.
            Unavailable: the disk did not answer in time.

        Cancellation: it is submitted first.
        """
        squad = await self._store.squad(squad_id)
        if not request.strip():
            raise Invalid("invalid input: request must not be blank")
        if not squad.agents:
            raise Conflict("the squad has no agents")
        budget = await self._store.budget_config(squad_id)
        # Shielded, with a deadline: a client that leaves in between must not leave an execution that nobody plans.
        with trio.CancelScope(shield=True, deadline=trio.current_time() + SUBMIT_SECONDS):
            async with self._lock(squad_id):
                execution_id = await self._record_submission(squad, request, auto_approve=auto_approve)
            return await self._ref(execution_id).ask(m.BeginPlanning(squad=squad, budget=budget))
        raise Unavailable(f"the execution was not recorded within {SUBMIT_SECONDS:g} s")

    async def _record_submission(self, squad: Squad, request: str, *, auto_approve: bool) -> str:
        if self.switch(squad.id).reason is not None:
            raise Conflict("the squad is being stopped")
        log = self.services.log
        driven = await log.query(partial(queries.count_driven, squad_id=squad.id))
        if driven >= self._live_limit:
            raise Invalid(f"invalid input: squad {squad.id} already has {driven} active executions")
        await self._prepare(squad)
        execution_id = new_uuid()
        submitted = m.ExecutionSubmitted(
            squad_id=squad.id,
            squad_name=squad.name,
            workspace=squad.workspace_path,
            request=request,
            auto_approve=auto_approve,
        )
        record = codec.encode(submitted, 1, self.services.clock())
        await log.append(Append(stream=codec.stream_of(execution_id), expected=0, records=(record,)))
        self._emergency.discard(squad.id)
        return execution_id

    async def wait_planned(self, squad_id: str, execution_id: str) -> Execution:
        """Return the execution once it is not being planned any more."""
        with self.bus.follow(squad_id) as follower:
            while True:
                execution = await self.execution(squad_id, execution_id)
                if execution.phase != "planning":
                    return execution
                await follower.next()

    async def execution(self, squad_id: str, execution_id: str) -> Execution:
        """Return an execution as it is now. Raises: NotFound."""
        return await self._ask(squad_id, execution_id, m.GetExecution())

    async def executions(
        self, squad_id: str, *, phase: str = "", limit: int = -1, offset: int = 0
    ) -> Sequence[ExecutionSummary]:
        """Return the squad's executions, newest first. Raises: NotFound."""
        await self._store.squad(squad_id)
        query = partial(queries.list_executions, squad_id=squad_id, phase=phase, limit=limit, offset=offset)
        return await self.services.log.query(query)

    async def approve(
        self, squad_id: str, execution_id: str, override: m.PlanOverride | None = None
    ) -> Execution:
        """Run an execution's plan, or the one given instead. Raises: NotAwaitingApproval, Invalid, NotFound."""
        squad, budget = await self._squad_and_budget(squad_id)
        board: list[m.BoardHold] = []
        if override is not None:
            held = await self.services.log.query(partial(queries.plans_held, squad_id=squad_id))
            board = [
                m.BoardHold(row.id, row.plan_id, held.get(row.plan_id or "", ""))
                for row in await self._store.board(squad_id)
            ]
        command = m.Approve(squad=squad, budget=budget, override=override, board=board)
        return await self._ask(squad_id, execution_id, command)

    async def reject(self, squad_id: str, execution_id: str, feedback: str) -> Execution:
        """Have the plan made anew. Raises: NotAwaitingApproval, Invalid, NotFound."""
        squad, budget = await self._squad_and_budget(squad_id)
        return await self._ask(
            squad_id, execution_id, m.Reject(squad=squad, feedback=feedback, budget=budget)
        )

    async def cancel(self, squad_id: str, execution_id: str) -> Execution:
        """End an execution. Raises: NotRunning, NotFound."""
        return await self._ask(squad_id, execution_id, m.Cancel())

    async def pause(self, squad_id: str, execution_id: str, reason: str = "") -> Execution:
        """Dispatch nothing more. Raises: NotPausable, NotFound."""
        return await self._ask(squad_id, execution_id, m.Pause(reason=reason))

    async def resume(self, squad_id: str, execution_id: str) -> Execution:
        """Dispatch again. Raises: NotRunning, NotFound."""
        squad, budget = await self._squad_and_budget(squad_id)
        return await self._ask(squad_id, execution_id, m.Resume(squad=squad, budget=budget))

    async def steer(
        self, squad_id: str, execution_id: str, message: str, scope: Scope | None = None
    ) -> Execution:
        """Add a standing directive. Raises: NotSteerable, Invalid, NotFound."""
        squad = await self._store.squad(squad_id)
        agent_ids = tuple(agent.id for agent in squad.agents)
        command = m.Steer(message=message, scope=scope or WHOLE, agent_ids=agent_ids)
        return await self._ask(squad_id, execution_id, command)

    async def skip_task(self, squad_id: str, execution_id: str, task_id: str) -> Execution:
        """Leave a task out. Raises: TaskNotSkippable, NotRunning, NotFound."""
        return await self._ask(squad_id, execution_id, m.SkipTask(task_id=task_id))

    async def retry_task(self, squad_id: str, execution_id: str, task_id: str) -> Execution:
        """Run a task once more. Raises: TaskNotRetriable, NotRunning, NotFound."""
        return await self._ask(squad_id, execution_id, m.RetryTask(task_id=task_id))

    # --- emergency stop ---------------------------------------------------------------------------------------------

    async def emergency_stop(self, squad_id: str, reason: str = EMERGENCY) -> Sequence[str]:
        """Cut off all work of a squad at once, and return the executions that were cancelled by it.

        First everything is cancelled, in one synchronous step; then each execution records it; then everybody is told,
        once. Executions that wait for approval are cancelled, too.

        Raises:
            NotFound: no such squad; nothing was cancelled.
            Unavailable: an execution did not record it in time.

        Cancellation: it is finished first.
        """
        await self._store.squad(squad_id)
        switch = self.switch(squad_id)
        switch.trip(reason)
        self._emergency.add(squad_id)
        # Shielded, with a deadline: a client that leaves must not leave executions cut off and unrecorded.
        with trio.CancelScope(shield=True, deadline=trio.current_time() + STOP_SECONDS):
            try:
                return await self._record_stop(squad_id, reason)
            finally:
                switch.reset()
        raise Unavailable(
            f"not every execution recorded the stop within {STOP_SECONDS:g} s; all work is cut off"
        )

    async def _record_stop(self, squad_id: str, reason: str) -> Sequence[str]:
        cancelled: list[str] = []
        async with self._lock(squad_id):
            live = await self.active_executions(squad_id)
            async with trio.open_nursery() as nursery:
                for execution_id in live:
                    nursery.start_soon(self._stop_one, execution_id, reason, cancelled)
        ordered = [execution_id for execution_id in live if execution_id in cancelled]
        await self.publish(
            squad_id, names.EMERGENCY_STOPPED, {"cancelledExecutionIds": ordered, "reason": reason}
        )
        return ordered

    async def _stop_one(self, execution_id: str, reason: str, cancelled: list[str]) -> None:
        try:
            if await self._ref(execution_id).ask(m.EmergencyStop(reason=reason)):
                cancelled.append(execution_id)
        except ActorsError as error:
            logger.warning("execution not stopped", extra={"execution": execution_id, "error": str(error)})

    def switch(self, squad_id: str) -> KillSwitch:
        """Return the squad's kill switch, a child of the system's."""
        known = self._switches.get(squad_id)
        if known is None:
            known = self._switches[squad_id] = KillSwitch(self.system.killswitch)
        return known

    # --- what was -----------------------------------------------------------------------------------------------

    async def history(self, squad_id: str) -> Sequence[HistoryRecord]:
        """Return the records of ended executions, newest first. Raises: NotFound."""
        workspace = await self._workspace(squad_id)
        return await self.services.disk(partial(history.read_history, workspace))

    async def record(self, squad_id: str, execution_id: str) -> HistoryRecord:
        """Return an ended execution's record. Raises: NotFound."""
        for record in await self.history(squad_id):
            if record.execution_id == execution_id:
                return record
        raise ExecutionNotFound(f"execution {execution_id} has no history record")

    async def logs(
        self,
        squad_id: str,
        execution_id: str,
        *,
        agent_id: str = "",
        min_level: Level = "debug",
        limit: int | None = None,
    ) -> Sequence[JSON]:
        """Return lines of the readable log. Raises: NotFound."""
        await self._require(squad_id, execution_id)
        workspace = await self._workspace(squad_id)
        read = partial(
            history.read_log, workspace, execution_id, agent_id=agent_id, min_level=min_level, limit=limit
        )
        return await self.services.disk(read)

    async def events(
        self,
        squad_id: str,
        execution_id: str,
        *,
        after: int = 0,
        types: Sequence[str] = (),
        limit: int = 200,
    ) -> Page:
        """Return part of an execution's ledger. Raises: NotFound."""
        await self._require(squad_id, execution_id)
        workspace = await self._workspace(squad_id)
        path = ledger_path(workspace, execution_id)
        read = partial(read_page, path, execution_id, after=after, types=types, limit=min(limit, LEDGER_PAGE))
        try:
            return await self.services.disk(read)
        except FileNotFoundError as error:
            raise ExecutionNotFound(f"execution {execution_id} has no event ledger") from error

    async def report(self, squad_id: str, execution_id: str) -> str:
        """Write an ended execution's report and return its path on this machine. Raises: NotFound, Conflict."""
        record = await self.record(squad_id, execution_id)
        workspace = await self._workspace(squad_id)
        try:
            return str(await self.services.disk(partial(history.write_report, workspace, record)))
        except OSError as error:
            raise Conflict(f"the report cannot be written: {error.strerror}") from error

    async def activity(self, squad_id: str) -> Sequence[Entry]:
        """Return the squad's recent events of this process, oldest first. Raises: NotFound."""
        await self._store.squad(squad_id)
        return [entry_of(frame) for frame in self.bus.recent(squad_id)]

    async def load_activity(self, squad_id: str) -> Sequence[JSON]:
        """Return the squad's recent events as its workspace's file has them, oldest first. Raises: NotFound."""
        return await self._activity.load(squad_id)

    # --- what is ------------------------------------------------------------------------------------------------

    def follow(self, squad_id: str | None, after: str | None = None) -> AbstractContextManager[Follower]:
        """Follow a squad's events, or everybody's, from a cursor on; without one, from now on.

        Raises:
            ValueError: the cursor is malformed.
        """
        return self.bus.follow(squad_id, after)

    async def publish(self, squad_id: str, name: str, payload: Mapping[str, JSON]) -> None:
        """Send a ``squad:*`` event to the activity log and all followers."""
        at = self.services.clock()
        full = {"squadId": squad_id, **payload, "timestamp": timestamp(at)}
        self.show(SquadEvent(name, squad_id, full, at))
        await trio.lowlevel.checkpoint()

    def show(self, event: SquadEvent) -> None:
        """Show an event to everybody who follows, and have it written to the activity log. Checkpoint: never."""
        self._activity.note(self.bus.publish(event))

    async def usage(self, squad_id: str) -> BudgetUsage:
        """Return what the squad's live executions have used together. Raises: NotFound."""
        _, budget = await self._squad_and_budget(squad_id)
        found = [
            await self._ref(execution_id).ask(m.GetUsage())
            for execution_id in await self.active_executions(squad_id)
        ]
        agents: dict[str, int] = {}
        for usage in found:
            for agent, tokens in usage.per_agent_tokens.items():
                agents[agent] = agents.get(agent, 0) + tokens
        return BudgetUsage(
            total_tokens=sum(usage.total_tokens for usage in found),
            per_agent_tokens=agents,
            tasks_created=sum(usage.tasks_created for usage in found),
            plan_iterations=sum(usage.plan_iterations for usage in found),
            active_agents=sum(usage.active_agents for usage in found),
            started_at=min((usage.started_at for usage in found if usage.started_at), default=None),
            exceeded=any(usage.exceeded for usage in found),
            warning_emitted=any(usage.warning_emitted for usage in found),
            emergency_stopped=squad_id in self._emergency,
            total_cost_usd=sum(usage.total_cost_usd for usage in found),
            budget=budget,
        )

    async def active_executions(self, squad_id: str) -> Sequence[str]:
        """Return the ids of executions that have not ended."""
        return await self.services.log.query(partial(queries.live_executions, squad_id=squad_id))

    async def busy_agents(self, squad_id: str) -> frozenset[str]:
        """Return the agents to whom an undone task of a live execution is assigned."""
        found: set[str] = set()
        for execution_id in await self.active_executions(squad_id):
            execution = await self._ref(execution_id).ask(m.GetExecution())
            tasks = execution.plan.tasks if execution.plan is not None else ()
            found.update(
                task.assigned_to for task in tasks if task.status not in ("done", "failed", "cancelled")
            )
        return frozenset(found)

    async def squad_status(self, squad_id: str) -> SquadStatus:
        """Return the most advanced live execution's state, else ``idle``."""
        return status_of(await self.services.log.query(partial(queries.phases_of, squad_id=squad_id)))

    async def squad_statuses(self) -> Mapping[str, SquadStatus]:
        """Return the state of each squad that is not idle."""
        found = await self.services.log.query(queries.squads_of)
        return {squad_id: status_of(phases) for squad_id, phases in found.items()}

    # --- helpers ------------------------------------------------------------------------------------------------

    def history_lock(self, workspace: str) -> trio.Lock:
        """Return the lock on a workspace's history."""
        return self._history_locks.setdefault(workspace, trio.Lock())

    def _lock(self, squad_id: str) -> trio.Lock:
        return self._locks.setdefault(squad_id, trio.Lock())

    def _ref(self, execution_id: str) -> Ref[Command]:
        ref: Ref[Command] = self.system.ref(Address("execution", execution_id))
        return ref

    async def _ask(self, squad_id: str, execution_id: str, command: Request[Execution]) -> Execution:
        await self._require(squad_id, execution_id)
        return await self._ref(execution_id).ask(command)

    async def _require(self, squad_id: str, execution_id: str) -> None:
        await self._store.squad(squad_id)
        query = partial(queries.squad_of, execution_id=execution_id)
        if await self.services.log.query(query) != squad_id:
            raise ExecutionNotFound(f"execution {execution_id} not found in squad {squad_id}")

    async def _squad_and_budget(self, squad_id: str) -> tuple[Squad, BudgetConfig]:
        return await self._store.squad(squad_id), await self._store.budget_config(squad_id)

    async def _workspace(self, squad_id: str) -> Path:
        return Path((await self._store.squad(squad_id)).workspace_path)

    async def _prepare(self, squad: Squad) -> None:
        """Make the directories that an execution writes. Raises: Conflict."""
        workspace = Path(squad.workspace_path)

        def make() -> None:
            for name in ("logs", "plans"):
                (workspace / name).mkdir(parents=True, exist_ok=True)

        try:
            await self.services.disk(make)
        except OSError as error:
            raise Conflict(f"the workspace {workspace} cannot be written: {error.strerror}") from error


def status_of(phases: Sequence[Phase]) -> SquadStatus:
    """Return a squad's status from its live executions' states."""
    return SquadStatus(next((phase for phase in _ADVANCE if phase in phases), "idle"))
