"""The ``plan`` and ``session_plan`` toolsets: plans shared by all sessions, and one plan of a session's own."""

# ruff: noqa: D417 - docstrings of tools are written for models, who do not see the context

from __future__ import annotations

from pathlib import Path

import msgspec
import trio

from actors.tools.builtin.filesystem import READ_LIMIT
from actors.tools.builtin.toolset import DESTRUCTIVE, WRITES, Builtin
from actors.tools.options import PlanOptions, SessionPlanOptions
from actors.tools.plans import Plan, Plans
from actors.tools.store import safe_name, write_atomic
from actors.tools.textfile import decode
from actors.tools.tool import ToolContext, ToolError, ToolResult
from actors.tools.workspace import Workspace, read_bytes, write_bytes


class SharedPlans(Builtin):
    """Tools over :class:`actors.tools.plans.Plans`."""

    name = "plan"
    text = (
        "Plans are shared with other agents. Read a plan before you change it and pass the revision you read as "
        "last_known_revision; on a conflict read it again."
    )

    def __init__(self, _options: PlanOptions, plans: Plans) -> None:
        super().__init__()
        self._plans = plans
        self.offer(self.write_plan, WRITES)
        self.offer(self.read_plan)
        self.offer(self.list_plans)
        self.offer(self.delete_plan, DESTRUCTIVE)
        self.offer(self.set_plan_status, WRITES)
        self.offer(self.get_plan_status)
        self.offer(self.update_plan_from_file, WRITES)
        self.offer(self.export_plan_to_file, WRITES)

    async def write_plan(
        self,
        name: str,
        content: str,
        context: ToolContext,
        title: str = "",
        author: str = "",
        status: str = "",
        last_known_revision: int | None = None,
    ) -> ToolResult:
        """Create a plan or replace its content.

        Args:
            name: Lower case letters, digits, "-" and "_".
            content: The whole plan.
            title: A heading; left out, it stays.
            author: Who writes; left out, the calling agent for a new plan.
            status: For example draft, approved or done; left out, it stays.
            last_known_revision: The revision you have read; the call fails if the plan has changed since.
        """
        plan = await self._plans.write(
            name, content, title, author or context.agent, status, last_known_revision
        )
        return _summary(plan)

    async def read_plan(self, name: str) -> Plan:
        """Return a plan with its revision.

        Args:
            name: The plan's name.
        """
        return await self._plans.read(name)

    async def list_plans(self) -> ToolResult:
        """List the plans, without their content."""
        plans = [_without_content(plan) for plan in await self._plans.all()]
        return ToolResult(msgspec.json.encode(plans).decode(), structured=plans)

    async def delete_plan(self, name: str, last_known_revision: int | None = None) -> str:
        """Delete a plan.

        Args:
            name: The plan's name.
            last_known_revision: The revision you have read; the call fails if the plan has changed since.
        """
        await self._plans.delete(name, last_known_revision)
        return f"Plan '{name}' deleted."

    async def set_plan_status(
        self, name: str, status: str, last_known_revision: int | None = None
    ) -> ToolResult:
        """Set a plan's status.

        Args:
            name: The plan's name.
            status: For example draft, approved or done.
            last_known_revision: The revision you have read; the call fails if the plan has changed since.
        """
        return _summary(await self._plans.set_status(name, status, last_known_revision))

    async def get_plan_status(self, name: str) -> ToolResult:
        """Return a plan's status and revision, without its content.

        Args:
            name: The plan's name.
        """
        return _summary(await self._plans.read(name))

    async def update_plan_from_file(
        self,
        name: str,
        path: str,
        context: ToolContext,
        title: str = "",
        author: str = "",
        status: str = "",
        last_known_revision: int | None = None,
    ) -> ToolResult:
        """Create a plan or replace its content with that of a file.

        Args:
            name: The plan's name.
            path: A text file of the working directory.
            title: A heading; left out, it stays.
            author: Who writes; left out, the calling agent.
            status: For example draft, approved or done; left out, it stays.
            last_known_revision: The revision you have read; the call fails if the plan has changed since.
        """

        def load() -> str:
            data, _ = read_bytes(Workspace(context.working_dir).place(path), path, READ_LIMIT)
            return decode(data, path).shown()

        content = await trio.to_thread.run_sync(load)
        return await self.write_plan(name, content, context, title, author, status, last_known_revision)

    async def export_plan_to_file(self, name: str, path: str, context: ToolContext) -> str:
        """Write a plan's content into a file.

        Args:
            name: The plan's name.
            path: A file of the working directory; it is replaced if it exists.
        """
        plan = await self._plans.read(name)

        def store() -> None:
            write_bytes(Workspace(context.working_dir).place(path), path, plan.content.encode())

        await trio.to_thread.run_sync(store)
        return f"Plan '{name}' (revision {plan.revision}) written to {path}."


def _without_content(plan: Plan) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(plan)
    del fields["content"]
    return fields


def _summary(plan: Plan) -> ToolResult:
    fields = _without_content(plan)
    return ToolResult(msgspec.json.encode(fields).decode(), structured=fields)


class SessionPlan(Builtin):
    """One plan per session, kept under the data directory."""

    name = "session_plan"
    text = "Write the session's plan, refine it with the user, and call exit_plan_mode when it is agreed."

    def __init__(self, _options: SessionPlanOptions) -> None:
        super().__init__()
        self.offer(self.write_session_plan, WRITES)
        self.offer(self.read_session_plan)
        self.offer(self.exit_plan_mode)

    def write_session_plan(self, content: str, context: ToolContext) -> str:
        """Write the session's plan, replacing the one before.

        Args:
            content: The whole plan.
        """
        write_atomic(_session_path(context), content.encode())
        return "Session plan written."

    def read_session_plan(self, context: ToolContext) -> str:
        """Return the session's plan."""
        return _read_session_plan(context)

    def exit_plan_mode(self, context: ToolContext) -> str:
        """Say that planning is done; returns the plan to be carried out."""
        return f"Planning is done. Carry out this plan:\n\n{_read_session_plan(context)}"


def _session_path(context: ToolContext) -> Path:
    return context.data_dir / "session_plans" / f"{safe_name(context.session_id)}.md"


def _read_session_plan(context: ToolContext) -> str:
    try:
        return _session_path(context).read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        raise ToolError("this session has no plan yet; write one with write_session_plan") from None
