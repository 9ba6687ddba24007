"""One agent at work on one task (or planning, or aggregating) by the agent loop: the loop's host, and what came of it.

The conversation lives in memory and ends with the attempt; what the execution must know of it is told to a
:class:`Watch`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import trio

from actors.agent import messages as ev
from actors.agent.host import Decision, Incoming, LivePolicy, RunFacts, RunHost
from actors.agent.messages import RunEvent, RunReason
from actors.agent.opening import opening_events
from actors.agent.run import run_agent
from actors.agent.team import Team, open_team
from actors.agent.transcript import Transcript
from actors.errors import ActorsError, Unsupported
from actors.kernel.gate import Gate
from actors.models.provider import Message, ToolCall
from actors.squad.purse import Account
from actors.tools.policy import Rules
from actors.tools.tool import Definition, Elicitation, ElicitationReply

JSON = Any
TARGET_LENGTH = 200


class Watch(Protocol):
    """What an execution wants to know of its workers while they work."""

    async def effect_started(self, tool: str, target: str) -> None:
        """Take note that a tool that changes things is about to run. Returns when that is recorded."""
        ...


class Unwatched:
    """Nobody needs to know: planning and aggregating change nothing."""

    async def effect_started(self, tool: str, target: str) -> None:
        """Take no note."""


@dataclass(frozen=True)
class Answer:
    """What came of a conversation: the last text, how it ended, and why when that is not ``normal``."""

    text: str
    reason: RunReason
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether the agent came to an end by itself."""
        return self.reason in ("normal", "terminal_tool")


class WorkerHost:
    """The agent loop's owner for one attempt; see :class:`~actors.agent.host.RunHost`.

    Args:
        facts: Ids and directories.
        rules: The agent's permission rules; there is nobody to ask, and what needs no asking runs.
        watch: Told of effects before they happen.
    """

    def __init__(self, facts: RunFacts, rules: Rules, watch: Watch) -> None:
        self.facts = facts
        self._rules = rules
        self._watch = watch
        self._transcript = Transcript()
        self._messages = 0
        self._scope = trio.CancelScope()
        self._stopping = ""
        self._in_step = False
        self._cost = 0.0
        self.text = ""
        self.error = ""
        self.calls: list[ToolCall] = []

    @property
    def stopped(self) -> str:
        """Why it was told to stop; empty when it was not."""
        return self._stopping

    def stop_after_step(self, reason: str) -> None:
        """End the attempt once the model call under way and its tools are done. Checkpoint: never."""
        self._stopping = reason
        if not self._in_step:
            self._scope.cancel(reason)

    async def converse(self, team: Team, agent: str, gate: Gate, prompts: Sequence[str]) -> RunReason | None:
        """Say the prompts and let the agent work until it is done; None when it was stopped."""
        reason: RunReason | None = None
        if self._stopping:
            return None
        with trio.CancelScope() as self._scope:
            async with open_team(team):
                await self.commit(
                    *opening_events(
                        team,
                        agent,
                        run_id=self.facts.run_id,
                        messages=[Incoming(prompt) for prompt in prompts],
                        new_message_id=self.new_message_id,
                    )
                )
                reason = await run_agent(self, team, agent, gate)
        return reason

    # --- the loop's side --------------------------------------------------------------------------------------------

    def emit(self, event: RunEvent) -> None:
        """Take an event."""
        self._take(event)

    async def commit(self, *events: RunEvent) -> None:
        """Take events; effects are recorded before they happen."""
        for event in events:
            if isinstance(event, ev.ToolStarted) and not event.definition.annotations.read_only_hint:
                await self._watch.effect_started(event.call.name, event.call.arguments[:TARGET_LENGTH])
            self._take(event)
        await trio.lowlevel.checkpoint_if_cancelled()

    def history(self) -> Sequence[Message]:
        """Return the conversation."""
        return self._transcript.messages()

    def transcript(self) -> Transcript:
        """Return the conversation."""
        return self._transcript

    def new_message_id(self) -> int:
        """Return the next id."""
        self._messages += 1
        return self._messages

    def policy(self) -> LivePolicy:
        """Return what holds for the agent."""
        return LivePolicy(mode="autonomous", rules=self._rules, interactive=False)

    async def approve(
        self,
        agent: str,
        call: ToolCall,
        definition: Definition,
        metadata: Mapping[str, str],
        *,
        still_needed: Callable[[], bool],
    ) -> Decision:
        """Refuse: nobody is there to ask."""
        del agent, call, definition, metadata, still_needed
        await trio.lowlevel.checkpoint()
        return Decision("rejected", "nobody can be asked in a squad's run")

    async def continue_past_limit(self, agent: str, limit: int) -> bool:
        """Refuse."""
        del agent, limit
        await trio.lowlevel.checkpoint()
        return False

    async def elicit(self, agent: str, call_id: str, question: Elicitation) -> ElicitationReply:
        """Decline: nobody is there to ask."""
        del agent, call_id, question
        await trio.lowlevel.checkpoint()
        return ElicitationReply("decline")

    def take_steering(self) -> Sequence[Incoming]:
        """Return nothing: directives are read before a task begins (squads contract 3.8)."""
        return ()

    def take_follow_up(self) -> Incoming | None:
        """Return nothing."""
        return None

    def model_override(self, agent: str) -> str:
        """Return nothing: the agent's own preference holds."""
        del agent
        return ""

    def cost(self) -> float:
        """Return what the attempt has cost, in USD."""
        return self._cost

    def context_tokens(self) -> int:
        """Return the tokens of the last model call."""
        return self._transcript.last_tokens

    async def open_child(self, agent: str, title: str, *, interactive: bool = True) -> RunHost:
        """Refuse. Raises: Unsupported: agents of a squad do not delegate; the plan does."""
        del title, interactive
        await trio.lowlevel.checkpoint()
        raise Unsupported(f"agents of a squad do not delegate to {agent}")

    async def close_child(self, child: RunHost) -> None:
        """Nothing was opened."""
        del child
        await trio.lowlevel.checkpoint()

    def _take(self, event: RunEvent) -> None:
        self._transcript.evolve(event)
        match event:
            case ev.AssistantMessageAdded():
                self._cost += event.cost
                self.calls += event.tool_calls
                if event.content.strip():
                    self.text = event.content
            case ev.StepStarted():
                self._in_step = True
            case ev.StepEnded():
                self._in_step = False
                if self._stopping:
                    self._scope.cancel(self._stopping)
            case ev.Failed():
                self.error = event.error
            case ev.RunEnded():
                self.error = event.detail or self.error
            case _:
                pass


