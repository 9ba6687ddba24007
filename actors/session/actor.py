"""The session actor: owns one conversation, its stream, its queues and its run.

Commands are decided on the state, recorded, and answered after the commit. A run is Work beside the mailbox: while
it streams, the actor goes on answering, and steers it through the state and the desk that both share.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar, assert_never

import msgspec
import trio

from actors.agent.closing import ClosingReason, closing_events, suspended_step, suspending_events
from actors.agent.context import RunOptions
from actors.agent.host import Decision, RunFacts
from actors.agent.messages import ApprovalDecided, ElicitationAnswered, RunResumed
from actors.agent.run import opening_events, run_agent
from actors.agent.team import AgentSpec, Team, open_team
from actors.errors import Conflict, Invalid, NotFound, Overloaded
from actors.ids import new_id, new_uuid
from actors.journal.log import SequenceConflict
from actors.kernel import Actor, Context, Gate
from actors.models.provider import Message
from actors.session import codec, decide, snapshot
from actors.session import messages as m
from actors.session.active import ActiveRun
from actors.session.approvals import Desk, Question
from actors.session.create import stream_of
from actors.session.host import SessionHost, elicitation_requested
from actors.session.internal import Command, Elicit, KeepBackground, Publish, Recall, RunFinished
from actors.session.recorder import Recorder, StorageFailed
from actors.session.services import SessionServices
from actors.session.state import SessionState
from actors.session.title import TitleJob
from actors.tools.tool import ElicitationReply

logger = logging.getLogger("greenroom.session")
T = TypeVar("T")
PAGE = 1024


class SessionActor(Actor[Command]):
    """One session. Activated by the first message; rebuilt from its stream; gone again when idle.

    Args:
        session_id: The session's id; its stream is ``session/<id>``.
        services: What the runtime lends.
    """

    def __init__(self, session_id: str, services: SessionServices) -> None:
        self._id = session_id
        self._services = services
        self._stream = stream_of(session_id)
        self._state = SessionState(session_id)
        self._recorder: Recorder
        self._team: Team | None = None
        self._active: ActiveRun | None = None
        self._sent: m.Send | None = None
        self._fresh = False
        self._kept = 0

    async def on_start(self, ctx: Context[Command]) -> None:  # noqa: ARG002 - the base's signature
        """Rebuild the session. Raises: NotFound when it was never created or is deleted."""
        await self._load()
        self._fresh = True

    async def receive(self, message: Command, ctx: Context[Command]) -> object:
        """Decide, record, answer. Raises: Rejected and its kinds, for commands that cannot be taken."""
        if self._active is None:
            await self._catch_up()
            if self._owned_elsewhere() and not isinstance(message, decide.HARMLESS):
                raise Conflict(decide.ELSEWHERE)
        try:
            return await self._receive(message, ctx)
        except (StorageFailed, SequenceConflict) as error:
            failure = error
        await self._load()
        raise failure

    async def _receive(self, message: Command, ctx: Context[Command]) -> object:
        state = self._state
        match message:
            case m.GetView():
                return self._view()
            case m.GetModels():
                return self._models()
            case m.StartRun():
                return await self._start_run(message, ctx)
            case m.Send():
                return await self._send(message, ctx)
            case m.Note():
                return await self._record(m.Noted(kind=message.kind, data=message.data))
            case m.ClearQueue():
                if not (state.steering or state.follow_ups):
                    return m.Accepted(state.seq)
                return await self._record(m.QueueCleared())
            case m.CancelRun():
                return await self._cancel_run(message)
            case m.Steer():
                self._require_bound("steer session")
                return await self._queue(decide.steer(state, message), streaming=state.run is not None)
            case m.FollowUp():
                self._require_bound("enqueue follow-up")
                if message.idempotency_key and message.idempotency_key in state.keys:
                    return m.QueueAccepted(streaming=state.run is not None, duplicate=True)
                return await self._queue(decide.follow_up(state, message), streaming=state.run is not None)
            case m.Decide():
                return await self._decide(message, ctx)
            case m.Answer():
                return await self._answer(message)
            case m.SetTitle():
                if self._active is not None:
                    self._active.title.cancel()
                return await self._record(m.TitleChanged(title=message.title))
            case m.SetPermissions():
                return await self._record(m.PermissionsChanged(permissions=message.permissions))
            case m.SetSafetyPolicy():
                return await self._record(
                    m.SafetyPolicyChanged(safety_policy=message.safety_policy, prior=state.prior_policy)
                )
            case m.ToggleYolo():
                return await self._record(decide.toggle_yolo(state))
            case m.SetStarred():
                return await self._record(m.Starred(starred=message.starred))
            case m.SetTokens():
                return await self._record(
                    m.TokensSet(
                        input_tokens=message.input_tokens,
                        output_tokens=message.output_tokens,
                        cost=message.cost,
                    )
                )
            case m.AppendMessage():
                decide.require_idle(state)
                return await self._record(decide.append_message(state, message, self._services.clock()))
            case m.ReplaceMessage():
                decide.require_idle(state)
                return await self._record(decide.replace_message(state, message))
            case m.AppendSummary():
                return await self._record(decide.append_summary(message))
            case m.DeleteSession():
                return await self._delete(message, ctx)
            case RunFinished():
                await self._run_finished(message, ctx)
                return None
            case Publish():
                if self._active is not None:
                    self._recorder.emit(message.event)
                return None
            case Elicit():
                return await self._elicit(message)
            case KeepBackground():
                await self._record(decide.kept_background(state, message, self._services.clock()))
                return None
            case Recall():
                await self._recall(message, ctx)
                return None
            case _:
                assert_never(message)

    # --- life -------------------------------------------------------------------------------------------------------

    async def _load(self) -> None:
        """Fold the stream; end a run whose owner is gone."""
        log = self._services.log
        head = await log.head(self._stream)
        if head.seq == 0 or head.purged:
            raise NotFound(f"session {self._id} not found")
        state, kept = await self._snapshot(head.seq)
        after = state.seq
        read = size = 0
        while records := await log.read(self._stream, after, PAGE):
            for record in records:
                size += len(record.data)
                for item in codec.decode(record):
                    state.evolve(item)
            read += len(records)
            after = records[-1].seq
        if state.deleted:
            raise NotFound(f"session {self._id} not found")
        self._state = state
        self._recorder = Recorder(
            log,
            self._services.tails,
            self._stream,
            msgspec.structs.replace(head, seq=after),
            state,
            clock=self._services.clock,
            dirty=self._services.dirty,
        )
        self._recorder.written_records, self._recorder.written_bytes, self._kept = read, size, kept
        if len(state.open_runs) and self._active is None and not self._owned_elsewhere():
            await self._settle_lost_runs()

    async def _settle_lost_runs(self) -> None:
        """End the runs of a dead process, but for one that only waits for a person's approval."""
        if suspended_step(self._state.open_runs) is None:
            await self._close_runs("interrupted", "the process that ran it ended")
            return
        events = suspending_events(self._state.open_runs, new_message_id=self._state.new_message_id)
        if events:
            await self._recorder.commit(*events, ahead=False)

    @property
    def _suspended(self) -> bool:
        """Whether a run waits for an approval that outlived its process."""
        return self._state.run is not None and self._active is None and not self._owned_elsewhere()

    async def _snapshot(self, head: int) -> tuple[SessionState, int]:
        """Return the kept state and its size in bytes, or a blank one to fold the stream into."""
        found = await self._services.log.load_snapshot(self._stream)
        if found is not None and found[0] <= head:
            state = snapshot.decode(self._id, found[1])
            if state is not None:
                return state, len(found[1])
        return SessionState(self._id), 0

    async def _keep(self) -> None:
        """Keep a snapshot when reading the stream again would cost more."""
        recorder, state = self._recorder, self._state
        if not snapshot.CADENCE.due(recorder.written_records, recorder.written_bytes, self._kept):
            return
        if state.run is not None or len(state.open_runs) or not recorder.idle:
            return
        data = snapshot.encode(state)
        await self._services.log.save_snapshot(self._stream, state.seq, data)
        recorder.written_records = recorder.written_bytes = 0
        self._kept = len(data)

    async def _close_runs(
        self,
        reason: ClosingReason,
        detail: str = "",
        *then: m.SessionEvent,
        verdict: Literal["cancelled", "shutdown", "deleted"] = "cancelled",
    ) -> m.Accepted:
        """Write the end of every open run, which code inside a cancelled scope must not be trusted with."""
        events = closing_events(
            self._state.open_runs,
            reason=reason,
            detail=detail,
            verdict=verdict,
            new_message_id=self._state.new_message_id,
        )
        ended = any(isinstance(event, m.SessionDeleted) for event in then)
        return m.Accepted(await self._recorder.commit(*events, *then, ahead=False, end=ended))

    async def _catch_up(self) -> None:
        """Read again when another process has written the stream since."""
        if self._fresh:  # read for this very message
            self._fresh = False
            return
        head = await self._services.log.head(self._stream)
        if head.purged or head.seq != self._recorder.stored:
            await self._load()

    def _owned_elsewhere(self) -> bool:
        run = self._state.run
        owners = self._services.owners
        return run is not None and run.owner != owners.me and owners.alive(run.owner)

    def _view(self) -> m.SessionView:
        return self._state.view(streaming=self._state.run is not None, bound=self._id in self._services.bound)

    def _models(self) -> m.ModelChoices:
        if self._team is None or self._id not in self._services.bound:
            raise NotFound("session not found or not running")
        return decide.model_choices(self._state, self._team, self._services.catalogue)

    def _require_bound(self, action: str) -> None:
        if self._id not in self._services.bound:
            raise Conflict(f"failed to {action}: session not found or not running")

    async def _record(self, *events: m.SessionEvent) -> m.Accepted:
        return m.Accepted(await self._recorder.commit(*events, ahead=self._active is not None))

    async def _queue(self, events: Sequence[m.SessionEvent], *, streaming: bool) -> m.QueueAccepted:
        await self._record(*events)
        return m.QueueAccepted(streaming=streaming)

    # --- the run ----------------------------------------------------------------------------------------------------

    async def _send(self, message: m.Send, ctx: Context[Command]) -> m.SendAccepted:
        """Start a run, or queue the message for the one going on."""
        delivery = "idle" if self._suspended else decide.delivery(self._state, message)
        if delivery == "idle":
            await self._start_run(decide.run_for(message, message.message), ctx, message)
        else:
            await self._record(decide.queued(message))
        return m.SendAccepted(delivery)

    async def _go_on(self, ctx: Context[Command]) -> None:
        """After a run that failed: give the next message that was sent a run of its own."""
        waiting = self._state.steering or self._state.follow_ups
        sent = self._sent
        if sent is None or not waiting or self._state.run is not None:
            return
        first = waiting[0]
        given = msgspec.structs.replace(first.input, client_id=first.item_id)
        await self._start_run(decide.run_for(sent, given), ctx, sent)

    async def _start_run(
        self, message: m.StartRun, ctx: Context[Command], sent: m.Send | None = None
    ) -> m.RunAccepted:
        state, services = self._state, self._services
        if not self._suspended:
            decide.require_idle(state)
        self._sent = sent
        team, agent = await self._bind(message.source, message.agent)
        if message.model:
            services.check_model(message.model)
        messages, agent = await self._expanded(message.messages, team, agent)
        if self._suspended:
            await self._close_runs("interrupted", "a new request came instead of an approval")
        run_id = new_id("run")
        after = self._recorder.seq
        active = ActiveRun(run_id)
        host = self._host(active, team.agents[agent], headers=message.headers)
        events = decide.opening(state, message, team, agent)
        if sent is not None and not state.title:
            events += decide.plain_title(message)  # no model call that no turn tells of
        await self._recorder.commit(
            *events,
            *opening_events(
                team,
                agent,
                run_id=run_id,
                messages=[decide.incoming(each) for each in messages],
                new_message_id=state.new_message_id,
                position=len(state.messages),
                owner=services.owners.me,
            ),
        )
        services.bound.add(self._id)
        if not state.title and sent is None:
            active.title.begin(
                team,
                agent,
                message.model,
                [Message("user", each.content, each.parts) for each in messages],
            )
        self._begin_work(ctx, active, host, team, agent, RunOptions(autopilot=decide.autopilot_of(sent)))
        return m.RunAccepted(run_id, after)

    def _begin_work(
        self,
        ctx: Context[Command],
        active: ActiveRun,
        host: SessionHost,
        team: Team,
        agent: str,
        options: RunOptions,
    ) -> None:
        run_id, gate = active.run_id, Gate(ctx.gate)
        active.work = ctx.start_work(
            self._run,
            active,
            self._active,
            host,
            team,
            agent,
            gate,
            options,
            done=lambda outcome: RunFinished(run_id, outcome),
            gate=gate,
            name=run_id,
        )
        self._active = active

    async def _resume(
        self,
        ctx: Context[Command],
        effects: Sequence[m.SessionEvent],
        decided: ApprovalDecided,
        decision: Decision,
    ) -> m.Accepted:
        """Take a suspended run over: record the decision, and go on with the step that waited for it."""
        state, services = self._state, self._services
        run = suspended_step(state.open_runs)
        assert run is not None, "only a run that waits for an approval is kept"
        team, agent = await self._bind("", run.agent)
        active = ActiveRun(run.run_id)
        host = self._host(active, team.agents[agent], decided={decided.call_id: decision})
        step = decide.open_step(run)
        resumed = RunResumed(agent=agent, run_id=run.run_id, owner=services.owners.me)
        accepted = m.Accepted(await self._recorder.commit(resumed, *effects, decided))
        services.bound.add(self._id)
        self._begin_work(ctx, active, host, team, agent, RunOptions(resumed=step))
        return accepted

    async def _bind(self, source: str, agent: str) -> tuple[Team, str]:
        """Return the session's team and current agent: bound by the first run, kept by later ones."""
        state = self._state
        if self._team is None:
            self._team = await self._services.open_team(state.source or source, self._id)
        team = self._team
        if self._services.equip is not None:
            await self._services.equip(team, state.source or source, self._id)
        wanted = state.agent if state.source else agent
        if wanted and wanted not in team.agents:
            if not state.source:
                raise Invalid(f"agent not found: {wanted}")
            wanted = ""
        wanted = wanted or team.default
        overlay = self._services.overlays.get(self._id)
        return team if overlay is None else overlay.dress(team, wanted), wanted

    async def _expanded(
        self, messages: Sequence[m.UserInput], team: Team, agent: str
    ) -> tuple[list[m.UserInput], str]:
        """Replace commands by their prompts; return the messages and the agent that the last command calls."""
        expanded: list[m.UserInput] = []
        for message in messages:
            found = decide.command_of(message, team, agent)
            if found is not None:
                command, typed = found
                agent = command.agent
                prompt = await self._services.expand(command.instruction, typed, self._working_dir)
                message = msgspec.structs.replace(message, content=prompt)
            expanded.append(message)
        return expanded, agent

    @property
    def _working_dir(self) -> Path:
        return Path(self._state.template.working_dir or self._services.default_dir)

    async def _recall(self, message: Recall, ctx: Context[Command]) -> None:
        told = (m.UserInput(message.content, literal=True),)
        if self._state.run is None:
            await self._start_run(m.StartRun(source="", messages=told), ctx)
            return
        try:
            await self._record(*decide.steer(self._state, m.Steer(messages=told)))
        except Overloaded:
            await self._record(*decide.follow_up(self._state, m.FollowUp(messages=told)))

    def _host(
        self,
        active: ActiveRun,
        agent: AgentSpec,
        *,
        headers: Mapping[str, str] | None = None,
        decided: Mapping[str, Decision] | None = None,
    ) -> SessionHost:
        services = self._services
        facts = RunFacts(
            session_id=self._id,
            run_id=active.run_id,
            working_dir=self._working_dir,
            data_dir=services.data_dir,
            headers=headers or {},
            env=services.env,
            limits=decide.limits(self._state.template, agent),
        )
        return SessionHost(
            facts, self._state, self._recorder, active.desk, active.title.wait, decided=decided
        )

    async def _run(
        self,
        active: ActiveRun,
        previous: ActiveRun | None,
        host: SessionHost,
        team: Team,
        agent: str,
        gate: Gate,
        options: RunOptions,
    ) -> None:
        try:
            if previous is not None:
                # It has written its end, and may still be closing the toolsets that this run is about to use.
                await previous.settled.wait()
            with self._recorder.live():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._make_title, active.title)
                    async with open_team(team):
                        await run_agent(host, team, agent, gate, options=options)
        finally:
            active.settled.set()

    async def _make_title(self, job: TitleJob) -> None:
        title = await job.run(self._services.make_title)
        if title and not self._state.title:
            await self._recorder.commit(m.TitleChanged(title=title, generated=True))
        job.settle()

    async def _cancel_run(self, message: m.CancelRun) -> m.Accepted:
        run = self._state.run
        if self._suspended and run is not None and message.run_id in ("", run.run_id):
            return await self._close_runs("canceled", message.reason)
        if self._active is not None and run is not None and message.run_id in ("", run.run_id):
            self._active.cancel(message.reason)
        return m.Accepted(self._state.seq)

    async def _run_finished(self, message: RunFinished, ctx: Context[Command]) -> None:
        if self._active is None or self._active.run_id != message.run_id:
            return  # the next run has begun already
        self._active = None
        if self._state.deleted:
            ctx.passivate()
            return
        if decide.shut_down(message.outcome) and suspended_step(self._state.open_runs) is not None:
            await self._settle_lost_runs()  # its question may be answered in the next process
        elif len(self._state.open_runs):
            reason, detail = decide.ending_of(message.outcome)
            await self._close_runs(reason, detail)
        await self._go_on(ctx)
        if self._active is None:
            await self._keep()

    # --- questions --------------------------------------------------------------------------------------------------

    async def _decide(self, message: m.Decide, ctx: Context[Command]) -> m.Accepted:
        suspended = self._suspended
        if self._id not in self._services.bound and not suspended:
            raise NotFound("session not found")
        desk = self._active.desk if self._active is not None else Desk()
        pending = desk.approval
        request = self._state.approvals.get(pending.id) if pending is not None and pending.open else None
        if suspended:
            request = next(iter(self._state.approvals.values()), None)
        if message.approval_id and (request is None or request.approval_id != message.approval_id):
            raise Conflict(f"approval {message.approval_id} is not pending")
        decision = decide.decision(message)
        effects = decide.decision_effects(self._state, message, request)
        if decision is not None and request is not None:
            decided = ApprovalDecided(
                agent=request.agent,
                session=request.session,
                approval_id=request.approval_id,
                call_id=request.call.id,
                verdict=decision.verdict,
                reason=decision.reason,
                by="user",
            )
            if suspended:
                return await self._resume(ctx, effects, decided, decision)
            accepted = await self._record(*effects, decided)
            if pending is not None and pending.open:
                pending.settle(decision)
            return accepted
        limit = desk.limit
        accepted = await self._record(*effects) if effects else m.Accepted(self._state.seq)
        if decision is not None and limit is not None and limit.open:
            limit.settle(message.confirmation == "approve")
        return accepted

    async def _answer(self, message: m.Answer) -> m.Accepted:
        if self._id not in self._services.bound:
            raise NotFound("session not found")
        waiting = dict(self._services.elsewhere.of(self._id))
        if self._active is not None:
            waiting.update(self._active.desk.elicitations)
        question = decide.pick(waiting, message.elicitation_id)
        request = self._state.elicitations.get(question.id)
        accepted = await self._record(
            ElicitationAnswered(
                agent=request.agent if request else "",
                session=request.session if request else "",
                elicitation_id=question.id,
                action=message.action,
            )
        )
        if question.open:
            question.settle(ElicitationReply(message.action, message.content))
        return accepted

    async def _elicit(self, message: Elicit) -> Question[ElicitationReply]:
        asked, question = message.question, Question[ElicitationReply](new_uuid())
        self._services.elsewhere.add(self._id, question)
        await self._record(
            elicitation_requested(asked, question.id, agent=message.agent, session=message.session)
        )
        return question

    async def _delete(self, message: m.DeleteSession, ctx: Context[Command]) -> m.Accepted:
        if self._active is not None:
            self._active.cancel("session deleted")
        accepted = await self._close_runs(
            "canceled", "session deleted", m.SessionDeleted(reason=message.reason), verdict="deleted"
        )
        await self._services.log.purge(self._stream)
        self._services.bound.discard(self._id)
        self._services.forget((self._id, *self._state.subs))
        if self._active is None:
            ctx.passivate()
        return accepted
