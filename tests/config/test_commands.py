"""Commands: a template and what was typed become the pieces of a prompt."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.config.commands import Piece, ShellOutput, Text, expand_command


@pytest.mark.parametrize(
    ("template", "typed", "pieces"),
    [
        ("Review: $1", "it", (Text("Review: it"),)),
        ("$2 before $1", "'first one' second", (Text("second before first one"),)),
        ("$1$3", "a", (Text("a"),)),
        ("All: $ARGUMENTS", "a  'b c'", (Text("All: a  'b c'"),)),
        ("Costs $0 and $$ and $x", "", (Text("Costs $0 and $$ and $x"),)),
        ("Plain", "", (Text("Plain"),)),
        ("Plain", "more", (Text("Plain"), Text("\n\nmore"))),
        ("", "more", (Text("more"),)),
        ("$1", "it's", (Text("it's"),)),
        ("Log:\n!`git log -1`\nEnd", "", (Text("Log:\n"), ShellOutput("git log -1"), Text("\nEnd"))),
        ("!`echo $1`", "a b", (ShellOutput("echo $1", ("a", "b"), "a b"),)),
        ("$1", "!`rm x`", (Text("!`rm"),)),
    ],
)
def test_templates_are_filled(template: str, typed: str, pieces: tuple[Piece, ...]) -> None:
    assert expand_command(template, typed) == pieces


@pytest.mark.parametrize(
    "argument", ["$(echo hacked)", "`echo hacked`", "; echo hacked", "' ; echo hacked '"]
)
def test_an_argument_never_becomes_part_of_a_shell_command(argument: str) -> None:
    (piece,) = expand_command('!`printf "%s" "$1"`', f'"{argument}"' if "'" in argument else f"'{argument}'")
    assert isinstance(piece, ShellOutput)
    run = subprocess.run(
        ["sh", "-c", piece.command, "sh", *piece.arguments], capture_output=True, text=True, check=True
    )
    assert run.stdout == argument


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_template_and_text_give_pieces_and_only_the_template_brings_commands(
    template: str, typed: str
) -> None:
    commands = [piece.command for piece in expand_command(template, typed) if isinstance(piece, ShellOutput)]
    assert all(f"!`{command}`" in template for command in commands)
