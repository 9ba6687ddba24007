"""A source that changes while it is in use: whole versions only, and nothing broken takes the place of what works."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from actors.config.errors import ConfigError
from actors.config.sources import FileSource
from actors.config.stamp import Stamp
from actors.config.watch import SETTLED, Watched

OLD, NEW, BROKEN = b"agents: {old: {}}", b"agents: {new: {}}", b"agents: {old: {modle: x}}"


class Scripted:
    """A source whose content and freshness the test sets; ``on_fetch`` runs before each reading."""

    def __init__(self, content: bytes, age: float | None = SETTLED) -> None:
        self.id, self.kind, self.name = "x", "file", "x.yaml"
        self.directory: Path | None = None
        self.content: bytes | None = content
        self.age = age
        self.version = 1
        self.fetches = 0
        self.on_fetch: Callable[[], None] = lambda: None

    def write(self, content: bytes | None, age: float | None = SETTLED) -> None:
        self.content, self.age = content, age
        self.version += 1

    async def stamp(self) -> Stamp:
        await trio.lowlevel.checkpoint()
        if self.content is None:
            raise ConfigError("no such file", self.name)
        return Stamp((self.version,), self.age)

    async def fetch(self) -> bytes:
        await trio.lowlevel.checkpoint()
        self.fetches += 1
        self.on_fetch()
        if self.content is None:
            raise ConfigError("no such file", self.name)
        return self.content


async def name(watched: Watched) -> str:
    return (await watched.current()).config.first.name


async def test_an_unchanged_source_is_read_once() -> None:
    source = Scripted(OLD)
    watched = Watched(source)
    assert [await name(watched) for _ in range(3)] == ["old"] * 3
    assert source.fetches == 1


async def test_a_changed_source_is_taken_up_and_has_another_digest() -> None:
    source = Scripted(OLD)
    watched = Watched(source)
    before = await watched.current()
    source.write(NEW)
    after = await watched.current()
    assert (before.config.first.name, after.config.first.name) == ("old", "new")
    assert before.digest != after.digest
    source.write(OLD + b"\n# a comment changes nothing")
    assert (await watched.current()).digest == before.digest


@pytest.mark.parametrize("content", [BROKEN, b"", b"agents:", b"\xff", None])
async def test_a_broken_source_keeps_the_version_in_use_and_is_reported_once(
    content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    source = Scripted(OLD)
    watched = Watched(source)
    before = await watched.current()
    source.write(content)
    assert [await watched.current() for _ in range(3)] == [before] * 3
    assert watched.problem is not None
    assert len(caplog.records) == 1
    assert caplog.records[0].levelno == logging.WARNING
    source.write(NEW)
    assert await name(watched) == "new"
    assert watched.problem is None
    source.write(content)
    await watched.current()
    assert len(caplog.records) == 2


async def test_a_source_that_comes_back_unchanged_is_fine_again() -> None:
    source = Scripted(OLD)
    watched = Watched(source)
    await watched.current()
    content, source.content = source.content, None
    await watched.current()
    assert watched.problem is not None
    source.content = content
    await watched.current()
    assert watched.problem is None


async def test_a_source_that_was_never_usable_raises_its_problem_until_it_is() -> None:
    source = Scripted(BROKEN)
    watched = Watched(source)
    for _ in range(2):
        with pytest.raises(ConfigError, match="unknown key 'modle'"):
            await watched.current()
    source.write(OLD)
    assert await name(watched) == "old"


async def test_half_of_a_fresh_file_is_not_a_version(autojump_clock: MockClock) -> None:
    source = Scripted(OLD)
    watched = Watched(source)
    await watched.current()
    source.write(b"agents: {half: {}}", age=0)

    def go_on() -> None:
        if source.fetches < 4:
            source.write(source.content or b"", age=0)  # the writer is still at work
        elif source.fetches == 4:
            source.write(NEW, age=0)

    source.on_fetch = go_on
    assert await name(watched) == "new"


async def test_a_file_that_never_rests_keeps_the_version_in_use(autojump_clock: MockClock) -> None:
    source = Scripted(OLD)
    watched = Watched(source)
    await watched.current()
    source.write(NEW, age=0)
    source.on_fetch = lambda: source.write(NEW + b"#" * source.fetches, age=0)
    assert await name(watched) == "old"
    assert watched.problem is None
    source.on_fetch = lambda: None
    assert await name(watched) == "new"


async def test_a_fresh_file_that_does_not_parse_is_no_problem_yet(autojump_clock: MockClock) -> None:
    source = Scripted(OLD)
    watched = Watched(source)
    await watched.current()
    source.write(b"", age=0)
    assert await name(watched) == "old"
    assert watched.problem is None
    source.age = SETTLED
    await watched.current()
    assert watched.problem is not None


async def test_a_second_change_behind_the_same_stamp_is_noticed(autojump_clock: MockClock) -> None:
    source = Scripted(OLD, age=0)
    watched = Watched(source)
    assert await name(watched) == "old"
    source.content = NEW  # same version: the clock of the file system is coarse
    assert await name(watched) == "new"


async def test_a_fresh_file_that_stays_the_same_costs_no_waiting(autojump_clock: MockClock) -> None:
    source = Scripted(OLD, age=0)
    watched = Watched(source)
    first = await watched.current()
    settled = trio.current_time()
    source.write(OLD, age=0)
    assert [await watched.current() for _ in range(3)] == [first] * 3
    assert trio.current_time() == settled


async def test_others_get_the_version_in_use_while_one_looks(autojump_clock: MockClock) -> None:
    source = Scripted(OLD)
    watched = Watched(source)
    await watched.current()
    source.write(NEW, age=0)
    names: list[tuple[str, float]] = []

    async def ask() -> None:
        names.append((await name(watched), trio.current_time()))

    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(ask)
    assert [found for found, _ in names] == ["old", "new"]
    assert names[0][1] == started


async def test_a_cancelled_look_leaves_the_version_in_use(autojump_clock: MockClock) -> None:
    source = Scripted(OLD)
    watched = Watched(source)
    await watched.current()
    source.write(NEW, age=0)
    with trio.move_on_after(0.001) as scope:
        await watched.current()
    assert scope.cancelled_caught
    assert watched.loaded is not None
    assert watched.loaded.config.first.name == "old"
    assert await name(watched) == "new"


async def test_instruction_files_are_watched_too(tmp_path: Path, autojump_clock: MockClock) -> None:
    file, text = tmp_path / "a.yaml", tmp_path / "i.md"
    file.write_text("agents: {a: {instruction_file: i.md}}")
    watched = Watched(FileSource(file))
    with pytest.raises(ConfigError, match="cannot be read"):
        await watched.current()
    text.write_text("one")
    first = await watched.current()
    text.write_text("two")
    second = await watched.current()
    assert (first.config.first.instruction, second.config.first.instruction) == ("one", "two")
    assert first.digest != second.digest


async def test_flavors_are_laid_over_each_version() -> None:
    text = b"agents: {a: {description: plain}}\nflavors: {f: {agents: {a: {description: flavored}}}}"
    watched = Watched(Scripted(text), ["f"])
    assert (await watched.current()).config.first.description == "flavored"
