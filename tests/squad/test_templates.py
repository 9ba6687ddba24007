"""Templates and registries: built-in teams, import rules, verification."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from actors.errors import Conflict, Denied, Invalid, NotFound, Unavailable
from actors.squad.refusals import UnverifiedTemplate
from actors.squad.requests import (
    AddSource,
    AgentPatch,
    CreateSquad,
    InstallTemplate,
    RegistrySource,
    SaveAsTemplate,
)
from actors.squad.templates import builtins, parse, validate
from actors.squad.values import ModelPreferences, ToolConfig
from tests.squad.shelf import Shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def template(**changes: Any) -> dict[str, Any]:
    agents = [{"name": "Ann", "role": "planner", "systemPrompt": "Plan.", "tools": ["read_file"]}]
    return {"id": "user-mine", "name": "Mine", "agents": agents, **changes}


def test_there_are_five_built_in_teams_with_four_agents_and_a_planner_first() -> None:
    assert [team.id for team in builtins()] == [
        "builtin-fullstack-dev-team",
        "builtin-code-review-team",
        "builtin-content-team",
        "builtin-documentation-team",
        "builtin-research-team",
    ]
    for team in builtins():
        assert team.is_builtin
        assert [agent.role == "planner" for agent in team.agents] == [True, False, False, False]
        assert all(len(agent.system_prompt) > 400 and agent.tools for agent in team.agents)
        for agent in team.agents[1:]:
            assert agent.name in team.agents[0].system_prompt


def test_an_import_is_never_built_in_and_drops_what_templates_do_not_have() -> None:
    agents = [{"name": "Ann", "role": "x", "instructions": "dropped", "settingsOverrides": {}, "id": "gone"}]
    found = validate(template(isBuiltin=True, agents=agents, extra=1))
    assert not found.is_builtin
    assert "instructions" not in msgspec.to_builtins(found)["agents"][0]


def test_an_old_template_gets_the_settings_of_a_new_one() -> None:
    found = validate(template())
    assert found.agents[0].tool_config == ToolConfig(enabled_tools=("read_file",))
    assert (found.agents[0].memory_enabled, found.category, found.schema_version) == (True, "custom", 2)


def test_the_tool_configuration_beats_the_list_of_tools() -> None:
    agents = [{"name": "A", "role": "x", "tools": ["a"], "toolConfig": {"enabledTools": ["b"]}}]
    assert validate(template(agents=agents)).agents[0].tools == ("b",)


AGENT = {"name": "A", "role": "x"}


@pytest.mark.parametrize(
    "raw",
    [
        None,
        [],
        "text",
        template(id="a/b"),
        template(id="../x"),
        template(id="x" * 201),
        template(id=".hidden"),
        template(id="CON"),
        template(id="index"),
        template(name=" "),
        template(name="x" * 201),
        template(description="x" * 5001),
        template(category="other"),
        template(schemaVersion=3),
        template(schemaVersion=0),
        template(agents=[]),
        template(agents=[AGENT] * 51),
        template(agents=[{"name": "A"}]),
        template(agents=[{"name": " ", "role": "x"}]),
        template(agents=[{**AGENT, "role": " "}]),
        template(agents=[{**AGENT, "role": {"type": "planner"}}]),
        template(agents=[{**AGENT, "systemPrompt": "x" * 50_001}]),
        template(agents=[{**AGENT, "tools": ["t"] * 101}]),
        template(agents=[{**AGENT, "toolConfig": {"enabledTools": ["t"] * 101}}]),
    ],
)
def test_a_template_that_breaks_a_rule_is_refused(raw: Any) -> None:
    with pytest.raises(Invalid):
        validate(raw)


def test_what_is_no_json_is_refused() -> None:
    for data in (b"", b"{", b"\xff"):
        with pytest.raises(Invalid):
            parse(data)


async def test_an_imported_template_is_kept_and_one_of_the_same_id_replaced(shelf: Shelf) -> None:
    await shelf.squads.templates.add(template())
    await shelf.squads.templates.add(template(name="Newer"))
    again = Shelf(shelf.root).squads.templates
    assert [found.name for found in await again.list() if not found.is_builtin] == ["Newer"]


@pytest.mark.parametrize("template_id", ["builtin-content-team", "BUILTIN-content-team", "", None])
async def test_a_built_in_id_and_none_are_replaced_by_a_new_one(
    shelf: Shelf, template_id: str | None
) -> None:
    stored = await shelf.squads.templates.add(template(id=template_id, isBuiltin=True))
    assert stored.id.startswith("user-")
    assert len(stored.id) > 10
    assert (await shelf.squads.templates.get("builtin-content-team")).name == "Content Team"


async def test_ids_that_are_one_file_on_other_systems_are_refused(shelf: Shelf) -> None:
    await shelf.squads.templates.add(template(id="user-a"))
    with pytest.raises(Invalid, match="upper and lower case"):
        await shelf.squads.templates.add(template(id="User-a"))


async def test_a_built_in_template_cannot_be_deleted(shelf: Shelf) -> None:
    with pytest.raises(Denied):
        await shelf.squads.templates.remove("builtin-content-team")
    stored = await shelf.squads.templates.add(template())
    await shelf.squads.templates.remove(stored.id)
    with pytest.raises(NotFound):
        await shelf.squads.templates.get(stored.id)


async def test_a_damaged_template_does_not_hide_the_others(shelf: Shelf) -> None:
    await shelf.squads.templates.add(template())
    (shelf.root / "data" / "squad-templates" / "user-broken.json").write_text("{")
    assert len(await Shelf(shelf.root).squads.templates.list()) == 6


async def test_a_squad_saved_exported_and_imported_makes_the_same_agents(shelf: Shelf) -> None:
    squad = await shelf.squads.create(
        CreateSquad(
            name="x", workspace_path=shelf.workspace(), template_id="builtin-research-team", description="why"
        )
    )
    tools = ToolConfig(
        enabled_tools=("read_file", "unknown"),
        disabled_tools=("x",),
        tool_permission_overrides={"read_file": "ask_once"},
        custom_tool_configs={"x": {"y": 1}},
    )
    models = ModelPreferences(preferred_model_id="m", min_context_window=5)
    patch = AgentPatch(tool_config=tools, model_preferences=models)
    await shelf.squads.agents.patch(squad.id, squad.agents[1].id, patch)
    saved = await shelf.squads.save_as_template(squad.id, SaveAsTemplate(name="Saved", icon="*"))
    exported = msgspec.json.encode(await shelf.squads.templates.get(saved.id))
    other = Shelf(shelf.root / "elsewhere").squads
    other.live = shelf.engine
    imported = await other.templates.add(msgspec.json.decode(exported))
    assert imported == saved
    copy = await other.create(
        CreateSquad(name="y", workspace_path=shelf.workspace("copy"), template_id=imported.id)
    )
    before = (await shelf.squads.get(squad.id)).agents
    assert [msgspec.structs.replace(agent, id="") for agent in copy.agents] == [
        msgspec.structs.replace(agent, id="") for agent in before
    ]
    assert (copy.description, copy.planner_agent_id) == ("why", copy.agents[0].id)


@pytest.mark.parametrize("name", ["", " ", "x" * 201])
async def test_a_template_is_not_saved_without_a_good_name(shelf: Shelf, name: str) -> None:
    squad = await shelf.squad("ann")
    with pytest.raises(Invalid):
        await shelf.squads.save_as_template(squad.id, SaveAsTemplate(name=name))


# --- registry -----------------------------------------------------------------------------------------------------

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
RAW_KEY = KEY.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
PUBLIC = base64.b64encode(RAW_KEY).decode()
DATA = json.dumps(template()).encode()
SUM = "sha256:" + hashlib.sha256(DATA).hexdigest()
SIGNATURE = base64.b64encode(KEY.sign(DATA)).decode()
WRONG_SUM = "sha256:" + "0" * 64
WRONG_SIGNATURE = base64.b64encode(bytes(64)).decode()


def catalogue(folder: Path, **entry: Any) -> Path:
    (folder / "teams").mkdir(parents=True, exist_ok=True)
    (folder / "teams" / "mine.json").write_bytes(DATA)
    row = {"path": "teams/mine.json", "kind": "squad_template", **entry}
    (folder / "index.json").write_text(json.dumps({"version": 1, "profiles": [row, {"path": "a.json"}]}))
    return folder


async def source(shelf: Shelf, url: str, key: str | None = None, *, required: bool = False) -> RegistrySource:
    return await shelf.squads.registry.add_source(
        AddSource(name="source", url=url, public_key=key, require_verification=required)
    )


REFUSED = "refused"


@pytest.mark.parametrize(
    ("checksum", "signature", "key", "required", "result"),
    [
        (WRONG_SUM, None, None, False, REFUSED),
        (WRONG_SUM, SIGNATURE, PUBLIC, False, REFUSED),
        (SUM, WRONG_SIGNATURE, PUBLIC, False, REFUSED),
        (SUM, "not base64!", PUBLIC, False, REFUSED),
        ("md5:" + "0" * 32, None, None, False, REFUSED),
        (None, WRONG_SIGNATURE, PUBLIC, False, REFUSED),
        (None, None, None, False, "unverified"),
        (None, SIGNATURE, PUBLIC, False, "unverified"),
        (None, None, PUBLIC, True, REFUSED),
        (SUM, None, PUBLIC, True, REFUSED),
        (None, SIGNATURE, PUBLIC, True, REFUSED),
        (SUM, None, PUBLIC, False, "trusted"),
        (SUM, None, None, False, "trusted"),
        (SUM, SIGNATURE, None, False, "trusted"),
        (SUM.upper().replace("SHA256", "sha256"), SIGNATURE, PUBLIC, False, "verified"),
        (SUM, SIGNATURE, PUBLIC, True, "verified"),
    ],
)
async def test_a_template_is_verified_by_the_table(
    shelf: Shelf, tmp_path: Path, checksum: str, signature: str, key: str, required: bool, result: str
) -> None:
    folder = catalogue(tmp_path / "registry", checksum=checksum, signature=signature)
    await source(shelf, str(folder), key, required=required)
    install = shelf.squads.registry.install(InstallTemplate(path="teams/mine.json"))
    if result == REFUSED:
        with pytest.raises(UnverifiedTemplate):
            await install
        assert len(await shelf.squads.templates.list()) == 5
    else:
        installed = await install
        assert installed.verification == result
        assert installed.source_url == f"{folder}/teams/mine.json"
        assert installed.installed_at is not None
        assert (await shelf.squads.templates.get(installed.id)).source_url == installed.source_url


async def test_templates_come_over_https_too(tmp_path: Path) -> None:
    folder = catalogue(tmp_path / "registry", checksum=SUM)
    asked: list[str] = []

    async def get(url: str) -> bytes:
        asked.append(url)
        return (folder / url.removeprefix("https://example.org/r/")).read_bytes()

    shelf = Shelf(tmp_path, get)
    await source(shelf, "https://example.org/r/")
    installed = await shelf.squads.registry.install(InstallTemplate(path="teams/mine.json"))
    assert installed.source_url == "https://example.org/r/teams/mine.json"
    assert asked == ["https://example.org/r/index.json", "https://example.org/r/teams/mine.json"]


@pytest.mark.parametrize(
    "path", ["", "../x.json", "/etc/passwd", "a/../../x", "teams\\mine.json", "C:/x", "file:///x"]
)
async def test_a_path_in_a_registry_is_plain_and_relative(shelf: Shelf, tmp_path: Path, path: str) -> None:
    await source(shelf, str(catalogue(tmp_path / "registry")))
    with pytest.raises(Invalid):
        await shelf.squads.registry.install(InstallTemplate(path=path))


async def test_a_link_out_of_a_registry_is_not_followed(shelf: Shelf, tmp_path: Path) -> None:
    folder = catalogue(tmp_path / "registry")
    (tmp_path / "outside.json").write_bytes(DATA)
    (folder / "teams" / "mine.json").unlink()
    (folder / "teams" / "mine.json").symlink_to(tmp_path / "outside.json")
    await source(shelf, str(folder))
    with pytest.raises(NotFound):
        await shelf.squads.registry.install(InstallTemplate(path="teams/mine.json"))


async def test_what_the_catalogue_does_not_list_as_a_team_is_not_installed(
    shelf: Shelf, tmp_path: Path
) -> None:
    folder = catalogue(tmp_path / "registry")
    (folder / "unlisted.json").write_bytes(DATA)
    await source(shelf, str(folder))
    with pytest.raises(NotFound):
        await shelf.squads.registry.install(InstallTemplate(path="unlisted.json"))
    with pytest.raises(Invalid, match="agent_profile"):
        await shelf.squads.registry.install(InstallTemplate(path="a.json"))


async def test_an_installed_file_must_be_a_template(shelf: Shelf, tmp_path: Path) -> None:
    folder = catalogue(tmp_path / "registry")
    (folder / "teams" / "mine.json").write_text('{"name": "x"}')
    await source(shelf, str(folder))
    with pytest.raises(Invalid):
        await shelf.squads.registry.install(InstallTemplate(path="teams/mine.json"))


async def test_a_broken_catalogue_is_the_sources_fault(shelf: Shelf, tmp_path: Path) -> None:
    folder = catalogue(tmp_path / "registry")
    (folder / "index.json").write_text("{")
    await source(shelf, str(folder))
    with pytest.raises(Unavailable):
        await shelf.squads.registry.install(InstallTemplate(path="teams/mine.json"))


async def test_a_source_is_chosen_by_id_or_is_the_first(shelf: Shelf, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        await shelf.squads.registry.install(InstallTemplate(path="teams/mine.json"))
    await source(shelf, str(catalogue(tmp_path / "bad", checksum=WRONG_SUM)))
    good = await source(shelf, str(catalogue(tmp_path / "good")))
    with pytest.raises(UnverifiedTemplate):
        await shelf.squads.registry.install(InstallTemplate(path="teams/mine.json"))
    given = InstallTemplate(path="teams/mine.json", source_id=good.id)
    assert await shelf.squads.registry.install(given)
    with pytest.raises(NotFound):
        await shelf.squads.registry.install(InstallTemplate(path="teams/mine.json", source_id="x"))


async def test_sources_are_kept_and_removed(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    added = await source(shelf, str(tmp_path / "folder"))
    with pytest.raises(Conflict):
        await source(shelf, str(tmp_path / "folder") + "/")
    again = Shelf(shelf.root).squads.registry
    assert await again.sources() == (added,)
    await again.remove_source(added.id)
    assert await again.sources() == ()
    with pytest.raises(NotFound):
        await again.remove_source(added.id)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org",
        "ftp://x",
        "relative",
        "/missing/folder",
        "https://",
        "https://a@b",
        "https://a/?b",
        "//a",
    ],
)
async def test_a_source_is_https_or_a_folder(shelf: Shelf, url: str) -> None:
    with pytest.raises(Invalid):
        await source(shelf, url)


@pytest.mark.parametrize(
    "key", ["", "xyz", base64.b64encode(b"short").decode(), "-----BEGIN PUBLIC KEY-----\nx"]
)
async def test_a_source_has_an_ed25519_key_or_none(shelf: Shelf, key: str) -> None:
    with pytest.raises(Invalid):
        await source(shelf, "https://example.org", key)


async def test_a_key_is_taken_in_base64_hexadecimal_and_pem(shelf: Shelf) -> None:
    pem = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    for number, key in enumerate((PUBLIC, RAW_KEY.hex(), pem)):
        assert (await source(shelf, f"https://example.org/{number}", key)).public_key == key


async def test_verification_is_not_required_without_a_key(shelf: Shelf) -> None:
    with pytest.raises(Invalid, match="publicKey"):
        await source(shelf, "https://example.org", required=True)
