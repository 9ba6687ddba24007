"""The composition root: opens the journal, the models, the agents and the actor system, and wires them together.

Nothing else constructs rooms for one another, and nothing is decided here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import trio
from msgspec import structs

from actors.agent.background import open_background_agents
from actors.agent.titles import generate_title
from actors.agents import Agent, Agents
from actors.apitools.caller import open_caller
from actors.apitools.documents import Documents
from actors.apitools.flow_actor import FlowActor, FlowServices
from actors.apitools.flow_rules import problems_of
from actors.apitools.flow_walk import Walker
from actors.apitools.flows import Flows, choose
from actors.apitools.history import open_history
from actors.apitools.messages import FlowRun
from actors.apitools.queries import ApiRows
from actors.apitools.service import ApiTools
from actors.apitools.vault import Vault
from actors.auth.keys import Keys
from actors.auth.queries import KeyRows
from actors.beside import Beside, forgetter, session_jobs
from actors.errors import ActorsError, NotFound
from actors.groups import ungrouped
from actors.ids import wall_clock
from actors.journal.log import EventLog, Record
from actors.journal.memory import MemoryLog, open_memory
from actors.journal.owner import LocalOwner, open_owner
from actors.journal.ring import Frame
from actors.journal.sqlite import SqliteLog, open_sqlite
from actors.journal.tail import Follower, Tails, open_follower, open_tails
from actors.kernel import ActorStopped, Address, KillSwitch, Kind, MailboxFull, Ref, System, open_system
from actors.models.catalog import Models
from actors.past import PastSessions
from actors.session import codec, queries
from actors.session.actor import SessionActor
from actors.session.attached import Attached
from actors.session.create import (
    checked_working_dir,
    create_session,
    fork_base,
    fork_prefix,
    fork_title,
    stream_of,
)
from actors.session.flusher import Flusher
from actors.session.internal import Command, Publish
from actors.session.messages import CancelRun, HistoryMessage, PlanChanged, SessionView, Template
from actors.session.overlay import Overlay
from actors.session.queries import SessionRow, SessionRows
from actors.session.services import Bound, Owners, SessionServices
from actors.session.session import Session
from actors.settings import Settings
from actors.squad.queries import ExecutionRows
from actors.squads import build_squads, execution_kind
from actors.tools.egress import Egress, Reach
from actors.tools.http_api.executor import Executor
from actors.tools.jobs import open_jobs
from actors.tools.plans import PlanChange, Plans
from actors.tools.registry import BUILDERS, Deps

logger = logging.getLogger("greenroom.runtime")
CLOSE_GRACE = 2.0
"""Seconds that actors get to end by themselves when the runtime closes."""


class Runtime:
    """Everything that runs in one process. Made by :func:`open_runtime`.

    Attributes:
        settings: How it was set up.
        journal: The event log.
        models: The language-model providers.
        agents: The agent sources: files, directories, and agents made in Python.
        system: The actors.
        keys: The access keys of the API.
        squads: The squads' engine: what they execute.
        squad_store: Their stored resources: records, workspaces, boards, memories, templates.
        bound: The sessions that ran in this process.
        attached: Those with a person at them, by id.
        overlays: What connected programs lend to sessions, by session id; looked up at the start of each run.
        started_at: Seconds since the epoch.
    """

    def __init__(
        self,
        settings: Settings,
        journal: EventLog,
        tails: Tails,
        models: Models,
        agents: Agents,
        owners: Owners,
        clock: Callable[[], float],
    ) -> None:
        self.settings = settings
        self.journal = journal
        self.models = models
        self.agents = agents
        self.keys = Keys(journal, clock)
        self.squad_store, self.squads = build_squads(settings, journal, models, owners, clock)
        self.started_at = clock()
        self.system: System
        self.api_tools: ApiTools
        self.flows: Flows
        self._tails = tails
        self._clock = clock
        self._owners = owners
        self.bound = Bound()
        self.attached: dict[str, Attached] = {}
        self.overlays: dict[str, Overlay] = {}
        self._fork_lock = trio.Lock()

    # --- sessions ---------------------------------------------------------------------------------------------------

    async def create_session(
        self,
        agent: str = "",
        *,
        agent_name: str = "",
        title: str = "",
        template: Template | None = None,
        session_id: str = "",
    ) -> Session:
        """Create a session and return its handle.

        Args:
            agent: Id of the agent source its runs use, see ``agents``; empty when there is only one.
            agent_name: The source's agent to start with; empty for its ``root``, else its first.
            title: Its title; empty lets the first run make one.
            template: Everything else; ``title`` wins over the template's.
            session_id: Its id; a new UUID when empty.

        Raises:
            NotFound: no such source.
            Invalid: the working directory is not acceptable.
            Conflict: the id is taken.
        """
        source = await self.agents.only(agent)
        given = template or Template()
        view = await self.create(
            structs.replace(given, title=title.strip() or given.title), session_id=session_id
        )
        return Session(view.id, self, source, agent_name)

    async def create(
        self, template: Template, *, session_id: str = "", history: Sequence[HistoryMessage] = ()
    ) -> SessionView:
        """Create a session, which may begin with a history, and return it as it is stored.

        Raises as :meth:`create_session`.
        """
        settings = self.settings
        directory = checked_working_dir(template.working_dir, settings.working_dir_root, settings.working_dir)
        checked = structs.replace(template, working_dir=directory)
        return await create_session(
            self.journal, self._clock(), checked, session_id=session_id, history=history
        )

    def session(self, session_id: str, agent: str = "", agent_name: str = "") -> Session:
        """Return a handle on a session; whether it exists shows at the first call."""
        return Session(session_id, self, agent, agent_name)

    def attach(self, session_id: str, agent: str, agent_name: str = "") -> None:
        """Treat a session as one with a person at it: follow-ups start turns even when nothing runs.

        Args:
            session_id: The session.
            agent: The agent source of its runs.
            agent_name: The source's agent to start with; empty for its default.
        """
        self.attached[session_id] = Attached(agent, agent_name)
        self.bound.add(session_id)

    async def fork(self, session_id: str, user_message_index: int) -> SessionView:
        """Copy a session's history before one of its user messages into a new session (sessions contract 1.6).

        Raises:
            NotFound: no such session.
            Invalid: no such message, or it lies inside a sub-session.
        """
        async with self._fork_lock:
            parent = await self.session(session_id).view()
            history, subs = fork_prefix(parent, user_message_index)
            base = fork_base(parent.title)
            titles = await self.journal.query(partial(queries.titles_of_forks, base=base))
            template = structs.replace(
                parent.template,
                title=fork_title(parent.title, titles),
                safety_policy=parent.safety_policy,
                permissions=parent.permissions,
                agent_model_overrides=parent.model_overrides,
                custom_models_used=parent.custom_models,
            )
            return await create_session(
                self.journal,
                self._clock(),
                template,
                forked_from=session_id,
                history=history,
                subs=subs,
            )

    async def list_sessions(self, limit: int = -1, offset: int = 0) -> Sequence[SessionRow]:
        """Return the stored sessions, newest first."""
        return await self.journal.query(partial(queries.list_sessions, limit=limit, offset=offset))

    async def count_sessions(self) -> int:
        """Return how many sessions are stored."""
        return await self.journal.query(queries.count_sessions)

    def session_ref(self, session_id: str) -> Ref[Command]:
        """Return the session's actor; activated by its first message."""
        ref: Ref[Command] = self.system.ref(Address("session", session_id))
        return ref

    def follow(self, session_id: str, after: int | None) -> AbstractAsyncContextManager[Follower]:
        """Follow a session's stream from number ``after`` on; ``None`` from its beginning.

        The caller has made sure that the session exists.
        """
        return open_follower(self.journal, self._tails, stream_of(session_id), after or 0, _frames)

    async def require_session(self, session_id: str) -> None:
        """Raise NotFound unless the session exists."""
        head = await self.journal.head(stream_of(session_id))
        if head.seq == 0 or head.purged:
            raise NotFound(f"session {session_id} not found")

    def now(self) -> float:
        """Return the time for records, in seconds since the epoch."""
        return self._clock()

    def publish_plan(self, change: PlanChange) -> None:
        """Tell every session that runs here that a shared plan changed (sessions contract 2.4)."""
        event = PlanChanged(name=change.name, action=change.action, version=change.version or 0)
        for address in self.system.addresses("session"):
            with suppress(MailboxFull, ActorStopped):
                self.system.ref(address).tell(Publish(event))

    async def speak_in_flow(self, run: FlowRun, text: str) -> str:
        """Let a flow's session answer a text.

        Raises:
            RunFailed: it could not.
            Conflict: the session is busy.

        Cancellation: the session's run is cancelled, too.
        """
        runs: list[str] = []
        try:
            return await self.session(run.session_id, run.source, run.agent).ask(text, begun=runs.append)
        except trio.Cancelled:
            with suppress(MailboxFull, ActorStopped):
                for run_id in runs:
                    self.session_ref(run.session_id).tell(CancelRun(run_id=run_id, reason="flow cancelled"))
            raise

    async def choose_in_flow(self, run: FlowRun, conditions: Sequence[str], said: str) -> int:
        """Ask the model of a flow's agent which condition a text meets; -1 for none. Raises: ModelError."""
        team = await self.agents.open_team(run.source, run.session_id)
        return await choose(team, run.agent, list(conditions), said)

    async def recover(self) -> None:
        """End the runs whose process died: activating a session does it. Nothing starts again by itself."""
        for session_id, owner in await self.journal.query(queries.running_sessions):
            if not self._owners.alive(owner):
                try:
                    await self.session(session_id).view()
                except ActorsError as error:
                    logger.warning(
                        "session not recovered", extra={"session": session_id, "error": str(error)}
                    )

    # --- operations -------------------------------------------------------------------------------------------------

    def emergency_stop(self, reason: str) -> int:
        """Cancel all work of all actors at once and return how much that was. Checkpoint: never.

        The actors live on, and each records what was cancelled. :meth:`release_emergency_stop` allows work again.
        """
        return self.system.killswitch.trip(reason)

    def release_emergency_stop(self) -> None:
        """Allow work again after :meth:`emergency_stop`."""
        self.system.killswitch.reset()

    @property
    def killswitch(self) -> KillSwitch:
        """The switch over all work of this process."""
        return self.system.killswitch


