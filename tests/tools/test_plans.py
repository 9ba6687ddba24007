"""Shared plans, the session's own plan, tasks and memory: kept whole, with revisions, across calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from actors.errors import Conflict
from actors.tools.plans import PlanChange, Plans
from actors.tools.registry import Deps
from actors.tools.tool import ToolContext, Toolset
from tests.tools.kit import build, call, context_in

CONTRACT = {
    "write_plan": ["name", "content", "title", "author", "status", "last_known_revision"],
    "read_plan": ["name"],
    "list_plans": [],
    "delete_plan": ["name", "last_known_revision"],
    "set_plan_status": ["name", "status", "last_known_revision"],
    "get_plan_status": ["name"],
    "update_plan_from_file": ["name", "path", "title", "author", "status", "last_known_revision"],
    "export_plan_to_file": ["name", "path"],
}


class Planning:
    """The plan tools, with what they announced."""

    def __init__(self, root: Path) -> None:
        self.changes: list[PlanChange] = []
        self.root = root
        self.plans = Plans(root.parent / "plans", self.changes.append)
        self.toolset: Toolset = build("plan", Deps(plans=self.plans))
        self.context: ToolContext = context_in(root)

    async def __call__(self, name: str, /, **arguments: object) -> Any:
        result = await call(self.toolset, name, self.context, **arguments)
        return result.output if result.is_error or not result.structured else result.structured


@pytest.fixture
def planning(tmp_path: Path) -> Planning:
    root = tmp_path / "w"
    root.mkdir()
    return Planning(root)


def test_plan_tools_are_those_of_the_contract(planning: Planning) -> None:
    tools = {tool.definition.name: tool.definition for tool in planning.toolset.tools()}
    assert {name: list(tool.parameters["properties"]) for name, tool in tools.items()} == CONTRACT
    read_only = {name for name, tool in tools.items() if tool.annotations.read_only_hint}
    assert read_only == {"read_plan", "list_plans", "get_plan_status"}
    assert tools["delete_plan"].annotations.destructive_hint


async def test_plan_is_written_read_and_announced_without_content(planning: Planning) -> None:
    assert (await planning("write_plan", name="road-map_1", content="# A", title="T"))["revision"] == 1
    plan = await planning("read_plan", name="road-map_1")
    assert {key: plan[key] for key in ("name", "title", "content", "author", "revision")} == {
        "name": "road-map_1",
        "title": "T",
        "content": "# A",
        "author": "root",
        "revision": 1,
    }
    assert plan["updatedAt"].endswith("Z")
    await planning("set_plan_status", name="road-map_1", status="approved")
    assert (await planning("get_plan_status", name="road-map_1"))["status"] == "approved"
    assert "content" not in (await planning("list_plans"))[0]
    await planning("write_plan", name="road-map_1", content="# B")
    plan = await planning("read_plan", name="road-map_1")
    assert (plan["title"], plan["status"], plan["revision"]) == ("T", "approved", 3)
    await planning("delete_plan", name="road-map_1", last_known_revision=3)
    await planning("write_plan", name="road-map_1", content="new")
    await planning("delete_plan", name="road-map_1")
    assert [(change.action, change.version) for change in planning.changes] == [
        ("write", 1),
        ("status", 2),
        ("write", 3),
        ("delete", 3),
        ("write", 1),
        ("delete", None),
    ]


async def test_stale_revision_is_a_conflict_and_changes_nothing(planning: Planning) -> None:
    await planning("write_plan", name="p", content="1")
    await planning("write_plan", name="p", content="2", last_known_revision=1)
    for tool, arguments in {
        "write_plan": {"content": "3"},
        "set_plan_status": {"status": "x"},
        "delete_plan": {},
    }.items():
        text = await planning(tool, name="p", last_known_revision=1, **arguments)
        assert "conflict: plan 'p' is at revision 2, not 1" in text
    assert (await planning("read_plan", name="p"))["content"] == "2"
    assert len(planning.changes) == 2
    assert "is at revision 0, not 1" in await planning(
        "write_plan", name="q", content="x", last_known_revision=1
    )


@pytest.mark.parametrize("name", ["", "A", "a b", "../x", "a/b", ".a", "-a", "a" * 101, "é", "a.json"])
async def test_other_names_are_refused(planning: Planning, name: str) -> None:
    for tool in ("write_plan", "read_plan", "delete_plan"):
        arguments = {"content": "x"} if tool == "write_plan" else {}
        assert "is not a plan name" in await planning(tool, name=name, **arguments)
    assert not planning.changes


async def test_missing_and_damaged_plans_are_errors(planning: Planning) -> None:
    assert "there is no plan 'p'" in await planning("read_plan", name="p")
    assert "there is no plan 'p'" in await planning("delete_plan", name="p")
    assert "there is no plan 'p'" in await planning("set_plan_status", name="p", status="x")
    assert await planning("list_plans") == "[]"
    await planning("write_plan", name="p", content="x")
    (planning.root.parent / "plans" / "p.json").write_text("{")
    assert "is damaged" in await planning("read_plan", name="p")


async def test_writers_who_name_their_revision_never_lose_a_change(planning: Planning) -> None:
    lost = 0

    async def add(number: int) -> None:
        nonlocal lost
        while True:
            plan = await planning.plans.read("p")
            try:
                await planning.plans.write("p", f"{plan.content},{number}", "", "", "", plan.revision)
            except Conflict:
                lost += 1
                continue
            return

    await planning("write_plan", name="p", content="0")
    async with trio.open_nursery() as nursery:
        for number in range(1, 9):
            nursery.start_soon(add, number)
    plan = await planning.plans.read("p")
    assert sorted(map(int, plan.content.split(","))) == list(range(9))
    assert plan.revision == 9


async def test_plans_travel_through_files_of_the_workspace_only(planning: Planning) -> None:
    (planning.root / "in.md").write_bytes("\ufeff# Ünï\r\n".encode("utf-16-le"))
    assert (await planning("update_plan_from_file", name="p", path="in.md"))["revision"] == 1
    assert "revision 1" in await planning("export_plan_to_file", name="p", path="out/x.md")
    assert (planning.root / "out/x.md").read_text() == "# Ünï\n"
    assert "outside" in await planning("export_plan_to_file", name="p", path="../x.md")
    assert "outside" in await planning("update_plan_from_file", name="p", path="/etc/hostname")


async def test_session_plan_belongs_to_the_session(tmp_path: Path) -> None:
    toolset, mine = build("session_plan"), context_in(tmp_path / "w", session_id="../../s")
    assert (await call(toolset, "read_session_plan", mine)).is_error
    await call(toolset, "write_session_plan", mine, content="do it")
    assert (await call(toolset, "read_session_plan", mine)).output == "do it"
    assert (await call(toolset, "exit_plan_mode", mine)).output.endswith("\n\ndo it")
    assert (await call(toolset, "exit_plan_mode", context_in(tmp_path / "w", session_id="other"))).is_error
    assert [path.parent for path in tmp_path.rglob("*.md")] == [tmp_path / "data" / "session_plans"]


async def test_memories_are_kept_found_changed_and_forgotten(tmp_path: Path) -> None:
    context = context_in(tmp_path / "w")
    first = build("memory")
    for text, category in (("Likes tea 100%", "taste"), ("Uses vim_x", "tools"), ("Likes TEA and vim", "")):
        await call(first, "add_memory", context, memory=text, category=category)
    again = build("memory")
    memories = (await call(again, "get_memories", context)).structured
    assert [memory["memory"] for memory in memories] == ["Likes tea 100%", "Uses vim_x", "Likes TEA and vim"]

    async def found(**arguments: str) -> list[str]:
        return [
            memory["memory"]
            for memory in (await call(again, "search_memories", context, **arguments)).structured
        ]

    assert await found(query="tea likes") == ["Likes tea 100%", "Likes TEA and vim"]
    assert await found(query="0%") == ["Likes tea 100%"]
    assert await found(query="m_") == ["Uses vim_x"]
    assert await found(query="vim", category="TOOLS") == ["Uses vim_x"]
    assert await found(query="'; DROP TABLE memories; --") == []
    assert len(await found()) == 3
    ids = [memory["id"] for memory in memories]
    await call(again, "update_memory", context, id=ids[0], memory="Likes coffee")
    await call(again, "delete_memory", context, id=ids[1])
    assert await found(category="taste") == ["Likes coffee"]
    assert (await call(again, "delete_memory", context, id=ids[1])).is_error
    assert (await call(again, "update_memory", context, id="x", memory="y")).is_error
    assert (await call(again, "add_memory", context, memory=" ")).is_error


async def test_memory_file_is_per_agent_or_as_configured(tmp_path: Path) -> None:
    one, two = context_in(tmp_path / "w", agent="a/../b"), context_in(tmp_path / "w", agent="two")
    await call(build("memory"), "add_memory", one, memory="x")
    assert (await call(build("memory"), "get_memories", two)).output == "[]"
    await call(build("memory", path="team.db"), "add_memory", one, memory="shared")
    assert "shared" in (await call(build("memory", path="team.db"), "get_memories", two)).output
    assert {path.name for path in (tmp_path / "data" / "memory").iterdir()} == {
        "a_.._b.db",
        "team.db",
        "two.db",
    }
    (tmp_path / "data" / "memory" / "team.db").write_bytes(b"not a database" * 100)
    assert "cannot be used" in (await call(build("memory", path="team.db"), "get_memories", two)).output


class TaskList:
    """The task tools in one directory."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self.root = root
        self.toolset = build("tasks")

    async def __call__(self, name: str, /, **arguments: object) -> Any:
        result = await call(self.toolset, name, context_in(self.root), **arguments)
        return result.output if result.structured is None else result.structured


