"""A conversation as the fold of its events, and the prompt messages a strict provider accepts of it.

Responsible for what of the history goes to the model: the summary's cut, calls paired with results in request order,
clean text. Not for what the loop or the person sees of the same events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from actors.agent.messages import (
    AssistantMessageAdded,
    Event,
    Summarised,
    ToolMessageAdded,
    UsageReported,
    UserMessageAdded,
)
from actors.models.provider import Message, Part, Role, ToolCall
from actors.tools.text import clean_text
from actors.tools.tool import Media

NO_RESULT = "No result provided"
"""Stands for the result of a call that has none; every provider refuses an unanswered call."""
SUMMARY_PREFIX = "Session Summary: "

# ruff: noqa: D102 - a protocol's members are named after what they are


class StoredMessage(Protocol):
    """A flat stored message, as the session room keeps it."""

    @property
    def id(self) -> int: ...
    @property
    def role(self) -> Role: ...
    @property
    def content(self) -> str: ...
    @property
    def parts(self) -> tuple[Part, ...]: ...
    @property
    def reasoning(self) -> str: ...
    @property
    def reasoning_signature(self) -> str: ...
    @property
    def tool_calls(self) -> tuple[ToolCall, ...]: ...
    @property
    def tool_call_id(self) -> str: ...
    @property
    def is_error(self) -> bool: ...
    @property
    def media(self) -> tuple[Media, ...]: ...


class CarriesMessage(Protocol):
    """An event that puts a stored message into the history."""

    @property
    def message(self) -> StoredMessage: ...


class Entry(Struct, frozen=True):
    """One message of the conversation as it was recorded; its index is what ``Summarised.first_kept`` counts."""

    message_id: int
    message: Message


class Transcript:
    """One conversation (a session's own or a sub-session's), folded in place.

    Every message is an entry, in the order recorded. The prompt is kept beside them incrementally: reading it copies
    references and repairs at most the last, still open batch of tool calls.

    Attributes:
        entries: All messages, also those a summary stands for.
        summary: The latest summary; empty before the first.
        first_kept: Index of the first entry that the summary does not stand for.
        last_tokens: Prompt plus output tokens of the last model call, or the estimate after a compaction.
        counted: How many entries ``last_tokens`` is about; later ones come on top.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.summary = ""
        self.first_kept = 0
        self.last_tokens = 0
        self.counted = 0
        self._prompt = _Prompt()

    def evolve(self, event: Event) -> None:
        """Fold one event in; events that do not concern the conversation are ignored."""
        match event:
            case UserMessageAdded():
                self._add(event.message_id, Message(event.role, event.content, event.parts))
            case AssistantMessageAdded():
                self._add(
                    event.message_id,
                    Message(
                        "assistant",
                        event.content,
                        tool_calls=event.tool_calls,
                        reasoning=event.reasoning,
                        reasoning_signature=event.reasoning_signature,
                    ),
                )
            case ToolMessageAdded():
                self._add(
                    event.message_id,
                    Message(
                        "tool",
                        event.content,
                        media_parts(event.media),
                        tool_call_id=event.call_id,
                        is_error=event.is_error,
                    ),
                )
            case Summarised():
                self.summary = event.summary
                self.first_kept = min(max(event.first_kept, 0), len(self.entries))
                self._rebuild()
            case UsageReported():
                self.last_tokens = event.context_tokens + event.output_tokens
                self.counted = len(self.entries)
            case _:
                pass

    def append(self, event: CarriesMessage) -> None:
        """Add a message that no run produced: imported, forked, or put in by a client."""
        self._add(event.message.id, _as_message(event.message))

    def restore(self, summary: str, first_kept: int, last_tokens: int, counted: int = -1) -> None:
        """Take over what a snapshot kept beside the messages, after all of them were appended.

        ``counted`` below 0 means that ``last_tokens`` is about all of them.
        """
        self.summary, self.first_kept, self.last_tokens = summary, first_kept, last_tokens
        self.counted = len(self.entries) if counted < 0 else counted
        self._rebuild()

    def replace(self, event: CarriesMessage) -> bool:
        """Replace the entry with the message's id; false when there is none. The summary's cut stays."""
        for index, entry in enumerate(self.entries):
            if entry.message_id == event.message.id:
                self.entries[index] = Entry(entry.message_id, clean_message(_as_message(event.message)))
                self._rebuild()
                return True
        return False

    def messages(self) -> tuple[Message, ...]:
        """Return the next prompt's conversation: summary first, pairs repaired, no system text."""
        return self._prompt.messages()

    def _add(self, message_id: int, message: Message) -> None:
        message = clean_message(message)
        self.entries.append(Entry(message_id, message))
        self._prompt.add(message)

    def _rebuild(self) -> None:
        self._prompt = _Prompt()
        if self.summary:
            self._prompt.add(Message("user", clean_text(SUMMARY_PREFIX + self.summary)))
        for entry in self.entries[self.first_kept :] if self.summary else self.entries:
            self._prompt.add(entry.message)


