"""``greenroom check``: reads agent files by the server's own rules and prints every problem."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from actors.config.load import check as problems_of
from actors.config.load import load_file


def check(files: Iterable[str]) -> int:
    """Print a line for every good file and one for every problem; return 1 if there is any problem."""
    failed = False
    for name in files:
        path = Path(name).expanduser()
        problems = problems_of(path)
        for problem in problems:
            print(f"greenroom: {problem.message}", file=sys.stderr)
        failed = failed or bool(problems)
        if not problems:
            agents = list(load_file(path).agents)
            print(
                f"{name}: ok ({len(agents)} {'agent' if len(agents) == 1 else 'agents'}: {', '.join(agents)})"
            )
    return 1 if failed else 0
