"""Working with other agents of the team: transfer_task, handoff, and the task_complete tool of autopilot.

These tools exist because of the agent's position in the team, not because of a toolset; they act on the run itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from actors.agent.context import RunContext, RunOptions, RunResult
from actors.agent.host import RunHost
from actors.agent.messages import (
    AgentSwitched,
    RunStarted,
    TaskCompleted,
    TeamAnnounced,
    ToolsAnnounced,
    UserMessageAdded,
)
from actors.tools.tool import Annotations, Definition, Tool, ToolContext, ToolError, ToolResult

JSON = Any
MAX_DEPTH = 10
KICK_OFF = "Please proceed."
TASK_TITLE = "Transferred task"
_READ_ONLY = Annotations(read_only_hint=True)


def tools(ctx: RunContext) -> dict[str, Tool]:
    """Return the tools that the agent at work has by its position."""
    found: list[Tool] = []
    if ctx.spec.sub_agents:
        found.append(TransferTask(ctx))
    if ctx.spec.handoffs and not ctx.options.pinned:
        found.append(Handoff(ctx))
    if ctx.options.autopilot is not None:
        found.append(TaskComplete(ctx))
    return {tool.definition.name: tool for tool in found}


def handed_over(agent: str) -> str:
    """Return what the new agent is told after a handoff."""
    return (
        f"The conversation was handed over to you, {agent}. Read it and go on with what the user asked; "
        "the earlier answers are those of another agent."
    )


def task_prompt(task: str, expected_output: str) -> str:
    """Return the system text of a delegated task."""
    parts = [
        "You are a member of a team of AI agents. Your goal is to complete the following task:",
        f"<task>\n{task}\n</task>",
    ]
    if expected_output:
        parts.append(f"<expected_output>\n{expected_output}\n</expected_output>")
    return "\n\n".join(parts)


class TransferTask:
    """Give a task to a sub-agent and wait for its answer."""

    def __init__(self, ctx: RunContext) -> None:
        self._ctx = ctx
        # No enum: a wrong name gets the contract's own text from check_target.
        agents = ", ".join(ctx.spec.sub_agents)
        self.definition = Definition(
            "transfer_task",
            "Hand a task to another agent of your team and wait for its answer. It sees only what you write here.",
            {
                "type": "object",
                "properties": {
                    "agent": {"type": "string", "description": f"One of: {agents}."},
                    "task": {
                        "type": "string",
                        "description": "What the agent is to do, with all it must know.",
                    },
                    "expected_output": {"type": "string", "description": "What the answer should look like."},
                },
                "required": ["agent", "task", "expected_output"],
            },
            category="transfer",
            annotations=_READ_ONLY,
        )

    async def run(self, arguments: Mapping[str, JSON], context: ToolContext) -> ToolResult:
        """Run the sub-agent in a sub-session. Raises: ToolError when it may not or did not answer."""
        del context
        agent, task = text_of(arguments, "agent"), text_of(arguments, "task")
        result = await transfer(self._ctx, agent, task, text_of(arguments, "expected_output"))
        if result.reason in ("error", "loop_detected", "hook_blocked", "budget_exceeded"):
            raise ToolError(result.error or f"agent {agent} ended with reason {result.reason}")
        return ToolResult(result.text)


async def transfer(ctx: RunContext, agent: str, task: str, expected_output: str) -> RunResult:
    """Run ``agent`` on a task in a sub-session of its own and return how it ended.

    Raises:
        ToolError: the agent may not be asked, or is already waiting for this one.

    Cancellation: the sub-agent's run is cancelled with everything below it (D03-02).
    """
    chain = check_target(ctx, agent)
    host = ctx.host
    await ctx.hook("on_agent_switch", {"from_agent": ctx.agent, "to_agent": agent})
    if not ctx.options.pinned:
        host.emit(AgentSwitched(agent=ctx.agent, switching=True, from_agent=ctx.agent, to_agent=agent))
    child = await host.open_child(agent, TASK_TITLE)
    result = await run_delegated(ctx, child, agent, task, expected_output, chain)
    await host.close_child(child)
    if not ctx.options.pinned:
        host.emit(AgentSwitched(agent=ctx.agent, switching=False, from_agent=agent, to_agent=ctx.agent))
    await ctx.hook("subagent_stop", {"agent": agent, "reason": result.reason, "response": result.text})
    return result


def check_target(ctx: RunContext, agent: str) -> tuple[str, ...]:
    """Return the chain of waiting agents that a delegation to ``agent`` makes.

    Raises:
        ToolError: it is no sub-agent, it waits itself, or the chain would be too long.
    """
    if agent not in ctx.spec.sub_agents or agent not in ctx.team.agents:
        raise ToolError(
            f"Agent {ctx.agent} cannot transfer task to {agent}: target agent not in sub-agents list. "
            f"Available agent IDs are: {', '.join(ctx.spec.sub_agents)}"
        )
    chain = (*ctx.options.chain, ctx.agent)
    path = " -> ".join((*chain, agent))
    if agent in chain:
        raise ToolError(f"delegation cycle detected: {path}")
    if len(chain) > MAX_DEPTH:
        raise ToolError(f"delegation depth limit exceeded: {path}")
    return chain


async def run_delegated(
    ctx: RunContext,
    child: RunHost,
    agent: str,
    task: str,
    expected_output: str,
    chain: tuple[str, ...],
    *,
    pinned: bool = False,
) -> RunResult:
    """Begin a delegated conversation and run ``agent`` on it; the parent's history is not part of it."""
    system = task_prompt(task, expected_output)
    box = ctx.team.toolbox(agent)
    child.emit(TeamAnnounced(agent=agent, agents=ctx.team.listing(), current=agent))
    child.emit(ToolsAnnounced(agent=agent, available=len(box.tools()), loading=box.loading))
    await child.commit(
        UserMessageAdded(message_id=child.new_message_id(), role="system", content=system, implicit=True),
        UserMessageAdded(message_id=child.new_message_id(), content=KICK_OFF, implicit=True),
        RunStarted(agent=agent, run_id=child.facts.run_id),
    )
    options = RunOptions(system=system, chain=chain, pinned=pinned or ctx.options.pinned, meter=ctx.meter)
    return await ctx.run_child(child, ctx, agent, options)


