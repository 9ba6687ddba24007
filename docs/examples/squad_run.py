"""Run a squad from outside the server, over HTTP and a WebSocket: plan, approve, pause, steer, skip, resume, report.

``python docs/examples/squad_run.py http://127.0.0.1:8080 /srv/press`` uses a running ``greenroom serve api``; the squad
works in the directory, which is on the server's machine. Set ``GREENROOM_TOKEN`` when the server asks for a token.
Without arguments it starts a server of its own, with a model that answers from a script.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import trio
from trio_websocket import WebSocketConnection, open_websocket_url

from actors.testing.stub_server import Reply, StubRequest, StubServer, openai_text

TOKEN = os.environ.get("GREENROOM_TOKEN", "")
AUTHORIZATION = {"authorization": f"Bearer {TOKEN}"} if TOKEN else {}
ENDED = {"squad:execution-completed", "squad:execution-failed", "squad:execution-cancelled"}
REQUEST = "Announce release 1.2, also in French."
TEAM = [
    {"id": "editor", "name": "Editor", "role": "planner"},
    {"id": "writer", "name": "Writer", "role": "writer"},
]


class Refused(Exception):
    """The server did not do what was asked."""


def ask(address: str, method: str, path: str, body: object = None) -> Any:
    """Send a request to the squads API and return its answer. Raises: Refused."""
    scheme, host, *_ = urlsplit(address)
    connection = (HTTPSConnection if scheme == "https" else HTTPConnection)(host, timeout=60)
    headers = {"content-type": "application/json"} | AUTHORIZATION
    try:
        connection.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
    finally:
        connection.close()
    if response.status >= 300:
        raise Refused(f"{method} {path}: {response.status} {answer['error']['message']}")
    return answer


class Channel:
    """A squad's events as they happen: each one's name is printed when it is read."""

    def __init__(self, socket: WebSocketConnection) -> None:
        self._socket = socket
        self._seen: set[str] = set()

    async def until(self, *names: str) -> None:
        """Return when one of these events has come, now or earlier, or the run has ended."""
        while self._seen.isdisjoint(ENDED.union(names)):
            event: str = json.loads(await self._socket.get_message())["event"]
            print(f"  {event}", flush=True)
            self._seen.add(event)


async def run_squad(address: str, workspace: str) -> None:
    async def call(method: str, path: str, body: object = None) -> Any:
        return await trio.to_thread.run_sync(ask, address, method, path, body)

    squad = await call("POST", "/squads", {"name": "Press", "workspacePath": workspace, "agents": TEAM})
    path = f"/squads/{squad['id']}"
    await call("POST", f"{path}/workspace/init", {"path": workspace})
    url = f"{address.replace('http', 'ws', 1)}/api/v1{path}/ws"
    token = [(name.encode(), value.encode()) for name, value in AUTHORIZATION.items()]
    async with open_websocket_url(url, extra_headers=token) as socket:
        events = Channel(socket)

        print("submit")
        submitted = await call("POST", f"{path}/execute", {"request": REQUEST})
        execution_id: str = submitted["executionId"]
        execution = f"{path}/executions/{execution_id}"
        await events.until("squad:plan-ready")
        plan = (await call("GET", execution))["plan"]
        if plan is None:
            raise Refused("there is no plan")
        titles = {task["id"]: task["title"] for task in plan["tasks"]}
        for number, wave in enumerate(plan["waves"], 1):
            print(f"wave {number}: {', '.join(titles[task_id] for task_id in wave)}")

        print("approve")
        await call("POST", f"{execution}/approve")
        await events.until("squad:agent-state-changed")  # the first agent has begun

        print("pause")  # what runs comes to its end; nothing else begins
        await call("POST", f"{execution}/pause")
        await events.until("squad:execution-paused")
        print("steer")
        await call("POST", f"{execution}/steer", {"message": "Write no more than ten words."})
        await events.until("squad:execution-steered")
        tasks = (await call("GET", execution))["plan"]["tasks"]
        if waiting := [task for task in tasks if task["status"] == "pending"]:
            print(f"skip: {waiting[-1]['title']}")
            await call("POST", f"{execution}/tasks/{waiting[-1]['id']}/skip")
            await events.until("squad:task-skipped")
        await events.until("squad:task-completed")

        print("resume")
        await call("POST", f"{execution}/resume")
        await events.until()

        print("report")
        await call("POST", f"{path}/history/{execution_id}/report")
        file = f"artifacts/reports/{execution_id}-report.md"
        print((await call("GET", f"{path}/workspace/files/content?path={file}"))["content"], end="")


# --- a server and a model to try it with --------------------------------------------------------------------------

PLAN = """{"tasks": [{"id": "t1", "title": "List the changes", "assignedTo": "writer"},
    {"id": "t2", "title": "Write the notice", "assignedTo": "writer", "dependsOn": ["t1"]},
    {"id": "t3", "title": "Translate the notice", "assignedTo": "writer", "dependsOn": ["t2"]}]}"""


def answer(request: StubRequest) -> Reply:
    """Be the planner who plans, the worker, or the planner who puts the results together."""
    prompt = request.body["messages"][-1]["content"]
    if "# The tasks and their results" in prompt:
        return openai_text("Published: Release 1.2 is out. (There is no translation.)")
    if "# Your task" not in prompt:
        return openai_text(PLAN)
    if "# Results of the tasks" not in prompt:
        return openai_text("It is faster; two bugs are gone.", chunks=2, delay=2.0)  # time for the operator
    steered = "no more than ten words" in prompt
    return openai_text("Release 1.2 is out." if steered else "It is a long story …")


@asynccontextmanager
async def own_server(directory: Path) -> AsyncGenerator[str]:
    """Run ``greenroom serve api`` on the scripted model as long as the block lasts; gives the server's address."""
    async with trio.open_nursery() as nursery:
        model: str = await nursery.start(StubServer(answer).serve)
        agents = directory / "agents.yaml"
        agents.write_text("agents: {root: {model: auto, description: unused, instruction: unused}}")
        command = [sys.executable, "-m", "gateway", "serve", "api", str(agents), "--listen", "127.0.0.1:0"]
        command += ["--session-db", str(directory / "session.db"), "--data-dir", str(directory / "data")]
        command += ["--log-file", str(directory / "log"), "--default-model", "openai/gpt-4o-mini"]
        env = os.environ | {"OPENAI_BASE_URL": f"{model}/v1", "OPENAI_API_KEY": "none"}
        start = partial(trio.run_process, command, stdout=subprocess.PIPE, env=env, check=False)
        process: trio.Process = await nursery.start(start)
        assert process.stdout is not None
        listening = await process.stdout.receive_some()  # "Listening on ADDRESS"
        yield f"http://{listening.decode().split()[-1]}"
        nursery.cancel_scope.cancel()


async def main(arguments: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        workspace = arguments[1] if len(arguments) > 1 else str(Path(name) / "press")
        if arguments:
            await run_squad(arguments[0].rstrip("/"), workspace)
        else:
            async with own_server(Path(name)) as address:
                await run_squad(address, workspace)


if __name__ == "__main__":
    try:
        trio.run(main, sys.argv[1:])
    except* Refused as refused:
        sys.exit(str(refused.exceptions[0]))
