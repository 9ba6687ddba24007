"""The rules by which an approved plan may be replaced (squads contract 3.6, R1 to R19). Pure; stores nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from actors.errors import Invalid
from actors.squad.messages import BoardHold, OverrideTask, PlanOverride
from actors.squad.plan import default_assignee, find_cycle, layers
from actors.squad.values import Plan, PlanTask, Squad

ID_BYTES = 128
MAX_RETRIES = 10
_ID = re.compile(r"[A-Za-z0-9-]+\Z")
RESERVED = frozenset(
    {
        "index",
        "con",
        "prn",
        "aux",
        "nul",
        *(f"com{n}" for n in range(1, 10)),
        *(f"lpt{n}" for n in range(1, 10)),
    }
)
"""Names that the board or Windows uses for files of its own (R7)."""


def apply_override(
    plan: Plan,
    override: PlanOverride,
    *,
    squad: Squad,
    board: Sequence[BoardHold],
    limit: int,
    new_id: Callable[[], str],
) -> Plan:
    """Return the plan that results from replacing ``plan``; its tasks are exactly the override's (R1).

    Args:
        plan: The stored plan, its tasks with their recorded status.
        override: What to put in its place.
        squad: Whose agents may be assigned.
        board: The ids taken on the squad's board, by which plans.
        limit: How many tasks a plan may have.
        new_id: Makes ids for tasks that bring none.

    Raises:
        Invalid: a rule is broken; the first one, of the first task that breaks it, is named (R17).
    """
    if not override.tasks:
        raise Invalid("planOverride.tasks is empty: nothing could run")
    if len(override.tasks) > limit:
        raise Invalid(f"planOverride has {len(override.tasks)} tasks; a plan may have {limit}")
    stored = {task.id: task for task in plan.tasks}
    for given in override.tasks:
        _check_shape(given, stored)
    for given in override.tasks:
        if given.id is not None and given.id not in stored:
            check_id(given.id)
    _check_distinct(override.tasks, stored)
    tasks = [_merged(given, stored, squad, new_id) for given in override.tasks]
    for task in tasks:
        if squad.agent(task.assigned_to) is None:
            raise Invalid(f"task {task.id!r}: assignedTo {task.assigned_to!r} is not an agent of the squad")
    ids = {task.id for task in tasks}
    for task in tasks:
        for needed in task.depends_on:
            if needed not in ids:
                raise Invalid(
                    f"task {task.id!r} depends on {needed!r}, which is not a task of the resulting plan"
                )
    edges = {task.id: task.depends_on for task in tasks}
    if cycle := find_cycle(edges):
        raise Invalid(f"the tasks depend on each other in a circle: {' -> '.join(cycle)}")
    _check_board(plan, [task.id for task in tasks if task.id not in stored], board)
    return msgspec.structs.replace(
        plan, title=override.title or plan.title, tasks=tuple(tasks), waves=layers(edges)
    )


def check_id(task_id: str) -> None:
    """Raise Invalid unless a caller may choose this id (R5 to R7); it becomes a file name and a part of a URL."""
    if not task_id:
        raise Invalid("a task id must not be empty; leave it out to have one made")
    if len(task_id.encode(errors="surrogatepass")) > ID_BYTES:
        raise Invalid(f"task id {task_id[:32]!r}… is longer than {ID_BYTES} bytes")
    if not _ID.match(task_id):
        raise Invalid(f"task id {task_id!r} may have only ASCII letters, digits and '-'")
    if task_id.lower() in RESERVED:
        raise Invalid(f"task id {task_id!r} is a reserved name")


def _check_shape(given: OverrideTask, stored: Mapping[str, PlanTask]) -> None:
    known = given.id is not None and given.id in stored
    name = given.id or given.title or "a new task"
    if (given.title is None and not known) or (given.title is not None and not given.title.strip()):
        raise Invalid(f"task {name!r}: title must not be blank")
    if given.max_retries is not None and not 0 <= given.max_retries <= MAX_RETRIES:
        raise Invalid(f"task {name!r}: maxRetries must be between 0 and {MAX_RETRIES}")


def _check_distinct(tasks: Sequence[OverrideTask], stored: Mapping[str, PlanTask]) -> None:
    """R8 and R9: one file cannot be two tasks, also where file names ignore case, also a file left by a dropped one."""
    files = {task_id.lower(): task_id for task_id in stored}
    seen: dict[str, str] = {}
    for given in tasks:
        if given.id is None:
            continue
        folded = given.id.lower()
        if folded in seen:
            same = (
                "twice"
                if seen[folded] == given.id
                else f"beside {seen[folded]!r}, which differs only in case"
            )
            raise Invalid(f"task id {given.id!r} is used {same}")
        seen[folded] = given.id
        if files.get(folded, given.id) != given.id:
            raise Invalid(f"task id {given.id!r} differs only in case from the stored {files[folded]!r}")


def _merged(
    given: OverrideTask, stored: Mapping[str, PlanTask], squad: Squad, new_id: Callable[[], str]
) -> PlanTask:
    before = stored.get(given.id) if given.id is not None else None
    fields = {
        "title": given.title.strip() if given.title is not None else None,
        "description": given.description,
        "assigned_to": given.assigned_to,
        "depends_on": given.depends_on,
        "priority": given.priority,
        "max_retries": given.max_retries,
    }
    changes = {name: value for name, value in fields.items() if value is not None}
    if before is not None:
        return msgspec.structs.replace(before, **changes)
    title = given.title or ""
    return PlanTask(
        id=given.id if given.id is not None else new_id(),
        title=title.strip(),
        description=given.description if given.description is not None else title,
        assigned_to=default_assignee(squad).id if given.assigned_to is None else given.assigned_to,
        depends_on=given.depends_on or (),
        priority=given.priority or "medium",
        max_retries=3 if given.max_retries is None else given.max_retries,
    )


def _check_board(plan: Plan, new_ids: Sequence[str], board: Sequence[BoardHold]) -> None:
    held = {hold.id.lower(): hold for hold in board}
    for task_id in new_ids:
        hold = held.get(task_id.lower())
        if hold is None or hold.plan_id == plan.id:
            continue
        if hold.plan_id is None:
            raise Invalid(
                f"task id {task_id!r} is taken by a task made on the board, which belongs to no run; delete it first"
            )
        holder = f"plan {hold.plan_id}"
        if hold.execution_id:
            holder += f" of execution {hold.execution_id}"
        raise Invalid(f"task id {task_id!r} is taken on the board by {holder}")
