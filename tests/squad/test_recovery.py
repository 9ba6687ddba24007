"""After the process died: every state becomes what is documented, finished tasks stay done, nothing runs unowned."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from actors.errors import Conflict
from actors.journal.log import Append
from actors.journal.memory import open_memory
from actors.models.provider import ModelRequest
from actors.squad import codec
from actors.squad import events as names
from actors.squad import messages as m
from actors.squad.ledger import ledger_path
from actors.squad.messages import OverrideTask, PlanOverride
from actors.squad.queries import ExecutionRows, count_driven
from actors.testing.model import Answer, call, hang, say
from tests.squad.kit import Dead, MemoryStore, Team, open_engine, wait_phase
from tests.squad.test_control import CHAIN, SQUAD, Held, quiet, running
from tests.squad.test_execution import by_title, statuses, store


async def dies(stored: MemoryStore, team: Team, tmp_path: Path, log: object, act: object) -> str:
    """Run a first process until ``act`` returns an execution's id, then kill it without any last word."""
    found = ""
    with trio.CancelScope() as scope:
        async with open_engine(stored, team.model, tmp_path, log=log, owners=Dead()) as engine:  # type: ignore[arg-type]
            found = await act(engine)  # type: ignore[operator]
            scope.cancel()
            await trio.sleep_forever()
    return found


@pytest.fixture
async def log():
    async with open_memory() as found:
        found.register(ExecutionRows())
        yield found


async def test_an_execution_that_was_being_planned_has_failed(tmp_path: Path, log) -> None:
    stored = store(tmp_path)

    async def act(engine) -> str:
        submitted = await engine.submit(SQUAD, "go")
        await team.model.wait_requests(1)
        return submitted.id

    team = Team(planner=lambda _: hang())
    execution_id = await dies(stored, team, tmp_path, log, act)
    async with open_engine(stored, team.model, tmp_path, log=log, owners=Dead()) as engine:
        now = await engine.execution(SQUAD, execution_id)
        assert (now.phase, now.error) == ("failed", "server restarted while planning")
        assert (await engine.record(SQUAD, execution_id)).status == "failed"


async def test_a_plan_that_waits_for_approval_waits_on(tmp_path: Path, log) -> None:
    stored, team = store(tmp_path), Team(*CHAIN)

    async def act(engine) -> str:
        submitted = await engine.submit(SQUAD, "go")
        await wait_phase(engine, SQUAD, submitted.id, "awaiting_approval")
        return submitted.id

    execution_id = await dies(stored, team, tmp_path, log, act)
    async with open_engine(stored, team.model, tmp_path, log=log, owners=Dead()) as engine:
        assert engine.system.addresses("execution") == []
        await engine.approve(SQUAD, execution_id)
        await wait_phase(engine, SQUAD, execution_id, "completed")
        names_found = [line.event for line in (await engine.events(SQUAD, execution_id)).events]
    assert names.EXECUTION_RECOVERED not in names_found
    assert team.planner_calls == 2


async def test_a_running_execution_is_paused_and_goes_on_without_doing_anything_twice(
    tmp_path: Path, log
) -> None:
    stored, held = store(tmp_path), Held("second")
    team = Team(*CHAIN, work=held)

    async def act(engine) -> str:
        return (await running(engine, "second")).id

    execution_id = await dies(stored, team, tmp_path, log, act)
    held.events.clear()
    async with open_engine(stored, team.model, tmp_path, log=log, owners=Dead()) as engine:
        now = await engine.execution(SQUAD, execution_id)
        assert now.phase == "paused"
        assert now.status.data is not None
        assert now.status.data["reason"] == "the server restarted"
        assert statuses(now) == {"first": "done", "second": "pending", "third": "pending"}
        assert now.task_attempts[by_title(now)["second"]] == 1
        assert await log.query(lambda db: count_driven(db, squad_id=SQUAD)) == 0
        await quiet()
        assert team.worked == ["first", "second"]
        await engine.resume(SQUAD, execution_id)
        done = await wait_phase(engine, SQUAD, execution_id, "completed")
        page = await engine.events(SQUAD, execution_id)
    assert team.worked == ["first", "second", "second", "third"]
    assert done.task_attempts[by_title(done)["second"]] == 2
    assert [line.seq for line in page.events] == list(range(1, len(page.events) + 1))
    assert [line.event for line in page.events].count(names.EXECUTION_RECOVERED) == 1