class _Prompt:
    """The repaired messages so far; the newest assistant message's calls stay open until something else follows."""

    def __init__(self) -> None:
        self._closed: list[Message] = []
        self._calling: Message | None = None
        self._results: dict[str, Message | None] = {}
        self._whole: tuple[Message, ...] | None = None

    def add(self, message: Message) -> None:
        if message.role == "tool":
            # A second result of a call, or one without its call, is refused by every provider.
            if self._results.get(message.tool_call_id, message) is None:
                self._results[message.tool_call_id] = message
                self._whole = None
            return
        if message.role == "system":
            return
        self._whole = None
        self._close()
        calls = _usable_calls(message.tool_calls)
        if len(calls) != len(message.tool_calls):
            message = msgspec.structs.replace(message, tool_calls=calls)
        if calls:
            self._calling = message
            self._results = {call.id: None for call in calls}
        elif message.content or message.parts:
            self._closed.append(message)

    def messages(self) -> tuple[Message, ...]:
        if self._whole is None:
            self._whole = (*self._closed, *self._open_batch())
        return self._whole

    def _close(self) -> None:
        self._closed += self._open_batch()
        self._calling = None
        self._results = {}

    def _open_batch(self) -> list[Message]:
        if self._calling is None:
            return []
        return [
            self._calling,
            *(
                result or Message("tool", NO_RESULT, tool_call_id=call_id, is_error=True)
                for call_id, result in self._results.items()
            ),
        ]


def repaired(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return any messages as a strict provider accepts them: pairs complete and ordered, no empty message."""
    prompt = _Prompt()
    for message in messages:
        prompt.add(clean_message(message))
    return prompt.messages()


def clean_message(message: Message) -> Message:
    """Return ``message`` with NUL and lone surrogates replaced in every text."""
    changes: dict[str, object] = {}
    for name in ("content", "reasoning", "tool_call_id"):
        old: str = getattr(message, name)
        if (new := clean_text(old)) != old:
            changes[name] = new
    if message.parts:
        changes["parts"] = tuple(
            msgspec.structs.replace(part, text=clean_text(part.text)) if part.text else part
            for part in message.parts
        )
    if message.tool_calls:
        changes["tool_calls"] = tuple(
            ToolCall(clean_text(call.id), clean_text(call.name), clean_text(call.arguments))
            for call in message.tool_calls
        )
    return msgspec.structs.replace(message, **changes) if changes else message


def media_parts(media: Sequence[Media]) -> tuple[Part, ...]:
    """Return a tool's media as message parts."""
    return tuple(
        Part(item.kind, text=item.text, data=item.data, mime_type=item.mime_type, name=item.name)
        for item in media
    )


def _usable_calls(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    seen: dict[str, ToolCall] = {}
    for call in calls:
        if call.id and call.name:
            seen.setdefault(call.id, call)
    return calls if len(seen) == len(calls) else tuple(seen.values())


def _as_message(stored: StoredMessage) -> Message:
    return Message(
        stored.role,
        stored.content,
        stored.parts + media_parts(stored.media),
        tool_calls=stored.tool_calls,
        tool_call_id=stored.tool_call_id,
        is_error=stored.is_error,
        reasoning=stored.reasoning,
        reasoning_signature=stored.reasoning_signature,
    )