async def test_tasks_follow_priorities_and_dependencies(tmp_path: Path) -> None:
    tasks = TaskList(tmp_path / "w")
    low = (await tasks("create_task", title="low", priority="low"))["id"]
    high = (await tasks("create_task", title="high", priority="high", dependencies=[low]))["id"]
    assert (await tasks("next_task"))["id"] == low
    assert "not done" in await tasks("update_task", id=high, status="done")
    assert "wait for each other" in await tasks("add_dependency", id=low, depends_on=high)
    assert "wait for each other" in await tasks("add_dependency", id=low, depends_on=low)
    assert "no task 'x'" in await tasks("create_task", title="t", dependencies=["x"])
    await tasks("update_task", id=low, status="done", title="was low")
    assert (await tasks("next_task"))["id"] == high
    assert [task["id"] for task in await tasks("list_tasks")] == [high, low]
    assert [task["title"] for task in await tasks("list_tasks", status="done")] == ["was low"]
    await tasks("remove_dependency", id=high, depends_on=low)
    assert "does not depend" in await tasks("remove_dependency", id=high, depends_on=low)
    await tasks("add_dependency", id=high, depends_on=low)
    await tasks("delete_task", id=low)
    assert (await tasks("get_task", id=high))["dependencies"] == []
    assert "no task" in await tasks("get_task", id=low)
    await tasks("update_task", id=high, status="done")
    assert await tasks("next_task") == "No task can be started now."
    assert list(msgspec.json.decode((tasks.root / "tasks.json").read_bytes())["tasks"]) == [high]


async def test_tasks_created_at_once_are_all_kept(tmp_path: Path) -> None:
    tasks = TaskList(tmp_path / "w")
    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(lambda number: tasks("create_task", title=str(number)), number)
    assert len(await tasks("list_tasks")) == 10


async def test_damaged_task_file_is_left_alone(tmp_path: Path) -> None:
    tasks = TaskList(tmp_path / "w")
    (tasks.root / "tasks.json").write_text("{oops")
    assert "is not a task file" in await tasks("create_task", title="x")
    assert (tasks.root / "tasks.json").read_text() == "{oops"
