"""The squads' task boards in their workspaces: one file a task for programs, one for people, and an index of all.

A task's own files are written before an operation is answered; the index follows a moment later.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio

from actors.errors import Invalid, Unavailable
from actors.squad import disk, events
from actors.squad.board import Board, Change
from actors.squad.override import check_id
from actors.squad.requests import CreateTask, TaskGraph, TaskPatch, TaskSummary
from actors.squad.taskpage import page, with_progress
from actors.squad.values import Squad, Task, TaskStatus

JSON = Any
FOLDER = "tasks"
INDEX = "index.json"
BEHIND = 0.25
"""Seconds the index may be behind."""
KEPT = 64
"""Boards that are kept in memory; more are read again when they are used."""
logger = logging.getLogger("greenroom.squad")
Find = Callable[[str], Awaitable[Squad]]
Prepare = Callable[[Squad], Awaitable[Path]]
Publish = Callable[[str, str, Mapping[str, JSON]], Awaitable[None]]


@dataclass
class _Open:
    """A board that has been read."""

    board: Board
    root: Path
    lock: trio.Lock = field(default_factory=trio.Lock)
    deleted: set[str] = field(default_factory=set[str])
    users: int = 0


class Boards:
    """The boards of all squads.

    Args:
        find: Returns a squad; raises SquadNotFound, as every method here does.
        prepare: Lays out a squad's workspace if it is not, and returns where it is; raises OSError or Invalid.
        publish: Sends a squad's event.
        new_id: Makes task ids.
        now: Returns the time as a text.
    """

    def __init__(
        self,
        find: Find,
        prepare: Prepare,
        publish: Publish,
        new_id: Callable[[], str],
        now: Callable[[], str],
    ) -> None:
        self._find = find
        self._prepare = prepare
        self._publish = publish
        self._new_id = new_id
        self._now = now
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._opening: dict[str, trio.Lock] = {}
        self._stale: dict[str, _Open] = {}
        self._wake = trio.Event()

    # --- what clients ask for ---------------------------------------------------------------------------------------

    async def list(
        self, squad_id: str, *, status: TaskStatus | None = None, assigned_to: str = "", plan_id: str = ""
    ) -> Sequence[Task]:
        """Return a squad's tasks that match everything given, oldest first."""
        return (await self._board(await self._find(squad_id))).board.select(
            status or "", assigned_to, plan_id
        )

    async def get(self, squad_id: str, task_id: str) -> Task:
        """Return a task. Raises: TaskNotFound."""
        return (await self._board(await self._find(squad_id))).board.get(task_id)

    async def graph(self, squad_id: str) -> TaskGraph:
        """Return the tasks in waves."""
        return (await self._board(await self._find(squad_id))).board.graph()

    async def summary(self, squad_id: str) -> TaskSummary:
        """Return how many tasks are in which state."""
        return (await self._board(await self._find(squad_id))).board.summary(squad_id)

    async def create(self, squad_id: str, given: CreateTask) -> Task:
        """Make a task. Raises: as :meth:`Board.create`; Unavailable, the disk refuses."""
        squad = await self._find(squad_id)
        task_id, now = self._new_id(), self._now()
        change = await self._change(
            squad, lambda board: board.create(given, task_id=task_id, squad=squad, now=now)
        )
        task = change.rows[0]
        await self._tell(task, events.TASK_CREATED, title=task.title, status=task.status)
        return task

    async def patch(self, squad_id: str, task_id: str, given: TaskPatch) -> Task:
        """Edit a task. Raises: as :meth:`Board.patch`; Unavailable."""
        squad = await self._find(squad_id)
        change = await self._change(squad, lambda board: board.patch(task_id, given, squad=squad))
        task = change.rows[0]
        await self._tell(task, events.TASK_UPDATED, title=task.title, status=task.status)
        return task

    async def delete(self, squad_id: str, task_id: str, *, force: bool = False) -> None:
        """Delete a task. Raises: as :meth:`Board.remove`; Unavailable."""
        squad, now = await self._find(squad_id), self._now()
        change = await self._change(squad, lambda board: board.remove(task_id, force=force, now=now))
        await self._tell(change.removed[0], events.TASK_DELETED)
        for freed in change.rows:
            await self._tell(freed, events.TASK_UPDATED, title=freed.title, status=freed.status)

    async def set_status(  # noqa: ASYNC128 - a task's status, not trio's
        self, squad_id: str, task_id: str, status: TaskStatus
    ) -> Task:
        """Move a task to a state. Raises: as :meth:`Board.set_status`; Unavailable."""
        now = self._now()
        return await self._move(squad_id, task_id, lambda board: board.set_status(task_id, status, now=now))

    async def retry(self, squad_id: str, task_id: str, *, force: bool = False) -> Task:
        """Queue a task again. Raises: as :meth:`Board.retry`; Unavailable."""
        return await self._move(squad_id, task_id, lambda board: board.retry(task_id, force=force))

    async def _move(self, squad_id: str, task_id: str, decide: Callable[[Board], Change]) -> Task:
        squad = await self._find(squad_id)
        before: dict[str, TaskStatus] = {}

        def noted(board: Board) -> Change:
            change = decide(board)
            before.update({row.id: board.get(row.id).status for row in change.rows})
            return change

        change = await self._change(squad, noted)
        for row in change.rows:
            await self._tell(row, events.TASK_STATUS_CHANGED, oldStatus=before[row.id], newStatus=row.status)
        return next(row for row in change.rows if row.id == task_id)

    # --- what executions write --------------------------------------------------------------------------------------

    async def put(self, squad_id: str, rows: Sequence[Task]) -> None:
        """Insert or replace an execution's rows; publishes no event.

        Rows that people deleted stay deleted. The execution's journal is what makes them durable, so nothing here
        waits for the disk to have them.

        Raises:
            Invalid: an id that cannot be a file's name, or that differs from another only by upper and lower case.
            OSError: the workspace cannot be written.
        """
        squad = await self._find(squad_id)
        async with self._using(squad) as opened:
            for row in rows:
                check_id(row.id)
                if (other := opened.board.clash(row.id)) is not None:
                    raise Invalid(f"task id {row.id!r} and {other!r} on the board are the same file")
            wanted = [row for row in rows if row.id not in opened.deleted]
            await self._keep(squad, opened, opened.board.merge(wanted), durable=False)

    # --- keeping ----------------------------------------------------------------------------------------------------

    async def _board(self, squad: Squad) -> _Open:
        async with self._opening.setdefault(squad.id, trio.Lock()):
            found = self._open.get(squad.id)
            root = Path(squad.workspace_path)
            if found is None or found.root != root:
                try:
                    rows = await trio.to_thread.run_sync(read_rows, root, squad.id)
                except OSError as error:
                    raise Unavailable(f"the board of squad {squad.id} cannot be read: {error}") from error
                found = self._open[squad.id] = _Open(Board(rows), root)
                if rows:
                    self._note(squad.id, found)  # the index may have been left behind by another process
            self._open.move_to_end(squad.id)
        self._forget()
        return found

    def _forget(self) -> None:
        """Drop the boards used longest ago that nobody is writing."""
        for squad_id in list(self._open)[: max(len(self._open) - KEPT, 0)]:
            if squad_id not in self._stale and not self._open[squad_id].users:
                del self._open[squad_id]

    async def _change(self, squad: Squad, decide: Callable[[Board], Change]) -> Change:
        async with self._using(squad) as opened:
            change = decide(opened.board)
            try:
                await self._keep(squad, opened, change, durable=True)
            except OSError as error:
                raise Unavailable(f"the board of squad {squad.id} cannot be written: {error}") from error
        return change

    @asynccontextmanager
    async def _using(self, squad: Squad) -> AsyncGenerator[_Open]:
        """Hold off other changes of a board for the block."""
        opened = await self._board(squad)
        opened.users += 1
        try:
            async with opened.lock:
                yield opened
        finally:
            opened.users -= 1

    async def _keep(self, squad: Squad, opened: _Open, change: Change, *, durable: bool) -> None:
        """Write a change and make it the board's, whatever happens to the caller meanwhile."""
        if not change.rows and not change.removed:
            return
        root = await self._prepare(squad)
        agents = {agent.id: agent.name for agent in squad.agents}
        before = {row.id: opened.board.find(row.id) for row in change.rows}
        # not cancelled once it has begun, so that rows on disk and in memory do not part
        await trio.to_thread.run_sync(
            partial(_write, root, change, before, agents, self._now(), durable=durable)
        )
        opened.board.apply(change)
        opened.deleted.update(row.id for row in change.removed)
        self._note(squad.id, opened)

    def _note(self, squad_id: str, opened: _Open) -> None:
        self._stale[squad_id] = opened
        self._wake.set()

    async def run(self) -> None:
        """Write indexes a little behind the tasks until cancelled."""
        while True:
            await self._wake.wait()
            await trio.sleep(BEHIND)
            await self.flush()

    async def flush(self) -> None:
        """Write the indexes that are behind."""
        self._wake = trio.Event()
        while self._stale:
            squad_id, opened = self._stale.popitem()
            try:
                await trio.to_thread.run_sync(_write_index, opened.root, opened.board.rows())
            except OSError as error:  # it can be made again from the tasks' files
                logger.warning("board's index not written", extra={"squad": squad_id, "error": str(error)})

    def close(self, squad_id: str) -> None:
        """Forget a squad's board, whose squad or workspace is gone."""
        self._open.pop(squad_id, None)
        self._stale.pop(squad_id, None)

    async def _tell(self, task: Task, name: str, **fields: JSON) -> None:
        plan = {"planId": task.plan_id} if task.plan_id else {}
        await self._publish(task.squad_id, name, {"taskId": task.id, **plan, **fields})


