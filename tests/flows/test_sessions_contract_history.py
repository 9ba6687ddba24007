"""Sessions contract, section 7, cases 54 to 70: history, forks, the event stream, deletion."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio

from actors.agent.messages import TextDelta
from actors.journal.log import Append
from actors.models.provider import ModelRequest, ModelStream
from actors.session import codec
from actors.session import messages as m
from actors.session.create import create_session, stream_of
from actors.testing.model import Answer, ScriptedModel, call, hang, say, until
from tests.flows.kit import Api, open_api, types

NESTED = """\
agents:
  root: {model: scripted/x, description: R, instruction: i, sub_agents: [helper]}
  helper: {model: scripted/x, description: H, instruction: i}
"""
TASK = call("transfer_task", {"agent": "helper", "task": "t", "expected_output": "e"})


async def two_turns(api: Api) -> str:
    """Create a session with the history u0 a0 u1 a1."""
    session = await api.create(title="talk")
    for number in (0, 1):
        await api.turn(session, f"u{number}")
    return session


async def test_case_54_a_message_is_added_only_while_idle(tmp_path):
    go = trio.Event()
    async with open_api(tmp_path, [say("a") + until(go)]) as api:
        session = await api.create()
        body = {"message": {"agent_name": "", "message": {"role": "assistant", "content": "put in"}}}
        async with api.run(session, "hi") as stream:
            await stream.until("agent_choice")
            busy = await api.post(f"{session}/messages", body)
            go.set()
            await stream.rest()
        added = await api.post(f"{session}/messages", body)
        nothing = await api.post(f"{session}/messages")
        history = await api.contents(session)
    assert (busy.status, busy.json) == (409, {"message": "session is already processing a request"})
    assert (added.status, added.json) == (201, {"status": "added"})
    assert (nothing.status, nothing.json) == (400, {"message": "message is required"})
    assert history == [("user", "hi"), ("assistant", "a"), ("assistant", "put in")]


async def test_case_55_a_message_is_replaced_by_its_id_only_while_idle(tmp_path):
    go = trio.Event()
    async with open_api(tmp_path, [say("a") + until(go)]) as api:
        session = await api.create()
        body = {"message": {"message": {"role": "user", "content": "better"}}}
        async with api.run(session, "hi") as stream:
            await stream.until("agent_choice")
            busy = await api.patch(f"{session}/messages/1", body)
            go.set()
            await stream.rest()
        [first, _] = (await api.view(session))["messages"]
        replaced = await api.patch(f"{session}/messages/{first['id']}", body)
        no_number = await api.patch(f"{session}/messages/abc", body)
        unknown = await api.patch(f"{session}/messages/999", body)
        history = await api.contents(session)
    assert busy.status == 409
    assert (replaced.status, replaced.json) == (200, {"status": "updated"})
    assert no_number.status == 500
    assert no_number.json["message"].startswith("failed to update message: invalid message ID: ")
    assert unknown.status == 404
    assert history == [("user", "better"), ("assistant", "a")]


async def test_case_56_a_title_given_while_a_run_streams_stays(tmp_path):
    go = trio.Event()
    async with open_api(
        tmp_path, lambda request: say("a") + until(go) if request.tools else "Made up"
    ) as api:
        session = await api.create(title="")
        async with api.run(session, "hi") as stream:
            await stream.until("agent_choice")
            answer = await api.patch(f"{session}/title", {"title": "New"})
            go.set()
            await stream.rest()
        assert (answer.status, answer.json) == (200, {"id": session.rpartition("/")[2], "title": "New"})
        assert (await api.view(session))["title"] == "New"
        assert (await api.patch("/api/sessions/nobody/title", {"title": "x"})).status == 404


async def test_case_57_forks_copy_what_lies_before_a_user_message(tmp_path):
    async with open_api(tmp_path, ["a0", "a1"]) as api:
        session = await two_turns(api)
        first = await api.post(f"{session}/fork", {"user_message_index": 1})
        second = await api.post(f"{session}/fork", {"user_message_index": 1})
        third = await api.post(f"/api/sessions/{first.json['id']}/fork", {"user_message_index": 0})
    assert first.status == 200
    assert [each["message"]["content"] for each in first.json["messages"]] == ["u0", "a0"]
    assert [each.json["title"] for each in (first, second, third)] == [
        "talk (fork 1)",
        "talk (fork 2)",
        "talk (fork 3)",
    ]
    assert (first.json["input_tokens"], first.json["output_tokens"]) == (10, 5)
    assert "messages" not in third.json


async def test_case_58_a_fork_needs_a_user_message_of_the_session_itself(tmp_path):
    async with open_api(tmp_path, [TASK, "from helper", "a0", "a1"], agents={"my": NESTED}) as api:
        session = await two_turns(api)
        # user messages: u0, the sub-session's kick-off, u1
        for index, text in ((-1, "out of range: -1"), (3, "out of range: 3")):
            answer = await api.post(f"{session}/fork", {"user_message_index": index})
            assert (answer.status, answer.json["message"]) == (400, f"fork user-message index {text}")
        inside = await api.post(f"{session}/fork", {"user_message_index": 1})
        unknown = await api.post("/api/sessions/nobody/fork")
    assert inside.status == 400
    assert inside.json["message"] == "fork user-message index falls inside a sub-session at ordinal 1"
    assert unknown.status == 404


async def test_case_59_a_fork_and_its_parent_go_their_own_ways(tmp_path):
    async with open_api(tmp_path, ["a0", "a1", "other"]) as api:
        session = await two_turns(api)
        fork = (await api.post(f"{session}/fork", {"user_message_index": 1})).json["id"]
        before = await api.view(session)
        await api.turn(f"/api/sessions/{fork}", "elsewhere")
        await api.patch(f"/api/sessions/{fork}/title", {"title": "Mine"})
        assert await api.view(session) == before
        await api.delete(session)
        assert len(await api.contents(f"/api/sessions/{fork}")) == 4


async def test_case_60_a_sessions_stream_exists_from_its_creation(tmp_path):
    async with open_api(tmp_path, ["hello"]) as api:
        session = await api.create()
        async with api.events(session) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            first = await stream.next()
            assert first is not None
            await api.turn(session, "hi")
            await stream.until("stream_stopped")
            assert [event.id for event in stream.seen] == [str(n + 1) for n in range(len(stream.seen))]
        unknown = await api.get("/api/sessions/nobody/events")
    assert unknown.status == 404


async def test_case_61_a_follower_goes_on_where_it_left(tmp_path):
    async with open_api(tmp_path, ["hello", "again"]) as api:
        session = await api.create()
        await api.turn(session, "hi")
        async with api.events(session, Last_Event_ID="2") as stream:
            await stream.until("stream_stopped")
            await api.turn(session, "more")
            await stream.until("stream_stopped")
            ids = [int(event.id) for event in stream.seen]
    assert ids == list(range(3, 3 + len(ids)))


async def test_case_62_since_wins_over_the_header(tmp_path):
    async with open_api(tmp_path, ["hello"]) as api:
        session = await api.create()
        await api.turn(session, "hi")
        async with api.events(session, "?since=1", Last_Event_ID="4") as stream:
            for _ in range(4):
                await stream.next()
            assert [event.id for event in stream.seen] == ["2", "3", "4", "5"]


async def test_case_63_history_longer_than_the_buffer_is_replayed_whole(tmp_path):
    """The original forgets all but 1024 events; here the log has them, so there is no gap to signal."""
    async with open_api(tmp_path) as api:
        view = await create_session(api.runtime.journal, api.runtime.now(), m.Template())
        items = [codec.Numbered(2 + n, 0.0, TextDelta(text="x")) for n in range(1033)]
        stream = stream_of(view.id)
        await api.runtime.journal.append(
            Append(stream=stream, expected=1, records=tuple(codec.encode(items)))
        )
        async with api.events(f"/api/sessions/{view.id}", "?since=3") as followed:
            for _ in range(1031):
                await followed.next()
            assert [int(event.id) for event in followed.seen] == list(range(4, 1035))


async def test_case_63_a_cursor_beyond_the_end_gets_a_gap(tmp_path):
    async with open_api(tmp_path, ["hello"]) as api:
        session = await api.create()
        async with api.events(session, "?since=1000000") as stream:
            gap = await stream.next()
            await api.turn(session, "hi")
            await stream.until("stream_stopped")
    assert gap is not None
    assert (gap.id, gap.data) == ("", {"type": "gap"})


async def test_case_64_from_the_last_event_only_new_ones_come(tmp_path):
    async with open_api(tmp_path, ["hello", "again"]) as api:
        session = await api.create()
        await api.turn(session, "hi")
        last = (await api.get(f"{session}/snapshot")).json["last_event_seq"]
        async with api.events(session, f"?since={last}") as stream:
            await api.turn(session, "more")
            first = await stream.next()
    assert first is not None
    assert (first.id, first.type != "gap") == (str(last + 1), True)


async def test_case_65_deletion_ends_the_stream_with_a_last_word(tmp_path):
    async with open_api(tmp_path) as api:
        session = await api.create()
        async with api.events(session) as stream:
            await stream.next()
            assert (await api.delete(session)).json == {"message": "session deleted"}
            events = await stream.rest()
        assert events[-1].data == {"type": "session_exited", "reason": "session ended"}
        assert events[-1].id == "2"
        assert (await api.get(f"{session}/events")).status == 404
        assert (await api.get(session)).status == 404
        assert (await api.get("/api/sessions")).json == []


async def test_case_66_a_reader_that_stalls_delays_nobody(tmp_path):
    flood = say("x" * 20_000, chunks=5_000)
    async with open_api(tmp_path, [flood]) as api:
        session = await api.create()
        async with api.stream("GET", f"{session}/events") as stalled, api.events(session) as reading:
            assert stalled.status == 200
            events = await api.turn(session, "hi")
            await reading.until("stream_stopped")
            # Nothing was dropped for the slow one either: the log has what it has not read.
            await stalled.until("stream_stopped")
            assert [event.id for event in stalled.seen] == [event.id for event in reading.seen]
    assert types(events).count("agent_choice") == 5_000


async def test_case_67_silence_is_filled_with_pings(tmp_path, mock_clock, monkeypatch):
    monkeypatch.setattr("tests.gateway.kit.PATIENCE", 600.0)
    mock_clock.rate = 300
    async with open_api(tmp_path, patience=600) as api:
        session = await api.create()
        async with api.events(session) as stream:
            await stream.next()
            began = trio.current_time()
            ping = await stream.next()
            seconds = trio.current_time() - began
    assert ping is not None
    assert (ping.comment, ping.data) == ("ping", {})
    assert 14 < seconds < 60


async def test_case_68_a_snapshot_and_what_follows_it_miss_nothing(tmp_path):
    async with open_api(tmp_path, ["hello", "again"]) as api:
        session = await api.create()
        await api.turn(session, "hi")
        snapshot = (await api.get(f"{session}/snapshot")).json
        await api.turn(session, "between")
        async with api.events(session, f"?since={snapshot['last_event_seq']}") as stream:
            stopped = await stream.until("stream_stopped")
            ids = [int(event.id) for event in stream.seen]
            messages = [event["message"] for event in stream.seen if event.type == "user_message"]
    assert [each["message"]["content"] for each in snapshot["messages"]] == ["hi", "hello"]
    assert ids == list(range(snapshot["last_event_seq"] + 1, int(stopped.id) + 1))
    assert messages == ["between"]


async def test_case_69_deletion_can_wait_for_the_run_to_stop(tmp_path):
    async with open_api(tmp_path, [say("a") + hang()]) as api:
        session = await api.create()
        async with api.run(session, "hi") as stream:
            await stream.until("agent_choice")
            assert (await api.delete(f"{session}?timeout=x")).status == 400
            answer = await api.delete(f"{session}?wait=true")
        assert (answer.status, answer.json) == (200, {"message": "session deleted"})
        assert api.model.outcomes == ["abandoned"]


class Stubborn(ScriptedModel):
    """A model whose call does not end when it is cancelled, but when it is let go."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__(answers)
        self.let_go = trio.Event()

    @asynccontextmanager
    async def open_stream(self, request: ModelRequest) -> AsyncGenerator[ModelStream]:
        try:
            async with super().open_stream(request) as stream:
                yield stream
        finally:
            with trio.fail_after(5, shield=True):
                await self.let_go.wait()


async def test_case_69_but_not_for_ever(tmp_path):
    model = Stubborn(say("a") + hang())
    async with open_api(tmp_path, model) as api:
        session = await api.create()
        async with api.run(session, "hi") as stream:
            await stream.until("agent_choice")
            answer = await api.delete(f"{session}?wait=true&timeout=10ms")
            model.let_go.set()
    assert (answer.status, answer.json) == (202, {"message": "session deleted, stop still in progress"})


@pytest.mark.parametrize("query", ["", "?wait=true"])
async def test_case_70_an_unknown_session_cannot_be_deleted(tmp_path, query):
    async with open_api(tmp_path) as api:
        answer = await api.delete(f"/api/sessions/nobody{query}")
    assert answer.status == 404
    assert answer.json["message"].startswith("failed to delete session: session")
