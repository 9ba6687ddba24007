"""Plans as graphs: layers of tasks that may run together, cycles, and the repair of what a model drafted. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from actors.errors import Invalid
from actors.squad.values import Agent, Plan, PlanTask, Priority, Squad

TITLE_LENGTH = 50
"""Characters of the request in a plan's title."""
FALLBACK_LENGTH = 100
"""Characters of the request in the title of a fallback task."""
PRIORITIES: frozenset[Priority] = frozenset({"low", "medium", "high", "critical"})

Waves = tuple[tuple[str, ...], ...]


class Draft(Struct, frozen=True, kw_only=True):
    """A task as a planner wrote it, unchecked. ``agent`` may be an id, a name or a role; ids may be anything."""

    id: str = ""
    title: str = ""
    description: str = ""
    agent: str = ""
    depends_on: tuple[str, ...] = ()
    priority: str = ""


class Repaired(Struct, frozen=True):
    """Tasks that make a sound graph, and what had to be changed for it."""

    tasks: tuple[PlanTask, ...]
    notes: tuple[str, ...]


def layers(dependencies: Mapping[str, Iterable[str]]) -> Waves:
    """Return the tasks in waves: each task as early as its dependencies allow, in the given order within a wave.

    Args:
        dependencies: What each task depends on, by id.

    Raises:
        Invalid: an id that is no task, or a cycle; the message names the tasks.
    """
    needs = {task: set(wanted) for task, wanted in dependencies.items()}
    for task, wanted in needs.items():
        if unknown := sorted(each for each in wanted if each not in needs):
            raise Invalid(f"task {task!r} depends on {unknown[0]!r}, which is not a task of the plan")
    needed_by: dict[str, list[str]] = {task: [] for task in needs}
    for task, wanted in needs.items():
        for each in wanted:
            needed_by[each].append(task)
    order = {task: index for index, task in enumerate(needs)}
    waiting = {task: len(wanted) for task, wanted in needs.items()}
    waves: list[tuple[str, ...]] = []
    wave = [task for task, count in waiting.items() if not count]
    placed = 0
    while wave:
        waves.append(tuple(wave))
        placed += len(wave)
        following: list[str] = []
        for task in wave:
            for dependant in needed_by[task]:
                waiting[dependant] -= 1
                if not waiting[dependant]:
                    following.append(dependant)
        wave = sorted(following, key=order.__getitem__)
    if placed < len(needs):
        raise Invalid(f"the tasks depend on each other in a circle: {' -> '.join(find_cycle(needs))}")
    return tuple(waves)


