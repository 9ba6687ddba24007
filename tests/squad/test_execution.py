"""A request from submission to its record: planning, approval, waves, results."""

from __future__ import annotations

from pathlib import Path

from tests.squad.kit import MemoryStore, Team, drain, open_engine, squad, wait_phase

DIAMOND = (
    ("collect", "ann", []),
    ("draft", "ann", ["collect"]),
    ("check", "bob", ["t1"]),
    ("merge", "bob", ["t2", "t3"]),
)


async def test_runs_a_plan_in_waves_and_keeps_its_record(tmp_path: Path) -> None:
    store = MemoryStore({"squad-1": squad(tmp_path)})
    team = Team(*DIAMOND)
    async with open_engine(store, team.model, tmp_path) as engine:
        with engine.follow("squad-1") as follower:
            submitted = await engine.submit("squad-1", "write it", auto_approve=True)
            done = await wait_phase(engine, "squad-1", submitted.id, "completed", "failed")
            events = drain(follower)
        assert submitted.phase == "planning"
        assert done.phase == "completed", done.error
        assert done.result == "the whole answer"
        print([e.name for e in events])
        record = await engine.record("squad-1", done.id)
        assert [task.status for task in record.tasks] == ["done"] * 4
        page = await engine.events("squad-1", done.id)
        assert [line.seq for line in page.events] == list(range(1, len(page.events) + 1))
        assert [line.event for line in page.events] == [event.name for event in events]
