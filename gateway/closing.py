"""Everything open that wants a last word before the server stops."""

from __future__ import annotations

from collections.abc import Callable


class Closing:
    """Callbacks that each end one stream or socket in an orderly way; they are synchronous and called once."""

    def __init__(self) -> None:
        self._callbacks: set[Callable[[], None]] = set()
        self.begun = False

    def add(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called when closing begins: at once when it has begun."""
        if self.begun:
            callback()
        else:
            self._callbacks.add(callback)

    def discard(self, callback: Callable[[], None]) -> None:
        """Forget ``callback``; idempotent."""
        self._callbacks.discard(callback)

    def begin(self) -> None:
        """Call them all; idempotent."""
        self.begun = True
        while self._callbacks:
            self._callbacks.pop()()
