"""Which agents a file, a directory or given sources offer, under which ids."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import MockClock

from actors.config.catalog import GRACE, Catalog, open_catalog
from actors.config.errors import ConfigError
from actors.config.sources import BuiltinSource, FileSource, oci_agent_id, url_agent_id
from actors.config.stamp import Stamp
from actors.errors import Conflict, NotFound


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    (tmp_path / "pirate.yaml").write_text(
        "agents: {root: {description: Arr, commands: {review: x, deploy: y}}}"
    )
    (tmp_path / "multi.yml").write_text("agents: {first: {description: One}, root: {description: Two}}")
    (tmp_path / "contradict.yaml").write_text("agents: {root: {}}")
    (tmp_path / "notes.txt").write_text("no agent")
    (tmp_path / ".hidden.yaml").write_text("agents: {root: {}}")
    (tmp_path / "sub.yaml").mkdir()
    return tmp_path


async def test_a_directory_lists_its_files_sorted_by_name(agents: Path, autojump_clock: MockClock) -> None:
    rows = await open_catalog(agents).listing()
    assert msgspec.to_builtins(rows) == [
        {"name": "contradict", "description": "", "multi": False},
        {"name": "multi", "description": "One", "multi": True},
        {"name": "pirate", "description": "Arr", "multi": False, "commands": ["deploy", "review"]},
    ]


async def test_an_empty_directory_lists_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    assert await open_catalog(tmp_path).listing() == []


async def test_a_file_is_served_under_its_name_without_extension(
    agents: Path, autojump_clock: MockClock
) -> None:
    catalog = open_catalog(agents / "multi.yml")
    loaded = await catalog.get("multi")
    assert (loaded.id, loaded.config.default.name, loaded.directory) == ("multi", "root", agents)
    assert [row.name for row in await catalog.listing()] == ["multi"]
    with pytest.raises(NotFound) as caught:
        await catalog.get("pirate")
    assert caught.value.message == "agent source not found: agent not found: pirate"


async def test_files_that_fail_are_left_out_and_can_be_asked_about(
    agents: Path, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    (agents / "empty.yaml").write_text("")
    (agents / "bad.yaml").write_text("agents: {root: {modle: x}}")
    (agents / "old.hcl").write_text("agent {}")
    catalog = open_catalog(agents)
    for _ in range(2):
        assert [row.name for row in await catalog.listing()] == ["contradict", "multi", "pirate"]
    problems = catalog.problems()
    assert sorted(problems) == sorted(["bad", "empty", str(agents / "old.hcl")])
    assert problems["bad"].problem == "unknown key 'modle' in agents.root"
    assert "HCL agent files are not supported" in problems[str(agents / "old.hcl")].problem
    assert len(caplog.records) == 3
    with pytest.raises(ConfigError, match="modle"):
        await catalog.get("bad")


async def test_of_two_files_with_one_id_the_first_is_served(agents: Path, autojump_clock: MockClock) -> None:
    (agents / "pirate.yml").write_text("agents: {root: {description: Usurper}}")
    catalog = open_catalog(agents)
    assert (await catalog.get("pirate")).config.first.description == "Arr"
    await catalog.listing()
    (problem,) = catalog.problems().values()
    assert problem.problem == f"the agent id 'pirate' is taken by {agents / 'pirate.yaml'}"
    (agents / "pirate.yaml").unlink()
    await catalog.listing()
    await trio.sleep(GRACE)
    for _ in range(2):
        await catalog.listing()
    assert (await catalog.get("pirate")).config.first.description == "Usurper"
    assert catalog.problems() == {}


async def test_new_files_appear_and_changed_ones_change(agents: Path, autojump_clock: MockClock) -> None:
    catalog = open_catalog(agents)
    with pytest.raises(NotFound):
        await catalog.get("late")
    (agents / "late.yaml").write_text("agents: {root: {description: v1}}")
    assert (await catalog.get("late")).config.first.description == "v1"
    (agents / "late.yaml").write_text("agents: {root: {description: v2}}")
    assert (await catalog.get("late")).config.first.description == "v2"


async def test_a_file_deleted_to_be_written_anew_is_not_missed(
    agents: Path, autojump_clock: MockClock
) -> None:
    catalog = open_catalog(agents)
    await catalog.listing()
    (agents / "pirate.yaml").unlink()
    assert (await catalog.get("pirate")).config.first.description == "Arr"
    assert len(await catalog.listing()) == 3
    (agents / "pirate.yaml").write_text("agents: {root: {description: New}}")
    assert (await catalog.get("pirate")).config.first.description == "New"


async def test_a_deleted_file_is_gone_after_the_grace(agents: Path, autojump_clock: MockClock) -> None:
    catalog = open_catalog(agents)
    await catalog.listing()
    (agents / "pirate.yaml").unlink()
    await catalog.get("pirate")
    await trio.sleep(GRACE)
    with pytest.raises(NotFound):
        await catalog.get("pirate")
    assert [row.name for row in await catalog.listing()] == ["contradict", "multi"]


async def test_a_directory_that_cannot_be_read_keeps_what_is_offered(
    agents: Path, autojump_clock: MockClock
) -> None:
    catalog = open_catalog(agents)
    await catalog.listing()
    await trio.Path(agents).rename(agents.with_name("moved"))
    assert len(await catalog.listing()) == 3
    assert str(agents) in catalog.problems()


async def test_a_symbolic_link_may_be_swapped(tmp_path: Path, autojump_clock: MockClock) -> None:
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "a.yaml").write_text(f"agents: {{root: {{description: {version}}}}}")
    link = tmp_path / "current"
    link.symlink_to("v1")
    catalog = open_catalog(link)
    assert (await catalog.get("a")).config.first.description == "v1"
    link.unlink()
    link.symlink_to("v2")
    assert (await catalog.get("a")).config.first.description == "v2"


async def test_the_built_in_assistant_keeps_its_name(autojump_clock: MockClock) -> None:
    catalog = open_catalog("assistant")
    assert [row.name for row in await catalog.listing()] == ["assistant"]
    loaded = await catalog.get("assistant")
    assert (loaded.config.first.model, loaded.directory) == ("auto", None)
    assert BuiltinSource().kind == "builtin"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("none.yaml", "no such agent file or directory"),
        ("x.hcl", "HCL agent files are not supported; write the same keys as YAML"),
        ("nul\0", "no such agent file or directory"),
        ("x" * 300, "the path cannot be read: File name too long"),
    ],
)
def test_what_cannot_be_served_is_refused_at_once(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "x.hcl").write_text("")
    with pytest.raises(ConfigError) as caught:
        open_catalog(tmp_path / name)
    assert caught.value.problem == problem


class Remote:
    """A URL source, as another room will provide."""

    def __init__(self, url: str) -> None:
        self.id, self.kind, self.name = url_agent_id(url), "url", url
        self.directory: Path | None = None

    async def stamp(self) -> Stamp:
        await trio.lowlevel.checkpoint()
        return Stamp((1,))

    async def fetch(self) -> bytes:
        await trio.lowlevel.checkpoint()
        return b"agents: {remote: {}}"


async def test_a_url_source_is_found_without_its_query_when_it_is_the_only_one(
    autojump_clock: MockClock,
) -> None:
    first, second = Remote("https://x.example/a.yaml?token=1"), Remote("https://x.example/a.yaml?token=2")
    catalog = Catalog([first])
    assert first.id == "https%3A%2F%2Fx.example%2Fa.yaml%3Ftoken%3D1"
    for found in (first.id, second.id, url_agent_id("https://x.example/a.yaml")):
        assert (await catalog.get(found)).id == first.id
    catalog.add(second)
    assert (await catalog.get(second.id)).id == second.id
    with pytest.raises(Conflict, match="ambiguous"):
        await catalog.get(url_agent_id("https://x.example/a.yaml?token=3"))
    with pytest.raises(NotFound):
        await catalog.get(url_agent_id("https://x.example/b.yaml"))


async def test_sources_of_all_kinds_share_one_catalogue(agents: Path, autojump_clock: MockClock) -> None:
    catalog = Catalog([Remote("https://x.example/a"), FileSource(agents / "multi.yml")], directory=agents)
    assert len(await catalog.listing()) == 4


def test_oci_references_become_file_names() -> None:
    assert oci_agent_id("docker.io/me/coder:v1@sha256:0a") == "docker.io_me_coder_v1_sha256_0a"
    assert oci_agent_id('a\\b*c?d"e<f>g|h') == "a_b_c_d_e_f_g_h"
