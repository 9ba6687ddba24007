"""Stored tools in a runtime: history, background calls and their bounds, secrets at rest, attachments in runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from actors import Agent, Runtime, Settings, open_runtime
from actors.apitools.caller import Bounds, open_caller
from actors.apitools.history import SEGMENTS, History, open_history
from actors.apitools.messages import CallRecord
from actors.apitools.queries import ApiRows, call_segments
from actors.apitools.vault import Vault
from actors.errors import Conflict, Invalid, Unavailable
from actors.ids import wall_clock
from actors.journal import open_memory
from actors.models.catalog import Models
from actors.testing.model import ScriptedModel, call, say
from actors.tools.egress import Egress, Reach
from actors.tools.http_api.call import ApiCall
from actors.tools.http_api.executor import Executor
from tests.apitools.target import Target, target

AGENT = Agent(name="root", model="scripted/x", safety="autonomous")


def tool(server: Target, path: str = "/ok", name: str = "ask", **changes: Any) -> dict[str, Any]:
    configuration = {"url": server.url(path), "method": "GET", **changes.pop("api_configuration", {})}
    return {"name": name, "input_schema": {"type": "object"}, "api_configuration": configuration, **changes}


@asynccontextmanager
async def running(
    folder: Path, *answers: Any, **settings: Any
) -> AsyncGenerator[tuple[Runtime, ScriptedModel]]:
    models = Models({}, folder)
    model = ScriptedModel(list(answers))
    models.register("scripted", model)
    given = Settings(data_dir=folder, working_dir=folder, allow_private_tools=True, **settings)
    async with open_runtime(given, agents=AGENT, models=models) as runtime:
        yield runtime, model


async def test_an_attached_tools_answer_is_in_the_next_model_request(tmp_path: Path) -> None:
    async with (
        target() as server,
        running(tmp_path, call("ask", {"q": "a b"}), say("done")) as (runtime, model),
    ):
        made = await runtime.api_tools.create(tool(server, "/missing"))
        await runtime.api_tools.attach("agent/root", [made.id])
        session = await runtime.create_session(title="t")
        assert await session.ask("go") == "done"
        assert server.seen[0].target == "/missing?q=a%20b"
        assert "알 수 없는 지점입니다." in model.requests[1].messages[-1].content
        page = await runtime.api_tools.history.of_session(session.id)
    (record,) = page.items
    assert (record.state, record.response.status, record.delivered_to_model) == ("failed", 404, True)


async def test_a_session_gets_its_tools_between_two_runs(tmp_path: Path) -> None:
    async with target() as server, running(tmp_path, say("1"), call("ask"), say("2")) as (runtime, model):
        session = await runtime.create_session(title="t")
        await session.ask("go")
        made = await runtime.api_tools.create(tool(server))
        await runtime.api_tools.attach(f"session/{session.id}", [made.id])
        await session.ask("again")
        assert [each.name for each in model.requests[0].tools] == []
        assert [each.name for each in model.requests[1].tools] == ["ask"]
        assert '{"status":200,"body":{"ok":true}}' in model.requests[2].messages[-1].content


async def test_bad_arguments_go_back_to_the_model_and_nothing_is_sent(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with target() as server, running(tmp_path, call("ask", {"n": "x"}), say("ok")) as (runtime, model):
        made = await runtime.api_tools.create({**tool(server), "input_schema": schema})
        await runtime.api_tools.attach("agent/root", [made.id])
        session = await runtime.create_session(title="t")
        await session.ask("go")
        told = model.requests[1].messages[-1].content
        assert '"kind":"arguments"' in told
        assert '"field":"n"' in told
        assert server.seen == []


async def test_a_background_call_outlives_turn_and_passivation_and_shows_only_in_the_history(
    tmp_path: Path,
) -> None:
    async with (
        target() as server,
        running(tmp_path, call("ask"), say("sent it"), say("more"), idle_after=0.05) as (runtime, model),
    ):
        made = await runtime.api_tools.create(tool(server, "/gated", response_mode="fire_and_forget"))
        await runtime.api_tools.attach("agent/root", [made.id])
        session = await runtime.create_session(title="t")
        with trio.fail_after(2):
            assert await session.ask("go") == "sent it"
        assert model.requests[1].messages[-1].content == '{"status":"sent"}'
        (pending,) = (await runtime.api_tools.history.of_session(session.id)).items
        assert (pending.state, pending.delivered_to_model) == ("pending", False)
        with trio.fail_after(5):
            while runtime.system.addresses("session"):
                await trio.sleep(0.02)
        seq = (await session.view()).seq
        server.release.set()
        with trio.fail_after(5):
            await runtime.api_tools.caller.drain()
        (done,) = (await runtime.api_tools.history.of_session(session.id)).items
        assert (done.state, done.response.body) == ("succeeded", '{"late":"LATE-ANSWER"}')
        assert (await session.view()).seq == seq
        await session.ask("and?")
        assert "LATE-ANSWER" not in str(model.requests)


async def test_background_calls_are_bounded_for_a_session_and_for_the_server() -> None:
    async with target() as server, caller_with(Bounds(session=2, server=3)) as (caller, history):
        fired = ApiCall(name="t", url=server.url("/gated"), response_mode="fire_and_forget")
        told = [
            (await caller.perform("t", fired, {}, {}, session_id=owner)).text
            for owner in ("a", "a", "a", "b", "c")
        ]
        busy = [text for text in told if '"kind":"busy"' in text]
        assert (told.count('{"status":"sent"}'), len(busy)) == (3, 2)
        assert caller.in_flight == 3
        server.release.set()
        await caller.drain()
        assert caller.in_flight == 0
        states = [each.state for each in (await history.of_tool("t")).items]
        assert sorted(states) == ["rejected", "rejected", "succeeded", "succeeded", "succeeded"]


async def test_an_emergency_stop_ends_background_calls(tmp_path: Path) -> None:
    async with target() as server, running(tmp_path, call("ask"), say("sent")) as (runtime, _):
        made = await runtime.api_tools.create(tool(server, "/hang", response_mode="fire_and_forget"))
        await runtime.api_tools.attach("agent/root", [made.id])
        session = await runtime.create_session(title="t")
        await session.ask("go")
        assert runtime.emergency_stop("fire") >= 1
        with trio.fail_after(2):
            await runtime.api_tools.caller.drain()
            await server.gone.wait()
        (record,) = (await runtime.api_tools.history.of_session(session.id)).items
        assert record.state == "cancelled"


@pytest.mark.parametrize(("path", "seconds", "state"), [("/hang", 0.1, "timed_out"), ("/page", 5, "failed")])
async def test_a_background_failure_is_recorded(path: str, seconds: float, state: str) -> None:
    async with target() as server, caller_with() as (caller, history):
        fired = ApiCall(name="t", url=server.url(path), response_mode="fire_and_forget", seconds=seconds)
        assert (await caller.perform("t", fired, {}, {}, session_id="s")).text == '{"status":"sent"}'
        await caller.drain()
        (record,) = (await history.of_session("s")).items
        assert record.state == state


async def test_a_cancelled_wait_is_recorded_as_cancelled() -> None:
    async with target() as server, caller_with() as (caller, history):
        with trio.move_on_after(0.1):
            await caller.perform("t", ApiCall(name="t", url=server.url("/hang")), {}, {}, session_id="s")
        (record,) = (await history.of_session("s")).items
        assert (record.state, record.error_kind) == ("cancelled", "cancelled")


async def test_secrets_are_nowhere_in_the_record() -> None:
    async with target() as server, caller_with() as (caller, history):
        made = ApiCall(
            name="t",
            url=server.url("/echo-secret?api_key=URLSECRET9"),
            auth_type="Bearer",
            credentials="TOKENSECRET9",
        )
        done = await caller.perform("t", made, {}, {}, session_id="s")
        (record,) = (await history.of_session("s")).items
        assert "SECRET9" not in done.text + str(record)
        assert record.response.body == '{"you_sent":"***"}'
        assert server.seen[0].headers["authorization"] == "Bearer TOKENSECRET9"


async def test_calls_of_a_dead_process_become_interrupted() -> None:
    async with open_memory() as log:
        log.register(ApiRows())
        lost = CallRecord(id="c", session_id="s", tool_id="t", tool_name="t", state="pending", started_at=1)
        async with open_history(log, "dead", wall_clock) as before:
            before.note(lost)
        async with open_history(log, "alive", wall_clock) as after:
            await after.recover(lambda owner: owner == "alive")
            (record,) = (await after.of_session("s")).items
    assert (record.state, record.error_kind) == ("failed", "interrupted")


async def test_the_history_keeps_a_bounded_number_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.apitools.history.SEGMENT_CALLS", 2)
    monkeypatch.setattr("actors.apitools.history.BATCH", 1)
    async with open_memory() as log:
        log.register(ApiRows())
        async with open_history(log, "me", wall_clock) as history:
            for number in range(2 * SEGMENTS + 10):
                history.note(a_call(number))
            page = await history.of_session("s", limit=100)
            segments = await log.query(call_segments)
    assert page.total == 2 * SEGMENTS
    assert len(segments) == SEGMENTS
    assert page.items[0].id == f"c{2 * SEGMENTS + 9:03}"


async def test_pages_of_calls_join_without_gap_or_repeat() -> None:
    async with open_memory() as log:
        log.register(ApiRows())
        async with open_history(log, "me", wall_clock) as history:
            for number in range(25):
                history.note(a_call(number))
            seen: list[str] = []
            cursor = ""
            while True:
                page = await history.of_session("s", limit=7, cursor=cursor)
                seen += [each.id for each in page.items]
                cursor = page.next_cursor
                if not cursor:
                    break
    assert seen == [f"c{number:03}" for number in reversed(range(25))]


async def test_credentials_are_sealed_on_disk_and_survive_a_restart(tmp_path: Path) -> None:
    database = tmp_path / "s.db"
    auth = {"auth_type": "Bearer", "auth_credentials": "CANARY-SECRET-1"}
    async with target() as server:
        async with running(tmp_path, database=database) as (runtime, _):
            made = await runtime.api_tools.create(tool(server, api_configuration=auth))
        for path in tmp_path.rglob("*"):
            if path.is_file():
                assert b"CANARY-SECRET-1" not in path.read_bytes(), path
        assert (tmp_path / "secret.key").stat().st_mode & 0o777 == 0o600
        async with running(tmp_path, database=database) as (runtime, _):
            await runtime.api_tools.patch(made.id, {"api_configuration": {"timeout_seconds": 5}})
            done = await runtime.api_tools.try_out(made.id, {}, {})
            assert done.record.request is not None
            assert "CANARY" not in str(done)
        assert server.seen[0].headers["authorization"] == "Bearer CANARY-SECRET-1"


def test_a_sealed_text_opens_only_for_its_owner_and_key(tmp_path: Path) -> None:
    sealed = Vault(tmp_path / "a").seal("text", "tool-1")
    assert Vault(tmp_path / "a").open(sealed, "tool-1") == "text"
    for vault, owner in (
        (Vault(tmp_path / "a"), "tool-2"),
        (Vault(tmp_path / "b"), "tool-1"),
        (Vault(tmp_path, "p"), "tool-1"),
    ):
        with pytest.raises(Unavailable):
            vault.open(sealed, owner)


async def test_two_tools_of_one_name_cannot_be_attached_together(tmp_path: Path) -> None:
    async with target() as server, running(tmp_path) as (runtime, _):
        first = await runtime.api_tools.create(tool(server))
        second = await runtime.api_tools.create(tool(server))
        other = await runtime.api_tools.create(tool(server, name="other"))
        with pytest.raises(Invalid, match="two tools"):
            await runtime.api_tools.attach("agent/root", [first.id, second.id])
        await runtime.api_tools.attach("agent/root", [first.id, other.id])
        with pytest.raises(Conflict, match="another tool"):
            await runtime.api_tools.patch(other.id, {"name": "ask"})
        with pytest.raises(Conflict, match="agent/root"):
            await runtime.api_tools.delete(first.id)
        await runtime.api_tools.attach("agent/root", [])
        await runtime.api_tools.delete(first.id)


def a_call(number: int) -> CallRecord:
    return CallRecord(
        id=f"c{number:03}", session_id="s", tool_id="t", tool_name="t", state="succeeded", started_at=number
    )


@asynccontextmanager
async def caller_with(bounds: Bounds | None = None) -> AsyncGenerator[tuple[Any, History]]:
    async with open_memory() as log:
        log.register(ApiRows())
        executor = Executor(Egress(reach=Reach(["127.0.0.0/8"])))
        async with (
            open_history(log, "me", wall_clock) as history,
            open_caller(executor, history, wall_clock, bounds) as caller,
        ):
            yield caller, history
