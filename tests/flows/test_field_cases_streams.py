"""What went wrong with streams, cancellation and endings elsewhere, tried against the real server."""

from __future__ import annotations

import pytest
import trio

from actors.testing.model import call, calls, hang, say, until
from tests.flows.kit import MY, Api, open_api, text, types
from tests.flows.test_sessions_contract_runs import SHELL

NESTED = """\
agents:
  root: {model: scripted/x, description: R, instruction: i, sub_agents: [a]}
  a: {model: scripted/x, description: A, instruction: i, sub_agents: [b]}
  b: {model: scripted/x, description: B, instruction: i}
"""


async def test_text_that_looks_like_event_fields_forges_none(tmp_path):
    nasty = "a\r\ndata: {}\r\rid: 99\n\nevent: x\u2028data: y\u2029\u0085<&>"
    async with open_api(tmp_path, [say(nasty)]) as api:
        session = await api.create()
        events = await api.turn(session, "hi")
        async with api.events(session) as stream:
            await stream.until("stream_stopped")
            ids = [int(event.id) for event in stream.seen]
    assert text(events) == nasty
    assert ids == list(range(1, len(ids) + 1))


async def test_two_followers_each_get_everything(tmp_path):
    async with open_api(tmp_path, [say("word " * 50, chunks=50)]) as api:
        session = await api.create()
        async with api.events(session) as one, api.events(session) as two:
            await api.turn(session, "hi")
            await one.until("stream_stopped")
            await two.until("stream_stopped")
    assert [event.id for event in one.seen] == [event.id for event in two.seen]
    assert text(one.seen) == text(two.seen) == "word " * 50


async def first_event(api: Api, session: str, query: str, **headers: str) -> str:
    """Return the first event that a cursor gives once more is said: its id, or its type when it has none."""
    async with api.events(session, query, **headers) as stream:
        await api.patch(f"{session}/starred", {"starred": True})
        event = await stream.next()
    assert event is not None
    return event.id or event.type


@pytest.mark.parametrize(
    ("cursor", "expected"),
    [
        ("{n}", "{n}+1"),
        ("{n1}", "gap"),
        ("1000000", "gap"),
        ("9223372036854775807", "gap"),
        ("18446744073709551616", "gap"),
        ("9" * 5000, "gap"),
        ("007", "8"),
        (" 3 ", "4"),
        ("0", "1"),
        ("-1", "1"),
        ("1e3", "1"),
        ("abc", "1"),
        ("%31", "1"),
        ("", "1"),
    ],
)
async def test_no_cursor_breaks_the_stream_or_silently_starts_over(tmp_path, cursor, expected):
    async with open_api(tmp_path, ["hello"]) as api:
        session = await api.create()
        await api.turn(session, "hi")
        newest = (await api.get(f"{session}/snapshot")).json["last_event_seq"]
        header = cursor.format(n=newest, n1=newest + 1)
        found = await first_event(api, session, "", Last_Event_ID=header)
    assert found == (str(newest + 1) if expected == "{n}+1" else expected)


async def test_a_number_from_before_a_restart_goes_on_exactly(tmp_path):
    database = tmp_path / "s.db"
    async with open_api(tmp_path, [say("x" * 30, chunks=30)], database=database) as api:
        session = await api.create()
        await api.turn(session, "hi")
        async with api.events(session) as stream:
            await stream.until("stream_stopped")
            before = [(event.id, event.data) for event in stream.seen]
    async with open_api(tmp_path, ["again"], database=database) as api:
        cut = len(before) // 2
        async with api.events(session, f"?since={before[cut - 1][0]}") as stream:
            await stream.until("stream_stopped")
            assert [(event.id, event.data) for event in stream.seen] == before[cut:]
            await api.turn(session, "more")
            following = await stream.next()
    assert following is not None
    assert int(following.id) > int(before[-1][0])


async def test_stopping_a_session_stops_the_agents_below_it(tmp_path):
    script = [
        call("transfer_task", {"agent": "a", "task": "t", "expected_output": "e"}),
        call("transfer_task", {"agent": "b", "task": "t", "expected_output": "e"}),
        say("deep") + hang(),
        "next",
    ]
    async with open_api(tmp_path, script, agents={"my": NESTED}) as api:
        session = await api.create()
        async with api.run(session, "go") as stream:
            await stream.until("agent_choice")
            assert (await api.post(f"{session}/cancel")).status == 200
            events = await stream.rest()
        stopped = [event for event in events if event.type == "stream_stopped"]
        assert [event["reason"] for event in stopped] == ["canceled"] * 3
        assert types(events)[-1] == "stream_stopped"
        assert api.model.running == 0
        assert len(api.model.requests) == 3
        assert text(await api.turn(session, "again")) == "next"


