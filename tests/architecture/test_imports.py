"""Which room may import which: the table of ``docs/architecture.md`` as data, checked against the source."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.architecture.layout import ROOT, imports, is_under, python_files, relative

STDLIB = frozenset(sys.stdlib_module_names)
FIRST_PARTY = ("actors", "gateway", "tests", "bench")
COMMON = ("actors.errors", "actors.ids")
VALUES = ("actors.models.provider", "actors.tools.tool", "actors.tools.policy")
"""Plain value types and protocols that several rooms speak in."""


class Room(NamedTuple):
    """What the files below ``path`` may import.

    Attributes:
        path: A folder, or one file; the longest match counts.
        own: First-party modules besides the room itself and the common ones.
        foreign: Third-party packages; ``None`` allows any that is not banned for all.
        banned: Exceptions to ``own``, and standard-library modules the room does without.
    """

    path: str
    own: tuple[str, ...] = ()
    foreign: tuple[str, ...] | None = None
    banned: tuple[str, ...] = ()


SERVER = ("asyncio", "quart", "quart_trio", "hypercorn")
ROOMS = (
    Room("actors/errors.py", foreign=()),
    Room("actors/ids.py", foreign=()),
    Room("actors/kernel", foreign=("trio", "msgspec"), banned=("threading", "sqlite3", "socket")),
    Room("actors/journal", foreign=("trio", "msgspec", "apsw")),
    Room("actors/models"),
    Room("actors/tools"),
    Room("actors/config", own=("actors.tools", "actors.models")),
    Room("actors/agent", own=("actors.models", "actors.tools", "actors.config", "actors.kernel.gate")),
    Room("actors/session", own=("actors.kernel", "actors.journal", "actors.agent", "actors.config", *VALUES)),
    Room(
        "actors/squad",
        own=(
            "actors.kernel",
            "actors.journal",
            "actors.agent",
            "actors.config",
            "actors.session.messages",
            "actors.models",
            "actors.tools",
        ),
    ),
    Room(
        "actors/apitools",
        own=(
            "actors.kernel",
            "actors.journal",
            "actors.agent",
            "actors.tools.egress",
            "actors.tools.http_api",
            "actors.session.messages",
            *VALUES,
        ),
    ),
    Room("actors/auth", own=("actors.journal",)),
    Room("actors/cluster", own=("actors.kernel", "actors.journal")),
    Room("actors/testing", own=("actors",)),
    Room("actors", own=("actors",), banned=("actors.testing",)),
    Room("gateway", own=("actors",), banned=("apsw", "sqlite3", "actors.testing", "actors.journal.sqlite")),
    Room(
        "gateway/cli",
        own=("actors", "gateway"),
        banned=("apsw", "sqlite3", "actors.testing", "actors.journal"),
    ),
)
PRIVATE = re.compile(r"actors\.\w+\.(actor|state)\b")
"""A room's actor and state are nobody's business outside ``actors``."""


def room_of(path: Path) -> Room:
    name = relative(path)
    matches = [room for room in ROOMS if name == room.path or name.startswith(room.path + "/")]
    return max(matches, key=lambda room: len(room.path))


def violation(room: Room, name: str) -> str | None:
    """Say why a file of the room may not import ``name``; ``None`` when it may."""
    top = name.partition(".")[0]
    if room.path.startswith("actors") and top in (*SERVER, "gateway"):
        return "actors know no server"
    if top == "asyncio":
        return "the runtime is trio"
    if is_under(name, room.banned):
        return "banned in this room"
    if top in FIRST_PARTY:
        if top in ("tests", "bench"):
            return "the product does not import its tests"
        if room.path.startswith("gateway") and PRIVATE.match(name):
            return "the gateway knows no actor and no state"
        own = room.path.removesuffix(".py").replace("/", ".")
        return None if is_under(name, (own, *COMMON, *room.own)) else "another room"
    if top in STDLIB or room.foreign is None or top in room.foreign:
        return None
    return "a library this room does without"


@pytest.mark.parametrize("path", python_files("actors", "gateway"), ids=relative)
def test_a_file_imports_only_what_its_room_may(path: Path) -> None:
    room = room_of(path)
    found = [
        f"{relative(path)}:{line} imports {name}: {why}"
        for line, name in imports(path)
        if name != "__future__.annotations" and (why := violation(room, name))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "name", "allowed"),
    [
        ("actors/kernel/cell.py", "trio.lowlevel", True),
        ("actors/kernel/cell.py", "actors.journal.log", False),
        ("actors/kernel/cell.py", "apsw", False),
        ("actors/journal/tail.py", "actors.kernel.message", False),
        ("actors/models/openai.py", "actors.tools.tool", False),
        ("actors/agent/loop.py", "actors.kernel.gate.Gate", True),
        ("actors/agent/loop.py", "actors.kernel.system", False),
        ("actors/session/actor.py", "actors.squad.state", False),
        ("actors/runtime.py", "gateway.serve", False),
        ("actors/runtime.py", "asyncio", False),
        ("actors/runtime.py", "actors.testing.model", False),
        ("gateway/routes/sessions.py", "actors.session.messages", True),
        ("gateway/routes/sessions.py", "actors.session.actor.SessionActor", False),
        ("gateway/routes/sessions.py", "actors.session.state", False),
        ("gateway/serve.py", "apsw", False),
        ("gateway/serve.py", "hypercorn.trio", True),
        ("actors/session/messages.py", "tests.conftest", False),
    ],
)
def test_the_table_tells_allowed_from_forbidden(path: str, name: str, allowed: bool) -> None:
    assert (violation(room_of(ROOT / path), name) is None) is allowed


def loaded_after(statement: str) -> set[str]:
    """Return the top-level packages a fresh interpreter has loaded after the statement."""
    program = f"{statement}\nimport sys\nprint(*sorted(name for name in sys.modules if '.' not in name))"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(run.stdout.split())


def test_the_library_loads_no_server() -> None:
    assert not loaded_after("import actors\nactors.open_runtime") & {
        "quart",
        "quart_trio",
        "hypercorn",
        "gateway",
    }


def test_the_command_line_parses_without_loading_server_or_runtime() -> None:
    # Its own output is among the words, which does no harm: no module is called like one.
    heavy = {"quart", "hypercorn", "trio", "openai", "anthropic", "apsw", "rich", "prompt_toolkit", "yaml"}
    assert not loaded_after("import gateway.cli.main as m\nm.main(['--help'])") & heavy
