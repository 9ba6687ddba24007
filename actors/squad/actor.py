"""The execution actor: owns one request's run, from planning to the record of its end.

Commands are decided on the state, recorded, and answered after the commit. Planning, every task's attempt and putting
the results together are Work beside the mailbox: the actor goes on answering, and nothing an operator does waits for a
model. What is due next is asked of :mod:`actors.squad.schedule` after every change.

Longer than most files, because all of it is one actor's handling of its messages: what could be decided, counted or
written elsewhere is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar, assert_never

import msgspec
import trio

from actors.agent.host import RunFacts
from actors.errors import Conflict, NotFound
from actors.ids import new_id
from actors.journal.log import Record, SequenceConflict
from actors.kernel import (
    Actor,
    ActorStopped,
    Context,
    Control,
    Failed,
    Finished,
    Gate,
    Outcome,
    Stopped,
    Timer,
    Work,
)
from actors.kernel.errors import MailboxFull
from actors.models.provider import Usage
from actors.squad import codec, decide, schedule
from actors.squad import messages as m
from actors.squad.announce import announce
from actors.squad.attempt import Attempt, result_of
from actors.squad.events import SquadEvent
from actors.squad.mirror import Mirror
from actors.squad.plan import make_plan
from actors.squad.planner import Desk, Planned, make_tasks, put_together
from actors.squad.purse import Account, Purse
from actors.squad.recorder import Recorder, Step, StorageFailed
from actors.squad.services import ExecutionServices
from actors.squad.state import ExecutionState, usage_of
from actors.squad.values import BudgetConfig, Squad, TokenUsage, timestamp
from actors.squad.worker import Answer

T = TypeVar("T")
A = TypeVar("A")
PAGE = 1024
KEPT = codec.kind_of(m.RecordKept())
EMERGENCY = "emergency stop"


class PlanMade(Control, frozen=True):
    """Planning ended."""

    iteration: int
    squad: Squad
    budget: BudgetConfig
    outcome: Outcome[Planned]


class AttemptEnded(Control, frozen=True):
    """A task's attempt ended."""

    task_id: str
    attempt: int
    outcome: Outcome[Answer]


class PutTogether(Control, frozen=True):
    """The results were put together, or could not be."""

    outcome: Outcome[str]


class TimeUp(Control, frozen=True):
    """The execution has run as long as it may; ``turn`` tells an old timer from the present one."""

    turn: int


class KeepRecord(Control, frozen=True):
    """The execution was stopped in an emergency; its record is written once that is answered."""


class MoneySpent(Control, frozen=True):
    """A worker waits because the execution's total is used up."""

    reason: str


Command = (
    m.GetExecution
    | m.GetUsage
    | m.Recover
    | m.BeginPlanning
    | m.Approve
    | m.Reject
    | m.Cancel
    | m.Pause
    | m.Resume
    | m.Steer
    | m.SkipTask
    | m.RetryTask
    | m.EmergencyStop
    | PlanMade
    | AttemptEnded
    | PutTogether
    | TimeUp
    | MoneySpent
    | KeepRecord
)