class Handoff:
    """Give the conversation itself to another agent; it takes effect when the step is over."""

    def __init__(self, ctx: RunContext) -> None:
        self._ctx = ctx
        self.definition = Definition(
            "handoff",
            "Hand the whole conversation to another agent, who answers the user from now on.",
            {
                "type": "object",
                "properties": {
                    "agent": {"type": "string", "description": f"One of: {', '.join(ctx.spec.handoffs)}."}
                },
                "required": ["agent"],
            },
            category="handoff",
            annotations=_READ_ONLY,
        )

    async def run(self, arguments: Mapping[str, JSON], context: ToolContext) -> ToolResult:
        """Name the next agent. Raises: ToolError when it is not among the handoffs."""
        del context
        await trio.lowlevel.checkpoint()
        agent = text_of(arguments, "agent")
        if agent not in self._ctx.spec.handoffs or agent not in self._ctx.team.agents:
            raise ToolError(
                f"Agent {self._ctx.agent} cannot hand off to {agent}: target agent not in handoffs list. "
                f"Available agent IDs are: {', '.join(self._ctx.spec.handoffs)}"
            )
        self._ctx.handoff = agent
        return ToolResult(handed_over(agent))


class TaskComplete:
    """The model's word that the whole task is done; ends an autopilot run."""

    def __init__(self, ctx: RunContext) -> None:
        self._ctx = ctx
        self.definition = Definition(
            "task_complete",
            "Declare the whole task done. Do not call it while questions, errors or steps remain.",
            {
                "type": "object",
                "properties": {
                    "summary": {"type": "string", "description": "What was done."},
                    "success": {
                        "type": "boolean",
                        "description": "Whether the task succeeded; true by default.",
                    },
                },
            },
            category="autopilot",
            annotations=_READ_ONLY,
        )

    async def run(self, arguments: Mapping[str, JSON], context: ToolContext) -> ToolResult:
        """Record the completion and end the run."""
        del context
        summary = text_of(arguments, "summary")
        success = arguments.get("success", True) is not False
        await self._ctx.host.commit(TaskCompleted(agent=self._ctx.agent, summary=summary, success=success))
        return ToolResult(summary or "Task complete.", terminal=True)


def text_of(arguments: Mapping[str, JSON], name: str) -> str:
    """Return a text argument; empty when it is missing. Raises: ToolError when it is no text."""
    value = arguments.get(name, "")
    if not isinstance(value, str):
        raise ToolError(f"{name} must be a text")
    return value
