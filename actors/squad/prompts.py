"""What planner and workers are told. Pure text building; nothing here decides what happens."""

from __future__ import annotations

from collections.abc import Sequence

from actors.squad.state import ExecutionState
from actors.squad.values import Agent, BudgetConfig, Directive, PlanTask, Squad

RESULT_LIMIT = 24_000
"""Characters of one dependency's result that a worker is shown."""
MEMORY_LIMIT = 12_000
"""Characters of an agent's memory that it is shown, the newest."""


def worker_instruction(agent: Agent, squad_name: str) -> str:
    """Return a worker's system prompt."""
    return _joined(
        agent.system_prompt,
        agent.instructions,
        f"You are {agent.name}, an agent of the squad {squad_name!r}. You are given one task of a plan "
        "that others work on as well. Do this task only. Answer with the task's whole result as text: it is what the "
        "tasks that build on yours are shown. Files you write are seen by others, too; name them in your answer.",
    )


def worker_prompt(state: ExecutionState, task: PlanTask, directives: Sequence[Directive], memory: str) -> str:
    """Return a task's first message: the request, the task, what it builds on, directives and memory."""
    run = state.runs[task.id]
    parts = [
        _section("The request the squad works on", state.request),
        _section(
            "Your task",
            f"{task.title}\n\n{task.description}" if task.description != task.title else task.title,
        ),
    ]
    if task.depends_on:
        results = "\n\n".join(_result_of(state, needed) for needed in task.depends_on)
        parts.append(_section("Results of the tasks yours builds on", results))
    if directives:
        listed = "\n".join(f"- {directive.message}" for directive in directives)
        parts.append(_section("Directives of the operator, which come before everything else", listed))
    if memory.strip():
        parts.append(_section("Your memory", memory.strip()[-MEMORY_LIMIT:]))
    if run.effects:
        listed = "\n".join(f"- {effect}" for effect in run.effects)
        parts.append(
            _section(
                "An earlier attempt was broken off after it had begun these; look before you repeat any of them",
                listed,
            )
        )
    return "\n\n".join(parts)


def planner_instruction(planner: Agent, squad: Squad, budget: BudgetConfig) -> str:
    """Return the planner's system prompt."""
    team = "\n".join(
        f"- {agent.name} (id {agent.id}, role {agent.role.value or agent.role.type})"
        + (f": {agent.description}" if agent.description else "")
        for agent in squad.agents
        if agent is not planner or len(squad.agents) == 1
    )
    return _joined(
        planner.system_prompt,
        planner.instructions,
        f"You are the planner of the squad {squad.name!r}. Split the request into tasks for the team; do not do the "
        "work yourself. Call create_task once for each task: a title, a description that says all its worker needs to "
        "know, the agent it is for, and the ids of the tasks whose results it needs. Tasks that do not depend on each "
        f"other run at the same time. Make no more than {budget.max_tasks_per_plan} tasks, and none twice. When all "
        'are made, answer with one line. Without tools, answer with JSON instead: {"tasks": [{"id": "t1", "title": '
        '"...", "description": "...", "assignedTo": "<agent id>", "dependsOn": [], "priority": "medium"}]}.',
        f"The team:\n{team}",
    )


def planner_prompt(request: str, feedback: Sequence[str], last: Sequence[PlanTask]) -> str:
    """Return the planner's first message; with feedback, also the plan it is about."""
    parts = [_section("The request", request)]
    if feedback:
        listed = "\n".join(f"- {task.title}: {task.description}" for task in last)
        parts.append(_section("Your last plan, which was refused", listed))
        parts.append(_section("What the operator says to it", "\n".join(f"- {text}" for text in feedback)))
    return "\n\n".join(parts)


REPAIR_PROMPT = (
    "No task could be read from that. Call create_task for each task, or answer with nothing but one JSON object: "
    '{"tasks": [{"id": "t1", "title": "...", "description": "...", "assignedTo": "<agent id>", "dependsOn": []}]}.'
)


def aggregator_instruction(planner: Agent, squad: Squad) -> str:
    """Return the system prompt for putting the results together."""
    return _joined(
        planner.system_prompt,
        planner.instructions,
        f"You are the planner of the squad {squad.name!r}. Its agents have finished the tasks of your plan. Put their "
        "results together into one complete answer to the request. Leave nothing out that the request asks for, say "
        "plainly what failed or was skipped, and add nothing that no result supports.",
    )


def aggregator_prompt(state: ExecutionState) -> str:
    """Return the aggregator's first message: the request and every task with its result."""
    results = "\n\n".join(_result_of(state, task_id) for task_id in state.tasks)
    parts = [_section("The request", state.request), _section("The tasks and their results", results)]
    listed = "\n".join(
        f"- {each.message}" for each in state.directives.values() if each.scope.type == "execution"
    )
    if listed:
        parts.append(_section("Directives of the operator", listed))
    return "\n\n".join(parts)


def plain_result(state: ExecutionState) -> str:
    """Return the result that needs no model: counts, a line for each task, and the outputs."""
    counts = state.counts()
    lines = [
        f"{counts.completed} of {counts.total} tasks completed in {len(state.waves)} waves"
        f" ({counts.failed} failed, {counts.skipped} skipped).",
        "",
    ]
    for task in state.tasks.values():
        mark = {"done": "✅", "failed": "❌"}.get(task.status, "⏭")
        lines.append(f"{mark} {task.title} ({agent_name(state, task.assigned_to)})" + _because(task))
    outputs = [task for task in state.tasks.values() if task.result]
    for task in outputs:
        lines += ["", f"## {task.title}", "", task.result or ""]
    return "\n".join(lines)


def agent_name(state: ExecutionState, agent_id: str) -> str:
    """Return an agent's name, or its id when it is not known."""
    agent = state.agents.get(agent_id)
    return agent.name if agent is not None else agent_id


def _result_of(state: ExecutionState, task_id: str) -> str:
    task = state.tasks[task_id]
    heading = f"## {task.title} ({agent_name(state, task.assigned_to)})"
    if task.status == "done":
        body = task.result or "(done; it left no text)"
        if len(body) > RESULT_LIMIT:
            body = body[:RESULT_LIMIT] + f"\n(cut off; {len(task.result or '')} characters in all)"
        files = state.runs[task_id].artifacts
        return f"{heading}\n{body}" + (f"\nFiles written: {', '.join(files)}" if files else "")
    if state.runs[task_id].skipped == "operator":
        return f"{heading}\n(skipped by the operator; there is no output)"
    return f"{heading}\n({task.status}: {task.error or 'no output'})"


def _because(task: PlanTask) -> str:
    return f": {task.error}" if task.error else ""


def _section(heading: str, text: str) -> str:
    return f"# {heading}\n\n{text}"


def _joined(*parts: str) -> str:
    return "\n\n".join(part.strip() for part in parts if part.strip())
