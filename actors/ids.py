"""Ids and wall-clock time, made at the edges and passed inwards as values."""

from __future__ import annotations

import secrets
import time
import uuid


def new_uuid() -> str:
    """Return a random UUID v4 in its usual text form; sessions use it (sessions contract 3.1)."""
    return str(uuid.uuid4())


def new_id(prefix: str) -> str:
    """Return ``prefix_`` plus a 20-character id that sorts by creation time (millisecond resolution).

    Args:
        prefix: A short noun, e.g. ``"msg"``.
    """
    return f"{prefix}_{int(time.time() * 1000):011x}{secrets.token_hex(5)[:9]}"


def wall_clock() -> float:
    """Return seconds since the epoch. For records people read; durations use ``trio.current_time``."""
    return time.time()
