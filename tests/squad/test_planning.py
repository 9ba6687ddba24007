"""Planning: what planners answer, and what is made of answers that are no plan."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from actors.models.provider import ModelError, ModelRequest
from actors.squad import events as names
from actors.squad.errors import NotAwaitingApproval
from actors.testing.model import Answer, calls, fail, say
from tests.squad.kit import Team, drain, open_engine, wait_phase
from tests.squad.test_execution import CHAIN, statuses, store


async def test_a_plan_written_as_json_is_taken(tmp_path: Path) -> None:
    team = Team(planner=lambda _: '```json\n{"tasks": [{"id": 1, "title": "one", "agent": "ann"},]}\n```')
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go")
        waiting = await wait_phase(engine, "squad-1", submitted.id, "awaiting_approval")
    assert (statuses(waiting), waiting.planner_started) == ({"one": "pending"}, True)
    assert team.planner_calls == 1


async def test_prose_is_asked_about_once_and_then_replaced_by_a_plan_without_the_planner(
    tmp_path: Path,
) -> None:
    team = Team(planner=lambda _: "I would just do it.")
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        with engine.follow("squad-1") as follower:
            submitted = await engine.submit("squad-1", "go", auto_approve=True)
            done = await wait_phase(engine, "squad-1", submitted.id, "completed")
            ready = next(event for event in drain(follower) if event.name == names.PLAN_READY)
        again = await engine.execution("squad-1", submitted.id)
    assert team.planner_calls == 2
    assert done.planner_started is False
    assert "I would just do it." in (again.planner_degraded_reason or "")
    assert ready.payload["plannerWarning"] == again.planner_degraded_reason
    assert done.plan is not None
    assert [task.assigned_to for task in done.plan.tasks] == ["a-ann", "a-bob"]
    assert team.aggregator_calls == 0


async def test_the_repair_round_can_still_give_a_plan(tmp_path: Path) -> None:
    def planner(request: ModelRequest) -> str:
        asked_again = sum(message.role == "user" for message in request.messages) > 1
        return '[{"title": "one"}]' if asked_again else "Well..."

    team = Team(planner=planner)
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go")
        waiting = await wait_phase(engine, "squad-1", submitted.id, "awaiting_approval")
    assert waiting.planner_degraded_reason is None
    assert statuses(waiting) == {"one": "pending"}


@pytest.mark.parametrize("reply", ["", "[]", "{}", "null", '{"tasks": [], "waves": [["a"]]}'])
async def test_a_plan_of_nothing_degrades_with_a_reason(tmp_path: Path, reply: str) -> None:
    team = Team(planner=lambda _: reply or say(""))
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go")
        waiting = await wait_phase(engine, "squad-1", submitted.id, "awaiting_approval")
    assert waiting.planner_started is False
    assert waiting.planner_degraded_reason
    assert waiting.task_counts.total == 2


async def test_a_planner_that_fails_degrades_and_the_run_goes_on(tmp_path: Path) -> None:
    team = Team(planner=lambda _: fail(ModelError("router down", kind="invalid_request")))
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go", auto_approve=True)
        done = await wait_phase(engine, "squad-1", submitted.id, "completed")
    assert "router down" in (done.planner_degraded_reason or "")


async def test_a_planner_that_makes_tasks_for_ever_is_held_to_the_limit(tmp_path: Path) -> None:
    def planner(_: ModelRequest) -> Answer:
        return calls([("create_task", {"title": "more", "assigned_to": "ann"})] * 10)

    team = Team(planner=planner)
    async with open_engine(
        store(tmp_path, max_tasks_per_plan=15, max_agent_turns=4), team.model, tmp_path
    ) as engine:
        submitted = await engine.submit("squad-1", "go")
        waiting = await wait_phase(engine, "squad-1", submitted.id, "awaiting_approval")
    assert waiting.task_counts.total == 15


async def test_a_squad_without_a_planner_runs_without_a_plan_of_its_own(tmp_path: Path) -> None:
    stored = store(tmp_path)
    workers = stored.squads["squad-1"].agents[1:]
    stored.squads["squad-1"] = msgspec.structs.replace(
        stored.squads["squad-1"], agents=workers, planner_agent_id=None
    )
    team = Team()
    async with open_engine(stored, team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go", auto_approve=True)
        done = await wait_phase(engine, "squad-1", submitted.id, "completed")
    assert "no planner" in (done.planner_degraded_reason or "")
    assert done.task_counts.completed == 2


async def test_feedback_reaches_the_next_plan_until_plans_run_out(tmp_path: Path) -> None:
    team = Team(*CHAIN)
    async with open_engine(store(tmp_path, max_plan_iterations=2), team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go")
        first = await wait_phase(engine, "squad-1", submitted.id, "awaiting_approval")
        again = await engine.reject("squad-1", submitted.id, "more tests please")
        assert again.phase == "planning"
        second = await wait_phase(engine, "squad-1", submitted.id, "awaiting_approval")
        assert second.plan_iterations == 2
        assert first.plan is not None
        assert second.plan is not None
        assert second.plan.id != first.plan.id
        prompt = team.model.requests[-1].messages[1].content
        assert "more tests please" in prompt
        assert "do first" in prompt
        ended = await engine.reject("squad-1", submitted.id, "no")
        assert ended.phase == "cancelled"
        assert "maxPlanIterations" in (ended.error or "")
        with pytest.raises(NotAwaitingApproval):
            await engine.reject("squad-1", submitted.id, "no")
