"""Stored sessions and messages as the docker agent server's bodies have them (sessions contract, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from actors.errors import Invalid
from actors.models.provider import Part, ToolCall, Usage
from actors.session.messages import (
    HistoryMessage,
    PermissionRules,
    SafetyPolicy,
    SessionView,
    SubSessionCompleted,
    SubSessionView,
)
from actors.session.queries import SessionRow
from gateway.dialects.docker_parts import part, timestamp, tool, tool_call, usage

JSON = Any


class ImageUrl(Struct):
    """``image_url`` of a content part."""

    url: str = ""
    detail: str = ""


class DocumentSource(Struct):
    """Where a document part's content is."""

    inline_text: str = ""
    inline_data: str = ""


class Document(Struct):
    """``document`` of a content part."""

    name: str = ""
    mime_type: str = ""
    source: DocumentSource = msgspec.field(default_factory=DocumentSource)


class FilePart(Struct):
    """``file`` of a content part, the older form."""

    path: str = ""
    file_id: str = ""
    mime_type: str = ""


class ContentPart(Struct):
    """One entry of ``multi_content``."""

    type: str = "text"
    text: str = ""
    image_url: ImageUrl | None = None
    file: FilePart | None = None
    document: Document | None = None

    def neutral(self) -> Part:
        """Return the part as the runtime keeps it. Raises: Invalid, for a type nobody knows."""
        if self.type == "image_url" and self.image_url is not None:
            return Part("image", url=self.image_url.url, detail=self.image_url.detail)
        if self.type == "document" and self.document is not None:
            document = self.document
            return Part(
                "document",
                text=document.source.inline_text,
                data=document.source.inline_data,
                mime_type=document.mime_type,
                name=document.name,
            )
        if self.type == "file" and self.file is not None:
            return Part("document", url=self.file.path, name=self.file.file_id, mime_type=self.file.mime_type)
        if self.type == "text":
            return Part("text", text=self.text)
        raise Invalid(f"multi_content: unknown part type {self.type!r}")


class FunctionBody(Struct):
    """``function`` of a tool call."""

    name: str = ""
    arguments: str = ""


class ToolCallBody(Struct):
    """A tool call in a stored message."""

    id: str = ""
    type: str = "function"
    function: FunctionBody = msgspec.field(default_factory=FunctionBody)


class ChatMessage(Struct):
    """The inner ``message`` of the add and update routes."""

    role: str = ""
    content: str = ""
    multi_content: tuple[ContentPart, ...] = ()
    reasoning_content: str = ""
    tool_calls: tuple[ToolCallBody, ...] = ()
    tool_call_id: str = ""
    is_error: bool = False


class StoredMessage(Struct):
    """The outer ``message`` of the add and update routes."""

    agent_name: str = ""
    message: ChatMessage = msgspec.field(default_factory=ChatMessage)
    implicit: bool = False

    def neutral(self) -> HistoryMessage:
        """Return the message as the runtime keeps it, without an id. Raises: Invalid."""
        chat = self.message
        role = chat.role or "user"
        if role not in ("system", "user", "assistant", "tool"):
            raise Invalid(f"message.role: unknown role {chat.role!r}")
        return HistoryMessage(
            id=0,
            role=role,  # type: ignore[arg-type] # checked above
            agent=self.agent_name,
            content=chat.content,
            parts=tuple(each.neutral() for each in chat.multi_content),
            reasoning=chat.reasoning_content,
            tool_calls=tuple(ToolCall(c.id, c.function.name, c.function.arguments) for c in chat.tool_calls),
            tool_call_id=chat.tool_call_id,
            is_error=chat.is_error,
            implicit=self.implicit,
        )


def flat_messages(view: SessionView) -> list[dict[str, JSON]]:
    """Return the history with sub-sessions' messages in their place and without system messages."""
    return [flat_message(message) for message in in_place(view) if message.role != "system"]


