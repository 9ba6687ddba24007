"""Squads' records under ``kill -9``: whatever moment it hits, every file parses and what was answered is there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from tests.squad.shelf import Shelf

pytestmark = pytest.mark.stress

WORKER = """
import sys
from pathlib import Path
import trio
from actors.squad.requests import CreateTask, UpdateSquad
from tests.squad.shelf import Shelf

async def main():
    squads = Shelf(Path(sys.argv[1])).squads
    for number in range(100_000):
        await squads.update(sys.argv[2], UpdateSquad(name=f"n{number}"))
        await squads.tasks.create(sys.argv[2], CreateTask(title=f"t{number}", description=""))
        print(number, flush=True)

trio.run(main)
"""


@pytest.mark.parametrize("moment", [0.1, 0.25, 0.4])
async def test_a_kill_leaves_whole_files_and_everything_that_was_answered(
    tmp_path: Path, moment: float
) -> None:
    squad = await Shelf(tmp_path).squad("ann")
    command = [sys.executable, "-c", WORKER, str(tmp_path), squad.id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: ASYNC220 - not waited for
        assert process.stdout is not None
        process.stdout.readline()
        await trio.sleep(moment)
        process.send_signal(signal.SIGKILL)
        answered = int(process.stdout.read().split("\n")[-2])
    for path in tmp_path.rglob("*.json"):
        json.loads(path.read_text())
    again = Shelf(tmp_path).squads
    assert int((await again.get(squad.id)).name[1:]) >= answered
    assert [row.id for row in await again.list()] == [squad.id]
    titles = {task.title for task in await again.tasks.list(squad.id)}
    assert {f"t{number}" for number in range(answered + 1)} <= titles
