"""Both halves of the squads' room in one runtime: what an execution leaves in the stored resources."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from actors.models.catalog import Models
from actors.models.provider import ModelRequest
from actors.runtime import Runtime, open_runtime
from actors.settings import Settings
from actors.squad.refusals import AgentBusy
from actors.squad.requests import AgentGiven, AgentPatch, CreateSquad
from actors.squad.values import ModelPreferences, Squad, ToolConfig
from actors.testing.model import Answer, call, say
from tests.squad.kit import Team, wait_phase

SCRIPTED = ModelPreferences(preferred_model_id="scripted/m")


@asynccontextmanager
async def running(tmp_path: Path, team: Team) -> AsyncGenerator[tuple[Runtime, Squad]]:
    """Open a runtime with a squad of a planner and two workers, whose workspace is laid out."""
    settings = Settings(data_dir=tmp_path / "data", environment={})
    models = Models({}, settings.data_dir)
    models.register("scripted", team.model)
    async with open_runtime(settings, models=models) as runtime:
        tools = ToolConfig(enabled_tools=("write_memory", "search_memory", "write_file"))
        squad = await runtime.squad_store.create(
            CreateSquad(
                name="Testers",
                workspace_path=str(tmp_path / "ws"),
                agents=tuple(
                    AgentGiven(
                        id=f"a-{name}", name=name, role=role, model_preferences=SCRIPTED, tool_config=tools
                    )
                    for name, role in (("pia", "planner"), ("ann", "developer"), ("bob", "developer"))
                ),
                planner_agent_id="a-pia",
            )
        )
        await runtime.squad_store.init_workspace(squad.id, squad.workspace_path)
        yield runtime, squad


async def test_a_run_leaves_its_rows_on_the_board_and_its_figures_in_the_analytics(tmp_path: Path) -> None:
    team = Team(("first", "ann", []), ("second", "bob", ["t1"]))
    async with running(tmp_path, team) as (runtime, squad):
        submitted = await runtime.squads.submit(squad.id, "do it", auto_approve=True)
        with trio.fail_after(20):
            done = await wait_phase(runtime.squads, squad.id, submitted.id, "completed", "failed")
        assert done.phase == "completed"
        rows = {row.title: row for row in await runtime.squad_store.tasks.list(squad.id)}
        assert {row.status for row in rows.values()} == {"done"}
        assert rows["second"].depends_on == (rows["first"].id,)
        assert {row.created_by for row in rows.values()} == {"planner"}
        stored = json.loads((tmp_path / "ws" / "tasks" / f"{rows['second'].id}.json").read_text())
        assert stored["result"] == "result of second"
        page = (tmp_path / "ws" / "tasks" / f"{rows['second'].id}.md").read_text()
        assert "→ done" in page
        figures = await runtime.squad_store.analytics(squad.id, "day")
        assert (figures.total_executions, figures.success_rate) == (1, 1.0)
        assert figures.total_tokens == sum(figures.per_agent_tokens.values()) > 0
        assert (await runtime.squad_store.get(squad.id)).status.type == "idle"


async def test_what_a_worker_remembers_is_in_the_bank(tmp_path: Path) -> None:
    def work(request: ModelRequest, _title: str) -> Answer | str:
        if request.messages[-1].role == "tool":
            return say("done")
        return call("write_memory", {"section": "Facts", "content": "the needle"})

    team = Team(("only", "ann", []), work=work)
    async with running(tmp_path, team) as (runtime, squad):
        submitted = await runtime.squads.submit(squad.id, "remember", auto_approve=True)
        with trio.fail_after(20):
            await wait_phase(runtime.squads, squad.id, submitted.id, "completed", "failed")
        (hit,) = await runtime.squad_store.memory.search(squad.id, "needle")
        assert (hit.agent_id, hit.section) == ("a-ann", "Facts")


async def test_an_agent_of_a_plan_that_waits_is_busy_until_it_is_cancelled(tmp_path: Path) -> None:
    team = Team(("only", "ann", []))
    async with running(tmp_path, team) as (runtime, squad):
        submitted = await runtime.squads.submit(squad.id, "wait")
        with trio.fail_after(20):
            await wait_phase(runtime.squads, squad.id, submitted.id, "awaiting_approval")
        assert (await runtime.squad_store.get(squad.id)).status.type == "awaiting_approval"
        assert [row.status.type for row in await runtime.squad_store.list()] == ["awaiting_approval"]
        with pytest.raises(AgentBusy):
            await runtime.squad_store.agents.delete(squad.id, "a-ann")
        await runtime.squads.cancel(squad.id, submitted.id)
        await runtime.squad_store.agents.delete(squad.id, "a-ann")


async def test_a_change_of_the_lineup_reaches_who_follows_the_squad(tmp_path: Path) -> None:
    async with running(tmp_path, Team()) as (runtime, squad):
        with runtime.squads.follow(squad.id) as follower:
            await runtime.squad_store.agents.add(squad.id, AgentGiven(id="new", name="New", role="writer"))
            await runtime.squad_store.agents.patch(squad.id, "new", AgentPatch(name="Newer"))
            await runtime.squad_store.agents.delete(squad.id, "new")
            changes: list[str] = []
            with trio.fail_after(5):
                while len(changes) < 3:
                    got = await follower.next()
                    assert isinstance(got, list | tuple)
                    changes += [frame.event.payload["change"] for frame in got]
        assert changes == ["added", "updated", "removed"]
