"""Shared plans: named documents with revisions that all sessions of the runtime see."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal

import msgspec
import trio
from msgspec import Struct

from actors.errors import Conflict, NotFound
from actors.tools.store import locked, now, sync_directory, write_atomic
from actors.tools.tool import ToolError

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")


class Plan(Struct, frozen=True, omit_defaults=True):
    """One plan. ``revision`` counts its changes from 1."""

    name: str
    content: str
    revision: int
    updated_at: str = msgspec.field(name="updatedAt")
    title: str = ""
    author: str = ""
    status: str = ""


class PlanChange(Struct, frozen=True):
    """What the runtime publishes: identity and version, never content.

    ``version`` is the new revision, or for a deletion the revision that the caller said to know, if it did.
    """

    name: str
    action: Literal["write", "status", "delete"]
    version: int | None


def _ignore(_: PlanChange) -> None:
    return None


class Plans:
    """The plans in a directory, one file each.

    Args:
        directory: Made when the first plan is written.
        on_change: Called in the trio thread after a change is on disk; must not block or raise.
    """

    def __init__(self, directory: Path, on_change: Callable[[PlanChange], None] = _ignore) -> None:
        self._directory = directory
        self._on_change = on_change

    async def all(self) -> list[Plan]:
        """Return all plans by name."""
        return await trio.to_thread.run_sync(self._list)

    async def read(self, name: str) -> Plan:
        """Return a plan. Raises: NotFound."""
        _check_name(name)
        plan = await trio.to_thread.run_sync(self._load, name)
        if plan is None:
            raise NotFound(f"there is no plan '{name}'", name=name)
        return plan

    async def write(
        self, name: str, content: str, title: str, author: str, status: str, known: int | None
    ) -> Plan:
        """Create or replace a plan. An empty title, author or status leaves the existing one.

        Args:
            name: Lower case letters, digits, ``-`` and ``_``.
            content: The whole document.
            title: A heading.
            author: Who wrote it.
            status: Free text such as ``draft``.
            known: The revision the caller has read; ``None`` to overwrite whatever is there.

        Raises:
            Conflict: the plan is at another revision; nothing was changed.
        """

        def change(old: Plan | None) -> Plan:
            return Plan(
                name=name,
                content=content,
                revision=(old.revision if old else 0) + 1,
                updated_at=now(),
                title=title or (old.title if old else ""),
                author=author or (old.author if old else ""),
                status=status or (old.status if old else ""),
            )

        plan = await self._change(name, known, change)
        self._on_change(PlanChange(name, "write", plan.revision))
        return plan

    async def set_status(self, name: str, status: str, known: int | None) -> Plan:
        """Set a plan's status. Raises: NotFound, Conflict."""

        def change(old: Plan | None) -> Plan:
            if old is None:
                raise NotFound(f"there is no plan '{name}'", name=name)
            return msgspec.structs.replace(old, status=status, revision=old.revision + 1, updated_at=now())

        plan = await self._change(name, known, change)
        self._on_change(PlanChange(name, "status", plan.revision))
        return plan

    async def delete(self, name: str, known: int | None) -> None:
        """Delete a plan. Raises: NotFound, Conflict."""
        _check_name(name)

        def delete() -> None:
            with self._lock():
                old = self._load(name)
                if old is None:
                    raise NotFound(f"there is no plan '{name}'", name=name)
                _check_known(old, name, known)
                self._path(name).unlink()
                sync_directory(self._directory)

        await trio.to_thread.run_sync(delete)
        self._on_change(PlanChange(name, "delete", known))

    async def _change(self, name: str, known: int | None, change: Callable[[Plan | None], Plan]) -> Plan:
        _check_name(name)

        def apply() -> Plan:
            with self._lock():
                old = self._load(name)
                _check_known(old, name, known)
                plan = change(old)
                write_atomic(self._path(name), msgspec.json.encode(plan))
                return plan

        return await trio.to_thread.run_sync(apply)

    def _lock(self) -> AbstractContextManager[None]:
        return locked(self._directory / ".lock")

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.json"

    def _load(self, name: str) -> Plan | None:
        try:
            return msgspec.json.decode(self._path(name).read_bytes(), type=Plan)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise ToolError(f"the file of plan '{name}' is damaged: {error}") from error

    def _list(self) -> list[Plan]:
        if not self._directory.is_dir():
            return []
        names = sorted(file.stem for file in self._directory.glob("*.json"))
        return [plan for name in names if _NAME.fullmatch(name) and (plan := self._load(name))]


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ToolError(f"{name!r} is not a plan name: lower case letters, digits, '-' and '_' only")


def _check_known(old: Plan | None, name: str, known: int | None) -> None:
    current = old.revision if old else 0
    if known is not None and known != current:
        raise Conflict(
            f"conflict: plan '{name}' is at revision {current}, not {known}; read it again", revision=current
        )
