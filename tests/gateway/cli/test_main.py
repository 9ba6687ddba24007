"""Help, usage errors and exit statuses of the command line."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest
import trio

from actors.errors import Invalid, NotFound
from gateway.cli import logs
from gateway.cli.enter import enter
from gateway.cli.main import build_parser, main


@pytest.fixture(autouse=True)
def _logging_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    rooms = {room: logging.getLogger(room).level for room in logs.ROOMS}
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:], root.level = handlers, level
    for room, before in rooms.items():
        logging.getLogger(room).setLevel(before)


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from leaves(inner, (*path, name))


@pytest.mark.parametrize("path", list(leaves(build_parser())), ids=" ".join)
def test_every_command_explains_itself(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*path, "--help"]) == 0
    assert "Usage: greenroom" in capsys.readouterr().out


def test_version_names_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("greenroom ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["rnu"],
        ["run", "--modle", "x"],
        ["serve", "api"],
        ["serve", "api", "x", "--on-disconnect", "maybe"],
        ["check"],
    ],
)
def test_wrong_usage_is_exit_status_two_and_no_traceback(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "Usage: greenroom" in error
    assert "Traceback" not in error


def test_help_and_version_answer_at_once() -> None:
    program = "import time, sys; t = time.process_time(); import gateway.cli.main as m; m.main(['--help'])\n"
    program += "print(time.process_time() - t, file=sys.stderr)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(found.stderr) < 0.3


def test_expected_failures_are_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["run", "no-such-agent.yaml"]) == 1
    assert capsys.readouterr().err == "greenroom: no such agent file: no-such-agent.yaml\n"


def test_a_log_file_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["check", "x.yaml", "--log-file", str(tmp_path / "file" / "log")]) == 1
    assert capsys.readouterr().err.startswith("greenroom: cannot write the log:")


async def fails_inside_a_nursery(error: BaseException) -> None:
    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise error

    async with trio.open_nursery() as outer, trio.open_nursery() as inner:
        inner.start_soon(fail)
        outer.start_soon(trio.sleep_forever)


def test_a_failure_wrapped_by_nurseries_is_still_one_line() -> None:
    with pytest.raises(click.ClickException) as caught:
        enter(lambda: fails_inside_a_nursery(NotFound("session x not found")))
    assert caught.value.message == "session x not found"


def test_an_interrupt_wrapped_by_nurseries_is_an_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt):
        enter(lambda: fails_inside_a_nursery(KeyboardInterrupt()))


def test_a_bug_is_not_dressed_up_as_the_users_mistake() -> None:
    with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
        enter(lambda: fails_inside_a_nursery(ZeroDivisionError()))


def test_operating_system_failures_name_the_file() -> None:
    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise PermissionError(13, "Permission denied", "/etc/agent.yaml")

    with pytest.raises(click.ClickException) as caught:
        enter(fail)
    assert caught.value.message == "Permission denied: /etc/agent.yaml"


def test_a_reader_that_leaves_is_no_failure_of_ours() -> None:
    run = subprocess.run(
        [sys.executable, "-c", "import gateway.cli.main as m, sys; sys.exit(m.main(['run', '--help']))"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_close_the_pipe,
    )
    assert (run.returncode, run.stderr) == (1, "")


def _close_the_pipe() -> None:
    import os

    reader, writer = os.pipe()
    os.dup2(writer, 1)
    os.close(reader)
    os.close(writer)


def test_json_log_records_carry_their_fields(tmp_path: Path) -> None:
    logs.configure("INFO", file=tmp_path / "logs" / "app.log", json=True)
    fields = {"seq": 4, "path": tmp_path}
    logging.getLogger("actors.session").warning("run failed", exc_info=Invalid("bad"), extra=fields)
    logging.getLogger("httpx2").info("chatter of a library")
    (line,) = (tmp_path / "logs" / "app.log").read_text().splitlines()
    record = msgspec.json.decode(line)
    assert (record["level"], record["logger"], record["message"]) == (
        "WARNING",
        "actors.session",
        "run failed",
    )
    assert (record["seq"], record["path"]) == (4, str(tmp_path))
    assert "Invalid: bad" in record["exception"]


def test_text_log_records_show_their_fields(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("DEBUG")
    logging.getLogger("gateway").debug("closed", extra={"peer": "unix"})
    line = capsys.readouterr().err
    assert line.endswith("DEBUG   gateway closed peer=unix\n")


def test_logging_options_count_before_and_after_the_command(tmp_path: Path) -> None:
    for arguments in (["--log-file", "{}", "check", "x.yaml"], ["check", "x.yaml", "--log-file", "{}"]):
        file = tmp_path / f"{arguments[0].strip('-')}.log"
        main([argument.format(file) for argument in arguments])
        assert file.exists()
