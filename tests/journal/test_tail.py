"""Followers: no gap, no duplicate, whatever comes from the disk, the ring or a later publisher."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from actors.journal import (
    Append,
    EventLog,
    Follower,
    Frame,
    Gap,
    NewRecord,
    Record,
    Tails,
    open_follower,
    open_memory,
)
from actors.journal.ring import RING_BYTES, RING_FRAMES
from actors.journal.tail import BATCH, Tail
from actors.testing.contracts import numbered
from actors.testing.faults import FailingLog

S = "s"


def decode(record: Record) -> Sequence[Frame]:
    """A record's data is the number of frames it stands for."""
    count = int(record.data)
    return [Frame(seq, record.at, "disk") for seq in range(record.seq - count + 1, record.seq + 1)]


@asynccontextmanager
async def stream(*seqs: int) -> AsyncGenerator[tuple[EventLog, Tails]]:
    async with open_memory() as log:
        await write(log, 0, *seqs)
        yield log, Tails()


async def write(log: EventLog, expected: int, *seqs: int, frames: int = 1) -> None:
    data = str(frames).encode()
    await log.append(Append(stream=S, expected=expected, records=numbered(*seqs, data=data)))


def frames(*seqs: int, size: int = 512) -> list[Frame]:
    return [Frame(seq, 0.0, "live", size) for seq in seqs]


def show(tail: Tail, *seqs: int, durable: bool = True) -> None:
    tail.publish(frames(*seqs))
    if durable:
        tail.mark_durable(seqs[-1])


async def take(follower: Follower) -> list[int] | Gap | None:
    got = await follower.next()
    return [frame.seq for frame in got] if isinstance(got, Sequence) else got


async def take_all(follower: Follower) -> list[int]:
    """Read until the follower parks."""
    got: list[int] = []
    with trio.move_on_after(1):
        while True:
            batch = await take(follower)
            assert isinstance(batch, list)
            got += batch
    return got


async def test_a_follower_reads_disk_then_ring_then_waits(autojump_clock: object) -> None:
    async with stream(*range(1, 101)) as (log, tails), open_follower(log, tails, S, 40, decode) as follower:
        tail = tails.open(S)
        show(tail, 101, 102, durable=False)
        assert await take_all(follower) == list(range(41, 103))
        assert follower.cursor == 102
        show(tail, 103)
        assert await take(follower) == [103]
        tail.close()


async def test_a_parked_follower_is_woken_by_a_publish() -> None:
    async with stream() as (log, tails), open_follower(log, tails, S, 0, decode) as follower:
        tail = tails.open(S)
        got: list[object] = []

        async def follow() -> None:
            got.append(await take(follower))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await trio.testing.wait_all_tasks_blocked()
            assert got == []
            show(tail, 1, 2)
            assert got == []  # publishing runs nobody
        assert got == [[1, 2]]
        tail.close()


async def test_without_a_cursor_only_what_comes_is_read() -> None:
    async with stream(1, 2) as (log, tails):
        tail = tails.open(S)
        show(tail, 3, durable=False)
        async with open_follower(log, tails, S, None, decode) as follower:
            assert follower.cursor == 3
            show(tail, 4)
            assert await take(follower) == [4]
        tail.close()


async def test_what_is_not_stored_yet_stays_beyond_the_rings_bound() -> None:
    count = RING_FRAMES * 2
    async with stream() as (log, tails), open_follower(log, tails, S, 0, decode) as follower:
        tail = tails.open(S)
        for seq in range(1, count + 1):
            show(tail, seq, durable=False)
        tail.mark_durable(100)
        tail.close()
        await write(log, 0, 100, frames=100)
        got: list[int] = []
        while len(got) < count:
            batch = await take(follower)
            assert isinstance(batch, list)
            assert len(batch) <= BATCH
            got += batch
        assert got == list(range(1, count + 1))


