"""Random histories of a log against a plain model, and of publishers, crashes and followers against the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from actors.journal import (
    Append,
    CommandKey,
    DuplicateCommand,
    EventLog,
    Follower,
    Frame,
    Gap,
    Head,
    NewRecord,
    Record,
    SequenceConflict,
    Tails,
    open_follower,
    open_memory,
)
from actors.journal.tail import Tail

quick = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class Stream(Struct):
    """The model of one stream."""

    head: Head = Head()
    records: list[Record] = []
    snapshot: tuple[int, bytes] | None = None


class Write(Struct, frozen=True):
    stream: str
    stale: int
    gaps: list[int]
    reserve: int | None
    key: str | None


class Purge(Struct, frozen=True):
    stream: str


class Snapshot(Struct, frozen=True):
    stream: str
    data: bytes


names = st.sampled_from("abc")
writes = st.builds(
    Write,
    names,
    st.sampled_from([0, 0, 0, 0, 1, -1]),
    st.lists(st.integers(1, 3), max_size=4),
    st.none() | st.integers(0, 40),
    st.none() | st.sampled_from("xyz"),
)
steps = st.lists(
    writes | writes | st.builds(Snapshot, names, st.binary(max_size=4)) | st.builds(Purge, names)
)


@given(steps)
@quick
async def test_a_log_is_its_model(history: list[Write | Purge | Snapshot]) -> None:
    streams = {name: Stream() for name in "abc"}
    commands: dict[str, tuple[str, bytes]] = {}
    async with open_memory() as log:
        for number, step in enumerate(history):
            stream = streams[step.stream]
            match step:
                case Write():
                    await _write(log, step, stream, commands, str(number).encode())
                case Snapshot():
                    await log.save_snapshot(step.stream, stream.head.seq, step.data)
                    if not stream.head.purged:
                        stream.snapshot = (stream.head.seq, step.data)
                case Purge():
                    await log.purge(step.stream)
                    commands = {key: value for key, value in commands.items() if value[0] != step.stream}
                    stream.head = Head(stream.head.seq, stream.head.reserved, purged=True)
                    stream.records, stream.snapshot = [], None
        for name, stream in streams.items():
            assert await log.head(name) == stream.head
            assert await log.read(name) == stream.records
            assert await log.load_snapshot(name) == stream.snapshot
            middle = stream.head.seq // 2
            assert await log.read(name, middle, 2) == [r for r in stream.records if r.seq > middle][:2]
        for key in "xyz":
            stored = await log.command(CommandKey("scope", key))
            assert (None if stored is None else stored.result) == (
                commands[key][1] if key in commands else None
            )


async def _write(
    log: EventLog, step: Write, stream: Stream, commands: dict[str, tuple[str, bytes]], result: bytes
) -> None:
    seqs = [stream.head.seq + step.stale + sum(step.gaps[: index + 1]) for index in range(len(step.gaps))]
    append = Append(
        stream=step.stream,
        expected=stream.head.seq + step.stale,
        records=tuple(NewRecord(seq, "kind", result, float(seq)) for seq in seqs),
        reserve=step.reserve,
        command=None if step.key is None else CommandKey("scope", step.key),
        result=result,
    )
    try:
        head = await log.append(append)
    except DuplicateCommand as error:
        assert step.key is not None
        assert error.first.result == commands[step.key][1]  # noqa: PT017 (either outcome may be right)
        return
    except SequenceConflict:
        assert step.stale or stream.head.purged
        return
    assert not step.stale
    assert not stream.head.purged
    assert step.key not in commands
    seq = seqs[-1] if seqs else stream.head.seq
    stream.head = Head(seq, stream.head.reserved if step.reserve is None else max(step.reserve, seq))
    stream.records += [Record(step.stream, r.seq, r.kind, r.data, r.at) for r in append.records]
    if step.key is not None:
        commands[step.key] = (step.stream, result)
    assert head == stream.head


Action = Literal["open", "delta", "flush", "event", "close", "crash", "elsewhere", "poll", "follow", "read"]
actions = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "open",
                "open",
                "delta",
                "delta",
                "flush",
                "event",
                "close",
                "crash",
                "elsewhere",
                "poll",
                "follow",
            ]
            + ["read"] * 4
        ),
        st.integers(0, 5),
    ),
    max_size=60,
)
BLOCK = 8


class Writer:
    """A stream's writer as a session is one: deltas are shown first and stored later, numbers come in blocks."""

    def __init__(self, log: EventLog, tails: Tails | None) -> None:
        self.log = log
        self.stored: int = 0
        self.last: int = 0
        self.reserved: int = 0
        self.tail: Tail | None = None if tails is None else tails.open("s")
        self.unstored = 0
        self.shown: list[int] = []

    async def start(self) -> None:
        head = await self.log.head("s")
        self.stored = head.seq
        self.last = max(head.seq, head.reserved)
        self.reserved = self.last

    async def _number(self) -> int:
        if self.last == self.reserved:
            self.reserved += BLOCK
            await self.log.append(Append(stream="s", expected=self.stored, reserve=self.reserved))
        self.last += 1
        return self.last

    async def delta(self) -> None:
        seq = await self._number()
        self.unstored += 1
        self._show(seq)

    async def flush(self) -> None:
        if self.unstored:
            await self._store(self.last, self.unstored)
            self.unstored = 0

    async def event(self) -> None:
        await self.flush()
        seq = await self._number()
        await self._store(seq, 1)
        self._show(seq)
        if self.tail is not None:
            self.tail.mark_durable(seq)

    async def _store(self, seq: int, frames: int) -> None:
        record = NewRecord(seq, "kind", str(frames).encode(), 0.0)
        await self.log.append(Append(stream="s", expected=self.stored, records=(record,)))
        self.stored = seq
        if self.tail is not None:
            self.tail.mark_durable(seq)

    def _show(self, seq: int) -> None:
        self.shown.append(seq)
        if self.tail is not None:
            self.tail.publish([Frame(seq, 0.0, "live")])

    def close(self) -> None:
        if self.tail is not None:
            self.tail.close()


