"""What a run looks like on a terminal, in a pipe and as JSON lines."""

from __future__ import annotations

import io
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from actors.agent import messages as run
from actors.journal.ring import Frame
from actors.models.provider import ToolCall
from gateway.cli.display import JsonDisplay, MarkdownDisplay, PlainDisplay, printable, settled, shortened


def frames(*events: run.Event) -> list[Frame]:
    return [Frame(seq, 1_700_000_000.0, event) for seq, event in enumerate(events, 1)]


ANSWER = frames(
    run.RunStarted(run_id="r"),
    run.TextDelta(text="Hello "),
    run.TextDelta(text="world"),
    run.AssistantMessageAdded(content="Hello world"),
    run.RunEnded(run_id="r"),
)


def test_a_pipe_gets_the_answer_and_nothing_else_on_standard_output() -> None:
    out, notes = io.StringIO(), io.StringIO()
    display = PlainDisplay(out, notes)
    for frame in frames(
        run.Warned(message="slow"), run.ToolStarted(call=ToolCall("1", "shell", '{"cmd": "ls"}'))
    ):
        display.show(frame)
    for frame in ANSWER:
        display.show(frame)
    display.flush()
    assert out.getvalue() == "Hello world\n"
    assert notes.getvalue() == 'warning: slow\n> shell {"cmd": "ls"}\n'


def test_a_note_in_the_middle_of_a_line_starts_a_new_one() -> None:
    both = io.StringIO()
    display = PlainDisplay(both, both)
    for frame in frames(run.TextDelta(text="one"), run.Failed(error="quota used up")):
        display.show(frame)
    assert both.getvalue() == "one\nerror: quota used up\n"


def test_text_of_sub_sessions_is_not_part_of_the_answer() -> None:
    out = io.StringIO()
    display = PlainDisplay(out, io.StringIO())
    for frame in frames(run.TextDelta(text="inner", session="child"), run.TextDelta(text="outer\n")):
        display.show(frame)
    assert out.getvalue() == "outer\n"


def test_json_lines_are_the_api_s_events() -> None:
    out = io.StringIO()
    display = JsonDisplay("s1", out)
    for frame in ANSWER:
        display.show(frame)
    display.flush()
    events = [msgspec.json.decode(line) for line in out.getvalue().splitlines()]
    assert [event["type"] for event in events][:3] == ["stream_started", "agent_choice", "agent_choice"]
    assert events[1]["content"] == "Hello "


def test_markdown_is_drawn_and_printed_once() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=60, color_system=None, legacy_windows=False)
    display = MarkdownDisplay(console)
    events = [
        run.TextDelta(text=piece) for piece in ("# Ti", "tle\n\nFirst para", "graph.\n\nSecond", " one.")
    ]
    for frame in frames(*events, run.AssistantMessageAdded(content="")):
        display.show(frame)
    text = out.getvalue()
    assert text.rstrip().endswith("Second one.")
    assert text.count("First paragraph.") == 1, "a finished block is printed for good and never redrawn"


def test_model_output_cannot_command_the_terminal() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=60, color_system=None, legacy_windows=False)
    display = MarkdownDisplay(console)
    shell = run.ToolStarted(call=ToolCall("1", "shell", '{"cmd": "rm\x1b[2K\x1b]0;x\x07 a\u202ecod.exe"}'))
    for frame in frames(shell, run.ToolReturned(output="\x1b[31mred\x9b2J")):
        display.show(frame)
    display.flush()
    assert not set("\x1b\x07\x9b\u202e") & set(out.getvalue())


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain\nlines\ttab", "plain\nlines   tab"), ("\x1b[31mred\x1b[0m", "[31mred[0m"), ("a\r\nb", "a\nb")],
)
def test_printable_keeps_text_and_drops_control(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_shortened_marks_what_is_missing() -> None:
    assert shortened("one line", 20) == "one line"
    assert shortened("two\nlines", 20) == "two…"
    assert shortened("x" * 30, 10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    ("markdown", "done"),
    [
        ("half a line", ""),
        ("one\n\ntwo", "one\n\n"),
        ("```\ncode\n\nmore", ""),
        ("```\ncode\n\n```\n\nafter", "```\ncode\n\n```\n\n"),
        ("~~~\n```\n\n", ""),
        ("````\n```\n\nstill code", ""),
    ],
)
def test_only_finished_blocks_are_settled(markdown: str, done: str) -> None:
    assert markdown[: settled(markdown)] == done


@given(st.lists(st.sampled_from(["text", "\n", "\n\n", "```", "~~~", "- item", " "])))
def test_what_is_settled_stays_settled(pieces: list[str]) -> None:
    ends = [settled("".join(pieces[:n])) for n in range(len(pieces) + 1)]
    assert all(earlier <= later for earlier, later in pairwise(ends))
