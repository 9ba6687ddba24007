"""A request from submission to its record: planning, approval, waves, results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import trio

from actors.errors import Conflict, Invalid, NotFound
from actors.models.provider import ModelError, ModelRequest
from actors.squad import events as names
from actors.squad.errors import NotAwaitingApproval
from actors.squad.events import SquadEvent
from actors.squad.history import read_history
from actors.squad.messages import OverrideTask, PlanOverride
from actors.squad.values import Agent, BudgetConfig, Execution, ModelPreferences, Task
from actors.testing.model import Answer, fail, say, until
from tests.squad.kit import MemoryStore, Team, always, drain, open_engine, squad, wait_phase

DIAMOND = (
    ("collect", "ann", list[str]()),
    ("draft", "ann", ["t1"]),
    ("check", "bob", ["t1"]),
    ("merge", "bob", ["t2", "t3"]),
)
CHAIN = (("first", "ann", list[str]()), ("second", "bob", ["t1"]))


def store(tmp_path: Path, *workers: str, **limits: int) -> MemoryStore:
    found = MemoryStore({"squad-1": squad(tmp_path, *workers)})
    found.budgets["squad-1"] = BudgetConfig(**limits)
    return found


def by_title(execution: Execution) -> dict[str, str]:
    assert execution.plan is not None
    return {task.title: task.id for task in execution.plan.tasks}


def statuses(execution: Execution) -> dict[str, str]:
    assert execution.plan is not None
    return {task.title: task.status for task in execution.plan.tasks}


async def test_runs_a_plan_in_waves_and_keeps_its_record(tmp_path: Path) -> None:
    stored, team = store(tmp_path), Team(*DIAMOND)
    async with open_engine(stored, team.model, tmp_path) as engine:
        with engine.follow("squad-1") as follower:
            submitted = await engine.submit("squad-1", "write it", auto_approve=True)
            done = await wait_phase(engine, "squad-1", submitted.id, "completed", "failed")
            events = drain(follower)
        assert submitted.phase == "planning"
        assert (done.phase, done.result, done.planner_started) == ("completed", "the whole answer", True)
        assert done.planner_degraded_reason is None
        record = await engine.record("squad-1", done.id)
        assert [task.output for task in record.tasks] == [f"result of {task[0]}" for task in DIAMOND]
        assert record.status == "completed"
        assert record.total_token_usage.total == 15 * 7
        page = await engine.events("squad-1", done.id)
        assert [line.seq for line in page.events] == list(range(1, len(page.events) + 1))
        assert [line.event for line in page.events] == [event.name for event in events]
        rows = {row.title: row for row in await stored.board("squad-1")}
        assert {row.status for row in rows.values()} == {"done"}
        assert rows["merge"].result == "result of merge"
        assert rows["merge"].token_usage == 15
        logs = await engine.logs("squad-1", done.id)
        assert [line["message"] for line in logs][:2] == [
            "Run started: write it",
            "Plan generated with 4 tasks",
        ]
        assert await engine.active_executions("squad-1") == []
        assert [each.id for each in await engine.executions("squad-1")] == [done.id]


async def test_a_whole_run_tells_its_events_in_order(tmp_path: Path) -> None:
    team = Team(("only", "ann", []))
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        with engine.follow(None) as follower:
            submitted = await engine.submit("squad-1", "go", auto_approve=True)
            await wait_phase(engine, "squad-1", submitted.id, "completed")
            events = drain(follower)
    lifecycle = [event.name for event in events if event.name != names.EXECUTION_TOKEN_USAGE]
    assert lifecycle == [
        names.PLANNING_STARTED,
        names.PLAN_READY,
        names.PLAN_APPROVED,
        names.TASK_CREATED,
        names.EXECUTION_STARTED,
        names.TASK_WAVE_STARTED,
        names.TASK_ASSIGNED,
        names.TASK_STATUS_CHANGED,
        names.AGENT_STATE_CHANGED,
        names.AGENT_STATE_CHANGED,
        names.TOKEN_USAGE_UPDATE,
        names.TASK_STATUS_CHANGED,
        names.TASK_COMPLETED,
        names.TASK_WAVE_COMPLETED,
        names.AGGREGATION_STARTED,
        names.EXECUTION_COMPLETED,
    ]
    for event in events:
        assert event.payload["squadId"] == "squad-1"
        assert event.payload["executionId"] == submitted.id
        assert all(key == key[0].lower() + key[1:] and "_" not in key for key in event.payload)
        assert event.payload["timestamp"].endswith("Z")


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
async def test_the_record_can_be_read_by_the_time_the_end_is_told(tmp_path: Path, end: str) -> None:
    work = always(fail(ModelError("no", kind="invalid_request"))) if end == "failed" else None
    told: list[tuple[str, list[str]]] = []
    stored, team = store(tmp_path), Team(*CHAIN, work=work)
    async with open_engine(stored, team.model, tmp_path) as engine:
        show = engine.services.publish

        def look(event: SquadEvent) -> None:
            told.append((event.name, [record.status for record in read_history(tmp_path)]))
            show(event)

        engine.services = replace(engine.services, publish=look)
        submitted = await engine.submit("squad-1", "write it", auto_approve=end != "cancelled")
        if end == "cancelled":
            await wait_phase(engine, "squad-1", submitted.id, "awaiting_approval")
            await engine.cancel("squad-1", submitted.id)
        await wait_phase(engine, "squad-1", submitted.id, "completed", "failed", "cancelled")
    assert told[-1] == (f"squad:execution-{end}", [end])
    assert told[0][1] == []


async def test_a_plan_waits_for_approval_and_no_worker_is_called(tmp_path: Path) -> None:
    team = Team(*CHAIN, ("third", "ann", []))
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go")
        waiting = await wait_phase(engine, "squad-1", submitted.id, "awaiting_approval")
        assert waiting.plan is not None
        assert len(waiting.plan.tasks) == 3
        assert waiting.plan.status == "draft"
        assert team.worked == []
        await engine.approve("squad-1", submitted.id)
        done = await wait_phase(engine, "squad-1", submitted.id, "completed")
        assert sorted(team.worked) == ["first", "second", "third"]
        assert done.plan is not None
        assert done.plan.status == "completed"
        with pytest.raises(NotAwaitingApproval):
            await engine.approve("squad-1", submitted.id)


async def test_tasks_of_a_wave_run_together_and_the_next_wave_waits_for_all(tmp_path: Path) -> None:
    release = trio.Event()

    def work(_: ModelRequest, title: str) -> Answer:
        return until(release) + say("late") if title == "b" else say("done")

    team = Team(("a", "ann", []), ("b", "bob", []), ("c", "ann", ["t1"]), work=work)
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go", auto_approve=True)
        with engine.follow("squad-1") as follower:
            while "a" not in team.worked or team.model.running != 1:
                await follower.next()
        await trio.testing.wait_all_tasks_blocked(0.01)
        running = await engine.execution("squad-1", submitted.id)
        assert statuses(running) == {"a": "done", "b": "in_progress", "c": "pending"}
        release.set()
        await wait_phase(engine, "squad-1", submitted.id, "completed")
        assert sorted(team.worked[:2]) == ["a", "b"]
        assert team.worked[2:] == ["c"]


async def test_no_more_agents_work_at_once_than_the_budget_allows(tmp_path: Path) -> None:
    most = 0

    def work(_: ModelRequest, __: str) -> Answer:
        nonlocal most
        most = max(most, team.model.running)
        return say("x")

    team = Team(*((f"t{n}", f"w{n}", list[str]()) for n in range(6)), work=work)
    async with open_engine(
        store(tmp_path, *(f"w{n}" for n in range(6)), max_concurrent_agents=2), team.model, tmp_path
    ) as engine:
        submitted = await engine.submit("squad-1", "go", auto_approve=True)
        done = await wait_phase(engine, "squad-1", submitted.id, "completed")
    assert most == 2
    assert done.task_counts.completed == 6


async def test_a_worker_sees_the_request_its_task_and_the_results_it_builds_on(tmp_path: Path) -> None:
    stored, team = store(tmp_path), Team(*CHAIN)
    stored.memories["squad-1", "a-bob"] = "## Style\n- be brief\n"
    async with open_engine(stored, team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "the big request", auto_approve=True)
        await wait_phase(engine, "squad-1", submitted.id, "completed")
    prompt = team.prompts["second"]
    assert "the big request" in prompt
    assert "do second" in prompt
    assert "result of first" in prompt
    assert "be brief" in prompt
    assert "be brief" not in team.prompts["first"]


async def test_dependants_of_a_failed_task_are_skipped_with_the_cause_and_others_run(tmp_path: Path) -> None:
    def work(_: ModelRequest, title: str) -> Answer:
        return fail(ModelError("no luck", kind="invalid_request")) if title == "bad" else say("ok")

    team = Team(
        ("bad", "ann", []),
        ("good", "bob", []),
        ("after-bad", "ann", ["t1"]),
        ("after-good", "bob", ["t2"]),
        ("after-both", "ann", ["t3", "t4"]),
        work=work,
    )
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        with engine.follow("squad-1") as follower:
            submitted = await engine.submit("squad-1", "go", auto_approve=True)
            done = await wait_phase(engine, "squad-1", submitted.id, "completed")
            skipped = [event.payload for event in drain(follower) if event.name == names.TASK_SKIPPED]
    ids = by_title(done)
    assert statuses(done) == {
        "bad": "failed",
        "good": "done",
        "after-bad": "cancelled",
        "after-good": "done",
        "after-both": "cancelled",
    }
    assert [(each["taskId"], each["reason"], each["cause"]) for each in skipped] == [
        (ids["after-bad"], "dependency_failed", ids["bad"]),
        (ids["after-both"], "dependency_failed", ids["after-bad"]),
    ]
    assert (done.task_counts.failed, done.task_counts.skipped, done.task_counts.completed) == (1, 2, 2)
    assert done.skipped_task_ids == ()


async def test_a_run_of_which_no_task_succeeded_has_failed(tmp_path: Path) -> None:
    team = Team(*CHAIN, work=always(fail(ModelError("no luck", kind="invalid_request"))))
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go", auto_approve=True)
        failed = await wait_phase(engine, "squad-1", submitted.id, "completed", "failed")
        assert failed.phase == "failed"
        assert "no luck" in (failed.error or "")
        assert team.aggregator_calls == 0
        assert (await engine.record("squad-1", submitted.id)).status == "failed"


async def test_results_are_put_together_without_a_model_when_the_planner_cannot(tmp_path: Path) -> None:
    team = Team(*CHAIN, aggregate=lambda _: fail(ModelError("down", kind="server")))
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go", auto_approve=True)
        done = await wait_phase(engine, "squad-1", submitted.id, "completed")
    assert "2 of 2 tasks completed" in (done.result or "")
    assert "result of second" in (done.result or "")


async def test_an_agent_whose_model_is_unknown_fails_its_task_only(tmp_path: Path) -> None:
    stored = store(tmp_path)
    lost = Agent(
        id="a-lost",
        name="lost",
        role=stored.squads["squad-1"].agents[1].role,
        model_preferences=ModelPreferences(preferred_model_id="no-such-model"),
    )
    team_with_lost = (*stored.squads["squad-1"].agents, lost)
    stored.squads["squad-1"] = msgspec.structs.replace(stored.squads["squad-1"], agents=team_with_lost)
    team = Team(("a", "lost", []), ("b", "bob", []))
    async with open_engine(stored, team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go", auto_approve=True)
        done = await wait_phase(engine, "squad-1", submitted.id, "completed")
        record = await engine.record("squad-1", submitted.id)
    assert statuses(done) == {"a": "failed", "b": "done"}
    assert "no-such-model" in (record.tasks[0].error or "")


# --- submitting and approving -------------------------------------------------------------------------------------


async def test_what_cannot_be_run_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    stored, team = store(tmp_path), Team()
    async with open_engine(stored, team.model, tmp_path) as engine:
        with pytest.raises(NotFound):
            await engine.submit("nobody", "go")
        with pytest.raises(Invalid, match="blank"):
            await engine.submit("squad-1", " \n")
        stored.squads["squad-1"] = msgspec.structs.replace(stored.squads["squad-1"], agents=())
        with pytest.raises(Conflict, match="no agents"):
            await engine.submit("squad-1", "go")
        blocked = tmp_path / "file"
        blocked.write_text("")
        stored.squads["squad-1"] = squad(blocked)
        with pytest.raises(Conflict, match="cannot be written"):
            await engine.submit("squad-1", "go")
        assert await engine.executions("squad-1") == []


async def test_a_sixth_live_execution_is_refused(tmp_path: Path) -> None:
    team = Team(*CHAIN)
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        started = [await engine.submit("squad-1", f"go {n}") for n in range(5)]
        with pytest.raises(Invalid, match="already has 5 active executions"):
            await engine.submit("squad-1", "one too many")
        await engine.cancel("squad-1", started[0].id)
        await engine.submit("squad-1", "now it fits")


async def test_a_submitter_who_leaves_leaves_no_execution_that_nobody_plans(tmp_path: Path) -> None:
    team = Team(*CHAIN)
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        for checkpoints in range(12):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(engine.submit, "squad-1", f"go {checkpoints}")
                    for _ in range(checkpoints):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
            for row in await engine.executions("squad-1"):
                if row.completed_at is None:
                    await wait_phase(engine, "squad-1", row.id, "awaiting_approval")
                    await engine.cancel("squad-1", row.id)
        assert await engine.active_executions("squad-1") == []
        assert len(await engine.executions("squad-1")) > 1


async def test_submissions_at_the_same_time_do_not_slip_past_the_limit(tmp_path: Path) -> None:
    team = Team(*CHAIN)
    accepted: list[str] = []

    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:

        async def submit() -> None:
            try:
                accepted.append((await engine.submit("squad-1", "go")).id)
            except Invalid:
                return

        async with trio.open_nursery() as nursery:
            for _ in range(12):
                nursery.start_soon(submit)
    assert len(accepted) == 5


async def test_an_override_replaces_the_plan_and_its_order(tmp_path: Path) -> None:
    stored, team = store(tmp_path), Team(*CHAIN)
    async with open_engine(stored, team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go")
        waiting = await wait_phase(engine, "squad-1", submitted.id, "awaiting_approval")
        first = by_title(waiting)["first"]
        override = PlanOverride(
            tasks=(
                OverrideTask(id=first),
                OverrideTask(id="n1", title="last", depends_on=("n2",)),
                OverrideTask(id="n2", title="middle", depends_on=(first,), assigned_to="a-bob"),
            )
        )
        await engine.approve("squad-1", submitted.id, override)
        await wait_phase(engine, "squad-1", submitted.id, "completed")
    assert team.worked == ["first", "middle", "last"]
    assert sorted(row.id for row in await stored.board("squad-1")) == sorted([first, "n1", "n2"])


async def test_a_refused_override_changes_nothing(tmp_path: Path) -> None:
    stored, team = store(tmp_path), Team(*CHAIN)
    async with open_engine(stored, team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go")
        waiting = await wait_phase(engine, "squad-1", submitted.id, "awaiting_approval")
        with pytest.raises(Invalid):
            await engine.approve(
                "squad-1", submitted.id, PlanOverride(tasks=(OverrideTask(id="a b", title="x"),))
            )
        assert await engine.execution("squad-1", submitted.id) == waiting
        assert await stored.board("squad-1") == []
        assert (await engine.approve("squad-1", submitted.id)).phase == "executing"


async def test_an_id_on_the_board_is_refused_until_its_row_is_gone(tmp_path: Path) -> None:
    stored, team = store(tmp_path), Team(*CHAIN)
    draft = PlanOverride(tasks=(OverrideTask(id="draft", title="draft"),))
    async with open_engine(stored, team.model, tmp_path) as engine:
        first = await engine.submit("squad-1", "go")
        await wait_phase(engine, "squad-1", first.id, "awaiting_approval")
        stored.rows["squad-1"] = {"draft": Task(id="draft", squad_id="squad-1", title="t", description="d")}
        with pytest.raises(Invalid, match="delete it first"):
            await engine.approve("squad-1", first.id, draft)
        del stored.rows["squad-1"]["draft"]
        await engine.approve("squad-1", first.id, draft)
        done = await wait_phase(engine, "squad-1", first.id, "completed")
        before = stored.rows["squad-1"]["draft"]
        second = await engine.submit("squad-1", "go")
        await wait_phase(engine, "squad-1", second.id, "awaiting_approval")
        assert done.plan is not None
        with pytest.raises(Invalid, match=f"'draft' is taken on the board by plan {done.plan.id}$"):
            await engine.approve("squad-1", second.id, draft)
        assert stored.rows["squad-1"]["draft"] == before


async def test_an_execution_is_found_only_in_its_own_squad(tmp_path: Path) -> None:
    stored, team = store(tmp_path), Team(*CHAIN)
    stored.squads["squad-2"] = squad(tmp_path / "two", squad_id="squad-2")
    async with open_engine(stored, team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go")
        for wrong_squad, wrong_id in (("squad-2", submitted.id), ("squad-1", "nothing")):
            with pytest.raises(NotFound):
                await engine.execution(wrong_squad, wrong_id)
            with pytest.raises(NotFound):
                await engine.cancel(wrong_squad, wrong_id)


# --- what others ask of the engine ----------------------------------------------------------------------------------


async def test_a_submitter_can_wait_for_the_plan(tmp_path: Path) -> None:
    team = Team(planner=lambda _: "no plan here")
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go")
        with trio.fail_after(5):
            planned = await engine.wait_planned("squad-1", submitted.id)
    assert (planned.phase, planned.planner_started) == ("awaiting_approval", False)


async def test_agents_of_live_plans_are_busy_and_the_squad_says_what_it_does(tmp_path: Path) -> None:
    team = Team(("first", "ann", []))
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        assert (await engine.squad_status("squad-1")).type == "idle"
        submitted = await engine.submit("squad-1", "go")
        await wait_phase(engine, "squad-1", submitted.id, "awaiting_approval")
        assert await engine.busy_agents("squad-1") == {"a-ann"}
        assert (await engine.squad_status("squad-1")).type == "awaiting_approval"
        assert set(await engine.squad_statuses()) == {"squad-1"}
        await engine.cancel("squad-1", submitted.id)
        assert await engine.busy_agents("squad-1") == frozenset()
        assert (await engine.squad_status("squad-1")).type == "idle"
        assert [each.phase for each in await engine.executions("squad-1", phase="cancelled")] == ["cancelled"]
        assert await engine.executions("squad-1", phase="completed") == []


async def test_an_event_published_from_outside_reaches_followers_and_the_activity_log(tmp_path: Path) -> None:
    async with open_engine(store(tmp_path), Team().model, tmp_path) as engine:
        with engine.follow("squad-1") as follower:
            await engine.publish("squad-1", names.AGENTS_CHANGED, {"change": "added", "agentIds": ["x"]})
            (event,) = drain(follower)
        (entry,) = await engine.activity("squad-1")
    assert event.payload["squadId"] == "squad-1"
    assert event.payload["agentIds"] == ["x"]
    assert entry.event_type == names.AGENTS_CHANGED