@pytest.mark.parametrize("size", [1, RING_BYTES // 10])
async def test_the_ring_is_bounded_by_frames_and_by_bytes(size: int) -> None:
    async with stream() as (_, tails):
        tail = tails.open(S)
        ring = tails.ring(S)
        for seq in range(1, 3 * RING_FRAMES):
            tail.publish(frames(seq, size=size))
            tail.mark_durable(seq)
        held = ring.top - ring.floor
        assert held == (RING_FRAMES if size == 1 else 10)
        tail.close()


async def test_a_reader_that_fell_behind_the_ring_goes_back_to_the_disk(autojump_clock: object) -> None:
    count = 3 * RING_FRAMES
    async with stream() as (log, tails), open_follower(log, tails, S, 0, decode) as follower:
        tail = tails.open(S)
        for seq in range(1, count + 1):
            await write(log, seq - 1, seq)
            show(tail, seq)
        assert await take_all(follower) == list(range(1, count + 1))
        tail.close()


@pytest.mark.parametrize("cursor", range(13))
async def test_a_record_of_many_frames_is_cut_at_the_cursor(cursor: int, autojump_clock: object) -> None:
    async with open_memory() as log:
        await write(log, 0, 5, frames=5)
        await write(log, 5, 12, frames=7)
        async with open_follower(log, Tails(), S, cursor, decode) as follower:
            assert await take_all(follower) == list(range(cursor + 1, 13))


async def test_a_huge_record_comes_in_batches(autojump_clock: object) -> None:
    async with open_memory() as log:
        await write(log, 0, 1000, frames=1000)
        async with open_follower(log, Tails(), S, 0, decode) as follower:
            assert await take(follower) == list(range(1, BATCH + 1))
            assert await take_all(follower) == list(range(BATCH + 1, 1001))


@pytest.mark.parametrize("after", [9, 10**6, 2**63, 2**64])
async def test_a_cursor_beyond_the_end_is_a_gap_and_never_a_replay(after: int) -> None:
    async with stream(1, 2, 8) as (log, tails), open_follower(log, tails, S, after, decode) as follower:
        assert await take(follower) == Gap(after, 8)
        tail = tails.open(S)
        show(tail, 101)
        assert await take(follower) == [101]
        tail.close()


async def test_a_cursor_among_frames_not_stored_yet_is_no_gap(autojump_clock: object) -> None:
    async with stream(1) as (log, tails):
        tail = tails.open(S)
        show(tail, 2, 3, 4, durable=False)
        async with open_follower(log, tails, S, 3, decode) as follower:
            assert await take_all(follower) == [4]
        tail.close()


async def test_numbers_that_were_lost_in_a_crash_are_skipped_without_a_replay(autojump_clock: object) -> None:
    async with stream(1, 2) as (log, tails), open_follower(log, tails, S, 0, decode) as follower:
        before = tails.open(S)
        show(before, 3, 4, durable=False)
        assert await take_all(follower) == [1, 2, 3, 4]
        before.close()
        after = tails.open(S)
        await write(log, 2, 1001)
        show(after, 1001, 1002)
        assert await take_all(follower) == [1001, 1002]
        async with open_follower(log, tails, S, 2, decode) as late:
            assert await take_all(late) == [1001, 1002]
        after.close()


async def test_followers_stay_while_publishers_come_and_go(autojump_clock: object) -> None:
    async with stream() as (log, tails), open_follower(log, tails, S, 0, decode) as follower:
        for seq in range(1, 6):
            tail = tails.open(S)
            await write(log, seq - 1, seq)
            show(tail, seq)
            tail.close()
            tail.close()
        assert await take_all(follower) == [1, 2, 3, 4, 5]
        assert len(tails) == 1
    assert len(tails) == 0


async def test_what_another_writer_added_between_two_publishers_is_read_from_disk(
    autojump_clock: object,
) -> None:
    async with stream(1) as (log, tails), open_follower(log, tails, S, 0, decode) as follower:
        tail = tails.open(S)
        show(tail, 1)
        tail.close()
        assert await take_all(follower) == [1]
        await write(log, 1, 2, 3)  # nobody here is told
        tail = tails.open(S)
        await write(log, 3, 4)
        show(tail, 4)
        assert await take_all(follower) == [2, 3, 4]
        tail.close()


async def test_an_idle_stream_costs_nothing() -> None:
    async with stream(1, 2, 3) as (log, tails):
        tail = tails.open(S)
        show(tail, 4)
        async with open_follower(log, tails, S, 0, decode):
            assert (len(tails), tail.followers) == (1, 1)
        tail.close()
        assert len(tails) == 0


async def test_the_end_comes_after_what_is_left_and_to_everybody() -> None:
    async with stream(1, 2) as (log, tails):
        tail = tails.open(S)
        got: list[list[int]] = []

        async def follow(after: int, task_status: trio.TaskStatus[None]) -> None:
            mine: list[int] = []
            async with open_follower(log, tails, S, after, decode) as follower:
                task_status.started()
                while (batch := await follower.next()) is not None:
                    assert isinstance(batch, Sequence)
                    mine += [frame.seq for frame in batch]
            got.append(mine)

        async with trio.open_nursery() as nursery:
            await nursery.start(follow, 0)
            await nursery.start(follow, 2)
            show(tail, 3)
            tail.end()
        assert sorted(got) == [[1, 2, 3], [3]]
        tail.close()


async def test_a_deleted_stream_gives_a_gap_and_its_end() -> None:
    async with stream(1, 2, 3) as (log, tails):
        await log.purge(S)
        async with open_follower(log, tails, S, 1, decode) as follower:
            assert await take(follower) == Gap(1, 3)
            assert await take(follower) is None
        async with open_follower(log, tails, S, 3, decode) as follower:
            assert await take(follower) is None


async def test_records_deleted_under_a_slow_reader_are_a_gap() -> None:
    async with stream(*range(1, 301)) as (log, tails), open_follower(log, tails, S, 0, decode) as follower:
        assert isinstance(await take(follower), list)
        reached = follower.cursor
        assert reached < 300
        await log.purge(S)
        assert await take(follower) == Gap(reached, 300)


async def test_a_failed_read_goes_on_at_the_cursor(autojump_clock: object) -> None:
    async with open_memory() as real:
        await write(real, 0, *range(1, 201))
        log = FailingLog(real)
        async with open_follower(log, Tails(), S, 0, decode) as follower:
            log.cue("fail", "read", skip=1)
            first = await take(follower)
            assert isinstance(first, list)
            with pytest.raises(Exception, match="on cue"):
                await follower.next()
            assert first + await take_all(follower) == list(range(1, 201))


async def test_a_cancelled_wait_loses_nothing(autojump_clock: object) -> None:
    async with stream() as (log, tails), open_follower(log, tails, S, 0, decode) as follower:
        tail = tails.open(S)
        with trio.move_on_after(1):
            await follower.next()
        with trio.CancelScope() as scope:
            scope.cancel()
            show(tail, 1)
            await follower.next()
        assert scope.cancelled_caught
        assert await take(follower) == [1]
        tail.close()


async def test_each_dialect_is_encoded_once_for_all_readers() -> None:
    encoded: list[int] = []

    def encode(frame: Frame) -> bytes:
        encoded.append(frame.seq)
        return b"data"

    async with stream() as (log, tails):
        tail = tails.open(S)
        show(tail, 1, 2)
        for _ in range(3):
            async with open_follower(log, tails, S, 0, decode) as follower:
                batch = await follower.next()
                assert isinstance(batch, Sequence)
                assert [frame.encode("sse", encode) for frame in batch] == [b"data", b"data"]
        tail.close()
    assert encoded == [1, 2]


@pytest.mark.parametrize("seqs", [(2, 2), (3, 2), (1,)])
async def test_numbers_that_do_not_rise_are_refused_whole(seqs: tuple[int, ...]) -> None:
    async with stream() as (log, tails), open_follower(log, tails, S, 0, decode) as follower:
        tail = tails.open(S)
        show(tail, 1)
        with pytest.raises(ValueError, match="does not follow"):
            tail.publish(frames(*seqs))
        show(tail, 2)
        assert await take(follower) == [1, 2]
        tail.close()


async def test_empty_publish_wakes_nobody() -> None:
    async with stream() as (_, tails):
        tail = tails.open(S)
        tail.publish([])
        assert tails.ring(S).top == 0
        tail.close()


async def test_deltas_published_before_a_hole_reach_a_slow_reader(autojump_clock: object) -> None:
    record = NewRecord(1, "kind", b"1", 0.0)
    async with open_memory() as log:
        tails = Tails()
        async with open_follower(log, tails, S, 0, decode) as follower:
            live = tails.open(S)
            await log.append(Append(stream=S, expected=0, records=(record,)))
            show(live, 1)
            show(live, 2, 3, durable=False)  # not stored yet
            live.close()
            brief = tails.open(S)
            show(brief, 4)
            brief.close()
            assert await take_all(follower) == [1, 2, 3, 4]
