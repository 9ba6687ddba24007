"""Who decides whether a call runs, in which order people are asked, and what refusals say (contract 6.4, 2.5)."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from actors.agent import messages as ev
from actors.agent.hooks import HookSpec
from actors.agent.host import Decision, LivePolicy
from actors.testing.host import RecordingHost, approve_all
from actors.testing.model import ScriptedModel, call, calls
from actors.tools.policy import Rules
from tests.agent.kit import agent, run, team_of

YOLO = LivePolicy("autonomous", Rules())


def two_writes() -> ScriptedModel:
    return ScriptedModel([calls([("write", {"text": "1"}), ("write", {"text": "2"})]), "ok"])


def outputs(host: RecordingHost) -> list[str]:
    return [message.content for message in host.all(ev.ToolMessageAdded)]


async def test_read_only_tools_run_unasked_and_others_ask_while_no_mode_is_chosen() -> None:
    host = RecordingHost(approver=approve_all)
    model = ScriptedModel([calls([("echo", {"text": "r"}), ("write", {"text": "w"})]), "ok"])
    await run(host, team_of(model))
    assert [request.call.name for request in host.all(ev.ApprovalRequested)] == ["write"]
    assert outputs(host) == ["r", "w"]


async def test_nothing_runs_before_the_approval() -> None:
    host = RecordingHost()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, host, team_of(ScriptedModel([call("write", {"text": "x"}), "ok"])))
        request = await host.wait_approval()
        assert request.metadata["safety_label"] == "unknown"
        await trio.testing.wait_all_tasks_blocked()
        assert not host.all(ev.ToolStarted)
        host.decide(Decision("approved"))
    assert outputs(host) == ["x"]


@pytest.mark.parametrize(
    ("decision", "text", "outcome"),
    [
        (Decision("rejected"), "The user rejected the tool call.", "rejected"),
        (Decision("rejected", " no "), "The user rejected the tool call. Reason: no", "rejected"),
        (Decision("rejected", "  "), "The user rejected the tool call.", "rejected"),
        (Decision("expired"), "The tool call was not approved in time and did not run.", "expired"),
        (Decision("cancelled"), "The tool call was canceled by the user.", "cancelled"),
    ],
)
async def test_anything_but_a_yes_closes_the_call_and_the_model_goes_on(
    decision: Decision, text: str, outcome: str
) -> None:
    host = RecordingHost(approver=lambda _: decision)
    model = ScriptedModel([call("write"), "understood"])
    assert await run(host, team_of(model)) == "normal"
    assert not host.all(ev.ToolStarted)
    returned = host.all(ev.ToolReturned)
    assert [(r.output, r.outcome, r.is_error) for r in returned] == [(text, outcome, True)]
    assert len(host.all(ev.ApprovalRequested)) == 1
    assert model.requests[1].messages[-1].content == text


async def test_requests_of_one_step_become_visible_one_at_a_time_in_request_order() -> None:
    host = RecordingHost()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, host, team_of(two_writes()))
        for number in ("1", "2"):
            request = await host.wait_approval()
            assert number in request.call.arguments
            await trio.testing.wait_all_tasks_blocked()
            assert len(host.all(ev.ApprovalRequested)) == int(number)
            host.decide(Decision("approved"))
            await trio.testing.wait_all_tasks_blocked()
    assert outputs(host) == ["1", "2"]


async def test_a_call_that_became_allowed_meanwhile_runs_without_a_prompt() -> None:
    host = RecordingHost()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, host, team_of(two_writes()))
        await host.wait_approval()
        host.live = YOLO
        host.decide(Decision("approved"))
    assert len(host.all(ev.ApprovalRequested)) == 1
    assert outputs(host) == ["1", "2"]


async def test_a_sibling_of_a_cancelled_call_says_so() -> None:
    host = RecordingHost(approver=lambda _: Decision("cancelled"))
    await run(host, team_of(two_writes()))
    assert outputs(host) == [
        "The tool call was canceled by the user.",
        "The tool call was canceled because another tool call in the same batch was canceled by the user.",
    ]


async def test_cancel_while_the_first_of_four_waits_opens_no_other_approval(
    autojump_clock: trio.abc.Clock,
) -> None:
    host = RecordingHost()
    model = ScriptedModel([calls([("write", {"text": str(n)}) for n in range(4)])])
    with trio.move_on_after(1):
        await run(host, team_of(model))
    await host.close("canceled")
    assert len(host.all(ev.ApprovalRequested)) == 1
    assert outputs(host) == ["The tool call was canceled by the user."] * 4
    assert [decided.verdict for decided in host.all(ev.ApprovalDecided)] == ["cancelled"]


async def test_deny_rules_win_over_yolo_and_name_their_tier() -> None:
    host = RecordingHost(policy=LivePolicy("autonomous", Rules(deny=("write",))))
    model = ScriptedModel([calls([("write", {}), ("slow", {})]), "ok"])
    await run(host, team_of(model, rules=Rules(deny=("slow",))))
    assert outputs(host) == [
        "Tool 'write' is denied by session permissions.",
        "Tool 'slow' is denied by permissions configuration.",
    ]
    assert not host.all(ev.ToolStarted)


async def test_without_a_person_a_question_is_a_no() -> None:
    host = RecordingHost(policy=LivePolicy("", Rules(), interactive=False))
    await run(host, team_of(ScriptedModel([call("write"), "ok"])))
    assert outputs(host) == ["Tool 'write' requires user confirmation but the session is non-interactive."]
    assert not host.all(ev.ApprovalRequested)


async def test_a_rule_added_while_the_question_was_open_still_denies() -> None:
    host = RecordingHost()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, host, team_of(ScriptedModel([call("write"), "ok"])))
        await host.wait_approval()
        host.live = LivePolicy("", Rules(deny=("write",)))
        host.decide(Decision("approved"))
    assert outputs(host) == ["Tool 'write' is denied by session permissions."]


async def test_arguments_changed_with_the_answer_are_what_runs() -> None:
    host = RecordingHost(approver=lambda _: Decision("approved", arguments={"text": "changed"}))
    await run(host, team_of(ScriptedModel([call("write", {"text": "original"}), "ok"])))
    assert host.all(ev.ToolStarted)[0].call.arguments == '{"text":"changed"}'
    assert outputs(host) == ["changed"]


@pytest.mark.parametrize("session", ["allow", "ask", "deny"])
@pytest.mark.parametrize("team_rule", ["allow", "ask", "deny"])
async def test_a_sub_agent_obeys_both_tiers_and_deny_always_wins(session: str, team_rule: str) -> None:
    host = RecordingHost(
        policy=LivePolicy("", Rules(**{session: ("write",)})), approver=lambda _: Decision("rejected")
    )
    model = ScriptedModel(
        [
            call("transfer_task", {"agent": "b", "task": "t", "expected_output": ""}),
            call("write"),
            "child",
            "parent",
        ]
    )
    team = team_of(model, agent("a", sub_agents=("b",)), agent("b"), rules=Rules(**{team_rule: ("write",)}))
    await run(host, team)
    child = next(event for event in host.all(ev.ToolReturned) if event.session)
    expected = "denied" if "deny" in (session, team_rule) else "done" if session == "allow" else "rejected"
    assert child.outcome == expected


def hook(event: str, name: str, *args: str, **fields: Any) -> HookSpec:
    return HookSpec(event=event, type="builtin", name=name, args=args, **fields)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (hook("pre_tool_use", "block", "too risky"), "Tool call blocked by hook: too risky"),
        (
            hook("pre_tool_use", "block", "not now", preempt=True),
            "The tool call was rejected by a pre_tool_use hook. Reason: not now",
        ),
        (
            hook("permission_request", "block", "never"),
            "The tool call was rejected by a permission_request hook. Reason: never",
        ),
    ],
)
async def test_hooks_may_refuse_a_call(spec: HookSpec, text: str) -> None:
    host = RecordingHost(approver=approve_all)
    await run(host, team_of(ScriptedModel([call("write"), "ok"]), agent(hooks=(spec,))))
    assert outputs(host) == [text]
    assert not host.all(ev.ToolStarted)
    assert len(host.all(ev.HookStarted)) == len(host.all(ev.HookFinished)) == 1


async def test_a_hook_may_allow_what_would_ask_and_a_preempting_one_may_ask_what_yolo_allows() -> None:
    quiet = RecordingHost()
    await run(
        quiet, team_of(ScriptedModel([call("write"), "ok"]), agent(hooks=(hook("pre_tool_use", "allow"),)))
    )
    assert not quiet.all(ev.ApprovalRequested)
    asked = RecordingHost(policy=YOLO, approver=approve_all)
    forced = hook("pre_tool_use", "ask", preempt=True)
    await run(asked, team_of(ScriptedModel([call("write"), "ok"]), agent(hooks=(forced,))))
    assert len(asked.all(ev.ApprovalRequested)) == 1
    allowed = RecordingHost(policy=LivePolicy("autonomous", Rules(allow=("write",))))
    await run(allowed, team_of(ScriptedModel([call("write"), "ok"]), agent(hooks=(forced,))))
    assert not allowed.all(ev.ApprovalRequested)


async def test_a_matcher_limits_a_hook_to_its_tools() -> None:
    host = RecordingHost(approver=approve_all)
    spec = hook("pre_tool_use", "block", "x", matcher="write|delete")
    model = ScriptedModel([calls([("write", {}), ("echo", {"text": "e"})]), "ok"])
    await run(host, team_of(model, agent(hooks=(spec,))))
    assert outputs(host) == ["Tool call blocked by hook: x", "e"]
    assert len(host.all(ev.HookBlocked)) == 1
