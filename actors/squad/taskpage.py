"""A task as the page of its workspace that people read: header, description and what happened to it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from actors.squad.values import Task

PROGRESS = "## Progress"
KEPT = 200
"""Lines of progress on a page."""


def page(task: Task, agents: Mapping[str, str], progress: Sequence[str]) -> str:
    """Return a task's page as markdown.

    Args:
        task: The task.
        agents: Names by id.
        progress: The lines of its progress, oldest first.
    """
    assignee = agents.get(task.assigned_to or "", task.assigned_to or "nobody")
    lines = [
        f"# {' '.join(task.title.split())}",
        "",
        f"- Id: {task.id}",
        f"- Status: {task.status}",
        f"- Priority: {task.priority}",
        f"- Assigned to: {assignee}",
        f"- Depends on: {', '.join(task.depends_on) or 'nothing'}",
        f"- Retries: {task.retry_count} of {task.max_retries}",
        "",
        "## Description",
        "",
        _below_headings(task.description),
    ]
    if task.result:
        lines += ["", "## Result", "", _below_headings(task.result)]
    if task.error:
        lines += ["", "## Error", "", _below_headings(task.error)]
    return "\n".join([*lines, "", PROGRESS, "", *progress, ""])


def with_progress(text: str, before: Task | None, after: Task, now: str) -> list[str]:
    """Return the progress on a page with what has just happened to its task.

    Args:
        text: The page so far; empty when there is none.
        before: The task as it was; nothing when it is new.
        after: As it is now.
        now: The time.
    """
    _, _, tail = text.rpartition(f"\n{PROGRESS}\n")
    lines = [line for line in tail.splitlines() if line.startswith("- ")] if text else []
    if before is None:
        lines.append(f"- {now} created, {after.status}")
    elif before.status != after.status:
        lines.append(f"- {now} {before.status} → {after.status}")
    return lines[-KEPT:]


def _below_headings(text: str) -> str:
    """Return a text in which no line is taken for a heading of the page."""
    return "\n".join(f"\\{line}" if line.startswith("#") else line for line in text.split("\n"))
