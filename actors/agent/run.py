"""The agent loop: gate, steering, compaction, one model call, its tool calls, and again until the model is done.

A run is everything one request causes; a step is one model call with the tool calls it asked for. The loop never
decides to stop on its own (L3): it ends when a step asks for no tool, a terminal tool succeeded, a limit was reached
or a call failed for good. It emits everything from ``RunStarted``'s successor to ``RunEnded``; when it is cancelled or
crashes, its owner records :func:`~actors.agent.closing.closing_events` instead.

Above the usual size, because the order of a step's parts is one story and the contract's reader follows it here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import trio

from actors.agent import background_tools, compaction, deferred, delegation
from actors.agent import messages as ev
from actors.agent.budget import Meter
from actors.agent.calls import Batch
from actors.agent.closing import closing_events
from actors.agent.context import OpenStep, RunContext, RunOptions, RunResult
from actors.agent.guard import LoopDetector
from actors.agent.host import Incoming, RunHost
from actors.agent.messages import RunReason
from actors.agent.opening import opening_events
from actors.agent.prompt import build_request, system_prompt, trimmed, with_description_parameter
from actors.agent.step import Answer, call_model, failed_event
from actors.agent.team import BoundModel, Team
from actors.agent.world import gather_world
from actors.errors import ActorsError
from actors.kernel.gate import Gate
from actors.models.provider import ToolCall
from actors.tools.tool import Definition, Tool

__all__ = ["Run", "closing_events", "opening_events", "run_agent"]

JSON = Any
MORE_ITERATIONS = 10
"""How many steps a person's approval adds at the iteration limit (sessions contract 1.8)."""
MAX_STOP_BLOCKS = 5
"""How often in a row stop hooks may send the model back to work."""
NUDGE = (
    "The task is not marked as complete yet. If you were planning, start doing it now; if something failed, try to "
    "resolve it; if a question is open, decide it yourself. Call task_complete only when every step is really done."
)


async def run_agent(
    host: RunHost, team: Team, agent: str, gate: Gate, *, options: RunOptions | None = None
) -> RunReason:
    """Run ``agent`` on the conversation of ``host`` until it is done, and record the run's end.

    The owner has recorded :func:`opening_events`; ``team`` is open (:func:`~actors.agent.team.open_team`).

    Args:
        host: The conversation's owner.
        team: The agents.
        agent: Who answers.
        gate: Looked at before each step; closed means pause.
        options: How the run differs from an ordinary one.

    Returns:
        The reason in ``RunEnded``. Failures of models and tools are reasons, not exceptions.

    Raises:
        JournalUnavailable: the owner could not record an event.

    Cancellation: nothing more is emitted; the owner records ``closing_events``.
    """
    return (await Run(host, team, agent, gate, options or RunOptions()).execute()).reason