def read_rows(root: Path, squad_id: str) -> list[Task]:
    """Return a workspace's tasks in the order in which they were made; one that cannot be read is left out.

    Raises:
        OSError: the directory cannot be read.
    """
    rows: list[Task] = []
    decoder = msgspec.json.Decoder(Task)
    for name in disk.names_in(root, [FOLDER], ".json"):
        if name == INDEX or name.startswith("."):
            continue
        try:
            row = decoder.decode(disk.read_file(root, [FOLDER, name]) or b"")
        except (OSError, ValueError) as error:
            logger.warning(
                "task cannot be read", extra={"squad": squad_id, "file": name, "error": str(error)}
            )
            continue
        if row.id == name.removesuffix(".json"):
            rows.append(msgspec.structs.replace(row, squad_id=squad_id))
    return sorted(rows, key=lambda row: (row.created_at or "", row.id))


def _write(
    root: Path,
    change: Change,
    before: Mapping[str, Task | None],
    agents: Mapping[str, str],
    now: str,
    *,
    durable: bool,
) -> None:
    for row in change.rows:
        disk.write_json(root, [FOLDER, f"{row.id}.json"], row, durable=durable)
        name = [FOLDER, f"{row.id}.md"]
        text = (disk.read_file(root, name) or b"").decode(errors="replace")
        progress = with_progress(text, before.get(row.id), row, now)
        disk.write_file(root, name, page(row, agents, progress).encode(errors="replace"), durable=False)
    for row in change.removed:
        disk.remove_file(root, [FOLDER, f"{row.id}.json"])
        disk.remove_file(root, [FOLDER, f"{row.id}.md"])


def _write_index(root: Path, rows: Sequence[Task]) -> None:
    index = [
        {
            "id": row.id,
            "planId": row.plan_id,
            "title": row.title,
            "status": row.status,
            "priority": row.priority,
            "assignedTo": row.assigned_to,
            "dependsOn": row.depends_on,
        }
        for row in rows
    ]
    disk.write_file(root, [FOLDER, INDEX], msgspec.json.encode(index), durable=False)