async def test_what_an_interrupted_attempt_had_begun_is_shown_to_the_next(tmp_path: Path, log) -> None:
    def work(request: ModelRequest, title: str) -> Answer:
        if request.messages[-1].role == "tool":
            return hang()
        return (
            call("write_file", {"path": "out.md", "content": "x"}) if len(team.worked) == 1 else say("looked")
        )

    stored = store(tmp_path)
    team = Team(("only", "ann", []), work=work)

    async def act(engine) -> str:
        run = await running(engine, "only")
        await team.model.wait_requests(4)
        return run.id

    execution_id = await dies(stored, team, tmp_path, log, act)
    async with open_engine(stored, team.model, tmp_path, log=log, owners=Dead()) as engine:
        await engine.resume(SQUAD, execution_id)
        await wait_phase(engine, SQUAD, execution_id, "completed")
    assert "look before you repeat" in team.prompts["only"]
    assert "write_file" in team.prompts["only"]
    assert "out.md" in team.prompts["only"]


async def test_a_pause_is_remembered_with_its_reason_and_author(tmp_path: Path, log) -> None:
    stored, held = store(tmp_path), Held("first")
    team = Team(*CHAIN, work=held)

    async def act(engine) -> str:
        run = await running(engine, "first")
        await engine.pause(SQUAD, run.id, "waiting for legal")
        held.release("first")
        await quiet()
        return run.id

    execution_id = await dies(stored, team, tmp_path, log, act)
    for _ in range(2):
        async with open_engine(stored, team.model, tmp_path, log=log, owners=Dead()) as engine:
            now = await engine.execution(SQUAD, execution_id)
            assert now.status.data is not None
            assert (now.phase, now.status.data["reason"], now.status.data["pausedBy"]) == (
                "paused",
                "waiting for legal",
                "operator",
            )
            await quiet()
            assert team.worked == ["first"]
            recovered = [line.event for line in (await engine.events(SQUAD, execution_id)).events]
            assert recovered.count(names.EXECUTION_RECOVERED) == 1


async def test_an_execution_whose_results_were_being_put_together_is_paused_and_ends_after_a_resume(
    tmp_path: Path,
    log,
) -> None:
    stored = store(tmp_path)
    team = Team(("only", "ann", []), aggregate=lambda _: hang())

    async def act(engine) -> str:
        submitted = await engine.submit(SQUAD, "go", auto_approve=True)
        await wait_phase(engine, SQUAD, submitted.id, "aggregating")
        return submitted.id

    execution_id = await dies(stored, team, tmp_path, log, act)
    again = Team(("only", "ann", []))
    async with open_engine(stored, again.model, tmp_path, log=log, owners=Dead()) as engine:
        assert (await engine.execution(SQUAD, execution_id)).phase == "paused"
        await engine.resume(SQUAD, execution_id)
        done = await wait_phase(engine, SQUAD, execution_id, "completed")
    assert again.worked == []
    assert done.result == "the whole answer"


async def test_a_recovered_execution_accepts_its_approval_again_without_a_clash(tmp_path: Path, log) -> None:
    stored, held = store(tmp_path), Held("x")
    team = Team(*CHAIN, work=held)

    async def act(engine) -> str:
        submitted = await engine.submit(SQUAD, "go")
        await wait_phase(engine, SQUAD, submitted.id, "awaiting_approval")
        override = PlanOverride(tasks=(OverrideTask(id="draft", title="x"),))
        await engine.approve(SQUAD, submitted.id, override)
        await quiet()
        return submitted.id

    execution_id = await dies(stored, team, tmp_path, log, act)
    held.events.clear()
    async with open_engine(stored, team.model, tmp_path, log=log, owners=Dead()) as engine:
        assert (await engine.approve(SQUAD, execution_id)).phase == "executing"
        done = await wait_phase(engine, SQUAD, execution_id, "completed")
    assert set(done.task_attempts) == {"draft"}


