from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agent.messages import ReasoningDelta, RunStarted, TextDelta, ToolCallDelta, ToolOutput
from actors.journal.log import Head, Record
from actors.journal.memory import open_memory
from actors.journal.tail import Tails, open_follower
from actors.models.provider import ToolCall
from actors.session import codec
from actors.session.codec import Numbered
from actors.session.recorder import RESERVE, Recorder, StorageFailed
from actors.testing.faults import FailingLog
from actors.tools.tool import Definition

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=6)
EVENTS = st.one_of(
    st.builds(lambda t, a: TextDelta(agent=a, text=t), TEXT, st.sampled_from(["root", "helper"])),
    st.builds(lambda t: ReasoningDelta(agent="root", text=t), TEXT),
    st.builds(
        lambda t, i, d: ToolCallDelta(
            agent="root", call=ToolCall(i, "f", t), definition=Definition("f") if d else None
        ),
        TEXT,
        st.sampled_from(["a", "b"]),
        st.booleans(),
    ),
    st.builds(lambda t, i: ToolOutput(agent="root", call_id=i, text=t), TEXT, st.sampled_from(["a", "b"])),
    st.just(RunStarted(agent="root", run_id="r")),
)


@given(st.lists(st.tuples(EVENTS, st.integers(1, 2)), max_size=30))
def test_stored_events_come_back_under_their_own_numbers(steps):
    items, seq = [], 0
    for event, step in steps:
        seq += step
        items.append(Numbered(seq, 5.0, event))
    records = codec.encode(items)
    back = [item for r in records for item in codec.decode(Record("s", r.seq, r.kind, r.data, r.at))]
    assert back == items
    assert [r.seq for r in records] == sorted({r.seq for r in records})


def test_a_long_answer_is_one_record():
    items = [Numbered(n, 1.0, TextDelta(agent="a", text="word ")) for n in range(1, 501)]
    assert len(codec.encode(items)) == 1


class Fold:
    def __init__(self):
        self.seen = []

    def evolve(self, item):
        self.seen.append(item)


def recorder(log, tails, head=None, dirty=None):
    fold = Fold()
    made = Recorder(
        log,
        tails,
        "session/x",
        head or Head(),
        fold,
        clock=lambda: 1.0,
        dirty=dirty or (lambda _: None),
    )
    return made, fold


def frames_of(record):
    from actors.journal.ring import Frame

    return [Frame(i.seq, i.at, i.event) for i in codec.decode(record)]


async def frames(follower):
    batch = await follower.next()
    assert isinstance(batch, Sequence)
    return batch


async def test_emitted_events_are_seen_before_they_are_stored_and_in_order():
    async with open_memory() as log:
        tails = Tails()
        made, _ = recorder(log, tails)
        await made.commit(RunStarted(run_id="r"))
        with made.live():
            async with open_follower(log, tails, "session/x", 0, frames_of) as follower:
                assert [f.seq for f in await frames(follower)] == [1]
                made.emit(TextDelta(text="a"))
                made.emit(TextDelta(text="b"))
                assert [f.event.text for f in await frames(follower)] == ["a", "b"]
                assert (await log.head("session/x")).seq == 1
                await made.commit()
                assert (await log.head("session/x")).seq == 3


async def test_numbers_shown_before_a_crash_are_never_given_again():
    async with open_memory() as log:
        tails = Tails()
        made, _ = recorder(log, tails)
        await made.commit(RunStarted(run_id="r"))
        with made.live():
            shown = [made.emit(TextDelta(text=str(n))) for n in range(RESERVE)]
        head = await log.head("session/x")
        again, _ = recorder(log, tails, head)
        assert await again.commit(RunStarted(run_id="s"), ahead=False) > max(shown)


async def test_nothing_above_the_reserve_is_shown_until_a_higher_one_is_stored():
    async with open_memory() as log:
        tails, dirty = Tails(), []
        made, _ = recorder(log, tails, dirty=dirty.append)
        await made.commit(RunStarted(run_id="r"))
        with made.live():
            async with open_follower(log, tails, "session/x", 1, frames_of) as follower:
                for n in range(RESERVE + 10):
                    made.emit(TextDelta(text=str(n)))
                seen = []
                while len(seen) < RESERVE:
                    seen += await frames(follower)
                assert seen[-1].seq == RESERVE + 1
                assert dirty
                await made.flush()
                assert (await frames(follower))[-1].seq == RESERVE + 11


async def test_an_end_leaves_no_numbers_reserved():
    async with open_memory() as log:
        made, _ = recorder(log, Tails())
        await made.commit(RunStarted(run_id="r"))
        await made.commit(RunStarted(run_id="s"), ahead=False)
        assert await log.head("session/x") == Head(seq=2, reserved=2)


async def test_a_failed_disk_refuses_the_commit_and_everything_after_it():
    async with open_memory() as memory:
        log = FailingLog(memory)
        made, _ = recorder(log, Tails())
        log.cue("fail")
        with pytest.raises(StorageFailed):
            await made.commit(RunStarted(run_id="r"))
        with pytest.raises(StorageFailed):
            await made.commit(RunStarted(run_id="r"))
        assert (await memory.head("session/x")).seq == 0