def decode(record: Record) -> Sequence[Frame]:
    return [Frame(seq, 0.0, "disk") for seq in range(record.seq - int(record.data) + 1, record.seq + 1)]


class Reader(Struct):
    follower: Follower
    start: int
    seen: list[int] = []
    gaps: list[Gap] = []

    async def read(self) -> bool:
        """Take a batch if one is there."""
        with trio.move_on_after(0.001):
            batch = await self.follower.next()
            if isinstance(batch, Gap):
                self.gaps.append(batch)
                self.start = batch.resume
            elif batch is not None:
                self.seen += [frame.seq for frame in batch]
            return True
        return False


@given(actions)
@quick
async def test_followers_miss_nothing_and_get_nothing_twice(
    autojump_clock: object, history: list[tuple[Action, int]]
) -> None:
    tails = Tails()
    published: set[int] = set()
    readers: list[Reader] = []
    writer: Writer | None = None
    async with open_memory() as log, trio.open_nursery() as nursery:

        async def follow(after: int, task_status: trio.TaskStatus[Reader]) -> None:
            async with open_follower(log, tails, "s", after, decode) as follower:
                task_status.started(Reader(follower, follower.cursor))
                await trio.sleep_forever()

        nursery.start_soon(tails.poll, log, 1.0)
        for action, number in history:
            match action:
                case "open" if writer is None:
                    writer = Writer(log, tails)
                    await writer.start()
                case "delta" | "flush" | "event" | "close" if writer is not None:
                    await (writer.flush() if action == "close" else getattr(writer, action)())
                    published.update(writer.shown)
                    if action == "close":
                        writer.close()
                        writer = None
                case "crash" if writer is not None:
                    writer.close()
                    writer = None
                case "elsewhere" if writer is None:
                    other = Writer(log, None)
                    await other.start()
                    for _ in range(number):
                        await other.delta()
                    await other.event()
                    published.update(other.shown)
                case "poll":
                    await trio.sleep(2)
                case "follow":
                    readers.append(await nursery.start(follow, number * 3))
                case "read" if readers:
                    await readers[number % len(readers)].read()
                case _:
                    pass
        if writer is not None:
            await writer.flush()
            writer.close()
        await trio.sleep(2)
        stored = {frame.seq for record in await log.read("s") for frame in decode(record)}
        for reader in readers:
            while await reader.read():
                pass
            assert reader.seen == sorted(set(reader.seen))
            assert set(reader.seen) <= published
            assert len(reader.gaps) <= 1
            assert {seq for seq in stored if seq > reader.start} <= set(reader.seen)
            if not reader.gaps:
                assert all(seq > reader.start for seq in reader.seen)
        nursery.cancel_scope.cancel()
    assert len(tails) == 0
