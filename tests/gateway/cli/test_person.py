"""The person at the terminal, driven through prompt_toolkit's pipe input."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit import PromptSession
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console

from actors.agent.messages import ApprovalRequested, ElicitationRequested
from actors.models.provider import ToolCall
from gateway.cli.person import TerminalPerson, history_in, value_of

CTRL_C, CTRL_D = "\x03", "\x04"
SHELL = ApprovalRequested(approval_id="a1", call=ToolCall("1", "shell", '{"cmd": "ls"}'))


@pytest.fixture
def typed() -> Iterator[PipeInput]:
    with create_pipe_input() as pipe:
        yield pipe


@pytest.fixture
def printed() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def person(typed: PipeInput, printed: io.StringIO) -> TerminalPerson:
    return TerminalPerson(Console(file=printed), PromptSession(input=typed, output=DummyOutput()))


async def test_a_line_is_what_was_typed(person: TerminalPerson, typed: PipeInput) -> None:
    typed.send_text("hello there\r")
    assert await person.line() == "hello there"


async def test_ctrl_c_drops_the_line_and_ctrl_d_leaves(person: TerminalPerson, typed: PipeInput) -> None:
    typed.send_text("half a thought" + CTRL_C)
    assert await person.line() == ""
    typed.send_text(CTRL_D)
    assert await person.line() is None


@pytest.mark.parametrize(
    ("keys", "decision"),
    [
        ("y\r", ("approve", "")),
        ("t\r", ("approve-tool", "")),
        ("a\r", ("approve-autonomous", "")),
        ("maybe\ry\r", ("approve", "")),
        ("n\rtoo risky\r", ("reject", "too risky")),
        ("\r", ("reject", "")),
        (CTRL_C, ("reject", "")),
        (CTRL_D, ("reject", "")),
    ],
)
async def test_only_a_clear_yes_runs_a_tool(
    person: TerminalPerson, typed: PipeInput, keys: str, decision: tuple[str, str]
) -> None:
    typed.send_text(keys)
    assert await person.approve(SHELL) == decision


async def test_the_call_is_shown_before_it_is_asked_about(
    person: TerminalPerson, typed: PipeInput, printed: io.StringIO
) -> None:
    typed.send_text("y\r")
    await person.approve(SHELL)
    assert 'shell {"cmd": "ls"}' in printed.getvalue()


@pytest.mark.parametrize(("keys", "answer"), [("y\r", True), ("\r", False), (CTRL_C, False)])
async def test_going_on_takes_a_yes(
    person: TerminalPerson, typed: PipeInput, keys: str, answer: bool
) -> None:
    typed.send_text(keys)
    assert await person.go_on(60) is answer


FORM = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "ok": {"type": "boolean"}},
    "required": ["name"],
}


NOTHING: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        ("Ada\r36\ry\r", ("accept", {"name": "Ada", "age": 36, "ok": True})),
        ("Ada\r\r\r", ("accept", {"name": "Ada"})),
        ("\r", ("decline", NOTHING)),
    ],
)
async def test_a_form_is_asked_field_by_field(
    person: TerminalPerson, typed: PipeInput, keys: str, answer: tuple[str, dict[str, Any]]
) -> None:
    typed.send_text(keys)
    assert await person.answer(ElicitationRequested(message="Who?", schema=FORM)) == answer


async def test_a_page_to_visit_is_shown(
    person: TerminalPerson, typed: PipeInput, printed: io.StringIO
) -> None:
    typed.send_text("y\r")
    request = ElicitationRequested(message="Log in", mode="url", url="https://example.com/login")
    assert await person.answer(request) == ("accept", {})
    assert "https://example.com/login" in printed.getvalue()


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("7", "integer", 7),
        ("1.5", "number", 1.5),
        ("x", "integer", "x"),
        ("no", "boolean", False),
        ("7", "string", "7"),
    ],
)
def test_what_is_typed_becomes_the_type_asked_for(text: str, kind: str, value: object) -> None:
    assert value_of(text, kind) == value


def test_history_is_private_to_the_user(tmp_path: Path) -> None:
    history_in(tmp_path / "data")
    assert (tmp_path / "data" / "history").stat().st_mode & 0o777 == 0o600


def test_history_without_a_place_is_kept_in_memory(tmp_path: Path, typed: PipeInput) -> None:
    (tmp_path / "file").touch()
    history_in(tmp_path / "file").append_string("kept")
