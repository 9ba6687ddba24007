"""Kill switches: emergency cancellation of everything registered, without mailboxes, disks or waiting."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakSet

import trio


class Cancellable(Protocol):
    """Anything that a switch can cancel: a :class:`trio.CancelScope`, a :class:`~actors.kernel.work.Work`."""

    def cancel(self, reason: str) -> None:
        """Cancel now, in one synchronous step."""
        ...


class KillSwitch:
    """A latch over a tree of cancellable things (K14).

    Args:
        parent: When it is tripped, so is everything under this switch.
    """

    def __init__(self, parent: KillSwitch | None = None) -> None:
        self._parent = parent
        self._reason: str | None = None
        self._targets: set[Cancellable] = set()
        self._children: WeakSet[KillSwitch] | None = None
        if parent is not None:
            parent._adopt(self)  # noqa: SLF001 - another switch

    @property
    def reason(self) -> str | None:
        """Why this switch or the nearest tripped ancestor was tripped; None while none is."""
        switch: KillSwitch | None = self
        while switch is not None and switch._reason is None:  # noqa: SLF001 - another switch
            switch = switch._parent  # noqa: SLF001 - another switch
        return None if switch is None else switch._reason  # noqa: SLF001 - another switch

    def add(self, target: Cancellable) -> None:
        """Register ``target`` until :meth:`discard`; cancelled at once when the switch is tripped already."""
        self._targets.add(target)
        if (reason := self.reason) is not None:
            target.cancel(reason)

    def discard(self, target: Cancellable) -> None:
        """Forget ``target``. Idempotent."""
        self._targets.discard(target)

    @contextmanager
    def scope(self) -> Generator[trio.CancelScope, None, None]:
        """Run the block in a cancel scope that the switch cancels; born cancelled once tripped."""
        with trio.CancelScope() as scope:
            self.add(scope)
            try:
                yield scope
            finally:
                self.discard(scope)

    def trip(self, reason: str) -> int:
        """Cancel everything registered here and below, and whatever registers until :meth:`reset`.

        Returns:
            How many things were cancelled. Checkpoint: never.
        """
        self._reason = reason
        return self._cancel_all(reason)

    def reset(self) -> None:
        """Admit new work again. What was cancelled stays cancelled; a tripped ancestor still holds."""
        self._reason = None

    def _cancel_all(self, reason: str) -> int:
        targets = tuple(self._targets)
        for target in targets:
            target.cancel(reason)
        children = tuple(self._children or ())
        return len(targets) + sum(child._cancel_all(reason) for child in children)  # noqa: SLF001 - other switches

    def _adopt(self, child: KillSwitch) -> None:
        if self._children is None:
            self._children = WeakSet()
        self._children.add(child)
