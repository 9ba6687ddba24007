"""Retries and fallback over any providers: a chain of models tried in order, and nothing vendor-specific.

The rules: faults that may pass (5xx, timeouts, resets, overload, broken streams) are retried on the same model
with exponential back-off; a refusal (429 or another 4xx) goes to the next model at once, and on the last model only
a 429 is waited out. A request that exceeds the context window fails at once: shortening it is the caller's job.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
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

_CLOSE_LIMIT = 5.0


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
        self.chain = tuple(chain)
        self.retries = retries
        self._cooldown = cooldown
        self.chance = chance
        self._preferred = 0
        self._preferred_until = 0.0

    @asynccontextmanager
    async def open_stream(self, request: ModelRequest) -> AsyncGenerator[ModelStream]:
        """Start a call.

        Raises:
            ModelError: from iteration: the last model's failure when the whole chain failed.

        Cancellation: also while waiting for a retry; the connection is closed.
        """
        first = self._preferred if trio.current_time() < self._preferred_until else 0
        call = _Call(self, request, [*range(first, len(self.chain)), *range(first)])
        try:
            yield call
        finally:
            with trio.move_on_after(
                _CLOSE_LIMIT, shield=True
            ):  # providers close without waiting for their peer
                await call.close()

    async def aclose(self) -> None:
        """Nothing of its own: the chain's providers are shared and closed by who opened them."""
        await trio.lowlevel.checkpoint()

    def keep(self, number: int) -> None:
        """Prefer the chain's model ``number`` for the cool-down."""
        self._preferred = number
        self._preferred_until = trio.current_time() + self._cooldown


def _silent_end() -> ModelError:
    return ModelError("the stream ended without an answer", kind="protocol", retryable=True)


class _Call:
    """One call through the chain: iterates over the batches of its attempts."""

    def __init__(self, owner: FallbackProvider, request: ModelRequest, order: Sequence[int]) -> None:
        self._owner = owner
        self._request = request
        self._order = order
        self._place = 0
        self._attempt = 0
        self._wait = 0.0
        self._begun = False
        self._refused = False
        self._over = False
        self._stack = AsyncExitStack()
        self._stream: ModelStream | None = None

    def __aiter__(self) -> _Call:
        return self

    async def __anext__(self) -> Sequence[ModelEvent]:
        if self._over:
            if self._stream is not None:
                await anext(self._stream, None)  # lets the provider keep its connection
            raise StopAsyncIteration
        try:
            if self._stream is None:
                self._stream = await self._begin()
            batch = await anext(self._stream, None)
        except ModelError as error:
            return [await self._fail(error)]
        if batch is None:
            return [await self._fail(_silent_end())]
        self._begun = True
        if batch and isinstance(batch[-1], Completed):
            self._over = True
            if self._refused:
                self._owner.keep(self._order[self._place])
        return batch

    async def close(self) -> None:
        """Leave the attempt that is open."""
        self._stream = None
        await self._stack.aclose()

    async def _begin(self) -> ModelStream:
        await trio.sleep(self._wait)
        self._attempt += 1
        self._begun = False
        candidate = self._candidate(self._place)
        changes = {**candidate.changes, "model": candidate.model}
        asked = msgspec.structs.replace(self._request, **changes)
        return await self._stack.enter_async_context(candidate.provider.open_stream(asked))

    async def _fail(self, error: ModelError) -> Retrying:
        """Leave the failed attempt, so that its provider sees the failure, and announce the next."""
        self._stream = None
        await self._stack.__aexit__(type(error), error, error.__traceback__)
        return self._next_attempt(error)

    def _next_attempt(self, error: ModelError) -> Retrying:
        """Move to what follows a failure and return its announcement; raise the failure when nothing does."""
        failed = self._candidate(self._place)
        attempt = self._attempt
        step = next_step(
            error,
            attempt=attempt,
            retries=self._owner.retries,
            has_next=self._place + 1 < len(self._order),
            chance=self._owner.chance(),
        )
        if step.what == "stop":
            raise error
        self._wait = step.wait
        if step.what == "next":
            self._refused = self._refused or not error.retryable or error.kind == "rate_limited"
            self._place += 1
            self._attempt = 0
        return Retrying(
            failed_model=failed.ref,
            next_model=self._candidate(self._place).ref,
            reason=error.message,
            attempt=attempt,
            max_attempts=self._owner.retries + 1,
            wait=step.wait,
            discard=self._begun,
        )

    def _candidate(self, place: int) -> Candidate:
        return self._owner.chain[self._order[place]]
