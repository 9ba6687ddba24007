"""A model that says what you wrote: the provider for tests, examples and offline demos.

A script is a list of answers, one per model call, or a function from the request to an answer::

    model = ScriptedModel([call("add", {"a": 2, "b": 2}), say("It is 4.", chunks=3)])
    model = ScriptedModel(lambda request: say(request.messages[-1].content.upper()))

Answers are put together with ``+``: ``reason("hm") + say("par") + wait(1) + fail(ModelError(...))``.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec
import trio

from actors.models.provider import (
    Completed,
    FinishReason,
    Message,
    ModelError,
    ModelEvent,
    ModelRequest,
    ModelStream,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from actors.testing.strict import check_history

DEFAULT_USAGE = Usage(input_tokens=10, output_tokens=5)
"""What an answer reports unless :meth:`Answer.ending` says otherwise."""


class ScriptExhaustedError(AssertionError):
    """More model calls were made than the script has answers."""


@dataclass(frozen=True)
class _Wait:
    seconds: float


@dataclass(frozen=True)
class _Until:
    event: trio.Event


@dataclass(frozen=True)
class _Fail:
    error: Exception


@dataclass(frozen=True)
class _Call:
    name: str
    arguments: str
    id: str | None
    chunks: int


_Beat = Sequence[ModelEvent] | _Call | _Wait | _Until | _Fail


@dataclass(frozen=True)
class Answer:
    """What one model call produces, beat by beat. Made by the helpers of this module, joined by ``+``."""

    beats: tuple[_Beat, ...] = ()
    finish: FinishReason | None = None
    usage: Usage = DEFAULT_USAGE
    signature: str = ""

    def __add__(self, other: Answer) -> Answer:
        """Return this answer followed by ``other``, whose ending counts where it sets one."""
        return Answer(
            beats=self.beats + other.beats,
            finish=other.finish or self.finish,
            usage=other.usage if other.usage is not DEFAULT_USAGE else self.usage,
            signature=other.signature or self.signature,
        )

    def ending(self, finish: FinishReason | None = None, usage: Usage | None = None) -> Answer:
        """Return this answer with another finish reason or usage, e.g. ``call(...).ending("length")``."""
        return replace(self, finish=finish or self.finish, usage=usage or self.usage)


def say(text: str, chunks: int = 1, every: float = 0.0) -> Answer:
    """Answer ``text`` in ``chunks`` batches, ``every`` seconds apart."""
    return _paced(([TextDelta(piece)] for piece in _pieces(text, chunks)), every)


def reason(text: str, chunks: int = 1, every: float = 0.0, signature: str = "") -> Answer:
    """Reasoning text, in ``chunks`` batches; ``signature`` lands in the assembled message."""
    paced = _paced(([ReasoningDelta(piece)] for piece in _pieces(text, chunks)), every)
    return replace(paced, signature=signature)


def call(
    name: str,
    arguments: Mapping[str, Any] | str | None = None,
    *,
    id: str | None = None,  # noqa: A002 the field's own name
    chunks: int = 1,
) -> Answer:
    """Call a tool. ``arguments`` as text may be invalid JSON; without ``id`` the model numbers its calls."""
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
    return Answer((_Call(name, text, id, chunks),))


def calls(items: Iterable[tuple[str, Mapping[str, Any] | str] | Answer]) -> Answer:
    """Call several tools in one message: ``(name, arguments)`` pairs or :func:`call` answers."""
    together = Answer()
    for item in items:
        together += item if isinstance(item, Answer) else call(*item)
    return together


def batch(*events: ModelEvent) -> Answer:
    """Exactly these events as one batch, such as several deltas that arrive together."""
    return Answer((tuple(events),))


def wait(seconds: float) -> Answer:
    """Pause on trio's clock."""
    return Answer((_Wait(seconds),))


def until(event: trio.Event) -> Answer:
    """Pause until the test sets ``event``."""
    return Answer((_Until(event),))


def hang() -> Answer:
    """Never go on; only cancellation ends the call."""
    return wait(math.inf)


def fail(error: Exception) -> Answer:
    """Raise ``error`` at this point of the answer."""
    return Answer((_Fail(error),))


Script = Iterable[Answer | str | Exception] | Callable[[ModelRequest], Answer | str]
Outcome = Literal["running", "completed", "failed", "abandoned"]


