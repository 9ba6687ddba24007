"""What an execution leaves in its squad's workspace, as it goes: ledger, readable log, plan, board rows, history.

All of it can be made again from the stream. A disk that fails or a workspace that is gone is noted and does not stop
the execution.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import trio
from msgspec import Struct

from actors.errors import ActorsError
from actors.squad import history
from actors.squad import messages as m
from actors.squad.announce import Announcement, announce
from actors.squad.events import SquadEvent
from actors.squad.files import write_whole
from actors.squad.history import LogLine, narrate
from actors.squad.ledger import Caps, Ledger, ledger_path
from actors.squad.services import Disk
from actors.squad.state import ExecutionState
from actors.squad.values import FINISHED, Plan, Task, timestamp

logger = logging.getLogger("greenroom.squad")
DISK_SECONDS = 10.0
"""How long an execution waits for the workspace's disk before it goes on without it."""
_encoder = msgspec.json.Encoder()
_PLAN_EVENTS = (
    m.PlanProposed,
    m.PlanApproved,
    m.ExecutionStarted,
    m.ExecutionCompleted,
    m.ExecutionFailed,
    m.ExecutionCancelled,
)
PutTasks = Callable[[str, Sequence[Task]], Awaitable[None]]


class Change(Struct, frozen=True):
    """What one commit means to the world outside the journal."""

    announcements: tuple[Announcement, ...]
    lines: tuple[LogLine, ...]
    tasks: tuple[str, ...]
    plan: bool
    board: bool
    ended: bool


class Mirror:
    """The workspace's side of one execution.

    Args:
        state: The execution; read only.
        put_tasks: Writes board rows.
        caps: The ledger's.
        lock: Held while the squad's history is rewritten; one for each workspace.
        disk: Touches files.
    """

    def __init__(
        self, state: ExecutionState, put_tasks: PutTasks, caps: Caps, lock: trio.Lock, disk: Disk
    ) -> None:
        self._disk = disk
        self._state = state
        self._put_tasks = put_tasks
        self._caps = caps
        self._lock = lock
        self._ledger: Ledger | None = None
        self._backlog: list[SquadEvent] = []
        self._later: list[Task] = []
        self._kept = False
        self._broken = ""

    async def catch_up(self, known: Sequence[SquadEvent]) -> None:
        """Add what the ledger lacks of the stream's events, after a crash between the journal and the file."""
        await self._on_disk(partial(self._complete, known), "ledger")

    async def sync_board(self) -> None:
        """Write the board's rows of all tasks, some of which a crash may have kept from being written."""
        state = self._state
        if state.started_at:
            rows = [board_row(state, task_id) for task_id in state.tasks]
            await self._within(partial(self._put_tasks, state.squad_id, rows), "board")

    async def write(self, change: Change) -> None:
        """Write the ledger's and the log's new lines, then what else has changed.

        The end brings the history record, so that who is told of the end can read it. Only an emergency stop does not
        wait for it.
        """
        state = self._state
        events = [each.event for each in change.announcements]
        plan = state.current_plan() if change.plan else None
        await self._on_disk(partial(self._append, events, change.lines, plan), "ledger")
        rows = [board_row(state, task_id) for task_id in change.tasks] if change.board else []
        if state.emergency:
            # Whoever stops everything waits for the journal, not for the workspace's files.
            self._later += rows
            return
        if rows:
            await self._within(partial(self._put_tasks, state.squad_id, rows), "board")
        if change.ended:
            await self.keep()

    async def keep(self) -> None:
        """Write the ended execution's history record, and what was put off for it; once."""
        if self._kept:
            return
        self._kept = True
        record = history.history_record(self._state)
        rows, self._later = self._later, []
        if rows:
            await self._within(partial(self._put_tasks, self._state.squad_id, rows), "board")
        async with self._lock:
            await self._on_disk(partial(history.keep_record, self._workspace, record), "history")

    @property
    def _workspace(self) -> Path:
        return Path(self._state.workspace)

    async def _on_disk(self, act: Callable[[], None], what: str) -> None:
        await self._within(partial(self._disk, act), what)

    async def _within(self, act: Callable[[], Awaitable[None]], what: str) -> None:
        """Do something with the workspace; note a failure, and go on without it after a while."""
        try:
            with trio.fail_after(DISK_SECONDS):
                await act()
        except trio.TooSlowError:
            self._note(what, f"no answer from the disk within {DISK_SECONDS:g} s")
        except (OSError, ActorsError) as error:
            self._note(what, str(error))

    def _note(self, what: str, error: str) -> None:
        if error != self._broken:
            self._broken = error
            logger.warning(
                "workspace not written", extra={"execution": self._state.id, "what": what, "error": error}
            )

    def _open(self) -> Ledger:
        if self._ledger is None:
            ledger = Ledger(ledger_path(self._workspace, self._state.id), self._caps)
            ledger.resume()
            self._ledger = ledger
        return self._ledger

    def _complete(self, known: Sequence[SquadEvent]) -> None:
        ledger = self._open()
        if not ledger.truncated:
            ledger.append(known[ledger.last :])

    def _append(self, events: Sequence[SquadEvent], lines: Sequence[LogLine], plan: Plan | None) -> None:
        self._backlog += events
        try:
            self._open().append(self._backlog)
        except OSError:
            self._ledger = None  # what the file holds now is looked up before the next line
            raise
        self._backlog.clear()
        history.write_log(self._workspace, self._state.id, lines)
        if plan is not None:
            path = self._workspace / "plans" / f"{plan.id}.json"
            path.parent.mkdir(exist_ok=True)
            write_whole(path, _encoder.encode(plan))


