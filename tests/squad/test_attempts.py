"""Workers at work: their tools, their limits, and disks and workspaces that fail them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import trio

from actors.models.provider import ModelRequest
from actors.squad import events as names
from actors.testing.model import Answer, call, calls, fail, hang, say
from tests.squad.kit import MemoryStore, Team, always, drain, open_engine, squad, wait_phase
from tests.squad.test_execution import CHAIN, by_title, statuses, store


async def test_a_worker_writes_files_and_memory_and_both_are_told(tmp_path: Path) -> None:
    def work(request: ModelRequest, title: str) -> Answer:
        if request.messages[-1].role == "tool":
            return say("")
        return calls(
            [
                ("write_file", {"path": "out/a.md", "content": "text"}),
                ("write_memory", {"section": "Learned", "content": title}),
            ]
        )

    stored, team = store(tmp_path), Team(("only", "ann", []), work=work)
    async with open_engine(stored, team.model, tmp_path) as engine:
        with engine.follow("squad-1") as follower:
            submitted = await engine.submit("squad-1", "go", auto_approve=True)
            done = await wait_phase(engine, "squad-1", submitted.id, "completed")
            events = drain(follower)
        record = await engine.record("squad-1", submitted.id)
    assert (tmp_path / "out/a.md").read_text() == "text"
    assert "- only" in stored.memories["squad-1", "a-ann"]
    changed = next(event.payload for event in events if event.name == names.WORKSPACE_FILE_CHANGED)
    assert (changed["path"], changed["changeType"]) == ("out/a.md", "created")
    assert changed["taskId"] == by_title(done)["only"]
    assert any(event.name == names.MEMORY_UPDATED for event in events)
    assert record.tasks[0].output == "(no text; files written: out/a.md)"
    assert record.artifacts == ("out/a.md",)


async def test_an_agent_gets_only_the_tools_it_is_configured_with(tmp_path: Path) -> None:
    stored = store(tmp_path)
    planner, ann, bob = stored.squads["squad-1"].agents
    config = msgspec.structs.replace(
        ann.tool_config,
        enabled_tools=("read_file", "run_shell", "delete_file", "write_file"),
        disabled_tools=("write_file",),
    )
    agents = (
        planner,
        msgspec.structs.replace(ann, tool_config=config),
        msgspec.structs.replace(bob, tool_config=msgspec.structs.replace(config, enabled_tools=())),
    )
    stored.squads["squad-1"] = msgspec.structs.replace(stored.squads["squad-1"], agents=agents)
    team = Team(("a", "ann", []), ("b", "bob", []))
    async with open_engine(stored, team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go", auto_approve=True)
        await wait_phase(engine, "squad-1", submitted.id, "completed")
    offered = {
        request.messages[-1].content.partition("# Your task\n\n")[2][:1]: [
            tool.name for tool in request.tools
        ]
        for request in team.model.requests
    }
    assert offered["a"] == ["read_file"]
    assert offered["b"] == []


@pytest.mark.parametrize(
    ("level", "written"),
    [("always_allow", True), ("ask_once", False), ("ask_always", False), ("never_allow", False)],
)
async def test_permissions_hold_where_nobody_can_be_asked(tmp_path: Path, level: str, written: bool) -> None:
    stored = store(tmp_path)
    planner, ann, bob = stored.squads["squad-1"].agents
    config = msgspec.structs.replace(ann.tool_config, tool_permission_overrides={"write_file": level})
    agents = (planner, msgspec.structs.replace(ann, tool_config=config), bob)
    stored.squads["squad-1"] = msgspec.structs.replace(stored.squads["squad-1"], agents=agents)

    def work(request: ModelRequest, _: str) -> Answer:
        if request.messages[-1].role == "tool":
            return say("tried")
        return call("write_file", {"path": "x.md", "content": "x"})

    team = Team(("a", "ann", []), work=work)
    async with open_engine(stored, team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go", auto_approve=True)
        await wait_phase(engine, "squad-1", submitted.id, "completed")
    assert (tmp_path / "x.md").exists() == written


@pytest.mark.parametrize(
    "path", ["../out.md", "/etc/out.md", ".squad.json", "logs/x", "tasks/x.json", "memory/a.md"]
)
async def test_a_worker_cannot_write_outside_or_over_the_squads_own_files(tmp_path: Path, path: str) -> None:
    def work(request: ModelRequest, _: str) -> Answer:
        if request.messages[-1].role == "tool":
            return say(request.messages[-1].content)
        return call("write_file", {"path": path, "content": "x"})

    workspace = tmp_path / "space"
    team = Team(("a", "ann", []), work=work)
    stored = MemoryStore({"squad-1": squad(workspace)})
    async with open_engine(stored, team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go", auto_approve=True)
        await wait_phase(engine, "squad-1", submitted.id, "completed")
        record = await engine.record("squad-1", submitted.id)
    assert "denied" in (record.tasks[0].output or "") or "outside" in (record.tasks[0].output or "")
    assert not (workspace / path).exists() or path.startswith("/")


async def test_a_task_that_takes_too_long_fails_alone(tmp_path: Path, autojump_clock: object) -> None:
    def work(_: ModelRequest, title: str) -> Answer:
        return hang() if title == "slow" else say("ok")

    team = Team(("slow", "ann", []), ("quick", "bob", []), work=work)
    async with open_engine(store(tmp_path, task_timeout_secs=5), team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go", auto_approve=True)
        done = await wait_phase(engine, "squad-1", submitted.id, "completed")
        record = await engine.record("squad-1", submitted.id)
    assert statuses(done) == {"slow": "failed", "quick": "done"}
    assert record.tasks[0].error == "no result within 5 seconds"


async def test_an_execution_that_takes_too_long_fails_whole(tmp_path: Path, autojump_clock: object) -> None:
    team = Team(*CHAIN, work=always(hang()))
    async with open_engine(store(tmp_path, execution_timeout_secs=7), team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go", auto_approve=True)
        failed = await wait_phase(engine, "squad-1", submitted.id, "failed")
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert team.model.running == 0
    assert "executionTimeoutSecs" in (failed.error or "")
    assert statuses(failed) == {"first": "cancelled", "second": "cancelled"}


async def test_an_agent_that_never_comes_to_an_end_fails_its_task(tmp_path: Path) -> None:
    turn = 0

    def work(_: ModelRequest, __: str) -> Answer:
        nonlocal turn
        turn += 1
        return call("list_files", {"path": "." if turn % 2 else "./"})

    team = Team(("loop", "ann", []), work=work)
    async with open_engine(store(tmp_path, max_agent_turns=3), team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go", auto_approve=True)
        failed = await wait_phase(engine, "squad-1", submitted.id, "failed")
    assert "maxAgentTurns" in (failed.error or "")
    assert turn == 3


async def test_a_workspace_that_vanishes_fails_the_tasks_and_the_run_ends(tmp_path: Path) -> None:
    workspace = tmp_path / "space"

    def work(_: ModelRequest, title: str) -> Answer:
        if title == "first":
            (workspace / "logs").rename(tmp_path / "gone")
            for left in ("plans",):
                for file in (workspace / left).iterdir():
                    file.unlink()
                (workspace / left).rmdir()
            workspace.rmdir()
        return say("ok")

    stored = MemoryStore(
        {"squad-1": squad(workspace), "squad-2": squad(tmp_path / "two", squad_id="squad-2")}
    )
    team = Team(*CHAIN, work=work)
    async with open_engine(stored, team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go", auto_approve=True)
        done = await wait_phase(engine, "squad-1", submitted.id, "completed")
        assert statuses(done) == {"first": "done", "second": "failed"}
        assert done.plan is not None
        assert "is not there" in (done.plan.tasks[1].error or "")
        assert not workspace.exists()


async def test_a_board_that_cannot_be_written_does_not_stop_the_run(tmp_path: Path) -> None:
    stored, team = store(tmp_path), Team(*CHAIN)
    stored.broken = True
    async with open_engine(stored, team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go", auto_approve=True)
        done = await wait_phase(engine, "squad-1", submitted.id, "completed")
    assert done.task_counts.completed == 2


async def test_a_task_whose_worker_crashes_fails_alone_and_the_ledger_says_so(tmp_path: Path) -> None:
    def work(_: ModelRequest, title: str) -> Answer:
        return fail(RuntimeError("a bug")) if title == "t2" else say("ok")

    team = Team(*((f"t{n}", "ann" if n % 2 else "bob", list[str]()) for n in range(5)), work=work)
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go", auto_approve=True)
        done = await wait_phase(engine, "squad-1", submitted.id, "completed")
        page = await engine.events("squad-1", submitted.id)
    assert sorted(statuses(done).values()) == ["done"] * 4 + ["failed"]
    assert done.plan is not None
    error = done.plan.tasks[2].error or ""
    assert error.startswith("internal error (inc_")
    assert "a bug" not in error
    failures = [
        line for line in page.events if line.event == "squad:task-completed" and not line.payload["success"]
    ]
    assert [line.task_id for line in failures] == [done.plan.tasks[2].id]


async def test_who_puts_the_results_together_can_read_the_long_ones_whole(tmp_path: Path) -> None:
    long = "x" * 30_000 + "the end"

    def aggregate(request: ModelRequest) -> Answer:
        last = request.messages[-1]
        if last.role != "tool":
            assert "cut off; 30007 characters" in last.content
            return call("check_task_status")
        if "only (ann): done" in last.content:
            task_id = last.content.partition(":")[0]
            return call("read_task_result", {"task_id": task_id, "offset": 24_000})
        return say(last.content[-7:])

    team = Team(("only", "ann", []), work=always(say(long)), aggregate=aggregate)
    async with open_engine(store(tmp_path), team.model, tmp_path) as engine:
        submitted = await engine.submit("squad-1", "go", auto_approve=True)
        done = await wait_phase(engine, "squad-1", submitted.id, "completed")
    assert done.result == "the end"
