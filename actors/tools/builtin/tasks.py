"""The ``tasks`` toolset: tasks with priorities and dependencies, in a JSON file of the working directory."""

# ruff: noqa: D417 - docstrings of tools are written for models, who do not see the context

from __future__ import annotations

import hashlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from actors.ids import new_id
from actors.tools.builtin.toolset import WRITES, Builtin
from actors.tools.options import TasksOptions
from actors.tools.store import locked, now
from actors.tools.tool import ToolContext, ToolError
from actors.tools.workspace import Workspace, read_bytes, write_bytes

Status = Literal["pending", "in-progress", "done"]
Priority = Literal["low", "medium", "high", "critical"]
_ORDER: dict[Priority, int] = {"critical": 0, "high": 1, "medium": 2, "low": 3}
_FILE_LIMIT = 5_000_000


class Task(Struct, frozen=True, rename="camel"):
    """One task; it can begin when all it depends on is done."""

    id: str
    title: str
    description: str = ""
    priority: Priority = "medium"
    status: Status = "pending"
    dependencies: tuple[str, ...] = ()
    created_at: str = ""
    updated_at: str = ""


class TaskFile(Struct):
    """The file's content."""

    tasks: dict[str, Task] = msgspec.field(default_factory=dict[str, Task])


class Tasks(Builtin):
    """Tools over a task file."""

    name = "tasks"
    text = "Keep tasks up to date: next_task tells what can be done now."

    def __init__(self, options: TasksOptions) -> None:
        super().__init__()
        self._path = options.path
        self.offer(self.create_task, WRITES)
        self.offer(self.get_task)
        self.offer(self.update_task, WRITES)
        self.offer(self.delete_task, WRITES)
        self.offer(self.list_tasks)
        self.offer(self.next_task)
        self.offer(self.add_dependency, WRITES)
        self.offer(self.remove_dependency, WRITES)

    def create_task(
        self,
        title: str,
        context: ToolContext,
        description: str = "",
        priority: Priority = "medium",
        dependencies: tuple[str, ...] = (),
    ) -> Task:
        """Create a task.

        Args:
            title: What is to be done, in one line.
            description: Details.
            priority: How urgent it is.
            dependencies: Ids of tasks that must be done before.
        """
        with self._edit(context) as file:
            for dependency in dependencies:
                _get(file, dependency)
            moment = now()
            task = Task(new_id("task"), title, description, priority, "pending", dependencies, moment, moment)
            file.tasks[task.id] = task
        return task

    def get_task(self, id: str, context: ToolContext) -> Task:  # noqa: A002 - the tool's argument
        """Return a task.

        Args:
            id: The task's id.
        """
        return _get(self._read(context), id)

    def update_task(
        self,
        id: str,  # noqa: A002 - the tool's argument
        context: ToolContext,
        title: str | None = None,
        description: str | None = None,
        priority: Priority | None = None,
        status: Status | None = None,
    ) -> Task:
        """Change a task; what is left out stays.

        Args:
            id: The task's id.
            title: The new title.
            description: The new details.
            priority: The new priority.
            status: The new status.
        """
        with self._edit(context) as file:
            task = _get(file, id)
            if status == "done" and (open_ones := _open_dependencies(file, task)):
                raise ToolError(f"{id} depends on tasks that are not done: {', '.join(open_ones)}")
            task = replace(
                task,
                title=task.title if title is None else title,
                description=task.description if description is None else description,
                priority=priority or task.priority,
                status=status or task.status,
                updated_at=now(),
            )
            file.tasks[id] = task
        return task

    def delete_task(self, id: str, context: ToolContext) -> str:  # noqa: A002 - the tool's argument
        """Delete a task; others no longer depend on it.

        Args:
            id: The task's id.
        """
        with self._edit(context) as file:
            _get(file, id)
            del file.tasks[id]
            for other in list(file.tasks.values()):
                if id in other.dependencies:
                    file.tasks[other.id] = _without(other, id)
        return f"Deleted {id}."

    def list_tasks(
        self, context: ToolContext, status: Status | None = None, priority: Priority | None = None
    ) -> list[Task]:
        """List tasks, most urgent first.

        Args:
            status: Only tasks with this status.
            priority: Only tasks with this priority.
        """
        tasks = self._read(context).tasks.values()
        chosen = [
            task for task in tasks if status in {None, task.status} and priority in {None, task.priority}
        ]
        return sorted(chosen, key=_urgency)

    def next_task(self, context: ToolContext) -> Task | str:
        """Return the most urgent pending task whose dependencies are all done."""
        file = self._read(context)
        ready = [
            task
            for task in file.tasks.values()
            if task.status == "pending" and not _open_dependencies(file, task)
        ]
        return min(ready, key=_urgency) if ready else "No task can be started now."

    def add_dependency(self, id: str, depends_on: str, context: ToolContext) -> Task:  # noqa: A002
        """Make a task wait for another.

        Args:
            id: The task that waits.
            depends_on: The task that must be done before.
        """
        with self._edit(context) as file:
            task = _get(file, id)
            _get(file, depends_on)
            if id == depends_on or id in _all_dependencies(file, depends_on):
                raise ToolError(f"{id} cannot depend on {depends_on}: the tasks would wait for each other")
            if depends_on not in task.dependencies:
                task = replace(task, dependencies=(*task.dependencies, depends_on), updated_at=now())
                file.tasks[id] = task
        return task

    def remove_dependency(self, id: str, depends_on: str, context: ToolContext) -> Task:  # noqa: A002
        """Let a task no longer wait for another.

        Args:
            id: The task that waits.
            depends_on: The task it waits for.
        """
        with self._edit(context) as file:
            task = _get(file, id)
            if depends_on not in task.dependencies:
                raise ToolError(f"{id} does not depend on {depends_on}")
            file.tasks[id] = _without(task, depends_on)
            return file.tasks[id]

    def _read(self, context: ToolContext) -> TaskFile:
        place = Workspace(context.working_dir).place(self._path)
        if not place.path.exists():
            return TaskFile()
        data, _ = read_bytes(place, self._path, _FILE_LIMIT)
        try:
            return msgspec.json.decode(data, type=TaskFile)
        except msgspec.DecodeError as error:
            raise ToolError(f"{self._path} is not a task file: {error}") from error

    @contextmanager
    def _edit(self, context: ToolContext) -> Generator[TaskFile]:
        """Read the file, let the caller change it, and write it if nothing was raised; one editor at a time."""
        place = Workspace(context.working_dir).place(self._path)
        digest = hashlib.sha256(str(place.path).encode()).hexdigest()[:32]
        with locked(context.data_dir / "locks" / f"tasks-{digest}"):
            file = self._read(context)
            yield file
            write_bytes(place, self._path, msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n")


def _get(file: TaskFile, task_id: str) -> Task:
    if task_id not in file.tasks:
        raise ToolError(f"there is no task '{task_id}'")
    return file.tasks[task_id]


def _without(task: Task, dependency: str) -> Task:
    kept = tuple(known for known in task.dependencies if known != dependency)
    return replace(task, dependencies=kept, updated_at=now())


def _open_dependencies(file: TaskFile, task: Task) -> list[str]:
    return [
        known for known in task.dependencies if known in file.tasks and file.tasks[known].status != "done"
    ]


def _all_dependencies(file: TaskFile, task_id: str) -> set[str]:
    found: set[str] = set()
    waiting = [task_id]
    while waiting:
        task = file.tasks.get(waiting.pop())
        for dependency in task.dependencies if task else ():
            if dependency not in found:
                found.add(dependency)
                waiting.append(dependency)
    return found


def _urgency(task: Task) -> tuple[int, str]:
    return _ORDER[task.priority], task.id
