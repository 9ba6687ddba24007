"""The rules of planOverride, each by its name in the contract."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path

import msgspec
import pytest

from actors.errors import Invalid
from actors.squad.messages import BoardHold, OverrideTask, PlanOverride
from actors.squad.override import apply_override
from actors.squad.plan import make_plan
from actors.squad.values import Plan, PlanTask
from tests.squad.kit import squad

TEAM = squad(Path("/work"))


def task(task_id: str, *needs: str, **fields: object) -> PlanTask:
    base = PlanTask(
        id=task_id, title=task_id, description=f"do {task_id}", assigned_to="a-ann", depends_on=needs
    )
    return msgspec.structs.replace(base, **fields)


def plan(*tasks: PlanTask) -> Plan:
    return make_plan(
        tasks or (task("a"), task("b", "a")),
        plan_id="p1",
        squad_id="s",
        execution_id="e",
        request="r",
        now="",
    )


def new(task_id: str | None = None, *needs: str, **fields: object) -> OverrideTask:
    base = OverrideTask(id=task_id, title="new", assigned_to="a-bob", depends_on=needs)
    return msgspec.structs.replace(base, **fields)


def keep(task_id: str, **fields: object) -> OverrideTask:
    return msgspec.structs.replace(OverrideTask(id=task_id), **fields)


def override(
    *tasks: OverrideTask, of: Plan | None = None, board: Sequence[BoardHold] = (), limit: int = 20
) -> Plan:
    numbers = count(1)
    return apply_override(
        of or plan(),
        PlanOverride(tasks=tasks),
        squad=TEAM,
        board=board,
        limit=limit,
        new_id=lambda: f"made-{next(numbers)}",
    )


def refused(message: str, *tasks: OverrideTask, board: Sequence[BoardHold] = (), limit: int = 20) -> None:
    with pytest.raises(Invalid, match=message):
        override(*tasks, board=board, limit=limit)


def test_r1_a_task_not_mentioned_is_removed() -> None:
    assert [each.id for each in override(keep("a")).tasks] == ["a"]


def test_r2_a_stored_id_keeps_identity_status_and_what_is_not_given() -> None:
    stored = plan(task("a", status="cancelled", error="skipped"), task("b"))
    (found,) = override(keep("a", title="better", priority="high"), of=stored).tasks
    assert (found.status, found.error, found.title, found.priority) == (
        "cancelled",
        "skipped",
        "better",
        "high",
    )
    assert found.description == "do a"


def test_r3_a_new_id_is_added_as_it_is() -> None:
    assert [each.id for each in override(keep("a"), new("draft")).tasks] == ["a", "draft"]


def test_r4_a_task_without_an_id_gets_one() -> None:
    assert [each.id for each in override(keep("a"), OverrideTask(title="only a title")).tasks] == [
        "a",
        "made-1",
    ]


@pytest.mark.parametrize("bad", ["a_b", "a.b", "a/b", "a b", "é", "a\n", "..", "日本"])
def test_r5_a_chosen_id_has_only_letters_digits_and_hyphens(bad: str) -> None:
    refused("only ASCII letters", new(bad))


def test_r6_a_chosen_id_has_1_to_128_bytes() -> None:
    refused("must not be empty", new(""))
    refused("longer than 128 bytes", new("x" * 129))
    assert override(new("x" * 128)).tasks[0].id == "x" * 128


@pytest.mark.parametrize(
    "bad", ["index", "Index", "con", "CON", "prn", "AUX", "nul", "COM1", "com9", "lpt1", "lpt9"]
)
def test_r7_names_of_files_and_devices_are_refused(bad: str) -> None:
    refused("reserved name", new(bad))


@pytest.mark.parametrize("good", ["COM10", "indexes", "com0", "console", "nul-1"])
def test_r7_names_that_only_look_reserved_are_taken(good: str) -> None:
    assert override(new(good)).tasks[0].id == good


def test_r8_two_tasks_may_not_share_an_id_or_differ_only_in_case() -> None:
    refused("used twice", new("draft"), new("draft"))
    refused("differs only in case", new("draft"), new("Draft"))


def test_r9_a_stored_id_may_be_named_once_and_no_new_one_beside_it() -> None:
    refused("used twice", keep("a"), keep("a"))
    refused("differs only in case", keep("a"), new("A"))
    refused("differs only in case from the stored 'a'", keep("b", depends_on=()), new("A"))


def test_r10_an_assignee_must_be_in_the_squad() -> None:
    refused("'ghost' is not an agent", new("x", assigned_to="ghost"))
    refused("'ghost' is not an agent", keep("a", assigned_to="ghost"))


def test_r11_dependencies_mean_the_resulting_plan() -> None:
    found = override(keep("a"), new("n1", "n2"), new("n2", "a"))
    assert found.waves == (("a",), ("n2",), ("n1",))
    refused("depends on 'b', which is not a task of the resulting plan", keep("a", depends_on=("b",)))
    refused("depends on 'a'", keep("b"))
    refused("depends on 'never'", new("x", "never"))


def test_r12_circles_are_refused_also_of_one_task() -> None:
    refused("in a circle: x -> y -> x", new("x", "y"), new("y", "x"))
    refused("in a circle: x -> x", new("x", "x"))


def test_r13_an_id_of_another_plan_on_the_board_is_refused_with_its_holder() -> None:
    refused("'draft' is taken on the board by plan p0$", new("draft"), board=[BoardHold("draft", "p0")])
    refused("by plan p0 of execution e0", new("draft"), board=[BoardHold("draft", "p0", "e0")])


def test_r14_rows_of_the_own_plan_are_no_clash() -> None:
    board = [BoardHold("a", "p1"), BoardHold("draft", "p1")]
    assert [each.id for each in override(keep("a"), new("draft"), board=board).tasks] == ["a", "draft"]


def test_r15_a_row_made_by_hand_cannot_be_taken_over() -> None:
    refused("belongs to no run; delete it first", new("draft"), board=[BoardHold("draft")])


def test_r16_the_board_is_compared_without_case() -> None:
    refused("taken on the board", new("Draft"), board=[BoardHold("dRAFT", "p0")])


def test_r17_checks_come_in_order_and_name_the_first_task() -> None:
    refused("title must not be blank", new("a_b"), new("ok", title=" "))
    refused("only ASCII", new("a_b", assigned_to="ghost"))
    refused("used twice", new("x", assigned_to="ghost"), new("x"))
    refused("'ghost'", new("x", "never", assigned_to="ghost"))
    refused("'never'", new("x", "x", "never"))
    refused("circle", new("x", "x"), board=[BoardHold("x", "p0")])
    refused("'first_'", new("first_"), new("second_"))


def test_r18_a_plan_of_nothing_is_refused() -> None:
    refused("empty")


def test_r19_a_new_task_needs_a_title_and_is_described_by_it() -> None:
    refused("title must not be blank", new("x", title=None))
    refused("title must not be blank", new("x", title="  "))
    assert override(new("x", title="Do it")).tasks[0].description == "Do it"


def test_the_limit_of_a_plan_bounds_an_override() -> None:
    refused("may have 2", *(new(f"t{n}") for n in range(3)), limit=2)


def test_retries_are_bounded() -> None:
    refused("between 0 and 10", new("x", max_retries=11))
    refused("between 0 and 10", keep("a", max_retries=-1))


def test_a_title_of_the_plan_is_taken() -> None:
    found = apply_override(
        plan(),
        PlanOverride(tasks=(keep("a"),), title="Mine"),
        squad=TEAM,
        board=(),
        limit=9,
        new_id=str,
    )
    assert found.title == "Mine"
