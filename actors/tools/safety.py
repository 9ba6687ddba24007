"""How dangerous a call looks: safe, destructive or unknown, and how far the damage would reach.

A label decides only what a safety mode asks about; it never refuses a call. The tables of command lines are
in :mod:`actors.tools.safety_tables`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from actors.tools import shell_syntax
from actors.tools.safety_tables import DESTRUCTIVE, SAFE, UNSAFE_OPTIONS, Radius
from actors.tools.tool import Definition

JSON = Any

Safety = Literal["safe", "destructive", "unknown"]
_REACH: Mapping[str, int] = {"": 0, "low": 1, "medium": 2, "high": 3}
_COMMAND_TOOLS = frozenset({"shell", "run_background_job"})


class Label(Struct, frozen=True):
    """A call's label. ``blast_radius`` is set for destructive calls only."""

    safety: Safety = "unknown"
    blast_radius: Literal["", "low", "medium", "high"] = ""
    category: str = ""
    reason: str = ""

    def metadata(self) -> dict[str, str]:
        """Return the label as the string map of a confirmation event; empty entries are left out."""
        entries = {
            "safety_label": self.safety,
            "blast_radius": self.blast_radius,
            "category": self.category,
            "reason": self.reason,
        }
        return {key: value for key, value in entries.items() if value}


def takes_command_line(definition: Definition) -> bool:
    """Tell whether the tool's ``cmd`` argument goes to a shell."""
    return definition.category == "shell" or definition.name in _COMMAND_TOOLS


def label_call(definition: Definition, arguments: Mapping[str, JSON]) -> Label:
    """Label a call: shell tools by their command line, others by their annotations."""
    command = arguments.get("cmd")
    if takes_command_line(definition) and isinstance(command, str):
        return label_command(command)
    hints = definition.annotations
    if hints.read_only_hint:
        return Label("safe", category=definition.category, reason="the tool only reads")
    if hints.destructive_hint:
        return Label("destructive", "medium", definition.category, "the tool can destroy data")
    return Label("unknown", category=definition.category, reason="the tool does not say what it changes")


def label_command(line: str) -> Label:
    """Label a shell command line.

    Destructive if any command in it is, with the widest reach of them. Safe only if it is one simple command
    of the safe table, without an option that makes it write or run something.
    """
    worst: Label | None = None
    for text in (*shell_syntax.programs(line), line):
        for pattern, radius, category, reason in DESTRUCTIVE:
            if pattern.search(text) and (worst is None or _REACH[radius] > _REACH[worst.blast_radius]):
                worst = _destructive(radius, category, reason)
    if worst is not None:
        return worst
    reading = shell_syntax.read(line.strip(" \t\n"))
    if reading.simple and not set(line.strip()) & set(";&|<>`\n"):
        words = reading.commands[0].words
        for length in (3, 2, 1):
            name = " ".join(words[:length])
            if len(words) >= length and name in SAFE:
                rest = words[length:]
                forbidden = UNSAFE_OPTIONS.get(name)
                if forbidden and any(forbidden.match(word) for word in rest):
                    break
                return Label("safe", category=SAFE[name], reason=f"{name} only reads")
    return Label("unknown", category="shell", reason="the command is not in the table of known commands")


def _destructive(radius: Radius, category: str, reason: str) -> Label:
    return Label("destructive", radius, category, reason)
