"""Reading command lines without running them."""

from __future__ import annotations

import shlex
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.tools import shell_syntax


@pytest.mark.parametrize(
    "line",
    [
        "ls",
        "ls -la",
        "git log --format='%h %s'",
        'echo "a; b | c"',
        "echo a\\;b",
        "echo 'it'\"'\"'s'",
        "ls *.py",
        "a #"[:1],
    ],
)
def test_single_simple_commands(line: str) -> None:
    assert shell_syntax.read(line).simple


@pytest.mark.parametrize(
    "line",
    [
        "",
        "   ",
        "a;b",
        "a&",
        "a|b",
        "a\nb",
        "a>b",
        "a<b",
        "a $(b)",
        'a "$(b)"',
        "a `b`",
        'a "`b`"',
        "a ${b}",
        "a $'b'",
        "(a)",
        "{ a; }",
        "! a",
        "X=1 a",
        "X+=1 a",
        "X[0]=1 a",
        "sudo a",
        "exec a",
        "if a",
        "a # b",
        "# a",
        "a 'b",
        'a "b',
        "a \\",
        "a \\\nb",
        "a\rb",
        "a\0b",
        "a\x1bb",
        "/usr/bin/sudo a",
        "[[ a ]]",
    ],
)
def test_everything_else_is_not_simple(line: str) -> None:
    assert not shell_syntax.read(line).simple


@given(st.lists(st.text(alphabet="abc ;&|$`'\"\\#<>(){}*", min_size=1, max_size=6), min_size=1, max_size=4))
def test_quoted_words_are_one_simple_command(words: list[str]) -> None:
    line = shlex.join(["run", *words])
    reading = shell_syntax.read(line)
    assert reading.simple
    assert reading.commands[0].words == ("run", *words)


@given(st.text(max_size=60))
def test_any_text_can_be_read(line: str) -> None:
    shell_syntax.read(line)
    assert line in shell_syntax.spellings(line)


@pytest.mark.parametrize(
    "line", ["$(" * 20000, "`" * 50000, "(" * 50000, "'\"" * 30000, "$(a " * 5000 + ")" * 5000]
)
def test_hostile_lines_are_read_quickly(line: str) -> None:
    began = time.perf_counter()
    shell_syntax.spellings(line)
    assert time.perf_counter() - began < 3
