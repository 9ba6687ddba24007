"""The squads' stored resources as the gateway, the engine and tools use them: squads, workspaces, agents and limits.

Boards, memories, files and templates are parts of it with methods of their own. Runs nothing: what executes a squad
is :mod:`actors.squad.engine`, which the runtime joins to this as ``live``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio
from msgspec import UNSET
from msgspec.structs import replace

from actors.errors import Conflict, Invalid, Unavailable
from actors.ids import new_uuid, wall_clock
from actors.models.catalog import Models
from actors.squad import events, layout, lineups
from actors.squad.analytics import analyse
from actors.squad.banks import MemoryBanks
from actors.squad.boards import Boards
from actors.squad.claims import real
from actors.squad.members import Members
from actors.squad.paths import check_workspace_path
from actors.squad.ports import LiveExecutions
from actors.squad.readiness import readiness
from actors.squad.records import SquadRecords, summary
from actors.squad.refusals import AgentBusy, AgentIsPlanner, WorkspaceInUse
from actors.squad.registry import Fetch, Registry, fetch
from actors.squad.requests import (
    Analytics,
    Cleaned,
    CreateSquad,
    PathVerdict,
    Period,
    Readiness,
    RestorePreview,
    SaveAsTemplate,
    SquadSummary,
    Template,
    UpdateSquad,
    WorkspaceStatus,
    WriteMemory,
)
from actors.squad.restore import preview
from actors.squad.templates import Templates
from actors.squad.values import BudgetConfig, Squad, SquadStatus, Task, timestamp
from actors.squad.visits import WorkspaceFiles

JSON = Any
NAME_LENGTH = 200
DESCRIPTION_LENGTH = 5000
IDLE = SquadStatus()
logger = logging.getLogger("greenroom.squad")


class Squads:
    """See the module. Implements the engine's ``SquadStore``.

    Args:
        data_dir: Where records, templates, sources and archives are.
        models: Finds models, for readiness.
        default_model: For agents that prefer none.
        version: The program's, written into manifests.
        clock: Seconds since the epoch.
        new_id: Makes ids.
        get: Fetches from https registries.

    Attributes:
        live: What is running; set before use.
        busy_chats: Returns the agents of a squad that are answering somebody now.
        agents: The lineups.
        tasks: The boards.
        memory: The memory banks.
        files: The workspaces' files.
        templates: Reusable lineups.
        registry: Where templates can be installed from.
    """

    live: LiveExecutions

    def __init__(
        self,
        data_dir: Path,
        models: Models,
        *,
        default_model: str = "",
        version: str = "",
        clock: Callable[[], float] = wall_clock,
        new_id: Callable[[], str] = new_uuid,
        get: Fetch = fetch,
    ) -> None:
        self._data_dir = data_dir
        self._models = models
        self._default_model = default_model
        self._version = version
        self._clock = clock
        self._new_id = new_id
        self._claiming = trio.Lock()
        self.busy_chats: Callable[[str], frozenset[str]] = lambda _: frozenset()
        self.records = SquadRecords(data_dir / "squads")
        self.agents = Members(self, new_id)
        self.tasks = Boards(self.squad, self._prepare, self.publish, new_id, self._now)
        self.memory = MemoryBanks(self.squad, self._prepare, self.publish, lambda: self._now()[:10])
        self.files = WorkspaceFiles(self.squad)
        self.templates = Templates(data_dir / "squad-templates", new_id)
        self.registry = Registry(data_dir / "agent-registry", self.templates, new_id, self._now, get)

    def _now(self) -> str:
        return timestamp(self._clock())

    async def run(self) -> None:
        """Keep the indexes of squads and boards up to date until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.records.run)
            nursery.start_soon(self.tasks.run)

    # --- squads -----------------------------------------------------------------------------------------------------

    async def list(self) -> Sequence[SquadSummary]:
        """Return every squad with its state, oldest first."""
        statuses = await self.live.squad_statuses()
        return [summary(squad, statuses.get(squad.id, IDLE)) for squad in await self.records.all()]

    async def get(self, squad_id: str) -> Squad:
        """Return a squad with its state. Raises: SquadNotFound."""
        squad = await self.squad(squad_id)
        return replace(squad, status=await self.live.squad_status(squad_id))

    async def create(self, given: CreateSquad) -> Squad:
        """Make a squad; its workspace is not touched.

        Raises:
            Invalid: a blank name, an unsafe path, a broken agent, or a planner who is not among the agents.
            NotFound: no such template.
            Conflict: two agents have the same id.
            WorkspaceInUse: the path is another squad's.
        """
        name, path = _checked_name(given.name), self._checked_path(given.workspace_path)
        template = await self.templates.get(given.template_id) if given.template_id else None
        if given.agents is not None:
            agents = lineups.lineup(given.agents, self._new_id)
        else:
            agents = lineups.from_template(template.agents, self._new_id) if template else ()
        planner = given.planner_agent_id
        if planner is None and template is not None:
            planner = next((agent.id for agent in agents if agent.is_planner), None)
        description = given.description
        if description is None and template is not None:
            description = template.description
        now = self._now()
        squad = Squad(
            id=self._new_id(),
            name=name,
            description=_checked_description(description or ""),
            workspace_path=path,
            agents=agents,
            planner_agent_id=planner,
            created_at=now,
            updated_at=now,
        )
        _check_planner(squad)
        async with self._claiming:
            await self._check_unused(path, squad.id)
            await self.records.put(squad)
        await self.publish(squad.id, events.CREATED, {"name": squad.name})
        return squad

    async def update(self, squad_id: str, given: UpdateSquad) -> Squad:
        """Change what is given of a squad.

        Raises:
            SquadNotFound: no such squad.
            Invalid, WorkspaceInUse: as :meth:`create`.
            Conflict: the workspace is to change while an execution is live.
            AgentIsPlanner, AgentBusy: an agent who is left out is the planner, or at work.
        """
        async with self._claiming, self.records.changing(squad_id) as before:
            squad = before
            if given.name is not None:
                squad = replace(squad, name=_checked_name(given.name))
            if given.description is not None:
                squad = replace(squad, description=_checked_description(given.description))
            if given.workspace_path is not None:
                squad = replace(squad, workspace_path=self._checked_path(given.workspace_path))
            if given.agents is not None:
                squad = replace(squad, agents=lineups.lineup(given.agents, self._new_id))
            if given.planner_agent_id is not UNSET:
                squad = replace(squad, planner_agent_id=given.planner_agent_id)
            elif squad.planner_agent_id and squad.agent(squad.planner_agent_id) is None:
                raise AgentIsPlanner(
                    f"agent {squad.planner_agent_id} is the planner; clear plannerAgentId first"
                )
            _check_planner(squad)
            if squad.workspace_path != before.workspace_path:
                await self.check_idle(squad_id, "its workspace cannot be changed")
                await self._check_unused(squad.workspace_path, squad_id)
            dropped = {agent.id for agent in before.agents} - {agent.id for agent in squad.agents}
            await self.check_free(squad_id, dropped)
            squad = await self.store(squad)
            if squad.workspace_path != before.workspace_path:
                self._forget(squad_id)
        await self.publish(squad_id, events.UPDATED, {"name": squad.name})
        if given.agents is not None:
            await self.tell_agents(squad, "updated", [agent.id for agent in squad.agents])
        return replace(squad, status=await self.live.squad_status(squad_id))

    async def delete(self, squad_id: str, *, keep_workspace: bool = True) -> None:
        """Delete a squad, and with ``keep_workspace`` false its directory.

        Raises:
            SquadNotFound: no such squad.
            Conflict: an execution is live, or the directory is there without this squad's manifest; nothing is deleted.
            Unavailable: the disk refuses.
        """
        async with self._claiming, self.records.changing(squad_id) as squad:
            await self.check_idle(squad_id, "it cannot be deleted")
            if not keep_workspace and await trio.to_thread.run_sync(Path(squad.workspace_path).exists):
                await trio.to_thread.run_sync(layout.remove, squad)
            await self.records.remove(squad_id)
        await self.publish(squad_id, events.DELETED, {"name": squad.name})
        self._forget(squad_id)
        self.memory.close(squad_id)

    async def restore_preview(self, workspace_path: str) -> RestorePreview:
        """Return the squad that a workspace's manifest describes; stores nothing.

        Raises:
            Invalid: an unsafe path, or a manifest that cannot be read.
            NotFound: no manifest.
        """
        path = self._checked_path(workspace_path)
        head, config = await trio.to_thread.run_sync(layout.read_manifest, Path(path))
        known = await self.records.all()
        return preview(path, head, config, known, self._new_id)

    # --- workspaces -------------------------------------------------------------------------------------------------

    async def validate_path(self, path: str) -> PathVerdict:
        """Tell whether a directory can become a workspace; stores nothing, and refuses nothing."""
        try:
            plain = self._checked_path(path)
        except Invalid as error:
            return PathVerdict(valid=False, message=error.message)
        return await trio.to_thread.run_sync(layout.look, plain, await self.records.owner(plain))

    async def init_workspace(self, squad_id: str, path: str) -> WorkspaceStatus:
        """Lay out a squad's workspace at ``path``, which becomes the squad's if it was not.

        Raises:
            SquadNotFound: no such squad.
            Invalid: an unsafe path, or one that cannot be a workspace.
            WorkspaceInUse: it is another squad's.
            Conflict: an execution is live elsewhere.
            Unavailable: the disk refuses.
        """
        plain = self._checked_path(path)
        async with self._claiming, self.records.changing(squad_id) as squad:
            await self._check_unused(plain, squad_id)
            if plain != squad.workspace_path:
                await self.check_idle(squad_id, "its workspace cannot be changed")
                squad = replace(squad, workspace_path=plain)
            status = await self._initialize(squad)
            if plain != (await self.squad(squad_id)).workspace_path:
                await self.store(squad)
                self._forget(squad_id)
        return status

    async def workspace_status(self, squad_id: str) -> WorkspaceStatus:
        """Return which parts of a squad's workspace there are. Raises: SquadNotFound."""
        return await trio.to_thread.run_sync(layout.look_inside, await self.squad(squad_id))

    async def clean_workspace(self, squad_id: str, *, archive: bool = False) -> Cleaned:
        """Remove a squad's workspace, after packing it if ``archive``; the squad stays.

        Raises:
            SquadNotFound: no such squad.
            Conflict: no manifest of this squad, or an execution is live; nothing is removed.
            Unavailable: the disk refuses.
        """
        async with self.records.changing(squad_id) as squad:
            await self.check_idle(squad_id, "its workspace cannot be removed")
            target: Path | None = None
            if archive:
                moment = self._now().replace(":", "").replace(".", "-")
                target = self._data_dir / "squads" / "archives" / f"{squad_id}-{moment}.tar.gz"
                try:
                    await trio.to_thread.run_sync(layout.archive, squad, target)
                except OSError as error:
                    raise Unavailable(f"the workspace cannot be archived: {error}") from error
            await trio.to_thread.run_sync(layout.remove, squad)
            self._forget(squad_id)
        return Cleaned(removed=True, archive_path=str(target) if target else None)

    async def readiness(self, squad_id: str) -> Readiness:
        """Tell whether every agent has a model. Raises: SquadNotFound."""
        return readiness(await self.squad(squad_id), self._models, self._default_model)

    # --- budget and analytics -----------------------------------------------------------------------------------------

    async def budget_config(self, squad_id: str) -> BudgetConfig:
        """Return a squad's limits; the defaults when none were set. Raises: SquadNotFound."""
        return await self.records.budget(squad_id)

    async def set_budget(self, squad_id: str, budget: BudgetConfig) -> BudgetConfig:
        """Replace a squad's limits. Raises: SquadNotFound; Invalid, they contradict each other."""
        async with self.records.changing(squad_id):
            await self.records.put_budget(squad_id, _checked_budget(budget))
        return budget

    async def analytics(self, squad_id: str, period: Period = "all") -> Analytics:
        """Return what a squad's ended executions add up to. Raises: SquadNotFound."""
        await self.squad(squad_id)
        return analyse(await self.live.history(squad_id), period, self._clock())

    async def save_as_template(self, squad_id: str, given: SaveAsTemplate) -> Template:
        """Make a template of a squad's lineup. Raises: SquadNotFound; Invalid, a blank name or no agents."""
        return await self.templates.save(await self.squad(squad_id), given)

    # --- for the engine -----------------------------------------------------------------------------------------------

    async def squad(self, squad_id: str) -> Squad:
        """Return a squad as it is stored, without its state. Raises: SquadNotFound."""
        return await self.records.get(squad_id)

    async def board(self, squad_id: str) -> Sequence[Task]:
        """Return every row of a squad's board."""
        return await self.tasks.list(squad_id)

    async def put_tasks(self, squad_id: str, rows: Sequence[Task]) -> None:
        """Insert or replace an execution's rows. Raises: as :meth:`Boards.put`."""
        await self.tasks.put(squad_id, rows)

    async def read_memory(self, squad_id: str, agent_id: str) -> str:
        """Return an agent's memory file; empty when there is none."""
        data = await self.memory.text(squad_id, agent_id)
        return (data or b"").decode(errors="replace")

    async def write_memory(self, squad_id: str, agent_id: str, section: str, content: str) -> None:
        """Append to a section of an agent's memory; publishes no event."""
        given = WriteMemory(section=section, content=content)
        await self.memory.write(squad_id, agent_id, given, quiet=True)

    async def search_memory(self, squad_id: str, query: str) -> Sequence[str]:
        """Return the lines of all agents' memories that contain ``query``, each with where it stands."""
        hits = await self.memory.search(squad_id, query, context=0)
        return [f"{hit.agent_name}, {hit.section or 'top'}, line {hit.line}: {hit.content}" for hit in hits]

    # --- for its parts ------------------------------------------------------------------------------------------------

    async def store(self, squad: Squad) -> Squad:
        """Store a changed squad, and its manifest if its workspace is laid out. Raises: Unavailable."""
        squad = replace(squad, updated_at=self._now())
        await self.records.put(squad)
        try:
            await trio.to_thread.run_sync(layout.refresh_manifest, squad, self._version)
        except OSError as error:  # the record is what counts; the manifest is refreshed by the next change
            logger.warning("manifest not written", extra={"squad": squad.id, "error": str(error)})
        return squad

    async def publish(self, squad_id: str, name: str, payload: Mapping[str, JSON]) -> None:
        """Send a squad's event to everybody who follows."""
        await self.live.publish(squad_id, name, payload)

    async def tell_agents(self, squad: Squad, change: str, agent_ids: Sequence[str]) -> None:
        """Publish that a squad's lineup changed."""
        changed = [agent for agent in squad.agents if agent.id in agent_ids]
        payload = {"change": change, "agentIds": agent_ids, "agents": msgspec.to_builtins(changed)}
        await self.publish(squad.id, events.AGENTS_CHANGED, payload)

    async def check_idle(self, squad_id: str, consequence: str) -> None:
        """Raise Conflict if an execution of the squad is live."""
        if live := await self.live.active_executions(squad_id):
            raise Conflict(f"execution {live[0]} of squad {squad_id} is live; {consequence}")

    async def check_free(self, squad_id: str, agent_ids: set[str]) -> None:
        """Raise AgentBusy if one of the agents is at work."""
        if not agent_ids:
            return
        busy = await self.live.busy_agents(squad_id) | self.busy_chats(squad_id)
        if at_work := sorted(agent_ids & busy):
            raise AgentBusy(f"agent {at_work[0]} is at work")

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _checked_path(self, text: str) -> str:
        path = check_workspace_path(text)
        here, data = real(path), real(str(self._data_dir))
        if here.is_relative_to(data) or data.is_relative_to(here):
            raise Invalid(f"{path} holds or lies in the server's own data directory")
        return path

    async def _check_unused(self, path: str, squad_id: str) -> None:
        owner = await self.records.owner(path, squad_id)
        if owner is not None:
            raise WorkspaceInUse(f"{path} is, holds or lies in the workspace of squad {owner}")

    async def _initialize(self, squad: Squad) -> WorkspaceStatus:
        try:
            lay_out = partial(layout.initialize, squad, self._now(), self._version)
            return await trio.to_thread.run_sync(lay_out)
        except OSError as error:
            raise Unavailable(f"{squad.workspace_path} cannot be laid out: {error}") from error

    async def _prepare(self, squad: Squad) -> Path:
        """Lay out a squad's workspace if it is not. Raises: Invalid, OSError."""

        def lay_out() -> None:
            if not (path / layout.MANIFEST).exists():
                layout.initialize(squad, now, self._version)

        path, now = Path(squad.workspace_path), self._now()
        await trio.to_thread.run_sync(lay_out)
        return path

    def _forget(self, squad_id: str) -> None:
        self.tasks.close(squad_id)


