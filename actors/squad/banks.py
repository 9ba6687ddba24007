"""The squads' memory banks: a file for each agent in the workspace, written, read and searched."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import trio

from actors.errors import Conflict, Invalid, NotFound, Unavailable
from actors.squad import disk, events, layout, memory
from actors.squad.boards import Find, Prepare, Publish
from actors.squad.paths import memory_stems
from actors.squad.refusals import AgentNotFound, TooLarge
from actors.squad.requests import MemoryHit, MemoryInitialized, MemoryPage, WriteMemory
from actors.squad.values import Agent, Squad

JSON = Any
T = TypeVar("T")
FOLDER = "memory"
INDEX = "index.json"
FILE_LIMIT = 8 * 1024 * 1024
"""Bytes of an agent's memory."""
HITS = 50
HITS_LIMIT = 500
CONTEXT = 2
QUERY_LENGTH = 1000
logger = logging.getLogger("greenroom.squad")


class MemoryBanks:
    """The memories of all squads' agents.

    Args:
        find: Returns a squad; raises SquadNotFound, as every method here does.
        prepare: Lays out a squad's workspace if it is not, and returns where it is; raises OSError or Invalid.
        publish: Sends a squad's event.
        today: Returns the day as a text.
    """

    def __init__(self, find: Find, prepare: Prepare, publish: Publish, today: Callable[[], str]) -> None:
        self._find = find
        self._prepare = prepare
        self._publish = publish
        self._today = today
        self._locks: dict[str, trio.Lock] = {}

    async def initialize(self, squad_id: str) -> MemoryInitialized:
        """Give every agent with memory a file.

        Raises:
            Conflict: the workspace is not laid out.
            Unavailable: the disk refuses.
        """
        squad = await self._find(squad_id)
        status = await trio.to_thread.run_sync(layout.look_inside, squad)
        if not status.initialized:
            raise Conflict(f"the workspace of squad {squad.id} is not initialised")
        async with self._lock(squad.id):
            await _on_disk(partial(_initialize, squad))
        return MemoryInitialized(
            initialized=tuple(agent.id for agent in squad.agents if agent.memory_enabled)
        )

    async def read(self, squad_id: str, agent_id: str) -> MemoryPage:
        """Return an agent's memory. Raises: NotFound, no such agent, or nothing was ever written."""
        data = await self.text(squad_id, agent_id)
        if data is None:
            raise NotFound(f"agent {agent_id} has no memory yet")
        return _page(agent_id, data)

    async def text(self, squad_id: str, agent_id: str) -> bytes | None:
        """Return an agent's memory file as it is, if there is one. Raises: AgentNotFound."""
        squad = await self._find(squad_id)
        agent = _agent(squad, agent_id)
        return await _on_disk(partial(_read, squad, agent))

    async def sections(self, squad_id: str, agent_id: str) -> Sequence[str]:
        """Return the names of an agent's sections. Raises: as :meth:`read`."""
        return (await self.read(squad_id, agent_id)).sections

    async def write(
        self, squad_id: str, agent_id: str, given: WriteMemory, *, quiet: bool = False
    ) -> MemoryPage:
        """Add to a section, or replace it.

        Args:
            squad_id: The squad.
            agent_id: Whose memory.
            given: Section and content.
            quiet: Publish no event.

        Raises:
            AgentNotFound: no such agent.
            Invalid: a blank section.
            TooLarge: the memory would be too big.
            Unavailable: the disk refuses.
        """
        squad = await self._find(squad_id)
        agent = _agent(squad, agent_id)
        section = memory.check_section(given.section)
        try:
            await self._prepare(squad)
        except OSError as error:
            raise Unavailable(f"the workspace of squad {squad.id} cannot be used: {error}") from error
        async with self._lock(squad.id):
            data = await _on_disk(
                partial(
                    _write,
                    squad,
                    agent,
                    section,
                    given.content,
                    overwrite=given.overwrite,
                    date=self._today(),
                )
            )
        if not quiet:
            await self._publish(squad.id, events.MEMORY_UPDATED, {"agentId": agent_id, "section": section})
        return _page(agent_id, data)

    async def search(
        self,
        squad_id: str,
        query: str,
        *,
        agent_id: str = "",
        section: str = "",
        case_sensitive: bool = False,
        limit: int = HITS,
        context: int = CONTEXT,
    ) -> Sequence[MemoryHit]:
        """Return lines that contain ``query``, agents in lineup order; no file is read after the last one wanted.

        Raises:
            Invalid: an empty query, or a limit out of range.
            AgentNotFound: no agent ``agent_id``.
        """
        if not query.strip():
            raise Invalid("query is empty")
        if len(query) > QUERY_LENGTH or "\n" in query:
            raise Invalid(f"query must be one line of at most {QUERY_LENGTH} characters")
        if not 1 <= limit <= HITS_LIMIT:
            raise Invalid(f"limit must be 1 to {HITS_LIMIT}")
        squad = await self._find(squad_id)
        agents = [_agent(squad, agent_id)] if agent_id else list(squad.agents)
        stems = await _on_disk(partial(_stems, squad))
        hits: list[MemoryHit] = []
        for agent in agents:
            found = await _on_disk(
                partial(
                    _search,
                    Path(squad.workspace_path),
                    stems[agent.id],
                    agent,
                    query,
                    section=section,
                    case=case_sensitive,
                    limit=limit - len(hits),
                    context=max(context, 0),
                )
            )
            hits += found
            if len(hits) == limit:
                break
        return hits

    def _lock(self, squad_id: str) -> trio.Lock:
        return self._locks.setdefault(squad_id, trio.Lock())

    def close(self, squad_id: str) -> None:
        """Forget what is kept for a squad that is gone."""
        self._locks.pop(squad_id, None)


