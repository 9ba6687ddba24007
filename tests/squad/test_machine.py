"""The execution as a machine: whatever operators, tasks and restarts do, it stays sound and comes to an end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from actors.errors import Rejected
from actors.journal.log import Record
from actors.squad import decide, schedule
from actors.squad import messages as m
from actors.squad.announce import announce
from actors.squad.codec import decode, encode
from actors.squad.events import ALL
from actors.squad.plan import make_plan
from actors.squad.state import TRANSITIONS, ExecutionState
from actors.squad.values import FINISHED, BudgetConfig, PlanTask, TokenUsage
from tests.squad.kit import squad

TEAM = squad(Path("/work"), "ann", "bob", "cid")
AGENTS = [agent.id for agent in TEAM.agents[1:]]


class Execution:
    """A state with the recorder's rule: decide, fold, and fold what is due until nothing is."""

    def __init__(self) -> None:
        self.state = ExecutionState("e")
        self.log: list[tuple[float, m.ExecutionEvent]] = []
        self.names: list[str] = []
        self.started: list[str] = []

    def do(self, step: Callable[[], Sequence[m.ExecutionEvent]]) -> None:
        batch = step()
        while batch:
            for event in batch:
                self._take(event)
            batch = schedule.advance(self.state)

    def _take(self, event: m.ExecutionEvent) -> None:
        state = self.state
        if isinstance(event, m.TaskStarted):
            task = state.tasks[event.task_id]
            assert state.phase == "executing"
            assert task.status == "pending"
            assert all(state.satisfied(needed) for needed in task.depends_on)
            self.started.append(event.task_id)
        before, at = state.phase, float(len(self.log) + 1)
        state.evolve(state.seq + 1, at, event)
        assert state.phase == before or state.phase in TRANSITIONS[before]
        self.log.append((at, event))
        for each in announce(state, event, at):
            payload = each.event.payload
            assert each.event.name in ALL
            assert payload["squadId"] == "squad-1"
            assert payload["executionId"] == "e"
            self.names.append(each.event.name)


