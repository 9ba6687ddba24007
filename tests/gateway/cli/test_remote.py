"""``greenroom run --remote``: an agent of a real server answers as if it ran here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from actors.errors import Invalid, NotFound, Unavailable
from actors.testing.stub_server import Reply, openai_call, openai_text
from gateway.cli.main import main
from gateway.client import RefusedByServer, open_client
from tests.gateway.cli.conftest import ServeModel
from tests.gateway.cli.server import Server, serving


async def remotely(
    server: Server, tmp_path: Path, *words: str, token: str = ""
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "gateway", "run", "--remote", f"http://{server.address}", *words]
    env = os.environ | {"GREENROOM_DATA_DIR": str(tmp_path / "client"), "GREENROOM_AUTH_TOKEN": token}
    with trio.fail_after(30):
        return await trio.run_process(
            command, capture_stdout=True, capture_stderr=True, check=False, env=env, stdin=b""
        )


async def test_an_answer_is_printed_and_the_session_goes_on(serve_model: ServeModel, tmp_path: Path) -> None:
    model = await serve_model(handler=lambda _: openai_text("Hello from there", chunks=3))
    async with serving(tmp_path) as server:
        first = await remotely(server, tmp_path, "agent", "Say hello")
        assert (first.returncode, first.stdout) == (0, b"Hello from there\n")
        again = await remotely(server, tmp_path, "--session", "-1", "And again")
        assert again.returncode == 0
    sent = [[message["content"] for message in request.body["messages"]] for request in model.requests]
    assert any(said[-3:] == ["Say hello", "Hello from there", "And again"] for said in sent)


async def test_json_prints_the_servers_events(serve_model: ServeModel, tmp_path: Path) -> None:
    await serve_model(handler=lambda _: openai_text("Hi"))
    async with serving(tmp_path) as server:
        done = await remotely(server, tmp_path, "--json", "Hello")
    kinds = [json.loads(line)["type"] for line in done.stdout.splitlines()]
    assert kinds[-1] == "stream_stopped"
    assert "agent_choice" in kinds


@pytest.mark.parametrize("flags", [(), ("--yolo",)], ids=["nobody", "autonomous"])
async def test_a_tool_runs_only_with_somebodys_word(
    serve_model: ServeModel, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    mark = tmp_path / "mark"
    answers = iter([openai_call("shell", json.dumps({"cmd": f"touch {mark}"}))])
    await serve_model(handler=lambda request: _tool_once(request.body, answers))
    async with serving(tmp_path) as server:
        done = await remotely(server, tmp_path, *flags, "touch it")
    assert (done.returncode, done.stdout) == (0, b"Done\n")
    assert mark.exists() is bool(flags)


def _tool_once(body: dict[str, object], answers: Iterator[Reply]) -> Reply:
    return next(answers, openai_text("Done")) if body.get("tools") else openai_text("Done")


async def test_a_server_that_refuses_is_one_line(tmp_path: Path) -> None:
    async with serving(tmp_path, "--auth-token", "right") as server:
        done = await remotely(server, tmp_path, "hi", token="wrong")
        assert (done.returncode, done.stderr) == (1, b"greenroom: invalid token\n")
        async with open_client(server.address, "right") as client:
            assert [row.name for row in await client.agents()] == ["agent"]
            with pytest.raises(NotFound):
                async with client.run("missing", "agent", []):
                    pass
            session = (await client.create_session({"title": "t"})).id
            assert [row.title for row in await client.sessions()] == ["t"]
            with pytest.raises(RefusedByServer):
                await client.create_session({"working_dir": "/x/../y"})
            await client.cancel(session)


async def test_a_server_that_is_not_there_is_said_so() -> None:
    async with open_client("http://127.0.0.1:1") as client:
        with pytest.raises(Unavailable, match="cannot be reached"):
            await client.agents()
    with pytest.raises(Invalid):
        async with open_client("ftp://x"):
            pass


@pytest.mark.parametrize("flags", [("--listen", "127.0.0.1:0"), ("--dry-run",), ("--fake", "x.yaml")])
def test_options_of_a_local_run_are_refused(
    flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--remote", "http://127.0.0.1:1", *flags, "hi"]) == 2
    assert "not for --remote" in capsys.readouterr().err
