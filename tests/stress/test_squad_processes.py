"""Executions whose process is killed in every state: the next process finds them, and nothing stays running alone."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from actors.runtime import open_runtime
from tests.squad.kit import wait_phase
from tests.stress.squad_worker import SQUAD, models, settings, team

WORKER = Path(__file__).with_name("squad_worker.py")
pytestmark = pytest.mark.stress
BECOMES = {
    "planning": "failed",
    "awaiting_approval": "awaiting_approval",
    "executing": "paused",
    "paused": "paused",
    "aggregating": "paused",
    "completed": "completed",
}


def kill_in(directory: Path, state: str) -> str:
    """Run a process up to ``state``, kill it, and return its execution's id."""
    process = subprocess.Popen(
        [sys.executable, str(WORKER), str(directory), state],
        stdout=subprocess.PIPE,
        text=True,
        cwd=WORKER.parents[2],
        env={"PYTHONPATH": str(WORKER.parents[2])},
    )
    assert process.stdout is not None
    with process.stdout:
        word, _, execution_id = process.stdout.readline().strip().partition(" ")
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    assert word == "ready", word
    return execution_id


@pytest.mark.parametrize("state", BECOMES)
async def test_a_killed_process_leaves_an_execution_that_can_be_dealt_with(
    tmp_path: Path, state: str
) -> None:
    execution_id = await trio.to_thread.run_sync(kill_in, tmp_path, state)
    squad_id = (tmp_path / SQUAD).read_text()
    again = team("none")
    async with open_runtime(settings(tmp_path), models=models(tmp_path, again)) as runtime:
        engine = runtime.squads
        with trio.fail_after(10):
            found = await wait_phase(engine, squad_id, execution_id, BECOMES[state])  # type: ignore[arg-type]
        page = await engine.events(squad_id, execution_id, limit=1000)
        assert [line.seq for line in page.events] == list(range(1, len(page.events) + 1))
        told = [line.event for line in page.events]
        assert ("squad:execution-recovered" in told) == (BECOMES[state] == "paused")
        if BECOMES[state] == "paused":
            assert found.status.data is not None
            reason = "by hand" if state == "paused" else "the server restarted"
            assert found.status.data["reason"] == reason
            await engine.resume(squad_id, execution_id)
        elif state == "awaiting_approval":
            await engine.approve(squad_id, execution_id)
        if state != "planning":
            done = await wait_phase(engine, squad_id, execution_id, "completed")
            assert done.task_counts.completed == 2
        assert again.worked.count("first") == (state == "awaiting_approval")
        assert (await engine.record(squad_id, execution_id)).execution_id == execution_id
        after = await engine.submit(squad_id, "the next one", auto_approve=True)
        await wait_phase(engine, squad_id, after.id, "completed")
        assert await engine.active_executions(squad_id) == []
