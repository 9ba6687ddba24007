"""What goes to the model: the system prompt and the request of one step. Pure; facts of the world are arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from actors.agent.team import AgentSpec, BoundModel, Team
from actors.models.provider import Message, ModelRequest, ToolSpec
from actors.tools.tool import Definition

REMOVED = "[removed to save space]"
CUT_MARK = "\n[… {count} characters left out …]\n"
CHARACTERS_PER_TOKEN = 4
MEDIA_TOKENS = 1500
"""What an image or document is taken to cost; providers differ, and the exact number comes with the next usage."""


class Trim(Struct, frozen=True, kw_only=True):
    """Limits on what of the history goes into a prompt; 0 and less mean none."""

    max_tool_result_tokens: int = 0
    max_old_tool_call_tokens: int = 0
    num_history_items: int = 0


class World(Struct, frozen=True):
    """Facts that prompts may mention, gathered by the run. Empty ones are left out.

    Attributes:
        date: Today, e.g. ``2025-01-31``.
        environment: Lines on the machine and working directory.
        files: Name and text of each prompt file found.
    """

    date: str = ""
    environment: str = ""
    files: tuple[tuple[str, str], ...] = ()


def system_prompt(
    team: Team, spec: AgentSpec, world: World, instructions: Sequence[str], extra: str = ""
) -> str:
    """Return the agent's system prompt; empty when there is nothing to say.

    Args:
        team: Whose members are described to an agent that may delegate.
        spec: The agent.
        world: Facts of the world.
        instructions: What the toolsets add.
        extra: What the run adds: a delegated task, hook context.
    """
    sections = [spec.instruction, *instructions]
    if spec.sub_agents:
        sections.append(
            _members("You can hand tasks to these agents with transfer_task:", team, spec.sub_agents)
        )
    if spec.handoffs:
        sections.append(
            _members("You can hand the conversation to these agents with handoff:", team, spec.handoffs)
        )
    if spec.add_date and world.date:
        sections.append(f"Today's date: {world.date}")
    if spec.add_environment_info and world.environment:
        sections.append(f"<env>\n{world.environment}\n</env>")
    sections += [f'<file path="{name}">\n{text.strip()}\n</file>' for name, text in world.files]
    sections.append(extra)
    return "\n\n".join(section.strip() for section in sections if section.strip())


def _members(heading: str, team: Team, names: Iterable[str]) -> str:
    lines = [f"- {name}: {team.agents[name].description}" for name in names if name in team.agents]
    return "\n".join([heading, *lines])


def build_request(
    spec: AgentSpec,
    model: BoundModel,
    system: str,
    messages: Sequence[Message],
    definitions: Mapping[str, Definition],
    headers: Mapping[str, str],
) -> ModelRequest:
    """Return the model call of one step."""
    tools = tuple(
        ToolSpec(definition.name, definition.description, definition.parameters)
        for definition in definitions.values()
    )
    given = {} if spec.structured_output is None else {"response_schema": spec.structured_output}
    prompt = (Message("system", system), *messages) if system else messages
    return model.request(prompt, tools=tools, headers=headers, **given)


def with_description_parameter(definition: Definition) -> Definition:
    """Return the definition with a ``description`` argument, in which the model says what the call is for."""
    parameters = dict(definition.parameters)
    properties = dict(parameters.get("properties") or {})
    if "description" in properties:
        return definition
    properties["description"] = {"type": "string", "description": "One line on what this call is for."}
    parameters["properties"] = properties
    return msgspec.structs.replace(definition, parameters=parameters)


# --- size ---------------------------------------------------------------------------------------------------------


def estimate_tokens(messages: Iterable[Message]) -> int:
    """Return about how many tokens ``messages`` take; errs on the high side for code and plain English."""
    return sum(message_tokens(message) for message in messages)


def message_tokens(message: Message) -> int:
    """Return about how many tokens one message takes."""
    size = text_size(message.content) + text_size(message.reasoning)
    size += sum(text_size(call.name) + text_size(call.arguments) for call in message.tool_calls)
    size += sum(text_size(part.text) for part in message.parts)
    media = sum(MEDIA_TOKENS for part in message.parts if part.type != "text")
    return size // CHARACTERS_PER_TOKEN + media + 4


def text_size(text: str) -> int:
    """Return the text's size in bytes of UTF-8, which follows tokens better than code points do."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def excerpt(text: str, tokens: int) -> str:
    """Return ``text`` cut to about ``tokens`` tokens, its middle replaced by a mark; never cuts a code point."""
    room = tokens * CHARACTERS_PER_TOKEN
    if text_size(text) <= room:
        return text
    if not text.isascii():
        room = room * len(text) // text_size(text)
    head, tail = room * 2 // 3, room // 3
    return text[:head] + CUT_MARK.format(count=len(text) - head - tail) + text[len(text) - tail :]


def trimmed(messages: Sequence[Message], trim: Trim) -> Sequence[Message]:
    """Return the history within the limits; the same object when there are none.

    A limit never separates a call from its results and never drops the latest user message.
    """
    if trim.max_tool_result_tokens > 0:
        messages = [_short_result(message, trim.max_tool_result_tokens) for message in messages]
    if trim.max_old_tool_call_tokens > 0:
        messages = _without_old_calls(messages, trim.max_old_tool_call_tokens)
    if 0 < trim.num_history_items < len(messages):
        messages = _newest(messages, trim.num_history_items)
    return messages


def _short_result(message: Message, tokens: int) -> Message:
    if message.role != "tool":
        return message
    content = excerpt(message.content, tokens)
    return message if content is message.content else msgspec.structs.replace(message, content=content)


def _without_old_calls(messages: Sequence[Message], budget: int) -> list[Message]:
    """Empty the oldest calls and results beyond ``budget`` tokens; the newest batch is always whole."""
    newest = max((index for index, message in enumerate(messages) if message.tool_calls), default=0)
    kept = list(messages)
    left = budget
    for index in range(newest - 1, -1, -1):
        message = kept[index]
        if message.role != "tool" and not message.tool_calls:
            continue
        left -= message_tokens(message)
        if left >= 0:
            continue
        if message.role == "tool":
            kept[index] = msgspec.structs.replace(message, content=REMOVED, parts=())
        else:
            calls = tuple(msgspec.structs.replace(call, arguments="{}") for call in message.tool_calls)
            kept[index] = msgspec.structs.replace(message, tool_calls=calls)
    return kept


def _newest(messages: Sequence[Message], count: int) -> list[Message]:
    start = len(messages) - count
    while start < len(messages) and messages[start].role == "tool":
        start += 1
    asked = latest_user(messages)
    lead = [messages[asked]] if asked is not None and asked < start else []
    return [*lead, *messages[start:]]


def latest_user(messages: Sequence[Message]) -> int | None:
    """Return the index of the latest user message, if any."""
    return next((index for index in range(len(messages) - 1, -1, -1) if messages[index].role == "user"), None)
