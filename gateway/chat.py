"""Turns of agents for clients that send whole conversations: which agent, in which session, and what it answered.

Nobody can be asked in the middle of such a turn: whatever needs a person is refused, and the agent goes on.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import trio
from msgspec import Struct

from actors.agent import messages as run
from actors.errors import Conflict, NotFound
from actors.journal.tail import Gap
from actors.kernel.errors import ActorStopped, MailboxFull
from actors.models.provider import FinishReason, Usage
from actors.runtime import Runtime
from actors.session import messages as m
from actors.session.session import Session
from gateway.dialects.openai_chat import ChatRequest
from gateway.errors import HttpFailure
from gateway.run_follower import RunFollower

NOBODY = "nobody can be asked here; only what the agent may do unasked is done"
PARAGRAPH = "\n\n"
"""Between the texts of one turn: an agent may say something before it uses its tools."""


class ChatOptions(Struct, frozen=True, kw_only=True):
    """How turns are taken; times in seconds.

    Attributes:
        agent: The only agent offered; empty for all.
        autonomous: Run every tool call without asking.
        request_seconds: How long a turn may take.
        conversations_max: How many conversations with an id are kept; 0 for none.
        conversation_ttl: How long one is kept unused.
    """

    agent: str = ""
    autonomous: bool = False
    request_seconds: float = 300.0
    conversations_max: int = 0
    conversation_ttl: float = 1800.0


class _Kept:
    """A conversation: the session that holds it, and until when a turn of it may be going on."""

    def __init__(self) -> None:
        self.session = ""
        self.used = 0.0
        self.busy_until = -math.inf


class Begun(NamedTuple):
    """A turn that was started."""

    session: Session
    accepted: m.RunAccepted
    kept: _Kept | None


class Offered(Struct, frozen=True):
    """An agent under the name clients know it by."""

    model: str
    source: str
    agent: str


class Turn:
    """A turn going on: :meth:`next` gives its text as it comes.

    Attributes:
        usage: Tokens of all its model calls.
        finish: Why the last model call ended.
        failure: Why there is no, or no whole, answer.
        ended: Whether it is over.
    """

    def __init__(self, session: Session, follower: RunFollower, deadline: float) -> None:
        self._session = session
        self._follower = follower
        self._deadline = deadline
        self._separate = False
        self.usage = Usage()
        self.finish: FinishReason = "stop"
        self.failure: HttpFailure | None = None
        self.ended = False

    async def next(self) -> str | None:
        """Return more text, ``None`` at the end: then ``failure`` says whether it is all.

        Cancellation: the turn goes on until its block is left.
        """
        while not self.ended:
            with trio.CancelScope(deadline=self._deadline) as scope:
                text = await self._more()
                if text:
                    return text
            if scope.cancelled_caught:
                self.ended = True
                self.failure = HttpFailure(504, "the agent did not answer in time", "timeout")
        return None

    async def _more(self) -> str:
        batch = await self._follower.next()
        if batch is None:
            self.ended = True
            return ""
        if isinstance(batch, Gap):
            self.ended = True
            self.failure = HttpFailure(500, "part of the answer was lost")
            return ""
        return "".join([await self._take(frame.event) for frame in batch])

    async def _take(self, event: Any) -> str:
        """Take note of an event; return the text it adds."""
        match event:
            case run.TextDelta(session="", text=text):
                separate, self._separate = self._separate, False
                return PARAGRAPH + text if separate else text
            case run.AssistantMessageAdded():
                self._count(event.usage)
                if not event.session:
                    self.finish = event.finish
                    self._separate = bool(event.content)
            case run.ApprovalRequested(approval_id=approval_id):
                await self._session.decide("reject", reason=NOBODY, approval_id=approval_id)
            case run.ElicitationRequested(elicitation_id=elicitation_id):
                await self._session.answer("cancel", {}, elicitation_id)
            case run.IterationLimitReached():
                await self._session.decide("reject", reason=NOBODY)
            case run.Failed(session="", error=error):
                self.failure = HttpFailure(502, error, "agent_error")
            case run.BudgetExceeded(session="", message=message):
                self.failure = HttpFailure(429, message, "budget_exceeded")
            case run.RunEnded(session="", reason="canceled"):
                self.failure = self.failure or HttpFailure(503, "the run was cancelled", "cancelled")
            case _:
                pass
        return ""

    def _count(self, usage: Usage) -> None:
        before = self.usage
        self.usage = Usage(
            before.input_tokens + usage.input_tokens,
            before.output_tokens + usage.output_tokens,
            before.cached_input_tokens + usage.cached_input_tokens,
            before.cached_write_tokens + usage.cached_write_tokens,
            before.reasoning_tokens + usage.reasoning_tokens,
        )


class Chat:
    """Takes turns, and keeps the conversations that have an id. A failed turn leaves its conversation as it was."""

    def __init__(self, options: ChatOptions) -> None:
        self.options = options
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    async def offered(self, runtime: Runtime) -> list[Offered]:
        """Return the agents: by their own names, or as ``file`` and ``file/agent`` when there are several files."""
        sources = [row.name for row in await runtime.agents.listing()]
        found: list[Offered] = []
        for source in sources:
            names = await runtime.agents.names(source)
            if len(sources) > 1:
                found.append(Offered(source, source, ""))
                found += [Offered(f"{source}/{name}", source, name) for name in names]
            else:
                found += [Offered(name, source, name) for name in names]
        only = self.options.agent
        return [each for each in found if not only or only in (each.model, each.agent)]

    async def find(self, runtime: Runtime, model: str) -> Offered:
        """Return the agent meant; the first when ``model`` is empty. Raises: NotFound."""
        offered = await self.offered(runtime)
        found = next((each for each in offered if model in ("", each.model)), None)
        if found is None:
            raise NotFound(f"the model {model!r} does not exist", code="model_not_found", param="model")
        return found

    async def begin(
        self, runtime: Runtime, request: ChatRequest, offered: Offered, conversation: str = ""
    ) -> Begun:
        """Have the agent answer a request, and return what :meth:`turn` follows.

        A request that names a kept conversation only has to bring what is new; without one it brings everything.

        Raises:
            Invalid: the request has nothing to answer.
            Conflict: a turn of the conversation is going on.
        """
        kept = self._claim(runtime, conversation)
        session: Session | None = None
        started = False
        try:
            session = await self._session(runtime, request, offered, kept)
            start = m.StartRun(
                source=offered.source,
                agent=offered.agent,
                messages=tuple(message.said() for message in request.split()[1]),
            )
            accepted = await session.start_run(start)
            started = True
            return Begun(session, accepted, kept)
        finally:
            if not started:
                self._release(runtime, kept, session)

    @asynccontextmanager
    async def turn(self, runtime: Runtime, begun: Begun) -> AsyncGenerator[Turn]:
        """Follow a turn for the block. Cancellation: its run is cancelled."""
        session, kept, turn = begun.session, begun.kept, None
        try:
            async with session.follow(begun.accepted.after) as follower:
                deadline = trio.current_time() + self.options.request_seconds
                turn = Turn(session, RunFollower(follower, begun.accepted.run_id), deadline)
                yield turn
        finally:
            unneeded: Session | None = session
            if kept is not None and turn is not None and turn.ended and turn.failure is None:
                unneeded = runtime.session(kept.session) if kept.session else None
                kept.session = session.id
            self._release(runtime, kept, unneeded)

    def _release(self, runtime: Runtime, kept: _Kept | None, unneeded: Session | None) -> None:
        if unneeded is not None:
            _delete(unneeded)
        if kept is not None:
            kept.busy_until = -math.inf
            self._tidy(runtime)

    async def _session(
        self, runtime: Runtime, request: ChatRequest, offered: Offered, kept: _Kept | None
    ) -> Session:
        """Return a new session with everything said before the newest messages."""
        before: Sequence[m.HistoryMessage]
        if kept is not None and kept.session:
            before = (await runtime.session(kept.session).view()).messages
        else:
            before = [message.stored(at) for at, message in enumerate(request.split()[0], 1)]
        template = m.Template(title="chat", safety_policy="autonomous" if self.options.autonomous else "")
        created = await runtime.create(template, history=before)
        return runtime.session(created.id, offered.source, offered.agent)

    def _claim(self, runtime: Runtime, conversation: str) -> _Kept | None:
        if not conversation or not self.options.conversations_max:
            return None
        self._tidy(runtime)
        kept = self._kept.setdefault(conversation, _Kept())
        now = trio.current_time()
        if now < kept.busy_until:
            raise Conflict("a turn of this conversation is going on")
        self._kept.move_to_end(conversation)
        # A client that left before its turn was followed must not lock its conversation for ever.
        kept.busy_until, kept.used = now + self.options.request_seconds, now
        return kept

    def _tidy(self, runtime: Runtime) -> None:
        """Let go of what is too old, or too many; a conversation in use stays."""
        now = trio.current_time()
        for name, kept in list(self._kept.items()):
            old = now - kept.used > self.options.conversation_ttl
            if now >= kept.busy_until and (
                old or not kept.session or len(self._kept) > self.options.conversations_max
            ):
                del self._kept[name]
                if kept.session:
                    _delete(runtime.session(kept.session))


def _delete(session: Session) -> None:
    """Delete a session that nobody will ask for, cancelling what runs in it. Checkpoint: never."""
    with suppress(MailboxFull, ActorStopped):
        session.ref.tell(m.DeleteSession())
