"""Naming a conversation: one model call beside the run, whose prompt never enters the history."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from actors.agent.context import complete
from actors.agent.prompt import excerpt
from actors.agent.redact import redact
from actors.agent.team import Team
from actors.errors import ActorsError
from actors.models.provider import Message
from actors.tools.text import clean_text

DEADLINE = 30.0
"""Seconds a title may take (sessions contract 6.8)."""
MAX_TOKENS = 20
MAX_CHARACTERS = 200
INPUT_TOKENS = 2_000
_SYSTEM = (
    "You write titles for conversations. Answer with one title of at most 50 characters, on one line, in the language "
    "of the messages, without quotes or explanation."
)


async def generate_title(team: Team, agent: str, override: str, messages: Sequence[Message]) -> str:
    """Return a title for a conversation that begins with ``messages``; empty when it fails, for whatever reason.

    Args:
        team: The agents.
        agent: The one that answers; its title model is asked, else its own.
        override: The session's model for this agent, or empty.
        messages: What the person wrote.

    Cancellation: the call is abandoned.
    """
    texts = [message.content.strip() for message in messages if message.content.strip()]
    if not texts:
        return ""
    spec = team.agents[agent]
    text = excerpt("\n\n".join(texts), INPUT_TOKENS)
    with trio.move_on_after(DEADLINE):
        try:
            model = team.bind(agent, spec.title_model or override)
            clean = redact(clean_text(text)) if spec.redact_secrets else clean_text(text)
            request = model.request(
                [Message("system", _SYSTEM), Message("user", clean)],
                max_tokens=MAX_TOKENS,
                thinking="none",
                response_schema=None,
            )
            completed = await complete(model, request)
        except ActorsError:
            return ""
        return first_line(completed.message.content)
    return ""


def first_line(text: str) -> str:
    """Return the first line that says something, trimmed."""
    lines = (line.strip() for line in clean_text(text).splitlines())
    return next((line[:MAX_CHARACTERS] for line in lines if line), "")
