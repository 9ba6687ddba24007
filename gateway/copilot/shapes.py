"""JSON values as what they should be, for what clients send; nothing here raises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

JSON = Any


def as_object(value: JSON) -> dict[str, JSON] | None:
    """Return ``value`` when it is an object."""
    return cast("dict[str, JSON]", value) if isinstance(value, dict) else None


def as_list(value: JSON) -> Sequence[JSON] | None:
    """Return ``value`` when it is a list."""
    return cast("Sequence[JSON]", value) if isinstance(value, list) else None