def _checked_name(text: str) -> str:
    name = text.strip()
    if not name:
        raise Invalid("name is blank")
    if len(name) > NAME_LENGTH:
        raise Invalid(f"name has more than {NAME_LENGTH} characters")
    return name


def _checked_description(text: str) -> str:
    if len(text) > DESCRIPTION_LENGTH:
        raise Invalid(f"description has more than {DESCRIPTION_LENGTH} characters")
    return text


def _check_planner(squad: Squad) -> None:
    if squad.planner_agent_id is not None and squad.agent(squad.planner_agent_id) is None:
        raise Invalid(f"plannerAgentId {squad.planner_agent_id!r} is not an agent of the squad")


def _checked_budget(budget: BudgetConfig) -> BudgetConfig:
    try:
        msgspec.convert(msgspec.to_builtins(budget), BudgetConfig)
    except msgspec.ValidationError as error:
        raise Invalid(f"budget: {error}") from error
    if budget.max_tokens_per_agent > budget.max_total_tokens:
        raise Invalid("maxTokensPerAgent is more than maxTotalTokens")
    if budget.max_tokens_per_task > budget.max_tokens_per_agent:
        raise Invalid("maxTokensPerTask is more than maxTokensPerAgent")
    if budget.task_timeout_secs > budget.execution_timeout_secs:
        raise Invalid("taskTimeoutSecs is more than executionTimeoutSecs")
    return budget
