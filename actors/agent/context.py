"""What the parts of one run share: whose run it is, which agent is at work, and what it was started with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import trio

from actors.agent.budget import Meter
from actors.agent.hooks import HookResult, Hooks, HookSpec
from actors.agent.host import RunHost
from actors.agent.messages import RunReason, ToolReturned, Warned
from actors.agent.prompt import Trim, World
from actors.agent.redact import redact
from actors.agent.team import AgentSpec, BoundModel, Team
from actors.kernel.gate import Gate
from actors.models.provider import Completed, Message, ModelError, ModelRequest, ToolCall

JSON = Any


@dataclass(frozen=True, kw_only=True)
class Autopilot:
    """Keep the model going until it calls ``task_complete``, at most ``max_continues`` times."""

    max_continues: int = 5


@dataclass(frozen=True, kw_only=True)
class OpenStep:
    """The step in which a run was suspended, to be finished first.

    Attributes:
        step: Its number in the run.
        model: ``provider/model`` that asked for the calls.
        calls: Those whose results are not in the history, in request order.
        known: Ends of calls that must not run again, by call id.
        announced: Ids of those whose end the stream has already.
    """

    step: int
    model: str
    calls: tuple[ToolCall, ...]
    known: Mapping[str, ToolReturned] = field(default_factory=dict[str, ToolReturned])
    announced: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a run differs from an ordinary one.

    Attributes:
        system: Text added to the system prompt, such as a delegated task.
        chain: The agents that wait for this run, outermost first.
        pinned: The run may not change or show the session's current agent (background agents).
        autopilot: Nudge the model until it declares the task done.
        resumed: The step to finish first, of a run that was suspended.
        meter: The budgets' count of the run that delegated this one; a new one without it.
    """

    system: str = ""
    chain: tuple[str, ...] = ()
    pinned: bool = False
    autopilot: Autopilot | None = None
    meter: Meter | None = None
    resumed: OpenStep | None = None


@dataclass(frozen=True)
class RunResult:
    """How a run ended. ``text`` is the last answer; ``error`` is set with reason ``error`` and its kin."""

    reason: RunReason
    text: str = ""
    error: str = ""


RunChild = Callable[[RunHost, "RunContext", str, RunOptions], Awaitable[RunResult]]


@dataclass(kw_only=True)
class RunContext:
    """One run's shared state. ``spec`` changes with a handoff; the rest stays.

    Attributes:
        handoff: The agent a handoff tool of this step named; applied when the step is over.
        instructed: Text that hooks added to the system prompt.
        run_child: Runs a delegated agent; given by the loop, so that delegation need not import it.
    """

    host: RunHost
    team: Team
    gate: Gate
    spec: AgentSpec
    options: RunOptions
    meter: Meter
    run_child: RunChild
    world: World = field(default_factory=World)
    handoff: str = ""
    instructed: str = ""
    steps: int = 0
    _hooks: dict[str, Hooks] = field(default_factory=dict[str, Hooks])
    _scrubbed: dict[int, tuple[Message, Message]] = field(default_factory=dict[int, tuple[Message, Message]])

    @property
    def agent(self) -> str:
        """Name of the agent at work."""
        return self.spec.name

    @property
    def max_iterations(self) -> int:
        """Steps after which a person is asked; 0 for never."""
        return self.host.facts.limits.max_iterations or self.spec.max_iterations

    @property
    def max_identical_calls(self) -> int:
        """Identical batches of calls that end the run."""
        return self.host.facts.limits.max_consecutive_tool_calls or self.spec.max_consecutive_tool_calls

    @property
    def trim(self) -> Trim:
        """How much of old messages goes into a prompt."""
        limits, spec = self.host.facts.limits, self.spec
        return Trim(
            max_tool_result_tokens=limits.max_tool_result_tokens or spec.max_tool_result_tokens,
            max_old_tool_call_tokens=limits.max_old_tool_call_tokens or spec.max_old_tool_call_tokens,
            num_history_items=spec.num_history_items,
        )

    def model(self, ref: str = "") -> BoundModel:
        """Return the agent's model for the next call; ``ref`` overrides the session's choice. Raises: Invalid."""
        return self.team.bind(self.agent, ref or self.host.model_override(self.agent))

    def warn(self, message: str) -> None:
        """Tell people something that does not end the run."""
        self.host.emit(Warned(agent=self.agent, message=message))

    def scrub(self, text: str) -> str:
        """Return ``text`` without secrets, where the agent asks for that."""
        return redact(text) if self.spec.redact_secrets else text

    def scrub_messages(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return a prompt's messages without secrets; each message of the history is searched once a run."""
        if not self.spec.redact_secrets:
            return messages
        known = self._scrubbed
        return [
            pair[1] if (pair := known.get(id(message))) is not None else self._scrub_message(message)
            for message in messages
        ]

    def _scrub_message(self, message: Message) -> Message:
        content = redact(message.content)
        scrubbed = (
            message if content is message.content else msgspec.structs.replace(message, content=content)
        )
        # The original is kept beside its copy, so that its id stays its own.
        self._scrubbed[id(message)] = (message, scrubbed)
        return scrubbed

    def has_hooks(self, event: str, tool: str = "") -> bool:
        """Whether the agent's hooks want this event."""
        return bool(self.spec.hooks) and self.hooks.wanted(event, tool)

    async def hook(
        self, event: str, fields: Mapping[str, JSON], *, tool: str = "", preempt: bool = False
    ) -> HookResult:
        """Run the event's hooks; their warnings are shown. Cheap when there are none."""
        if not self.spec.hooks:
            return HookResult()
        result = await self.hooks.run(event, fields, tool=tool, preempt=preempt)
        for warning in result.warnings:
            self.warn(warning)
        return result

    @property
    def hooks(self) -> Hooks:
        """The hooks of the agent at work."""
        found = self._hooks.get(self.agent)
        if found is None:
            facts = self.host.facts
            found = self._hooks[self.agent] = Hooks(
                self.spec.hooks,
                agent=self.agent,
                emit=self.host.emit,
                base={"session_id": facts.session_id, "cwd": str(facts.working_dir)},
                working_dir=facts.working_dir,
                env=facts.env,
                ask_model=self._ask_model,
            )
        return found

    async def _ask_model(self, spec: HookSpec, prompt: str) -> str:
        """Answer a model hook; its prompt is not part of the conversation (D06-09)."""
        model = self.model(spec.model)
        request = model.request([Message("user", prompt)], headers=self.host.facts.headers)
        completed = await complete(model, request)
        self.meter.add(self.agent, completed.usage, model.info_of(completed.model).cost(completed.usage), 0.0)
        return completed.message.content

    def now(self) -> float:
        """Return the run's clock, in seconds."""
        return trio.current_time()


async def complete(model: BoundModel, request: ModelRequest) -> Completed:
    """Make a model call whose stream nobody follows, and return its end.

    Raises:
        ModelError: the call failed or its stream broke off.
    """
    async with model.provider.open_stream(request) as stream:
        async for batch in stream:
            for event in batch:
                if isinstance(event, Completed):
                    return event
    raise broken_off(model)


def broken_off(model: BoundModel) -> ModelError:
    """Return the error for a stream that ended without its last event."""
    return ModelError(
        f"{model.info.ref}: the answer broke off before its end",
        kind="protocol",
        provider=model.info.provider,
        model=model.info.model,
    )
