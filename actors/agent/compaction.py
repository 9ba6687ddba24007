"""Compaction: a summary made by the model takes the place of the older part of a conversation.

The plan is pure; carrying it out is one model call without tools, whose prompt never enters the history (D06-09). Any
doubt about the summary leaves the history as it was, and the outcome says so (D06-06).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from actors.agent import messages as ev
from actors.agent.context import RunContext, complete
from actors.agent.prompt import estimate_tokens, excerpt, message_tokens, text_size
from actors.agent.team import BoundModel
from actors.agent.transcript import SUMMARY_PREFIX, Entry, Transcript
from actors.errors import ActorsError
from actors.models.provider import Completed, Message, ModelError, ModelRequest
from actors.tools.tool import Definition

KEEP_TOKENS = 20_000
KEEP_SHARE = 0.2
"""What stays beside the summary: at most this many tokens and this share of the window."""
SUMMARY_TOKENS = 16_000
SUMMARY_SHARE = 0.25
"""How long a summary may get: at most this many tokens and this share of the window."""
RESULT_TOKENS = 1_000
"""How much of one message the summariser is shown; giant tool results must not break it (D05-11)."""
LATEST_TOKENS = 4_000
"""How much of the latest user message is repeated beside a summary that stands for it."""

INSTRUCTION = (
    "Summarise the conversation below so that the work can go on from the summary alone. Keep: what the user wants and "
    "any constraints, decisions made and why, what was done and found out (files, names, commands, values, errors), "
    "and what remains to be done. Write plain text, no preamble, and call no tools.\n\n<conversation>\n"
)


@dataclass(frozen=True)
class Plan:
    """Summarise ``head`` (rendered as text), keep entries from ``first_kept`` on.

    ``latest`` is the text of the latest user message when the summary stands for it, too.
    """

    first_kept: int
    head: tuple[Message, ...]
    latest: str = ""


def plan(transcript: Transcript, window: int) -> Plan | None:
    """Return where to cut; nothing when there is no older part to summarise.

    A cut never falls between a call and its result (D06-05). The latest user message stays in the kept tail when the
    tail has room for it, and is repeated beside the summary otherwise.

    Args:
        transcript: The conversation.
        window: The model's context limit in tokens.
    """
    entries = transcript.entries
    start = transcript.first_kept if transcript.summary else 0
    cut = _cut(entries, start, min(KEEP_TOKENS, int(window * KEEP_SHARE)))
    if cut <= start:
        return None
    head = [entry.message for entry in entries[start:cut] if entry.message.role != "system"]
    if transcript.summary:
        head.insert(0, Message("user", SUMMARY_PREFIX + transcript.summary))
    asked = max(
        (index for index in range(start, len(entries)) if entries[index].message.role == "user"), default=-1
    )
    latest = entries[asked].message.content if start <= asked < cut else ""
    return Plan(cut, tuple(head), excerpt(latest, LATEST_TOKENS))


def _cut(entries: Sequence[Entry], start: int, room: int) -> int:
    """Return the earliest index from which everything fits in ``room`` and which does not split a pair."""
    cut = len(entries)
    while cut > start and (room := room - message_tokens(entries[cut - 1].message)) >= 0:
        cut -= 1
    while cut < len(entries) and entries[cut].message.role == "tool":
        cut += 1
    return cut


async def compact_if_needed(
    ctx: RunContext, model: BoundModel, definitions: Mapping[str, Definition]
) -> None:
    """Compact when the next call would pass the agent's threshold of the model's window."""
    settings, window = ctx.spec.compaction, model.info.context_limit
    if not settings.enabled or window <= 0:
        return
    expected = expected_tokens(ctx.host.context_tokens(), ctx.host.transcript(), definitions)
    if expected > settings.threshold * window:
        await compact(ctx, model, trigger="threshold")


def expected_tokens(last: int, transcript: Transcript, definitions: Mapping[str, Definition]) -> int:
    """Return about how many tokens the next prompt takes: the last call's count plus what came since, else a guess."""
    if last <= 0:
        tools = sum(text_size(d.name + d.description + str(d.parameters)) // 4 for d in definitions.values())
        return estimate_tokens(transcript.messages()) + tools
    return last + sum(message_tokens(entry.message) for entry in transcript.entries[transcript.counted :])


async def compact(ctx: RunContext, model: BoundModel, *, trigger: str) -> bool:
    """Summarise the older part of the conversation; tell whether the history is shorter now.

    Args:
        ctx: The run.
        model: The model whose window is to be kept.
        trigger: ``threshold``, ``overflow`` or ``manual``.

    Cancellation: the history is unchanged.
    """
    host, agent = ctx.host, ctx.agent
    transcript = host.transcript()
    window = model.info.context_limit or 4 * KEEP_TOKENS
    planned = plan(transcript, window)
    await ctx.hook("before_compaction", {"trigger": trigger})
    early = await ctx.hook("pre_compact", {"trigger": trigger})
    if planned is None or early.blocked:
        if trigger != "threshold":
            host.emit(ev.CompactionEnded(agent=agent, outcome="skipped"))
        return False
    host.emit(ev.CompactionStarted(agent=agent, trigger=trigger))
    try:
        summariser = ctx.model(ctx.spec.compaction.model) if ctx.spec.compaction.model else model
        completed = await complete(summariser, _request(ctx, summariser, planned, window))
        summary = early.summary or _checked(completed, planned)
    except ActorsError as error:
        await host.commit(ev.CompactionEnded(agent=agent, outcome="failed", error=error.message))
        ctx.warn(f"The conversation could not be summarised: {error.message}")
        return False
    cost = summariser.info_of(completed.model).cost(completed.usage)
    ctx.meter.add(agent, completed.usage, cost, 0.0)
    if planned.latest:
        summary = f"{summary}\n\nThe user's latest message was:\n{planned.latest}"
    await host.commit(
        ev.Summarised(
            agent=agent,
            summary=summary,
            first_kept=planned.first_kept,
            cost=cost,
            model=completed.model or summariser.info.ref,
            usage=completed.usage,
        ),
        ev.CompactionEnded(agent=agent, outcome="applied"),
    )
    host.emit(
        ev.UsageReported(
            agent=agent,
            context_tokens=estimate_tokens(host.history()),
            context_limit=model.info.context_limit,
            cost=host.cost(),
            model=model.info.ref,
            compaction_threshold=ctx.spec.compaction.threshold,
        )
    )
    await ctx.hook("after_compaction", {"trigger": trigger, "summary": summary})
    return True


def _request(ctx: RunContext, summariser: BoundModel, planned: Plan, window: int) -> ModelRequest:
    own_window = summariser.info.context_limit or window
    limit = min(SUMMARY_TOKENS, int(window * SUMMARY_SHARE))
    room = max(own_window - limit - 1_000, 1_000)
    text = excerpt(ctx.scrub(render(planned.head)), room)
    return summariser.request(
        [Message("user", f"{INSTRUCTION}{text}\n</conversation>")],
        max_tokens=limit,
        response_schema=None,
        headers=ctx.host.facts.headers,
    )


def _checked(completed: Completed, planned: Plan) -> str:
    """Return the summary. Raises: ModelError when it is none."""
    summary = completed.message.content.strip()
    if completed.message.tool_calls:
        raise _unusable("the model called a tool instead of summarising")
    if completed.finish in ("refusal", "content_filter", "error", "length"):
        raise _unusable(f"the summary is not complete ({completed.finish})")
    if not summary:
        raise _unusable("the summary is empty")
    if text_size(summary) // 4 >= estimate_tokens(planned.head):
        raise _unusable("the summary is longer than what it stands for")
    return summary


def _unusable(why: str) -> ModelError:
    return ModelError(why, kind="protocol")


def render(messages: Sequence[Message]) -> str:
    """Return messages as text, long ones cut; text needs no pairing rules, tool definitions or roles."""
    lines: list[str] = []
    for message in messages:
        content = excerpt(message.content, RESULT_TOKENS)
        if message.role == "tool":
            lines.append(f"[tool result] {content}")
            continue
        if content:
            lines.append(f"[{message.role}] {content}")
        lines += [
            f"[{message.role} calls {call.name}] {excerpt(call.arguments, RESULT_TOKENS)}"
            for call in message.tool_calls
        ]
    return "\n".join(lines)
