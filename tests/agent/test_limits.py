"""What ends a run besides the model: iteration limit, loop detector, budgets, hooks, unusable models."""

from __future__ import annotations

import pytest
import trio

from actors.agent import messages as ev
from actors.agent.budget import Meter
from actors.agent.context import Autopilot, RunOptions
from actors.agent.guard import LoopDetector
from actors.agent.hooks import HookSpec
from actors.agent.host import LivePolicy
from actors.agent.team import AgentSpec, BoundModel, BudgetSpec, Team
from actors.agent.toolbox import ToolsetSpec
from actors.errors import Invalid
from actors.models.provider import ToolCall, Usage
from actors.testing.host import RecordingHost, approve_all
from actors.testing.model import ScriptedModel, call, hang, say
from actors.tools.policy import Rules
from tests.agent.kit import ListToolset, agent, run, team_of


def endless(model_calls: int = 1000) -> ScriptedModel:
    count = iter(range(model_calls))
    return ScriptedModel(lambda _: call("echo", {"text": str(next(count))}))


async def test_at_the_iteration_limit_a_no_stores_the_stop_message() -> None:
    host, model = RecordingHost(), endless()
    assert await run(host, team_of(model, agent(max_iterations=2))) == "max_iterations"
    assert len(model.requests) == 2
    assert [event.limit for event in host.all(ev.IterationLimitReached)] == [2]
    text = "Execution stopped after reaching the configured max_iterations limit (2)."
    assert host.all(ev.AssistantMessageAdded)[-1].content == text
    assert not any(delta.text == text for delta in host.all(ev.TextDelta))


async def test_a_yes_at_the_iteration_limit_gives_ten_more_steps() -> None:
    host, model = RecordingHost(continues=[True]), endless()
    await run(host, team_of(model, agent(max_iterations=2)))
    assert [event.limit for event in host.all(ev.IterationLimitReached)] == [2, 12]
    assert len(model.requests) == 12


async def test_nobody_is_asked_at_the_limit_of_a_run_without_a_person() -> None:
    host = RecordingHost(policy=LivePolicy("", Rules(), interactive=False), continues=[True])
    assert await run(host, team_of(endless(), agent(max_iterations=1))) == "max_iterations"
    assert not host.all(ev.IterationLimitReached)


async def test_five_identical_batches_end_the_run() -> None:
    host, model = RecordingHost(), ScriptedModel(lambda _: call("echo", {"text": "same"}))
    assert await run(host, team_of(model)) == "loop_detected"
    assert len(model.requests) == 5
    failed = host.all(ev.Failed)[0]
    assert failed.error_code == "loop_detected"
    assert failed.error == (
        "Agent terminated: detected 5 consecutive identical calls to echo. "
        "This indicates a degenerate loop where the model is not making progress."
    )
    assert len(host.all(ev.ToolMessageAdded)) == 5


def test_polling_tools_and_changing_calls_are_no_loop() -> None:
    detector = LoopDetector(2)
    poll = [ToolCall("1", "view_background_agent", "{}")]
    assert not any(detector.add(poll) for _ in range(10))
    one, other = [ToolCall("1", "a", "1")], [ToolCall("2", "a", "2")]
    assert not any(detector.add(batch) for batch in (one, other, one, poll, other))
    assert detector.add(other)


async def test_a_used_up_budget_ends_the_run_before_the_next_call() -> None:
    host, model = RecordingHost(), endless()
    team = team_of(model, budgets=[BudgetSpec(name="budget", max_tokens=25)])
    assert await run(host, team) == "budget_exceeded"
    assert len(model.requests) == 2
    exceeded = host.all(ev.BudgetExceeded)[0]
    assert (exceeded.limit, exceeded.used, exceeded.max) == ("max_tokens", 30.0, 25.0)
    assert exceeded.config_path == "budget.max_tokens"
    assert host.kinds()[-2:] == ["budget_exceeded", "run_ended"]
    assert host.all(ev.BudgetReported)[-1].budgets[0]["tokens"] == 30


def test_a_meter_counts_agents_time_and_unpriced_calls() -> None:
    meter = Meter([BudgetSpec(name="b", max_cost=1.0, max_time=10.0)], started=100.0)
    meter.add("a", Usage(10, 5), 0.25, 2.0)
    meter.add("b", Usage(1, 1), 0.0, 1.0)
    report = meter.report("a", now=104.0)
    assert report is not None
    row = report.budgets[0]
    assert row["cost"] == 0.25
    assert row["elapsed_seconds"] == 4.0
    assert row["unpriced"] is True
    assert "max_tokens" not in row
    assert {each["agent_name"]: each["tokens"] for each in row["per_agent"]} == {"a": 15, "b": 2}
    assert meter.exceeded("a", now=104.0) is None
    exceeded = meter.exceeded("a", now=110.0)
    assert exceeded is not None
    assert exceeded.limit == "max_time"


def test_no_budgets_no_report() -> None:
    assert Meter([], 0.0).report("a", 1.0) is None


async def test_a_toolset_that_cannot_start_is_a_warning_and_is_tried_again_next_run() -> None:
    broken = ListToolset([], error="no server")
    spec = agent(toolsets=(ToolsetSpec("mcp", lambda: broken),))
    host, team = RecordingHost(), team_of(ScriptedModel(["one", "two"]), spec)
    assert await run(host, team) == "normal"
    assert [event.message for event in host.all(ev.Warned)] == ["mcp: no server"]
    await run(host, team, "again")
    assert broken.starts == 2
    assert broken.closes == 2


