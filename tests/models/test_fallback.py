from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from actors.models.fallback import Candidate, FallbackProvider, next_step
from actors.models.provider import (
    Completed,
    Message,
    ModelError,
    ModelErrorKind,
    ModelEvent,
    ModelRequest,
    Retrying,
    TextDelta,
)
from actors.testing.model import ScriptedModel, fail, say

REQUEST = ModelRequest(model="ignored", messages=(Message("user", "hi"),), temperature=0.1)


def failure(
    kind: ModelErrorKind = "server", *, retryable: bool = True, wait: float | None = None
) -> ModelError:
    return ModelError(f"it failed: {kind}", kind=kind, retryable=retryable, retry_after=wait)


def chain(*models: ScriptedModel, **options: Any) -> FallbackProvider:
    candidates = [Candidate(model, f"m{number}") for number, model in enumerate(models)]
    return FallbackProvider(candidates, chance=lambda: 1.0, **options)


async def collect(provider: FallbackProvider) -> list[ModelEvent]:
    events: list[ModelEvent] = []
    async with provider.open_stream(REQUEST) as stream:
        async for batch in stream:
            events.extend(batch)
    return events


def retries(events: list[ModelEvent]) -> list[Retrying]:
    return [event for event in events if isinstance(event, Retrying)]


async def test_passing_fault_is_retried_with_growing_waits(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel([failure(), failure(), say("ok")])
    events = await collect(chain(model))
    assert [(r.attempt, r.max_attempts, r.wait, r.discard) for r in retries(events)] == [
        (1, 3, 0.5, False),
        (2, 3, 1.0, False),
    ]
    assert trio.current_time() == pytest.approx(1.5, abs=0.01)
    assert isinstance(events[-1], Completed)


async def test_bounded_attempts_then_the_last_failure(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel([failure()] * 9)
    with pytest.raises(ModelError, match="server"):
        await collect(chain(model))
    assert len(model.requests) == 3


async def test_text_of_a_failed_attempt_is_declared_void(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel([say("par") + fail(failure("protocol")), say("whole")])
    events = await collect(chain(model))
    assert events[0] == TextDelta("par")
    assert retries(events)[0].discard
    assert events[2] == TextDelta("whole")


@pytest.mark.parametrize("kind", ["invalid_request", "authentication", "request_too_large"])
async def test_deterministic_refusal_is_never_repeated(kind: ModelErrorKind) -> None:
    model = ScriptedModel([failure(kind, retryable=False)] * 3)
    with pytest.raises(ModelError):
        await collect(chain(model))
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("kind", "retryable"), [("rate_limited", True), ("authentication", False), ("invalid_request", False)]
)
async def test_refusal_goes_to_the_next_model_at_once(kind: ModelErrorKind, retryable: bool) -> None:
    first, second = ScriptedModel([failure(kind, retryable=retryable)]), ScriptedModel([say("ok")])
    events = await collect(chain(first, second))
    [retry] = retries(events)
    assert (retry.failed_model, retry.next_model, retry.wait) == ("scripted/m0", "scripted/m1", 0.0)
    assert (len(first.requests), len(second.requests)) == (1, 1)


async def test_passing_fault_uses_up_its_attempts_before_the_next_model(
    autojump_clock: trio.testing.MockClock,
) -> None:
    first, second = ScriptedModel([failure()] * 3), ScriptedModel([say("ok")])
    events = await collect(chain(first, second))
    assert len(first.requests) == 3
    assert [retry.next_model for retry in retries(events)] == ["scripted/m0", "scripted/m0", "scripted/m1"]


async def test_rate_limit_of_the_only_model_is_waited_out(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel([failure("rate_limited", wait=42.0), say("ok")])
    await collect(chain(model))
    assert trio.current_time() == pytest.approx(42, abs=0.01)


async def test_full_context_is_the_callers_matter() -> None:
    first, second = ScriptedModel([failure("context_exceeded", retryable=False)]), ScriptedModel([say("ok")])
    with pytest.raises(ModelError, match="context"):
        await collect(chain(first, second))
    assert second.requests == []


async def test_waiting_ends_when_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel([failure(wait=50.0), say("ok")])
    with trio.move_on_after(5) as scope:
        await collect(chain(model))
    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(5, abs=0.01)


async def test_working_fallback_is_kept_for_the_cooldown(autojump_clock: trio.testing.MockClock) -> None:
    first = ScriptedModel([failure("authentication", retryable=False), say("back")])
    second = ScriptedModel([say("a"), say("b")])
    provider = chain(first, second, cooldown=60)
    await collect(provider)
    await trio.sleep(59)
    assert retries(await collect(provider)) == []
    assert len(first.requests) == 1
    await trio.sleep(2)
    await collect(provider)
    assert (len(first.requests), len(second.requests)) == (2, 2)


async def test_outage_does_not_start_a_cooldown(autojump_clock: trio.testing.MockClock) -> None:
    first, second = ScriptedModel([*[failure()] * 3, say("back")]), ScriptedModel([say("a")])
    provider = chain(first, second)
    await collect(provider)
    await collect(provider)
    assert len(second.requests) == 1


async def test_kept_fallback_that_fails_goes_back_to_the_first(
    autojump_clock: trio.testing.MockClock,
) -> None:
    refused = failure("authentication", retryable=False)
    first, second = ScriptedModel([refused, say("back")]), ScriptedModel([say("a"), refused])
    provider = chain(first, second)
    await collect(provider)
    assert [retry.next_model for retry in retries(await collect(provider))] == ["scripted/m0"]


async def test_each_candidate_gets_its_model_and_changes() -> None:
    first, second = ScriptedModel([failure("rate_limited")]), ScriptedModel([say("ok")])
    await collect(
        FallbackProvider(
            [Candidate(first, "a"), Candidate(second, "b", {"temperature": None, "max_tokens": 5})]
        )
    )
    assert (first.requests[0].model, first.requests[0].temperature) == ("a", 0.1)
    assert (second.requests[0].model, second.requests[0].temperature, second.requests[0].max_tokens) == (
        "b",
        None,
        5,
    )


async def test_leaving_the_stream_leaves_the_provider() -> None:
    model = ScriptedModel([say("abc", chunks=3)])
    async with chain(model).open_stream(REQUEST) as stream:
        async for _ in stream:
            break
    assert model.outcomes == ["abandoned"]


@pytest.mark.parametrize("attempt", range(1, 12))
@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_back_off_is_bounded(attempt: int, chance: float) -> None:
    step = next_step(failure(), attempt=attempt, retries=99, has_next=False, chance=chance)
    assert 0.25 <= step.wait <= 30
