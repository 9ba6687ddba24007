"""What a run asks of its owner: the door between the agent loop and the actor it works for.

The loop knows no journal, no mailbox and no session. It is given a :class:`RunHost` and tells it what happens. A
session actor, a squad task and a test each bring their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from actors.agent.messages import RunEvent
from actors.agent.transcript import Transcript
from actors.models.provider import Message, Part, ToolCall
from actors.tools.policy import Rules, SafetyMode
from actors.tools.tool import Definition, Elicitation, ElicitationReply

JSON = Any


class Incoming(Struct, frozen=True):
    """A steering or follow-up message taken from its queue."""

    content: str
    parts: tuple[Part, ...] = ()
    client_id: str = ""


class Decision(Struct, frozen=True):
    """The answer to one approval. ``arguments`` replaces the call's arguments when a person or hook changed them."""

    verdict: Literal["approved", "rejected", "expired", "cancelled"]
    reason: str = ""
    arguments: Mapping[str, JSON] | None = None


class LivePolicy(Struct, frozen=True):
    """The session's safety mode and rules at this instant; read again for each call, so that changes are live."""

    mode: SafetyMode
    rules: Rules
    interactive: bool = True


class RunLimits(Struct, frozen=True, kw_only=True):
    """A session's own limits; they come before the agent's, and 0 leaves the agent's as it is."""

    max_iterations: int = 0
    max_consecutive_tool_calls: int = 0
    max_old_tool_call_tokens: int = 0
    max_tool_result_tokens: int = 0


class RunFacts(Struct, frozen=True, kw_only=True):
    """What does not change during a run. ``root``: the session whose stream a sub-session's conversation is on."""

    session_id: str
    run_id: str
    working_dir: Path
    data_dir: Path
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: RunLimits = RunLimits()
    root: str = ""


class RunHost(Protocol):
    """The owner's side of a run. One per conversation: a sub-session gets its own from :meth:`open_child`."""

    facts: RunFacts

    def emit(self, event: RunEvent) -> None:
        """Publish an event whose loss in a crash would not falsify the history (deltas, announcements)."""
        ...

    async def commit(self, *events: RunEvent) -> None:
        """Record events; on return they and everything emitted before them are on disk, then published.

        Raises:
            JournalUnavailable: the disk failed; the run cannot go on.
        """
        ...

    def history(self) -> Sequence[Message]:
        """Return the conversation for the next prompt: summary first, pairs repaired, no system text."""
        ...

    def transcript(self) -> Transcript:
        """Return the conversation itself, to plan where it may be cut; read only."""
        ...

    def new_message_id(self) -> int:
        """Return an id for a message about to be recorded, unique within the session and its sub-sessions."""
        ...

    def policy(self) -> LivePolicy:
        """Return the safety mode and rules as they are now."""
        ...

    async def approve(
        self,
        agent: str,
        call: ToolCall,
        definition: Definition,
        metadata: Mapping[str, str],
        *,
        still_needed: Callable[[], bool],
    ) -> Decision:
        """Ask a person about one call and wait. One request is visible at a time; others wait their turn.

        ``still_needed`` is asked once the call's turn has come, right before the request would become visible: a call
        that has meanwhile become allowed (YOLO, a new rule) is approved without a prompt (contract 6.4).

        Cancellation: the request is closed as cancelled by the owner.
        """
        ...

    async def continue_past_limit(self, agent: str, limit: int) -> bool:
        """Announce that ``limit`` model calls were made and wait for a person to allow ten more (contract 1.8)."""
        ...

    async def elicit(self, agent: str, call_id: str, question: Elicitation) -> ElicitationReply:
        """Ask the person a tool's question and wait for the answer."""
        ...

    def take_steering(self) -> Sequence[Incoming]:
        """Remove and return every queued steering message."""
        ...

    def take_follow_up(self) -> Incoming | None:
        """Remove and return the next follow-up, if any."""
        ...

    def model_override(self, agent: str) -> str:
        """The session's ``provider/model`` for this agent, or empty."""
        ...

    def cost(self) -> float:
        """USD spent by the session so far, sub-sessions included."""
        ...

    def context_tokens(self) -> int:
        """Prompt plus output tokens of the last model call; 0 before the first."""
        ...

    async def open_child(self, agent: str, title: str, *, interactive: bool = True) -> RunHost:
        """Open a sub-session for ``agent``: its events carry its own id and flow on this session's stream."""
        ...

    async def close_child(self, child: RunHost) -> None:
        """Record that the sub-session is finished."""
        ...