class Machine(RuleBasedStateMachine):
    """Operators and tasks at random."""

    @initialize(
        edges=st.integers(1, 7).flatmap(
            lambda size: st.tuples(*(st.sets(st.integers(0, max(n - 1, 0)), max_size=3) for n in range(size)))
        ),
        agents=st.lists(st.sampled_from(AGENTS), min_size=7, max_size=7),
        room=st.integers(1, 3),
    )
    def start(self, edges: tuple[set[int], ...], agents: list[str], room: int) -> None:
        self.run = Execution()
        self.budget = BudgetConfig(max_concurrent_agents=room)
        self.ids = count(1)
        tasks = [
            PlanTask(
                id=f"t{n}",
                title=f"t{n}",
                description="",
                assigned_to=agents[n],
                depends_on=tuple(f"t{need}" for need in needs if need < n),
            )
            for n, needs in enumerate(edges)
        ]
        plan = make_plan(tasks, plan_id="p", squad_id="squad-1", execution_id="e", request="r", now="")
        submitted = m.ExecutionSubmitted(squad_id="squad-1", squad_name="s", workspace="/w", request="r")
        self.run.do(lambda: (submitted,))
        self.run.do(lambda: (m.PlanningStarted(iteration=1),))
        self.run.do(lambda: (m.PlanProposed(plan=plan),))
        approve = m.Approve(squad=TEAM, budget=self.budget)
        self.run.do(lambda: decide.approve(self.state, approve, owner="me", new_id=str))

    @property
    def state(self) -> ExecutionState:
        return self.run.state

    def running(self) -> list[str]:
        return sorted(task.id for task in self.state.running())

    @precondition(lambda self: any(self.state.running()))
    @rule(data=st.data(), ok=st.booleans())
    def a_task_ends(self, data: st.DataObject, ok: bool) -> None:
        task_id = data.draw(st.sampled_from(self.running()))
        usage = m.UsageCounted(agent_id="a-ann", task_id=task_id, usage=TokenUsage(prompt_tokens=3))
        self.run.do(lambda: (usage,))
        ended = (
            m.TaskFinished(task_id=task_id, result="r") if ok else m.TaskFailed(task_id=task_id, error="x")
        )
        self.run.do(lambda: (ended,))

    @rule()
    def pause(self) -> None:
        allowed = self.state.phase == "executing"
        assert self._tried(lambda: decide.pause(self.state, m.Pause(), active=0.0)) == allowed

    @rule()
    def resume(self) -> None:
        allowed = self.state.phase == "paused"
        command = m.Resume(squad=TEAM, budget=self.budget)
        assert self._tried(lambda: decide.resume(self.state, command, owner="me")) == allowed

    @rule(number=st.integers(0, 6))
    def skip(self, number: int) -> None:
        task = self.state.tasks.get(f"t{number}")
        allowed = (
            task is not None and task.status == "pending" and self.state.phase in ("executing", "paused")
        )
        assert self._tried(lambda: decide.skip(self.state, f"t{number}")) == allowed

    @rule(number=st.integers(0, 6))
    def retry(self, number: int) -> None:
        task = self.state.tasks.get(f"t{number}")
        live = self.state.phase in ("executing", "paused")
        allowed = task is not None and live and task.status in ("failed", "cancelled")
        assert self._tried(lambda: decide.retry(self.state, f"t{number}")) == allowed

    @rule(number=st.integers(0, 6))
    def steer(self, number: int) -> None:
        command = m.Steer(message=f"note {number}", agent_ids=tuple(AGENTS))
        identity = f"d{next(self.ids)}"
        self._tried(lambda: decide.steer(self.state, command, directive_id=identity, now=""))

    @rule()
    def the_process_dies(self) -> None:
        self.run.do(lambda: decide.recover(self.state, booted=True))
        assert not self.running()
        assert self.state.terminal or self.state.phase == "paused"

    @precondition(lambda self: self.state.phase == "aggregating")
    @rule()
    def results_are_put_together(self) -> None:
        self.run.do(lambda: decide.finish(self.state, "all"))
        assert self.state.terminal

    @precondition(lambda self: len(self.run.log) > 25)
    @rule()
    def cancel(self) -> None:
        allowed = not self.state.terminal
        assert self._tried(lambda: decide.cancel(self.state, "enough")) == allowed

    def _tried(self, step: Callable[[], Sequence[m.ExecutionEvent]]) -> bool:
        try:
            self.run.do(step)
        except Rejected:
            return False
        return True

    @invariant()
    def no_agent_does_two_tasks_and_there_is_room_for_all(self) -> None:
        busy = [task.assigned_to for task in self.state.running()]
        assert len(set(busy)) == len(busy) <= self.budget.max_concurrent_agents

    @invariant()
    def it_never_waits_for_nothing(self) -> None:
        if self.state.phase == "executing":
            assert any(self.state.running())

    @invariant()
    def counts_add_up(self) -> None:
        counts = msgspec.structs.asdict(self.state.counts())
        assert counts.pop("total") == sum(counts.values()) == len(self.state.tasks)

    @invariant()
    def after_the_end_everything_is_finished(self) -> None:
        if self.state.terminal:
            assert all(task.status in FINISHED for task in self.state.tasks.values())

    @invariant()
    def the_stream_gives_the_same_state_again(self) -> None:
        again = ExecutionState("e")
        for seq, (at, event) in enumerate(self.run.log, 1):
            new = encode(event, seq, at)
            again.evolve(seq, at, decode(Record("execution/e", seq, new.kind, new.data, at)))
        assert again.view() == self.state.view()

    def teardown(self) -> None:
        """Left alone, with every task succeeding, it comes to an end."""
        if not hasattr(self, "run"):
            return
        with contextlib.suppress(Rejected):
            self.resume()
        for _ in range(100):
            if self.state.phase == "aggregating":
                self.results_are_put_together()
            if self.state.terminal:
                break
            task_id = self.running()[0]
            finished = m.TaskFinished(task_id=task_id)
            self.run.do(lambda finished=finished: (finished,))
        assert self.state.terminal
        assert (
            sum(
                name.startswith("squad:execution-c") or name == "squad:execution-failed"
                for name in self.run.names
            )
            == 1
        )
        assert self.run.names[-1] in (
            "squad:execution-completed",
            "squad:execution-failed",
            "squad:execution-cancelled",
        )


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestExecutionMachine = Machine.TestCase
