"""The failing log does what its cue says, and is a proper event log otherwise."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from actors.journal import open_memory
from actors.journal.log import Append, Head, JournalUnavailable, SequenceConflict
from actors.testing.contracts import EventLogContract, numbered
from actors.testing.faults import FailingLog


@asynccontextmanager
async def open_failing() -> AsyncGenerator[FailingLog]:
    async with open_memory() as log:
        yield FailingLog(log)


class TestWithoutCues(EventLogContract):
    def open(self, directory: Path) -> AbstractAsyncContextManager[FailingLog]:
        return open_failing()


ONE = Append(stream="s", expected=0, records=numbered(1))


async def test_a_failed_append_stores_nothing_and_the_next_goes_well() -> None:
    async with open_failing() as log:
        log.cue("fail", skip=1)
        await log.append(Append(stream="s", expected=0))
        with pytest.raises(JournalUnavailable):
            await log.append(ONE)
        assert await log.head("s") == Head()
        await log.append(ONE)
        assert log.calls == ["append", "append", "head", "append"]


async def test_a_lost_answer_leaves_the_record() -> None:
    async with open_failing() as log:
        log.cue("lose")
        with pytest.raises(JournalUnavailable):
            await log.append(ONE)
        assert await log.head("s") == Head(1)


async def test_a_duplicated_append_meets_the_fence() -> None:
    async with open_failing() as log:
        log.cue("duplicate")
        with pytest.raises(SequenceConflict):
            await log.append(ONE)
        assert len(await log.read("s")) == 1


async def test_a_stalled_append_waits_for_its_release() -> None:
    async with open_failing() as log, trio.open_nursery() as nursery:
        log.cue("stall")
        nursery.start_soon(log.append, ONE)
        await trio.testing.wait_all_tasks_blocked()
        assert (log.stalled, await log.head("s")) == (1, Head())
        log.release()
        await trio.testing.wait_all_tasks_blocked()
        assert (log.stalled, await log.head("s")) == (0, Head(1))
