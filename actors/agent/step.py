"""One model call of the loop: its stream becomes events, its end becomes an answer or an error, never an exception."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from actors.agent import messages as ev
from actors.agent.context import RunContext, broken_off
from actors.agent.team import BoundModel
from actors.ids import new_id
from actors.models.provider import (
    Completed,
    FinishReason,
    ModelError,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    Retrying,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from actors.tools.text import clean_text
from actors.tools.tool import Definition

ERROR_CODES: Mapping[str, str] = {
    "rate_limited": "rate_limited",
    "context_exceeded": "context_exceeded",
    "request_too_large": "request_too_large",
}
"""Kinds of model errors that clients tell apart; every other one is ``model_error``."""


@dataclass
class Answer:
    """What one model call gave. ``error`` is set when it failed; the text is then what came before."""

    text: str = ""
    reasoning: str = ""
    signature: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish: FinishReason = "stop"
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    cost: float = 0.0
    seconds: float = 0.0
    error: ModelError | None = None

    @property
    def empty(self) -> bool:
        """Whether there is nothing to put into the history."""
        return not (self.text or self.calls)


@dataclass
class _Stream:
    """Folds a call's events into an answer while publishing them."""

    ctx: RunContext
    model: BoundModel
    definitions: Mapping[str, Definition]
    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    announced: set[int] = field(default_factory=set[int])
    completed: Completed | None = None

    def take(self, event: ModelEvent) -> None:
        agent, emit = self.ctx.agent, self.ctx.host.emit
        match event:
            case TextDelta(text):
                text = clean_text(text)
                self.text.append(text)
                emit(ev.TextDelta(agent=agent, text=text))
            case ReasoningDelta(text):
                text = clean_text(text)
                self.reasoning.append(text)
                emit(ev.ReasoningDelta(agent=agent, text=text))
            case ToolCallDelta():
                first = event.index not in self.announced
                self.announced.add(event.index)
                emit(
                    ev.ToolCallDelta(
                        agent=agent,
                        call=ToolCall(event.id, event.name, clean_text(event.arguments)),
                        definition=self.definitions.get(event.name) if first else None,
                    )
                )
            case Retrying():
                if event.discard:
                    self.text.clear()
                    self.reasoning.clear()
                    self.announced.clear()
                emit(
                    ev.ModelFellBack(
                        agent=agent,
                        failed_model=event.failed_model,
                        fallback_model=event.next_model,
                        reason=event.reason,
                        attempt=event.attempt,
                        max_attempts=event.max_attempts,
                    )
                )
            case Completed():
                self.completed = event


async def call_model(
    ctx: RunContext, model: BoundModel, request: ModelRequest, definitions: Mapping[str, Definition]
) -> Answer:
    """Make the step's model call and publish its deltas.

    Cancellation: the connection is closed; what was published stays with the owner, who records it.
    """
    stream = _Stream(ctx, model, definitions)
    began = ctx.now()
    error: ModelError | None = None
    try:
        async with model.provider.open_stream(request) as batches:
            async for batch in batches:
                for event in batch:
                    stream.take(event)
                if stream.completed is not None:
                    break
    except ModelError as failure:
        error = failure
    completed = stream.completed
    if completed is None or completed.finish == "error":
        answer = Answer("".join(stream.text), "".join(stream.reasoning), finish="error")
        answer.error = error or broken_off(model)
    else:
        answer = _answer(completed)
    if completed is not None:
        answer.usage, answer.model = completed.usage, completed.model
        answer.cost = model.info_of(completed.model).cost(completed.usage)
    answer.model = answer.model or model.info.ref
    answer.seconds = ctx.now() - began
    return answer


def _answer(completed: Completed) -> Answer:
    message = completed.message
    return Answer(
        text=clean_text(message.content),
        reasoning=clean_text(message.reasoning),
        signature=message.reasoning_signature,
        calls=distinct_calls(message.tool_calls),
        finish=completed.finish,
    )


def distinct_calls(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """Return the calls that name a tool, each with an id of its own; strict providers refuse others in the history."""
    found: dict[str, ToolCall] = {}
    for call in calls:
        if not call.name:
            continue
        call_id = clean_text(call.id)
        if not call_id or call_id in found:
            call_id = new_id("call")
        cleaned = msgspec.structs.replace(
            call, id=call_id, name=clean_text(call.name), arguments=clean_text(call.arguments)
        )
        found[call_id] = cleaned
    return tuple(found.values())


def failed_event(agent: str, error: ModelError) -> ev.Failed:
    """Return the event that tells people why the model call failed for good."""
    return ev.Failed(
        agent=agent,
        error=error.message,
        error_code=ERROR_CODES.get(error.kind, "model_error"),
        status=error.status or 0,
    )
