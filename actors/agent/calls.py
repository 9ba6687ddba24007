"""The tool calls of one step: permitted in order, run side by side, their results recorded in request order.

Every call gets exactly one result whatever happens to it or to its siblings (rules L10, L11, L12); when the run is
cancelled in between, ``closing`` gives the missing ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import trio

from actors.agent import messages as ev
from actors.agent.closing import tool_message
from actors.agent.context import OpenStep, RunContext
from actors.agent.permission import Permit, Refusal, permit
from actors.agent.redact import redact_json
from actors.errors import ActorsError
from actors.models.provider import ToolCall
from actors.tools import policy
from actors.tools.execute import error_result, parse_arguments, run_call
from actors.tools.schema import check_arguments
from actors.tools.text import OUTPUT_LIMIT, clean_text
from actors.tools.tool import Definition, Elicitation, ElicitationReply, Tool, ToolContext, ToolResult

JSON = Any
MAX_PARALLEL = 16
"""Tools of one step that run at the same time."""
CUT_OFF = (
    "The tool call was not run: the answer reached the output limit before the call was complete. "
    "Make the call again, shorter or in several parts."
)
SIBLING_CANCELED = (
    "The tool call was canceled because another tool call in the same batch was canceled by the user."
)


class Batch:
    """The calls of one assistant message.

    Args:
        ctx: The run.
        calls: In request order, with ids of their own.
        tools: What the agent may call.
        cut_off: The message hit the output limit: nothing runs, the model is told (D05-04).

        resumed: The step they belong to, when it goes on after a restart.

    Attributes:
        terminal: A tool that ends the run succeeded.
        stop: A hook asked to end the run; its reason.
    """

    def __init__(
        self,
        ctx: RunContext,
        calls: Sequence[ToolCall],
        tools: Mapping[str, Tool],
        *,
        cut_off: bool = False,
        resumed: OpenStep | None = None,
    ) -> None:
        self._ctx = ctx
        self._calls = calls
        self._tools = tools
        self._cut_off = cut_off
        self._known: Mapping[str, ev.ToolReturned] = {} if resumed is None else resumed.known
        self._announced = frozenset[str]() if resumed is None else resumed.announced
        self._decided = [trio.Event() for _ in calls]
        self._returned: list[ev.ToolReturned | None] = [None] * len(calls)
        self._recorded = 0
        self._running = trio.CapacityLimiter(MAX_PARALLEL)
        self._canceled = False
        self.terminal = False
        self.stop = ""

    async def run(self) -> None:
        """Run all calls; on return every result is in the history.

        Cancellation: running tools are cancelled; results that are not recorded yet are the owner's to add.
        """
        if len(self._calls) == 1:
            await self._one(0)
            return
        async with trio.open_nursery() as nursery:
            for index in range(len(self._calls)):
                nursery.start_soon(self._one, index)

    async def _one(self, index: int) -> None:
        call = self._calls[index]
        if (known := self._known.get(call.id)) is not None:
            self._decided[index].set()
            await self._record(index, known)
            return
        tool = self._tools.get(call.name)
        definition = Definition(call.name) if tool is None else tool.definition
        refusal: ev.ToolReturned | None = None
        arguments: Mapping[str, JSON] = {}
        if self._cut_off:
            refusal = self._refused(call, definition, CUT_OFF, "failed")
        elif tool is None:
            refusal = self._refused(call, definition, policy.unavailable(call.name), "unknown")
        else:
            try:
                arguments = self._arguments(call, definition)
            except ActorsError as error:
                refusal = self._refused(call, definition, error_result(error.message).output, "failed")
        if refusal is None and tool is not None:
            answer = await permit(self._ctx, call, definition, arguments, lambda: self._my_turn(index))
            if isinstance(answer, Refusal):
                refusal = self._refusal(call, definition, answer)
            else:
                self._decided[index].set()
                await self._run_permitted(index, call, tool, answer)
                return
        self._decided[index].set()
        assert refusal is not None
        await self._record(index, refusal)

    def _arguments(self, call: ToolCall, definition: Definition) -> dict[str, JSON]:
        """Return what the tool would get. Raises: ActorsError when the model wrote something else."""
        arguments = parse_arguments(call.arguments)
        spec = self._ctx.spec
        if spec.add_description_parameter and "description" not in (
            definition.parameters.get("properties") or {}
        ):
            arguments.pop("description", None)
        if not definition.lenient:
            arguments = check_arguments(definition.parameters, arguments)
        return redact_json(arguments) if spec.redact_secrets else arguments

    async def _my_turn(self, index: int) -> None:
        for earlier in self._decided[:index]:
            await earlier.wait()

    def _refusal(self, call: ToolCall, definition: Definition, refusal: Refusal) -> ev.ToolReturned:
        text = refusal.text
        if refusal.outcome == "cancelled":
            text = SIBLING_CANCELED if self._canceled else text
            self._canceled = True
        return self._refused(call, definition, text, refusal.outcome)

    def _refused(self, call: ToolCall, definition: Definition, text: str, outcome: Any) -> ev.ToolReturned:
        return ev.ToolReturned(
            agent=self._ctx.agent,
            call_id=call.id,
            definition=definition,
            output=text,
            is_error=True,
            outcome=outcome,
        )

    async def _run_permitted(self, index: int, call: ToolCall, tool: Tool, permitted: Permit) -> None:
        ctx = self._ctx
        arguments = permitted.arguments
        async with self._running:
            await ctx.host.commit(
                ev.ToolStarted(agent=ctx.agent, call=_as_run(call, arguments), definition=tool.definition)
            )
            context = tool_context(ctx, call, tool.definition)
            result = await run_call(tool, call.id, arguments, context, OUTPUT_LIMIT)
        result = await self._after_hooks(call, arguments, result)
        output = ctx.scrub(result.output)
        if result.terminal and not result.is_error:
            self.terminal = True
        await self._record(
            index,
            ev.ToolReturned(
                agent=ctx.agent,
                call_id=call.id,
                definition=tool.definition,
                output=output,
                is_error=result.is_error,
                outcome="failed" if result.is_error else "done",
                media=result.media,
                structured=result.structured,
                meta=result.meta,
            ),
        )

    async def _after_hooks(
        self, call: ToolCall, arguments: Mapping[str, JSON], result: ToolResult
    ) -> ToolResult:
        for event in ("tool_response_transform", "post_tool_use"):
            if not self._ctx.has_hooks(event, call.name):
                continue
            hooked = await self._ctx.hook(
                event,
                {
                    "tool_name": call.name,
                    "tool_use_id": call.id,
                    "tool_input": arguments,
                    "tool_response": result.output,
                    "is_error": result.is_error,
                },
                tool=call.name,
            )
            output = result.output if hooked.output is None else hooked.output
            if hooked.context:
                output = f"{output}\n\n{hooked.context}"
            result = msgspec.structs.replace(result, output=output)
            if hooked.stop or hooked.blocked:
                self.stop = hooked.message or f"a {event} hook ended the run"
        return result

    async def _record(self, index: int, returned: ev.ToolReturned) -> None:
        """Record a call's end now, and every result whose turn in the request order has come."""
        self._returned[index] = returned
        ready: list[ev.ToolMessageAdded] = []
        while self._recorded < len(self._returned) and (done := self._returned[self._recorded]) is not None:
            ready.append(tool_message(done, self._ctx.host.new_message_id()))
            self._recorded += 1
        news = () if returned.call_id in self._announced else (returned,)
        await self._ctx.host.commit(*news, *ready)


def tool_context(ctx: RunContext, call: ToolCall, definition: Definition) -> ToolContext:
    """Return what the call may know and touch."""
    facts, agent, host = ctx.host.facts, ctx.agent, ctx.host

    def emit_output(text: str) -> None:
        host.emit(
            ev.ToolOutput(
                agent=agent, call_id=call.id, definition=definition, text=clean_text(ctx.scrub(text))
            )
        )

    async def elicit(question: Elicitation) -> ElicitationReply:
        await ctx.hook("on_user_input", {"message": question.message})
        return await host.elicit(agent, call.id, question)

    return ToolContext(
        session_id=facts.session_id,
        agent=agent,
        call_id=call.id,
        working_dir=facts.working_dir,
        data_dir=facts.data_dir,
        headers=facts.headers,
        env=facts.env,
        emit_output=emit_output,
        elicit=elicit,
    )


def _as_run(call: ToolCall, arguments: Mapping[str, JSON]) -> ToolCall:
    return msgspec.structs.replace(call, arguments=msgspec.json.encode(arguments).decode())
