"""The one failure of this room: a configuration that cannot be used, with where and why."""

from __future__ import annotations

from actors.errors import Invalid


class ConfigError(Invalid):
    """An agent file is wrong.

    Args:
        problem: One sentence without position.
        file: Name of the file as the user knows it; empty for text that came from elsewhere.
        line: 1-based line; 0 when the problem has no position.
        key: Dotted path of the offending key, e.g. ``agents.root.model``; may be empty.
    """

    code = "invalid_config"

    def __init__(self, problem: str, file: str = "", line: int = 0, key: str = "") -> None:
        place = f"{file}:{line}" if file and line else file or (f"line {line}" if line else "")
        super().__init__(f"{problem} ({place})" if place else problem, file=file, line=line, key=key)
        self.problem = problem
        self.file = file
        self.line = line
        self.key = key


class ConfigErrors(ConfigError):
    """Several problems of one file; message and position are those of the first, ``problems`` has them all.

    Args:
        problems: At least one.
    """

    def __init__(self, problems: list[ConfigError]) -> None:
        first = problems[0]
        super().__init__(first.problem, first.file, first.line, first.key)
        self.problems = tuple(problems)