def in_place(view: SessionView) -> Sequence[HistoryMessage]:
    """Return the history with each sub-session's messages together, where its first one stands."""
    if not any(message.session for message in view.messages):
        return view.messages
    groups: dict[str, list[HistoryMessage]] = {}
    for message in view.messages:
        if message.session:
            groups.setdefault(message.session, []).append(message)
    ordered: list[HistoryMessage] = []
    for message in view.messages:
        if not message.session:
            ordered.append(message)
        elif message.session in groups:
            ordered += groups.pop(message.session)
    return ordered


def flat_message(message: HistoryMessage) -> dict[str, JSON]:
    """Return one entry of a flat list; ``id`` is what ``PATCH .../messages/:msg_id`` takes."""
    body: dict[str, JSON] = {"id": message.id, "agent_name": message.agent, "message": chat_message(message)}
    if message.implicit:
        body["implicit"] = True
    return body


def chat_message(message: HistoryMessage) -> dict[str, JSON]:
    """Return the inner chat message."""
    body: dict[str, JSON] = {"role": message.role, "content": message.content}
    if message.parts:
        body["multi_content"] = [part(each) for each in message.parts]
    if message.reasoning:
        body["reasoning_content"] = message.reasoning
    if message.reasoning_signature:
        body["thinking_signature"] = message.reasoning_signature
    if message.tool_calls:
        body["tool_calls"] = [tool_call(call) for call in message.tool_calls]
    if message.definitions:
        body["tool_definitions"] = [tool(definition) for definition in message.definitions]
    if message.role == "tool":
        body["tool_call_id"] = message.tool_call_id
        if message.is_error:
            body["is_error"] = True
    body["created_at"] = timestamp(message.at)
    if message.role == "assistant":
        if message.usage is not None:
            body["usage"] = usage(message.usage)
        optional = {"model": message.model, "cost": message.cost, "finish_reason": message.finish}
        body.update({name: value for name, value in optional.items() if value})
    if message.interrupted:
        body["interrupted"] = True
    return body


def permissions(rules: PermissionRules | None) -> dict[str, JSON] | None:
    """Return the rules, empty lists left out; ``None`` when there are none."""
    return None if rules is None else dict(msgspec.to_builtins(rules))


def _common(view: SessionView) -> dict[str, JSON]:
    body: dict[str, JSON] = {
        "id": view.id,
        "title": view.title,
        "created_at": timestamp(view.created_at),
        "tools_approved": view.safety_policy == "autonomous",
        "input_tokens": view.input_tokens,
        "output_tokens": view.output_tokens,
    }
    if view.safety_policy:
        body["safety_policy"] = view.safety_policy
    if view.template.working_dir:
        body["working_dir"] = view.template.working_dir
    if view.permissions is not None:
        body["permissions"] = permissions(view.permissions)
    return body


def session_response(view: SessionView) -> dict[str, JSON]:
    """Return the body of ``GET /api/sessions/:id`` and of a fork."""
    body = _common(view)
    if messages := flat_messages(view):
        body["messages"] = messages
    return body


def snapshot(view: SessionView) -> dict[str, JSON]:
    """Return the body of ``GET /api/sessions/:id/snapshot``."""
    body = _common(view)
    body["messages"] = flat_messages(view) or None
    body["streaming"] = view.streaming
    if view.agent and view.bound:
        body["agent"] = view.agent
    body["last_event_seq"] = view.seq
    body["cost"] = view.cost
    return body


def status(view: SessionView) -> dict[str, JSON]:
    """Return the body of ``GET /api/sessions/:id/status``."""
    body: dict[str, JSON] = {"id": view.id, "title": view.title, "streaming": view.streaming}
    if view.agent:
        body["agent"] = view.agent
    body["input_tokens"] = view.input_tokens
    body["output_tokens"] = view.output_tokens
    body["num_messages"] = sum(message.role != "system" for message in view.messages)
    return body


