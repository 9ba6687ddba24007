"""The tools of the ``background_agents`` toolset: start, list, view and stop agents that work in the background."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import trio

from actors.agent.background import BackgroundAgents, BackgroundTask
from actors.agent.context import RunContext
from actors.agent.delegation import check_target, text_of
from actors.tools.tool import Annotations, Definition, Tool, ToolContext, ToolResult

JSON = Any
_READ_ONLY = Annotations(read_only_hint=True)
_TASK_ID = {"task_id": {"type": "string", "description": "As run_background_agent returned it."}}


def tools(ctx: RunContext) -> dict[str, Tool]:
    """Return the toolset's tools when the agent has it and there is a place for background agents."""
    service = ctx.team.background
    if not ctx.spec.background_agents or service is None:
        return {}
    agents = {"agent": {"type": "string", "description": f"One of: {', '.join(ctx.spec.sub_agents)}."}}
    made = [
        _Tool(
            _definition(
                "run_background_agent",
                "Start another agent of your team on a task in the background; returns a task id at once.",
                {**agents, "task": {"type": "string"}, "expected_output": {"type": "string"}},
                ("agent", "task"),
                Annotations(),
            ),
            lambda arguments: _start(ctx, service, arguments),
        ),
        _Tool(
            _definition("list_background_agents", "List your background agents and their state.", {}),
            lambda _: _list(service.of(ctx.host.facts.session_id)),
        ),
        _Tool(
            _definition(
                "view_background_agent", "Show what a background agent has said.", _TASK_ID, ("task_id",)
            ),
            lambda arguments: _view(service.get(ctx.host.facts.session_id, text_of(arguments, "task_id"))),
        ),
        _Tool(
            _definition(
                "stop_background_agent", "Stop a background agent.", _TASK_ID, ("task_id",), Annotations()
            ),
            lambda arguments: _stop(ctx, service, text_of(arguments, "task_id")),
        ),
    ]
    return {tool.definition.name: tool for tool in made}


class _Tool:
    """A tool that answers at once."""

    def __init__(self, definition: Definition, answer: Callable[[Mapping[str, JSON]], str]) -> None:
        self.definition = definition
        self._answer = answer

    async def run(self, arguments: Mapping[str, JSON], context: ToolContext) -> ToolResult:
        """Answer. Raises: ToolError, NotFound, Overloaded: told to the model."""
        del context
        await trio.lowlevel.checkpoint()
        return ToolResult(self._answer(arguments))


def _definition(
    name: str,
    description: str,
    properties: Mapping[str, JSON],
    required: Sequence[str] = (),
    annotations: Annotations = _READ_ONLY,
) -> Definition:
    parameters = {"type": "object", "properties": dict(properties), "required": list(required)}
    return Definition(name, description, parameters, category="background_agents", annotations=annotations)


def _start(ctx: RunContext, service: BackgroundAgents, arguments: Mapping[str, JSON]) -> str:
    agent = text_of(arguments, "agent")
    chain = check_target(ctx, agent)
    task_id = service.start(
        ctx, agent, text_of(arguments, "task"), text_of(arguments, "expected_output"), chain
    )
    return f"Agent {agent} works on it in the background. Task id: {task_id}"


def _list(tasks: Sequence[BackgroundTask]) -> str:
    rows = [
        {
            "task_id": task.id,
            "agent": task.agent,
            "status": task.status,
            "task": task.task[:200],
            "seconds": round(trio.current_time() - task.started_at),
        }
        for task in tasks
    ]
    return msgspec.json.encode(rows).decode()


def _view(task: BackgroundTask) -> str:
    return f"Status: {task.status}\n\n{task.output()}"


def _stop(ctx: RunContext, service: BackgroundAgents, task_id: str) -> str:
    task = service.stop(ctx.host.facts.session_id, task_id)
    return (
        f"{task.id} is being stopped." if task.status == "running" else f"{task.id} had ended: {task.status}."
    )
