"""The history rules of a strict provider, as a check that test doubles run before they answer.

What real vendors refuse with a 400 is refused here, so that a test fails where production would.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from actors.models.provider import Message, ModelError


def check_history(messages: Sequence[Message]) -> None:
    """Accept ``messages`` if every strict vendor would.

    The rules: at least one message that is not a system text; no empty user, system or assistant message;
    valid UTF-8 without NUL everywhere; each tool call of an assistant message is answered by exactly one tool
    message before anything else follows; no tool message without its call; ids unique within one message.

    Raises:
        ModelError: kind ``invalid_request``, status 400, naming the first message that breaks a rule.
    """
    for problem in _problems(messages):
        raise ModelError(f"strict provider: {problem}", kind="invalid_request", status=400, provider="strict")


def _problems(messages: Sequence[Message]) -> Iterator[str]:
    if all(message.role == "system" for message in messages):
        yield "messages: no user message"
    open_ids: dict[str, int] = {}
    for position, message in enumerate(messages):
        where = f"messages[{position}] ({message.role})"
        yield from _text_problems(where, message)
        if message.role == "tool":
            if message.tool_call_id not in open_ids:
                yield f"{where}: tool_call_id {message.tool_call_id!r} answers no open tool call"
            open_ids.pop(message.tool_call_id, None)
            continue
        if open_ids:
            yield f"{where}: tool calls without a result before it: {', '.join(open_ids)}"
            open_ids = {}
        if not message.content and not message.parts and not message.tool_calls:
            yield f"{where}: empty message"
        if message.tool_calls and message.role != "assistant":
            yield f"{where}: tool calls outside an assistant message"
        for call in message.tool_calls:
            if not call.id or not call.name:
                yield f"{where}: a tool call without id or name"
            if call.id in open_ids:
                yield f"{where}: tool call id {call.id!r} used twice"
            open_ids[call.id] = position
    if open_ids:
        yield f"messages: tool calls without a result at the end: {', '.join(open_ids)}"


def _text_problems(where: str, message: Message) -> Iterator[str]:
    texts = [message.content, message.reasoning, message.tool_call_id]
    texts += [part.text for part in message.parts]
    texts += [text for call in message.tool_calls for text in (call.id, call.name, call.arguments)]
    for text in texts:
        if "\0" in text:
            yield f"{where}: NUL in text"
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            yield f"{where}: text is not valid UTF-8 (lone surrogate)"