async def test_a_crash_between_the_journal_and_the_files_is_made_good(tmp_path: Path, log) -> None:
    stored, team = store(tmp_path), Team(("only", "ann", []))

    async def act(engine) -> str:
        submitted = await engine.submit(SQUAD, "go")
        await wait_phase(engine, SQUAD, submitted.id, "awaiting_approval")
        return submitted.id

    execution_id = await dies(stored, team, tmp_path, log, act)
    stream = codec.stream_of(execution_id)
    head = await log.head(stream)
    record = codec.encode(m.ExecutionCancelled(reason="just before the end"), head.seq + 1, 5.0)
    await log.append(Append(stream=stream, expected=head.seq, records=(record,)))
    path = ledger_path(tmp_path, execution_id)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])  # the crash also tore the last line
    async with open_engine(stored, team.model, tmp_path, log=log, owners=Dead()) as engine:
        page = await engine.events(SQUAD, execution_id)
        assert [line.seq for line in page.events] == list(range(1, len(page.events) + 1))
        assert page.events[-1].event == names.EXECUTION_CANCELLED
        assert path.read_bytes().startswith(whole)
        assert (await engine.record(SQUAD, execution_id)).final_result == "just before the end"


async def test_an_actor_that_crashes_lets_its_execution_be_resumed(tmp_path: Path) -> None:
    held = Held("second")
    stored, team = store(tmp_path), Team(*CHAIN, work=held)
    async with open_engine(stored, team.model, tmp_path) as engine:
        run = await running(engine, "second")
        await engine.services.log.append(
            Append(
                stream=codec.stream_of(run.id),
                expected=(await engine.services.log.head(codec.stream_of(run.id))).seq,
                records=(codec.encode(m.PlanRejected(feedback="a stranger wrote"), 1000, 5.0),),
            )
        )
        with pytest.raises(Conflict):
            await engine.steer(SQUAD, run.id, "x")
        now = await engine.execution(SQUAD, run.id)
        assert (now.phase, statuses(now)["second"]) == ("paused", "pending")
        await quiet()
        assert team.model.running == 0
        held.events.clear()
        await engine.resume(SQUAD, run.id)
        await wait_phase(engine, SQUAD, run.id, "completed")


class Both:
    """A process beside another one that lives."""

    def __init__(self, me: str) -> None:
        self.me = me

    def alive(self, owner: str) -> bool:
        return bool(owner)


async def test_what_another_living_process_runs_is_shown_and_left_alone(tmp_path: Path, log) -> None:
    held = Held("first")
    stored, team = store(tmp_path), Team(*CHAIN, work=held)
    async with (
        open_engine(stored, team.model, tmp_path, log=log, owners=Both("one")) as first,
        open_engine(stored, team.model, tmp_path, log=log, owners=Both("two")) as second,
    ):
        run = await running(first, "first")
        assert (await second.execution(SQUAD, run.id)).phase == "executing"
        with pytest.raises(Conflict, match="another process, one"):
            await second.pause(SQUAD, run.id)
        held.release("first")
        done = await wait_phase(first, SQUAD, run.id, "completed")
        assert await second.execution(SQUAD, run.id) == done


async def test_a_stop_that_a_crash_cut_short_reaches_board_and_history_later(
    tmp_path: Path,
    log,
) -> None:
    stored, held = store(tmp_path), Held("first")
    team = Team(*CHAIN, work=held)

    async def act(engine) -> str:
        return (await running(engine, "first")).id

    execution_id = await dies(stored, team, tmp_path, log, act)
    stream = codec.stream_of(execution_id)
    head = await log.head(stream)
    ids = [row.id for row in await stored.board(SQUAD)]
    events: list[m.ExecutionEvent] = [
        m.TaskStopped(task_id=ids[0], reason="fire"),
        m.ExecutionCancelled(reason="fire", emergency=True, task_ids=tuple(ids[1:])),
    ]
    records = tuple(codec.encode(event, head.seq + n, 5.0) for n, event in enumerate(events, 1))
    await log.append(Append(stream=stream, expected=head.seq, records=records))
    assert {row.status for row in await stored.board(SQUAD)} == {"in_progress", "pending"}
    async with open_engine(stored, team.model, tmp_path, log=log, owners=Dead()) as engine:
        assert {row.status for row in await stored.board(SQUAD)} == {"cancelled"}
        assert (await engine.record(SQUAD, execution_id)).final_result == "fire"
        page = await engine.events(SQUAD, execution_id)
        assert page.events[-1].event == names.EMERGENCY_STOPPED
