"""Every program under ``docs/examples`` runs, in a process of its own, against a stub model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from actors.testing.stub_server import StubServer, assistant
from tests.architecture.layout import ROOT

EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))
SQUAD_RUN = (ROOT / "tests" / "data" / "squad_run.txt").read_text()
EXPECTED = {
    "embedded.py": "It is late.\n",
    "events.py": "It is late.\n(normal)\n",
    "squad_run.py": SQUAD_RUN,
}


def steady(text: str) -> str:
    """Return the output without what differs from run to run: ids, points in time and durations."""
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    return re.sub(r"\b\d+\.\d s\b", "SECONDS", text)


def test_every_example_has_an_expected_output() -> None:
    assert {path.name for path in EXAMPLES} == set(EXPECTED)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
async def test_an_example_runs(path: Path, tmp_path: Path, nursery: trio.Nursery) -> None:
    stub = StubServer(assistant("It is late.", chunks=3, tool="current_time"))
    address: str = await nursery.start(stub.serve)
    env = os.environ | {
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_KEY": "test",
        "GREENROOM_DATA_DIR": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }
    with trio.fail_after(30):
        run = await trio.run_process(
            [sys.executable, "-W", "error", str(path)],
            env=env,
            cwd=tmp_path,
            capture_stdout=True,
            stderr=subprocess.STDOUT,
            check=False,
        )
    assert steady(run.stdout.decode()) == EXPECTED[path.name]
    if path.name == "embedded.py":
        assert any("current_time" in str(request.body.get("tools")) for request in stub.requests)
        assert any(message["role"] == "tool" for message in stub.requests[-1].body["messages"])
