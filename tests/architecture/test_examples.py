"""Every program under ``docs/examples`` runs, in a process of its own, against a stub model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from actors.testing.stub_server import StubServer, assistant
from tests.architecture.layout import ROOT

EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))
EXPECTED = {"embedded.py": "It is late.\n", "events.py": "It is late.\n(normal)\n"}


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
    assert run.stdout.decode() == EXPECTED[path.name]
    if path.name == "embedded.py":
        assert any("current_time" in str(request.body.get("tools")) for request in stub.requests)
        assert any(message["role"] == "tool" for message in stub.requests[-1].body["messages"])
