"""Memory banks: sections, bytes that stay, search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import Conflict, Invalid, NotFound
from actors.squad import banks, memory
from actors.squad.refusals import AgentNotFound, TooLarge
from actors.squad.requests import AgentPatch, CreateSquad, MemoryHit, WriteMemory
from tests.squad.shelf import Shelf

DATE = "2023-11-14"


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def written(data: bytes, section: str, content: str, *, overwrite: bool = False) -> bytes:
    return memory.write(data, section, content, overwrite=overwrite, date=DATE)


def names(data: bytes) -> list[str]:
    return [section.name for section in memory.sections(data)]


def test_a_section_is_made_when_it_is_first_written() -> None:
    assert written(b"# Ann\n", "Facts", "one") == b"# Ann\n\n## Facts\n\n- [2023-11-14] one\n"


def test_content_is_added_below_what_a_section_has() -> None:
    data = written(written(b"# Ann\n", "Facts", "one"), "FACTS", "two\nmore")
    assert data.endswith(b"- [2023-11-14] one\n- [2023-11-14] two\n  more\n")
    assert names(data) == ["Facts"]


def test_overwriting_leaves_only_the_new_and_the_other_sections_as_they_were() -> None:
    data = b"# Ann\n\n## A\n\nold\n\n## B\n\nkept\n"
    assert written(data, "A", "new", overwrite=True) == b"# Ann\n\n## A\n\nnew\n\n## B\n\nkept\n"


def test_content_cannot_make_sections() -> None:
    for overwrite in (False, True):
        data = written(b"# Ann\n", "Facts", "a\n## Stolen\n# Title", overwrite=overwrite)
        assert names(data) == ["Facts"]


@pytest.mark.parametrize(
    "original", [b"# \xc4rger\r\n\r\n## A\r\n\r\ncaf\xe9\r\n\r\n## B\r\nx\r\n", b"## A\nno end"]
)
def test_bytes_that_are_not_written_stay_as_they_are(original: bytes) -> None:
    data = written(original, "A", "new")
    kept = [line for line in original.split(b"\n") if line.strip()]
    assert [line for line in data.split(b"\n") if line.strip(b"\r") and b"new" not in line][
        : len(kept)
    ] == kept
    assert (b"\r\n" in data) == (b"\r\n" in original)


@given(st.lists(st.tuples(st.sampled_from("ABC"), st.text(max_size=30), st.booleans()), max_size=8))
def test_any_writes_leave_each_section_once(writes: Sequence[tuple[str, str, bool]]) -> None:
    data = memory.new_file("Ann")
    for section, content, overwrite in writes:
        data = written(data, section, content, overwrite=overwrite)
    assert sorted(names(data)) == sorted({section for section, _, _ in writes})


@pytest.mark.parametrize("section", ["", "  ", "a\nb", "x" * 201, "a\x00"])
def test_a_sections_name_is_one_line(section: str) -> None:
    with pytest.raises(Invalid):
        memory.check_section(section)


DATA = b"# Ann\n\n## Facts\n\n- Alpha\n- beta ALPHA\n- gamma\n\n## Caf\xc3\xa9\n\n- \xc3\x84pfel alpha\n"


def found(query: str, section: str = "", *, case: bool = False, context: int = 0) -> list[tuple[int, str]]:
    lines = memory.search(DATA, query, section=section, case=case, context=context)
    return [(line.number, line.section) for line in lines]


def test_a_search_ignores_case_unless_told() -> None:
    assert found("alpha") == [(5, "Facts"), (6, "Facts"), (11, "Café")]
    assert found("ALPHA", case=True) == [(6, "Facts")]


def test_a_search_ignores_case_in_every_alphabet() -> None:
    assert found("äPFEL") == [(11, "Café")]
    assert found("äpfel", case=True) == []


def test_a_search_can_be_limited_to_a_section() -> None:
    assert found("alpha", "café") == [(11, "Café")]
    assert found("alpha", "nothing") == []


def test_a_line_is_found_once_however_often_it_has_the_word() -> None:
    lines = memory.search(b"a a a\na\n", "a", context=0)
    assert [line.number for line in lines] == [1, 2]


def test_a_hit_comes_with_the_lines_around_it() -> None:
    (hit,) = memory.search(DATA, "gamma", context=2)
    assert (hit.before, hit.after) == (("- Alpha", "- beta ALPHA"), ("", "## Café"))


@given(st.binary(max_size=200), st.text(min_size=1, max_size=3).filter(lambda text: "\n" not in text))
def test_a_search_of_any_bytes_finds_lines_that_hold_the_word(data: bytes, query: str) -> None:
    lines = data.split(b"\n")
    for line in memory.search(data, query, context=0):
        assert query.casefold() in lines[line.number - 1].decode(errors="replace").casefold()


# --- banks --------------------------------------------------------------------------------------------------------


def write(section: str, content: str, *, overwrite: bool = False) -> WriteMemory:
    return WriteMemory(section=section, content=content, overwrite=overwrite)


async def test_memory_is_a_page_of_the_workspace(shelf: Shelf) -> None:
    squad = await shelf.squad("ann")
    await shelf.squads.memory.write(squad.id, "ann", write("Facts", "one"))
    page = await shelf.squads.memory.write(squad.id, "ann", write("Facts", "two"))
    assert (page.agent_id, page.sections) == ("ann", ("Facts",))
    assert "one" in page.content
    assert Path(squad.workspace_path, "memory", "ann.md").read_text() == page.content
    assert (await shelf.squads.memory.read(squad.id, "ann")) == page
    only = await shelf.squads.memory.write(squad.id, "ann", write("Facts", "three", overwrite=True))
    assert "one" not in only.content


async def test_there_is_no_memory_before_the_first_write(shelf: Shelf) -> None:
    squad = await shelf.squad("ann")
    for attempt in (shelf.squads.memory.read(squad.id, "ann"), shelf.squads.memory.sections(squad.id, "ann")):
        with pytest.raises(NotFound):
            await attempt
    with pytest.raises(AgentNotFound):
        await shelf.squads.memory.read(squad.id, "nobody")


async def test_initialising_gives_a_file_to_each_agent_that_remembers(shelf: Shelf) -> None:
    squad = await shelf.squad("ann", "bob", "cat")
    await shelf.squads.agents.patch(squad.id, "cat", AgentPatch(memory_enabled=False))
    await shelf.squads.memory.write(squad.id, "ann", write("Facts", "kept"))
    made = await shelf.squads.memory.initialize(squad.id)
    assert made.initialized == ("ann", "bob")
    assert "kept" in (await shelf.squads.memory.read(squad.id, "ann")).content
    assert (await shelf.squads.memory.read(squad.id, "bob")).content == "# bob\n"


async def test_memory_is_not_initialised_without_a_workspace(shelf: Shelf) -> None:
    squad = await shelf.squads.create(CreateSquad(name="x", workspace_path=shelf.workspace()))
    with pytest.raises(Conflict):
        await shelf.squads.memory.initialize(squad.id)


async def test_a_renamed_agent_keeps_its_memory(shelf: Shelf) -> None:
    squad = await shelf.squad("ann", "bob")
    await shelf.squads.memory.write(squad.id, "ann", write("Facts", "of ann"))
    await shelf.squads.agents.patch(squad.id, "ann", AgentPatch(name="New"))
    await shelf.squads.agents.patch(squad.id, "bob", AgentPatch(name="Ann"))
    await shelf.squads.memory.write(squad.id, "bob", write("Facts", "of bob"))
    assert "of ann" in (await shelf.squads.memory.read(squad.id, "ann")).content
    assert "of ann" not in (await shelf.squads.memory.read(squad.id, "bob")).content


async def test_writing_is_published_with_agent_and_section(shelf: Shelf) -> None:
    squad = await shelf.squad("ann")
    await shelf.squads.memory.write(squad.id, "ann", write(" Facts ", "x"))
    assert shelf.engine.published[-1][1:] == ("squad:memory-updated", {"agentId": "ann", "section": "Facts"})


async def test_parallel_writes_lose_nothing(shelf: Shelf) -> None:
    squad = await shelf.squad("ann")
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(shelf.squads.memory.write, squad.id, "ann", write("Facts", f"<{number}>"))
    content = (await shelf.squads.memory.read(squad.id, "ann")).content
    assert all(f"<{number}>" in content for number in range(20))


async def test_a_memory_does_not_grow_without_end(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(banks, "FILE_LIMIT", 100)
    squad = await shelf.squad("ann")
    await shelf.squads.memory.write(squad.id, "ann", write("Facts", "fits"))
    with pytest.raises(TooLarge):
        await shelf.squads.memory.write(squad.id, "ann", write("Facts", "x" * 100))
    assert "fits" in (await shelf.squads.memory.read(squad.id, "ann")).content


async def search(shelf: Shelf, squad_id: str, query: str, **filters: object) -> list[str]:
    hits: Sequence[MemoryHit] = await shelf.squads.memory.search(squad_id, query, **filters)  # type: ignore[arg-type]
    return [f"{hit.agent_id}:{hit.section}" for hit in hits]


async def test_a_search_goes_over_all_agents_in_their_order(shelf: Shelf) -> None:
    squad = await shelf.squad("zed", "ann")
    for agent in ("ann", "zed"):
        await shelf.squads.memory.write(squad.id, agent, write("A", "needle"))
        await shelf.squads.memory.write(squad.id, agent, write("B", "NEEDLE"))
    assert await search(shelf, squad.id, "Needle") == ["zed:A", "zed:B", "ann:A", "ann:B"]
    assert await search(shelf, squad.id, "needle", agent_id="ann", section="b") == ["ann:B"]
    assert await search(shelf, squad.id, "needle", case_sensitive=True) == ["zed:A", "ann:A"]
    assert await search(shelf, squad.id, "needle", limit=3) == ["zed:A", "zed:B", "ann:A"]


async def test_a_search_reads_no_file_it_does_not_need(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    squad = await shelf.squad("ann", "bob", "cat")
    for agent in ("ann", "bob", "cat"):
        await shelf.squads.memory.write(squad.id, agent, write("A", "needle"))
    read: list[str] = []
    real = banks.disk.read_file

    def counted(root: Path, path: Sequence[str], limit: int = 0) -> bytes | None:
        if path[-1].endswith(".md"):
            read.append(path[-1])
        return real(root, path)

    monkeypatch.setattr(banks.disk, "read_file", counted)
    await search(shelf, squad.id, "needle", limit=1)
    assert read == ["ann.md"]
    await search(shelf, squad.id, "needle", agent_id="cat")
    assert read == ["ann.md", "cat.md"]


@pytest.mark.parametrize(
    ("query", "limit"), [("", 5), ("  ", 5), ("a\nb", 5), ("x" * 1001, 5), ("x", 0), ("x", 501)]
)
async def test_a_search_for_nothing_or_too_much_is_refused(shelf: Shelf, query: str, limit: int) -> None:
    squad = await shelf.squad("ann")
    with pytest.raises(Invalid):
        await shelf.squads.memory.search(squad.id, query, limit=limit)


async def test_the_engine_reads_writes_and_searches_memories(shelf: Shelf) -> None:
    squad = await shelf.squad("ann")
    assert await shelf.squads.read_memory(squad.id, "ann") == ""
    shelf.engine.published.clear()
    await shelf.squads.write_memory(squad.id, "ann", "Facts", "needle")
    assert shelf.engine.published == []
    assert "needle" in await shelf.squads.read_memory(squad.id, "ann")
    assert await shelf.squads.search_memory(squad.id, "needle") == [
        "ann, Facts, line 5: - [2023-11-14] needle"
    ]
