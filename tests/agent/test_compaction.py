"""Compaction: where it cuts, when it happens, and that a doubtful summary changes nothing."""

from __future__ import annotations

import pytest

from actors.agent import messages as ev
from actors.agent.compaction import plan
from actors.agent.prompt import estimate_tokens
from actors.agent.team import CompactionSettings
from actors.agent.transcript import Transcript
from actors.models.provider import ModelError, ModelInfo, ToolCall, Usage
from actors.testing.host import RecordingHost
from actors.testing.model import Answer, ScriptedModel, call, fail, say
from actors.testing.strict import check_history
from tests.agent.kit import agent, run, team_of

SMALL = ModelInfo("scripted", "test", context_limit=1_000)
LONG = "word " * 800
OVERFLOW = ModelError("too long", kind="context_exceeded", status=400)


def long_history(host: RecordingHost) -> None:
    for number in range(4):
        host.emit(ev.UserMessageAdded(message_id=host.new_message_id(), content=f"question {number} {LONG}"))
        host.emit(
            ev.AssistantMessageAdded(message_id=host.new_message_id(), content=f"answer {number} {LONG}")
        )


async def test_above_the_threshold_the_history_is_summarised_before_the_call() -> None:
    host, model = RecordingHost(), ScriptedModel(["THE SUMMARY", "answer"])
    long_history(host)
    entries = len(host.transcript().entries)
    assert await run(host, team_of(model, info=SMALL), "now") == "normal"
    assert [e.outcome for e in host.all(ev.CompactionEnded)] == ["applied"]
    assert model.requests[0].tools == ()
    prompt = model.requests[1].messages
    assert prompt[0].content.startswith("Session Summary: THE SUMMARY")
    assert prompt[-1].content == "now"
    assert len(host.transcript().entries) == entries + 2
    kinds = host.kinds()
    assert kinds[kinds.index("compaction_started") :][:4] == [
        "compaction_started",
        "summarised",
        "compaction_ended",
        "usage_reported",
    ]
    assert len(host.all(ev.StepStarted)) == 1


@pytest.mark.parametrize(
    "summary",
    [
        say(""),
        say("  \n "),
        fail(ModelError("down", kind="server")),
        fail(ModelError("slow down", kind="rate_limited", status=429)),
        call("echo", {"text": "x"}),
        say("x" * 200_000),
        say("half a summ").ending("length"),
    ],
    ids=["empty", "blank", "error", "429", "tool call", "too long", "cut off"],
)
async def test_a_doubtful_summary_leaves_the_history_as_it_was(summary: Answer) -> None:
    host, model = RecordingHost(), ScriptedModel([summary, "answer"])
    long_history(host)
    before = [message.content for message in host.history()]
    assert await run(host, team_of(model, info=SMALL), "now") == "normal"
    assert [e.outcome for e in host.all(ev.CompactionEnded)] == ["failed"]
    assert not host.all(ev.Summarised)
    assert [message.content for message in host.history()] == [*before, "now", "answer"]
    sent = " ".join(message.content for message in model.requests[1].messages)
    assert "Summarise the conversation" not in sent


async def test_an_overflow_compacts_once_and_retries_within_the_same_step() -> None:
    host = RecordingHost()
    long_history(host)
    model = ScriptedModel([fail(OVERFLOW), "SUMMARY", "answer"])
    spec = agent(compaction=CompactionSettings(threshold=1.0))
    large = ModelInfo("scripted", "test", context_limit=9_000)
    assert await run(host, team_of(model, spec, info=large), "now") == "normal"
    assert len(host.all(ev.StepStarted)) == len(host.all(ev.StepEnded)) == 1
    assert [e.trigger for e in host.all(ev.CompactionStarted)] == ["overflow"]


async def test_an_overflow_that_stays_is_an_error_with_its_own_code() -> None:
    host = RecordingHost()
    long_history(host)
    model = ScriptedModel([fail(OVERFLOW), "SUMMARY", fail(OVERFLOW)])
    large = ModelInfo("scripted", "test", context_limit=20_000)
    assert await run(host, team_of(model, info=large), "now") == "error"
    assert host.all(ev.Failed)[0].error_code == "context_exceeded"
    assert len(model.requests) == 3