class Run:
    """One run. Made for a single :meth:`execute`."""

    def __init__(self, host: RunHost, team: Team, agent: str, gate: Gate, options: RunOptions) -> None:
        spec = team.agents[agent]
        self._host = host
        self._team = team
        self._gate = gate
        self._ctx = ctx = RunContext(
            host=host,
            team=team,
            gate=gate,
            spec=spec,
            options=options,
            meter=options.meter or Meter(team.budgets_of(agent), trio.current_time()),
            run_child=_run_child,
        )
        self._limit = ctx.max_iterations
        self._iterations = 0
        self._detector = LoopDetector(ctx.max_identical_calls)
        self._loaded: set[str] = set()
        self._tools: Mapping[str, Tool] = {}
        self._text = ""
        self._error = ""
        self._next_model = ""
        self._nudges = 0
        self._stop_blocks = 0
        self._forced: set[str] = set()

    async def execute(self) -> RunResult:
        """Do the steps and record the end. See :func:`run_agent`."""
        reason = await self._steps()
        ctx = self._ctx
        await ctx.hook("session_end", {"reason": reason})
        await self._host.commit(
            ev.RunEnded(agent=ctx.agent, run_id=self._host.facts.run_id, reason=reason, detail=self._error)
        )
        return RunResult(reason, self._text, self._error)

    async def _steps(self) -> RunReason:
        ended = await self._begin()
        if ended is None and self._ctx.options.resumed is not None:
            await self._gate.wait_open()
            await self._load_tools()
            ended = await self._finish_step(self._ctx.options.resumed)
        while ended is None:
            await self._gate.wait_open()
            await self._load_tools()
            ended = await self._check_limits()
            if ended is None:
                await self._take_steering()
                await self._ctx.hook("turn_start", {"turn": self._ctx.steps + 1})
                ended = await self._step()
                await self._ctx.hook("turn_end", {"turn": self._ctx.steps, "reason": ended or ""})
        return ended

    async def _begin(self) -> RunReason | None:
        ctx = self._ctx
        ctx.world = await gather_world(ctx.spec, self._host.facts)
        if not ctx.spec.hooks:
            return None
        if ctx.options.resumed is not None:
            await ctx.hook("on_session_resume", {"source": "restart"})
            return None
        started = await ctx.hook("session_start", {"source": "run"})
        prompt = next((m.content for m in reversed(self._host.history()) if m.role == "user"), "")
        submitted = await ctx.hook("user_prompt_submit", {"prompt": prompt})
        for result in (started, submitted):
            if result.blocked or result.stop:
                return await self._fail(
                    result.message or "A hook blocked the run.", "hook_blocked", "hook_blocked"
                )
        ctx.instructed = "\n".join(text for text in (started.context, submitted.context) if text)
        return None

    async def _load_tools(self) -> None:
        ctx, host = self._ctx, self._host
        box = self._team.toolbox(ctx.agent)
        if ctx.agent not in self._loaded:
            self._loaded.add(ctx.agent)
            for key in ctx.spec.ignored:
                ctx.warn(f"agent {ctx.agent}: {key!r} has no effect here")
            if box.loading:
                host.emit(ev.ToolLoadingStarted(agent=ctx.agent))
                for warning in await box.start():
                    ctx.warn(warning)
                host.emit(ev.ToolLoadingFinished(agent=ctx.agent))
        self._tools = {
            **delegation.tools(ctx),
            **background_tools.tools(ctx),
            **deferred.tools(box),
            **box.tools(),
        }
        host.emit(ev.ToolsAnnounced(agent=ctx.agent, available=len(self._tools)))

    async def _check_limits(self) -> RunReason | None:
        ctx, host = self._ctx, self._host
        if 0 < self._limit <= self._iterations:
            await ctx.hook("on_max_iterations", {"max_iterations": self._limit})
            allowed = host.policy().interactive and await host.continue_past_limit(ctx.agent, self._limit)
            if not allowed:
                text = (
                    f"Execution stopped after reaching the configured max_iterations limit ({self._limit})."
                )
                await host.commit(
                    ev.AssistantMessageAdded(agent=ctx.agent, message_id=host.new_message_id(), content=text)
                )
                self._text = text
                return "max_iterations"
            self._limit = self._iterations + MORE_ITERATIONS
        exceeded = ctx.meter.exceeded(ctx.agent, ctx.now())
        if exceeded is not None:
            await host.commit(exceeded)
            self._error = exceeded.message
            return "budget_exceeded"
        return None

    async def _take_steering(self) -> bool:
        """Put waiting steering messages into the history; each but the last ends with a newline (contract 1.9)."""
        waiting = self._host.take_steering()
        if not waiting:
            return False
        *earlier, last = waiting
        joined = [*((message, message.content + "\n") for message in earlier), (last, last.content)]
        await self._host.commit(*(self._user(message, text, "steering") for message, text in joined))
        await self._ctx.hook("user_steering_messages_submit", {"prompts": [text for _, text in joined]})
        return True

    def _user(self, message: Incoming, text: str, delivery: ev.Delivery) -> ev.UserMessageAdded:
        return ev.UserMessageAdded(
            message_id=self._host.new_message_id(),
            content=text,
            parts=message.parts,
            delivery=delivery,
            client_id=message.client_id,
        )

    # --- one step ---------------------------------------------------------------------------------------------------

    async def _step(self) -> RunReason | None:
        ctx, host = self._ctx, self._host
        try:
            model = ctx.model(self._next_model)
        except ActorsError as error:
            return await self._fail(error.message, "model_error", "error")
        self._next_model = ""
        await compaction.compact_if_needed(ctx, model, self._definitions())
        self._iterations += 1
        ctx.steps += 1
        host.emit(
            ev.StepStarted(
                agent=ctx.agent,
                step=ctx.steps,
                model=model.info.ref,
                description=ctx.spec.description,
                welcome=ctx.spec.welcome,
                context_limit=model.info.context_limit,
            )
        )
        blocked = await ctx.hook("before_llm_call", {"step": ctx.steps, "model": model.info.ref})
        if blocked.blocked or blocked.stop:
            host.emit(ev.StepEnded(agent=ctx.agent, step=ctx.steps, model=model.info.ref))
            return await self._fail(
                blocked.message or "A hook blocked the model call.", "hook_blocked", "hook_blocked"
            )
        answer = await self._ask(model)
        ended = ev.StepEnded(agent=ctx.agent, step=ctx.steps, model=model.info.ref)
        ctx.meter.add(ctx.agent, answer.usage, answer.cost, answer.seconds)
        if answer.error is not None:
            return await self._model_failed(answer, ended)
        if not answer.calls:
            await self._record(answer, model, ended)
            return await self._answered(answer)
        await self._record(answer, model)
        batch = Batch(ctx, answer.calls, self._tools, cut_off=answer.finish == "length")
        await batch.run()
        host.emit(ended)
        return await self._after_calls(answer.calls, batch)

    async def _finish_step(self, open_step: OpenStep) -> RunReason | None:
        """Give the calls of a suspended step their results: what ended stays, what was decided is not asked again."""
        ctx = self._ctx
        self._iterations = ctx.steps = open_step.step
        if 0 < self._limit < self._iterations:
            self._limit = self._iterations + MORE_ITERATIONS
        batch = Batch(ctx, open_step.calls, self._tools, resumed=open_step)
        await batch.run()
        self._host.emit(ev.StepEnded(agent=ctx.agent, step=open_step.step, model=open_step.model))
        return await self._after_calls(open_step.calls, batch)

    async def _ask(self, model: BoundModel) -> Answer:
        """Make the step's model call; on an overflow compact once and try again within the same step (L8)."""
        answer = await self._call(model)
        overflow = answer.error is not None and answer.error.kind == "context_exceeded" and not answer.text
        if overflow and await compaction.compact(self._ctx, model, trigger="overflow"):
            answer = await self._call(model)
        return answer

    async def _call(self, model: BoundModel) -> Answer:
        ctx = self._ctx
        definitions = self._definitions()
        system = system_prompt(
            self._team,
            ctx.spec,
            ctx.world,
            self._team.toolbox(ctx.agent).instructions(),
            "\n\n".join(text for text in (ctx.options.system, ctx.instructed) if text),
        )
        messages = ctx.scrub_messages(trimmed(self._host.history(), ctx.trim))
        request = build_request(
            ctx.spec, model, ctx.scrub(system), messages, definitions, self._host.facts.headers
        )
        return await call_model(ctx, model, request, definitions)

    def _definitions(self) -> dict[str, Definition]:
        found = {name: tool.definition for name, tool in self._tools.items()}
        if self._ctx.spec.add_description_parameter:
            return {name: with_description_parameter(definition) for name, definition in found.items()}
        return found

    async def _record(self, answer: Answer, model: BoundModel, *after: ev.RunEvent) -> None:
        """Record the answer (nothing when it is empty), the usage and ``after`` in one write."""
        ctx, host = self._ctx, self._host
        events: list[ev.RunEvent] = []
        if answer.empty:
            refused = answer.finish in ("refusal", "content_filter")
            ctx.warn("The model refused to answer." if refused else "The model gave an empty answer.")
        else:
            definitions = {
                name: self._tools[name].definition
                for call in answer.calls
                if (name := call.name) in self._tools
            }
            events.append(
                ev.AssistantMessageAdded(
                    agent=ctx.agent,
                    message_id=host.new_message_id(),
                    content=answer.text,
                    reasoning=answer.reasoning,
                    reasoning_signature=answer.signature,
                    tool_calls=answer.calls,
                    definitions=tuple(definitions.values()),
                    finish=answer.finish,
                    usage=answer.usage,
                    model=answer.model,
                    cost=answer.cost,
                )
            )
            self._text = answer.text
        events.append(
            ev.UsageReported(
                agent=ctx.agent,
                context_tokens=answer.usage.context_tokens,
                output_tokens=answer.usage.output_tokens,
                context_limit=model.info.context_limit,
                cost=host.cost() + answer.cost,
                last=answer.usage,
                last_cost=answer.cost,
                model=answer.model,
                finish=answer.finish,
                compaction_threshold=ctx.spec.compaction.threshold,
            )
        )
        report = ctx.meter.report(ctx.agent, ctx.now())
        if report is not None:
            events.append(report)
        await host.commit(*events, *after)
        await ctx.hook("after_llm_call", {"response": answer.text, "cost": answer.cost})

    async def _model_failed(self, answer: Answer, ended: ev.StepEnded) -> RunReason:
        """Keep what was said before the failure, say why it failed, and end the run."""
        ctx = self._ctx
        assert answer.error is not None
        events: list[ev.RunEvent] = []
        if answer.text or answer.reasoning:
            events.append(
                ev.AssistantMessageAdded(
                    agent=ctx.agent,
                    message_id=self._host.new_message_id(),
                    content=answer.text,
                    reasoning=answer.reasoning,
                    finish="error",
                    usage=answer.usage,
                    model=answer.model,
                    cost=answer.cost,
                    interrupted=True,
                )
            )
        self._error = answer.error.message
        await self._host.commit(*events, failed_event(ctx.agent, answer.error), ended)
        await ctx.hook("on_error", {"error": answer.error.message})
        await ctx.hook("notification", {"level": "error", "message": answer.error.message})
        return "error"

    # --- what follows a step ----------------------------------------------------------------------------------------

    async def _after_calls(self, calls: Sequence[ToolCall], batch: Batch) -> RunReason | None:
        ctx = self._ctx
        if batch.terminal:
            return "terminal_tool"
        if batch.stop:
            return await self._fail(batch.stop, "hook_blocked", "hook_blocked")
        problem = self._detector.add(calls)
        if problem:
            return await self._fail(problem, "loop_detected", "loop_detected")
        self._next_model = self._team.toolbox(ctx.agent).model_after(call.name for call in calls)
        if ctx.handoff:
            self._next_model = ""
            await self._switch_to(ctx.handoff)
        return None

    async def _answered(self, answer: Answer) -> RunReason | None:
        """The model asked for no tool: end the run unless somebody has more to say."""
        ctx, host = self._ctx, self._host
        target = ctx.spec.force_handoff
        if target and target not in self._forced and not ctx.options.pinned:
            self._forced.add(target)
            await self._switch_to(target)
            await self._say(delegation.handed_over(target), implicit=True)
            return None
        if await self._take_steering():
            return None
        if ctx.has_hooks("stop") and self._stop_blocks < MAX_STOP_BLOCKS:
            stopped = await ctx.hook(
                "stop", {"stop_response": answer.text, "stop_hook_active": self._stop_blocks > 0}
            )
            if stopped.blocked:
                self._stop_blocks += 1
                await self._say(stopped.message or "Continue.")
                return None
        follow_up = host.take_follow_up()
        if follow_up is not None:
            await host.commit(self._user(follow_up, follow_up.content, "queued"))
            await ctx.hook("user_followup_submit", {"prompt": follow_up.content})
            self._stop_blocks = self._nudges = 0
            return None
        autopilot = ctx.options.autopilot
        if autopilot is not None and self._nudges < autopilot.max_continues:
            self._nudges += 1
            await self._say(NUDGE, autopilot=True)
            return None
        return "normal"

    async def _switch_to(self, agent: str) -> None:
        ctx = self._ctx
        ctx.handoff = ""
        await self._host.commit(ev.AgentHandedOff(agent=ctx.agent, to_agent=agent))
        await ctx.hook("on_agent_switch", {"from_agent": ctx.agent, "to_agent": agent})
        ctx.spec = self._team.agents[agent]
        ctx.world = await gather_world(ctx.spec, self._host.facts)
        self._detector = LoopDetector(ctx.max_identical_calls)

    async def _say(self, text: str, *, implicit: bool = True, autopilot: bool = False) -> None:
        """Put a message of the loop's own into the history, hidden from people."""
        await self._host.commit(
            ev.UserMessageAdded(
                message_id=self._host.new_message_id(), content=text, implicit=implicit, autopilot=autopilot
            )
        )

    async def _fail(self, error: str, code: str, reason: RunReason) -> RunReason:
        self._error = error
        await self._host.commit(ev.Failed(agent=self._ctx.agent, error=error, error_code=code))
        await self._ctx.hook("notification", {"level": "error", "message": error})
        return reason


async def _run_child(host: RunHost, parent: RunContext, agent: str, options: RunOptions) -> RunResult:
    return await Run(host, parent.team, agent, parent.gate, options).execute()
