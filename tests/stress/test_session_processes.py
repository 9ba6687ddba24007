"""Sessions under real processes: two servers on one database, killed owners, contested approvals, a full disk."""

from __future__ import annotations

import random
import resource
from pathlib import Path

import pytest
import trio

from tests.flows.kit import Api, text, types
from tests.gateway.kit import Answer
from tests.stress.serving import greenroom, stub_model

pytestmark = pytest.mark.stress


def trace(folder: Path) -> int:
    found = folder / "trace"
    return len(found.read_text().split()) if found.exists() else 0


async def waiting_for_approval(api: Api, session: str) -> None:
    """Start a run that stops at a question and goes on without us."""
    async with api.run(session, "tool please", headers={"X_On_Disconnect": "continue"}) as stream:
        await stream.until("tool_call_confirmation")


async def decide(apis: list[Api], session: str, count: int) -> list[Answer]:
    """Approve many times at once, spread over the servers."""
    answers: list[Answer] = []

    async def one(api: Api) -> None:
        answers.append(await api.post(f"{session}/resume", {"confirmation": "approve"}))

    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(one, apis[number % len(apis)])
    return answers


async def test_a_run_belongs_to_one_server_until_that_server_dies(tmp_path: Path) -> None:
    async with stub_model(tmp_path), greenroom(tmp_path) as one, greenroom(tmp_path) as two:
        session = await one.api.create()
        async with one.api.run(session, "slow") as stream, two.api.events(session) as followed:
            await stream.until("agent_choice")
            busy = await two.api.refused(session, "me too")
            seen = await followed.until("agent_choice")
            assert (busy.status, seen["content"]) == (409, "word ")
            await one.kill()
            events = await two.api.turn(session, "hi")
            stopped = await followed.until("stream_stopped")
            await followed.until("stream_stopped", reason="normal")
            ids = [int(event.id) for event in followed.seen if event.id]
        assert stopped["reason"] == "canceled"
        assert text(events) == "ok"
        assert ids == sorted(set(ids))
        history = await two.api.contents(session)
    assert [role for role, _ in history] == ["user", "assistant", "user", "assistant"]
    assert history[0] == ("user", "slow")
    assert history[1][1].startswith("word ")
    assert history[2:] == [("user", "hi"), ("assistant", "ok")]


async def test_of_twenty_prompts_over_two_servers_one_runs_at_a_time(tmp_path: Path) -> None:
    async with stub_model(tmp_path), greenroom(tmp_path) as one, greenroom(tmp_path) as two:
        session = await one.api.create()
        answers: list[Answer] = []

        async def prompt(api: Api, number: int) -> None:
            answers.append(await api.refused(session, f"slow {number}"))

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(prompt, (one, two)[number % 2].api, number)
        history = await one.api.contents(session)
        assert history == await two.api.contents(session)
    accepted = [answer for answer in answers if answer.status == 200]
    assert {answer.status for answer in answers} == {200, 409}
    assert [role for role, _ in history] == ["user", "assistant"] * len(accepted)


async def test_a_contested_approval_runs_its_tool_once(tmp_path: Path) -> None:
    async with stub_model(tmp_path), greenroom(tmp_path) as one, greenroom(tmp_path) as two:
        session = await one.api.create()
        await waiting_for_approval(one.api, session)
        answers = await decide([one.api, two.api], session, 100)
        async with one.api.events(session) as stream:
            await stream.until("stream_stopped")
    assert {answer.status for answer in answers} <= {200, 404, 409}
    assert trace(tmp_path) == 1


async def test_an_approval_of_a_dead_server_is_taken_over_by_one_of_the_others(tmp_path: Path) -> None:
    async with stub_model(tmp_path), greenroom(tmp_path) as one, greenroom(tmp_path) as two:
        session = await one.api.create()
        await waiting_for_approval(one.api, session)
        await one.kill()
        async with greenroom(tmp_path) as three:
            answers = await decide([two.api, three.api], session, 60)
            async with two.api.events(session) as stream:
                await stream.until("stream_stopped")
                seen = types(stream.seen)
    assert {answer.status for answer in answers} <= {200, 404, 409}
    assert 200 in {answer.status for answer in answers}
    assert trace(tmp_path) == 1
    assert seen.count("tool_call_confirmation") == seen.count("tool_call_response") == 1
    assert seen.count("stream_stopped") == 1


async def test_a_server_killed_in_the_middle_of_turns_leaves_sessions_that_go_on(tmp_path: Path) -> None:
    dice = random.Random(11)
    async with stub_model(tmp_path):
        async with greenroom(tmp_path) as server:
            sessions = [await server.api.create(safety_policy="autonomous") for _ in range(4)]
        last = dict.fromkeys(sessions, 0)
        for _ in range(8):
            async with greenroom(tmp_path) as server, trio.open_nursery() as nursery:
                for session in sessions:
                    prompt = dice.choice(["slow", "tool", "quick"])
                    nursery.start_soon(run_until_cut, server.api, session, prompt, last)
                await trio.sleep(dice.uniform(0.05, 0.6))
                await server.kill()
        async with greenroom(tmp_path) as server:
            for session in sessions:
                with trio.fail_after(10):
                    while (await server.api.get(f"{session}/snapshot")).json["streaming"]:
                        await trio.sleep(0.05)
                events = await server.api.turn(session, "still there?")
                assert text(events) == "ok", types(events)
                assert (await server.api.get(f"{session}/snapshot")).json["last_event_seq"] > last[session]
                async with server.api.events(session) as stream:
                    await stream.until("user_message", message="still there?")
                    await stream.until("stream_stopped")
                    kinds = types(stream.seen)
                assert kinds.count("stream_started") == kinds.count("stream_stopped")
                ids = [int(event.id) for event in stream.seen if event.id]
                assert ids == sorted(set(ids))


async def run_until_cut(api: Api, session: str, prompt: str, last: dict[str, int]) -> None:
    """Run turns until the server is gone; note the highest event number that was seen on ``/events``."""
    after = last[session]

    async def follow() -> None:
        async with api.events(session, f"?since={after}") as stream:
            while (event := await stream.next()) is not None:
                if event.id:
                    assert int(event.id) > last[session]
                    last[session] = int(event.id)

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            while True:
                await api.turn(session, prompt)
    except* (OSError, EOFError, trio.BrokenResourceError, ValueError, AssertionError, IndexError):
        pass  # cut off in the middle of whatever was read


async def test_a_full_disk_refuses_changes_and_nothing_else(tmp_path: Path) -> None:
    async with stub_model(tmp_path), greenroom(tmp_path) as server:
        session = await server.api.create()
        await server.api.turn(session, "hi")
        before = await server.api.view(session)
        pid = server.process.pid
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1024, resource.RLIM_INFINITY))
        refused = [
            await server.api.post("/api/sessions", {"title": "x"}),
            await server.api.patch(f"{session}/title", {"title": "y"}),
            await server.api.refused(session, "more"),
        ]
        assert [answer.status for answer in refused] == [503, 503, 503]
        assert all("message" in answer.json for answer in refused)
        assert (await server.api.get("/health")).status == 200
        assert await server.api.view(session) == before
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert text(await server.api.turn(session, "more")) == "ok"
        assert len(await server.api.contents(session)) == 4
