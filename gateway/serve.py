"""Serving a table on addresses: listening, announcing, signals and the way down; it does not close the runtime."""

from __future__ import annotations

import gc
import logging
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

import trio

from gateway.endpoint import Endpoint
from gateway.front import Front
from gateway.handover import Handover
from gateway.listeners import Listener, open_listeners

log = logging.getLogger("gateway")

_FORCE_SECONDS = 1.0
_POLL_SECONDS = 0.02


GC_THRESHOLDS = (50_000, 20, 50)
"""Allocations before a young collection, and how many of one generation make one of the next."""


class Stop:
    """That the process should end: asked for once, and then with force."""

    def __init__(self) -> None:
        self._requested = trio.Event()
        self.reason = ""

    def request(self, reason: str) -> None:
        """Ask for an orderly end; idempotent."""
        if not self._requested.is_set():
            self.reason = reason
            self._requested.set()

    @property
    def requested(self) -> bool:
        """An end was asked for."""
        return self._requested.is_set()

    async def wait(self) -> None:
        """Wait until an end is asked for."""
        await self._requested.wait()


@asynccontextmanager
async def stop_on_signals() -> AsyncGenerator[Stop]:
    """Turn SIGTERM, SIGINT and SIGHUP into a :class:`Stop`, for everything inside.

    The first signal asks for an orderly end. The second cancels the body, so that what it has open is
    closed at once; the context then ends normally, so that the exit code stays 0. Open it around the
    runtime too: a signal while the journal closes must not kill the process.
    """
    stop = Stop()
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:

            async def receive() -> None:
                async for number in signals:
                    name = signal.Signals(number).name
                    if stop.requested:
                        log.warning("%s: stopping at once", name)
                        nursery.cancel_scope.cancel()
                        return
                    log.info("%s: shutting down", name)
                    stop.request(name)

            nursery.start_soon(receive)
            yield stop
            nursery.cancel_scope.cancel()


def announce(listener: Listener) -> None:
    """Say on standard output where the server listens, one line an address."""
    sys.stdout.write(f"Listening on {listener.address}\n")
    sys.stdout.flush()


async def serve(
    endpoint: Endpoint,
    addresses: Sequence[str],
    stop: Stop,
    *,
    announce: Callable[[Listener], None] = announce,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until ``stop`` is requested, then close in order and return.

    The way down, each step with a deadline: stop accepting; give every stream its last word and every
    WebSocket its close frame (1012), and let requests in progress end; close what is left. It takes at most
    the settings' ``grace_seconds`` and one second more, whatever clients do. The caller closes the runtime
    afterwards.

    Args:
        endpoint: What is served.
        addresses: See :func:`gateway.listeners.open_listeners`.
        stop: Ends it; see :func:`stop_on_signals`.
        announce: Called for each listener once it listens.
        task_status: Started with the addresses in use.

    Raises:
        Invalid: an address is malformed.
        Unavailable: an address cannot be bound.

    Cancellation: every connection is closed at once.
    """
    listeners = open_listeners(addresses, endpoint.settings)
    front = Front(endpoint, Handover(endpoint))
    try:
        async with trio.open_nursery() as watching:
            watching.start_soon(front.watch)
            async with trio.open_nursery() as connections:
                try:
                    await _accept_until(stop, front, listeners, connections, announce, task_status)
                    await _close(front)
                finally:
                    # Also when cancelled: Hypercorn's shielded sends end only with their sockets.
                    front.hang_up_all()
                connections.cancel_scope.cancel()
            watching.cancel_scope.cancel()
    finally:
        front.close()
        for listener in listeners:
            listener.close()


async def _accept_until(
    stop: Stop,
    front: Front,
    listeners: Sequence[Listener],
    connections: trio.Nursery,
    announce: Callable[[Listener], None],
    task_status: trio.TaskStatus[list[str]],
) -> None:
    async with trio.open_nursery() as accepting:
        for listener in listeners:
            accepting.start_soon(front.accept, listener, connections)
            announce(listener)
        # What start-up made lives for ever; the collector need not look at it again.
        gc.collect()
        gc.freeze()
        # A thousand runs at once are millions of young objects that die by reference counting; with CPython's
        # default of 700 the collector took a third of the time to find nothing.
        gc.set_threshold(*GC_THRESHOLDS)
        task_status.started([listener.address for listener in listeners])
        await stop.wait()
        accepting.cancel_scope.cancel()
    for listener in listeners:
        listener.close()


async def _close(front: Front) -> None:
    await front.begin_closing()
    if not await _empty_within(front, front.settings.grace_seconds):
        log.warning("%d connections did not end in time and are closed", len(front))
        front.hang_up_all()
        if not await _empty_within(front, _FORCE_SECONDS):
            log.error("%d connections could not be closed", len(front))


async def _empty_within(front: Front, seconds: float) -> bool:
    with trio.move_on_after(seconds):
        while len(front):  # noqa: ASYNC110 - a few polls once in a process's life
            await trio.sleep(_POLL_SECONDS)
    return not len(front)
