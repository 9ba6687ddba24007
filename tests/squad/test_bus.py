"""Live events: cursors, gaps, slow readers, and who sees what."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from actors.journal.ring import Frame
from actors.squad import events as names
from actors.squad.bus import ALL_FRAMES, SQUAD_FRAMES, Bus, Follower, Gap, Lagged
from actors.squad.events import SquadEvent


def publish(bus: Bus, squad_id: str, number: int) -> Frame:
    return bus.publish(SquadEvent(names.UPDATED, squad_id, {"squadId": squad_id, "number": number}, 0.0))


def numbers(got: object) -> list[int]:
    assert isinstance(got, Sequence)
    return [frame.event.payload["number"] for frame in got]


def read_all(follower: Follower) -> list[int]:
    found: list[int] = []
    while (got := follower.next_nowait()) is not None:
        found += numbers(got)
    return found


async def test_a_follower_sees_what_comes_after_it() -> None:
    bus = Bus()
    publish(bus, "a", 1)
    with bus.follow("a") as follower:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_publish_later, bus)
            assert numbers(await follower.next()) == [2]


async def _publish_later(bus: Bus) -> None:
    await trio.testing.wait_all_tasks_blocked()
    publish(bus, "b", 0)
    publish(bus, "a", 2)


def test_one_squad_or_all() -> None:
    bus = Bus()
    with bus.follow("a") as one, bus.follow(None) as everything:
        for number, squad_id in enumerate("abab"):
            publish(bus, squad_id, number)
        assert read_all(one) == [0, 2]
        assert read_all(everything) == [0, 1, 2, 3]


def test_a_cursor_resumes_without_loss_or_repeat() -> None:
    bus = Bus()
    frames = [publish(bus, "ab"[number % 2], number) for number in range(10)]
    with bus.follow("a", bus.cursor(frames[3])) as follower:
        assert read_all(follower) == [4, 6, 8]
    with bus.follow(None, bus.cursor(frames[-1])) as follower:
        assert read_all(follower) == []


def test_a_cursor_too_old_gives_a_gap_and_then_what_there_is() -> None:
    bus = Bus()
    first = publish(bus, "a", 0)
    for number in range(1, SQUAD_FRAMES * 2 + 1):
        publish(bus, "a", number)
    with bus.follow("a", bus.cursor(first)) as follower:
        gap = follower.next_nowait()
        assert isinstance(gap, Gap)
        rest = read_all(follower)
    assert gap.reason == "evicted"
    assert gap.requested == bus.cursor(first)
    assert gap.oldest_available == f"{bus.boot}-{rest[0] + 1}"
    assert rest == list(range(rest[0], SQUAD_FRAMES * 2 + 1))
    assert len(rest) >= 1000


def test_a_cursor_of_another_process_gives_a_gap() -> None:
    bus = Bus()
    publish(bus, "a", 0)
    for cursor in ("0123-5", f"{bus.boot}-999"):
        with bus.follow(None, cursor) as follower:
            gap = follower.next_nowait()
            assert isinstance(gap, Gap)
            assert gap.reason == "restarted"
            assert read_all(follower) == [0]


@pytest.mark.parametrize("cursor", ["", "x", "-1", "boot-", "boot-x", "boot-²"])
def test_a_malformed_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(ValueError, match="malformed"), Bus().follow(None, cursor):
        pass


def test_a_slow_reader_is_told_how_much_it_lost_and_goes_on() -> None:
    bus = Bus()
    with bus.follow(None) as follower:
        for number in range(ALL_FRAMES * 3):
            publish(bus, "a", number)
        lagged = follower.next_nowait()
        assert isinstance(lagged, Lagged)
        rest = read_all(follower)
    assert rest == list(range(lagged.dropped, ALL_FRAMES * 3))
    assert len(rest) >= ALL_FRAMES


async def test_a_cancelled_wait_loses_nothing() -> None:
    bus = Bus()
    with bus.follow("a") as follower:
        with trio.move_on_after(0.001):
            await follower.next()
        publish(bus, "a", 1)
        assert numbers(await follower.next()) == [1]


def test_recent_events_are_the_squads_own() -> None:
    bus = Bus()
    for number in range(SQUAD_FRAMES + 50):
        publish(bus, "a", number)
    publish(bus, "b", 0)
    assert [frame.event.payload["number"] for frame in bus.recent("a")] == list(range(50, SQUAD_FRAMES + 50))
    bus.forget("a")
    assert list(bus.recent("a")) == []
    assert list(bus.recent("nobody")) == []


@given(st.lists(st.one_of(st.integers(1, 700), st.none()), max_size=30), st.integers(0, 10))
def test_every_event_is_seen_once_or_counted_as_lost(steps: list[int | None], resume_every: int) -> None:
    bus, seen, lost, published = Bus(), list[int](), 0, 0
    with bus.follow("a") as follower:
        for step, count in enumerate(steps):
            if count is not None:
                for _ in range(count):
                    publish(bus, "a", published)
                    published += 1
                continue
            while (got := follower.next_nowait()) is not None:
                if isinstance(got, Lagged):
                    lost += got.dropped
                else:
                    seen += numbers(got)
            if resume_every and step % resume_every == 0 and published:
                with bus.follow("a", f"{bus.boot}-{published}") as again:
                    assert again.next_nowait() is None
        while (got := follower.next_nowait()) is not None:
            if isinstance(got, Lagged):
                lost += got.dropped
            else:
                seen += numbers(got)
    assert len(seen) + lost == published
    assert seen == sorted(set(seen))


def test_all_squads_together_keep_a_bounded_number_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.squad.bus.TOTAL_FRAMES", 100)
    bus = Bus()
    with bus.follow("squad-0") as follower:
        for number in range(200):
            publish(bus, f"squad-{number // 10}", number)
        assert sum(len(bus.recent(f"squad-{n}")) for n in range(20)) <= 100
        assert len(bus.recent("squad-19")) == 10
        lagged = follower.next_nowait()
        assert isinstance(lagged, Lagged)
        assert lagged.dropped == 10
        publish(bus, "squad-0", 999)
        assert read_all(follower) == [999]