def session_object(view: SessionView) -> dict[str, JSON]:
    """Return the internal session object of section 3.1, as ``POST /api/sessions`` and exports have it."""
    template = view.template
    body: dict[str, JSON] = {
        "id": view.id,
        "title": view.title,
        "messages": _items(view) or None,
        "created_at": timestamp(view.created_at),
        "tools_approved": view.safety_policy == "autonomous",
        "hide_tool_results": False,
        "SendUserMessage": True,
        "max_iterations": template.max_iterations,
        "starred": view.starred,
        "input_tokens": view.input_tokens,
        "output_tokens": view.output_tokens,
        "cost": view.cost,
    }
    optional = {
        "safety_policy": view.safety_policy,
        "working_dir": template.working_dir,
        "max_consecutive_tool_calls": template.max_consecutive_tool_calls,
        "max_old_tool_call_tokens": template.max_old_tool_call_tokens,
        "max_tool_result_tokens": template.max_tool_result_tokens,
        "permissions": permissions(view.permissions),
        "agent_model_overrides": dict(view.model_overrides),
        "custom_models_used": list(view.custom_models),
        "attributes": dict(template.attributes),
    }
    body.update({name: value for name, value in optional.items() if value})
    return body


class _Conversations(Protocol):
    """A flat history with the sub-sessions whose messages are in it."""

    @property
    def messages(self) -> Sequence[HistoryMessage]:
        """In the order recorded."""
        ...

    @property
    def subs(self) -> Sequence[SubSessionView]:
        """What is known of each."""
        ...

    @property
    def safety_policy(self) -> SafetyPolicy:
        """The session's mode, which its sub-sessions share."""
        ...


def _items(view: _Conversations, session: str = "") -> list[dict[str, JSON]]:
    items: list[dict[str, JSON]] = []
    seen: set[str] = set()
    for message in view.messages:
        if message.session == session:
            items.append({"message": flat_message(message)})
            continue
        child = _child_towards(view, session, message.session)
        if child and child not in seen:
            seen.add(child)
            items.append({"sub_session": sub_session_object(view, child)})
    return items


def sub_session_object(view: _Conversations, session: str) -> dict[str, JSON]:
    """Return a delegated session as a session object of its own."""
    found = next((sub for sub in view.subs if sub.id == session), None)
    own = [message for message in view.messages if message.session == session]
    used = next((message.usage for message in reversed(own) if message.usage is not None), Usage())
    body: dict[str, JSON] = {
        "id": session,
        "title": found.title if found else "",
        "messages": _items(view, session) or None,
        "created_at": timestamp(found.created_at if found else own[0].at if own else 0.0),
        "tools_approved": view.safety_policy == "autonomous",
        "hide_tool_results": False,
        "SendUserMessage": False,
        "max_iterations": 0,
        "starred": False,
        "input_tokens": used.context_tokens,
        "output_tokens": used.output_tokens,
        "cost": sum(message.cost for message in own),
    }
    if view.safety_policy:
        body["safety_policy"] = view.safety_policy
    return body


def completed_object(event: SubSessionCompleted) -> dict[str, JSON]:
    """Return the ``sub_session`` of a ``sub_session_completed`` event."""
    return sub_session_object(event, event.sub_session)


def _child_towards(view: _Conversations, ancestor: str, session: str) -> str:
    """Return the child of ``ancestor`` that is ``session`` or has it somewhere below; empty when there is none.

    A sub-session that nothing is known of counts as one of the session itself.
    """
    parents = {sub.id: sub.parent for sub in view.subs}
    while session:
        parent = parents.get(session, "")
        if parent == ancestor:
            return session
        session = parent
    return ""


def list_entry(row: SessionRow) -> dict[str, JSON]:
    """Return one entry of ``GET /api/sessions``; second precision, as the original has it."""
    body: dict[str, JSON] = {
        "id": row.id,
        "title": row.title,
        "created_at": timestamp(row.created_at)[:19] + "Z",
        "num_messages": row.num_messages,
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
    }
    if row.working_dir:
        body["working_dir"] = row.working_dir
    return body
