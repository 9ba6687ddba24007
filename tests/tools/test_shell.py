"""Commands and scripts: output, time, and that no process is left, whatever happens."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from actors.tools.process import MARK, run_process
from actors.tools.tool import ToolError
from tests.tools.kit import build, call, context_in


def marked_processes() -> list[int]:
    """Return what is left of the processes that tools of this process started, by the mark in their environment."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f"{MARK}={os.getpid()}-".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


async def test_output_comes_live_and_as_the_result(tmp_path: Path) -> None:
    live: list[str] = []
    result = await call(
        build("shell"),
        "shell",
        context_in(tmp_path, emit_output=live.append),
        cmd="echo one; echo two >&2; pwd",
    )
    assert result.output == f"one\ntwo\n{tmp_path}\n"
    assert "".join(live) == result.output
    assert result.meta == {"exit_code": 0}


async def test_failing_command_reports_its_status(tmp_path: Path) -> None:
    result = await call(build("shell"), "shell", context_in(tmp_path), cmd="echo x; exit 3")
    assert result.output == "Error executing command: exit status 3\nOutput: x\n"
    result = await call(build("shell"), "shell", context_in(tmp_path), cmd="kill -9 $$")
    assert "ended by signal 9" in result.output


async def test_environment_is_the_contexts_plus_the_options(tmp_path: Path) -> None:
    context = context_in(
        tmp_path, env={"PATH": "/usr/bin:/bin", "A": "1", "T": "tok"}, headers={"x-user": "ann"}
    )
    shell = build("shell", env={"B": "${env.T}-${headers.X-User}-${env.NONE}"}, sudo_askpass="/bin/ask")
    assert (
        await call(shell, "shell", context, cmd='echo "$A $B $SUDO_ASKPASS"')
    ).output == "1 tok-ann- /bin/ask\n"
    assert "GREENROOM_SECRET" not in (await call(shell, "shell", context, cmd="env")).output


async def test_timeout_ends_the_command_and_keeps_its_output(tmp_path: Path) -> None:
    result = await call(
        build("shell"), "shell", context_in(tmp_path), cmd="echo before; sleep 60", timeout=0.3
    )
    assert result.is_error
    assert result.output == "Command timed out after 0.3s and was ended.\nOutput: before\n"
    assert not marked_processes()


@pytest.mark.parametrize(
    "line",
    [
        "sh -c 'sleep 300 & sleep 300; touch {file}'",
        "trap '' TERM; sleep 300; touch {file}",
        "setsid sleep 300 & sleep 300",
        "setsid sh -c 'setsid sleep 300 & trap \"\" TERM; sleep 300' & sleep 300; touch {file}",
        "yes",
    ],
)
async def test_cancelled_command_leaves_no_process_within_three_seconds(tmp_path: Path, line: str) -> None:
    file = tmp_path / "never"
    with trio.move_on_after(0.4):
        await call(build("shell"), "shell", context_in(tmp_path), cmd=line.format(file=file))
    began = trio.current_time()
    assert not marked_processes()
    assert trio.current_time() - began < 3
    assert not file.exists()


async def test_background_children_do_not_hold_the_call_or_survive_it(tmp_path: Path) -> None:
    with trio.fail_after(10):
        result = await call(
            build("shell"), "shell", context_in(tmp_path), cmd="sleep 300 & setsid sleep 300 & echo done"
        )
    assert result.output == "done\n"
    assert not marked_processes()


async def test_endless_and_hostile_output_is_a_bounded_excerpt(tmp_path: Path) -> None:
    result = await call(build("shell"), "shell", context_in(tmp_path), cmd="yes 😀", timeout=0.5)
    assert len(result.output) <= 64_000
    assert "characters omitted" in result.output
    result = await call(build("shell"), "shell", context_in(tmp_path), cmd=r"printf 'a\377\000b'")
    assert result.output == "a\ufffd\ufffdb"
    result.output.encode()


@pytest.mark.parametrize(
    "arguments", [{"cmd": ""}, {"cmd": "a\0b"}, {"cmd": "ls", "cwd": ".."}, {"cmd": "ls", "cwd": "no"}]
)
async def test_command_that_cannot_start_is_an_error(tmp_path: Path, arguments: dict[str, str]) -> None:
    assert (await call(build("shell"), "shell", context_in(tmp_path), **arguments)).is_error


async def test_missing_program_is_a_tool_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="cannot start"):
        await run_process(["./none"], cwd=tmp_path, env={}, seconds=1, on_output=lambda _: None)


async def test_listener_that_fails_does_not_leave_the_process(tmp_path: Path) -> None:
    def fail(_: bytes) -> None:
        raise ValueError("listener")

    with pytest.RaisesGroup(ValueError):
        await run_process(
            ["sh", "-c", "echo x; sleep 60"], cwd=tmp_path, env=dict(os.environ), seconds=9, on_output=fail
        )
    assert not marked_processes()


Script = Callable[..., object]


async def test_script_arguments_are_variables_and_never_text(tmp_path: Path) -> None:
    scripts = build(
        "script",
        shell={
            "greet": {
                "cmd": 'printf "%s/%s/%s/%s" "$name" "$count" "$tags" "$CONFIGURED"',
                "description": "Greets.",
                "args": {
                    "name": {"type": "string", "description": "Who"},
                    "count": {"type": "integer", "default": 2},
                    "tags": {"type": "array"},
                },
                "required": ["name"],
                "env": {"CONFIGURED": "${env.HOME}"},
            }
        },
    )
    hostile = "$(touch pwned); `touch pwned`; \"'; touch pwned"
    result = await call(scripts, "greet", context_in(tmp_path), name=hostile, tags=["a", True])
    assert result.output == f'{hostile}/2/["a",true]/{tmp_path}'
    assert not (tmp_path / "pwned").exists()
    assert "'name' is required" in (await call(scripts, "greet", context_in(tmp_path))).output
    assert (
        "'other' is unknown"
        in (await call(scripts, "greet", context_in(tmp_path), name="x", other="y")).output
    )
    assert (await call(scripts, "greet", context_in(tmp_path), name="a\0b")).is_error


async def test_every_script_argument_is_required_unless_said(tmp_path: Path) -> None:
    scripts = build("script", shell={"s": {"cmd": "exit 4", "args": {"a": {}, "b": {}}}})
    definition = scripts.tools()[0].definition
    assert definition.parameters["required"] == ["a", "b"]
    assert definition.parameters["properties"]["a"]["type"] == "string"
    result = await call(scripts, "s", context_in(tmp_path), a="1", b="2")
    assert result.is_error
    assert "exit status 4" in result.output
