"""A real browser: its own EventSource follows a session and resumes, and the API's page for people renders."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.testing.stub_server import openai_text
from tests.gateway.cli.conftest import ServeModel
from tests.gateway.cli.server import Server, serving

DRIVER, CHROMIUM = shutil.which("chromedriver"), shutil.which("chromium")
pytestmark = [
    pytest.mark.stress,
    pytest.mark.skipif(not (DRIVER and CHROMIUM), reason="no browser is installed"),
]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
FOLLOW = """
const [url, wanted, done] = arguments;
const seen = [];
const source = new EventSource(url);
source.onmessage = message => {
  const event = JSON.parse(message.data);
  seen.push([Number(message.lastEventId), event.type]);
  if (event.type === wanted) { source.close(); done(seen); }
};
"""


class Browser:
    """A browser session over the WebDriver protocol."""

    def __init__(self, address: str, session: str) -> None:
        self._base = f"{address}/session/{session}"

    async def command(self, path: str, body: object) -> Any:
        return await trio.to_thread.run_sync(_send, self._base + path, body)

    async def open(self, url: str) -> None:
        await self.command("/url", {"url": url})

    async def screenshot(self) -> str:
        """Return the page as base64 of a PNG."""
        return str(await trio.to_thread.run_sync(_send, self._base + "/screenshot", {}, "GET"))

    async def follow(self, url: str, wanted: str) -> list[tuple[int, str]]:
        """Let the page's EventSource follow ``url`` until an event of the wanted type."""
        body = {"script": FOLLOW, "args": [url, wanted]}
        return [(seq, kind) for seq, kind in await self.command("/execute/async", body)]

    async def text_of(self, selector: str) -> str:
        """Return the text of the first element that fits, waiting for it."""
        found = await self.command("/element", {"using": "css selector", "value": selector})
        script = {"script": "return arguments[0].innerText", "args": [{ELEMENT: found[ELEMENT]}]}
        return str(await self.command("/execute/sync", script))


def _send(url: str, body: object, method: str = "POST") -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())["value"]


@asynccontextmanager
async def browsing(tmp_path: Path) -> AsyncGenerator[Browser]:
    assert DRIVER is not None
    process = await trio.lowlevel.open_process(
        [DRIVER, "--port=0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)},
    )
    assert process.stdout is not None
    session = address = ""
    try:
        async with process.stdout:
            said = b""
            with trio.fail_after(30):
                while not (port := re.search(rb"started successfully on port (\d+)\.", said)):
                    said += await process.stdout.receive_some()
            address = f"http://127.0.0.1:{int(port[1])}"
            arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
            options = {"binary": CHROMIUM, "args": [*arguments, f"--user-data-dir={tmp_path / 'profile'}"]}
            wanted = {
                "goog:chromeOptions": options,
                "timeouts": {"script": 30_000, "implicit": 15_000},
            }
            body = {"capabilities": {"alwaysMatch": wanted}}
            opened = await trio.to_thread.run_sync(_send, f"{address}/session", body)
            session = opened["sessionId"]
            yield Browser(address, session)
    finally:
        with trio.CancelScope(
            shield=True
        ):  # bounded: the request has a time limit, and a killed process ends
            if session:
                await trio.to_thread.run_sync(_send, f"{address}/session/{session}", {}, "DELETE")
            process.kill()
            await process.wait()


async def _run(server: Server, session: str, text: str) -> None:
    await server.post(f"/api/sessions/{session}/agent/agent", {"messages": [{"content": text}]})


async def test_an_event_source_sees_every_event_once_over_two_connections(
    serve_model: ServeModel, tmp_path: Path
) -> None:
    await serve_model(handler=lambda _: openai_text("Hello there", chunks=2))
    async with serving(tmp_path) as server, browsing(tmp_path) as browser:
        base = f"http://{server.address}"
        session = json.loads(await server.post("/api/sessions", {"title": "t"}))["id"]
        await browser.open(f"{base}/api/ping")
        events = f"{base}/api/sessions/{session}/events"
        await _run(server, session, "one")
        first = await browser.follow(events, "stream_stopped")
        await _run(server, session, "two")
        second = await browser.follow(f"{events}?since={first[-1][0]}", "stream_stopped")
    numbers = [seq for seq, _ in first + second]
    assert numbers == sorted(numbers)
    assert first[-1][0] < second[0][0]
    for kinds in ([kind for _, kind in first], [kind for _, kind in second]):
        wanted = ["user_message", "stream_started", "agent_choice", "stream_stopped"]
        assert [kind for kind in dict.fromkeys(kinds) if kind in wanted] == wanted


async def test_the_page_for_people_shows_every_operation_without_the_network(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, browsing(tmp_path) as browser:
        await browser.open(f"http://{server.address}/api/docs")
        await browser.text_of(".opblock-summary-description")
        assert "Run an agent and stream its events" in await browser.text_of("#ui")
        picture = base64.b64decode(await browser.screenshot())
    assert picture.startswith(b"\x89PNG")
    (tmp_path / "page.png").write_bytes(picture)
