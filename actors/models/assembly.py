"""Puts a streamed answer together: text, reasoning and tool calls, whatever a provider takes an index for.

Pure: pieces in, events out. The dialect files decode the wire and feed this. Tool-call fragments are matched
by id first, by index second and by time last, because each of these is missing or ambiguous somewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from actors.models.provider import (
    Completed,
    FinishReason,
    Message,
    ModelEvent,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from actors.models.text import TextJoiner, clean

_FINISHES: dict[str, FinishReason] = {
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_context_window_exceeded": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "refusal": "refusal",
    "error": "error",
}


class _Call:
    """One tool call in the making. It is announced once its name is known to be whole."""

    __slots__ = ("announced", "arguments", "id", "joiner", "name", "order", "ordinal", "whole")

    def __init__(self, ordinal: int, order: float) -> None:
        self.ordinal = ordinal
        self.order = order
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.joiner = TextJoiner()
        self.announced = False
        self.whole = False

    def has_complete_arguments(self) -> bool:
        """Whether the arguments so far are one JSON object."""
        if self.whole:
            return True
        if not self.arguments or not self.arguments[-1].rstrip().endswith("}"):
            return False
        try:
            return isinstance(msgspec.json.decode("".join(self.arguments)), dict)
        except msgspec.DecodeError:
            return False


class Assembler:
    """Accumulates one answer.

    Args:
        make_id: Returns a fresh tool-call id, for providers that send none or the same one twice.
    """

    def __init__(self, make_id: Callable[[], str]) -> None:
        self._make_id = make_id
        self._events: list[ModelEvent] = []
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._text_joiner = TextJoiner()
        self._reasoning_joiner = TextJoiner()
        self._calls: list[_Call] = []
        self._by_id: dict[str, _Call] = {}
        self._by_index: dict[int, _Call] = {}
        self.signature = ""

    @property
    def empty(self) -> bool:
        """Whether nothing has arrived so far."""
        return not (self._text or self._reasoning or self._calls)

    def take(self) -> list[ModelEvent]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def add_text(self, piece: str) -> None:
        """Take more answer text."""
        if shown := self._text_joiner.feed(piece):
            self._text.append(shown)
            self._events.append(TextDelta(shown))

    def add_reasoning(self, piece: str) -> None:
        """Take more reasoning text."""
        if shown := self._reasoning_joiner.feed(piece):
            self._reasoning.append(shown)
            self._events.append(ReasoningDelta(shown))

    def add_call_fragment(
        self, *, index: int | None = None, call_id: str = "", name: str = "", arguments: Any = None
    ) -> None:
        """Take a fragment of a tool call; every field may be missing.

        Args:
            index: The provider's index; often the key, sometimes always 0, sometimes absent.
            call_id: Its id; usually on the first fragment only.
            name: The tool's name, whole, in pieces, or repeated on each fragment.
            arguments: JSON text in pieces, or a whole object.
        """
        call = self._find(index, call_id, name, arguments)
        if call is None:
            call = self._begin(index, call_id)
        elif call_id and not call.id:
            call.id = self._unique(call_id)
            self._by_id.setdefault(call_id, call)
        if name and not call.announced and name != call.name:
            call.name += clean(name)
        self._add_arguments(call, arguments)

    def complete(self, finish: str, usage: Usage, *, model: str = "", response_id: str = "") -> Completed:
        """Return the assembled answer; events still pending are left for :meth:`take`.

        Args:
            finish: The provider's own word; an answer with calls ends with ``tool_calls`` unless the word
                says that the answer is cut off or refused.
            usage: Tokens.
            model: The model that answered, when the provider says so.
            response_id: The provider's id of the answer.

        Raises:
            ValueError: a tool call never got a name.
        """
        if rest := self._text_joiner.finish():
            self._text.append(rest)
            self._events.append(TextDelta(rest))
        if rest := self._reasoning_joiner.finish():
            self._reasoning.append(rest)
            self._events.append(ReasoningDelta(rest))
        for call in self._calls:
            if not call.name:
                raise ValueError("a tool call without a name")
            if rest := call.joiner.finish():
                self._emit(call, rest)
            if not call.announced:
                self._emit(call, "")
        ordered = sorted(self._calls, key=lambda call: call.order)
        message = Message(
            role="assistant",
            content="".join(self._text),
            reasoning="".join(self._reasoning),
            reasoning_signature=self.signature,
            tool_calls=tuple(ToolCall(c.id, c.name, "".join(c.arguments) or "{}") for c in ordered),
        )
        reason = _FINISHES.get(finish.lower()) or ("tool_calls" if ordered else "stop")
        return Completed(message, reason, usage, model=model, response_id=response_id)

    def _find(self, index: int | None, call_id: str, name: str, arguments: Any) -> _Call | None:
        """Return the call a fragment belongs to, or ``None`` when it begins another."""
        if call_id and (known := self._by_id.get(call_id)):
            repeated_id = name and index is not None and index not in self._by_index and known.order != index
            return None if repeated_id else known
        latest = self._calls[-1] if self._calls else None
        known = latest if index is None else self._by_index.get(index)
        if known is None:
            return None
        if call_id:  # a new id: another call, unless it only names or continues the one at this index
            return known if not name or not known.id else None
        more = arguments.strip() if isinstance(arguments, str) else arguments
        if name and known.name and more and known.has_complete_arguments():
            return None  # whole calls one after the other, without ids
        if name and index is None and name != known.name:
            return None
        return known

    def _begin(self, index: int | None, call_id: str) -> _Call:
        order = float(index) if index is not None else (self._calls[-1].order if self._calls else 0.0)
        call = _Call(len(self._calls), order)
        self._calls.append(call)
        if call_id:
            call.id = self._unique(call_id)
            self._by_id.setdefault(call_id, call)
        if index is not None:
            self._by_index[index] = call
        return call

    def _unique(self, call_id: str) -> str:
        cleaned = clean(call_id)
        return self._make_id() if not cleaned or cleaned in self._by_id else cleaned

    def _add_arguments(self, call: _Call, arguments: Any) -> None:
        if arguments is None or arguments == "":
            return
        if isinstance(arguments, str):
            piece = call.joiner.feed(arguments)
        else:
            if call.arguments:
                return  # the whole object again
            piece = msgspec.json.encode(arguments).decode()
            call.whole = True
        if piece:
            self._emit(call, piece)

    def _emit(self, call: _Call, piece: str) -> None:
        if not call.id:
            call.id = self._make_id()
        if piece:
            call.arguments.append(piece)
        if not call.name:
            return  # arguments before the name: shown together once it is known
        if not call.announced:
            call.announced = True
            piece = "".join(call.arguments)
        self._events.append(ToolCallDelta(call.ordinal, call.id, call.name, piece))
