"""The board's rules: states, edits, dependencies, retries, graph."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from actors.errors import Conflict, Invalid
from actors.squad.board import MAX_RETRIES, SKIPPED, STATES, Board, Change
from actors.squad.refusals import TaskActive, TaskNotFound, TaskRetryExhausted, TaskTerminal
from actors.squad.requests import CreateTask, TaskPatch
from actors.squad.values import FINISHED, RUNNING, Agent, Role, Squad, Task, TaskStatus

NOW = "2023-11-14T22:13:20.000000Z"
SQUAD = Squad(
    id="s", name="s", workspace_path="/w", agents=(Agent(id="ann", name="Ann", role=Role("developer")),)
)


def add(board: Board, task_id: str, *needs: str, **given: Any) -> Task:
    change = board.create(
        CreateTask(title=task_id, description="", depends_on=needs, **given),
        task_id=task_id,
        squad=SQUAD,
        now=NOW,
    )
    board.apply(change)
    return change.rows[0]


def move(board: Board, task_id: str, status: TaskStatus) -> Change:
    change = board.set_status(task_id, status, now=NOW)
    board.apply(change)
    return change


def board_with(status: TaskStatus) -> Board:
    board = Board()
    add(board, "a")
    move(board, "a", status)
    return board


def test_a_task_without_unmet_dependencies_is_ready_and_others_are_pending() -> None:
    board = Board()
    assert add(board, "a").status == "ready"
    assert add(board, "b", "a").status == "pending"


def test_a_task_gets_the_defaults_of_the_contract() -> None:
    task = add(Board(), "a")
    assert (task.priority, task.max_retries, task.retry_count, task.created_by) == ("medium", 3, 0, "user")
    assert (task.plan_id, task.assigned_to, task.created_at) == (None, None, NOW)


@pytest.mark.parametrize(
    "given",
    [
        CreateTask(title=" ", description=""),
        CreateTask(title="x" * 1001, description=""),
        CreateTask(title="x", description="", assigned_to="nobody"),
        CreateTask(title="x", description="", depends_on=("missing",)),
        CreateTask(title="x", description="", depends_on=("new",)),
        CreateTask(title="x", description="", max_retries=-1),
        CreateTask(title="x", description="", max_retries=MAX_RETRIES + 1),
    ],
    ids=["blank", "long", "agent", "dependency", "itself", "few retries", "many retries"],
)
def test_a_task_that_breaks_a_rule_is_not_made(given: CreateTask) -> None:
    with pytest.raises(Invalid):
        Board().create(given, task_id="new", squad=SQUAD, now=NOW)


@pytest.mark.parametrize("status", sorted(RUNNING))
@pytest.mark.parametrize(
    "patch",
    [
        TaskPatch(title="t"),
        TaskPatch(assigned_to="ann"),
        TaskPatch(assigned_to=None),
        TaskPatch(depends_on=()),
    ],
    ids=["title", "assignee", "no assignee", "dependencies"],
)
def test_a_running_task_refuses_what_its_agent_relies_on(status: TaskStatus, patch: TaskPatch) -> None:
    board = board_with(status)
    with pytest.raises(TaskActive):
        board.patch("a", patch, squad=SQUAD)


def test_a_running_task_refuses_the_whole_edit_when_part_of_it_is_refused() -> None:
    board = board_with("in_progress")
    with pytest.raises(TaskActive):
        board.patch("a", TaskPatch(description="new", title="t"), squad=SQUAD)
    assert board.get("a").description == ""


@pytest.mark.parametrize("status", sorted(RUNNING))
def test_a_running_task_takes_description_priority_and_retries(status: TaskStatus) -> None:
    change = board_with(status).patch(
        "a", TaskPatch(description="d", priority="high", max_retries=5), squad=SQUAD
    )
    task = change.rows[0]
    assert (task.description, task.priority, task.max_retries, task.status) == ("d", "high", 5, status)


@pytest.mark.parametrize("status", sorted(FINISHED))
@pytest.mark.parametrize("patch", [TaskPatch(), TaskPatch(description="d"), TaskPatch(title="t")])
def test_a_finished_task_takes_nothing(status: TaskStatus, patch: TaskPatch) -> None:
    with pytest.raises(TaskTerminal):
        board_with(status).patch("a", patch, squad=SQUAD)


def test_an_unstarted_task_takes_everything() -> None:
    board = Board()
    add(board, "a")
    add(board, "b")
    patch = TaskPatch(title="t", description="d", priority="low", assigned_to="ann", depends_on=("a",))
    task = board.patch("b", patch, squad=SQUAD).rows[0]
    assert (task.title, task.assigned_to, task.depends_on, task.status) == ("t", "ann", ("a",), "pending")


def test_null_takes_a_task_from_its_agent_and_absence_leaves_it() -> None:
    board = Board()
    add(board, "a", assigned_to="ann")
    assert board.patch("a", TaskPatch(title="t"), squad=SQUAD).rows[0].assigned_to == "ann"
    assert board.patch("a", TaskPatch(assigned_to=None), squad=SQUAD).rows[0].assigned_to is None


def test_an_edit_that_would_close_a_circle_is_refused() -> None:
    board = Board()
    add(board, "a")
    add(board, "b", "a")
    add(board, "c", "b")
    with pytest.raises(Invalid, match="itself through others"):
        board.patch("a", TaskPatch(depends_on=("c",)), squad=SQUAD)
    with pytest.raises(Invalid, match="itself"):
        board.patch("a", TaskPatch(depends_on=("a",)), squad=SQUAD)


def test_deleting_a_task_frees_its_dependants() -> None:
    board = Board()
    add(board, "a")
    add(board, "b", "a")
    board.apply(board.remove("a", force=False, now=NOW))
    assert (board.get("b").depends_on, board.get("b").status) == ((), "ready")
    with pytest.raises(TaskNotFound):
        board.get("a")


@pytest.mark.parametrize("status", sorted(RUNNING))
def test_a_running_task_is_deleted_by_force_only_and_cancelled_first(status: TaskStatus) -> None:
    board = board_with(status)
    with pytest.raises(TaskActive):
        board.remove("a", force=False, now=NOW)
    (removed,) = board.remove("a", force=True, now=NOW).removed
    assert (removed.status, removed.completed_at) == ("cancelled", NOW)


def test_finishing_a_dependency_makes_its_dependants_ready_when_it_was_the_last() -> None:
    board = Board()
    add(board, "a")
    add(board, "b")
    add(board, "c", "a", "b")
    assert [row.id for row in move(board, "a", "done").rows] == ["a"]
    assert [(row.id, row.status) for row in move(board, "b", "done").rows] == [("b", "done"), ("c", "ready")]


def test_states_stamp_the_times_at_which_they_begin() -> None:
    board = Board()
    add(board, "a")
    assert move(board, "a", "in_progress").rows[0].started_at == NOW
    assert move(board, "a", "failed").rows[0].completed_at == NOW


@pytest.mark.parametrize("status", sorted(FINISHED))
def test_a_finished_task_is_not_moved_but_retried(status: TaskStatus) -> None:
    with pytest.raises(TaskTerminal):
        board_with(status).set_status("a", "pending", now=NOW)


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_retry_queues_a_task_again_without_its_error(status: TaskStatus) -> None:
    board = board_with(status)
    board.apply(Change((replace(board.get("a"), error="broken"),)))
    task = board.retry("a", force=False).rows[0]
    assert (task.status, task.error, task.completed_at, task.retry_count) == ("ready", None, None, 1)


@pytest.mark.parametrize("status", sorted(set(STATES) - {"failed", "cancelled"}))
def test_only_failed_and_cancelled_tasks_are_retried(status: TaskStatus) -> None:
    with pytest.raises(Conflict):
        board_with(status).retry("a", force=True)


def test_force_allows_one_retry_beyond_the_budget_each_time() -> None:
    board = Board()
    add(board, "a", max_retries=0)
    for count in (1, 2):
        move(board, "a", "failed")
        with pytest.raises(TaskRetryExhausted):
            board.retry("a", force=False)
        board.apply(board.retry("a", force=True))
        assert board.get("a").retry_count == count


def test_retrying_a_skipped_task_makes_its_dependants_wait_again() -> None:
    board = Board()
    add(board, "a")
    add(board, "b", "a")
    move(board, "a", "cancelled")
    board.apply(Change((replace(board.get("a"), error=SKIPPED), replace(board.get("b"), status="ready"))))
    board.apply(board.retry("a", force=False))
    assert board.get("b").status == "pending"


def test_the_graph_has_a_diamond_in_three_waves() -> None:
    board = Board()
    add(board, "a")
    add(board, "b", "a")
    add(board, "c", "a")
    add(board, "d", "b", "c")
    graph = board.graph()
    assert graph.waves == (("a",), ("b", "c"), ("d",))
    assert graph.ready_task_ids == ("a",)
    move(board, "a", "done")
    assert board.graph().ready_task_ids == ("b", "c")


def test_a_task_the_operator_skipped_lets_its_dependants_be_ready() -> None:
    board = Board()
    add(board, "a")
    add(board, "b", "a")
    board.apply(Change((replace(board.get("a"), status="cancelled", error=SKIPPED),)))
    assert board.graph().ready_task_ids == ("b",)


def test_an_empty_board_has_an_empty_graph_and_a_summary_of_zeros() -> None:
    graph = Board().graph()
    assert (graph.tasks, graph.waves, graph.ready_task_ids) == ((), (), ())
    summary = Board().summary("s")
    assert (summary.total, summary.by_status) == (0, dict.fromkeys(STATES, 0))


def test_a_selection_matches_everything_that_is_asked() -> None:
    board = Board()
    add(board, "a", assigned_to="ann", plan_id="p")
    add(board, "b", assigned_to="ann")
    add(board, "c", "a", assigned_to="ann")
    assert [row.id for row in board.select("ready", "ann")] == ["a", "b"]
    assert [row.id for row in board.select(plan_id="p")] == ["a"]
    assert list(board.select("done")) == []


def test_an_execution_does_not_undo_what_people_edited_on_its_rows() -> None:
    board = Board()
    row = Task(id="x", squad_id="s", plan_id="p", title="plan", description="plan", created_at="1")
    board.apply(board.merge([row]))
    board.apply(board.patch("x", TaskPatch(description="mine", priority="critical"), squad=SQUAD))
    board.apply(board.merge([replace(row, status="done", result="r", created_at="2")]))
    found = board.get("x")
    assert (found.description, found.priority, found.created_at) == ("mine", "critical", "1")
    assert (found.status, found.result) == ("done", "r")


def test_a_row_that_an_execution_writes_unchanged_is_no_change() -> None:
    board = Board()
    row = Task(id="x", squad_id="s", plan_id="p", title="t", description="d")
    board.apply(board.merge([row]))
    assert board.merge([row]).rows == ()


class BoardMachine(RuleBasedStateMachine):
    """Any sequence of operations leaves a board whose indexes say what its rows say."""

    def __init__(self) -> None:
        super().__init__()
        self.board = Board()
        self.made = 0

    def pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from([row.id for row in self.board.rows()]))

    def attempt(self, change: Any) -> None:
        with suppress(Invalid, Conflict):
            self.board.apply(change())

    @rule(data=st.data())
    def create(self, data: st.DataObject) -> None:
        ids = [row.id for row in self.board.rows()]
        needs = data.draw(st.lists(st.sampled_from(ids), max_size=3)) if ids else []
        self.made += 1
        add(self.board, f"t{self.made}", *needs)

    @precondition(lambda self: self.board.rows())
    @rule(data=st.data(), status=st.sampled_from(STATES))
    def set_status(self, data: st.DataObject, status: TaskStatus) -> None:
        task_id = self.pick(data)
        self.attempt(lambda: self.board.set_status(task_id, status, now=NOW))

    @precondition(lambda self: self.board.rows())
    @rule(data=st.data())
    def depend(self, data: st.DataObject) -> None:
        task_id, other = self.pick(data), self.pick(data)
        self.attempt(lambda: self.board.patch(task_id, TaskPatch(depends_on=(other,)), squad=SQUAD))

    @precondition(lambda self: self.board.rows())
    @rule(data=st.data(), force=st.booleans())
    def retry(self, data: st.DataObject, force: bool) -> None:
        task_id = self.pick(data)
        self.attempt(lambda: self.board.retry(task_id, force=force))

    @precondition(lambda self: self.board.rows())
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        task_id = self.pick(data)
        self.attempt(lambda: self.board.remove(task_id, force=True, now=NOW))

    @invariant()
    def waves_hold_every_task_once(self) -> None:
        placed = [task_id for wave in self.board.graph().waves for task_id in wave]
        assert sorted(placed) == sorted(row.id for row in self.board.rows())

    @invariant()
    def every_dependency_is_on_the_board(self) -> None:
        rows = {row.id: row for row in self.board.rows()}
        for row in rows.values():
            assert set(row.depends_on) <= rows.keys()

    @invariant()
    def ready_tasks_of_the_graph_have_nothing_to_wait_for(self) -> None:
        for task_id in self.board.graph().ready_task_ids:
            assert all(
                self.board.get(needed).status == "done" for needed in self.board.get(task_id).depends_on
            )

    @invariant()
    def counts_are_those_of_the_rows(self) -> None:
        by_status = self.board.summary("s").by_status
        for status in STATES:
            assert by_status[status] == sum(row.status == status for row in self.board.rows())


BoardMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
TestBoardMachine = BoardMachine.TestCase