async def test_a_cancelled_tool_is_over_at_once_and_its_late_result_is_not_written(tmp_path):
    sleeper = call("shell", {"cmd": "trap '' TERM; sleep 60; echo late"})
    async with open_api(tmp_path, [sleeper, "next"]) as api:
        session = await api.create(safety_policy="autonomous")
        async with api.run(session, "go") as stream:
            await stream.until("tool_call")
            with trio.fail_after(5):
                await api.post(f"{session}/cancel")
                await stream.rest()
        last = (await api.get(f"{session}/snapshot")).json["last_event_seq"]
        await api.turn(session, "again")
        results = [content for role, content in await api.contents(session) if role == "tool"]
        async with api.events(session, f"?since={last}") as followed:
            await followed.until("stream_stopped")
            assert "tool_call_response" not in types(followed.seen)
    assert results == ["The tool call was canceled by the user."]


@pytest.mark.parametrize(
    "kind", ["toolset_info", "agent_choice", "partial_tool_call", "message_added", "tool_call"]
)
async def test_a_run_cut_at_any_point_leaves_a_history_that_strict_providers_take(tmp_path, kind):
    both = calls([SHELL, call("shell", {"cmd": "sleep 60"})])
    more = hang() if kind in ("toolset_info", "agent_choice", "partial_tool_call") else say("")
    async with open_api(tmp_path, [say("text ") + both + more, "fine"]) as api:
        session = await api.create(safety_policy="autonomous")
        async with api.run(session, "go") as stream:
            await stream.until(kind)
        async with api.events(session) as followed:
            await followed.until("stream_stopped")
        if len(api.model.requests) == 0:
            api.model.extend("fine")
            await api.turn(session, "one more")
        assert text(await api.turn(session, "again")) in ("fine", "text ")
        assert api.model.outcomes[-1] == "completed"


async def test_an_answer_cut_off_inside_a_call_runs_nothing(tmp_path):
    cut = call("shell", '{"cmd": "echo ran > trace').ending("length")
    async with open_api(tmp_path, [cut, "sorry"]) as api:
        events = await api.turn(await api.create(safety_policy="autonomous"), "go")
    assert "tool_call" not in types(events)
    assert not tmp_path.joinpath("trace").exists()
    assert text(events) == "sorry"


async def test_a_giant_result_is_kept_as_an_excerpt(tmp_path):
    giant = call("shell", {"cmd": "yes 0123456789 | head -c 30000000"})
    async with open_api(tmp_path, [giant, "fine"]) as api:
        session = await api.create(safety_policy="autonomous")
        events = await api.turn(session, "go")
        [result] = [content for role, content in await api.contents(session) if role == "tool"]
    assert text(events) == "fine"
    assert len(result) < 200_000
    assert all(len(str(event.data)) < 500_000 for event in events)


async def test_text_no_encoding_can_carry_is_replaced_on_the_way_in(tmp_path):
    broken = call("shell", {"cmd": r"printf 'a\377b\000c'; printf '\360\237\230'"})
    async with open_api(tmp_path, [broken, r"say \ud800", "fine"]) as api:
        session = await api.create(safety_policy="autonomous")
        assert types(await api.turn(session, "go"))[-1] == "stream_stopped"
        lone = await api.post(f"{session}/agent/my", b'{"messages":[{"role":"user","content":"\\ud83d!"}]}')
        assert lone.status in (200, 400)
        [result] = [content for role, content in await api.contents(session) if role == "tool"]
    assert result.encode()
    assert "\x00" not in result


async def test_a_server_that_stops_ends_streams_between_events(tmp_path):
    go = trio.Event()
    async with open_api(tmp_path, [say("word " * 40, chunks=40, every=0.01) + until(go)]) as api:
        session = await api.create()
        async with api.events(session) as followed, api.run(session, "go") as stream:
            await stream.until("agent_choice")
            api.server.stop.request("the test says so")
            await stream.rest()
            await followed.rest()
            assert stream.seen[-1].comment or stream.seen[-1].data


async def test_what_a_client_sees_of_approvals_tells_why_each_ended(tmp_path):
    async with open_api(tmp_path, [SHELL, "ok", SHELL, "ok"], agents={"my": MY}) as api:
        session = await api.create()
        for way in ("reject", "cancel"):
            async with api.run(session, "go") as stream:
                await stream.until("tool_call_confirmation")
                if way == "reject":
                    await api.post(f"{session}/resume", {"confirmation": "reject"})
                else:
                    await api.post(f"{session}/cancel")
                await stream.rest()
        async with api.events(session) as followed:
            verdicts = [(await followed.until("approval_decided"))["verdict"] for _ in range(2)]
    assert verdicts == ["rejected", "cancelled"]
