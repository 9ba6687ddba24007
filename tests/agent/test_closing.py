"""A run that is cancelled, crashes or is found unfinished leaves a history every provider accepts (D05-06)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
import trio

from actors.agent import messages as ev
from actors.agent.closing import CANCELED, NOT_STARTED, OUTCOME_UNKNOWN, OpenRuns
from actors.agent.messages import RunEvent
from actors.models.provider import Usage
from actors.testing.host import Log, RecordingHost, approve_all
from actors.testing.model import Answer, ScriptedModel, call, calls, hang, reason, say, wait
from actors.testing.strict import check_history
from actors.tools.tool import Elicitation, ElicitationReply, ToolContext, ToolResult
from tests.agent.kit import FunctionTool, agent, run, team_of

USAGE = Usage(input_tokens=10, output_tokens=5)


def script() -> list[Answer | str]:
    """Answer with pauses everywhere, so that a cancellation can fall anywhere."""
    return [
        reason("hm", chunks=2, every=0.7) + say("I look around. ", chunks=3, every=0.7) + wait(0.5)
        + calls([("slow", {"seconds": 2}), ("echo", {"text": "a"}), ("write", {}), ("slow", {"seconds": 4})]),
        wait(0.6) + call("transfer_task", {"agent": "helper", "task": "t", "expected_output": "o"}),
        wait(0.4) + say("child says", chunks=3, every=0.5) + call("slow", {"seconds": 3}),
        wait(0.4) + say("child done", chunks=2, every=0.5),
        wait(0.3) + say("All done.", chunks=4, every=0.5),
    ]  # fmt: skip


def balance(events: list[RunEvent], begin: type, end: type) -> bool:
    for session in {event.session for event in events}:
        begun = sum(isinstance(e, begin) and e.session == session for e in events)
        ended = sum(isinstance(e, end) and e.session == session for e in events)
        if begun != ended:
            return False
    return True


def check_whole(log: Log) -> None:
    """Hold what must be true of a stream whose runs are over."""
    events = log.events
    assert not len(log.open)
    assert balance(events, ev.RunStarted, ev.RunEnded)
    assert balance(events, ev.StepStarted, ev.StepEnded)
    assert balance(events, ev.ApprovalRequested, ev.ApprovalDecided)
    assert balance(events, ev.ToolReturned, ev.ToolMessageAdded)
    asked = [call.id for e in events if isinstance(e, ev.AssistantMessageAdded) for call in e.tool_calls]
    answered = [e.call_id for e in events if isinstance(e, ev.ToolMessageAdded)]
    assert sorted(asked) == sorted(answered)
    assert sum(e.switching for e in events if isinstance(e, ev.AgentSwitched)) * 2 == sum(
        isinstance(e, ev.AgentSwitched) for e in events
    )
    for session, transcript in log.transcripts.items():
        messages = [m for entry in transcript.entries if (m := entry.message).role != "system"]
        assert tuple(m for m in messages if m.content or m.tool_calls) == transcript.messages(), session
        if messages:
            check_history(transcript.messages())


@pytest.mark.parametrize("seed", range(30))
async def test_cancelled_at_a_random_point_the_next_prompt_succeeds(
    seed: int, autojump_clock: trio.abc.Clock
) -> None:
    moment = random.Random(seed).uniform(0.0, 16.0)
    host = RecordingHost(approver=approve_all)
    model = ScriptedModel(script())
    team = team_of(model, agent(sub_agents=("helper",)), agent("helper"))
    with trio.move_on_after(moment):
        await run(host, team)
    await host.close("canceled")
    check_whole(host.log)
    calls_before = len(model.requests)
    model.extend("fine")
    follow_up = ScriptedModel(["fine"])
    assert await run(host, team_of(follow_up), "go on") == "normal"
    assert len(model.requests) == calls_before
    check_whole(host.log)


@pytest.mark.parametrize("cut", range(0, 60, 2))
async def test_a_log_that_ends_anywhere_is_closed_when_it_is_found(
    cut: int, autojump_clock: trio.abc.Clock
) -> None:
    whole = RecordingHost(approver=approve_all)
    team = team_of(ScriptedModel(script()), agent(sub_agents=("helper",)), agent("helper"))
    await run(whole, team)
    found = RecordingHost()
    for event in whole.log.events[: len(whole.log.events) * cut // 60]:
        found.log.add(event)
    found.log.last_message_id = whole.log.last_message_id
    await found.close("interrupted")
    check_whole(found.log)


async def test_text_that_was_said_stays_and_is_marked_interrupted(autojump_clock: trio.abc.Clock) -> None:
    host = RecordingHost()
    with trio.move_on_after(1):
        await run(host, team_of(ScriptedModel([say("So far", chunks=2) + hang()])))
    await host.close("interrupted")
    message = host.all(ev.AssistantMessageAdded)[0]
    assert (message.content, message.interrupted) == ("So far", True)
    assert host.all(ev.RunEnded)[0].reason == "interrupted"
    assert host.history()[-1].content == "So far"


async def test_a_call_half_written_by_the_model_never_enters_the_history(
    autojump_clock: trio.abc.Clock,
) -> None:
    host = RecordingHost()
    with trio.move_on_after(1):
        await run(host, team_of(ScriptedModel([call("echo", {"text": "x"}, chunks=2) + hang()])))
    await host.close("canceled")
    assert not host.all(ev.AssistantMessageAdded)


async def test_cancelled_calls_tell_what_became_of_them(autojump_clock: trio.abc.Clock) -> None:
    host = RecordingHost()
    model = ScriptedModel([calls([("slow", {"seconds": 9}), ("echo", {"text": "done"})])])
    with trio.move_on_after(1):
        await run(host, team_of(model))
    await host.close("canceled")
    assert [m.content for m in host.all(ev.ToolMessageAdded)] == [CANCELED, "done"]
    assert [r.outcome for r in host.all(ev.ToolReturned)] == ["done", "cancelled"]


async def test_after_a_crash_a_started_call_is_told_apart_from_one_that_never_began(
    autojump_clock: trio.abc.Clock,
) -> None:
    host = RecordingHost()
    model = ScriptedModel([calls([("slow", {"seconds": 9}), ("write", {"text": "x"})])])
    with trio.move_on_after(1):
        await run(host, team_of(model))
    await host.close("interrupted")
    assert [m.content for m in host.all(ev.ToolMessageAdded)] == [OUTCOME_UNKNOWN, NOT_STARTED]
    assert host.all(ev.ApprovalDecided)[0].verdict == "cancelled"


async def test_open_questions_of_tools_are_withdrawn(autojump_clock: trio.abc.Clock) -> None:
    async def ask(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        await context.elicit(Elicitation("Really?"))
        return ToolResult("never")

    host = RecordingHost()

    async def never(agent: str, call_id: str, question: Elicitation) -> ElicitationReply:
        await host.commit(ev.ElicitationRequested(agent=agent, elicitation_id="e1", call_id=call_id))
        await trio.sleep_forever()

    host.elicit = never
    with trio.move_on_after(1):
        await run(host, team_of(ScriptedModel([call("ask")]), agent(tools=[FunctionTool("ask", ask)])))
    await host.close("canceled")
    assert [(e.elicitation_id, e.action) for e in host.all(ev.ElicitationAnswered)] == [("e1", "cancel")]


async def test_stop_reaches_sub_agents_and_no_model_call_begins_afterwards(
    autojump_clock: trio.abc.Clock,
) -> None:
    host = RecordingHost()
    model = ScriptedModel(
        [
            call("transfer_task", {"agent": "b", "task": "t", "expected_output": ""}),
            call("transfer_task", {"agent": "c", "task": "t", "expected_output": ""}),
            say("deep") + hang(),
        ]
    )
    team = team_of(model, agent("a", sub_agents=("b",)), agent("b", sub_agents=("c",)), agent("c"))
    with trio.move_on_after(2):
        await run(host, team)
    assert model.outcomes[-1] == "abandoned"
    await host.close("canceled")
    assert [end.reason for end in host.all(ev.RunEnded)] == ["canceled"] * 3
    assert [end.session for end in host.all(ev.RunEnded)] == ["child-1-of-child-1", "child-1", ""]
    check_whole(host.log)
    await trio.sleep(100)
    assert len(model.requests) == 3


async def test_a_bug_is_recorded_as_a_failed_run() -> None:
    host = RecordingHost()
    await host.begin(team_of(ScriptedModel([])), "root", "x")
    await host.close("error", "it broke")
    assert [(f.error, f.error_code) for f in host.all(ev.Failed)] == [("it broke", "internal")]
    assert host.all(ev.RunEnded)[0].reason == "error"


async def test_closing_twice_adds_nothing() -> None:
    host = RecordingHost()
    await host.begin(team_of(ScriptedModel([])), "root", "x")
    await host.close("canceled")
    before = len(host.log.events)
    await host.close("canceled")
    assert len(host.log.events) == before


def test_events_outside_a_run_open_nothing() -> None:
    runs = OpenRuns()
    runs.evolve(ev.TextDelta(text="x"))
    runs.evolve(ev.RunEnded(run_id="r"))
    assert not len(runs)
