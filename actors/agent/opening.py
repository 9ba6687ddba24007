"""The events a run begins with. Pure: the owner records them before it answers the request, then runs the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from actors.agent.host import Incoming
from actors.agent.messages import (
    BudgetReported,
    RunEvent,
    RunStarted,
    TeamAnnounced,
    ToolsAnnounced,
    UserMessageAdded,
)
from actors.agent.team import Team


def opening_events(
    team: Team,
    agent: str,
    *,
    run_id: str,
    messages: Sequence[Incoming],
    new_message_id: Callable[[], int],
    position: int = -1,
    owner: str = "",
) -> list[RunEvent]:
    """Return a run's first events, ``TeamAnnounced`` to ``RunStarted``, in the order of sessions contract 2.3.

    Args:
        team: The agents.
        agent: The one that answers.
        run_id: The run's id.
        messages: What the person wrote; each becomes a message of the history.
        new_message_id: Gives their ids.
        position: Index the first message gets in the history; -1 when not known.
        owner: Name of the process that runs it.
    """
    box = team.toolbox(agent)
    events: list[RunEvent] = [TeamAnnounced(agent=agent, agents=team.listing(), current=agent)]
    if team.budgets:
        events.append(BudgetReported(agent=agent))
    events.append(ToolsAnnounced(agent=agent, available=len(box.tools()), loading=box.loading))
    for offset, message in enumerate(messages):
        events.append(
            UserMessageAdded(
                message_id=new_message_id(),
                content=message.content,
                parts=message.parts,
                position=position + offset if position >= 0 else -1,
                client_id=message.client_id,
            )
        )
    events.append(RunStarted(agent=agent, run_id=run_id, owner=owner))
    return events
