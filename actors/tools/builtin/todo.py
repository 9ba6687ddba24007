"""The ``todo`` toolset: a list of steps that an agent keeps for itself, or shares within the session."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from actors.tools.builtin.toolset import Builtin
from actors.tools.tool import JSON, ToolError, ToolResult

Status = Literal["pending", "in-progress", "completed"]
_MARKS: dict[Status, str] = {"pending": "[ ]", "in-progress": "[~]", "completed": "[x]"}
_MOST = 500


class Todo(Struct, frozen=True):
    """One step."""

    id: str
    description: str
    status: Status = "pending"


class TodoUpdate(Struct, frozen=True):
    """A step's new status."""

    id: str
    status: Status


class TodoList:
    """The steps of one agent, or of a session when agents share it."""

    def __init__(self) -> None:
        self.items: dict[str, Todo] = {}
        self._next = 1

    def add(self, description: str) -> Todo:
        """Add a step at the end.

        Raises:
            ToolError: the list is full.
        """
        if len(self.items) >= _MOST:
            raise ToolError(f"the list already has {_MOST} items")
        item = Todo(f"todo_{self._next}", description)
        self._next += 1
        self.items[item.id] = item
        return item


class Todos(Builtin):
    """Tools over a :class:`TodoList`."""

    name = "todo"
    text = (
        "Use the todo tools for work of several steps: create the steps first, set one in-progress before you start "
        "it, and completed right after."
    )

    def __init__(self, todos: TodoList) -> None:
        super().__init__()
        self._todos = todos
        for function in (self.create_todo, self.create_todos, self.update_todos, self.list_todos):
            self.offer(function, inline=True)

    def create_todo(self, description: str) -> ToolResult:
        """Add a step.

        Args:
            description: What is to be done.
        """
        item = self._todos.add(description)
        return self._result(f"Created {item.id}: {item.description}")

    def create_todos(self, descriptions: list[str]) -> ToolResult:
        """Add several steps, in order.

        Args:
            descriptions: What is to be done.
        """
        created = [self._todos.add(description) for description in descriptions]
        return self._result("\n".join(f"Created {item.id}: {item.description}" for item in created))

    def update_todos(self, updates: list[TodoUpdate]) -> ToolResult:
        """Set the status of steps.

        Args:
            updates: Ids and their new status.
        """
        known = [update for update in updates if update.id in self._todos.items]
        missing = [update.id for update in updates if update.id not in self._todos.items]
        for update in known:
            self._todos.items[update.id] = replace(self._todos.items[update.id], status=update.status)
        if missing and not known:
            raise ToolError(f"unknown ids: {', '.join(missing)}")
        lines = [f"Updated {update.id}: {update.status}" for update in known]
        return self._result("\n".join([*lines, *(f"Unknown id: {unknown}" for unknown in missing)]))

    def list_todos(self) -> ToolResult:
        """List the steps with their status."""
        lines = [
            f"{_MARKS[item.status]} {item.id}: {item.description}" for item in self._todos.items.values()
        ]
        return self._result("\n".join(lines) or "The list is empty.")

    def _result(self, text: str) -> ToolResult:
        items: JSON = [
            {"id": item.id, "description": item.description, "status": item.status}
            for item in self._todos.items.values()
        ]
        return ToolResult(text, meta={"todos": items})
