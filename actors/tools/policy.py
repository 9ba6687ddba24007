"""Whether a tool call may run: rules, safety mode and the call's label, as pure functions of values.

Order of the decision: every deny rule first; then what the calling agents' rules say; then session rules
(allow, then ask), then team rules (allow, then ask), and last the safety mode. A deny therefore holds whoever
else allows.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from actors.tools import patterns, shell_syntax
from actors.tools.safety import Label, label_call, takes_command_line
from actors.tools.tool import Definition

JSON = Any

SafetyMode = Literal["", "strict", "balanced", "autonomous"]
"""How much a session lets pass unasked; empty means that nobody has chosen yet."""

Outcome = Literal["allow", "ask", "deny"]
Tier = Literal["session", "team", "mode", "read_only"]


class Rules(Struct, frozen=True, omit_defaults=True):
    """One tier's permission patterns (see :mod:`actors.tools.patterns`)."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Verdict(Struct, frozen=True):
    """The decision on one call.

    Attributes:
        by: The tier that decided; ``read_only`` is the rule for tools with that hint while no mode is chosen.
        rule: The deciding pattern, if a rule decided.
        label: How dangerous the call looks; ``label.metadata()`` goes into the confirmation event.
        refusal: For ``deny``: the exact text of the tool's error result.
        standing: For ``ask``: no safety mode lifts the question, only a session allow rule.
    """

    outcome: Outcome
    by: Tier
    rule: str = ""
    label: Label = Label()
    refusal: str = ""
    standing: bool = False


NO_RULES = Rules()
_MODE_ALLOWS: Mapping[SafetyMode, frozenset[str]] = {
    "": frozenset(),
    "strict": frozenset(),
    "balanced": frozenset({"safe"}),
    "autonomous": frozenset({"safe", "destructive", "unknown"}),
}
_REFUSALS = {
    "session": "Tool '{}' is denied by session permissions.",
    "team": "Tool '{}' is denied by permissions configuration.",
}
_STRICTNESS: Mapping[Outcome, int] = {"allow": 0, "ask": 1, "deny": 2}


def unavailable(tool: str) -> str:
    """Return the result text for a call of a tool that the agent does not have."""
    return f"Tool '{tool}' is not available. You can only use the tools provided to you."


def unattended(tool: str) -> str:
    """Return the result text for a call that would ask in a session where nobody can answer."""
    return f"Tool '{tool}' requires user confirmation but the session is non-interactive."


def decide(
    definition: Definition,
    arguments: Mapping[str, JSON],
    mode: SafetyMode,
    session: Rules = NO_RULES,
    team: Rules = NO_RULES,
    callers: Sequence[Rules] = (),
) -> Verdict:
    """Decide on a call.

    Args:
        definition: The tool's, whose annotations give the label.
        arguments: As the tool would get them.
        mode: The session's safety mode.
        session: The session's rules.
        team: The rules of the YAML file and the user's configuration.
        callers: Rules of the sessions that this one works for, nearest first. Where they and this session's
        own tiers
            both have an opinion, the stricter one holds: deny over ask over allow.
    """
    label = label_call(definition, arguments)
    tiers: tuple[tuple[Literal["session", "team"], Rules], ...] = (
        ("session", session),
        *(("session", rules) for rules in callers),
        ("team", team),
    )
    for tier, rules in tiers:
        if rule := _first(rules.deny, definition, arguments, "deny"):
            return Verdict("deny", tier, rule, label, _REFUSALS[tier].format(definition.name))

    opinions = [_opinion(rules, definition, arguments) for rules in (session, *callers)]
    strictest = compose([opinion for opinion in opinions if opinion])
    if strictest:
        outcome, rule = strictest
        return Verdict(outcome, "session", rule, label, standing=outcome == "ask")

    team_opinion = _opinion(team, definition, arguments)
    if team_opinion and (team_opinion[0] == "allow" or mode in {"", "strict"}):
        return Verdict(team_opinion[0], "team", team_opinion[1], label)
    if label.safety in _MODE_ALLOWS[mode]:
        return Verdict("allow", "mode", label=label)
    if mode == "" and definition.annotations.read_only_hint:
        return Verdict("allow", "read_only", label=label)
    return Verdict("ask", "mode", label=label)


def compose(opinions: Sequence[tuple[Outcome, str]]) -> tuple[Outcome, str] | None:
    """Return the strictest of several ``(outcome, rule)`` pairs, the first of equals; ``None`` of none."""
    return max(opinions, key=lambda opinion: _STRICTNESS[opinion[0]], default=None)


def session_allows(rules: Rules, definition: Definition, arguments: Mapping[str, JSON]) -> bool:
    """Tell whether a session's rules alone let a call run; the answer to a hook that insists on asking."""
    return not _first(rules.deny, definition, arguments, "deny") and bool(
        _first(rules.allow, definition, arguments, "allow", narrow=True)
    )


def _opinion(
    rules: Rules, definition: Definition, arguments: Mapping[str, JSON]
) -> tuple[Literal["allow", "ask"], str] | None:
    if rule := _first(rules.allow, definition, arguments, "allow"):
        return "allow", rule
    if rule := _first(rules.ask, definition, arguments, "ask"):
        return "ask", rule
    return None


def _first(
    rules: Sequence[str],
    definition: Definition,
    arguments: Mapping[str, JSON],
    meaning: Outcome,
    *,
    narrow: bool = False,
) -> str:
    """Return the first rule that matches, or an empty text.

    With ``narrow``, even a rule without conditions covers a command line only if it is one simple command.
    """
    for rule in rules:
        pattern = patterns.parse(rule)
        if not patterns.matches(pattern.tool, definition.name):
            continue
        if narrow and takes_command_line(definition):
            command = arguments.get("cmd")
            if not (isinstance(command, str) and shell_syntax.read(command.rstrip(" \t\n")).simple):
                continue
        if all(
            name in arguments and _holds(glob, definition, name, arguments[name], meaning)
            for name, glob in pattern.conditions
        ):
            return rule
    return ""


def _holds(glob: str, definition: Definition, name: str, value: JSON, meaning: Outcome) -> bool:
    """Match one condition: an allow as narrowly as the text permits, the others in every spelling."""
    command_line = name == "cmd" and isinstance(value, str) and takes_command_line(definition)
    if meaning == "allow":
        text = patterns.as_text(value)
        if not patterns.is_exact(glob) and ".." not in glob and _climbs(text):
            return False
        if not command_line:
            return patterns.matches(glob, text)
        line = text.rstrip(" \t\n")
        return patterns.matches_words(glob, line) and shell_syntax.read(line).simple
    spellings = shell_syntax.spellings(value) if command_line else _spellings(value)
    return any(patterns.matches(glob, text) for text in spellings)


def _climbs(text: str) -> bool:
    """Tell whether a path in the text goes upwards, so that its beginning does not say where it leads."""
    return any(part == ".." or part.endswith(("=..", '"..', "'..", ":..")) for part in _parts(text))


def _parts(text: str) -> Iterator[str]:
    for word in text.replace("\\", "/").split():
        yield from (part.strip("\"'[],") or part for part in word.split("/"))


def _spellings(value: JSON) -> Iterator[str]:
    """Yield the texts under which a forbidding rule should know an argument: as it is, as a tidy path, each item."""
    text = patterns.as_text(value)
    yield text
    if isinstance(value, str):
        if "/" in text or text.startswith("."):
            tidy = posixpath.normpath(text)
            yield tidy
            yield "/" + tidy.lstrip("/") if tidy.startswith("//") else tidy
    elif isinstance(value, list | tuple):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _spellings(item)
