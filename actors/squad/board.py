"""A squad's task board as values: what may be done to a task in which state, and what follows for the others. Pure.

Every operation returns the rows it changes; :meth:`Board.apply` then makes them the board's. Costs grow with the rows
that an operation touches, not with the board.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, get_args

from msgspec import UNSET, Struct
from msgspec.structs import replace

from actors.errors import Conflict, Invalid
from actors.squad.plan import layers
from actors.squad.refusals import TaskActive, TaskNotFound, TaskRetryExhausted, TaskTerminal
from actors.squad.requests import CreateTask, TaskGraph, TaskPatch, TaskSummary
from actors.squad.values import FINISHED, RUNNING, Squad, Task, TaskStatus

STATES: Final[tuple[TaskStatus, ...]] = get_args(TaskStatus)
WAITING: Final[frozenset[TaskStatus]] = frozenset({"pending", "ready"})
UNSTARTED: Final[frozenset[TaskStatus]] = frozenset({"pending", "ready", "assigned"})
MAX_RETRIES: Final = 10
TITLE_LENGTH: Final = 1000
SKIPPED: Final = "skipped by the operator"
"""What an execution writes as the error of a task whose dependants may run although it did not."""


class Change(Struct, frozen=True):
    """What an operation does to the board; the task it was asked for comes first among ``rows``."""

    rows: tuple[Task, ...] = ()
    removed: tuple[Task, ...] = ()


class Board:
    """The rows, with indexes for what is asked of them.

    Args:
        rows: In the order in which they were made.
    """

    def __init__(self, rows: Iterable[Task] = ()) -> None:
        self._rows: dict[str, Task] = {}
        self._dependants: dict[str, set[str]] = {}
        self._folded: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        self._graph: TaskGraph | None = None
        for row in rows:
            self._place(row)

    # --- reading ----------------------------------------------------------------------------------------------------

    def rows(self) -> tuple[Task, ...]:
        """Return every row, oldest first."""
        return tuple(self._rows.values())

    def find(self, task_id: str) -> Task | None:
        """Return a row, if there is one."""
        return self._rows.get(task_id)

    def get(self, task_id: str) -> Task:
        """Return a row. Raises: TaskNotFound."""
        row = self._rows.get(task_id)
        if row is None:
            raise TaskNotFound(f"task {task_id} not found")
        return row

    def clash(self, task_id: str) -> str | None:
        """Return the id on the board that differs from this one by upper and lower case only."""
        found = self._folded.get(task_id.casefold())
        return found if found != task_id else None

    def select(self, status: str = "", assigned_to: str = "", plan_id: str = "") -> Sequence[Task]:
        """Return the rows that match everything given."""
        if status and not self._counts[status]:
            return ()
        return [
            row
            for row in self._rows.values()
            if (not status or row.status == status)
            and (not assigned_to or row.assigned_to == assigned_to)
            and (not plan_id or row.plan_id == plan_id)
        ]

    def summary(self, squad_id: str) -> TaskSummary:
        """Return how many rows are in which state."""
        by_status: dict[str, int] = {status: self._counts[status] for status in STATES}
        return TaskSummary(squad_id=squad_id, total=len(self._rows), by_status=by_status)

    def graph(self) -> TaskGraph:
        """Return the rows in waves; worked out once for each state of the board."""
        if self._graph is None:
            known = {
                row.id: [needed for needed in row.depends_on if needed in self._rows]
                for row in self._rows.values()
            }
            self._graph = TaskGraph(
                tasks=self.rows(),
                waves=layers(known),
                ready_task_ids=tuple(
                    row.id for row in self._rows.values() if row.status in UNSTARTED and self._met(row)
                ),
            )
        return self._graph

    def _met(self, row: Task) -> bool:
        return all(self._satisfied(needed) for needed in row.depends_on)

    def _satisfied(self, task_id: str) -> bool:
        row = self._rows.get(task_id)
        return row is None or row.status == "done" or (row.status == "cancelled" and row.error == SKIPPED)

    # --- changing ---------------------------------------------------------------------------------------------------

    def create(self, given: CreateTask, *, task_id: str, squad: Squad, now: str) -> Change:
        """Make a row.

        Raises:
            Invalid: a blank title, an agent or dependency that does not exist, a retry budget out of range.
        """
        row = Task(
            id=task_id,
            squad_id=squad.id,
            plan_id=given.plan_id,
            title=_title(given.title),
            description=given.description,
            assigned_to=_assignee(given.assigned_to, squad),
            priority=given.priority or "medium",
            depends_on=self._dependencies(task_id, given.depends_on or ()),
            max_retries=3 if given.max_retries is None else _retries(given.max_retries),
            created_at=now,
        )
        return Change((self._settled(row),))

    def patch(self, task_id: str, given: TaskPatch, *, squad: Squad) -> Change:
        """Edit a row, as far as its state allows; all of the edit or none of it.

        Raises:
            TaskNotFound: no such row.
            TaskTerminal: it is finished.
            TaskActive: it runs, and the edit is about more than description, priority or retries.
            Invalid: as :meth:`create`, or a circle of dependencies.
        """
        row = self.get(task_id)
        if row.status in FINISHED:
            raise TaskTerminal(f"task {task_id} is {row.status} and takes no changes")
        fixed = [
            name
            for name, is_given in (
                ("title", given.title is not None),
                ("assignedTo", given.assigned_to is not UNSET),
                ("dependsOn", given.depends_on is not None),
            )
            if is_given
        ]
        if row.status in RUNNING and fixed:
            raise TaskActive(f"task {task_id} is {row.status}: {', '.join(fixed)} cannot be changed")
        if given.title is not None:
            row = replace(row, title=_title(given.title))
        if given.description is not None:
            row = replace(row, description=given.description)
        if given.priority is not None:
            row = replace(row, priority=given.priority)
        if given.max_retries is not None:
            row = replace(row, max_retries=_retries(given.max_retries))
        if given.assigned_to is not UNSET:
            row = replace(row, assigned_to=_assignee(given.assigned_to, squad))
        if given.depends_on is not None:
            row = self._settled(replace(row, depends_on=self._dependencies(task_id, given.depends_on)))
        return Change((row,))

    def remove(self, task_id: str, *, force: bool, now: str) -> Change:
        """Take a row from the board, and its id from what depends on it.

        A running row is cancelled first; ``removed`` holds it as it was left.

        Raises:
            TaskNotFound: no such row.
            TaskActive: it runs and ``force`` is not given.
        """
        row = self.get(task_id)
        if row.status in RUNNING:
            if not force:
                raise TaskActive(f"task {task_id} is {row.status}; force=true cancels and deletes it")
            row = replace(row, status="cancelled", error="deleted by the operator", completed_at=now)
        freed: list[Task] = []
        for each in self._dependants_of(task_id):
            left = tuple(needed for needed in each.depends_on if needed != task_id)
            freed.append(self._settled(replace(each, depends_on=left)))
        return Change(tuple(freed), (row,))

    def set_status(self, task_id: str, status: TaskStatus, *, now: str) -> Change:
        """Move a row that is not finished to any state.

        Raises:
            TaskNotFound: no such row.
            TaskTerminal: it is finished; see :meth:`retry`.
        """
        row = self.get(task_id)
        if row.status in FINISHED:
            raise TaskTerminal(f"task {task_id} is {row.status}; retry it to use it again")
        moved = replace(row, status=status)
        if status == "in_progress":
            moved = replace(moved, started_at=now, completed_at=None)
        elif status in FINISHED:
            moved = replace(moved, completed_at=now)
        return Change((moved, *self._following(moved)))

    def retry(self, task_id: str, *, force: bool) -> Change:
        """Queue a failed or cancelled row again.

        Raises:
            TaskNotFound: no such row.
            Conflict: it has neither failed nor been cancelled.
            TaskRetryExhausted: its budget is used up and ``force`` is not given.
        """
        row = self.get(task_id)
        if row.status not in ("failed", "cancelled"):
            raise Conflict(f"task {task_id} is {row.status}; only failed and cancelled tasks are retried")
        if row.retry_count >= row.max_retries and not force:
            raise TaskRetryExhausted(
                f"task {task_id} was retried {row.retry_count} times of {row.max_retries}; force allows one more"
            )
        queued = self._settled(
            replace(
                row,
                status="pending",
                error=None,
                started_at=None,
                completed_at=None,
                retry_count=row.retry_count + 1,
            )
        )
        return Change((queued, *self._following(queued)))

    def merge(self, rows: Iterable[Task]) -> Change:
        """Take over an execution's rows; what people edited on the board meanwhile stays as they left it."""
        merged: list[Task] = []
        for row in rows:
            known = self._rows.get(row.id)
            if known is not None and known.plan_id == row.plan_id:
                row = replace(
                    row,
                    title=known.title,
                    description=known.description,
                    priority=known.priority,
                    max_retries=known.max_retries,
                    created_at=known.created_at,
                )
            if row != known:
                merged.append(row)
        return Change(tuple(merged))

    def apply(self, change: Change) -> None:
        """Make a change the board's."""
        for row in change.removed:
            self._take(row.id)
        for row in change.rows:
            self._place(row)

    def _place(self, row: Task) -> None:
        old = self._rows.get(row.id)
        if old is not None:
            self._counts[old.status] -= 1
            self._unlink(old)
        self._rows[row.id] = row
        self._folded[row.id.casefold()] = row.id
        self._counts[row.status] += 1
        for needed in row.depends_on:
            self._dependants.setdefault(needed, set()).add(row.id)
        self._graph = None

    def _take(self, task_id: str) -> None:
        row = self._rows.pop(task_id, None)
        if row is not None:
            self._counts[row.status] -= 1
            self._folded.pop(task_id.casefold(), None)
            self._unlink(row)
            self._graph = None

    def _unlink(self, row: Task) -> None:
        for needed in row.depends_on:
            linked = self._dependants.get(needed)
            if linked is not None:
                linked.discard(row.id)
                if not linked:
                    del self._dependants[needed]

    # --- consequences -----------------------------------------------------------------------------------------------

    def _dependants_of(self, task_id: str) -> list[Task]:
        return [self._rows[each] for each in sorted(self._dependants.get(task_id, ()))]

    def _settled(self, row: Task) -> Task:
        """Return a row that has not started as waiting or as ready."""
        if row.status not in WAITING:
            return row
        return replace(row, status="ready" if self._met(row) else "pending")

    def _following(self, moved: Task) -> list[Task]:
        """Return the dependants of a row whose state follows from its new one."""
        satisfied = moved.status == "done"
        changed: list[Task] = []
        for each in self._dependants_of(moved.id):
            others = all(self._satisfied(needed) for needed in each.depends_on if needed != moved.id)
            status: TaskStatus = "ready" if satisfied and others else "pending"
            if each.status in WAITING and each.status != status:
                changed.append(replace(each, status=status))
        return changed

    def _dependencies(self, task_id: str, wanted: Sequence[str]) -> tuple[str, ...]:
        for needed in wanted:
            if needed == task_id:
                raise Invalid(f"task {task_id} cannot depend on itself")
            if needed not in self._rows:
                raise Invalid(f"dependsOn: task {needed!r} is not on the board")
        if task_id in self._dependants and self._reaches(wanted, task_id):
            raise Invalid(f"dependsOn: task {task_id} would depend on itself through others")
        return tuple(dict.fromkeys(wanted))

    def _reaches(self, starts: Sequence[str], goal: str) -> bool:
        seen: set[str] = set()
        queue = list(starts)
        while queue:
            task_id = queue.pop()
            if task_id == goal:
                return True
            if task_id not in seen and task_id in self._rows:
                seen.add(task_id)
                queue.extend(self._rows[task_id].depends_on)
        return False


def _title(text: str) -> str:
    title = text.strip()
    if not title:
        raise Invalid("title is blank")
    if len(title) > TITLE_LENGTH:
        raise Invalid(f"title is longer than {TITLE_LENGTH} characters")
    return title


def _assignee(agent_id: str | None, squad: Squad) -> str | None:
    if agent_id is not None and squad.agent(agent_id) is None:
        raise Invalid(f"assignedTo: {agent_id!r} is not an agent of the squad")
    return agent_id


def _retries(count: int) -> int:
    if not 0 <= count <= MAX_RETRIES:
        raise Invalid(f"maxRetries must be 0 to {MAX_RETRIES}")
    return count
