"""Reading a shell command line without running it: is it one simple command, which does it contain?

The reader errs on one side only: what it calls simple runs exactly one program with plain words. It is no
shell, and a list of forbidden commands built on it is a help against accidents, not a sandbox.
"""

from __future__ import annotations

import re

from msgspec import Struct

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[[^]]*\])?\+?=")
_RESERVED = frozenset(
    {
        "if",
        "then",
        "elif",
        "else",
        "fi",
        "while",
        "until",
        "do",
        "done",
        "for",
        "case",
        "esac",
        "select",
        "function",
        "coproc",
        "{",
        "}",
        "!",
        "[[",
        "]]",
    }
)
_WRAPPERS = frozenset(
    {
        "env",
        "sudo",
        "doas",
        "command",
        "builtin",
        "exec",
        "eval",
        "nohup",
        "nice",
        "ionice",
        "time",
        "timeout",
        "setsid",
        "stdbuf",
        "xargs",
        "chroot",
        "su",
    }
)
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "busybox"})
_MAX_DEPTH = 12


class Command(Struct, frozen=True):
    """One command of a line: its text, and its words without quotes."""

    text: str
    words: tuple[str, ...]


class Reading(Struct, frozen=True):
    """What a line contains.

    ``simple`` means: one program; no operator, redirect, command substitution, prefix assignment, wrapper such as
    ``sudo``, comment or unbalanced quote.
    """

    simple: bool
    commands: tuple[Command, ...]


def read(line: str) -> Reading:
    """Read a command line. Never raises; what cannot be understood is not simple."""
    reader = _Reader(line, 0)
    reader.run()
    commands = tuple(reader.commands)
    simple = reader.plain and len(commands) == 1 and _is_plain_program(commands[0].words[0])
    return Reading(simple, commands)


def spellings(line: str) -> tuple[str, ...]:
    """Return every text a forbidding rule should be tried on.

    The line, its commands, these without quotes, without directory and without wrappers, and the lines given to
    ``sh -c`` and ``eval``.
    """
    found: dict[str, None] = {line: None, line.strip(): None}
    _collect(line, found, 0)
    return tuple(found)


def programs(line: str) -> tuple[str, ...]:
    """Return the line's commands in plain words, wrappers and directories taken off."""
    found: dict[str, None] = {}
    for command in _all_commands(line, 0):
        found[" ".join(_bare(command.words))] = None
    return tuple(text for text in found if text)


def _is_plain_program(word: str) -> bool:
    name = word.rpartition("/")[2]
    return not (_ASSIGNMENT.match(word) or word in _RESERVED or name in _WRAPPERS)


def _collect(line: str, found: dict[str, None], depth: int) -> None:
    for command in _all_commands(line, depth):
        found[command.text] = None
        words = command.words
        while words:
            found[" ".join(words)] = None
            found[" ".join(_base(words))] = None
            shorter = _unwrap(words)
            if shorter == words:
                break
            words = shorter


def _all_commands(line: str, depth: int) -> list[Command]:
    reader = _Reader(line, depth)
    reader.run()
    commands = list(reader.commands)
    if depth >= _MAX_DEPTH:
        return commands
    for command in reader.commands:
        for inner in _inner_lines(command.words):
            commands += _all_commands(inner, depth + 1)
    return commands


def _inner_lines(words: tuple[str, ...]) -> list[str]:
    """Return the command lines that a command's words carry: ``sh -c LINE``, ``eval WORDS``."""
    words = tuple(words)
    while words:
        name = words[0].rpartition("/")[2]
        if name in _SHELLS:
            options = [
                index for index, word in enumerate(words) if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word)
            ]
            return [words[options[0] + 1]] if options and options[0] + 1 < len(words) else []
        if name == "eval":
            return [" ".join(words[1:])]
        shorter = _unwrap(words)
        if shorter == words:
            return []
        words = shorter
    return []


def _unwrap(words: tuple[str, ...]) -> tuple[str, ...]:
    """Take off one leading assignment, reserved word, or wrapper with its options."""
    first = words[0]
    if _ASSIGNMENT.match(first) or first in _RESERVED:
        return words[1:]
    name = first.rpartition("/")[2]
    if name not in _WRAPPERS:
        return words
    rest = words[1:]
    while rest and (
        rest[0].startswith("-") or (name in {"timeout", "nice"} and re.fullmatch(r"[\d.]+\w?", rest[0]))
    ):
        takes_value = rest[0] in {"-u", "-g", "-n", "-I", "-L", "-P", "-s", "-k", "-C", "-p"}
        rest = rest[2:] if takes_value and len(rest) > 2 else rest[1:]
    return rest


