"""A session as its user holds it: typed calls over the actor's commands, and its events as an async iterator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, Protocol, Self

from actors.agent.messages import AssistantMessageAdded, Event, Failed, RunEnded
from actors.errors import Unavailable
from actors.journal.ring import Frame
from actors.journal.tail import Follower, Gap
from actors.kernel.ref import Ref
from actors.session import messages as m


class RunFailed(Unavailable):
    """A run ended without an answer; the message says why."""

    code = "run_failed"


class Streams(Protocol):
    """What a session needs of its runtime."""

    def session_ref(self, session_id: str) -> Ref[Any]:
        """Return the session's actor."""
        ...

    def follow(self, session_id: str, after: int | None) -> AbstractAsyncContextManager[Follower]:
        """Follow the session's stream."""
        ...


class RunEvents:
    """The events of one run, from its first to its ``RunEnded``: ``async for event in session.run("…")``.

    The run starts with the first iteration (or on entering it as a context manager) and goes on by itself: leaving
    the loop early does not cancel it. Use ``async with session.run(…) as events`` when the loop may be left early,
    so that the subscription is closed at once.
    """

    def __init__(self, session: Session, start: m.StartRun) -> None:
        self._session = session
        self._start = start
        self._stack = AsyncExitStack()
        self._follower: Follower | None = None
        self._ready: list[Frame] = []
        self._ended = False
        self.accepted: m.RunAccepted | None = None

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        follower = self._follower or await self._open()
        while not self._ready:
            batch = None if self._ended else await follower.next()
            if batch is None:
                await self._stack.aclose()
                raise StopAsyncIteration
            if not isinstance(batch, Gap):
                self._ready = list(batch)
        event: Event = self._ready.pop(0).event
        if isinstance(event, RunEnded) and not event.session and self.accepted is not None:
            self._ended = event.run_id == self.accepted.run_id
            if self._ended:
                self._ready.clear()
        return event

    async def _open(self) -> Follower:
        self.accepted = await self._session.start_run(self._start)
        follow = self._session.follow(self.accepted.after)
        self._follower = await self._stack.enter_async_context(follow)
        return self._follower


class Session:
    """One session of a runtime. A handle: cheap, stateless, usable from any task.

    Args:
        session_id: Its id.
        streams: The runtime.
        source: The agent source its first run binds it to.
        agent: The agent its first run starts with; empty for the source's default.
    """

    def __init__(self, session_id: str, streams: Streams, source: str = "", agent: str = "") -> None:
        self.id = session_id
        self._streams = streams
        self._source = source
        self._agent = agent

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    @property
    def ref(self) -> Ref[Any]:
        """The session's actor."""
        return self._streams.session_ref(self.id)

    async def view(self) -> m.SessionView:
        """Return the session as it is now. Raises: NotFound."""
        return await self.ref.ask(m.GetView())

    def run(
        self,
        *messages: str | m.UserInput,
        model: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> RunEvents:
        """Run the agent on messages and iterate what happens.

        Args:
            *messages: What the user says; none continues with the history as it is.
            model: ``provider/model`` to use from now on for the current agent.
            headers: For ``${headers.NAME}`` in tools.

        Raises:
            Conflict: (from the first iteration) a run is going on.
            NotFound: the session or its agent source does not exist.
        """
        given = tuple(m.UserInput(each) if isinstance(each, str) else each for each in messages)
        start = m.StartRun(
            source=self._source, agent=self._agent, messages=given, model=model, headers=dict(headers or {})
        )
        return RunEvents(self, start)

    async def ask(
        self, *messages: str | m.UserInput, model: str = "", begun: Callable[[str], None] | None = None
    ) -> str:
        """Run the agent and return its last answer's text; ``begun`` is told the run's id.

        Raises:
            RunFailed: the run ended in an error.

        Cancellation: the run goes on.
        """
        answer, failure = "", ""
        async with self.run(*messages, model=model) as events:
            if begun is not None and events.accepted is not None:
                begun(events.accepted.run_id)
            async for event in events:
                if event.session:
                    continue
                if isinstance(event, AssistantMessageAdded):
                    answer = event.content or answer
                elif isinstance(event, Failed):
                    failure = event.error
                elif isinstance(event, RunEnded) and event.reason == "error":
                    raise RunFailed(failure or event.detail or "the run failed")
        return answer

    async def start_run(self, start: m.StartRun) -> m.RunAccepted:
        """Start a run and return its id and where its events begin."""
        return await self.ref.ask(start)

    def follow(self, after: int | None = None) -> AbstractAsyncContextManager[Follower]:
        """Follow the session's stream from number ``after`` on; ``None`` from its beginning."""
        return self._streams.follow(self.id, after)

    async def steer(self, *messages: str | m.UserInput) -> m.QueueAccepted:
        """Say something to the run going on, before its next model call. Raises: Overloaded, Conflict."""
        return await self.ref.ask(m.Steer(messages=_inputs(messages)))

    async def follow_up(self, *messages: str | m.UserInput, key: str = "") -> m.QueueAccepted:
        """Queue messages, each for a turn of its own; ``key`` makes a repeat harmless."""
        return await self.ref.ask(m.FollowUp(messages=_inputs(messages), idempotency_key=key))

    async def decide(
        self, confirmation: str, *, reason: str = "", tool_name: str = "", approval_id: str = ""
    ) -> None:
        """Answer the pending approval: ``approve``, ``reject``, ``approve-session``, ``approve-tool``."""
        await self.ref.ask(
            m.Decide(confirmation=confirmation, reason=reason, tool_name=tool_name, approval_id=approval_id)
        )

    async def answer(
        self, action: str, content: Mapping[str, object] | None = None, elicitation_id: str = ""
    ) -> None:
        """Answer a tool's question: ``accept`` with content, ``decline`` or ``cancel``."""
        await self.ref.ask(
            m.Answer(action=action, content=dict(content or {}), elicitation_id=elicitation_id)
        )

    async def cancel(self, reason: str = "cancelled") -> None:
        """Cancel the run going on; nothing when idle."""
        await self.ref.ask(m.CancelRun(reason=reason))

    async def set_title(self, title: str) -> None:
        """Rename the session."""
        await self.ref.ask(m.SetTitle(title=title))

    async def set_safety(self, policy: m.SafetyPolicy) -> None:
        """Set the safety mode: ``strict``, ``balanced`` or ``autonomous``; live."""
        await self.ref.ask(m.SetSafetyPolicy(safety_policy=policy))

    async def delete(self) -> None:
        """Delete the session with its history. Raises: NotFound."""
        await self.ref.ask(m.DeleteSession())


def _inputs(messages: Sequence[str | m.UserInput]) -> tuple[m.UserInput, ...]:
    return tuple(m.UserInput(each) if isinstance(each, str) else each for each in messages)
