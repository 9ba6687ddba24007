"""A session's stream cut down to one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from actors.agent.messages import RunEnded, RunStarted, TextDelta
from actors.journal.ring import Frame
from actors.journal.tail import Follower, Gap
from gateway.run_follower import RunFollower


class Batches:
    """Stands for a follower that has these batches left."""

    def __init__(self, *batches: Sequence[Frame] | Gap) -> None:
        self._left = list(batches)

    async def next(self) -> Sequence[Frame] | Gap | None:
        return self._left.pop(0)


def frames(first: int, *events: RunStarted | RunEnded | TextDelta) -> list[Frame]:
    return [Frame(seq, 0.0, event) for seq, event in enumerate(events, first)]


def follow(*batches: Sequence[Frame] | Gap) -> RunFollower:
    return RunFollower(cast("Follower", Batches(*batches)), "run_a")


async def test_a_run_s_stream_ends_with_its_last_event() -> None:
    ours = frames(1, RunStarted(run_id="run_a"), TextDelta(), RunEnded(run_id="run_a"))
    reader = follow([*ours, *frames(4, RunStarted(run_id="run_b"))])
    assert await reader.next() == ours
    assert await reader.next() is None


async def test_the_end_of_a_delegated_run_does_not_end_the_stream() -> None:
    inner = frames(1, RunStarted(run_id="run_c", session="sub"), RunEnded(run_id="run_a", session="sub"))
    last = frames(3, RunEnded(run_id="run_a"))
    reader = follow(inner, last)
    assert [await reader.next(), await reader.next(), await reader.next()] == [inner, last, None]


async def test_a_run_s_stream_whose_end_was_lost_ends_when_another_run_begins() -> None:
    ours = frames(1, RunStarted(run_id="run_a"), TextDelta())
    lost = Gap(2, 9)
    other = frames(10, RunStarted(run_id="run_b"), TextDelta())
    reader = follow(ours, lost, other)
    assert [await reader.next(), await reader.next(), await reader.next()] == [ours, lost, None]
    reader = follow([*ours, *other])
    assert await reader.next() == ours
    assert await reader.next() is None
