"""Planning and putting together: what the planner agent is asked, its tools, and what is made of its answers.

A planner that fails, or whose answer holds no task even after one more question, is replaced by a plan that needs
none; why is kept.
"""

# ruff: noqa: D417 - docstrings of tools are written for models, who do not see the context

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from actors.agent.host import RunFacts
from actors.agent.toolbox import ToolsetSpec
from actors.kernel.gate import Gate
from actors.models.provider import ToolCall
from actors.squad import prompts
from actors.squad.lineup import Bench, Count
from actors.squad.plan import Draft, fallback, repair
from actors.squad.plantext import read_drafts
from actors.squad.purse import Account, Purse
from actors.squad.state import ExecutionState
from actors.squad.values import BudgetConfig, PlanTask, Squad
from actors.squad.worker import Answer, Unwatched, WorkerHost, work
from actors.tools.builtin.toolset import WRITES, Builtin
from actors.tools.policy import Rules
from actors.tools.tool import ToolContext, ToolError

SHOWN = 500
"""Characters of a useless answer that the reason quotes."""


@dataclass(frozen=True)
class Planned:
    """Tasks for a plan. ``degraded`` says why they are not the planner's; ``notes`` what was repaired."""

    tasks: tuple[PlanTask, ...]
    degraded: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Desk:
    """What planning and aggregating are done with.

    Attributes:
        bench: Builds the planner.
        purse: Pays for it.
        count: Records what was paid.
        facts: Ids and directories.
        gate: Looked at before each model call.
    """

    bench: Bench
    purse: Purse
    count: Count
    facts: RunFacts
    gate: Gate


class PlanningTools(Builtin):
    """The planner's tools; what they made is in ``drafts``.

    Args:
        limit: How many tasks a plan may have.
        calls: Every tool call of the conversation so far, in order. Calls of one message run in any order, but their
            tasks are numbered as they were written.
    """

    name = "planning"

    def __init__(self, limit: int, calls: Sequence[ToolCall]) -> None:
        super().__init__()
        self._limit = limit
        self._calls = calls
        self._drafts: dict[str, Draft] = {}
        self.offer(self.create_task, WRITES, inline=True)
        self.offer(self.update_plan, WRITES, inline=True)

    @property
    def drafts(self) -> list[Draft]:
        """What was made, in order."""
        return sorted(self._drafts.values(), key=lambda draft: int(draft.id[1:]))

    def create_task(
        self,
        title: str,
        context: ToolContext,
        description: str = "",
        assigned_to: str = "",
        depends_on: list[str] | str | None = None,
        priority: str = "medium",
    ) -> str:
        """Add a task to the plan; returns its id.

        Args:
            title: A few words.
            description: All that its worker needs to know.
            assigned_to: The id or name of the agent who does it.
            depends_on: The ids of the tasks whose results it needs.
            priority: low, medium, high or critical.
        """
        if len(self._drafts) >= self._limit:
            raise ToolError(f"the plan has {self._limit} tasks, and may not have more")
        if not title.strip():
            raise ToolError("title must not be blank")
        draft = Draft(
            id=self._id_for(context.call_id),
            title=title.strip(),
            description=description.strip(),
            agent=assigned_to,
            depends_on=_names(depends_on),
            priority=priority,
        )
        self._drafts[draft.id] = draft
        return f"Created task {draft.id}."

    def update_plan(
        self,
        task_id: str,
        title: str | None = None,
        description: str | None = None,
        assigned_to: str | None = None,
        depends_on: list[str] | str | None = None,
        remove: bool = False,
    ) -> str:
        """Change a task of the plan, or take it out; what is left out stays as it is.

        Args:
            task_id: The task's id.
            title: A few words.
            description: All that its worker needs to know.
            assigned_to: The id or name of the agent who does it.
            depends_on: The ids of the tasks whose results it needs.
            remove: Take the task out of the plan.
        """
        draft = self._drafts.get(task_id)
        if draft is None:
            raise ToolError(f"there is no task {task_id!r}; the plan has {', '.join(self._drafts) or 'none'}")
        if remove:
            del self._drafts[task_id]
            return f"Removed task {task_id}."
        given = {"title": title, "description": description, "agent": assigned_to}
        changes: dict[str, object] = {name: value for name, value in given.items() if value is not None}
        if depends_on is not None:
            changes["depends_on"] = _names(depends_on)
        self._drafts[task_id] = msgspec.structs.replace(draft, **changes)
        return f"Changed task {task_id}."

    def _id_for(self, call_id: str) -> str:
        made = [call.id for call in self._calls if call.name == "create_task"]
        return f"t{made.index(call_id) + 1 if call_id in made else len(made) + len(self._drafts) + 1}"


