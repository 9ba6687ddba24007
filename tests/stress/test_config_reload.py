"""An agent file rewritten twenty times a second in every way editors and deployments do, under requests."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest
import trio

from actors.config.catalog import Catalog

pytestmark = pytest.mark.stress

SECONDS = 3.0
AGENTS = 300


def text(version: int) -> bytes:
    rows = [
        f"  agent{index}: {{description: v{version}, instruction: {'x' * 80}}}\n" for index in range(AGENTS)
    ]
    return ("agents:\n" + "".join(rows)).encode()


def in_place(path: Path, content: bytes) -> None:
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()


def truncate_and_write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        half = len(content) // 2
        file.write(content[:half])
        file.flush()
        file.write(content[half:])


def rename(path: Path, content: bytes) -> None:
    beside = path.with_suffix(".tmp")
    beside.write_bytes(content)
    beside.replace(path)


def swap_link(path: Path, content: bytes) -> None:
    target = path.with_name(f"target-{hash(content)}")
    target.write_bytes(content)
    beside = path.with_suffix(".lnk")
    beside.symlink_to(target)
    beside.replace(path)


def delete_and_create(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


WAYS = (in_place, truncate_and_write, rename, swap_link, delete_and_create)


def keep_writing(path: Path, stop: threading.Event) -> int:
    """Write a new version every 50 ms until told to stop; return the last one."""
    for version in itertools.count(1):
        WAYS[version % len(WAYS)](path, text(version))
        if stop.wait(0.05):
            return version
    raise AssertionError


async def test_every_request_sees_one_whole_version(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_bytes(text(0))
    catalog = Catalog(directory=tmp_path)
    await catalog.get("team")
    stop = threading.Event()
    seen: list[str] = []
    last: list[int] = []

    async def write() -> None:
        last.append(await trio.to_thread.run_sync(keep_writing, path, stop))

    async def ask() -> None:
        loaded = await catalog.get("team")
        versions = {agent.description for agent in loaded.config.agents.values()}
        assert len(loaded.config.agents) == AGENTS
        assert len(versions) == 1
        seen.extend(versions)
        assert len(await catalog.listing()) == 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        deadline = trio.current_time() + SECONDS
        while trio.current_time() < deadline:
            nursery.start_soon(ask)
            await trio.sleep(0.02)
        stop.set()
    await trio.sleep(0.05)
    assert (await catalog.get("team")).config.first.description == f"v{last[0]}"
    assert catalog.problems() == {}
    assert len(set(seen)) > 5
