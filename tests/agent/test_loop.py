"""The loop's rules (agent-loop contract 1.2) and the order of a run's events (sessions contract 2.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from actors.agent import messages as ev
from actors.agent.host import Incoming
from actors.kernel.gate import Gate
from actors.models.provider import ModelError, ModelRequest
from actors.testing.host import RecordingHost
from actors.testing.model import Answer, ScriptedModel, call, calls, fail, reason, say
from actors.tools.tool import ToolContext, ToolResult
from tests.agent.kit import FunctionTool, agent, run, team_of


async def test_plain_answer_has_the_contracts_order_and_ends_with_run_ended() -> None:
    host, model = RecordingHost(), ScriptedModel([say("Hi there", chunks=2)])
    assert await run(host, team_of(model)) == "normal"
    assert host.kinds() == [
        "team_announced",
        "tools_announced",
        "user_message_added",
        "run_started",
        "tool_loading_started",
        "tool_loading_finished",
        "tools_announced",
        "step_started",
        "text_delta",
        "assistant_message_added",
        "usage_reported",
        "step_ended",
        "run_ended",
    ]
    assert "".join(delta.text for delta in host.all(ev.TextDelta)) == "Hi there"
    assert host.all(ev.AssistantMessageAdded)[0].content == "Hi there"


async def test_one_event_for_each_chunk_of_the_provider() -> None:
    host, model = RecordingHost(), ScriptedModel([say("abcdef", chunks=6)])
    await run(host, team_of(model))
    assert [delta.text for delta in host.all(ev.TextDelta)] == list("abcdef")


async def test_l1_each_call_sees_the_whole_conversation() -> None:
    model = ScriptedModel([call("echo", {"text": "x"}, id="c1"), say("done")])
    await run(RecordingHost(), team_of(model, agent(instruction="Be brief.")), "first", "second")
    roles = [message.role for message in model.requests[1].messages]
    assert roles == ["system", "user", "user", "assistant", "tool"]
    assert model.requests[1].messages[-1].content == "x"


async def test_l2_step_pairs_equal_model_calls() -> None:
    host = RecordingHost()
    model = ScriptedModel(
        [call("echo", {"text": "1"}), call("echo", {"text": "2"}), call("slow"), say("done")]
    )
    with trio.fail_after(5):
        await run(host, team_of(model))
    assert len(host.all(ev.StepStarted)) == len(host.all(ev.StepEnded)) == len(model.requests) == 4
    assert [step.step for step in host.all(ev.StepStarted)] == [step.step for step in host.all(ev.StepEnded)]


async def test_l3_only_a_step_without_tool_calls_ends_the_run() -> None:
    model = ScriptedModel([say("I will look.") + call("echo", {"text": "x"}), say("Found.")])
    assert await run(RecordingHost(), team_of(model)) == "normal"
    assert len(model.requests) == 2


async def test_a_finish_label_of_stop_does_not_hide_calls() -> None:
    host, model = RecordingHost(), ScriptedModel([call("echo", {"text": "x"}).ending("stop"), say("done")])
    await run(host, team_of(model))
    assert [returned.output for returned in host.all(ev.ToolReturned)] == ["x"]


async def test_l10_results_are_in_request_order_whatever_finishes_first(
    autojump_clock: trio.abc.Clock,
) -> None:
    host = RecordingHost()
    model = ScriptedModel(
        [calls([("slow", {"seconds": 3}), ("slow", {"seconds": 2}), ("echo", {"text": "e"})]), "ok"]
    )
    await run(host, team_of(model))
    assert [returned.output for returned in host.all(ev.ToolReturned)] == ["e", "slept 2", "slept 3"]
    assert [message.content for message in host.all(ev.ToolMessageAdded)] == ["slept 3", "slept 2", "e"]
    assert [m.content for m in model.requests[1].messages if m.role == "tool"] == ["slept 3", "slept 2", "e"]


async def test_l10_calls_of_one_step_run_side_by_side(autojump_clock: trio.abc.Clock) -> None:
    began = trio.current_time()
    model = ScriptedModel([calls([("slow", {"seconds": 2})] * 5), "ok"])
    await run(RecordingHost(), team_of(model))
    assert trio.current_time() - began < 3


async def test_l11_an_invented_tool_gets_a_failed_result_and_the_loop_goes_on() -> None:
    host, model = RecordingHost(), ScriptedModel([call("no_such"), say("sorry")])
    assert await run(host, team_of(model)) == "normal"
    returned = host.all(ev.ToolReturned)[0]
    assert returned.output == "Tool 'no_such' is not available. You can only use the tools provided to you."
    assert (returned.is_error, returned.outcome) == (True, "unknown")
    assert not host.all(ev.ToolStarted)


async def test_a_failing_tool_does_not_disturb_its_siblings() -> None:
    host, model = RecordingHost(), ScriptedModel([calls([("broken", {}), ("echo", {"text": "fine"})]), "ok"])
    await run(host, team_of(model))
    assert [message.content for message in host.all(ev.ToolMessageAdded)] == [
        "Error calling tool: it does not work",
        "fine",
    ]


async def test_no_output_is_told_to_the_model_and_stays_empty_in_the_event() -> None:
    host, model = RecordingHost(), ScriptedModel([call("echo"), "ok"])
    await run(host, team_of(model))
    assert host.all(ev.ToolReturned)[0].output == ""
    assert host.all(ev.ToolMessageAdded)[0].content == "(no output)"


async def test_arguments_that_are_no_json_are_an_error_result() -> None:
    host, model = RecordingHost(), ScriptedModel([call("echo", '{"text": '), "ok"])
    assert await run(host, team_of(model)) == "normal"
    assert host.all(ev.ToolReturned)[0].output.startswith(
        "Error calling tool: the arguments are not valid JSON"
    )
    assert not host.all(ev.ToolStarted)


async def test_a_call_cut_off_by_the_output_limit_is_not_run_and_the_model_is_told() -> None:
    host = RecordingHost()
    model = ScriptedModel([call("write", {"text": "half"}).ending("length"), say("I will write less.")])
    assert await run(host, team_of(model)) == "normal"
    assert not host.all(ev.ToolStarted)
    assert not host.all(ev.ApprovalRequested)
    assert "output limit" in model.requests[1].messages[-1].content


async def test_tool_started_is_on_disk_before_the_tool_runs() -> None:
    host = RecordingHost()
    seen: list[bool] = []

    async def look(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        await trio.lowlevel.checkpoint()
        seen.append(any(isinstance(event, ev.ToolStarted) for event in host.log.events[: host.log.committed]))
        return ToolResult("ok")

    model = ScriptedModel([call("look"), "ok"])
    await run(host, team_of(model, agent(tools=[FunctionTool("look", look)])))
    assert seen == [True]


async def test_a_terminal_tool_that_succeeds_ends_the_run_without_another_model_call() -> None:
    host, model = RecordingHost(), ScriptedModel([call("finish")])
    assert await run(host, team_of(model)) == "terminal_tool"
    assert host.kinds()[-2:] == ["step_ended", "run_ended"]


async def test_a_terminal_tool_that_fails_does_not_end_the_run() -> None:
    model = ScriptedModel([call("finish", {"fail": True}), say("try again")])
    assert await run(RecordingHost(), team_of(model)) == "normal"
    assert len(model.requests) == 2


async def test_steering_is_seen_by_the_next_model_call_and_prevents_the_stop() -> None:
    host = RecordingHost()
    host.steering = [Incoming("early 1"), Incoming("early 2")]

    def answer(request: ModelRequest) -> Answer:
        if len(model.requests) == 1:
            host.steering.append(Incoming("late", client_id="q7"))
        return say(f"answer {len(model.requests)}")

    model = ScriptedModel(answer)
    assert await run(host, team_of(model)) == "normal"
    assert [m.content for m in model.requests[0].messages] == ["Hello", "early 1\n", "early 2"]
    assert model.requests[1].messages[-1].content == "late"
    steered = [event for event in host.all(ev.UserMessageAdded) if event.delivery == "steering"]
    assert [event.client_id for event in steered] == ["", "", "q7"]


async def test_each_follow_up_gets_a_turn_of_its_own_in_the_same_run() -> None:
    host, model = RecordingHost(), ScriptedModel(["one", "two", "three"])
    host.follow_ups = [Incoming("next"), Incoming("last")]
    assert await run(host, team_of(model)) == "normal"
    assert [m.content for m in host.history()] == ["Hello", "one", "next", "two", "last", "three"]
    assert len(host.all(ev.RunEnded)) == 1


async def test_a_closed_gate_holds_the_next_step_only(autojump_clock: trio.abc.Clock) -> None:
    host, gate = RecordingHost(), Gate()
    model = ScriptedModel([call("slow", {"seconds": 1}), "done"])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: run(host, team_of(model), gate=gate))
        await trio.sleep(0.5)
        gate.close()
        await trio.sleep(100)
        assert len(host.all(ev.ToolMessageAdded)) == 1
        assert len(model.requests) == 1
        gate.open()
    assert host.all(ev.RunEnded)[0].reason == "normal"


async def test_an_empty_answer_is_warned_about_and_not_stored() -> None:
    host, model = RecordingHost(), ScriptedModel([reason("hm")])
    assert await run(host, team_of(model)) == "normal"
    assert not host.all(ev.AssistantMessageAdded)
    assert [event.message for event in host.all(ev.Warned)] == ["The model gave an empty answer."]
    assert len(host.all(ev.UsageReported)) == 1


async def test_a_failed_model_call_keeps_the_partial_text_and_ends_with_error() -> None:
    host = RecordingHost()
    error = ModelError("overloaded", kind="rate_limited", status=429)
    model = ScriptedModel([say("Half an ans") + fail(error), "recovered"])
    team = team_of(model)
    assert await run(host, team) == "error"
    assert host.kinds()[-4:] == ["assistant_message_added", "failed", "step_ended", "run_ended"]
    assert host.all(ev.AssistantMessageAdded)[0].interrupted
    failed = host.all(ev.Failed)[0]
    assert (failed.error, failed.error_code, failed.status) == ("overloaded", "rate_limited", 429)
    assert await run(host, team, "again") == "normal"


async def test_an_error_inside_a_tool_call_runs_no_tool() -> None:
    host = RecordingHost()
    error = ModelError("overloaded", kind="overloaded")
    model = ScriptedModel([call("echo", {"text": "abcdefgh"}, chunks=3) + fail(error)])
    assert await run(host, team_of(model)) == "error"
    assert not host.all(ev.ToolStarted)
    assert not host.all(ev.AssistantMessageAdded)


async def test_reasoning_goes_back_to_the_model_and_never_shows_as_text() -> None:
    host = RecordingHost()
    model = ScriptedModel([reason("thinking", signature="sig") + call("echo", {"text": "x"}), "done"])
    await run(host, team_of(model))
    sent = next(m for m in model.requests[1].messages if m.tool_calls)
    assert (sent.reasoning, sent.reasoning_signature, sent.content) == ("thinking", "sig", "")
    assert not any("thinking" in delta.text for delta in host.all(ev.TextDelta))


async def test_calls_without_or_with_equal_ids_get_ids_of_their_own() -> None:
    host = RecordingHost()
    model = ScriptedModel(
        [calls([call("echo", {"text": "1"}, id="same"), call("echo", {"text": "2"}, id="same")]), "done"]
    )
    assert await run(host, team_of(model)) == "normal"


async def test_usage_and_cost_are_reported_after_each_call() -> None:
    host, model = RecordingHost(), ScriptedModel([call("echo"), "done"])
    await run(host, team_of(model))
    reports = host.all(ev.UsageReported)
    assert [report.context_tokens for report in reports] == [10, 10]
    assert reports[0].last_cost == (10 * 1.0 + 5 * 2.0) / 1_000_000
    assert reports[1].cost == 2 * reports[0].last_cost
    assert host.cost() == reports[1].cost
