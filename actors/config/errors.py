"""The failures of this room: a configuration that cannot be used, with where and why, or cannot be had."""

from __future__ import annotations

from collections.abc import Sequence

from actors.errors import Invalid


class ConfigError(Invalid):
    """An agent file is wrong.

    Args:
        problem: One sentence without position.
        file: Name of the file as the user knows it; empty for text that came from elsewhere.
        line: 1-based line; 0 when the problem has no position.
        key: Dotted path of the offending key, e.g. ``agents.root.model``; may be empty.
        hint: What to do about it; follows the position.

    Attributes:
        problems: All problems of the file, this one first.
    """

    code = "invalid_config"

    def __init__(self, problem: str, file: str = "", line: int = 0, key: str = "", hint: str = "") -> None:
        place = f"{file}:{line}" if file and line else file or (f"line {line}" if line else "")
        message = f"{problem} ({place})" if place else problem
        super().__init__(f"{message}; {hint}" if hint else message, file=file, line=line, key=key)
        self.problem = problem
        self.file = file
        self.line = line
        self.key = key
        self.hint = hint
        self.problems: tuple[ConfigError, ...] = (self,)

    @classmethod
    def of(cls, problems: Sequence[ConfigError]) -> ConfigError:
        """Return the first of the problems, which then carries them all; at least one is needed."""
        first, *rest = problems
        error = cls(first.problem, first.file, first.line, first.key, first.hint)
        error.problems = (error, *rest)
        return error


class SourceUnavailable(ConfigError):
    """An agent file that is kept elsewhere cannot be had from there now."""

    code = "source_unavailable"
