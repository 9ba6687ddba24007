"""Boards in workspaces: files in step, restarts, damage, executions' rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from actors.errors import Invalid, Unavailable
from actors.squad import boards
from actors.squad.refusals import TaskNotFound, TaskRetryExhausted
from actors.squad.requests import CreateTask, TaskPatch
from actors.squad.values import Task, TaskStatus
from tests.squad.shelf import Shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def given(title: str = "t", *needs: str) -> CreateTask:
    return CreateTask(title=title, description="do it", depends_on=needs)


def read(shelf: Shelf, name: str) -> str:
    return (Path(shelf.workspace()) / "tasks" / name).read_text()


async def test_a_task_is_a_file_for_programs_and_one_for_people(shelf: Shelf) -> None:
    squad = await shelf.squad("ann")
    task = await shelf.squads.tasks.create(
        squad.id, CreateTask(title="Write", description="# not a heading", assigned_to="ann")
    )
    stored = json.loads(read(shelf, f"{task.id}.json"))
    assert (stored["title"], stored["squadId"], stored["maxRetries"]) == ("Write", squad.id, 3)
    page = read(shelf, f"{task.id}.md")
    assert page.startswith("# Write\n")
    assert "- Assigned to: ann" in page
    assert "\\# not a heading" in page


async def test_the_page_for_people_keeps_the_progress(shelf: Shelf) -> None:
    squad = await shelf.squad()
    task = await shelf.squads.tasks.create(squad.id, given())
    await shelf.squads.tasks.set_status(squad.id, task.id, "in_progress")
    await shelf.squads.tasks.set_status(squad.id, task.id, "done")
    progress = read(shelf, f"{task.id}.md").partition("## Progress")[2]
    assert [line.split(" ", 2)[2] for line in progress.split("\n") if line] == [
        "created, ready",
        "ready → in_progress",
        "in_progress → done",
    ]


async def test_the_index_follows_the_tasks(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "BEHIND", 0.0)
    squad = await shelf.squad()
    index = Path(shelf.workspace(), "tasks", "index.json")

    async def until(ids: list[str]) -> None:
        with trio.fail_after(5):
            while not index.exists() or [row["id"] for row in json.loads(index.read_text())] != ids:
                await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(shelf.squads.run)
        task = await shelf.squads.tasks.create(squad.id, given())
        await until([task.id])
        await shelf.squads.tasks.delete(squad.id, task.id)
        await until([])
        nursery.cancel_scope.cancel()


async def test_an_index_left_behind_is_caught_up_after_a_restart(shelf: Shelf) -> None:
    squad = await shelf.squad()
    task = await shelf.squads.tasks.create(
        squad.id, given()
    )  # and the process dies before the index is written
    again = Shelf(shelf.root)
    await again.squads.tasks.list(squad.id)
    await again.squads.tasks.flush()
    assert [row["id"] for row in json.loads(read(again, "index.json"))] == [task.id]


async def test_a_board_is_the_same_after_a_restart(shelf: Shelf) -> None:
    squad = await shelf.squad("ann")
    first = await shelf.squads.tasks.create(squad.id, given("a"))
    shelf.now += 1
    await shelf.squads.tasks.create(squad.id, given("b", first.id))
    before = await shelf.squads.tasks.list(squad.id)
    assert await Shelf(shelf.root).squads.tasks.list(squad.id) == list(before)


async def test_deleting_removes_both_files_and_updates_the_dependants(shelf: Shelf) -> None:
    squad = await shelf.squad()
    first = await shelf.squads.tasks.create(squad.id, given("a"))
    second = await shelf.squads.tasks.create(squad.id, given("b", first.id))
    await shelf.squads.tasks.delete(squad.id, first.id)
    assert not list(Path(shelf.workspace(), "tasks").glob(f"{first.id}*"))
    assert json.loads(read(shelf, f"{second.id}.json"))["dependsOn"] == []
    assert json.loads(read(shelf, f"{second.id}.json"))["status"] == "ready"


async def test_changes_are_published_with_what_they_are_about(shelf: Shelf) -> None:
    squad = await shelf.squad()
    first = await shelf.squads.tasks.create(squad.id, given("a"))
    second = await shelf.squads.tasks.create(squad.id, given("b", first.id))
    shelf.engine.published.clear()
    await shelf.squads.tasks.patch(squad.id, first.id, TaskPatch(priority="low"))
    await shelf.squads.tasks.set_status(squad.id, first.id, "done")
    await shelf.squads.tasks.delete(squad.id, second.id)
    assert [(name, payload["taskId"]) for _, name, payload in shelf.engine.published] == [
        ("squad:task-updated", first.id),
        ("squad:task-status-changed", first.id),
        ("squad:task-status-changed", second.id),
        ("squad:task-deleted", second.id),
    ]
    assert shelf.engine.published[2][2]["oldStatus"] == "pending"
    assert shelf.engine.published[2][2]["newStatus"] == "ready"


async def test_a_refused_operation_publishes_and_writes_nothing(shelf: Shelf) -> None:
    squad = await shelf.squad()
    task = await shelf.squads.tasks.create(squad.id, CreateTask(title="t", description="", max_retries=0))
    await shelf.squads.tasks.set_status(squad.id, task.id, "failed")
    before = read(shelf, f"{task.id}.json")
    shelf.engine.published.clear()
    with pytest.raises(TaskRetryExhausted):
        await shelf.squads.tasks.retry(squad.id, task.id)
    assert (shelf.engine.published, read(shelf, f"{task.id}.json")) == ([], before)


async def test_the_first_task_lays_the_workspace_out(shelf: Shelf) -> None:
    squad = await shelf.squad()
    await shelf.squads.clean_workspace(squad.id)
    await shelf.squads.tasks.create(squad.id, given())
    assert (await shelf.squads.workspace_status(squad.id)).initialized


async def test_a_damaged_task_is_left_out_and_the_others_are_there(shelf: Shelf) -> None:
    squad = await shelf.squad()
    task = await shelf.squads.tasks.create(squad.id, given())
    folder = Path(shelf.workspace()) / "tasks"
    (folder / "broken.json").write_text('{"id": ')
    (folder / "other.json").write_text((folder / f"{task.id}.json").read_text())
    found = await Shelf(shelf.root).squads.tasks.list(squad.id)
    assert [row.id for row in found] == [task.id]


async def test_a_board_that_cannot_be_written_changes_nothing(shelf: Shelf) -> None:
    squad = await shelf.squad()
    task = await shelf.squads.tasks.create(squad.id, given())
    folder = Path(shelf.workspace()) / "tasks"
    folder.rename(folder.with_name("elsewhere"))
    folder.write_text("in the way")
    with pytest.raises(Unavailable):
        await shelf.squads.tasks.set_status(squad.id, task.id, "done")
    assert (await shelf.squads.tasks.get(squad.id, task.id)).status == "ready"


async def test_a_link_in_the_place_of_the_tasks_leads_nothing_out(shelf: Shelf, tmp_path: Path) -> None:
    squad = await shelf.squad()
    await shelf.squads.tasks.create(squad.id, given())
    folder, outside = Path(shelf.workspace()) / "tasks", tmp_path / "outside"
    outside.mkdir()
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(outside)
    with pytest.raises(Unavailable):
        await shelf.squads.tasks.create(squad.id, given())
    assert list(outside.iterdir()) == []


def plan_row(task_id: str, squad_id: str, status: TaskStatus = "pending") -> Task:
    return Task(
        id=task_id,
        squad_id=squad_id,
        plan_id="p",
        title=task_id,
        description="",
        created_by="planner",
        status=status,
    )


async def test_an_execution_puts_its_rows_without_an_event(shelf: Shelf) -> None:
    squad = await shelf.squad()
    shelf.engine.published.clear()
    await shelf.squads.put_tasks(squad.id, [plan_row("draft", squad.id)])
    assert json.loads(read(shelf, "draft.json"))["createdBy"] == "planner"
    assert shelf.engine.published == []


@pytest.mark.parametrize("task_id", ["../x", "a/b", "index", "CON", "a.b", "", "x" * 129, "é"])
async def test_an_id_that_cannot_be_a_files_name_is_refused(shelf: Shelf, task_id: str) -> None:
    squad = await shelf.squad()
    with pytest.raises(Invalid):
        await shelf.squads.put_tasks(squad.id, [plan_row(task_id, squad.id)])


async def test_ids_that_differ_by_case_only_are_refused(shelf: Shelf) -> None:
    squad = await shelf.squad()
    await shelf.squads.put_tasks(squad.id, [plan_row("draft", squad.id)])
    with pytest.raises(Invalid, match="same file"):
        await shelf.squads.put_tasks(squad.id, [plan_row("Draft", squad.id)])


async def test_a_row_that_was_deleted_under_a_running_execution_stays_deleted(shelf: Shelf) -> None:
    squad = await shelf.squad()
    await shelf.squads.put_tasks(squad.id, [plan_row("draft", squad.id, status="in_progress")])
    await shelf.squads.tasks.delete(squad.id, "draft", force=True)
    await shelf.squads.put_tasks(squad.id, [plan_row("draft", squad.id, status="done")])
    with pytest.raises(TaskNotFound):
        await shelf.squads.tasks.get(squad.id, "draft")


async def test_parallel_changes_of_one_board_lose_nothing(shelf: Shelf) -> None:
    squad = await shelf.squad()
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(shelf.squads.tasks.create, squad.id, given(str(number)))
    assert len(await Shelf(shelf.root).squads.tasks.list(squad.id)) == 20


async def test_boards_used_long_ago_are_given_back_and_read_again(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boards, "KEPT", 1)
    squads = [await shelf.squad(workspace=f"ws{number}") for number in range(3)]
    for squad in squads:
        await shelf.squads.tasks.create(squad.id, given())
    await shelf.squads.tasks.flush()
    assert [len(await shelf.squads.tasks.list(squad.id)) for squad in squads] == [1, 1, 1]