def find_cycle(dependencies: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the ids along one cycle, its first repeated at the end; empty when there is none."""
    done: set[str] = set()
    for start in dependencies:
        path: list[str] = []
        on_path: set[str] = set()
        stack: list[tuple[str, bool]] = [(start, True)]
        while stack:
            task, entering = stack.pop()
            if not entering:
                on_path.discard(path.pop())
                done.add(task)
                continue
            if task in on_path:
                return [*path[path.index(task) :], task]
            if task in done or task not in dependencies:
                continue
            path.append(task)
            on_path.add(task)
            stack.append((task, False))
            stack.extend((each, True) for each in dependencies[task])
    return []


def reaches(dependencies: Mapping[str, Iterable[str]], start: str, goal: str) -> bool:
    """Whether ``start`` depends on ``goal``, directly or not; a task reaches itself."""
    seen: set[str] = set()
    queue = [start]
    while queue:
        task = queue.pop()
        if task == goal:
            return True
        if task not in seen:
            seen.add(task)
            queue.extend(dependencies.get(task, ()))
    return False


def repair(drafts: Sequence[Draft], squad: Squad, *, limit: int, new_id: Callable[[], str]) -> Repaired:
    """Make a sound plan of what a planner drafted; every change is noted for people.

    Tasks get ids of their own; the drafted ones only say which task depends on which. An assignee that does not exist
    is replaced by the first agent who is not the planner, a dependency on nothing is dropped, and so is the later edge
    of a cycle.

    Args:
        drafts: At least one.
        squad: Whose agents do the tasks; it has at least one.
        limit: How many tasks a plan may have; the rest is dropped.
        new_id: Makes task ids.
    """
    notes: list[str] = []
    if len(drafts) > limit:
        notes.append(f"the planner made {len(drafts)} tasks; only the first {limit} are kept")
        drafts = drafts[:limit]
    ids = [new_id() for _ in drafts]
    known: dict[str, str] = {}
    for draft, task_id in zip(drafts, ids, strict=True):
        if draft.id and draft.id in known:
            notes.append(f"two tasks are called {draft.id!r}; dependencies on it mean the first")
        known.setdefault(draft.id or task_id, task_id)
    titles = {
        draft.title.casefold(): task_id for draft, task_id in zip(drafts, ids, strict=True) if draft.title
    }
    edges: dict[str, tuple[str, ...]] = dict.fromkeys(ids, ())
    tasks: list[PlanTask] = []
    for draft, task_id in zip(drafts, ids, strict=True):
        name = draft.title or _first_line(draft.description) or draft.id or task_id
        for wanted in draft.depends_on:
            needed = known.get(wanted) or titles.get(wanted.casefold())
            if needed is None:
                notes.append(f"{name!r} depended on {wanted!r}, which does not exist; dropped")
            elif reaches(edges, needed, task_id):
                notes.append(f"{name!r} depending on {wanted!r} would close a circle; dropped")
            elif needed not in edges[task_id]:
                edges[task_id] = (*edges[task_id], needed)
        tasks.append(
            PlanTask(
                id=task_id,
                title=name,
                description=draft.description or name,
                assigned_to=_assignee(draft, name, squad, notes),
                depends_on=edges[task_id],
                priority=_priority(draft.priority, name, notes),
            )
        )
    return Repaired(tuple(tasks), tuple(notes))


def fallback(request: str, squad: Squad, *, limit: int, new_id: Callable[[], str]) -> tuple[PlanTask, ...]:
    """Return a plan that needs no planner: the request for each agent but the planner, all at once."""
    agents = [agent for agent in squad.agents if agent is not squad.planner] or list(squad.agents)
    return tuple(
        PlanTask(
            id=new_id(),
            title=f"{agent.name}: {request[:FALLBACK_LENGTH]}",
            description=request,
            assigned_to=agent.id,
        )
        for agent in agents[:limit]
    )


def make_plan(
    tasks: Sequence[PlanTask],
    *,
    plan_id: str,
    squad_id: str,
    execution_id: str,
    request: str,
    now: str,
    title: str = "",
) -> Plan:
    """Return a draft plan of the tasks, cut into waves.

    Raises:
        Invalid: the tasks do not make a sound graph.
    """
    return Plan(
        id=plan_id,
        squad_id=squad_id,
        execution_id=execution_id,
        title=title or f"Plan for: {request[:TITLE_LENGTH]}",
        tasks=tuple(tasks),
        waves=layers({task.id: task.depends_on for task in tasks}),
        created_at=now,
        updated_at=now,
    )


def find_agent(name: str, squad: Squad) -> Agent | None:
    """Return the agent a planner means: by id, else by name, else by role; upper and lower case are the same."""
    wanted = name.strip().casefold()
    if not wanted:
        return None
    for spellings in (
        [agent.id for agent in squad.agents],
        [agent.name for agent in squad.agents],
        [agent.role.value or agent.role.type for agent in squad.agents],
    ):
        for agent, spelling in zip(squad.agents, spellings, strict=True):
            if spelling.strip().casefold() == wanted:
                return agent
    return None


def default_assignee(squad: Squad) -> Agent:
    """Return who gets a task that is for nobody: the first agent who does not plan, else the planner."""
    return next((agent for agent in squad.agents if agent is not squad.planner), squad.agents[0])


def _assignee(draft: Draft, name: str, squad: Squad, notes: list[str]) -> str:
    found = find_agent(draft.agent, squad)
    if found is not None:
        return found.id
    other = default_assignee(squad)
    missing = f"was for {draft.agent!r}, who is not in the squad" if draft.agent else "was for nobody"
    notes.append(f"{name!r} {missing}; given to {other.name!r}")
    return other.id


def _priority(given: str, name: str, notes: list[str]) -> Priority:
    wanted = given.strip().lower()
    for priority in PRIORITIES:
        if priority == wanted:
            return priority
    if wanted:
        notes.append(f"{name!r} had the priority {given!r}, which does not exist; taken as medium")
    return "medium"


def _first_line(text: str) -> str:
    return next((line.strip()[:FALLBACK_LENGTH] for line in text.splitlines() if line.strip()), "")
