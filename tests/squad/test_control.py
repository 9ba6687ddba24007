"""What an operator does to an execution while it runs, and what is refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from actors.errors import Conflict, Invalid, NotFound
from actors.kernel.errors import MailboxFull
from actors.models.provider import ModelError, ModelRequest
from actors.squad import events as names
from actors.squad.engine import SquadEngine
from actors.squad.errors import NotPausable, NotRunning, NotSteerable, TaskNotRetriable, TaskNotSkippable
from actors.squad.messages import STEER_LIMIT
from actors.squad.values import WHOLE, Execution, Scope
from actors.testing.model import Answer, fail, hang, say, until
from tests.squad.kit import MemoryStore, Team, always, drain, open_engine, squad, wait_phase
from tests.squad.test_execution import by_title, statuses, store

SQUAD = "squad-1"
CHAIN = (("first", "ann", list[str]()), ("second", "bob", ["t1"]), ("third", "ann", ["t2"]))


async def quiet() -> None:
    """Wait until nothing moves but what waits for the test."""
    await trio.testing.wait_all_tasks_blocked(0.005)


class Held:
    """Workers that wait for the test: each task until it is released, or told to fail."""

    def __init__(self, *held: str) -> None:
        self.events = {title: trio.Event() for title in held}
        self.failing: set[str] = set()

    def __call__(self, _: ModelRequest, title: str) -> Answer:
        if title in self.failing:
            return fail(ModelError(f"{title} broke", kind="invalid_request"))
        if title in self.events:
            return until(self.events[title]) + say(f"result of {title}")
        return say(f"result of {title}")

    def release(self, title: str) -> None:
        self.events[title].set()


async def running(engine: SquadEngine, *titles: str) -> Execution:
    """Start a run and return it once these tasks are under way."""
    submitted = await engine.submit(SQUAD, "go", auto_approve=True)
    with engine.follow(SQUAD) as follower:
        while True:
            execution = await engine.execution(SQUAD, submitted.id)
            if execution.plan is not None:
                now = statuses(execution)
                if all(now[title] == "in_progress" for title in titles):
                    await quiet()
                    return await engine.execution(SQUAD, submitted.id)
            await follower.next()


# --- pause and resume -----------------------------------------------------------------------------------------------


async def test_a_pause_lets_the_task_under_way_finish_and_starts_no_other(tmp_path: Path) -> None:
    held = Held("first")
    team = Team(*CHAIN, work=held)
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        run = await running(engine, "first")
        paused = await engine.pause(SQUAD, run.id, "lunch")
        assert paused.status.type == "paused"
        assert paused.status.data == {
            "currentWave": 0,
            "totalWaves": 3,
            "reason": "lunch",
            "pausedBy": "operator",
        }
        held.release("first")
        await quiet()
        still = await engine.execution(SQUAD, run.id)
        assert statuses(still) == {"first": "done", "second": "pending", "third": "pending"}
        assert team.worked == ["first"]
        calls = len(team.model.requests)
        await quiet()
        assert len(team.model.requests) == calls
        assert (await engine.resume(SQUAD, run.id)).phase == "executing"
        done = await wait_phase(engine, SQUAD, run.id, "completed")
        assert team.worked == ["first", "second", "third"]
        assert set(done.task_attempts.values()) == {1}


async def test_a_pause_holds_also_when_the_last_task_ends(tmp_path: Path) -> None:
    held = Held("only")
    team = Team(("only", "ann", []), work=held)
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        run = await running(engine, "only")
        await engine.pause(SQUAD, run.id)
        held.release("only")
        await quiet()
        assert (await engine.execution(SQUAD, run.id)).phase == "paused"
        assert team.aggregator_calls == 0
        await engine.resume(SQUAD, run.id)
        await wait_phase(engine, SQUAD, run.id, "completed")


async def test_the_time_paused_does_not_count_for_the_time_limit(
    tmp_path: Path, autojump_clock: object
) -> None:
    held = Held("first")
    team = Team(*CHAIN, work=held)
    async with open_engine(store(tmp_path, execution_timeout_secs=10), team.model, tmp_path) as engine:
        run = await running(engine, "first")
        await trio.sleep(6)
        await engine.pause(SQUAD, run.id)
        await trio.sleep(100)
        await engine.resume(SQUAD, run.id)
        await trio.sleep(3)
        assert (await engine.execution(SQUAD, run.id)).phase == "executing"
        await trio.sleep(2)
        assert (await engine.execution(SQUAD, run.id)).phase == "failed"


# --- skip and retry ---------------------------------------------------------------------------------------------


async def test_a_skipped_task_is_listed_and_its_dependants_run_knowing_it(tmp_path: Path) -> None:
    held = Held("first")
    team = Team(*CHAIN, work=held)
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        run = await running(engine, "first")
        second = by_title(run)["second"]
        skipped = await engine.skip_task(SQUAD, run.id, second)
        assert skipped.skipped_task_ids == (second,)
        held.release("first")
        done = await wait_phase(engine, SQUAD, run.id, "completed")
    assert team.worked == ["first", "third"]
    assert "skipped by the operator; there is no output" in team.prompts["third"]
    assert (done.task_counts.skipped, done.task_counts.cancelled) == (1, 0)


async def test_only_a_task_that_has_not_started_can_be_skipped(tmp_path: Path) -> None:
    held = Held("second")
    team = Team(*CHAIN, work=held)
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        run = await running(engine, "second")
        ids = by_title(run)
        for title in ("first", "second"):
            with pytest.raises(TaskNotSkippable) as refused:
                await engine.skip_task(SQUAD, run.id, ids[title])
            assert refused.value.code == "SQUAD_EXECUTION_TASK_NOT_SKIPPABLE"
        with pytest.raises(NotFound):
            await engine.skip_task(SQUAD, run.id, "nothing")
        held.release("second")
        await wait_phase(engine, SQUAD, run.id, "completed")
        with pytest.raises(NotRunning):
            await engine.skip_task(SQUAD, run.id, ids["third"])


async def test_when_all_tasks_are_skipped_the_run_ends(tmp_path: Path) -> None:
    team = Team(*CHAIN)
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        submitted = await engine.submit(SQUAD, "go")
        waiting = await wait_phase(engine, SQUAD, submitted.id, "awaiting_approval")
        for task_id in by_title(waiting).values():
            await engine.skip_task(SQUAD, submitted.id, task_id)
        await engine.approve(SQUAD, submitted.id)
        done = await wait_phase(engine, SQUAD, submitted.id, "completed")
    assert team.worked == []
    assert done.task_counts.skipped == 3


async def test_a_failed_task_runs_again_and_revives_what_was_skipped_for_it(tmp_path: Path) -> None:
    held = Held("other")
    held.failing.add("first")
    team = Team(*CHAIN, ("other", "bob", []), ("last", "bob", ["t4"]), work=held)
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        run = await running(engine, "other")
        ids = by_title(run)
        assert statuses(run)["first"] == "failed"
        held.failing.clear()
        again = await engine.retry_task(SQUAD, run.id, ids["first"])
        assert statuses(again)["first"] == "pending"
        held.release("other")
        done = await wait_phase(engine, SQUAD, run.id, "completed")
    assert set(statuses(done).values()) == {"done"}
    assert done.task_attempts[ids["first"]] == 2
    assert done.task_attempts[ids["second"]] == 1


async def test_a_retry_in_a_later_wave_runs_in_an_extra_pass(tmp_path: Path) -> None:
    held = Held("slow")
    held.failing.add("bad")
    team = Team(
        ("bad", "ann", []),
        ("good", "bob", []),
        ("slow", "bob", ["t2"]),
        ("after", "ann", ["t1"]),
        work=held,
    )
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        with engine.follow(SQUAD) as follower:
            run = await running(engine, "slow")
            ids = by_title(run)
            assert statuses(run)["after"] == "cancelled"
            held.failing.clear()
            again = await engine.retry_task(SQUAD, run.id, ids["bad"])
            assert statuses(again)["after"] == "pending"
            held.release("slow")
            done = await wait_phase(engine, SQUAD, run.id, "completed")
            waves = [
                (event.payload["waveIndex"], event.payload["taskIds"])
                for event in drain(follower)
                if event.name == names.TASK_WAVE_STARTED
            ]
    assert set(statuses(done).values()) == {"done"}
    assert waves[2:] == [(0, [ids["bad"]]), (1, [ids["after"]])]


async def test_only_failed_cancelled_or_skipped_tasks_can_be_retried(tmp_path: Path) -> None:
    held = Held("second")
    team = Team(*CHAIN, work=held)
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        run = await running(engine, "second")
        ids = by_title(run)
        for title in ids:
            with pytest.raises(TaskNotRetriable) as refused:
                await engine.retry_task(SQUAD, run.id, ids[title])
            assert refused.value.code == "SQUAD_EXECUTION_TASK_NOT_RETRIABLE"
        await engine.skip_task(SQUAD, run.id, ids["third"])
        await engine.retry_task(SQUAD, run.id, ids["third"])
        held.release("second")
        done = await wait_phase(engine, SQUAD, run.id, "completed")
    assert done.skipped_task_ids == ()
    assert "third" in team.worked


# --- steering ---------------------------------------------------------------------------------------------------


async def test_a_directive_stands_for_every_later_task(tmp_path: Path) -> None:
    held = Held("first")
    team = Team(*CHAIN, work=held)
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        run = await running(engine, "first")
        steered = await engine.steer(SQUAD, run.id, "Keep the API unchanged")
        assert [each.message for each in steered.directives] == ["Keep the API unchanged"]
        held.release("first")
        done = await wait_phase(engine, SQUAD, run.id, "completed")
    assert "Keep the API unchanged" not in team.prompts["first"]
    assert "Keep the API unchanged" in team.prompts["second"]
    assert "Keep the API unchanged" in team.prompts["third"]
    ids = by_title(done)
    assert done.directives[0].applied_to_task_ids == (ids["second"], ids["third"])


async def test_a_directive_reaches_only_its_task_or_agent(tmp_path: Path) -> None:
    team = Team(*CHAIN)
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        submitted = await engine.submit(SQUAD, "go")
        waiting = await wait_phase(engine, SQUAD, submitted.id, "awaiting_approval")
        second = by_title(waiting)["second"]
        await engine.steer(SQUAD, submitted.id, "for the task", Scope("task", task_id=second))
        await engine.steer(SQUAD, submitted.id, "for ann", Scope("agent", agent_id="a-ann"))
        await engine.approve(SQUAD, submitted.id)
        await wait_phase(engine, SQUAD, submitted.id, "completed")
    told = {title: ("for the task" in prompt, "for ann" in prompt) for title, prompt in team.prompts.items()}
    assert told == {"first": (False, True), "second": (True, False), "third": (False, True)}


@pytest.mark.parametrize(
    ("message", "scope", "error"),
    [
        (" ", None, "blank"),
        ("ä" * (STEER_LIMIT // 2 + 1), None, "longer than 8192 bytes"),
        ("x", Scope("task", task_id="nothing"), "not a task"),
        ("x", Scope("task"), "not a task"),
        ("x", Scope("agent", agent_id="nobody"), "not an agent"),
    ],
)
async def test_a_directive_for_nothing_is_refused(
    tmp_path: Path, message: str, scope: Scope | None, error: str
) -> None:
    team = Team(*CHAIN)
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        submitted = await engine.submit(SQUAD, "go")
        await wait_phase(engine, SQUAD, submitted.id, "awaiting_approval")
        with pytest.raises(Invalid, match=error):
            await engine.steer(SQUAD, submitted.id, message, scope)


async def test_a_finished_task_takes_no_directive(tmp_path: Path) -> None:
    held = Held("second")
    team = Team(*CHAIN, work=held)
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        run = await running(engine, "second")
        with pytest.raises(NotSteerable):
            await engine.steer(SQUAD, run.id, "late", Scope("task", task_id=by_title(run)["first"]))


# --- cancel and the wrong state -----------------------------------------------------------------------------------


async def test_a_cancel_takes_effect_at_once_and_late_results_are_dropped(tmp_path: Path) -> None:
    held = Held("first")
    stored, team = store(tmp_path), Team(*CHAIN, work=held)
    async with open_engine(stored, team.model, tmp_path) as engine:
        run = await running(engine, "first")
        cancelled = await engine.cancel(SQUAD, run.id)
        assert cancelled.phase == "cancelled"
        assert set(statuses(cancelled).values()) == {"cancelled"}
        record = await engine.record(SQUAD, run.id)
        assert record.status == "cancelled"
        assert team.model.running == 1
        before = await engine.events(SQUAD, run.id)
        held.release("first")
        await quiet()
        assert team.model.running == 0
        after = await engine.execution(SQUAD, run.id)
        assert statuses(after)["first"] == "cancelled"
        assert await engine.events(SQUAD, run.id) == before
        assert before.events[-1].event == names.EXECUTION_CANCELLED
        assert {row.status for row in await stored.board(SQUAD)} == {"cancelled"}


async def test_planning_can_be_cancelled(tmp_path: Path) -> None:
    team = Team(planner=lambda _: hang())
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        submitted = await engine.submit(SQUAD, "go")
        await team.model.wait_requests(1)
        assert (await engine.cancel(SQUAD, submitted.id)).phase == "cancelled"
        await quiet()
        assert team.model.running == 0
        assert (await engine.execution(SQUAD, submitted.id)).phase == "cancelled"


Act = Callable[[SquadEngine, str, str], Awaitable[object]]
CONTROLS: dict[str, tuple[Act, str]] = {
    "pause": (lambda engine, run, _: engine.pause(SQUAD, run), "SQUAD_EXECUTION_NOT_PAUSABLE"),
    "resume": (lambda engine, run, _: engine.resume(SQUAD, run), "SQUAD_EXECUTION_NOT_RUNNING"),
    "cancel": (lambda engine, run, _: engine.cancel(SQUAD, run), "SQUAD_EXECUTION_NOT_RUNNING"),
    "steer": (lambda engine, run, _: engine.steer(SQUAD, run, "x"), "SQUAD_EXECUTION_NOT_STEERABLE"),
    "skip": (lambda engine, run, task: engine.skip_task(SQUAD, run, task), "SQUAD_EXECUTION_NOT_RUNNING"),
    "retry": (lambda engine, run, task: engine.retry_task(SQUAD, run, task), "SQUAD_EXECUTION_NOT_RUNNING"),
    "approve": (lambda engine, run, _: engine.approve(SQUAD, run), "SQUAD_EXECUTION_NOT_AWAITING_APPROVAL"),
    "reject": (
        lambda engine, run, _: engine.reject(SQUAD, run, "x"),
        "SQUAD_EXECUTION_NOT_AWAITING_APPROVAL",
    ),
}


@pytest.mark.parametrize("control", CONTROLS)
async def test_an_ended_run_refuses_every_control_with_its_code(tmp_path: Path, control: str) -> None:
    act, code = CONTROLS[control]
    team = Team(("only", "ann", []))
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        submitted = await engine.submit(SQUAD, "go", auto_approve=True)
        done = await wait_phase(engine, SQUAD, submitted.id, "completed")
        with pytest.raises(Conflict) as refused:
            await act(engine, submitted.id, by_title(done)["only"])
        assert refused.value.code == code
        assert await engine.execution(SQUAD, submitted.id) == done


@pytest.mark.parametrize(
    ("control", "code"),
    [
        ("pause", "SQUAD_EXECUTION_NOT_PAUSABLE"),
        ("resume", "SQUAD_EXECUTION_NOT_RUNNING"),
        ("retry", "SQUAD_EXECUTION_TASK_NOT_RETRIABLE"),
    ],
)
async def test_a_plan_that_waits_for_approval_refuses_what_needs_a_run(
    tmp_path: Path, control: str, code: str
) -> None:
    team = Team(("only", "ann", []))
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        submitted = await engine.submit(SQUAD, "go")
        waiting = await wait_phase(engine, SQUAD, submitted.id, "awaiting_approval")
        with pytest.raises(Conflict) as refused:
            await CONTROLS[control][0](engine, submitted.id, by_title(waiting)["only"])
        assert refused.value.code == code


async def test_a_running_run_is_neither_resumed_nor_paused_twice(tmp_path: Path) -> None:
    team = Team(*CHAIN, work=Held("first"))
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        run = await running(engine, "first")
        with pytest.raises(NotRunning):
            await engine.resume(SQUAD, run.id)
        await engine.pause(SQUAD, run.id)
        with pytest.raises(NotPausable):
            await engine.pause(SQUAD, run.id)


# --- emergency stop -----------------------------------------------------------------------------------------------


async def test_an_emergency_stop_ends_planning_waiting_and_running_and_is_told_once(tmp_path: Path) -> None:
    stored = store(tmp_path)
    hanging = False

    def planner(request: ModelRequest) -> Answer | str:
        return hang() if hanging else '[{"title": "only", "agent": "ann"}]'

    def work(_: ModelRequest, title: str) -> Answer:
        return hang() if frozen else say(title)

    frozen = True
    team = Team(work=work, planner=planner)
    other = squad(tmp_path / "other", squad_id="squad-2")
    stored.squads["squad-2"] = other
    async with open_engine(stored, team.model, tmp_path) as engine:
        executing = await running(engine, "only")
        bystander = await engine.submit("squad-2", "go", auto_approve=True)
        waiting = await engine.submit(SQUAD, "wait")
        await wait_phase(engine, SQUAD, waiting.id, "awaiting_approval")
        ended = await engine.submit(SQUAD, "end")
        await wait_phase(engine, SQUAD, ended.id, "awaiting_approval")
        await engine.cancel(SQUAD, ended.id)
        hanging = True
        planning = await engine.submit(SQUAD, "plan")
        await quiet()
        assert team.model.running == 3
        with engine.follow(None) as follower:
            stopped = await engine.emergency_stop(SQUAD, "fire")
            await quiet()
            events = drain(follower)
        assert sorted(stopped) == sorted([executing.id, waiting.id, planning.id])
        assert team.model.running == 1
        for each in stopped:
            now = await engine.execution(SQUAD, each)
            assert (now.phase, now.error) == ("cancelled", "fire")
            assert (await engine.record(SQUAD, each)).status == "cancelled"
            last = (await engine.events(SQUAD, each)).events[-1]
            assert (last.event, last.execution_id) == (names.EMERGENCY_STOPPED, each)
        assert (await engine.execution("squad-2", bystander.id)).phase == "executing"
        told = [event for event in events if event.name == names.EMERGENCY_STOPPED]
        assert [event.payload["cancelledExecutionIds"] for event in told] == [stopped]
        assert events[-1] is told[0]
        assert (await engine.usage(SQUAD)).emergency_stopped
        assert await engine.emergency_stop(SQUAD) == []
        hanging = frozen = False
        after = await engine.submit(SQUAD, "again", auto_approve=True)
        await wait_phase(engine, SQUAD, after.id, "completed")
        assert not (await engine.usage(SQUAD)).emergency_stopped


async def test_a_stop_of_the_whole_process_is_recorded_by_each_execution(tmp_path: Path) -> None:
    team = Team(("only", "ann", []), work=always(hang()))
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        run = await running(engine, "only")
        engine.system.killswitch.trip("everything")
        await quiet()
        now = await engine.execution(SQUAD, run.id)
        assert (now.phase, now.error) == ("cancelled", "everything")
        assert team.model.running == 0


async def test_an_emergency_stop_of_an_unknown_squad_is_refused(tmp_path: Path) -> None:
    async with open_engine(MemoryStore(), Team().model, tmp_path) as engine:
        with pytest.raises(NotFound):
            await engine.emergency_stop("nobody")


async def test_controls_reach_a_busy_execution_at_once_through_a_flood(tmp_path: Path) -> None:
    team = Team(*CHAIN, work=Held("first"))
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        run = await running(engine, "first")
        refused = 0

        async def steer(number: int) -> None:
            nonlocal refused
            try:
                await engine.steer(SQUAD, run.id, f"note {number}")
            except MailboxFull:
                refused += 1

        async with trio.open_nursery() as nursery:
            for number in range(300):
                nursery.start_soon(steer, number)
            with trio.fail_after(2):
                paused = await engine.pause(SQUAD, run.id)
        assert paused.phase == "paused"
        done = await engine.execution(SQUAD, run.id)
        assert len(done.directives) + refused == 300


def test_every_refusal_has_a_code_of_its_own() -> None:
    codes = [code for _, code in CONTROLS.values()]
    assert all(code.startswith("SQUAD_EXECUTION_") for code in codes)
    assert msgspec.json.encode(WHOLE) == b'{"type":"execution"}'