def _bare(words: tuple[str, ...]) -> tuple[str, ...]:
    while words:
        shorter = _unwrap(words)
        if shorter == words:
            break
        words = shorter
    return _base(words)


def _base(words: tuple[str, ...]) -> tuple[str, ...]:
    return (words[0].rpartition("/")[2], *words[1:]) if words else ()


class _Reader:
    """One pass over a line, with a new reader for every command substitution inside it."""

    def __init__(self, line: str, depth: int) -> None:
        self.line = line
        self.depth = depth
        self.plain = True
        self.commands: list[Command] = []
        self._at = 0
        self._start = 0
        self._words: list[str] = []
        self._word: list[str] | None = None

    def run(self) -> None:
        while self._at < len(self.line):
            self._step(self.line[self._at])
        self._end_command(self._at)

    def _step(self, char: str) -> None:
        here = self._at
        self._at += 1
        if char in " \t":
            self._end_word()
        elif char in ";&|()\n":
            self.plain = False
            self._end_command(here)
            self._start = self._at
        elif char in "<>":
            self.plain = False
            self._end_word()
        elif char == "#" and self._word is None:
            self.plain = False
            self._end_command(here)
            end = self.line.find("\n", here)
            self._at = self._start = len(self.line) if end < 0 else end
        elif char == "'":
            self._single()
        elif char == '"':
            self._double()
        else:
            self._character(char)

    def _character(self, char: str) -> None:
        """Take a character that is special inside double quotes as well, or an ordinary one."""
        following = self.line[self._at : self._at + 1]
        if char == "\\":
            self._at += 1
            if following in {"", "\n"}:
                self.plain = False  # a line that goes on
            else:
                self._add(following)
        elif char == "`":
            end = self._at
            while end < len(self.line) and self.line[end] != "`":
                end += 2 if self.line[end] == "\\" else 1
            self._substitution(self.line[self._at : end], end)
        elif char == "$" and following == "(":
            end = _closing(self.line, self._at + 1)
            self._substitution(self.line[self._at + 1 : end], end)
        else:
            if (
                (char == "$" and following in {"{", "'", '"'})
                or (char < " " and char != "\t")
                or char == "\x7f"
            ):
                self.plain = False
            self._add(char)

    def _single(self) -> None:
        end = self.line.find("'", self._at)
        if end < 0:
            self.plain = False
            end = len(self.line)
        self._add(self.line[self._at : end])
        self._at = end + 1

    def _double(self) -> None:
        self._add("")
        while self._at < len(self.line):
            char = self.line[self._at]
            self._at += 1
            if char == '"':
                return
            if char == "\\" and self.line[self._at : self._at + 1] not in {'"', "\\", "$", "`", "\n", ""}:
                self._add(char)  # inside double quotes a backslash is usually itself
            else:
                self._character(char)
        self.plain = False

    def _substitution(self, inner: str, end: int) -> None:
        self.plain = False
        self._at = end + 1
        self._add("$()")
        if self.depth < _MAX_DEPTH:
            reader = _Reader(inner, self.depth + 1)
            reader.run()
            self.commands += reader.commands

    def _add(self, text: str) -> None:
        if self._word is None:
            self._word = []
        self._word.append(text)

    def _end_word(self) -> None:
        if self._word is not None:
            self._words.append("".join(self._word))
            self._word = None

    def _end_command(self, end: int) -> None:
        self._end_word()
        if self._words:
            self.commands.append(Command(self.line[self._start : end].strip(), tuple(self._words)))
            self._words = []


def _closing(line: str, start: int) -> int:
    """Return where the parenthesis opened before ``start`` closes, or the line's end."""
    depth, index = 1, start
    while index < len(line):
        char = line[index]
        if char == "\\":
            index += 1
        elif char == "'":
            end = line.find("'", index + 1)
            index = len(line) if end < 0 else end
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
            if depth == 0:
                return index
        index += 1
    return len(line)
