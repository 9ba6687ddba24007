"""The actor of one flow run: takes what people say, walks in work of its own, and records where the run is."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, structs

from actors.apitools import messages as m
from actors.apitools.documents import Documents
from actors.apitools.flow_walk import Walker, walk
from actors.errors import ActorsError, Conflict, NotFound
from actors.kernel import Actor, Context, Control
from actors.kernel.work import Failed, Finished, Outcome, Work

INTERRUPTED = "the server stopped while the flow was on its way"


class WalkEnded(Control, frozen=True):
    """The work is over."""

    outcome: Outcome[m.FlowRun]


Command = m.StartFlow | m.SayToFlow | m.GetFlowRun | m.CancelFlow | WalkEnded


class FlowServices(Struct, frozen=True, kw_only=True):
    """What the runtime lends to flow actors."""

    runs: Documents[m.FlowRun]
    walker: Walker
    owner: str
    alive: Callable[[str], bool]


class FlowActor(Actor[Command]):
    """One run.

    Args:
        run_id: Its id.
        services: What the runtime lends.
    """

    def __init__(self, run_id: str, services: FlowServices) -> None:
        self._id = run_id
        self._services = services
        self._run: m.FlowRun | None = None
        self._work: Work | None = None

    async def on_start(self, ctx: Context[Command]) -> None:  # noqa: ARG002 - the base's signature
        """Read the run; one that was on its way in a process that died has failed."""
        try:
            run = await self._services.runs.get(self._id)
        except NotFound:
            return
        self._run = run
        if run.state == "running" and not self._services.alive(run.owner):
            await self._save(structs.replace(run, state="failed", error=INTERRUPTED))

    async def receive(self, message: Command, ctx: Context[Command]) -> object:
        """Decide, record, answer. Raises: NotFound, Conflict."""
        match message:
            case m.StartFlow():
                if self._run is not None:
                    raise Conflict(f"flow run {self._id} exists already")
                return await self._begin(message.run, None, ctx)
            case m.SayToFlow():
                run = self._require()
                if run.state != "waiting":
                    raise Conflict(f"flow run {self._id} is {run.state}, not waiting")
                return await self._begin(run, message.content, ctx)
            case m.GetFlowRun():
                self._require()
                return await self._services.runs.get(self._id)
            case m.CancelFlow():
                run = self._require()
                if self._work is not None:
                    self._work.cancel("cancelled by its client")
                    return structs.replace(run, state="cancelled")
                if run.state == "waiting":
                    await self._save(structs.replace(run, state="cancelled"))
                return self._require()
            case WalkEnded():
                await self._ended(message.outcome)
                return None

    async def _begin(self, run: m.FlowRun, said: str | None, ctx: Context[Command]) -> m.FlowRun:
        run = structs.replace(run, state="running", owner=self._services.owner)
        await self._save(run)
        self._work = ctx.start_work(
            walk, self._services.walker, run, said, done=WalkEnded, name=f"flow run {self._id}"
        )
        return run

    async def _ended(self, outcome: Outcome[m.FlowRun]) -> None:
        self._work = None
        if isinstance(outcome, Finished):
            await self._save(outcome.value)
            return
        last = await self._services.runs.get(self._id)
        if isinstance(outcome, Failed):
            why = outcome.error.message if isinstance(outcome.error, ActorsError) else outcome.incident
            await self._save(structs.replace(last, state="failed", error=why))
        else:
            await self._save(structs.replace(last, state="cancelled"))

    async def _save(self, run: m.FlowRun) -> None:
        await self._services.runs.save(self._id, run, created_at=run.created_at)
        self._run = run

    def _require(self) -> m.FlowRun:
        if self._run is None:
            raise NotFound(f"flow run {self._id} not found")
        return self._run
