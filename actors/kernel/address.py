"""Addresses: names of actors as data. Nothing here knows whether an actor with that name is alive."""

from __future__ import annotations

import msgspec


class Address(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """Where an actor is found: its kind and its key within the kind. Hashable, ordered, crosses the wire.

    The text form is ``kind/key``. A kind holds no slash; a key may (a child's key extends its parent's).
    """

    kind: str
    key: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.key}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the address written as ``kind/key``.

        Raises:
            ValueError: there is no slash, or nothing before or after it.
        """
        kind, slash, key = text.partition("/")
        if not (kind and slash and key):
            raise ValueError(f"not an address: {text!r}; write kind/key")
        return cls(kind, key)

    def child(self, key: str) -> Address:
        """Return the address of a child named ``key``: the same kind, the key extended by a slash."""
        return Address(self.kind, f"{self.key}/{key}")
