"""Approvals that were open when a process ended are answered in the next one, and each call still runs at most once."""

from __future__ import annotations

import pytest

from actors.testing.model import Answer, call, calls
from tests.flows.kit import Api, open_api, types


def append(name: str) -> Answer:
    """Call a tool that needs approval and leaves a trace each time it runs."""
    return call("shell", {"cmd": f"echo {name} >> trace"})


def trace(folder) -> list[str]:
    found = folder / "trace"
    return found.read_text().split() if found.exists() else []


async def resumed(api: Api, session: str, **decision: str) -> list[str]:
    """Decide, and return the types of the events from then to the run's end."""
    after = (await api.get(f"{session}/snapshot")).json["last_event_seq"]
    async with api.events(session, f"?since={after}") as stream:
        answer = await api.post(f"{session}/resume", {"confirmation": "approve", **decision})
        assert answer.status == 200, answer.body
        await stream.until("stream_stopped")
        return types(stream.seen)


async def suspended(tmp_path, *answers: Answer | str, then: int = 0) -> str:
    """Run up to an approval (answering ``then`` before it), and end the process."""
    async with open_api(tmp_path, answers, database=tmp_path / "s.db") as api:
        session = await api.create()
        async with api.run(session, "go", headers={"X_On_Disconnect": "continue"}) as stream:
            await stream.until("tool_call_confirmation")
            for _ in range(then):
                await api.post(f"{session}/resume", {"confirmation": "approve"})
                # The approved call may end before or after the next one asks.
                missing = {"tool_call_response", "tool_call_confirmation"}
                while missing and (event := await stream.next()) is not None:
                    missing.discard(event.type)
                assert not missing
    return session


async def test_an_approval_given_after_a_restart_runs_the_call_once_without_a_second_question(tmp_path):
    session = await suspended(tmp_path, append("a"))
    async with open_api(tmp_path, ["done"], database=tmp_path / "s.db") as api:
        snapshot = (await api.get(f"{session}/snapshot")).json
        assert snapshot["streaming"] is True
        seen = await resumed(api, session)
        assert "tool_call_confirmation" not in seen
        assert seen.count("tool_call") == seen.count("tool_call_response") == 1
        assert trace(tmp_path) == ["a"]
        assert (await api.contents(session))[-1] == ("assistant", "done")
        assert (await api.get(f"{session}/status")).json["streaming"] is False
        again = await api.post(f"{session}/resume", {"confirmation": "approve"})
        assert again.status == 200
    assert trace(tmp_path) == ["a"]


async def test_the_next_identical_call_asks_again(tmp_path):
    session = await suspended(tmp_path, append("a"))
    script = [append("a"), "done"]
    async with open_api(tmp_path, script, database=tmp_path / "s.db") as api, api.events(session) as stream:
        await api.post(f"{session}/resume", {"confirmation": "approve"})
        first = await stream.until("tool_call_confirmation")
        second = await stream.until("tool_call_confirmation")
        assert first["approval_id"] != second["approval_id"]
        assert trace(tmp_path) == ["a"]
        await api.post(f"{session}/resume", {"confirmation": "reject"})
        await stream.until("stream_stopped")
    assert trace(tmp_path) == ["a"]


async def test_a_rejection_after_a_restart_reaches_the_model(tmp_path):
    session = await suspended(tmp_path, append("a"))
    async with open_api(tmp_path, ["understood"], database=tmp_path / "s.db") as api:
        await resumed(api, session, confirmation="reject", reason="no")
        prompt = api.model.requests[0].messages
    assert prompt[-1].content == "The user rejected the tool call. Reason: no"
    assert trace(tmp_path) == []


async def test_of_several_calls_the_ended_keep_their_results_and_the_open_ask_under_their_old_id(tmp_path):
    three = calls([append("a"), append("b"), append("c")])
    session = await suspended(tmp_path, three, then=1)
    assert trace(tmp_path) == ["a"]
    async with open_api(tmp_path, ["done"], database=tmp_path / "s.db") as api:
        async with api.events(session) as stream:
            await stream.until("tool_call_confirmation")
            open_one = await stream.until("tool_call_confirmation")
            wrong = await api.post(f"{session}/resume", {"confirmation": "approve", "approval_id": "other"})
            assert wrong.status == 409
            named = {"confirmation": "approve", "approval_id": open_one["approval_id"]}
            assert (await api.post(f"{session}/resume", named)).status == 200
            last = await stream.until("tool_call_confirmation")
            assert last["approval_id"] != open_one["approval_id"]
            await api.post(f"{session}/resume", {"confirmation": "approve"})
            await stream.until("stream_stopped")
        results = [text for role, text in await api.contents(session) if role == "tool"]
    assert len(results) == 3
    assert sorted(trace(tmp_path)) == ["a", "b", "c"]


async def test_a_word_that_decides_nothing_leaves_it_waiting(tmp_path):
    session = await suspended(tmp_path, append("a"))
    for _ in range(2):
        async with open_api(tmp_path, ["done"], database=tmp_path / "s.db") as api:
            assert (await api.post(f"{session}/resume", {"confirmation": "bogus"})).status == 200
            assert (await api.get(f"{session}/snapshot")).json["streaming"] is True
    async with open_api(tmp_path, ["done"], database=tmp_path / "s.db") as api:
        await resumed(api, session, confirmation="approve-tool")
        assert (await api.view(session))["permissions"] == {"allow": ["shell"]}
    assert trace(tmp_path) == ["a"]


@pytest.mark.parametrize("way", ["cancel", "run", "delete"])
async def test_what_waits_can_be_given_up(tmp_path, way):
    session = await suspended(tmp_path, append("a"))
    async with open_api(tmp_path, ["fresh"], database=tmp_path / "s.db") as api:
        if way == "delete":
            assert (await api.delete(session)).status == 200
            assert (await api.get(session)).status == 404
            return
        if way == "cancel":
            assert (await api.post(f"{session}/cancel")).status == 200
            assert (await api.get(f"{session}/snapshot")).json["streaming"] is False
        await api.turn(session, "something else")
        history = await api.contents(session)
        late = await api.post(f"{session}/resume", {"confirmation": "approve"})
        assert late.status == 200
    assert [role for role, _ in history] == ["user", "assistant", "tool", "user", "assistant"]
    assert trace(tmp_path) == []


async def test_a_delegated_agents_open_approval_ends_with_its_process(tmp_path):
    agents = """\
agents:
  root: {model: scripted/x, description: R, instruction: i, sub_agents: [h]}
  h: {model: scripted/x, description: H, instruction: i, toolsets: [{type: shell}]}
"""
    task = call("transfer_task", {"agent": "h", "task": "t", "expected_output": "e"})
    database = tmp_path / "s.db"
    async with open_api(tmp_path, [task, append("a")], agents={"my": agents}, database=database) as api:
        session = await api.create()
        async with api.run(session, "go", headers={"X_On_Disconnect": "continue"}) as stream:
            await stream.until("tool_call_confirmation")
    async with open_api(tmp_path, ["fine"], agents={"my": agents}, database=database) as api:
        assert (await api.get(f"{session}/snapshot")).json["streaming"] is False
        assert (await api.post(f"{session}/resume", {"confirmation": "approve"})).status == 404
        await api.turn(session, "again")
    assert trace(tmp_path) == []