async def test_toolsets_start_once_a_run_and_close_with_it(autojump_clock: trio.abc.Clock) -> None:
    toolset = ListToolset([])
    spec = agent(toolsets=(ToolsetSpec("t", lambda: toolset),))
    with trio.move_on_after(1):
        await run(RecordingHost(), team_of(ScriptedModel([say("x") + call("t1"), say("y") + hang()]), spec))
    assert (toolset.starts, toolset.closes) == (1, 1)


async def test_a_model_that_cannot_be_used_is_a_failed_run() -> None:
    class Nothing:
        def bind(self, agent: AgentSpec, ref: str) -> BoundModel:
            raise Invalid("unknown model x/y")

    host = RecordingHost()
    assert await run(host, Team([agent()], Nothing())) == "error"
    assert host.all(ev.Failed)[0].error == "unknown model x/y"
    assert not host.all(ev.StepStarted)


async def test_the_sessions_model_override_is_used() -> None:
    own, other = ScriptedModel([]), ScriptedModel(["hi"])
    host = RecordingHost()
    host.overrides["root"] = "other/model"
    await run(host, team_of({"m": own, "other/model": other}, agent()))
    assert len(other.requests) == 1


async def test_an_alloy_draws_a_model_for_each_step() -> None:
    from random import Random

    models = {name: ScriptedModel(lambda _: call("echo", {})) for name in ("a", "b")}
    spec = agent(models=("a", "b"), max_iterations=20, max_consecutive_tool_calls=0)
    await run(RecordingHost(), team_of(models, spec, random=Random(1)))
    assert all(model.requests for model in models.values())


async def test_autopilot_nudges_until_the_task_is_declared_done() -> None:
    host = RecordingHost()
    model = ScriptedModel(["planning", call("task_complete", {"summary": "did it"})])
    options = RunOptions(autopilot=Autopilot())
    assert await run(host, team_of(model), options=options) == "terminal_tool"
    assert [(done.summary, done.success) for done in host.all(ev.TaskCompleted)] == [("did it", True)]
    assert [event.implicit for event in host.all(ev.UserMessageAdded)] == [False, True]


async def test_autopilot_gives_up_after_its_continuations_and_interactive_runs_are_never_nudged() -> None:
    model = ScriptedModel(lambda _: say("still planning"))
    assert (
        await run(RecordingHost(), team_of(model), options=RunOptions(autopilot=Autopilot(max_continues=2)))
        == "normal"
    )
    assert len(model.requests) == 3
    plain = ScriptedModel(["done"])
    await run(RecordingHost(), team_of(plain))
    assert "task_complete" not in [tool.name for tool in plain.requests[0].tools]


def builtin(event: str, name: str, *args: str) -> HookSpec:
    return HookSpec(event=event, type="builtin", name=name, args=args)


@pytest.mark.parametrize(("event", "calls_made"), [("user_prompt_submit", 0), ("before_llm_call", 0)])
async def test_a_hook_may_block_the_run(event: str, calls_made: int) -> None:
    host, model = RecordingHost(), ScriptedModel(["never"])
    assert await run(host, team_of(model, agent(hooks=(builtin(event, "block", "no"),)))) == "hook_blocked"
    assert len(model.requests) == calls_made
    assert [(f.error, f.error_code) for f in host.all(ev.Failed)] == [("no", "hook_blocked")]
    assert len(host.all(ev.StepStarted)) == len(host.all(ev.StepEnded))


async def test_a_blocking_stop_hook_sends_the_model_back_to_work_a_bounded_number_of_times() -> None:
    host, model = RecordingHost(), ScriptedModel(lambda _: say("done"))
    spec = agent(hooks=(builtin("stop", "block", "Run the tests."),))
    assert await run(host, team_of(model, spec)) == "normal"
    assert len(model.requests) == 6
    assert model.requests[1].messages[-1].content == "Run the tests."


async def test_every_part_of_a_run_tells_its_hooks() -> None:
    host, model = RecordingHost(approver=approve_all), ScriptedModel([call("write"), "done"])
    events = (
        "session_start", "user_prompt_submit", "turn_start", "before_llm_call", "after_llm_call", "on_user_input",
        "on_tool_approval_decision", "post_tool_use", "turn_end", "stop", "session_end",
    )  # fmt: skip
    await run(host, team_of(model, agent(hooks=tuple(builtin(event, "context") for event in events))))
    seen = [event.hook_event for event in host.all(ev.HookStarted)]
    step = ["turn_start", "before_llm_call", "after_llm_call"]
    asked = ["on_user_input", "on_tool_approval_decision", "post_tool_use"]
    assert seen == [*events[:2], *step, *asked, "turn_end", *step, "stop", "turn_end", "session_end"]
    assert len(host.all(ev.HookFinished)) == len(seen)


async def test_hook_context_reaches_the_system_prompt() -> None:
    model = ScriptedModel(["ok"])
    await run(
        RecordingHost(), team_of(model, agent(hooks=(builtin("session_start", "context", "Remember X."),)))
    )
    assert model.requests[0].messages[0].content == "Remember X."
