"""Command hooks: JSON in and out, exit codes, time limits, and what the loop does with the answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from actors.agent import messages as ev
from actors.agent.hooks import HookError, Hooks, HookSpec, parse_output, run_command
from actors.agent.host import LivePolicy
from actors.testing.host import RecordingHost
from actors.testing.model import ScriptedModel, call, say
from actors.tools.policy import Rules
from tests.agent.kit import agent, run, team_of

ENV = {"PATH": "/usr/bin:/bin"}


def hooks(*specs: HookSpec, events: list[ev.RunEvent] | None = None) -> Hooks:
    sink = events if events is not None else []
    return Hooks(
        specs, agent="a", emit=sink.append, base={"session_id": "s"}, working_dir=Path.cwd(), env=ENV
    )


def command(line: str, event: str = "stop", **fields: Any) -> HookSpec:
    return HookSpec(event=event, command=line, **fields)


async def test_a_command_reads_its_input_as_json_and_may_answer_in_json() -> None:
    line = (
        """read -r line; printf '{"decision":"block","reason":"%s"}' "$(printf %s "$line" | tr -d '"{}')" """
    )
    result = await hooks(command(line)).run("stop", {"stop_response": "done"})
    assert result.blocked
    assert result.message == "session_id:s,hook_event_name:stop,stop_response:done"


async def test_exit_code_two_blocks_with_the_error_output_as_message() -> None:
    events: list[ev.RunEvent] = []
    result = await hooks(command("echo no >&2; exit 2"), events=events).run("stop", {})
    assert (result.blocked, result.message) == (True, "no")
    finished = events[-1]
    assert isinstance(finished, ev.HookFinished)
    assert (finished.allowed, finished.hook_event) == (False, "stop")


@pytest.mark.parametrize(
    ("on_error", "blocked", "warnings"), [("warn", False, 1), ("ignore", False, 0), ("block", True, 0)]
)
async def test_a_failing_command_is_treated_as_its_author_says(
    on_error: Any, blocked: bool, warnings: int
) -> None:
    result = await hooks(command("echo broken >&2; exit 7", on_error=on_error)).run("stop", {})
    assert (result.blocked, len(result.warnings)) == (blocked, warnings)


async def test_a_command_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    mark = tmp_path / "late"
    with trio.fail_after(5):
        result = await hooks(command(f"(sleep 1; touch {mark}) & wait", timeout=0.1)).run("stop", {})
    assert "no answer within" in result.warnings[0]
    assert not mark.exists()


async def test_a_background_child_does_not_hold_the_hook_up() -> None:
    with trio.fail_after(5):
        code, out, _ = await run_command(
            ["/bin/sh", "-c", "sleep 60 & echo hi"], b"", cwd=Path.cwd(), env=ENV
        )
    assert (code, out) == (0, "hi\n")


async def test_a_command_that_does_not_read_gets_no_error_for_it() -> None:
    code, _, _ = await run_command(["/bin/true"], b"x" * 1_000_000, cwd=Path.cwd(), env=ENV)
    assert code == 0


async def test_a_missing_program_is_a_hook_error() -> None:
    with pytest.raises(HookError, match="cannot start"):
        await run_command(["/no/such/program"], b"", cwd=Path.cwd(), env=ENV)


async def test_the_first_block_ends_the_round(tmp_path: Path) -> None:
    mark = tmp_path / "second"
    result = await hooks(command("exit 2"), command(f"touch {mark}")).run("stop", {})
    assert result.blocked
    assert not mark.exists()


async def test_answers_of_several_hooks_are_merged() -> None:
    first = 'printf \'{"hook_specific_output":{"permission_decision":"ask","metadata":{"a":1}}}\''
    second = 'printf \'{"hook_specific_output":{"permission_decision":"allow","updated_input":{"x":2}}}\''
    result = await hooks(command(first), command(second)).run("stop", {})
    assert result.decision == "ask"
    assert result.arguments == {"x": 2}
    assert result.metadata == {"a": "1"}


def test_plain_text_is_context_and_json_of_another_shape_is_an_error() -> None:
    assert parse_output(" remember this \n").context == "remember this"
    with pytest.raises(HookError):
        parse_output('{"continue": "maybe"}')


async def test_a_hook_rewrites_arguments_and_results() -> None:
    rewrite = (
        'printf \'{"hook_specific_output":{"permission_decision":"allow","updated_input":{"text":"new"}}}\''
    )
    answer = 'printf \'{"hook_specific_output":{"updated_tool_response":"replaced"}}\''
    host = RecordingHost(policy=LivePolicy("autonomous", Rules()))
    host.facts = type(host.facts)(
        session_id="s", run_id="r", working_dir=Path.cwd(), data_dir=Path.cwd(), env=ENV
    )
    spec = agent(
        hooks=(
            command(rewrite, "pre_tool_use", matcher="write"),
            command(answer, "post_tool_use", matcher="write"),
        )
    )
    await run(host, team_of(ScriptedModel([call("write", {"text": "old"}), "ok"]), spec))
    assert host.all(ev.ToolStarted)[0].call.arguments == '{"text":"new"}'
    assert host.all(ev.ToolMessageAdded)[0].content == "replaced"


async def test_a_rewrite_into_something_denied_is_denied() -> None:
    rewrite = (
        'printf \'{"hook_specific_output":{"permission_decision":"allow","updated_input":{"text":"bad"}}}\''
    )
    host = RecordingHost(policy=LivePolicy("autonomous", Rules(deny=("write:text=bad",))))
    host.facts = type(host.facts)(
        session_id="s", run_id="r", working_dir=Path.cwd(), data_dir=Path.cwd(), env=ENV
    )
    spec = agent(hooks=(command(rewrite, "pre_tool_use"),))
    await run(host, team_of(ScriptedModel([call("write", {"text": "good"}), "ok"]), spec))
    assert host.all(ev.ToolReturned)[0].outcome == "denied"


async def test_a_model_hook_asks_its_model_and_stays_out_of_the_conversation() -> None:
    judge = ScriptedModel(['{"decision":"block","reason":"not polite"}', "{}"])
    main = ScriptedModel([say("rude"), say("polite")])
    host = RecordingHost()
    spec = agent(hooks=(HookSpec(event="stop", type="model", model="judge", prompt="Is it polite?"),))
    assert await run(host, team_of({"m": main, "judge": judge}, spec)) == "normal"
    assert judge.requests[0].messages[0].content.startswith("Is it polite?")
    assert main.requests[1].messages[-1].content == "not polite"
    assert not any("Is it polite?" in message.content for message in host.history())