class ExecutionActor(Actor[Command]):
    """One execution. Activated by the first message; rebuilt from its stream; gone again when idle.

    Args:
        execution_id: Its id; its stream is ``execution/<id>``.
        services: What the runtime lends.
    """

    def __init__(self, execution_id: str, services: ExecutionServices) -> None:
        self._id = execution_id
        self._services = services
        self._state = ExecutionState(execution_id)
        self._recorder: Recorder
        self._mirror: Mirror
        self._purse: Purse
        self._attempts: dict[str, tuple[Attempt, Work]] = {}
        self._side: Work | None = None
        self._timer: Timer | None = None
        self._turn = 0
        self._since = 0.0

    async def on_start(self, ctx: Context[Command]) -> None:
        """Rebuild the execution. Raises: NotFound when it was never submitted."""
        await self._load(ctx)

    async def receive(self, message: Command, ctx: Context[Command]) -> object:
        """Decide, record, answer. Raises: Rejected and its kinds, for commands that cannot be taken."""
        await self._require_ours(message)
        try:
            return await self._receive(message, ctx)
        except (StorageFailed, SequenceConflict) as error:
            failure = error
        self._stop_work("the execution is being read again")
        self._attempts.clear()
        self._side = None
        await self._load(ctx)
        raise failure

    async def _receive(self, message: Command, ctx: Context[Command]) -> object:
        state, owner = self._state, self._services.owners.me
        match message:
            case m.GetExecution():
                return state.view()
            case m.GetUsage():
                return usage_of(state, self._purse.limits)
            case m.Recover():
                return bool(await self._recover(ctx, booted=True))
            case m.BeginPlanning():
                if state.iteration == 0 and not state.terminal:
                    planning = m.PlanningStarted(iteration=1, owner=owner)
                    await self._do(ctx, lambda: (planning,))
                    self._plan(message.squad, message.budget, ctx)
            case m.Approve():
                new_id = self._services.new_id
                await self._do(ctx, lambda: decide.approve(state, message, owner=owner, new_id=new_id))
            case m.Reject():
                await self._do(ctx, lambda: decide.reject(state, message, owner=owner))
                if state.phase == "planning":
                    self._plan(message.squad, message.budget, ctx)
            case m.Cancel():
                await self._do(ctx, lambda: decide.cancel(state, message.reason))
            case m.Pause():
                await self._do(ctx, lambda: decide.pause(state, message, active=self._active()))
            case m.Resume():
                await self._do(ctx, lambda: decide.resume(state, message, owner=owner))
            case m.Steer():
                directive, now = self._services.new_id(), timestamp(self._services.clock())
                await self._do(ctx, lambda: decide.steer(state, message, directive_id=directive, now=now))
            case m.SkipTask():
                await self._do(ctx, lambda: decide.skip(state, message.task_id))
            case m.RetryTask():
                await self._do(ctx, lambda: decide.retry(state, message.task_id))
            case m.EmergencyStop():
                await self._emergency_stop(message.reason, ctx)
                return state.emergency
            case PlanMade() | AttemptEnded() | PutTogether() | TimeUp() | MoneySpent():
                await self._happened(message, ctx)
                return None
            case KeepRecord():
                await self._keep()
                return None
            case _:
                assert_never(message)
        return state.view()

    async def _happened(
        self, message: PlanMade | AttemptEnded | PutTogether | TimeUp | MoneySpent, ctx: Context[Command]
    ) -> None:
        state = self._state
        match message:
            case PlanMade():
                await self._plan_made(message, ctx)
            case AttemptEnded():
                await self._attempt_ended(message, ctx)
            case PutTogether():
                await self._put_together(message, ctx)
            case TimeUp():
                if message.turn == self._turn and not state.terminal:
                    limit = state.budget.execution_timeout_secs
                    error = f"the execution did not end within {limit} seconds (executionTimeoutSecs)"
                    await self._do(ctx, lambda: decide.end_failed(state, error))
                    self._stop_work(error)
            case MoneySpent():
                if state.phase == "executing":
                    pause = m.ExecutionPaused(reason=message.reason, by="budget", active=self._active())
                    await self._do(ctx, lambda: (pause,))
            case _:
                assert_never(message)

    # --- life -------------------------------------------------------------------------------------------------------

    async def _load(self, ctx: Context[Command]) -> None:
        """Fold the stream, and take over an execution that nobody runs any more."""
        services = self._services
        state = ExecutionState(self._id)
        records = await self._read(0)
        complete = any(record.kind == KEPT for record in records)
        known: list[SquadEvent] = []
        for record in records:
            event = codec.decode(record)
            state.evolve(record.seq, record.at, event)
            if not complete:
                known += [each.event for each in announce(state, event, record.at)]
        if state.seq == 0:
            raise NotFound(f"execution {self._id} not found")
        self._state = state
        self._mirror = Mirror(
            state,
            services.store.put_tasks,
            services.caps,
            services.history_lock(state.workspace),
            services.disk,
        )
        self._recorder = Recorder(services.log, state, self._mirror, services.publish, services.clock)
        self._purse = Purse(state.budget, lambda reason: self._tell(ctx, MoneySpent(reason)))
        for agent_id, usage in state.agent_usage.items():
            self._purse.load(agent_id, usage.total, 0.0)
        self._purse.cost = state.cost
        if self._foreign() or state.kept:
            return
        await self._mirror.catch_up(known)
        if state.terminal:
            await self._mirror.sync_board()
            await self._keep()
        elif state.iteration:
            await self._recover(ctx, booted=False)

    async def _read(self, after: int) -> list[Record]:
        found: list[Record] = []
        while page := await self._services.log.read(codec.stream_of(self._id), after, PAGE):
            found += page
            after = page[-1].seq
        return found

    def _foreign(self) -> bool:
        """Whether another living process runs it."""
        owner, owners = self._state.owner, self._services.owners
        working = self._state.phase in ("planning", "executing", "aggregating") or any(self._state.running())
        return working and bool(owner) and owner != owners.me and owners.alive(owner)

    async def _require_ours(self, message: Command) -> None:
        """Read again what another process may have written, and refuse what only that process can do."""
        if not self._foreign():
            return
        state = self._state
        for record in await self._read(state.seq):
            state.evolve(record.seq, record.at, codec.decode(record))
        if self._foreign() and not isinstance(message, m.GetExecution | m.GetUsage | m.Recover):
            raise Conflict(f"execution {self._id} runs in another process, {state.owner}")

    async def _recover(self, ctx: Context[Command], *, booted: bool) -> Sequence[m.ExecutionEvent]:
        if self._foreign() or self._attempts or self._side is not None:
            return ()
        return await self._do(ctx, lambda: decide.recover(self._state, booted=booted))

    async def _keep(self) -> None:
        """See that an ended execution's history record is written, then note that nothing is left to do; once."""
        if self._state.kept:
            return
        await self._mirror.keep()
        await self._recorder.commit(lambda: (m.RecordKept(),))

    # --- recording --------------------------------------------------------------------------------------------------

    async def _do(self, ctx: Context[Command], step: Step) -> list[m.ExecutionEvent]:
        """Record a decision and all that is due because of it, then start and stop what these events ask for."""
        events = await self._recorder.commit(step, lambda: self._due(ctx))
        for event in events:
            self._react(event, ctx)
        if self._state.terminal and events:
            if self._state.emergency:
                self._tell(ctx, KeepRecord())
            else:
                await self._keep()
        return events

    def _due(self, ctx: Context[Command]) -> Sequence[m.ExecutionEvent]:
        if self._stopped(ctx):
            return ()
        return [
            msgspec.structs.replace(event, active=self._active())
            if isinstance(event, m.ExecutionPaused)
            else event
            for event in schedule.advance(self._state)
        ]

    def _react(self, event: m.ExecutionEvent, ctx: Context[Command]) -> None:
        match event:
            case m.ExecutionStarted() | m.ExecutionResumed():
                self._purse.update(self._state.budget)
                self._start_clock(ctx)
            case m.ExecutionPaused() | m.ExecutionRecovered():
                self._stop_clock()
            case m.TaskStarted():
                self._start_attempt(event, ctx)
            case m.AggregationStarted():
                self._start_side(
                    ctx,
                    "aggregation",
                    lambda desk: put_together(desk, self._state, self._state.squad()),
                    PutTogether,
                )
            case m.ExecutionCompleted() | m.ExecutionFailed() | m.ExecutionCancelled():
                self._ended(event)
            case _:
                pass

    def _ended(self, event: m.ExecutionCompleted | m.ExecutionFailed | m.ExecutionCancelled) -> None:
        self._stop_clock()
        reason = "the execution has ended"
        self._purse.close(reason)
        if self._side is not None:
            self._side.cancel(reason)
        for attempt, _ in self._attempts.values():
            attempt.host.stop_after_step(reason)
        if isinstance(event, m.ExecutionCancelled) and event.emergency:
            self._stop_work(event.reason)

    def _stop_work(self, reason: str) -> None:
        if self._side is not None:
            self._side.cancel(reason)
        for _, work in self._attempts.values():
            work.cancel(reason)

    def _stopped(self, ctx: Context[Command]) -> str | None:
        return self._services.switch(self._state.squad_id).reason or ctx.killswitch.reason

    async def _emergency_stop(self, reason: str, ctx: Context[Command]) -> None:
        if not self._state.terminal:
            await self._do(ctx, lambda: decide.end_cancelled(self._state, reason, emergency=True))

    # --- planning ---------------------------------------------------------------------------------------------------

    def _plan(self, squad: Squad, budget: BudgetConfig, ctx: Context[Command]) -> None:
        state, services = self._state, self._services
        self._purse.update(budget)
        iteration = state.iteration
        self._start_side(
            ctx,
            "planning",
            lambda desk: make_tasks(desk, state, squad, budget, services.new_id),
            lambda outcome: PlanMade(iteration, squad, budget, outcome),
        )

    async def _plan_made(self, message: PlanMade, ctx: Context[Command]) -> None:
        state, services = self._state, self._services
        if state.phase != "planning" or state.iteration != message.iteration:
            return
        match message.outcome:
            case Finished(planned):
                plan = make_plan(
                    planned.tasks,
                    plan_id=services.new_id(),
                    squad_id=state.squad_id,
                    execution_id=state.id,
                    request=state.request,
                    now=timestamp(services.clock()),
                )
                events: list[m.ExecutionEvent] = [
                    m.PlanProposed(plan=plan, degraded=planned.degraded, notes=planned.notes)
                ]
                if state.auto_approve:
                    approved = msgspec.structs.replace(plan, status="approved")
                    events += [
                        m.PlanApproved(plan=approved),
                        decide.started(message.squad, message.budget, services.owners.me),
                    ]
                await self._do(ctx, lambda: events)
            case Failed(_, incident):
                text = f"planning failed: internal error ({incident})"
                await self._do(ctx, lambda: decide.end_failed(state, text))
            case Stopped():
                await self._cut_off(ctx)

    # --- tasks ------------------------------------------------------------------------------------------------------

    def _start_attempt(self, event: m.TaskStarted, ctx: Context[Command]) -> None:
        state, services = self._state, self._services
        task = state.tasks[event.task_id]
        attempt = Attempt(
            state=state,
            task=task,
            agent=state.agents[event.agent_id],
            directives=[state.directives[each] for each in event.directive_ids],
            bench=services.bench,
            store=services.store,
            purse=self._purse,
            count=self._count,
            record=self._record,
            facts=self._facts(),
            disk=services.disk,
            number=event.attempt,
        )
        gate = Gate(ctx.gate)
        work = self._start(
            ctx,
            gate,
            attempt.run,
            gate,
            done=lambda outcome: AttemptEnded(event.task_id, event.attempt, outcome),
            name=event.task_id,
        )
        self._attempts[event.task_id] = (attempt, work)

    async def _attempt_ended(self, message: AttemptEnded, ctx: Context[Command]) -> None:
        state, task_id = self._state, message.task_id
        current = self._attempts.get(task_id)
        if current is not None and current[0].number == message.attempt:
            del self._attempts[task_id]
        task = state.tasks.get(task_id)
        if task is None or task.status != "in_progress" or state.runs[task_id].attempts != message.attempt:
            return  # the execution has ended, or was read again; what comes late is dropped
        match message.outcome:
            case Finished(answer) if answer.ok:
                result = result_of(answer, state.runs[task_id].artifacts)
                finished = m.TaskFinished(task_id=task_id, result=result)
                await self._do(ctx, lambda: (finished,))
            case Finished(answer):
                failed = m.TaskFailed(task_id=task_id, error=answer.error or answer.reason)
                await self._do(ctx, lambda: (failed,))
            case Failed(_, incident):
                crashed = m.TaskFailed(task_id=task_id, error=f"internal error ({incident})")
                await self._do(ctx, lambda: (crashed,))
            case Stopped():
                await self._cut_off(ctx)

    async def _cut_off(self, ctx: Context[Command]) -> None:
        """Work was cancelled from outside: by a kill switch, which is recorded, or because everything ends."""
        reason = self._stopped(ctx)
        if reason is not None:
            await self._emergency_stop(reason or EMERGENCY, ctx)

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _put_together(self, message: PutTogether, ctx: Context[Command]) -> None:
        state = self._state
        if state.phase != "aggregating":
            return
        match message.outcome:
            case Finished(result):
                await self._do(ctx, lambda: decide.finish(state, result))
            case Failed(_, incident):
                text = f"the results could not be put together: internal error ({incident})"
                await self._do(ctx, lambda: decide.end_failed(state, text))
            case Stopped():
                await self._cut_off(ctx)

    # --- work -------------------------------------------------------------------------------------------------------

    def _start_side(
        self,
        ctx: Context[Command],
        name: str,
        act: Callable[[Desk], Awaitable[T]],
        done: Callable[[Outcome[T]], Command],
    ) -> None:
        """Start what is no task: planning, or putting together."""
        gate = Gate(ctx.gate)
        desk = Desk(
            bench=self._services.bench, purse=self._purse, count=self._count, facts=self._facts(), gate=gate
        )
        self._side = self._start(ctx, gate, act, desk, done=done, name=name)

    def _start(
        self,
        ctx: Context[Command],
        gate: Gate,
        act: Callable[[A], Awaitable[T]],
        argument: A,
        *,
        done: Callable[[Outcome[T]], Command],
        name: str,
    ) -> Work:
        """Start work that the squad's kill switch cancels as well as the actor's own."""
        switch = self._services.switch(self._state.squad_id)

        def ended(outcome: Outcome[T]) -> Command:
            switch.discard(work)
            if self._side is work:
                self._side = None
            return done(outcome)

        work = ctx.start_work(act, argument, done=ended, gate=gate, name=f"{self._id}/{name}")
        switch.add(work)
        return work

    def _facts(self) -> RunFacts:
        return RunFacts(
            session_id=self._id,
            run_id=new_id("run"),
            working_dir=Path(self._state.workspace),
            data_dir=self._services.data_dir,
            env=self._services.env,
        )

    async def _count(self, account: Account, usage: Usage, cost: float) -> None:
        counted = m.UsageCounted(
            agent_id=account.agent_id,
            task_id=account.task_id,
            usage=TokenUsage(prompt_tokens=usage.context_tokens, completion_tokens=usage.output_tokens),
            cost=cost,
        )
        await self._recorder.commit(lambda: (counted,))

    async def _record(self, event: m.ExecutionEvent) -> None:
        await self._recorder.commit(lambda: () if self._state.terminal else (event,))

    # --- time and money ---------------------------------------------------------------------------------------------

    def _start_clock(self, ctx: Context[Command]) -> None:
        self._stop_clock()
        self._turn += 1
        self._since = trio.current_time()
        left = max(self._state.budget.execution_timeout_secs - self._state.active, 0.0)
        self._timer = ctx.after(left, TimeUp(self._turn))

    def _stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._since = 0.0

    def _active(self) -> float:
        """Return the seconds that count for the time limit so far: those not spent paused."""
        return self._state.active + (trio.current_time() - self._since if self._timer is not None else 0.0)

    def _tell(self, ctx: Context[Command], message: MoneySpent | KeepRecord) -> None:
        with suppress(MailboxFull, ActorStopped):
            ctx.ref.tell(message)
