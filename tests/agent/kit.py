"""A team with a scripted model and a few tools, and one call that runs it to its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import trio

from actors.agent.context import RunOptions
from actors.agent.messages import RunReason
from actors.agent.run import run_agent
from actors.agent.team import AgentSpec, BoundModel, Team, open_team
from actors.agent.toolbox import ToolsetSpec
from actors.kernel.gate import Gate
from actors.models.provider import ModelInfo, Provider
from actors.testing.host import RecordingHost
from actors.testing.model import ScriptedModel
from actors.tools.policy import Rules
from actors.tools.tool import Annotations, Definition, Tool, ToolContext, ToolError, ToolResult

Run = Callable[[Mapping[str, Any], ToolContext], Awaitable[ToolResult]]
INFO = ModelInfo("scripted", "test", context_limit=100_000, input_cost=1.0, output_cost=2.0)


class FunctionTool:
    def __init__(self, name: str, run: Run, *, read_only: bool = True, required: Sequence[str] = ()) -> None:
        parameters: dict[str, Any] = {"type": "object", "properties": {}, "required": list(required)}
        self.definition = Definition(
            name, f"The {name} tool.", parameters, annotations=Annotations(read_only_hint=read_only)
        )
        self._run = run

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return await self._run(arguments, context)


async def _echo(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    await trio.lowlevel.checkpoint()
    return ToolResult(str(arguments.get("text", "")))


async def _slow(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    await trio.sleep(arguments.get("seconds", 1))
    return ToolResult(f"slept {arguments.get('seconds', 1)}")


async def _broken(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    await trio.lowlevel.checkpoint()
    raise ToolError("it does not work")


async def _finish(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    await trio.lowlevel.checkpoint()
    return ToolResult("finished", terminal=True, is_error=bool(arguments.get("fail")))


def standard_tools() -> list[Tool]:
    return [
        FunctionTool("echo", _echo),
        FunctionTool("slow", _slow),
        FunctionTool("broken", _broken),
        FunctionTool("finish", _finish),
        FunctionTool("write", _echo, read_only=False),
    ]


class ListToolset:
    def __init__(self, tools: Sequence[Tool], *, error: str = "", instruction: str = "") -> None:
        self.name = "tools"
        self.instruction = instruction
        self._tools = tools
        self.error = error
        self.starts = 0
        self.closes = 0

    async def start(self) -> None:
        await trio.lowlevel.checkpoint()
        self.starts += 1
        if self.error:
            raise ToolError(self.error)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        self.closes += 1

    def tools(self) -> Sequence[Tool]:
        return self._tools


class Binder:
    def __init__(self, models: Mapping[str, Provider], info: ModelInfo = INFO) -> None:
        self._models = models
        self._info = info

    def bind(self, agent: AgentSpec, ref: str) -> BoundModel:
        return BoundModel(provider=self._models[ref], info=self._info)


def agent(name: str = "root", tools: Sequence[Tool] | None = None, **fields: Any) -> AgentSpec:
    toolset = ListToolset(standard_tools() if tools is None else tools)
    fields.setdefault("toolsets", (ToolsetSpec("tools", lambda: toolset),))
    fields.setdefault("models", ("m",))
    return AgentSpec(name=name, **fields)


def team_of(
    model: ScriptedModel | Mapping[str, ScriptedModel],
    *agents: AgentSpec,
    rules: Rules | None = None,
    info: ModelInfo = INFO,
    **fields: Any,
) -> Team:
    models = {"m": model} if isinstance(model, ScriptedModel) else model
    return Team(agents or (agent(),), Binder(models, info), rules=rules, **fields)


async def run(
    host: RecordingHost,
    team: Team,
    *texts: str,
    gate: Gate | None = None,
    options: RunOptions | None = None,
    agent: str = "",
) -> RunReason:
    name = agent or team.default
    await host.begin(team, name, *(texts or ("Hello",)))
    async with open_team(team):
        return await run_agent(host, team, name, gate or Gate(), options=options)
