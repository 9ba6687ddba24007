"""Commands of the agent file: a template and what the user typed → the pieces of a prompt; nothing is run here.

In a template ``$1``, ``$2``… are the arguments, ``$ARGUMENTS`` is all that was typed, and ``!`cmd``` stands for the
output of a shell command. Commands are found in the template alone, so an argument can never bring one in; the shell
gets arguments as its own parameters and never as part of the command's text.
"""

from __future__ import annotations

import re
import shlex

from msgspec import Struct

_SHELL = re.compile(r"!`([^`\n]+)`")
_ARGUMENT = re.compile(r"\$(ARGUMENTS\b|[1-9][0-9]?(?![0-9]))")


class Text(Struct, frozen=True, tag=True):
    """Text of the prompt."""

    text: str


class ShellOutput(Struct, frozen=True, tag=True):
    """Stands for what a shell command prints.

    Run it as ``sh -c command sh *arguments`` with ``ARGUMENTS`` (``typed``) in the environment: the shell itself then
    fills in ``$1`` and ``$ARGUMENTS``.
    """

    command: str
    arguments: tuple[str, ...] = ()
    typed: str = ""


Piece = Text | ShellOutput


def split_arguments(typed: str) -> tuple[str, ...]:
    """Split what was typed after the command as a shell would; by blanks when its quotes do not match."""
    try:
        return tuple(shlex.split(typed))
    except ValueError:
        return tuple(typed.split())


def expand_command(template: str, typed: str = "") -> tuple[Piece, ...]:
    """Return the prompt of a command in pieces, in order.

    A missing argument is empty. A template without any argument placeholder gets what was typed as a last paragraph.
    """
    typed = typed.strip()
    arguments = split_arguments(typed)

    def value(found: re.Match[str]) -> str:
        if found[1] == "ARGUMENTS":
            return typed
        index = int(found[1]) - 1
        return arguments[index] if index < len(arguments) else ""

    pieces: list[Piece] = []
    for index, part in enumerate(_SHELL.split(template)):
        if index % 2:
            pieces.append(ShellOutput(part, arguments, typed))
        elif part:
            pieces.append(Text(_ARGUMENT.sub(value, part)))
    if typed and not _ARGUMENT.search(template):
        pieces.append(Text(f"\n\n{typed}" if pieces else typed))
    return tuple(pieces)
