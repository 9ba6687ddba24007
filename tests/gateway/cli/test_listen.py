"""``greenroom run --listen`` as a process: driven over HTTP, found by its record, gone without a trace."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.testing.stub_server import openai_text
from gateway.cli.discovery import RunRecord, find_run, live_runs, recorded
from tests.gateway.cli.conftest import ServeModel

PATIENCE = 20.0


class Run:
    """A run that is listening."""

    def __init__(self, process: trio.Process, record: dict[str, Any], path: Path) -> None:
        self.process = process
        self.record = record
        self.path = path

    def call(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Send a request and return status and JSON."""
        data = None if body is None else json.dumps(body).encode()
        given = {"content-type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
        request = urllib.request.Request(self.record["addr"] + path, data, given, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    async def eventually(self, look: Callable[[], Any]) -> Any:
        """Look again and again, in a thread, until there is something."""
        with trio.fail_after(PATIENCE):
            while not (found := await trio.to_thread.run_sync(look)):
                await trio.sleep(0.05)
        return found


@asynccontextmanager
async def listening(tmp_path: Path, agent_file: Path, *flags: str) -> AsyncGenerator[Run]:
    data = tmp_path / "data"
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "gateway", "run", str(agent_file), "--listen", "127.0.0.1:0", *flags],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"GREENROOM_DATA_DIR": str(data)},
    )
    assert process.stdout is not None
    try:
        async with process.stdout:
            path = data / "runs" / f"{process.pid}.json"
            with trio.fail_after(PATIENCE):
                while not path.exists():
                    assert process.poll() is None
                    await trio.sleep(0.05)
            yield Run(process, json.loads(path.read_text()), path)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):  # bounded: a killed process ends
            await process.wait()


async def test_a_follow_up_starts_a_turn_in_an_idle_run_and_is_shown_there(
    serve_model: ServeModel, tmp_path: Path, agent_file: Path
) -> None:
    await serve_model(handler=lambda _: openai_text("Hello from the run"))
    async with listening(tmp_path, agent_file) as run:
        session = f"/api/sessions/{run.record['session_id']}"
        status, body = await trio.to_thread.run_sync(run.call, "GET", session + "/status")
        assert (status, body["streaming"]) == (200, False)
        said = {"messages": [{"content": "Go on"}]}
        for expected in ("queued_streaming", "duplicate"):
            status, body = await trio.to_thread.run_sync(
                lambda: run.call("POST", session + "/followup", said, Idempotency_Key="k")
            )
            assert (status, body["status"]) == (202, expected)
        assert run.process.stdout is not None
        shown = b""
        with trio.fail_after(PATIENCE):
            while b"Hello from the run" not in shown:
                shown += await run.process.stdout.receive_some()
        done = await run.eventually(
            lambda: (view := run.call("GET", session)[1])["title"] and len(view["messages"]) > 1 and view
        )
        assert [m["message"]["role"] for m in done["messages"]] == ["user", "assistant"]


async def test_the_control_plane_offers_no_agents_and_takes_a_mebibyte(
    tmp_path: Path, agent_file: Path
) -> None:
    async with listening(tmp_path, agent_file) as run:
        assert await trio.to_thread.run_sync(run.call, "GET", "/api/agents") == (200, [])
        assert (await trio.to_thread.run_sync(run.call, "GET", "/api/ready"))[0] == 200
        big = {"title": "x" * (1 << 20)}
        assert (await trio.to_thread.run_sync(run.call, "POST", "/api/sessions", big))[0] == 413


async def test_the_record_is_private_while_the_run_lives_and_gone_with_it(
    tmp_path: Path, agent_file: Path
) -> None:
    async with listening(tmp_path, agent_file, "--agent", "root") as run:
        assert stat.S_IMODE(run.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(run.path.parent.stat().st_mode) == 0o700
        assert run.record["pid"] == run.process.pid
        assert run.record["agent"] == "root"
        run.process.send_signal(signal.SIGTERM)
        with trio.fail_after(PATIENCE):
            assert await run.process.wait() == 0
        assert list(run.path.parent.iterdir()) == []


async def test_exec_answers_once_and_ends_although_it_listens(
    serve_model: ServeModel, tmp_path: Path, agent_file: Path
) -> None:
    await serve_model(handler=lambda _: openai_text("Once"))
    async with listening(tmp_path, agent_file, "--exec", "hi") as run:
        with trio.fail_after(PATIENCE):
            assert await run.process.wait() == 0
        assert not run.path.exists()


def test_runs_are_found_and_dead_ones_forgotten(tmp_path: Path) -> None:
    with recorded(tmp_path, "unix:///tmp/x.sock", "s1", "", 1000.0) as record:
        assert record.addr == "http:///tmp/x.sock"
        assert "agent" not in json.loads((tmp_path / "runs" / f"{record.pid}.json").read_text())
        dead = RunRecord(pid=2**22 + 1, addr="http://127.0.0.1:1", session_id="s2", started_at="2026")
        (tmp_path / "runs" / "dead.json").write_text(
            json.dumps({k: getattr(dead, k) for k in dead.__struct_fields__})
        )
        (tmp_path / "runs" / "junk.json").write_text("{")
        assert live_runs(tmp_path) == [record]
        assert not (tmp_path / "runs" / "dead.json").exists()
        for wanted in ("", str(record.pid), "s1", "/tmp/x.sock"):
            assert find_run(tmp_path, wanted) == record
        assert find_run(tmp_path, "s3") is None


@pytest.mark.parametrize(
    "flags", [("--yolo", "--safety", "strict"), ("--attach", "agent.yaml", "hi")], ids=["safety", "attach"]
)
def test_options_that_make_no_sense_are_refused(
    tmp_path: Path, agent_file: Path, flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    from gateway.cli.main import main

    given = [str(agent_file) if flag == "agent.yaml" else flag for flag in flags]
    assert main(["run", str(agent_file), *given, "hi", "--data-dir", str(tmp_path / "d")]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_dry_run_reads_the_agents_only(
    tmp_path: Path, agent_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gateway.cli.main import main

    assert main(["run", str(agent_file), "--dry-run", "--data-dir", str(tmp_path / "d")]) == 0
    assert capsys.readouterr().out == "agent: root\n"
