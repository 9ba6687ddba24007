"""Workspaces: laid out, refused, archived, removed, restored; nothing leads out of them."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from actors.errors import Conflict, Invalid, NotFound, Rejected
from actors.squad.layout import DIRECTORIES
from actors.squad.paths import file_stem, memory_stems
from actors.squad.refusals import FileRefused, NotText, TooLarge, WorkspaceInUse
from actors.squad.requests import CreateSquad
from tests.squad.shelf import Shelf

TRAVERSAL = [
    "../agent-two/secret.txt",
    "....//agent-two/secret.txt",
    "..\\agent-two\\secret.txt",
    "/etc/hostname",
    "//etc/hostname",
    "a/../../agent-two/secret.txt",
    "./././../agent-two/secret.txt",
    "~/secret.txt",
    "file:///etc/hostname",
    "\uff0e\uff0e/agent-two/secret.txt",
    "..;/agent-two/secret.txt",
    "agent-two/../../agent-two/secret.txt",
    "sub/\x00/../../agent-two/secret.txt",
    "secret.txt\x00.md",
    "..",
    "C:\\Windows\\win.ini",
    "\\\\server\\share",
]
HOSTILE = [
    "-rf",
    'a"b.txt',
    " leading",
    "<b>.md",
    "$(id).md",
    "%2e%2e",
    ".hidden",
    "..md",
    "?.md",
    "CON",
    "x" * 250,
]


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


async def test_a_laid_out_workspace_has_the_seven_parts_and_the_whole_squad(shelf: Shelf) -> None:
    squad = await shelf.squad("ann")
    root = Path(squad.workspace_path)
    assert {entry.name for entry in root.iterdir()} == {".squad.json", *DIRECTORIES}
    manifest = json.loads((root / ".squad.json").read_text())
    assert (manifest["squadId"], manifest["appVersion"]) == (squad.id, "1.2.3")
    assert [agent["id"] for agent in manifest["config"]["agents"]] == ["ann"]


async def test_laying_out_again_keeps_what_is_there(shelf: Shelf) -> None:
    squad = await shelf.squad()
    root = Path(squad.workspace_path)
    (root / "artifacts" / "mine.txt").write_text("mine")
    (root / "memory").rmdir()
    began = json.loads((root / ".squad.json").read_text())["initializedAt"]
    shelf.now += 60
    status = await shelf.squads.init_workspace(squad.id, squad.workspace_path)
    assert status.initialized
    assert (root / "artifacts" / "mine.txt").read_text() == "mine"
    assert json.loads((root / ".squad.json").read_text())["initializedAt"] == began


async def test_the_status_says_what_is_missing(shelf: Shelf) -> None:
    squad = await shelf.squads.create(CreateSquad(name="x", workspace_path=shelf.workspace()))
    before = await shelf.squads.workspace_status(squad.id)
    assert (before.exists, before.initialized, before.missing) == (
        False,
        False,
        (".squad.json", *DIRECTORIES),
    )
    await shelf.squads.init_workspace(squad.id, squad.workspace_path)
    Path(squad.workspace_path, "logs").rmdir()
    after = await shelf.squads.workspace_status(squad.id)
    assert (after.initialized, after.missing, after.directories["logs"]) == (False, ("logs",), False)


@pytest.mark.parametrize("path", ["/tmp/a/../b", "relative", "", "/", "/tmp/\n"])
async def test_an_unsafe_path_is_not_laid_out(shelf: Shelf, path: str) -> None:
    squad = await shelf.squad()
    with pytest.raises(Invalid):
        await shelf.squads.init_workspace(squad.id, path)


async def test_laying_out_elsewhere_moves_the_squad_there(shelf: Shelf) -> None:
    squad = await shelf.squad()
    await shelf.squads.init_workspace(squad.id, shelf.workspace("other"))
    assert (await shelf.squads.get(squad.id)).workspace_path == shelf.workspace("other")


async def test_anothers_workspace_is_not_laid_out(shelf: Shelf) -> None:
    squad = await shelf.squad()
    await shelf.squad(workspace="other")
    with pytest.raises(WorkspaceInUse):
        await shelf.squads.init_workspace(squad.id, shelf.workspace("other"))


@pytest.mark.parametrize("name", ["Tasks", "LOGS"])
async def test_a_name_that_clashes_on_other_systems_is_refused(shelf: Shelf, name: str) -> None:
    Path(shelf.workspace(), name).mkdir(parents=True)
    with pytest.raises(Invalid, match="upper and lower case"):
        await shelf.squad()


async def test_a_link_in_the_place_of_a_part_is_refused(shelf: Shelf, tmp_path: Path) -> None:
    Path(shelf.workspace()).mkdir()
    Path(shelf.workspace(), "tasks").symlink_to(tmp_path)
    with pytest.raises(Invalid, match="not a directory"):
        await shelf.squad()


# --- validating ---------------------------------------------------------------------------------------------------


async def test_a_path_is_judged_without_anything_being_made(shelf: Shelf) -> None:
    verdict = await shelf.squads.validate_path(shelf.workspace("a/b"))
    assert (verdict.valid, verdict.exists, verdict.writable, verdict.is_empty) == (True, False, True, True)
    assert not Path(shelf.workspace("a")).exists()


async def test_a_bad_path_is_a_verdict_and_no_failure(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    squad = await shelf.squad()
    for path in ("relative", "/tmp/../x", str(tmp_path / "file"), str(tmp_path / "file" / "below")):
        verdict = await shelf.squads.validate_path(path)
        assert not verdict.valid
        assert verdict.message
    used = await shelf.squads.validate_path(squad.workspace_path)
    assert (used.valid, used.in_use_by_squad_id) == (False, squad.id)


# --- removing -----------------------------------------------------------------------------------------------------


async def test_a_squad_can_be_deleted_with_its_directory(shelf: Shelf) -> None:
    squad = await shelf.squad()
    await shelf.squads.delete(squad.id, keep_workspace=False)
    assert not Path(squad.workspace_path).exists()


async def test_a_directory_without_a_manifest_is_not_deleted(shelf: Shelf) -> None:
    squad = await shelf.squad()
    manifest = Path(squad.workspace_path, ".squad.json")
    manifest.unlink()
    for attempt in (
        shelf.squads.delete(squad.id, keep_workspace=False),
        shelf.squads.clean_workspace(squad.id),
    ):
        with pytest.raises(Conflict):
            await attempt
    assert Path(squad.workspace_path, "tasks").exists()
    assert await shelf.squads.get(squad.id)


async def test_a_directory_with_anothers_manifest_is_not_deleted(shelf: Shelf) -> None:
    squad = await shelf.squad()
    manifest = Path(squad.workspace_path, ".squad.json")
    manifest.write_text(manifest.read_text().replace(squad.id, "another"))
    with pytest.raises(Conflict):
        await shelf.squads.clean_workspace(squad.id)


async def test_a_squad_whose_directory_never_was_is_deleted_all_the_same(shelf: Shelf) -> None:
    squad = await shelf.squads.create(CreateSquad(name="x", workspace_path=shelf.workspace()))
    await shelf.squads.delete(squad.id, keep_workspace=False)
    assert await shelf.squads.list() == []


async def test_cleaning_removes_links_and_not_what_they_lead_to(shelf: Shelf, tmp_path: Path) -> None:
    squad = await shelf.squad()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept.txt").write_text("kept")
    Path(squad.workspace_path, "artifacts", "link").symlink_to(outside)
    cleaned = await shelf.squads.clean_workspace(squad.id)
    assert (cleaned.removed, cleaned.archive_path) == (True, None)
    assert not Path(squad.workspace_path).exists()
    assert (outside / "kept.txt").read_text() == "kept"


async def test_an_archive_holds_the_workspace_and_nothing_behind_links(shelf: Shelf, tmp_path: Path) -> None:
    squad = await shelf.squad()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    artifacts = Path(squad.workspace_path, "artifacts")
    (artifacts / "mine.txt").write_text("mine")
    (artifacts / "link").symlink_to(outside)
    (artifacts / "file").symlink_to(outside / "secret.txt")
    os.mkfifo(artifacts / "pipe")
    cleaned = await shelf.squads.clean_workspace(squad.id, archive=True)
    assert cleaned.archive_path is not None
    with tarfile.open(cleaned.archive_path) as tar:
        names = tar.getnames()
        mine = tar.extractfile("artifacts/mine.txt")
        assert mine is not None
        assert mine.read() == b"mine"
        assert all(member.isfile() or member.isdir() for member in tar.getmembers())
    assert ".squad.json" in names
    assert not [name for name in names if "link" in name or "secret" in name or "pipe" in name]


async def test_a_workspace_is_not_cleaned_under_a_live_execution(shelf: Shelf) -> None:
    squad = await shelf.squad()
    shelf.engine.active = ["e"]
    with pytest.raises(Conflict):
        await shelf.squads.clean_workspace(squad.id)


# --- restoring ----------------------------------------------------------------------------------------------------


async def test_a_copied_workspace_shows_its_squad_and_stores_nothing(shelf: Shelf) -> None:
    squad = await shelf.squad("ann", planner=True)
    Path(squad.workspace_path).rename(shelf.workspace("moved"))
    await shelf.squads.delete(squad.id)
    found = await shelf.squads.restore_preview(shelf.workspace("moved"))
    assert (found.id, found.name, [agent.id for agent in found.agents]) == (squad.id, "team", ["ann"])
    assert (found.squad.workspace_path, found.squad.planner_agent_id) == (shelf.workspace("moved"), "ann")
    assert (found.conflicts.id_exists, found.conflicts.path_in_use) == (False, False)
    assert await shelf.squads.list() == []


async def test_a_preview_says_what_stands_in_the_way(shelf: Shelf) -> None:
    squad = await shelf.squad()
    found = await shelf.squads.restore_preview(squad.workspace_path)
    assert (found.conflicts.id_exists, found.conflicts.path_in_use) == (True, True)


async def test_the_older_manifest_is_read_when_there_is_no_newer(shelf: Shelf, tmp_path: Path) -> None:
    config = {"id": "old", "name": "Old", "agents": [{"name": "A", "role": "planner"}]}
    (tmp_path / ".squad-config.json").write_text(json.dumps(config))
    elsewhere = Shelf(tmp_path / "server")
    (tmp_path / "server").mkdir()
    inside = tmp_path / "old"
    inside.mkdir()
    (tmp_path / ".squad-config.json").rename(inside / ".squad-config.json")
    found = await elsewhere.squads.restore_preview(str(inside))
    assert (found.id, found.name, found.agents[0].role.type) == ("old", "Old", "planner")


async def test_agents_that_cannot_be_restored_are_left_out_with_a_warning(
    shelf: Shelf, tmp_path: Path
) -> None:
    squad = await shelf.squad("ann", planner=True)
    path = Path(squad.workspace_path, ".squad.json")
    manifest = json.loads(path.read_text())
    manifest["config"]["agents"] = [{"name": "x"}, {"id": "../up", "name": "y", "role": "writer"}]
    path.write_text(json.dumps(manifest))
    found = await shelf.squads.restore_preview(squad.workspace_path)
    assert (found.agents, found.squad.planner_agent_id) == ((), None)
    assert len([text for text in found.warnings if "left out" in text]) == 2


async def test_no_manifest_is_not_found_and_a_broken_one_is_said_to_be(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound):
        await shelf.squads.restore_preview(str(tmp_path / "empty"))
    for text in ("{", "[]", '{"config": 5}', '{"squadId": 5}'):
        (tmp_path / "empty" / ".squad.json").write_text(text)
        with pytest.raises(Invalid):
            await shelf.squads.restore_preview(str(tmp_path / "empty"))


async def test_a_manifest_that_is_a_link_is_not_followed(shelf: Shelf, tmp_path: Path) -> None:
    squad = await shelf.squad()
    (tmp_path / "trap").mkdir()
    (tmp_path / "trap" / ".squad.json").symlink_to(Path(squad.workspace_path, ".squad.json"))
    with pytest.raises(Invalid):
        await shelf.squads.restore_preview(str(tmp_path / "trap"))


# --- files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", TRAVERSAL, ids=repr)
async def test_no_spelling_of_a_path_leads_out(shelf: Shelf, tmp_path: Path, path: str) -> None:
    squad = await shelf.squad(workspace="agent")
    (tmp_path / "agent-two").mkdir()
    (tmp_path / "agent-two" / "secret.txt").write_text("secret")
    (tmp_path / "secret.txt").write_text("secret")
    for attempt in (shelf.squads.files.read(squad.id, path), shelf.squads.files.list(squad.id, path)):
        with pytest.raises(Rejected):
            await attempt


@pytest.mark.parametrize("path", ["link/passwd", "link", "chain/passwd", "file"])
async def test_a_link_out_of_the_workspace_is_refused(shelf: Shelf, path: str) -> None:
    squad = await shelf.squad()
    root = Path(squad.workspace_path)
    (root / "link").symlink_to("/etc")
    (root / "chain").symlink_to("link")
    (root / "file").symlink_to("/etc/passwd")
    for attempt in (shelf.squads.files.read(squad.id, path), shelf.squads.files.list(squad.id, path)):
        with pytest.raises(FileRefused):
            await attempt


async def test_a_search_reads_nothing_behind_links(shelf: Shelf, tmp_path: Path) -> None:
    squad = await shelf.squad()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("needle")
    Path(squad.workspace_path, "link").symlink_to(tmp_path / "outside")
    assert await shelf.squads.files.search(squad.id, "needle") == []


async def test_a_listing_has_directories_first_and_links_as_no_directories(shelf: Shelf) -> None:
    squad = await shelf.squad()
    root = Path(squad.workspace_path)
    (root / "a.txt").write_text("four")
    (root / "z").symlink_to("/etc")
    found = await shelf.squads.files.list(squad.id)
    assert [entry.name for entry in found] == [*sorted(DIRECTORIES), ".squad.json", "a.txt", "z"]
    by_name = {entry.name: entry for entry in found}
    assert (by_name["a.txt"].size, by_name["a.txt"].path, by_name["z"].is_directory) == (4, "a.txt", False)


@pytest.mark.parametrize("name", HOSTILE)
async def test_files_with_hostile_names_are_listed_and_read_under_them(shelf: Shelf, name: str) -> None:
    squad = await shelf.squad()
    Path(squad.workspace_path, "artifacts", name).write_text("content")
    (entry,) = await shelf.squads.files.list(squad.id, "artifacts")
    assert entry.name == name
    assert (await shelf.squads.files.read(squad.id, entry.path)).content == "content"


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b"\xef\xbb\xbfneedle", "utf-8"),
        ("needle".encode("utf-16-le"), "utf-16-le"),
        (b"\xff\xfe" + "needle".encode("utf-16-le"), "utf-16-le"),
        (b"\xfe\xff" + "needle".encode("utf-16-be"), "utf-16-be"),
        (b"needle caf\xe9", "latin-1"),
    ],
)
async def test_reading_and_searching_agree_on_what_a_file_is(
    shelf: Shelf, data: bytes, encoding: str
) -> None:
    squad = await shelf.squad()
    Path(squad.workspace_path, "artifacts", "a.txt").write_bytes(data)
    content = await shelf.squads.files.read(squad.id, "artifacts/a.txt")
    assert (content.encoding, content.content[:6], content.size) == (encoding, "needle", len(data))
    (hit,) = await shelf.squads.files.search(squad.id, "NEEDLE")
    assert (hit.path, hit.line) == ("artifacts/a.txt", 1)


async def test_what_is_no_text_file_has_a_clear_answer(shelf: Shelf) -> None:
    squad = await shelf.squad()
    root = Path(squad.workspace_path, "artifacts")
    (root / "binary").write_bytes(bytes(range(256)))
    os.mkfifo(root / "pipe")
    with (root / "huge").open("wb") as file:
        file.truncate(10_000_000_000)
    for name, refusal in (
        ("binary", NotText),
        ("pipe", Invalid),
        ("huge", TooLarge),
        ("missing", NotFound),
        ("", Invalid),
        ("binary/below", Invalid),
    ):
        with pytest.raises(refusal):
            await shelf.squads.files.read(squad.id, f"artifacts/{name}")
    with pytest.raises(Invalid):
        await shelf.squads.files.list(squad.id, "artifacts/binary")


async def test_a_long_text_is_cut_and_says_so(shelf: Shelf) -> None:
    squad = await shelf.squad()
    Path(squad.workspace_path, "long.txt").write_text("x" * 1_000_001)
    content = await shelf.squads.files.read(squad.id, "long.txt")
    assert (content.truncated, len(content.content), content.size) == (True, 1_000_000, 1_000_001)


async def test_a_search_stops_when_it_has_enough(shelf: Shelf) -> None:
    squad = await shelf.squad()
    Path(squad.workspace_path, "a.txt").write_text("needle\n" * 10)
    assert len(await shelf.squads.files.search(squad.id, "needle", 3)) == 3
    for query, limit in (("", 1), (" ", 1), ("x", 0), ("x", 1001)):
        with pytest.raises(Invalid):
            await shelf.squads.files.search(squad.id, query, limit)


async def test_a_workspace_that_is_gone_is_not_found(shelf: Shelf) -> None:
    squad = await shelf.squad()
    await shelf.squads.clean_workspace(squad.id)
    for attempt in (shelf.squads.files.list(squad.id), shelf.squads.files.search(squad.id, "x")):
        with pytest.raises(NotFound):
            await attempt


# --- names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("Code Reviewer", "code-reviewer"),
        ("  Ärger & Co. ", "ärger-co"),
        ("편집자 둘", "편집자-둘"),
        ("../../etc/passwd", "etc-passwd"),
        ("CON", ""),
        ("index", ""),
        ("!!!", ""),
        ("a\r\nSet-Cookie: x=1", "a-set-cookie-x-1"),
    ],
)
def test_a_name_becomes_a_files_name_in_kebab_case(name: str, stem: str) -> None:
    assert file_stem(name) == stem
    assert len(file_stem(name * 100).encode()) <= 80


def test_agents_of_one_name_get_files_of_their_own_that_stay() -> None:
    first = memory_stems([("1", "Ann"), ("2", "ann"), ("3", "CON")], {})
    assert first["1"] == "ann"
    assert len(set(first.values())) == 3
    assert memory_stems([("2", "renamed"), ("4", "Ann")], first)["2"] == first["2"]
