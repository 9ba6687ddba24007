"""Squads as records: made, changed, deleted, ready or not, read again after damage."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest
import trio
from msgspec.structs import replace

from actors.errors import Conflict, Invalid, NotFound, Unavailable
from actors.models.catalog import Models
from actors.squad.errors import SquadNotFound
from actors.squad.refusals import AgentBusy, AgentIsPlanner, AgentNotFound, WorkspaceInUse
from actors.squad.requests import AgentGiven, AgentPatch, BulkModel, CreateSquad, UpdateSquad
from actors.squad.values import (
    BudgetConfig,
    ContainerConfig,
    ModelPreferences,
    Role,
    SettingsOverrides,
    ToolConfig,
)
from tests.squad.shelf import Shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def new(shelf: Shelf, name: str = "team", workspace: str = "ws", **given: object) -> CreateSquad:
    return CreateSquad(name=name, workspace_path=shelf.workspace(workspace), **given)  # type: ignore[arg-type]


async def test_a_squad_from_a_template_has_its_agents_with_ids_and_its_planner(shelf: Shelf) -> None:
    squad = await shelf.squads.create(new(shelf, template_id="builtin-fullstack-dev-team"))
    assert UUID(squad.id).version == 4
    assert [UUID(agent.id).version for agent in squad.agents] == [4, 4, 4, 4]
    assert squad.planner_agent_id == squad.agents[0].id
    assert squad.agents[0].role == Role("planner")
    assert not Path(squad.workspace_path).exists()
    assert shelf.engine.names() == ["squad:created"]


async def test_agents_given_win_over_the_template(shelf: Shelf) -> None:
    squad = await shelf.squads.create(
        new(
            shelf,
            template_id="builtin-content-team",
            agents=(AgentGiven(name="Ann", role="writer"), AgentGiven(name="Bob", role="PLANNER")),
        )
    )
    assert [agent.name for agent in squad.agents] == ["Ann", "Bob"]
    assert squad.planner_agent_id == squad.agents[1].id
    assert squad.description


@pytest.mark.parametrize(
    "given",
    [
        CreateSquad(name=" ", workspace_path="/tmp/x"),
        CreateSquad(name="x", workspace_path="relative"),
        CreateSquad(name="x", workspace_path="/tmp/a/../b"),
        CreateSquad(name="x", workspace_path="/"),
        CreateSquad(name="x", workspace_path="/tmp/a\x00b"),
        CreateSquad(name="x", workspace_path="/tmp/" + "n" * 256),
        CreateSquad(name="x", workspace_path="~/x"),
        CreateSquad(name="x", workspace_path=""),
        CreateSquad(name="x", workspace_path="/tmp/x", planner_agent_id="nobody"),
        CreateSquad(name="x", workspace_path="/tmp/x", agents=(AgentGiven(name="", role="writer"),)),
        CreateSquad(name="x", workspace_path="/tmp/x", agents=(AgentGiven(name="a", role=""),)),
        CreateSquad(name="x", workspace_path="/tmp/x", agents=(AgentGiven(name="a", role=Role("custom")),)),
    ],
)
async def test_a_squad_that_breaks_a_rule_is_not_made(shelf: Shelf, given: CreateSquad) -> None:
    with pytest.raises(Invalid):
        await shelf.squads.create(given)
    assert await shelf.squads.list() == []


async def test_an_unknown_template_is_not_found(shelf: Shelf) -> None:
    with pytest.raises(NotFound):
        await shelf.squads.create(new(shelf, template_id="nothing"))


@pytest.mark.parametrize("path", ["ws", "ws/", "ws/.", "ws/inside", "."])
async def test_a_workspace_has_one_owner(shelf: Shelf, path: str) -> None:
    await shelf.squad()
    with pytest.raises((WorkspaceInUse, Invalid)):
        await shelf.squads.create(new(shelf, workspace=path))


async def test_a_link_to_anothers_workspace_is_that_workspace(shelf: Shelf, tmp_path: Path) -> None:
    await shelf.squad()
    (tmp_path / "link").symlink_to(tmp_path / "ws")
    with pytest.raises(WorkspaceInUse):
        await shelf.squads.create(new(shelf, workspace="link"))


async def test_a_sibling_whose_name_begins_alike_is_free(shelf: Shelf) -> None:
    await shelf.squad()
    assert await shelf.squads.create(new(shelf, workspace="ws-two"))


async def test_the_servers_own_data_are_no_workspace(shelf: Shelf) -> None:
    with pytest.raises(Invalid, match="data directory"):
        await shelf.squads.create(new(shelf, workspace="data/squads"))


async def test_of_two_squads_made_at_once_one_gets_the_path(shelf: Shelf) -> None:
    refused: list[WorkspaceInUse] = []

    async def attempt() -> None:
        try:
            await shelf.squads.create(new(shelf))
        except WorkspaceInUse as error:
            refused.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(attempt)
        nursery.start_soon(attempt)
    assert (len(refused), len(await shelf.squads.list())) == (1, 1)


async def test_squads_are_the_same_after_a_restart(shelf: Shelf) -> None:
    squad = await shelf.squad("ann", "bob", planner=True)
    assert await Shelf(shelf.root).squads.get(squad.id) == squad


@pytest.mark.parametrize("content", [None, "", "[{", '{"x": 1}', "[]"])
async def test_a_broken_index_is_made_again(shelf: Shelf, content: str | None) -> None:
    squad = await shelf.squad()
    await shelf.squads.records.flush()
    index = shelf.root / "data" / "squads" / "index.json"
    if content is None:
        index.unlink()
    else:
        index.write_text(content)
    assert [row.id for row in await Shelf(shelf.root).squads.list()] == [squad.id]
    assert [row["id"] for row in json.loads(index.read_text())] == [squad.id]


async def test_one_damaged_record_does_not_hide_the_others(shelf: Shelf) -> None:
    broken, fine = await shelf.squad(), await shelf.squad(workspace="ws2")
    (shelf.root / "data" / "squads" / f"{broken.id}.json").write_text('{"id":')
    again = Shelf(shelf.root).squads
    assert [row.id for row in await again.list()] == [fine.id]
    with pytest.raises(Unavailable):
        await again.get(broken.id)


async def test_what_a_crash_leaves_of_a_write_is_no_record(shelf: Shelf) -> None:
    squad = await shelf.squad()
    (shelf.root / "data" / "squads" / ".0123456789abcdef.tmp").write_text("half")
    assert [row.id for row in await Shelf(shelf.root).squads.list()] == [squad.id]


async def test_a_list_row_counts_the_agents_and_leaves_them_out(shelf: Shelf) -> None:
    await shelf.squad("ann", "bob")
    (row,) = await shelf.squads.list()
    assert (row.agent_count, row.status.type, hasattr(row, "agents")) == (2, "idle", False)


async def test_a_squad_shows_what_it_is_doing(shelf: Shelf) -> None:
    squad = await shelf.squad()
    shelf.engine.active = ["e"]
    assert (await shelf.squads.get(squad.id)).status.type == "executing"


async def test_an_update_changes_what_is_given_and_stamps_the_time(shelf: Shelf) -> None:
    squad = await shelf.squad("ann", planner=True)
    shelf.now += 60
    changed = await shelf.squads.update(squad.id, UpdateSquad(name="new"))
    assert (changed.name, changed.agents, changed.planner_agent_id) == ("new", squad.agents, "ann")
    assert changed.updated_at > squad.updated_at


async def test_null_clears_the_planner_and_absence_keeps_it(shelf: Shelf) -> None:
    squad = await shelf.squad("ann", planner=True)
    assert (await shelf.squads.update(squad.id, UpdateSquad())).planner_agent_id == "ann"
    assert (await shelf.squads.update(squad.id, UpdateSquad(planner_agent_id=None))).planner_agent_id is None


async def test_the_planner_is_not_dropped_with_the_lineup(shelf: Shelf) -> None:
    squad = await shelf.squad("ann", planner=True)
    with pytest.raises(AgentIsPlanner):
        await shelf.squads.update(squad.id, UpdateSquad(agents=()))


async def test_an_agent_at_work_is_not_dropped_with_the_lineup(shelf: Shelf) -> None:
    squad = await shelf.squad("ann")
    shelf.engine.busy = frozenset({"ann"})
    with pytest.raises(AgentBusy):
        await shelf.squads.update(squad.id, UpdateSquad(agents=()))


async def test_a_workspace_is_not_changed_under_a_live_execution(shelf: Shelf) -> None:
    squad = await shelf.squad()
    shelf.engine.active = ["e"]
    with pytest.raises(Conflict):
        await shelf.squads.update(squad.id, UpdateSquad(workspace_path=shelf.workspace("other")))


async def test_the_manifest_follows_the_record(shelf: Shelf) -> None:
    squad = await shelf.squad()
    await shelf.squads.update(squad.id, UpdateSquad(name="renamed"))
    manifest = json.loads((Path(shelf.workspace()) / ".squad.json").read_text())
    assert (manifest["squadName"], manifest["config"]["name"]) == ("renamed", "renamed")


async def test_parallel_updates_of_one_squad_all_count(shelf: Shelf) -> None:
    squad = await shelf.squad()
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(
                shelf.squads.agents.add, squad.id, AgentGiven(name=f"a{number}", role="writer")
            )
    assert len(await shelf.squads.agents.list(squad.id)) == 20


async def test_a_deleted_squad_leaves_its_workspace(shelf: Shelf) -> None:
    squad = await shelf.squad()
    await shelf.squads.delete(squad.id)
    assert Path(squad.workspace_path, ".squad.json").exists()
    with pytest.raises(SquadNotFound):
        await shelf.squads.get(squad.id)
    assert shelf.engine.names()[-1] == "squad:deleted"


async def test_a_squad_is_not_deleted_under_a_live_execution(shelf: Shelf) -> None:
    squad = await shelf.squad()
    shelf.engine.active = ["e"]
    with pytest.raises(Conflict):
        await shelf.squads.delete(squad.id)


# --- agents -----------------------------------------------------------------------------------------------------


async def test_an_agent_gets_an_id_unless_it_brings_one(shelf: Shelf) -> None:
    squad = await shelf.squad()
    made = await shelf.squads.agents.add(squad.id, AgentGiven(name="Ann", role=Role("reviewer")))
    kept = await shelf.squads.agents.add(squad.id, AgentGiven(id="bob", name="Bob", role="writer"))
    assert (UUID(made.id).version, kept.id) == (4, "bob")
    assert await shelf.squads.agents.list(squad.id) == (made, kept)


@pytest.mark.parametrize("agent_id", ["ann", "ANN"])
async def test_an_agents_id_is_its_own_whatever_the_case(shelf: Shelf, agent_id: str) -> None:
    squad = await shelf.squad("ann")
    with pytest.raises(Conflict):
        await shelf.squads.agents.add(squad.id, AgentGiven(id=agent_id, name="x", role="writer"))


@pytest.mark.parametrize(
    "agent_id", ["../x", "a/b", "a\\b", ".x", "x.", "CON", "nul.txt", "index", "é", "x" * 129]
)
async def test_an_agents_id_is_fit_for_a_file(shelf: Shelf, agent_id: str) -> None:
    squad = await shelf.squad()
    with pytest.raises(Invalid):
        await shelf.squads.agents.add(squad.id, AgentGiven(id=agent_id, name="x", role="writer"))


@pytest.mark.parametrize(
    ("given", "role"),
    [
        ("Planner", Role("planner")),
        (Role("DEVELOPER"), Role("developer")),
        ("Researcher", Role("custom", "Researcher")),
        ("planner of things", Role("custom", "planner of things")),
        (Role("custom", "Tester"), Role("custom", "Tester")),
        (Role("reviewer", "ignored"), Role("reviewer")),
    ],
)
async def test_a_role_is_one_of_four_or_custom(shelf: Shelf, given: Role | str, role: Role) -> None:
    squad = await shelf.squad()
    assert (await shelf.squads.agents.add(squad.id, AgentGiven(name="x", role=given))).role == role


async def test_a_patch_replaces_objects_whole(shelf: Shelf) -> None:
    squad = await shelf.squad("ann")
    agents = shelf.squads.agents
    await agents.patch(
        squad.id,
        "ann",
        AgentPatch(
            model_preferences=ModelPreferences(preferred_model_id="a", min_context_window=9),
            tool_config=ToolConfig(enabled_tools=("read_file",), disabled_tools=("x",)),
        ),
    )
    patched = await agents.patch(
        squad.id,
        "ann",
        AgentPatch(
            model_preferences=ModelPreferences(preferred_model_id="m"),
            tool_config=ToolConfig(enabled_tools=("write_file",)),
        ),
    )
    assert patched.model_preferences == ModelPreferences(preferred_model_id="m")
    assert patched.tool_config == ToolConfig(enabled_tools=("write_file",))


async def test_null_clears_overrides_and_container_and_absence_keeps_them(shelf: Shelf) -> None:
    squad = await shelf.squad("ann")
    agents = shelf.squads.agents
    overrides, container = SettingsOverrides(max_tokens=5), ContainerConfig(image="x")
    await agents.patch(squad.id, "ann", AgentPatch(settings_overrides=overrides, container_config=container))
    kept = await agents.patch(squad.id, "ann", AgentPatch(description="d"))
    assert (kept.settings_overrides, kept.container_config) == (overrides, container)
    cleared = await agents.patch(squad.id, "ann", AgentPatch(settings_overrides=None, container_config=None))
    assert (cleared.settings_overrides, cleared.container_config, cleared.description) == (None, None, "d")


async def test_a_permission_that_does_not_exist_is_refused(shelf: Shelf) -> None:
    squad = await shelf.squad("ann")
    config = ToolConfig(tool_permission_overrides={"read_file": "sometimes"})
    with pytest.raises(Invalid, match="toolPermissionOverrides"):
        await shelf.squads.agents.patch(squad.id, "ann", AgentPatch(tool_config=config))


async def test_the_planner_is_deleted_only_after_it_was_cleared(shelf: Shelf) -> None:
    squad = await shelf.squad("ann", planner=True)
    shelf.engine.busy = frozenset({"ann"})
    with pytest.raises(AgentIsPlanner):
        await shelf.squads.agents.delete(squad.id, "ann")
    shelf.engine.busy = frozenset()
    await shelf.squads.update(squad.id, UpdateSquad(planner_agent_id=None))
    await shelf.squads.agents.delete(squad.id, "ann")
    assert await shelf.squads.agents.list(squad.id) == ()


@pytest.mark.parametrize("where", ["execution", "chat"])
async def test_an_agent_at_work_is_not_deleted(shelf: Shelf, where: str) -> None:
    squad = await shelf.squad("ann")
    if where == "execution":
        shelf.engine.busy = frozenset({"ann"})
    else:
        shelf.squads.busy_chats = lambda squad_id: frozenset({"ann"} if squad_id == squad.id else ())
    with pytest.raises(AgentBusy):
        await shelf.squads.agents.delete(squad.id, "ann")


async def test_every_change_of_a_lineup_is_published(shelf: Shelf) -> None:
    squad = await shelf.squad("ann")
    shelf.engine.published.clear()
    bob = await shelf.squads.agents.add(squad.id, AgentGiven(id="bob", name="Bob", role="writer"))
    await shelf.squads.agents.patch(squad.id, bob.id, AgentPatch(name="Rob"))
    await shelf.squads.agents.update_models(squad.id, BulkModel(agent_ids=("ann", "bob"), model_ref="m"))
    await shelf.squads.agents.delete(squad.id, bob.id)
    assert [(payload["change"], list(payload["agentIds"])) for _, _, payload in shelf.engine.published] == [
        ("added", ["bob"]),
        ("updated", ["bob"]),
        ("bulk_updated", ["ann", "bob"]),
        ("removed", ["bob"]),
    ]
    assert set(shelf.engine.names()) == {"squad:agents-changed"}


async def test_a_bulk_change_with_an_unknown_agent_changes_nobody(shelf: Shelf) -> None:
    squad = await shelf.squad("ann")
    with pytest.raises(AgentNotFound):
        await shelf.squads.agents.update_models(squad.id, BulkModel(agent_ids=("ann", "x"), model_ref="m"))
    assert (await shelf.squads.agents.get(squad.id, "ann")).model_preferences == ModelPreferences()


@pytest.mark.parametrize(
    "given",
    [BulkModel(agent_ids=(), model_ref="m"), BulkModel(agent_ids=("ann",), model_ref=" ")],
)
async def test_a_bulk_change_of_nothing_is_refused(shelf: Shelf, given: BulkModel) -> None:
    squad = await shelf.squad("ann")
    with pytest.raises(Invalid):
        await shelf.squads.agents.update_models(squad.id, given)


# --- readiness and budget -----------------------------------------------------------------------------------------


async def test_a_squad_without_agents_is_not_ready(shelf: Shelf) -> None:
    squad = await shelf.squad()
    found = await shelf.squads.readiness(squad.id)
    assert (found.available, found.cause, found.agents) == (False, "no_agents", ())


async def test_an_agent_without_a_model_is_named_and_the_order_is_the_squads(shelf: Shelf) -> None:
    squad = await shelf.squad("zed", "ann")
    preferences = ModelPreferences(preferred_model_id="nothing-of-that-name")
    await shelf.squads.agents.patch(squad.id, "ann", AgentPatch(model_preferences=preferences))
    found = await shelf.squads.readiness(squad.id)
    assert (found.available, found.cause) == (False, "model_unresolved")
    assert found.message == "no model for ann"
    assert [(agent.agent_id, agent.available) for agent in found.agents] == [("zed", True), ("ann", False)]


async def test_a_model_that_cannot_be_called_now_is_only_advice(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Models, "available", lambda _: [])
    squad = await shelf.squad("ann")
    preferences = ModelPreferences(preferred_model_id="openai/gpt-5")
    await shelf.squads.agents.patch(squad.id, "ann", AgentPatch(model_preferences=preferences))
    found = await shelf.squads.readiness(squad.id)
    assert (found.available, found.agents[0].model_served, found.router_healthy) == (True, False, False)


async def test_readiness_does_not_look_at_the_workspace(shelf: Shelf) -> None:
    squad = await shelf.squads.create(new(shelf, agents=(AgentGiven(name="a", role="writer"),)))
    assert (await shelf.squads.readiness(squad.id)).agents[0].available


async def test_a_budget_is_kept_and_the_defaults_hold_without_one(shelf: Shelf) -> None:
    squad = await shelf.squad()
    assert await shelf.squads.budget_config(squad.id) == BudgetConfig()
    budget = BudgetConfig(max_total_tokens=5, max_tokens_per_agent=5, max_tokens_per_task=5)
    await shelf.squads.set_budget(squad.id, budget)
    assert await Shelf(shelf.root).squads.budget_config(squad.id) == budget


@pytest.mark.parametrize(
    "change",
    [
        {"max_tokens_per_task": 30_001},
        {"max_tokens_per_agent": 100_001},
        {"task_timeout_secs": 1801},
        {"warning_threshold_percent": 101},
        {"max_concurrent_agents": 0},
        {"max_total_cost_usd": -1.0},
    ],
    ids=str,
)
async def test_a_budget_that_contradicts_itself_is_refused(shelf: Shelf, change: dict[str, float]) -> None:
    squad = await shelf.squad()
    with pytest.raises(Invalid):
        await shelf.squads.set_budget(squad.id, replace(BudgetConfig(), **change))
    assert await shelf.squads.budget_config(squad.id) == BudgetConfig()


async def test_what_does_not_exist_is_not_found_anywhere(shelf: Shelf) -> None:
    squads = shelf.squads
    for call in (
        squads.get("x"),
        squads.update("x", UpdateSquad()),
        squads.delete("x"),
        squads.init_workspace("x", "/tmp/x"),
        squads.workspace_status("x"),
        squads.clean_workspace("x"),
        squads.readiness("x"),
        squads.agents.list("x"),
        squads.tasks.list("x"),
        squads.memory.read("x", "a"),
        squads.files.list("x"),
        squads.budget_config("x"),
        squads.set_budget("x", BudgetConfig()),
        squads.analytics("x"),
    ):
        with pytest.raises(SquadNotFound):
            await call


async def test_a_path_is_free_again_when_its_squad_moves_or_is_deleted(shelf: Shelf) -> None:
    squad = await shelf.squad(workspace="deep/ws")
    await shelf.squads.init_workspace(squad.id, shelf.workspace("other"))
    second = await shelf.squad(workspace="deep")
    await shelf.squads.delete(second.id)
    assert (await shelf.squads.validate_path(shelf.workspace("deep/ws"))).valid
    assert (
        await Shelf(shelf.root).squads.validate_path(shelf.workspace("other"))
    ).in_use_by_squad_id == squad.id


async def test_the_index_follows_the_records(shelf: Shelf) -> None:
    index = shelf.root / "data" / "squads" / "index.json"
    squad = await shelf.squad()
    await shelf.squads.records.flush()
    assert [row["id"] for row in json.loads(index.read_text())] == [squad.id]
    await shelf.squads.delete(squad.id)
    await shelf.squads.records.flush()
    assert json.loads(index.read_text()) == []
