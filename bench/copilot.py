"""How much the Copilot door adds to a model's answer, as the official Python SDK sees it.

A stub model and the server are processes of their own; the SDK runs in this one's child. Prints one JSON document and
exits with 0 when the goals hold: at most 5 ms over the bare model for one client, and 200 sessions on one connection
without a lost or reordered answer.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import trio

from bench.process import started

GOAL_MS = 5.0
AGENT = "agents:\n  root:\n    model: openai/stub\n    instruction: Answer.\n"
PROGRAM = """
import asyncio, json, logging, statistics, sys, time, urllib.request
from copilot import CopilotClient, RuntimeConnection
from copilot.session import PermissionHandler
logging.disable(logging.CRITICAL)
MODEL = sys.argv[2] + "/v1/chat/completions"

def bare():
    body = {"model": "stub", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    request = urllib.request.Request(MODEL, json.dumps(body).encode(), {"content-type": "application/json"})
    began = time.perf_counter()
    urllib.request.urlopen(request).read()
    return (time.perf_counter() - began) * 1000

async def main():
    client = CopilotClient(connection=RuntimeConnection.for_uri(sys.argv[1]))
    await client.start()
    make = lambda: client.create_session(on_permission_request=PermissionHandler.approve_all)
    session = await make()
    for _ in range(10):
        await session.send_and_wait("warm up")
    times = []
    for _ in range(100):
        began = time.perf_counter()
        await session.send_and_wait("hi")
        times.append((time.perf_counter() - began) * 1000)
    alone = [bare() for _ in range(100)]
    sessions = [await make() for _ in range(200)]
    seen = {each.session_id: [] for each in sessions}
    for each in sessions:
        each.on(lambda event, name=each.session_id: seen[name].append(event))
    began = time.perf_counter()
    async def talk(each):
        for number in range(3):
            await each.send_and_wait(f"message {number}", timeout=120)
    await asyncio.gather(*(talk(each) for each in sessions))
    took = time.perf_counter() - began
    wrong = 0
    for events in seen.values():
        said = [event.data.content for event in events if event.type.value == "user.message"]
        kinds = [event.type.value for event in events]
        ok = said == ["message 0", "message 1", "message 2"] and kinds.count("session.idle") == 3
        wrong += not (ok and kinds.count("assistant.turn_start") == kinds.count("assistant.turn_end") == 3)
    await client.stop()
    print(json.dumps({
        "one_client": {"median_ms": statistics.median(times), "model_ms": statistics.median(alone),
                       "overhead_ms": statistics.median(times) - statistics.median(alone)},
        "sessions_200": {"turns_per_second": 600 / took, "sessions_wrong": wrong},
    }))

asyncio.run(main())
"""


async def main() -> int:
    """Measure, print, and return the exit status."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        (directory / "agent.yaml").write_text(AGENT)
        (directory / "program.py").write_text(PROGRAM)
        stub = [
            sys.executable,
            "-m",
            "actors.testing.stub_server",
            "--port",
            "0",
            "--chunks",
            "5",
            "--delay",
            "0",
        ]
        async with started(stub) as model:
            address = model.line.split()[-1]
            env = {"OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": "x"}
            serve = [sys.executable, "-m", "gateway", "serve", "copilot", str(directory / "agent.yaml")]
            serve += ["--data-dir", str(directory / "data"), "--listen", "127.0.0.1:0"]
            async with started(serve, env=env) as server:
                listening = server.line.removeprefix("Listening on ").strip()
                program = [sys.executable, str(directory / "program.py"), listening, address]
                done = await trio.run_process(program, capture_stdout=True)
    report = json.loads(done.stdout)
    print(json.dumps(report, indent=2))
    good = report["one_client"]["overhead_ms"] <= GOAL_MS and not report["sessions_200"]["sessions_wrong"]
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(trio.run(main))
