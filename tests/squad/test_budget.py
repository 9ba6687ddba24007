"""Budgets: reserved before they are spent, so that workers in parallel overshoot by one model call at most."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from actors.models.provider import ModelRequest, Usage
from actors.squad.purse import Account, BudgetSpent, Purse
from actors.squad.state import total_spent
from actors.squad.values import BudgetConfig
from actors.testing.model import Answer, call, say
from tests.squad.kit import Team, always, open_engine, wait_phase
from tests.squad.test_control import SQUAD, quiet
from tests.squad.test_execution import statuses, store


def spending(tokens: int) -> Answer:
    return say("done").ending(usage=Usage(input_tokens=tokens - 1, output_tokens=1))


def purse(exhausted: list[str] | None = None, **limits: float) -> Purse:
    told = [] if exhausted is None else exhausted
    return Purse(BudgetConfig(**limits), told.append)  # type: ignore[arg-type]


async def spend(found: Purse, account: Account, tokens: int, estimate: int = 10) -> None:
    await found.admit(account, estimate)
    with found.reserve(account, estimate) as settle:
        await trio.sleep(1)
        settle(tokens, 0.0)


async def test_a_wave_of_eight_overshoots_a_nearly_spent_budget_by_one_call(autojump_clock: object) -> None:
    found = purse(max_total_tokens=1000)
    found.load("earlier", 900, 0.0)
    refused = 0

    async def worker(number: int) -> None:
        nonlocal refused
        try:
            await spend(found, Account(f"a{number}", f"t{number}"), 200, estimate=150)
        except BudgetSpent:
            refused += 1

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(worker, number)
    assert (found.tokens, refused) == (1100, 7)


async def test_calls_run_together_while_there_is_room_for_all(autojump_clock: object) -> None:
    found = purse(max_total_tokens=1000)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(spend, found, Account(f"a{number}", f"t{number}"), 100, 100)
    assert trio.current_time() - began == pytest.approx(1)


async def test_a_reservation_is_given_back_when_the_call_fails(autojump_clock: object) -> None:
    found = purse(max_total_tokens=100)
    with pytest.raises(ValueError, match="broken"), found.reserve(Account("a", "t"), 100):
        raise ValueError("broken")
    with trio.fail_after(2):
        await spend(found, Account("b", "t2"), 50, estimate=90)
    assert found.tokens == 50


async def test_limits_of_a_task_and_an_agent_refuse_the_next_call() -> None:
    found = purse(max_total_tokens=1000, max_tokens_per_agent=100, max_tokens_per_task=50)
    found.load("ann", 100, 0.0)
    with pytest.raises(BudgetSpent, match="the agent used 100 of 100"):
        await found.admit(Account("ann", "t"), 1)
    with pytest.raises(BudgetSpent, match="the task used 60 of 50"):
        await found.admit(Account("bob", "t", used=60), 1)


async def test_who_may_wait_waits_for_a_higher_limit_and_its_clock_stands_still(
    autojump_clock: object,
) -> None:
    told: list[str] = []
    found = purse(told, max_total_tokens=100)
    found.load("x", 100, 0.0)
    account = Account("ann", "t", waits=True)
    finished = False

    async def worker() -> None:
        nonlocal finished
        with trio.move_on_after(10) as clock:
            account.clock = clock
            await spend(found, account, 5)
            finished = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker)
        await trio.sleep(1000)
        assert told == ["budget exceeded: 100 of 100 tokens are used"]
        found.update(BudgetConfig(max_total_tokens=100))
        await trio.sleep(1000)
        assert len(told) == 2
        found.update(BudgetConfig(max_total_tokens=200))
    assert finished
    assert found.tokens == 105


async def test_closing_refuses_those_who_wait(autojump_clock: object) -> None:
    found = purse(max_total_tokens=100)
    found.load("x", 100, 0.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_refused, found)
        await trio.sleep(1)
        found.close("it has ended")


async def _refused(found: Purse) -> None:
    with pytest.raises(BudgetSpent, match="it has ended"):
        await found.admit(Account("ann", "t", waits=True), 1)


def test_a_cost_limit_counts_money() -> None:
    limits = BudgetConfig(max_total_cost_usd=0.5)
    assert total_spent(limits, 1, 0.4) == ""
    assert "0.5000 of 0.5000 USD" in total_spent(limits, 1, 0.5)


# --- whole executions ---------------------------------------------------------------------------------------------


async def test_a_spent_total_pauses_the_run_and_a_higher_one_lets_it_go_on(tmp_path: Path) -> None:
    stored = store(tmp_path, max_total_tokens=60)
    team = Team(("a", "ann", []), ("b", "bob", ["t1"]), work=always(spending(40)))
    async with open_engine(stored, team.model, tmp_path) as engine:
        submitted = await engine.submit(SQUAD, "go", auto_approve=True)
        paused = await wait_phase(engine, SQUAD, submitted.id, "paused")
        assert statuses(paused) == {"a": "done", "b": "pending"}
        assert paused.status.data is not None
        assert paused.status.data["pausedBy"] == "budget"
        usage = await engine.usage(SQUAD)
        assert (usage.total_tokens, usage.exceeded, usage.warning_emitted) == (70, True, True)
        await engine.resume(SQUAD, submitted.id)
        await quiet()
        assert (await engine.execution(SQUAD, submitted.id)).phase == "paused"
        stored.budgets[SQUAD] = BudgetConfig(max_total_tokens=1000)
        await engine.resume(SQUAD, submitted.id)
        done = await wait_phase(engine, SQUAD, submitted.id, "completed")
    assert statuses(done) == {"a": "done", "b": "done"}


async def test_a_worker_whose_budget_runs_out_in_mid_task_goes_on_after_the_resume(tmp_path: Path) -> None:
    def work(request: ModelRequest, _: str) -> Answer:
        return spending(10) if request.messages[-1].role == "tool" else _listing()

    stored = store(tmp_path, max_total_tokens=40, max_tokens_per_task=40, max_tokens_per_agent=40)
    team = Team(("a", "ann", []), work=work)
    async with open_engine(stored, team.model, tmp_path) as engine:
        submitted = await engine.submit(SQUAD, "go", auto_approve=True)
        paused = await wait_phase(engine, SQUAD, submitted.id, "paused")
        assert statuses(paused) == {"a": "in_progress"}
        calls = len(team.model.requests)
        await quiet()
        assert len(team.model.requests) == calls
        stored.budgets[SQUAD] = BudgetConfig(max_total_tokens=400)
        await engine.resume(SQUAD, submitted.id)
        done = await wait_phase(engine, SQUAD, submitted.id, "completed")
    assert team.worked == ["a"]
    assert done.task_attempts == {next(iter(done.task_attempts)): 1}


def _listing() -> Answer:
    return call("list_files", {"path": "."})


async def test_a_task_limit_fails_the_task_alone(tmp_path: Path) -> None:
    def work(request: ModelRequest, title: str) -> Answer:
        if title == "greedy" and request.messages[-1].role != "tool":
            return _listing().ending(usage=Usage(input_tokens=500))
        return spending(10)

    team = Team(("greedy", "ann", []), ("modest", "bob", []), work=work)
    async with open_engine(store(tmp_path, max_tokens_per_task=400), team.model, tmp_path) as engine:
        submitted = await engine.submit(SQUAD, "go", auto_approve=True)
        done = await wait_phase(engine, SQUAD, submitted.id, "completed")
        record = await engine.record(SQUAD, submitted.id)
    assert statuses(done) == {"greedy": "failed", "modest": "done"}
    assert "the task used 500 of 400" in (record.tasks[0].error or "")


async def test_an_agent_limit_fails_its_later_tasks(tmp_path: Path) -> None:
    team = Team(("a", "ann", []), ("b", "ann", ["t1"]), ("c", "bob", ["t1"]), work=always(spending(300)))
    async with open_engine(
        store(tmp_path, max_tokens_per_agent=300, max_tokens_per_task=300), team.model, tmp_path
    ) as engine:
        submitted = await engine.submit(SQUAD, "go", auto_approve=True)
        done = await wait_phase(engine, SQUAD, submitted.id, "completed")
    assert statuses(done) == {"a": "done", "b": "failed", "c": "done"}


async def test_a_spent_budget_makes_the_planner_degrade(tmp_path: Path) -> None:
    stored = store(tmp_path, max_total_tokens=1)
    team = Team(planner=lambda _: "no plan, but it costs")
    async with open_engine(stored, team.model, tmp_path) as engine:
        submitted = await engine.submit(SQUAD, "go")
        waiting = await wait_phase(engine, SQUAD, submitted.id, "awaiting_approval")
    assert "budget exceeded" in (waiting.planner_degraded_reason or "")
    assert team.planner_calls == 1


async def test_what_is_counted_is_what_the_model_used(tmp_path: Path) -> None:
    team = Team(*((f"t{n}", "ann" if n % 2 else "bob", list[str]()) for n in range(6)))
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        submitted = await engine.submit(SQUAD, "go", auto_approve=True)
        done = await wait_phase(engine, SQUAD, submitted.id, "completed")
        record = await engine.record(SQUAD, submitted.id)
    assert done.token_usage.total == 15 * len(team.model.requests)
    assert sum(each.total for each in record.per_agent_token_usage.values()) == done.token_usage.total
