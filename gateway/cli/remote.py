"""``greenroom run --remote``: one answer, or a chat, from a server's agent, shown as if it ran here."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from actors.agent import messages as run
from actors.errors import Invalid, NotFound
from actors.models.provider import ToolCall
from gateway.cli.conversation import NOBODY, Person
from gateway.cli.display import Display
from gateway.client import Client, SessionRow

JSON = Any
_LEGACY = {"approve-autonomous": "approve-session"}
"""What older servers call a verdict; ours knows both."""


class Remote(Struct, frozen=True, kw_only=True):
    """What to talk to.

    Attributes:
        agent: The server's agent file.
        name: The file's agent.
        session: The session's id.
        model: For the first run.
    """

    agent: str
    name: str
    session: str
    model: str = ""


class Shown(Struct, frozen=True):
    """An event as displays take it: it has no place in a journal here."""

    event: run.Event
    seq: int = 0
    encoded: dict[str, bytes] = field(default_factory=dict[str, bytes])


class RemoteConversation:
    """A session on a server, and whoever talks to it from here.

    Args:
        client: The server.
        remote: The session.
        display: Where events go; ``None`` prints each as a line of JSON.
        person: Who is asked; ``None`` refuses whatever needs a person.
    """

    def __init__(
        self, client: Client, remote: Remote, display: Display | None, person: Person | None
    ) -> None:
        self._client = client
        self._remote = remote
        self._display = display
        self._person = person
        self._model = remote.model

    async def say(self, text: str) -> str:
        """Run the agent on ``text`` and return why the run ended. Cancellation: the server cancels the run."""
        remote, reason = self._remote, "interrupted"
        messages = [{"role": "user", "content": text}]
        async with self._client.run(
            remote.session, remote.agent, messages, name=remote.name, model=self._model
        ) as events:
            self._model = ""
            async for body in events:
                if self._display is None:
                    sys.stdout.write(msgspec.json.encode(body).decode() + "\n")
                    sys.stdout.flush()
                event = neutral(body, remote.session)
                if event is None:
                    continue
                if self._display is not None:
                    self._display.show(Shown(event))
                if isinstance(event, run.RunEnded) and not event.session:
                    reason = event.reason
                await self._answer(event)
        if self._display is not None:
            self._display.flush()
        return reason

    async def cancel(self) -> None:
        """Cancel the run going on."""
        await self._client.cancel(self._remote.session)

    async def _answer(self, event: run.Event) -> None:
        session = self._remote.session
        if self._display is not None and isinstance(
            event, run.ApprovalRequested | run.IterationLimitReached | run.ElicitationRequested
        ):
            self._display.flush()
        match event:
            case run.ApprovalRequested(approval_id=approval_id):
                verdict, reason = await self._person.approve(event) if self._person else ("reject", NOBODY)
                await self._client.resume(
                    session, _LEGACY.get(verdict, verdict), reason=reason, approval_id=approval_id
                )
            case run.IterationLimitReached(limit=limit):
                go_on = self._person is not None and await self._person.go_on(limit)
                await self._client.resume(session, "approve" if go_on else "reject")
            case run.ElicitationRequested(elicitation_id=elicitation_id):
                action, content = await self._person.answer(event) if self._person else ("cancel", {})
                await self._client.answer(session, action, content, elicitation_id)
            case _:
                return


def neutral(body: Mapping[str, JSON], session: str) -> run.Event | None:
    """Return what an event of the wire means for a display; ``None`` when it is not shown."""
    own = str(body.get("session_id") or session)
    where = "" if own == session else own
    match body.get("type"):
        case "agent_choice":
            return run.TextDelta(session=where, text=str(body.get("content", "")))
        case "message_added":
            return run.AssistantMessageAdded(session=where)
        case "tool_call":
            return run.ToolStarted(session=where, call=_call(body))
        case "tool_call_response":
            return run.ToolReturned(session=where, output=str(body.get("response", "")))
        case "tool_call_confirmation":
            return run.ApprovalRequested(
                session=where, approval_id=str(body.get("approval_id", "")), call=_call(body)
            )
        case "elicitation_request":
            return run.ElicitationRequested(
                session=where,
                elicitation_id=str(body.get("elicitation_id", "")),
                message=str(body.get("message", "")),
                mode="url" if body.get("mode") == "url" else "form",
                schema=body.get("schema"),
                url=str(body.get("url", "")),
            )
        case "max_iterations_reached":
            return run.IterationLimitReached(session=where, limit=int(body.get("max_iterations", 0)))
        case "warning":
            return run.Warned(session=where, message=str(body.get("message", "")))
        case "error":
            return run.Failed(session=where, error=str(body.get("error", "")))
        case "stream_stopped":
            reason: Any = body.get("reason") or "normal"
            return run.RunEnded(session=where, reason=reason)
        case _:
            return None


def _call(body: Mapping[str, JSON]) -> ToolCall:
    call: Mapping[str, JSON] = body.get("tool_call") or {}
    function: Mapping[str, JSON] = call.get("function") or {}
    return ToolCall(
        str(call.get("id", "")), str(function.get("name", "")), str(function.get("arguments", ""))
    )


async def find_agent(client: Client, words: Sequence[str]) -> tuple[str, str]:
    """Tell the server's agent from the message: the first word is one if the server has it.

    Raises:
        Invalid: the server has several and none is named.
        NotFound: it has none.
    """
    names = [row.name for row in await client.agents()]
    if words and words[0] in names:
        return words[0], " ".join(words[1:])
    if not names:
        raise NotFound("the server offers no agent")
    if len(names) > 1:
        raise Invalid(f"the server has several agents, name one of: {', '.join(names)}")
    return names[0], " ".join(words)


async def find_session(client: Client, wanted: str, template: Mapping[str, JSON]) -> str:
    """Return the id of a session: a new one when ``wanted`` is empty, counted back for ``-1``, else that one.

    Raises:
        NotFound: there is no such session.
    """
    if not wanted:
        return (await client.create_session(template)).id
    rows: list[SessionRow] = await client.sessions()
    if wanted.startswith("-") and wanted[1:].isdigit():
        back = max(int(wanted[1:]), 1)
        if back > len(rows):
            raise NotFound(f"there is no session {wanted}")
        return rows[back - 1].id
    if all(row.id != wanted for row in rows):
        raise NotFound(f"there is no session {wanted}")
    return wanted
