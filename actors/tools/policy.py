"""Whether a tool call may run: rules, safety mode and the call's label, as pure functions of values."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

SafetyMode = Literal["", "strict", "balanced", "autonomous"]
"""How much a session lets pass unasked; empty means that nobody has chosen yet."""


class Rules(Struct, frozen=True, omit_defaults=True):
    """One tier's permission patterns (see :mod:`actors.tools.patterns`)."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
