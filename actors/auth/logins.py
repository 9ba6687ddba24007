"""Logins of browsers: random tokens that stand for a credential for a while. They end with the process."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import trio

from actors.auth.keys import digest_of

IDLE_SECONDS = 12 * 3600.0
"""A login unused for this long has ended."""
MAX_LOGINS = 10_000
"""Beyond this the login unused for longest ends."""


class Logins:
    """The open logins. Each stands for the digest of the credential it was made with, which is checked again on use.

    Args:
        now: Seconds on a clock that never goes back.
    """

    def __init__(self, now: Callable[[], float] = trio.current_time) -> None:
        self._now = now
        self._open: dict[bytes, tuple[bytes, float]] = {}  # by use, the latest last

    def open(self, credential: bytes) -> str:
        """Begin a login for a credential's digest and return its token."""
        self._drop_idle()
        while len(self._open) >= MAX_LOGINS:
            del self._open[next(iter(self._open))]
        token = secrets.token_urlsafe(32)
        self._open[digest_of(token)] = (credential, self._now())
        return token

    def credential(self, token: str) -> bytes | None:
        """Return the digest that a login's token stands for, ``None`` when the login has ended. Counts as use."""
        key = digest_of(token)
        found = self._open.pop(key, None)
        if found is None or self._now() - found[1] > IDLE_SECONDS:
            return None
        self._open[key] = (found[0], self._now())
        return found[0]

    def close(self, token: str) -> None:
        """End a login; idempotent."""
        self._open.pop(digest_of(token), None)

    def __len__(self) -> int:
        return len(self._open)

    def _drop_idle(self) -> None:
        limit = self._now() - IDLE_SECONDS
        while self._open:
            oldest = next(iter(self._open))
            if self._open[oldest][1] >= limit:
                return
            del self._open[oldest]