async def work(
    make_team: Callable[[], Team],
    host: WorkerHost,
    gate: Gate,
    account: Account,
    *,
    prompt: str,
    seconds: float,
    again: Callable[[str], str] = lambda _: "",
) -> Answer:
    """Let an agent work on a prompt and return its answer; failures are answers, too.

    Args:
        make_team: Builds the team of one agent.
        host: Made for this call.
        gate: Looked at before each model call.
        account: Pays; its clock is the time limit, which stands still while money is short.
        prompt: What to do.
        seconds: The time limit.
        again: Given the answer's text, returns one more prompt, or nothing when it is fine as it is.

    Cancellation: nothing is left behind.
    """
    try:
        team = make_team()
    except ActorsError as error:
        await trio.lowlevel.checkpoint()
        return Answer("", "error", error.message)
    with trio.CancelScope(deadline=trio.current_time() + seconds) as clock:
        account.clock = clock
        reason = await host.converse(team, team.default, gate, [prompt])
        more = again(host.text) if reason in ("normal", "terminal_tool") else ""
        if more:
            reason = await host.converse(team, team.default, gate, [more])
        if reason is None:
            return Answer(host.text, "canceled", host.stopped)
        return Answer(host.text, reason, _why(reason, host))
    return Answer(host.text, "canceled", f"no result within {seconds:g} seconds")


def _why(reason: RunReason, host: WorkerHost) -> str:
    if reason in ("normal", "terminal_tool"):
        return ""
    if reason == "max_iterations":
        return "the agent made as many model calls as it may (maxAgentTurns) without coming to an end"
    return host.error or f"the agent's run ended: {reason}"