class ResultTools(Builtin):
    """The planner's tools while it puts the results together: prompts quote long results only in part.

    Args:
        state: The execution; read only.
    """

    name = "results"

    def __init__(self, state: ExecutionState) -> None:
        super().__init__()
        self._state = state
        self.offer(self.check_task_status, inline=True)
        self.offer(self.read_task_result, inline=True)

    def check_task_status(self) -> str:
        """List all tasks with their ids, who did them and how they ended."""
        state = self._state
        return "\n".join(
            f"{task.id}: {task.title} ({prompts.agent_name(state, task.assigned_to)}): {task.status}"
            + (f", {task.error}" if task.error else "")
            for task in state.tasks.values()
        )

    def read_task_result(self, task_id: str, offset: int = 0) -> str:
        """Read a task's result from a character on.

        Args:
            task_id: The task's id.
            offset: Where to begin.
        """
        task = self._state.tasks.get(task_id)
        if task is None:
            raise ToolError(f"there is no task {task_id!r}")
        text = task.result or ""
        part = text[max(offset, 0) : max(offset, 0) + prompts.RESULT_LIMIT]
        more = len(text) - max(offset, 0) - len(part)
        return part + (f"\n({more} more characters)" if more > 0 else "") or "(no result)"


async def make_tasks(
    desk: Desk, state: ExecutionState, squad: Squad, budget: BudgetConfig, new_id: Callable[[], str]
) -> Planned:
    """Return the tasks for the state's request, by the planner or without it.

    Cancellation: nothing is left behind.
    """
    planner = squad.planner
    if planner is None:
        return _without(state, squad, budget, new_id, "the squad has no planner agent")
    account = Account(planner.id)
    host = WorkerHost(desk.facts, Rules(), Unwatched())
    tools = PlanningTools(budget.max_tasks_per_plan, host.calls)
    last = tuple(state.tasks.values()) if state.feedback else ()
    answer = await work(
        lambda: desk.bench.team(
            planner,
            instruction=prompts.planner_instruction(planner, squad, budget),
            limits=budget,
            purse=desk.purse,
            account=account,
            count=desk.count,
            toolsets=[ToolsetSpec("planning", lambda: tools)],
        ),
        host,
        desk.gate,
        account,
        prompt=prompts.planner_prompt(state.request, state.feedback, last),
        seconds=budget.task_timeout_secs,
        again=lambda text: "" if tools.drafts or read_drafts(text) else prompts.REPAIR_PROMPT,
    )
    # What was read of a failed call may be half a plan; the limit of calls leaves a whole one.
    drafts = (
        (tools.drafts or read_drafts(answer.text)) if answer.ok or answer.reason == "max_iterations" else []
    )
    if not drafts:
        return _without(state, squad, budget, new_id, _why_no_plan(answer))
    repaired = repair(drafts, squad, limit=budget.max_tasks_per_plan, new_id=new_id)
    return Planned(repaired.tasks, notes=repaired.notes)


async def put_together(desk: Desk, state: ExecutionState, squad: Squad) -> str:
    """Return the execution's result: the planner's, or when it cannot, one made by counting and quoting."""
    planner = squad.planner
    plain = prompts.plain_result(state)
    if planner is None or state.degraded is not None or not state.counts().completed:
        return plain
    account = Account(planner.id)
    host = WorkerHost(desk.facts, Rules(), Unwatched())
    answer = await work(
        lambda: desk.bench.team(
            planner,
            instruction=prompts.aggregator_instruction(planner, squad),
            limits=state.budget,
            purse=desk.purse,
            account=account,
            count=desk.count,
            toolsets=[ToolsetSpec("results", lambda: ResultTools(state))],
        ),
        host,
        desk.gate,
        account,
        prompt=prompts.aggregator_prompt(state),
        seconds=state.budget.task_timeout_secs,
    )
    return answer.text if answer.ok and answer.text.strip() else plain


def _without(
    state: ExecutionState, squad: Squad, budget: BudgetConfig, new_id: Callable[[], str], reason: str
) -> Planned:
    tasks = fallback(state.request, squad, limit=budget.max_tasks_per_plan, new_id=new_id)
    return Planned(tasks, degraded=reason)


def _why_no_plan(answer: Answer) -> str:
    if not answer.ok:
        return f"the planner failed: {answer.error}"
    if not answer.text.strip():
        return "the planner's reply was empty"
    return f"the planner's reply held no task: {answer.text.strip()[:SHOWN]!r}"


def _names(given: list[str] | str | None) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, str):
        return tuple(part.strip() for part in given.split(",") if part.strip())
    return tuple(given)
