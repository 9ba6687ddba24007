"""Guards around every test: no real model calls, no user's settings, nothing left running or open."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.models.network import forbid_network

PROC = Path("/proc/self")
SETTINGS = ("GREENROOM_", "OPENAI_", "ANTHROPIC_")
GRACE = 2.0
"""Seconds a thread or child that is already ending may still take."""


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the developer's keys and settings; what a test needs it sets itself."""
    for name in [name for name in os.environ if name.startswith(SETTINGS)]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True, scope="session")
def _no_model_network() -> None:
    """Make a call to a real model provider impossible."""
    forbid_network()


def open_descriptors() -> dict[int, str]:
    """Return what this process has open, by number; empty where the system does not tell."""
    found: dict[int, str] = {}
    for entry in (PROC / "fd").iterdir() if PROC.exists() else ():
        try:
            found[int(entry.name)] = str(entry.readlink())
        except FileNotFoundError:
            continue  # the listing's own descriptor
    return found


def child_processes() -> set[str]:
    """Return the ids of this process's children, of every thread."""
    children: set[str] = set()
    for task in (PROC / "task").iterdir() if PROC.exists() else ():
        try:
            children.update((task / "children").read_text().split())
        except OSError:
            continue  # the thread has just ended
    return children


def own_threads() -> set[threading.Thread]:
    """Return the threads that belong to somebody: trio's idle workers do not, and end by themselves."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("Trio thread")}


@pytest.fixture(autouse=True)
def _nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a child process, a thread or an open descriptor behind."""
    descriptors, children, threads = open_descriptors(), child_processes(), own_threads()
    yield
    for thread in own_threads() - threads:
        thread.join(GRACE)
    left = [f"thread {thread.name}" for thread in own_threads() - threads]
    left += [f"child process {pid}" for pid in child_processes() - children]
    opened = new_descriptors(descriptors)
    if opened:
        gc.collect()  # an unreferenced socket or file is a ResourceWarning, which is an error of its own
        opened = new_descriptors(descriptors)
    left += [f"descriptor {number} ({target})" for number, target in opened.items()]
    if left:
        pytest.fail(f"{request.node.name} left behind: {', '.join(left)}", pytrace=False)


def new_descriptors(before: dict[int, str]) -> dict[int, str]:
    """Return what is open now and was not before."""
    return {number: target for number, target in open_descriptors().items() if before.get(number) != target}