class ChangeBuilder:
    """Gathers what one commit means; told of each event right after it was folded into the state."""

    def __init__(self, state: ExecutionState) -> None:
        self._state = state
        self._announcements: list[Announcement] = []
        self._lines: list[LogLine] = []
        self._tasks: dict[str, None] = {}
        self._plan = False

    def add(self, at: float, event: m.ExecutionEvent) -> None:
        """Take one event."""
        state = self._state
        self._announcements += announce(state, event, at)
        self._lines += narrate(state, event, at)
        self._plan = self._plan or isinstance(event, _PLAN_EVENTS)
        match event:
            case m.ExecutionStarted():
                self._tasks.update(dict.fromkeys(state.tasks))
            case m.ExecutionRecovered():
                self._tasks.update(dict.fromkeys(event.returned))
            case m.ExecutionCancelled() | m.ExecutionFailed():
                self._tasks.update(dict.fromkeys(event.task_ids))
            case m.TaskRetried():
                self._tasks.update(dict.fromkeys((event.task_id, *event.revived)))
            case m.TaskStarted() | m.TaskFinished() | m.TaskFailed() | m.TaskStopped() | m.TaskSkipped():
                self._tasks[event.task_id] = None
            case _:
                pass

    def build(self) -> Change:
        """Return what was gathered."""
        return Change(
            tuple(self._announcements),
            tuple(self._lines),
            tuple(self._tasks),
            self._plan,
            board=self._state.started_at > 0,
            ended=self._state.terminal,
        )


def board_row(state: ExecutionState, task_id: str) -> Task:
    """Return the board's row of a task of the plan."""
    task, run = state.tasks[task_id], state.runs[task_id]
    status = task.status
    if status == "pending" and all(state.satisfied(needed) for needed in task.depends_on):
        status = "ready"
    return Task(
        id=task.id,
        squad_id=state.squad_id,
        plan_id=state.plan.id if state.plan else None,
        title=task.title,
        description=task.description,
        assigned_to=task.assigned_to,
        created_by="planner",
        status=status,
        priority=task.priority,
        depends_on=task.depends_on,
        result=task.result,
        error=task.error,
        artifacts=tuple(run.artifacts),
        token_usage=run.usage.total,
        retry_count=max(run.attempts - 1, 0),
        max_retries=task.max_retries,
        created_at=timestamp(state.started_at or state.created_at),
        started_at=timestamp(run.started_at) if run.started_at else None,
        completed_at=timestamp(run.ended_at or state.updated_at) if status in FINISHED else None,
    )
