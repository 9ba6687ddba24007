"""Messages that only this process sends its session actors: what its own work reports, and what others ask of it."""

from __future__ import annotations

from collections.abc import Sequence

from actors.agent.messages import RunEvent
from actors.kernel.message import Control, Request
from actors.kernel.work import Outcome
from actors.session import messages as m
from actors.session.approvals import Question
from actors.tools.tool import Elicitation, ElicitationReply


class RunFinished(Control, frozen=True):
    """The run's work ended, one way or another."""

    run_id: str
    outcome: Outcome[None]


class Publish(Control, frozen=True):
    """Put an event that happened elsewhere in the process on this session's stream, if a run is active."""

    event: m.PlanChanged


class Elicit(Request[Question[ElicitationReply]], Control, frozen=True):
    """Put a background agent's question to the session's person; the question answered with is waited for outside.

    ``session`` is the background agent's own conversation.
    """

    agent: str
    session: str
    question: Elicitation


class KeepBackground(Control, frozen=True):
    """A background agent ended: its conversation becomes a sub-session (sessions contract 6.3)."""

    session: str
    agent: str
    title: str
    seconds: float
    events: Sequence[RunEvent]


class Recall(Control, frozen=True):
    """A background job ended: tell the session's agent, in the run going on or in one that this starts."""

    content: str


Command = (
    m.GetView
    | m.GetModels
    | m.StartRun
    | m.Send
    | m.ClearQueue
    | m.Note
    | m.CancelRun
    | m.Steer
    | m.FollowUp
    | m.Decide
    | m.Answer
    | m.SetTitle
    | m.SetPermissions
    | m.SetSafetyPolicy
    | m.ToggleYolo
    | m.SetStarred
    | m.SetTokens
    | m.AppendMessage
    | m.ReplaceMessage
    | m.AppendSummary
    | m.DeleteSession
    | RunFinished
    | Publish
    | Elicit
    | KeepBackground
    | Recall
)
"""Everything a session actor takes."""
