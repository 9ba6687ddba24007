"""Gathering the facts of the world that an agent's prompt mentions: the date, the machine, prompt files."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import trio

from actors.agent.host import RunFacts
from actors.agent.prompt import World
from actors.agent.team import AgentSpec
from actors.ids import wall_clock

MAX_FILE_BYTES = 200_000
"""A prompt file is read up to here."""


async def gather_world(spec: AgentSpec, facts: RunFacts) -> World:
    """Return what ``spec`` wants to know; touches no file when it wants none."""
    if not (spec.add_date or spec.add_environment_info or spec.prompt_files):
        return World()
    date = datetime.fromtimestamp(wall_clock(), UTC).date().isoformat() if spec.add_date else ""
    if not (spec.add_environment_info or spec.prompt_files):
        return World(date)
    return await trio.to_thread.run_sync(_read, spec, facts, date)


def _read(spec: AgentSpec, facts: RunFacts, date: str) -> World:
    environment = describe_environment(facts.working_dir) if spec.add_environment_info else ""
    return World(date, environment, find_prompt_files(spec.prompt_files, facts.working_dir, Path.home()))


def describe_environment(working_dir: Path) -> str:
    """Return lines on the working directory and the machine."""
    in_git = any((folder / ".git").exists() for folder in (working_dir, *working_dir.parents))
    return "\n".join(
        [
            f"Working directory: {working_dir}",
            f"Is directory a git repo: {'Yes' if in_git else 'No'}",
            f"Operating System: {platform.system()}",
            f"CPU Architecture: {platform.machine()}",
        ]
    )


def find_prompt_files(names: Sequence[str], working_dir: Path, home: Path) -> tuple[tuple[str, str], ...]:
    """Return name and text of each file, looked for in the working directory, its parents, then in ``home``.

    A file found nowhere or unreadable is left out; text that is not UTF-8 is read with replacement marks.
    """
    found: list[tuple[str, str]] = []
    for name in names:
        for folder in (working_dir, *working_dir.parents, home):
            text = _text_of(folder / name)
            if text is not None:
                found.append((name, text))
                break
    return tuple(found)


def _text_of(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES).decode(errors="replace").replace("\0", "\ufffd")
    except OSError:
        return None
