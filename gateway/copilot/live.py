"""One session as the door's clients share it: who is attached, what they lend, and what waits for their answers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from actors import Runtime
from actors.agent import messages as act
from actors.errors import ActorsError
from actors.ids import new_uuid
from actors.journal.tail import Gap
from actors.session import messages as m
from actors.session.overlay import Overlay
from actors.tools.tool import Tool, ToolContext, ToolResult
from gateway.copilot.events import DELTAS, NOBODY_ASKED, Translator, Wire, iso, present
from gateway.copilot.framing import frame
from gateway.copilot.hooks import client_hooks
from gateway.copilot.log import EventFiles
from gateway.copilot.rpc import Closed, Connection, RpcError
from gateway.copilot.shapes import as_object
from gateway.copilot.tools import ASK_USER, AskUser, ClientTool, Declared, result_of

logger = logging.getLogger("gateway.copilot")
JSON = Any
RETRY_SECONDS = 1.0


@dataclass
class Attachment:
    """One client of a session and what it wants and can."""

    connection: Connection
    after: int = 0
    streaming: bool = False
    sub_streaming: bool = True
    permission: bool = False
    user_input: bool = False
    elicitation: bool = False
    hooks: bool = False
    tools: dict[str, Declared] = field(default_factory=dict[str, Declared])


class _Pending:
    """A call that a program has to answer."""

    def __init__(self, name: str, *, terminal: bool) -> None:
        self.name = name
        self.terminal = terminal
        self.done = trio.Event()
        self.result = ToolResult("", is_error=True)


class Live:
    """See the module. Exists from the first attachment until the server ends; :meth:`follow` runs beside.

    Args:
        session_id: The session.
        runtime: Where it runs.
        files: Where its ``events.jsonl`` is written.
        version: The server's.
    """

    def __init__(self, session_id: str, runtime: Runtime, files: EventFiles, version: str) -> None:
        self.id = session_id
        self.session = runtime.session(session_id)
        self.events = Translator(session_id, version)
        self.attachments: dict[Connection, Attachment] = {}
        self.mode = "interactive"
        self.model = ""
        self.max_continues = 5
        self.driving = False
        self.base = Overlay()
        self._runtime = runtime
        self._files = files
        self._version = version
        self._pending: dict[str, _Pending] = {}
        self._gone: dict[str, Declared] = {}
        self._reached = trio.Event()
        self._head = 0
        self._greeted = False
        self._lines: list[Wire] | None = []

    # --- clients ----------------------------------------------------------------------------------------------------

    def attach(self, attachment: Attachment, overlay: Overlay) -> None:
        """Add a client; from now on it gets the session's events."""
        self.attachments[attachment.connection] = attachment
        self._gone.clear()
        self.base = overlay
        hooks = client_hooks(self._invoke) if any(each.hooks for each in self.attachments.values()) else ()
        self._runtime.overlays[self.id] = replace(overlay, tools=self._tools, hooks=hooks)

    def detach(self, connection: Connection) -> None:
        """Remove a client. What it owes answers stays open for another, or for itself when it comes back."""
        gone = self.attachments.pop(connection, None)
        if gone is None:
            return
        if self.events.running:
            self._gone |= gone.tools
        elif not self.attachments:
            self._runtime.overlays.pop(self.id, None)

    def _tools(self) -> Sequence[Tool]:
        offered = self._offered()
        tools: list[Tool] = [ClientTool(tool, self._call) for tool in offered.values()]
        if any(each.user_input for each in self.attachments.values()) and ASK_USER.name not in offered:
            tools.append(AskUser(self._ask_user))
        return tools

    def _offered(self) -> dict[str, Declared]:
        offered = dict(self._gone)
        for each in self.attachments.values():
            offered |= each.tools
        return offered

    # --- events -----------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Read the session's stream from its beginning and hand it on; returns when the session is deleted."""
        while True:
            try:
                async with self._runtime.follow(self.id, self.events.seq) as follower:
                    while (batch := await follower.next()) is not None:
                        if not isinstance(batch, Gap):
                            self._take(batch)
                    return
            except ActorsError as error:
                logger.warning("following %s failed: %s", self.id, error)
            await trio.sleep(RETRY_SECONDS)

    async def caught_up(self, head: int) -> None:
        """Wait until everything up to number ``head`` was read."""
        self._head = head
        self._settle()
        await self._reached.wait()

    def _take(self, frames: Sequence[Any]) -> None:
        stored: list[Wire] = []
        for item in frames:
            for wire in self.events.take(item.seq, item.at, item.event):
                self.deliver(wire, item.seq)
                if not wire.get("ephemeral"):
                    stored.append(wire)
            self._react(item.event)
        if self._lines is not None:
            self._lines += stored
            self._settle()
        elif stored:
            self._files.append(self.id, stored)

    def _settle(self) -> None:
        if self._lines is not None and self._head and self.events.seq >= self._head:
            self._files.write(self.id, self._lines)
            self._lines = None
            self._reached.set()

    def deliver(self, wire: Wire, seq: int | None = None) -> None:
        """Send an event to every client that should get it. ``seq``: its number, when the journal has it."""
        if not self.attachments:
            return
        data = frame(
            {"jsonrpc": "2.0", "method": "session.event", "params": {"sessionId": self.id, "event": wire}}
        )
        delta = wire["type"] in DELTAS
        for each in list(self.attachments.values()):
            if seq is not None and seq <= each.after:
                continue
            if delta and not (each.streaming and (each.sub_streaming or "agentId" not in wire)):
                continue
            each.connection.send_frame(data)

    def tell(self, kind: str, data: Mapping[str, JSON]) -> Wire:
        """Send an event of the door's own, which nothing stores."""
        wire: Wire = {
            "id": new_uuid(),
            "timestamp": self._now(),
            "parentId": self.events.last_id,
            "ephemeral": True,
            "type": kind,
            "data": present(data),
        }
        self.deliver(wire)
        return wire

    def _now(self) -> str:
        return iso(self._runtime.now())

    async def note(self, kind: str, data: Mapping[str, JSON]) -> None:
        """Put an event on record; it comes back through the stream."""
        await self.session.ref.ask(m.Note(kind=kind, data=present(data)))

    def _react(self, event: JSON) -> None:
        """Answer for clients that cannot: nothing may wait for somebody who is not there."""
        if isinstance(event, act.RunEnded) and not event.session:
            self._gone.clear()
            self.driving = False
            return
        if not self.driving or self._lines is not None:
            return
        if isinstance(event, act.ApprovalRequested) and not any(
            a.permission for a in self.attachments.values()
        ):
            self._files.spawn(self._refuse, event.approval_id)
        elif isinstance(event, act.ElicitationRequested) and not any(
            a.elicitation for a in self.attachments.values()
        ):
            self._files.spawn(self._decline, event.elicitation_id)
        elif isinstance(event, act.IterationLimitReached):
            self._files.spawn(self._stop_at_limit)

    async def _refuse(self, approval_id: str) -> None:
        await self.answer_approval(approval_id, "reject", NOBODY_ASKED)

    async def _decline(self, elicitation_id: str) -> None:
        try:
            await self.session.answer("decline", elicitation_id=elicitation_id)
        except ActorsError:
            logger.debug("the question was answered already")

    async def _stop_at_limit(self) -> None:
        try:
            await self.session.decide("reject")
        except ActorsError:
            logger.debug("the limit was decided already")

    async def answer_approval(self, approval_id: str, confirmation: str, reason: str = "") -> bool:
        """Answer a pending approval; false when it is not pending any more."""
        try:
            await self.session.decide(confirmation, reason=reason, approval_id=approval_id)
        except ActorsError:
            return False
        return True

    # --- calls of the program ---------------------------------------------------------------------------------------

    async def _call(self, name: str, arguments: Mapping[str, JSON], context: ToolContext) -> ToolResult:
        tool = self._offered().get(name)
        if tool is None:
            return ToolResult(f"The program that offers {name} is not connected.", is_error=True)
        request_id, pending = new_uuid(), _Pending(name, terminal=bool(tool.is_terminal))
        self._pending[request_id] = pending
        try:
            await self.note(
                "external_tool.requested",
                {
                    "requestId": request_id,
                    "sessionId": self.id,
                    "toolCallId": context.call_id,
                    "toolName": name,
                    "arguments": dict(arguments),
                    "workingDirectory": str(context.working_dir),
                },
            )
            await pending.done.wait()
        finally:
            del self._pending[request_id]
            self.tell("external_tool.completed", {"requestId": request_id})
        return pending.result

    def answer_call(self, request_id: str, params: Mapping[str, JSON]) -> bool:
        """Take a program's answer; false when nobody waits for it any more."""
        pending = self._pending.get(request_id)
        if pending is None or pending.done.is_set():
            return False
        pending.result = result_of(params, terminal=pending.terminal)
        pending.done.set()
        return True

    async def _invoke(self, hook: str, given: Mapping[str, JSON]) -> Mapping[str, JSON]:
        """Ask the program's hook. One that is gone or fails has nothing to say."""
        asked = next((each for each in self.attachments.values() if each.hooks), None)
        if asked is None or (hook == "sessionStart" and self._greeted):
            return {}
        self._greeted = self._greeted or hook == "sessionStart"
        moment = {"sessionId": self.id, "timestamp": int(self._runtime.now() * 1000)}
        params = {"sessionId": self.id, "hookType": hook, "input": present({**given, **moment})}
        try:
            answer = await asked.connection.request("hooks.invoke", params)
        except (RpcError, Closed) as error:
            logger.warning("hook %s of %s failed: %s", hook, self.id, error)
            return {}
        return as_object((as_object(answer) or {}).get("output")) or {}

    async def _ask_user(self, name: str, arguments: Mapping[str, JSON], context: ToolContext) -> ToolResult:
        del name
        asked = next((each for each in self.attachments.values() if each.user_input), None)
        if asked is None:
            return ToolResult("Nobody can be asked now.", is_error=True)
        question = {
            "question": str(arguments.get("question") or ""),
            "choices": arguments.get("choices"),
            "allowFreeform": arguments.get("allowFreeform", True),
        }
        request_id = new_uuid()
        self.tell(
            "user_input.requested", {**question, "requestId": request_id, "toolCallId": context.call_id}
        )
        answer: Mapping[str, JSON] = {}
        try:
            given = await asked.connection.request(
                "userInput.request", present({**question, "sessionId": self.id})
            )
            answer = as_object(given) or {}
        except (RpcError, Closed) as error:
            return ToolResult(f"The person did not answer: {error}", is_error=True)
        finally:
            self.tell("user_input.completed", {"requestId": request_id, "answer": answer.get("answer")})
        return ToolResult(str(answer.get("answer", "")))
