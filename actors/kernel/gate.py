"""Gates: pause for work that looks at them between its own steps. They interrupt nothing."""

from __future__ import annotations

import trio


class Gate:
    """Open or closed; passable when it and every ancestor are open.

    Args:
        parent: Closing it closes this gate, too.
    """

    __slots__ = ("_closed", "_lot", "_parent")

    def __init__(self, parent: Gate | None = None) -> None:
        self._parent = parent
        self._closed = False
        self._lot: trio.lowlevel.ParkingLot | None = None

    @property
    def is_open(self) -> bool:
        """Whether :meth:`wait_open` would return at once."""
        return self._first_closed() is None

    def close(self) -> None:
        """Hold everyone who reaches the gate from now on. Idempotent."""
        self._closed = True

    def open(self) -> None:
        """Let everyone through who waits for this gate. Idempotent."""
        self._closed = False
        if self._lot is not None:
            self._lot.unpark_all()

    async def wait_open(self) -> None:
        """Return once the gate and all its ancestors are open. Checkpoint: always."""
        await trio.lowlevel.checkpoint()
        while (closed := self._first_closed()) is not None:
            await closed._park()  # noqa: SLF001 - another gate

    def _first_closed(self) -> Gate | None:
        gate: Gate | None = self
        while gate is not None and not gate._closed:  # noqa: SLF001 - another gate
            gate = gate._parent  # noqa: SLF001 - another gate
        return gate

    async def _park(self) -> None:
        if self._lot is None:
            self._lot = trio.lowlevel.ParkingLot()
        await self._lot.park()