@asynccontextmanager
async def open_runtime(
    settings: Settings | None = None,
    *,
    agents: str | os.PathLike[str] | Agent | Sequence[Agent] | None = None,
    models: Models | None = None,
    clock: Callable[[], float] = wall_clock,
) -> AsyncGenerator[Runtime]:
    """Open a runtime for the block.

    Args:
        settings: How to set it up; without it, from the environment and with everything kept in memory.
        agents: An agent file or a directory of them, a URL, an OCI reference, or agents made in Python. More can be
            added later.
        models: The providers to use; made from the settings when not given. Closed with the runtime.
        clock: Seconds since the epoch, for records.

    Raises:
        Invalid: an agent file is wrong.
        JournalUnavailable, JournalCorrupt: the database cannot be used.

    Cancellation: runs are cancelled; the next runtime on the same database marks them as interrupted.
    """
    settings = settings or Settings.from_environment()
    async with AsyncExitStack() as stack:
        stack.enter_context(ungrouped())
        journal, owners = await _open_journal(stack, settings)
        journal.register(SessionRows())
        journal.register(KeyRows())
        journal.register(ExecutionRows())
        journal.register(ApiRows())
        models = models or Models(settings.environment, settings.data_dir)
        stack.push_async_callback(models.aclose)
        tails = await stack.enter_async_context(open_tails(journal))
        jobs = await stack.enter_async_context(open_jobs())
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        reach = Reach(settings.reachable_hosts, everything=settings.allow_private_tools)
        plans = Plans(settings.data_dir / "plans", lambda change: runtime.publish_plan(change))
        beside = Beside(lambda session_id: runtime.session_ref(session_id), settings.environment)
        background = await stack.enter_async_context(open_background_agents(beside.store, beside.ask))
        catalog = Agents(
            models,
            settings,
            lambda session_id: Deps(
                jobs=jobs,
                plans=plans,
                reach=reach,
                sessions=PastSessions(runtime.list_sessions, lambda past: runtime.session(past).view()),
                recall=lambda owner, text: beside.recall(session_id or owner, text),
            ),
            builders={**BUILDERS, "background_jobs": session_jobs},
            background=background,
        )
        runtime = Runtime(settings, journal, tails, models, catalog, owners, clock)
        if agents is None:
            catalog.add_assistant()
        else:
            catalog.add(agents)
        if settings.pull_interval > 0:
            nursery.start_soon(catalog.keep_pulling, settings.pull_interval, name="pulling")
        history = await stack.enter_async_context(open_history(journal, owners.me, clock))
        caller = await stack.enter_async_context(open_caller(Executor(Egress(reach=reach)), history, clock))
        runtime.api_tools = ApiTools(
            journal, Vault(settings.data_dir, settings.secret_key), caller, history, clock, problems_of
        )
        runtime.flows = Flows(runtime.api_tools, clock)
        flow_runs = Documents(journal, "flow_run", FlowRun, clock)
        walker = Walker(
            caller=caller,
            find_call=runtime.api_tools.find_call,
            speak=runtime.speak_in_flow,
            choose=runtime.choose_in_flow,
            save=lambda run: flow_runs.save(run.id, run, created_at=run.created_at),
            clock=clock,
        )
        walking = FlowServices(runs=flow_runs, walker=walker, owner=owners.me, alive=owners.alive)
        flusher = Flusher()
        nursery.start_soon(flusher.run, name="flusher")
        services = SessionServices(
            log=journal,
            tails=tails,
            owners=owners,
            clock=clock,
            dirty=flusher.dirty,
            open_team=catalog.open_team,
            check_model=lambda ref: _check(models, ref),
            make_title=generate_title,
            catalogue=tuple(models.available()),
            data_dir=settings.data_dir,
            default_dir=settings.working_dir,
            env=settings.environment,
            bound=runtime.bound,
            overlays=runtime.overlays,
            expand=beside.expand,
            forget=forgetter(background, jobs),
            elsewhere=beside.elsewhere,
            equip=runtime.api_tools.equip,
        )
        kinds = {
            "session": Kind(
                lambda address: SessionActor(address.key, services), idle_after=settings.idle_after
            ),
            "flow": Kind(lambda address: FlowActor(address.key, walking), idle_after=settings.idle_after),
            "execution": execution_kind(runtime.squads, settings.idle_after),
        }
        runtime.system = await stack.enter_async_context(open_system(kinds, grace=CLOSE_GRACE))
        runtime.squads.system = runtime.system
        runtime.flows.system = runtime.system
        caller.switch = runtime.killswitch
        nursery.start_soon(runtime.recover, name="recovery")
        nursery.start_soon(history.recover, owners.alive, name="call history recovery")
        nursery.start_soon(runtime.squads.recover, name="squad recovery")
        nursery.start_soon(runtime.squads.run, name="squad activity")
        nursery.start_soon(runtime.squad_store.run, name="squad boards")
        yield runtime


async def _open_journal(stack: AsyncExitStack, settings: Settings) -> tuple[MemoryLog | SqliteLog, Owners]:
    if settings.database is None:
        return await stack.enter_async_context(open_memory()), LocalOwner()
    settings.database.parent.mkdir(parents=True, exist_ok=True)
    journal = await stack.enter_async_context(open_sqlite(settings.database))
    return journal, stack.enter_context(open_owner(settings.database))


def _check(models: Models, ref: str) -> None:
    models.resolve(ref)


def _frames(record: Record) -> Sequence[Frame]:
    return [Frame(item.seq, item.at, item.event) for item in codec.decode(record)]
