"""Files that others can reach: whole or not at all, and never through a link."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from actors.errors import Unavailable
from actors.squad import disk
from actors.squad.requests import CreateTask, UpdateSquad, WriteMemory
from tests.squad.shelf import Shelf


def full(_descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.write_file(tmp_path, ["a.json"], b"old")
    monkeypatch.setattr(disk.os, "fsync", full)
    with pytest.raises(OSError, match="space"):
        disk.write_file(tmp_path, ["a.json"], b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.json", b"old")]


async def test_a_full_disk_is_told_and_the_server_recovers_when_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf(tmp_path)
    squad = await shelf.squad("ann")
    task = CreateTask(title="t", description="")
    with monkeypatch.context() as patch:
        patch.setattr(disk.os, "fsync", full)
        for attempt in (
            shelf.squads.update(squad.id, UpdateSquad(name="new")),
            shelf.squads.tasks.create(squad.id, task),
            shelf.squads.memory.write(squad.id, "ann", WriteMemory(section="A", content="b")),
        ):
            with pytest.raises(Unavailable):
                await attempt
    assert (await shelf.squads.get(squad.id)).name == "team"
    assert await shelf.squads.tasks.list(squad.id) == []
    await shelf.squads.update(squad.id, UpdateSquad(name="new"))
    await shelf.squads.tasks.create(squad.id, task)
    assert len(await Shelf(tmp_path).squads.tasks.list(squad.id)) == 1


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_nothing_is_written_or_read_through_a_link(tmp_path: Path, kind: str) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    root.mkdir()
    (outside / "a").write_bytes(b"secret")
    if kind == "directory":
        (root / "d").symlink_to(outside)
        with pytest.raises(OSError, match=r"Not a directory|symbolic"):
            disk.write_file(root, ["d", "a"], b"new")
    else:
        (root / "d").mkdir()
        (root / "d" / "a").symlink_to(outside / "a")
        with pytest.raises(OSError, match="symbolic"):
            disk.read_file(root, ["d", "a"])
        disk.write_file(root, ["d", "a"], b"new")  # replaces the link itself
        assert not (root / "d" / "a").is_symlink()
    assert (outside / "a").read_bytes() == b"secret"


def test_a_pipe_or_a_huge_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        disk.read_file(tmp_path, ["pipe"])
    (tmp_path / "big").write_bytes(bytes(11))
    with pytest.raises(OSError, match="more than 10"):
        disk.read_file(tmp_path, ["big"], 10)


def test_what_is_not_there_is_nothing_and_removing_it_is_no_error(tmp_path: Path) -> None:
    assert disk.read_file(tmp_path, ["no", "file"]) is None
    assert disk.names_in(tmp_path, ["no"], ".json") == []
    disk.remove_file(tmp_path, ["no", "file"])
