"""Methods over a session's own directory: its plan, and the files of its workspace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trio

from gateway.copilot.door import Door, Method, text
from gateway.copilot.live import Live
from gateway.copilot.rpc import INVALID_PARAMS, Connection, RpcError

JSON = Any


def _place(door: Door, live: Live) -> Path:
    place = door.files.place(live.id)
    if place is None:
        raise RpcError(INVALID_PARAMS, "the session's id makes no directory name")
    return place


def _inside(door: Door, live: Live, params: Mapping[str, JSON]) -> Path:
    """Return the file that a request names. Raises: RpcError when it lies outside of the workspace."""
    root = (_place(door, live) / "files").resolve()
    raw = text(params, "path", required=True)
    path = (root / raw).resolve() if "\0" not in raw else root
    if path == root or root not in path.parents:
        raise RpcError(INVALID_PARAMS, f"{raw!r} is no path inside the workspace")
    return path


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None


def _write(path: Path, content: str) -> bool:
    """Write a file and return whether it is new."""
    new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return new


async def read_plan(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Return the session's plan."""
    path = _place(door, door.attached(connection, params)) / "plan.md"
    content = await trio.to_thread.run_sync(_read, path)
    return {"exists": content is not None, "content": content, "path": str(path)}


async def update_plan(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Write the session's plan."""
    live = door.attached(connection, params)
    new = await trio.to_thread.run_sync(_write, _place(door, live) / "plan.md", text(params, "content"))
    await live.note("session.plan_changed", {"operation": "create" if new else "update"})


async def delete_plan(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Remove the session's plan; nothing when there is none."""
    live = door.attached(connection, params)
    path = _place(door, live) / "plan.md"
    if await trio.to_thread.run_sync(path.is_file):
        await trio.to_thread.run_sync(path.unlink)
        await live.note("session.plan_changed", {"operation": "delete"})


async def list_files(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """List the workspace's files."""
    root = _place(door, door.attached(connection, params)) / "files"

    def found() -> list[str]:
        return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())

    return {"files": await trio.to_thread.run_sync(found)}


async def read_file(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Return a file of the workspace."""
    content = await trio.to_thread.run_sync(_read, _inside(door, door.attached(connection, params), params))
    if content is None:
        raise RpcError(INVALID_PARAMS, f"there is no file {text(params, 'path')!r}")
    return {"content": content}


async def create_file(door: Door, connection: Connection, params: Mapping[str, JSON]) -> JSON:
    """Write a file of the workspace."""
    live = door.attached(connection, params)
    new = await trio.to_thread.run_sync(_write, _inside(door, live, params), text(params, "content"))
    change = {"operation": "create" if new else "update", "path": text(params, "path")}
    await live.note("session.workspace_file_changed", change)


METHODS = (
    Method("session.plan.read", read_plan),
    Method("session.plan.update", update_plan),
    Method("session.plan.delete", delete_plan),
    Method("session.workspaces.listFiles", list_files),
    Method("session.workspaces.readFile", read_file),
    Method("session.workspaces.createFile", create_file),
)
