"""The auth room's words: scopes, keys as readers see them, and the events of the one stream of keys."""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

ScopeName = Literal["agent_read", "agent_write", "admin"]
SCOPES: frozenset[str] = frozenset(get_args(ScopeName))
"""Every scope there is. ``admin`` stands for all of them; the other two imply nothing."""


class KeyIssued(Struct, frozen=True, tag="key_issued", tag_field="type"):
    """A key was made. ``digest`` is all that is kept of its text."""

    id: str
    name: str
    scopes: tuple[ScopeName, ...]
    digest: bytes


class KeyRevoked(Struct, frozen=True, tag="key_revoked", tag_field="type"):
    """A key is not accepted any more."""

    id: str


AuthEvent = KeyIssued | KeyRevoked


class AccessKey(Struct, frozen=True):
    """A stored key, without its text. ``created_at`` is seconds since the epoch."""

    id: str
    name: str
    scopes: tuple[ScopeName, ...]
    created_at: float

    @property
    def grants(self) -> frozenset[str]:
        """What the key permits: its scopes, and every scope for an ``admin`` key."""
        return SCOPES if "admin" in self.scopes else frozenset(self.scopes)