class ScriptedModel:
    """A :class:`~actors.models.provider.Provider` that follows a script.

    Args:
        script: Answers in call order (a string is :func:`say`, an exception is :func:`fail`), or a function
            of the request that never runs out.
        strict: Check each request as strict vendors do, see :func:`~actors.testing.strict.check_history`.
        name: The provider name under which it is registered.

    Attributes:
        requests: Every request received, in order.
        outcomes: How each call ended; ``abandoned`` means cancelled or left before the end.
    """

    def __init__(self, script: Script = (), *, strict: bool = True, name: str = "scripted") -> None:
        self.name = name
        self.strict = strict
        self.requests: list[ModelRequest] = []
        self.outcomes: list[Outcome] = []
        self._function = script if callable(script) else None
        self._answers: Iterator[Answer | str | Exception] = iter(()) if callable(script) else iter(script)
        self._more: list[Answer | str | Exception] = []
        self._call_number = 0
        self._arrived = trio.Event()

    def extend(self, *answers: Answer | str | Exception) -> None:
        """Append answers to the script."""
        self._more.extend(answers)

    async def wait_requests(self, count: int) -> None:
        """Return once at least ``count`` calls have been made."""
        while len(self.requests) < count:
            await self._arrived.wait()

    @property
    def running(self) -> int:
        """Calls that are open now."""
        return self.outcomes.count("running")

    @asynccontextmanager
    async def open_stream(self, request: ModelRequest) -> AsyncGenerator[ModelStream]:
        """Start the next answer of the script.

        Raises:
            ModelError: the script says so, or ``strict`` and the history is invalid.
            ScriptExhaustedError: the script has no more answers.
        """
        number = len(self.requests)
        self.requests.append(request)
        self.outcomes.append("running")
        self._arrived.set()
        self._arrived = trio.Event()
        try:
            if self.strict:
                check_history(request.messages)
            async with aclosing(self._play(number, request, self._next(request))) as stream:
                yield stream
        except ModelError:
            self.outcomes[number] = "failed"
            raise
        finally:
            if self.outcomes[number] == "running":
                self.outcomes[number] = "abandoned"

    async def aclose(self) -> None:
        """Nothing is held open."""
        await trio.lowlevel.checkpoint()

    def _next(self, request: ModelRequest) -> Answer:
        if self._function is not None:
            return _answer(self._function(request))
        following = next(self._answers, None)
        if following is None and self._more:
            following = self._more.pop(0)
        if following is None:
            last = request.messages[-1] if request.messages else None
            message = (
                f"the script has no answer for model call {len(self.requests)}; its last message: {last!r}"
            )
            raise ScriptExhaustedError(message)
        return _answer(following)

    async def _play(
        self, number: int, request: ModelRequest, answer: Answer
    ) -> AsyncGenerator[Sequence[ModelEvent]]:
        text: list[str] = []
        reasoning: list[str] = []
        made: dict[int, ToolCall] = {}
        for beat in answer.beats:
            match beat:
                case _Wait(seconds):
                    await trio.sleep(seconds)
                    continue
                case _Until(event):
                    await event.wait()
                    continue
                case _Fail(error):
                    await trio.lowlevel.checkpoint()
                    raise error
                case _Call():
                    batches = self._call_batches(beat, len(made))
                case events:
                    batches = [events]
            for events in batches:
                _gather(events, text, reasoning, made)
                await trio.lowlevel.checkpoint()
                yield events
        await trio.lowlevel.checkpoint()
        self.outcomes[number] = "completed"
        message = Message(
            role="assistant",
            content="".join(text),
            reasoning="".join(reasoning),
            reasoning_signature=answer.signature,
            tool_calls=tuple(made[index] for index in sorted(made)),
        )
        finish = answer.finish or ("tool_calls" if made else "stop")
        yield [
            Completed(
                message, finish, answer.usage, model=request.model, response_id=f"response_{number + 1}"
            )
        ]

    def _call_batches(self, beat: _Call, index: int) -> list[Sequence[ModelEvent]]:
        self._call_number += 1
        call_id = beat.id or f"call_{self._call_number}"
        pieces = _pieces(beat.arguments, beat.chunks) or [""]
        return [[ToolCallDelta(index, call_id, beat.name, piece)] for piece in pieces]


def _answer(item: Answer | str | Exception) -> Answer:
    match item:
        case Answer():
            return item
        case str():
            return say(item)
        case _:
            return fail(item)


def _gather(
    events: Sequence[ModelEvent], text: list[str], reasoning: list[str], made: dict[int, ToolCall]
) -> None:
    for event in events:
        match event:
            case TextDelta():
                text.append(event.text)
            case ReasoningDelta():
                reasoning.append(event.text)
            case ToolCallDelta(index=index):
                before = made[index].arguments if index in made else ""
                made[index] = ToolCall(event.id, event.name, before + event.arguments)
            case _:
                pass


def _pieces(text: str, chunks: int) -> list[str]:
    """Cut ``text`` into at most ``chunks`` pieces of nearly equal length, none empty."""
    count = min(chunks, len(text))
    return [text[len(text) * n // count : len(text) * (n + 1) // count] for n in range(count)]


def _paced(batches: Iterable[Sequence[ModelEvent]], every: float) -> Answer:
    beats: list[_Beat] = []
    for events in batches:
        if every and beats:
            beats.append(_Wait(every))
        beats.append(events)
    return Answer(tuple(beats))