async def _on_disk(act: Callable[[], T]) -> T:
    try:
        return await trio.to_thread.run_sync(act)
    except OSError as error:
        raise Unavailable(f"the memory bank cannot be used: {error}") from error


def _agent(squad: Squad, agent_id: str) -> Agent:
    agent = squad.agent(agent_id)
    if agent is None:
        raise AgentNotFound(f"agent {agent_id} not found")
    return agent


def _page(agent_id: str, data: bytes) -> MemoryPage:
    text = data.removeprefix(memory.BOM).decode(errors="replace")
    return MemoryPage(
        agent_id=agent_id,
        content=text,
        sections=tuple(section.name for section in memory.sections(data)),
    )


def _known(root: Path) -> dict[str, str]:
    try:
        known = msgspec.json.decode(disk.read_file(root, [FOLDER, INDEX]) or b"{}", type=dict[str, str])
    except (OSError, ValueError):
        return {}
    return {agent_id: stem for agent_id, stem in known.items() if stem and "/" not in stem and stem[0] != "."}


def _stems(squad: Squad) -> Mapping[str, str]:
    known = _known(Path(squad.workspace_path))
    return memory_stems([(agent.id, agent.name) for agent in squad.agents], known)


def _read(squad: Squad, agent: Agent) -> bytes | None:
    stem = _stems(squad)[agent.id]
    return disk.read_file(Path(squad.workspace_path), [FOLDER, f"{stem}.md"], FILE_LIMIT)


def _claim(squad: Squad, agents: Sequence[Agent]) -> Mapping[str, str]:
    """Return the files' names, written down for these agents so that they stay whoever joins or is renamed."""
    root = Path(squad.workspace_path)
    known, stems = _known(root), _stems(squad)
    kept = {**known, **{agent.id: stems[agent.id] for agent in agents}}
    if kept != known:
        disk.write_json(root, [FOLDER, INDEX], kept)
    return stems


def _initialize(squad: Squad) -> None:
    root = Path(squad.workspace_path)
    agents = [agent for agent in squad.agents if agent.memory_enabled]
    stems = _claim(squad, agents)
    for agent in agents:
        name = [FOLDER, f"{stems[agent.id]}.md"]
        if disk.read_file(root, name, FILE_LIMIT) is None:
            disk.write_file(root, name, memory.new_file(agent.name))


def _write(squad: Squad, agent: Agent, section: str, content: str, *, overwrite: bool, date: str) -> bytes:
    root = Path(squad.workspace_path)
    name = [FOLDER, f"{_claim(squad, [agent])[agent.id]}.md"]
    data = disk.read_file(root, name, FILE_LIMIT)
    if data is None:
        data = memory.new_file(agent.name)
    written = memory.write(data, section, content, overwrite=overwrite, date=date)
    if len(written) > FILE_LIMIT:
        raise TooLarge(f"the memory of agent {agent.id} would have more than {FILE_LIMIT} bytes")
    disk.write_file(root, name, written)
    return written


def _search(
    root: Path, stem: str, agent: Agent, query: str, *, section: str, case: bool, limit: int, context: int
) -> list[MemoryHit]:
    try:
        data = disk.read_file(root, [FOLDER, f"{stem}.md"], FILE_LIMIT)
    except OSError as error:
        logger.warning("memory cannot be searched", extra={"agent": agent.id, "error": str(error)})
        return []
    hits: list[MemoryHit] = []
    for line in memory.search(data or b"", query, section=section, case=case, context=context):
        hits.append(
            MemoryHit(
                agent_id=agent.id,
                agent_name=agent.name,
                section=line.section,
                line=line.number,
                content=line.text,
                context_before=line.before,
                context_after=line.after,
            )
        )
        if len(hits) == limit:
            break
    return hits
