"""Retries and fallback over any providers: a chain of models tried in order, and nothing vendor-specific.

The rules: faults that may pass (5xx, timeouts, resets, overload, broken streams) are retried on the same model
with exponential back-off; a refusal (429 or another 4xx) goes to the next model at once, and on the last model only
a 429 is waited out. A request that exceeds the context window fails at once: shortening it is the caller's job.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple

import msgspec
import trio
from msgspec import Struct, field

from actors.models.provider import (
    Completed,
    ModelError,
    ModelEvent,
    ModelRequest,
    ModelStream,
    Provider,
    Retrying,
)

RETRIES = 2
"""Attempts after the first, per model."""
COOLDOWN = 60.0
"""Seconds a working fallback is kept after its predecessor refused."""
BACKOFF_BASE = 0.5
"""Seconds before the first retry, before jitter; doubles each time."""
BACKOFF_CAP = 30.0
"""Seconds, the longest wait of our own choosing; the provider may ask for up to a minute."""


class Candidate(Struct, frozen=True):
    """One model of the chain. ``changes`` replace fields of the request, such as a temperature of its own."""

    provider: Provider
    model: str
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def ref(self) -> str:
        """The ``provider/model`` reference."""
        return f"{self.provider.name}/{self.model}"


class Step(NamedTuple):
    """What to do after a failure: ``wait`` seconds, then the same model again or the next one; or give up."""

    what: str
    wait: float = 0.0


def next_step(error: ModelError, *, attempt: int, retries: int, has_next: bool, chance: float) -> Step:
    """Decide what follows a failure.

    Args:
        error: How the attempt failed.
        attempt: Its number on this model, from 1.
        retries: Attempts allowed after the first.
        has_next: Whether the chain has another model.
        chance: A random number in [0, 1) for the jitter.

    Returns:
        A step whose ``what`` is ``retry``, ``next`` or ``stop``.
    """
    if error.kind == "context_exceeded":
        return Step("stop")
    refused = error.kind == "rate_limited" and has_next
    if error.retryable and not refused and attempt <= retries:
        wait = error.retry_after
        if wait is None:
            wait = min(BACKOFF_BASE * 2 ** (attempt - 1), BACKOFF_CAP) * (0.5 + chance / 2)
        return Step("retry", wait)
    return Step("next" if has_next else "stop")


class FallbackProvider:
    """A :class:`~actors.models.provider.Provider` over a chain of models; a chain of one just retries.

    The request's own ``model`` is replaced by each candidate's. Text that a failed attempt has already streamed is
    void: the :class:`Retrying` event that follows says ``discard``.

    Args:
        chain: The models in order of preference.
        retries: Attempts after the first, per model.
        cooldown: Seconds to stay with a fallback after the model before it refused.
        chance: Returns random numbers in [0, 1).
    """

    def __init__(
        self,
        chain: Sequence[Candidate],
        *,
        retries: int = RETRIES,
        cooldown: float = COOLDOWN,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.name = "fallback"
        self._chain = tuple(chain)
        self._retries = retries
        self._cooldown = cooldown
        self._chance = chance
        self._preferred = 0
        self._preferred_until = 0.0

    @asynccontextmanager
    async def open_stream(self, request: ModelRequest) -> AsyncGenerator[ModelStream]:
        """Start a call.

        Raises:
            ModelError: from iteration: the last model's failure when the whole chain failed.

        Cancellation: also while waiting for a retry; the connection is closed.
        """
        async with aclosing(self._batches(request)) as stream:
            yield stream

    async def aclose(self) -> None:
        """Nothing of its own: the chain's providers are shared and closed by who opened them."""
        await trio.lowlevel.checkpoint()

    async def _batches(self, request: ModelRequest) -> AsyncGenerator[Sequence[ModelEvent]]:
        first = self._preferred if trio.current_time() < self._preferred_until else 0
        order = [*range(first, len(self._chain)), *range(first)]
        refused = False
        for place, number in enumerate(order):
            candidate = self._chain[number]
            following = self._chain[order[place + 1]] if place + 1 < len(order) else None
            asked = msgspec.structs.replace(request, **{**candidate.changes, "model": candidate.model})
            attempt = 0
            step = Step("retry")
            while step.what == "retry":
                attempt += 1
                begun = False
                try:
                    async with candidate.provider.open_stream(asked) as stream:
                        async for batch in stream:
                            begun = True
                            finished = bool(batch) and isinstance(batch[-1], Completed)
                            if finished and number != first and refused:
                                self._keep(number)
                            yield batch
                            if finished:
                                return
                    failure = ModelError(
                        "the stream ended before the answer did", kind="protocol", retryable=True
                    )
                except ModelError as error:
                    failure = error
                step = next_step(
                    failure,
                    attempt=attempt,
                    retries=self._retries,
                    has_next=following is not None,
                    chance=self._chance(),
                )
                if step.what == "stop":
                    raise failure
                target = candidate if step.what == "retry" or following is None else following
                refused = refused or not failure.retryable or failure.kind == "rate_limited"
                yield [_retrying(candidate, target, failure, attempt, self._retries + 1, step.wait, begun)]
                await trio.sleep(step.wait)

    def _keep(self, number: int) -> None:
        self._preferred = number
        self._preferred_until = trio.current_time() + self._cooldown


def _retrying(
    failed: Candidate,
    target: Candidate,
    error: ModelError,
    attempt: int,
    most: int,
    wait: float,
    discard: bool,
) -> Retrying:
    return Retrying(
        failed_model=failed.ref,
        next_model=target.ref,
        reason=error.message,
        attempt=attempt,
        max_attempts=most,
        wait=wait,
        discard=discard,
    )