async def test_without_a_known_window_or_when_switched_off_nothing_is_compacted() -> None:
    for spec, info in (
        (agent(), ModelInfo("scripted", "test")),
        (agent(compaction=CompactionSettings(enabled=False)), SMALL),
    ):
        host, model = RecordingHost(), ScriptedModel(["answer"])
        long_history(host)
        await run(host, team_of(model, spec, info=info), "now")
        assert not host.all(ev.CompactionStarted)


async def test_a_huge_tool_result_does_not_break_the_summary() -> None:
    host = RecordingHost()
    host.emit(ev.UserMessageAdded(message_id=1, content="go"))
    host.emit(ev.AssistantMessageAdded(message_id=2, tool_calls=(ToolCall("c", "t", "{}"),)))
    host.emit(ev.ToolMessageAdded(message_id=3, call_id="c", content="\N{PILE OF POO}" * 1_000_000))
    model = ScriptedModel(["SUMMARY", "answer"])
    assert await run(host, team_of(model, info=SMALL), "now") == "normal"
    assert estimate_tokens(model.requests[0].messages) < 1_000 + 1_000
    assert host.all(ev.Summarised)


async def test_the_latest_user_message_survives_when_the_work_after_it_is_long() -> None:
    host = RecordingHost()
    host.emit(ev.UserMessageAdded(message_id=1, content="old " + LONG))
    host.emit(ev.UserMessageAdded(message_id=2, content="Do exactly this."))
    for number in range(6):
        host.emit(ev.AssistantMessageAdded(message_id=9, tool_calls=(ToolCall(f"c{number}", "t", "{}"),)))
        host.emit(ev.ToolMessageAdded(message_id=9, call_id=f"c{number}", content=LONG))
    planned = plan(host.transcript(), 1_000)
    assert planned is not None
    assert planned.latest == "Do exactly this."


def asking(transcript: Transcript, count: int, size: int) -> None:
    ids = [f"{len(transcript.entries)}-{n}" for n in range(count)]
    transcript.evolve(ev.AssistantMessageAdded(tool_calls=tuple(ToolCall(i, "t", "{}") for i in ids)))
    for call_id in ids:
        transcript.evolve(ev.ToolMessageAdded(call_id=call_id, content="r" * size))


@pytest.mark.parametrize("parallel", [1, 2, 3, 4])
@pytest.mark.parametrize("window", range(100, 6_000, 370))
def test_a_cut_never_falls_between_a_call_and_its_result(parallel: int, window: int) -> None:
    transcript = Transcript()
    transcript.evolve(ev.UserMessageAdded(content="start"))
    for round_ in range(5):
        asking(transcript, parallel, 400 + 100 * round_)
    transcript.evolve(ev.UserMessageAdded(content="latest"))
    planned = plan(transcript, window)
    if planned is None:
        return
    check_history([m for m in planned.head if m.role != "system"])
    kept = transcript.entries[planned.first_kept :]
    assert not kept or kept[0].message.role != "tool"
    transcript.evolve(ev.Summarised(summary="S", first_kept=planned.first_kept))
    check_history(transcript.messages())


def test_what_is_kept_is_at_most_a_fifth_of_the_window() -> None:
    transcript = Transcript()
    for number in range(100):
        transcript.evolve(ev.UserMessageAdded(content=f"{number} " + "x" * 400))
    planned = plan(transcript, 5_000)
    assert planned is not None
    assert estimate_tokens(e.message for e in transcript.entries[planned.first_kept :]) <= 1_000
    assert planned.latest == ""


async def test_a_second_compaction_includes_the_first_summary() -> None:
    host, model = RecordingHost(), ScriptedModel(["FIRST", "a", "SECOND", "b"])
    long_history(host)
    await run(host, team_of(model, info=SMALL), "now")
    long_history(host)
    await run(host, team_of(model, info=SMALL), "later")
    assert "Session Summary: FIRST" in model.requests[2].messages[0].content
    assert host.history()[0].content == "Session Summary: SECOND"


async def test_a_compactions_price_counts() -> None:
    host = RecordingHost()
    long_history(host)
    priced = ModelInfo("scripted", "test", context_limit=1_000, input_cost=1.0)
    model = ScriptedModel([say("S").ending(usage=Usage(input_tokens=1_000_000)), "answer"])
    await run(host, team_of(model, info=priced), "now")
    assert host.all(ev.Summarised)[0].cost == 1.0
    assert host.cost() > 1.0
