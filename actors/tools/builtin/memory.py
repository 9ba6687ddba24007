"""The ``memory`` toolset: facts an agent keeps beyond the session, in an SQLite file."""

# ruff: noqa: D417 - docstrings of tools are written for models, who do not see the context

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from actors.ids import new_id
from actors.tools.builtin.toolset import WRITES, Builtin
from actors.tools.expand import expand
from actors.tools.options import MemoryOptions
from actors.tools.store import now, safe_name
from actors.tools.tool import ToolContext, ToolError, ToolResult

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS memories "
    "(id TEXT PRIMARY KEY, created_at TEXT NOT NULL, memory TEXT NOT NULL, category TEXT NOT NULL DEFAULT '')"
)
_COLUMNS = "SELECT id, memory, category, created_at FROM memories"
_WAIT_SECONDS = 5.0


class Memory(Struct, frozen=True, omit_defaults=True):
    """One remembered fact."""

    id: str
    memory: str
    category: str = ""
    created_at: str = ""


class Memories(Builtin):
    """Tools over one memory file: the option's ``path``, else one per agent."""

    name = "memory"
    text = (
        "Look into your memories before you ask the user something they may have told you, and remember what will "
        "matter in later sessions."
    )

    def __init__(self, options: MemoryOptions) -> None:
        super().__init__()
        self._options = options
        self.offer(self.add_memory, WRITES)
        self.offer(self.get_memories)
        self.offer(self.delete_memory, WRITES)
        self.offer(self.search_memories)
        self.offer(self.update_memory, WRITES)

    def add_memory(self, memory: str, context: ToolContext, category: str = "") -> str:
        """Remember a fact.

        Args:
            memory: The fact, understandable by itself.
            category: A word to find it by, for example preference or project.
        """
        if not memory.strip():
            raise ToolError("the memory is empty")
        item = Memory(new_id("mem"), memory, category, now())
        with self._open(context) as database:
            database.execute(
                "INSERT INTO memories (id, memory, category, created_at) VALUES (?, ?, ?, ?)",
                (item.id, item.memory, item.category, item.created_at),
            )
        return f"Remembered as {item.id}."

    def get_memories(self, context: ToolContext) -> ToolResult:
        """Return all memories, oldest first."""
        with self._open(context) as database:
            return _result(database.execute(f"{_COLUMNS} ORDER BY id").fetchall())

    def delete_memory(self, id: str, context: ToolContext) -> str:  # noqa: A002 - the tool's argument
        """Forget a memory.

        Args:
            id: The memory's id.
        """
        with self._open(context) as database:
            if not database.execute("DELETE FROM memories WHERE id = ?", (id,)).rowcount:
                raise ToolError(f"there is no memory '{id}'")
        return f"Forgot {id}."

    def search_memories(self, context: ToolContext, query: str = "", category: str = "") -> ToolResult:
        """Find memories.

        Args:
            query: Words that must all occur, in any order and case.
            category: Only memories of this category.
        """
        conditions = ["memory LIKE ? ESCAPE '\\'" for _ in query.split()]
        values = [f"%{_escaped(word)}%" for word in query.split()]
        if category:
            conditions.append("category = ? COLLATE NOCASE")
            values.append(category)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        with self._open(context) as database:
            return _result(database.execute(f"{_COLUMNS}{where} ORDER BY id", values).fetchall())

    def update_memory(self, id: str, memory: str, context: ToolContext, category: str | None = None) -> str:  # noqa: A002
        """Replace a memory's text.

        Args:
            id: The memory's id.
            memory: The new text.
            category: The new category; left out, it stays.
        """
        if not memory.strip():
            raise ToolError("the memory is empty")
        with self._open(context) as database:
            changed = database.execute(
                "UPDATE memories SET memory = ?, category = coalesce(?, category) WHERE id = ?",
                (memory, category, id),
            )
            if not changed.rowcount:
                raise ToolError(f"there is no memory '{id}'")
        return f"Updated {id}."

    def _path(self, context: ToolContext) -> Path:
        folder = context.data_dir / "memory"
        if self._options.path:
            return folder / Path(expand(self._options.path, context)).expanduser()
        return folder / f"{safe_name(context.agent)}.db"

    @contextmanager
    def _open(self, context: ToolContext) -> Generator[sqlite3.Connection]:
        """Open the file for one transaction, in a worker thread.

        Raises:
            ToolError: the file is damaged, locked for too long, or out of reach.
        """
        path = self._path(context)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(path, timeout=_WAIT_SECONDS)) as database, database:
                database.execute(_SCHEMA)
                yield database
        except (sqlite3.Error, OSError) as error:
            raise ToolError(f"the memory file cannot be used: {error}") from error


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _result(rows: Sequence[tuple[str, str, str, str]]) -> ToolResult:
    items = [msgspec.to_builtins(Memory(*row)) for row in rows]
    return ToolResult(msgspec.json.encode(items).decode(), structured=items)
