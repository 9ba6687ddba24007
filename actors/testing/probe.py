"""A probe: a ref that records what it is sent, and answers as told. No actor and no system stand behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import trio

from actors.kernel.address import Address
from actors.kernel.message import Exit, Request
from actors.kernel.ref import Ref

R = TypeVar("R")


class Probe(Ref[Any]):
    """Give it to the code under test instead of a ref.

    Attributes:
        received: Everything told, sent and asked, in order.
        stopped: Whether :meth:`stop` was called.
    """

    __slots__ = ("_answer", "_arrived", "received", "stopped")

    def __init__(self, address: Address | None = None, answer: Callable[[Any], Any] | None = None) -> None:
        """Make a probe.

        Args:
            address: Its name; default ``probe/1``.
            answer: Makes the reply to a request, or raises what the asker gets. Default: every reply is None.
        """
        super().__init__(address or Address("probe", "1"), None, None)
        self._answer = answer
        self._arrived = trio.Event()
        self.received: list[Any] = []
        self.stopped = False

    def tell(self, message: Any) -> None:
        """Record ``message``."""
        self.received.append(message)
        self._arrived.set()
        self._arrived = trio.Event()

    async def send(self, message: Any) -> None:
        """Record ``message``. Checkpoint: always."""
        await trio.lowlevel.checkpoint()
        self.tell(message)

    async def ask(self, request: Request[R]) -> R:
        """Record ``request`` and return what the probe's ``answer`` makes of it. Checkpoint: always."""
        await self.send(request)
        reply: R = None if self._answer is None else self._answer(request)  # type: ignore[assignment]
        return reply

    async def stop(self, grace: float) -> Exit:  # noqa: ARG002 - a ref's signature
        """Record that it was stopped. Checkpoint: always."""
        await trio.lowlevel.checkpoint()
        self.stopped = True
        return Exit("stopped")

    async def wait_received(self, count: int) -> list[Any]:
        """Wait until ``count`` messages came in all, and return them."""
        await trio.lowlevel.checkpoint()
        while len(self.received) < count:
            await self._arrived.wait()
        return self.received[:count]
