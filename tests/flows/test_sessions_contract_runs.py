"""Sessions contract, section 7, cases 30 to 53: runs, models, approvals."""

from __future__ import annotations

import pytest
import trio

from actors.testing.model import call, calls, hang, say, until, wait
from tests.flows.kit import MY, Event, open_api, text, types

TEAM = """\
agents:
  root: {model: scripted/x, description: R, instruction: i}
  coder: {model: scripted/x, description: C, instruction: i}
  reviewer: {model: scripted/x, description: V, instruction: i}
"""
SHELL = call("shell", {"cmd": "echo out"})


def in_order(events: list[Event], *wanted: str) -> bool:
    """Tell whether the types occur in this order, others between them."""
    found = iter(types(events))
    return all(kind in found for kind in wanted)


def response(events: list[Event]) -> str:
    return next(event["response"] for event in events if event.type == "tool_call_response")


async def test_case_30_a_run_streams_the_documented_events(tmp_path):
    async with open_api(tmp_path, [say("Hello! How can I help?", chunks=4)]) as api:
        session = await api.create()
        async with api.run(session, "Hello") as stream:
            events = await stream.rest()
            headers = stream.headers
    assert headers["content-type"].startswith("text/event-stream")
    assert headers["cache-control"] == "no-cache"
    assert in_order(events, "user_message", "stream_started", "agent_choice", "token_usage", "stream_stopped")
    assert types(events)[-1] == "stream_stopped"
    assert text(events) == "Hello! How can I help?"
    assert types(events).count("agent_choice") == 4
    first = next(event for event in events if event.type == "agent_choice")
    assert first["agent_name"] == first["agent"] == "root"
    assert all("timestamp" in event.data for event in events)
    assert "agent_name" not in next(event for event in events if event.type == "user_message").data


async def test_case_31_a_named_agent_answers(tmp_path):
    async with open_api(tmp_path, ["ok"], agents={"team": TEAM}) as api:
        events = await api.turn(await api.create(), "hi", agent="team/reviewer")
    assert {event["agent_name"] for event in events if event.type == "agent_choice"} == {"reviewer"}


async def test_case_32_later_runs_keep_the_first_runs_agent(tmp_path):
    async with open_api(tmp_path, ["one", "two"], agents={"team": TEAM}) as api:
        session = await api.create()
        await api.turn(session, "hi", agent="team/reviewer")
        events = await api.turn(session, "hi", agent="team/coder")
    assert {event["agent_name"] for event in events if event.type == "agent_choice"} == {"reviewer"}


async def test_case_33_a_run_of_something_unknown_is_not_found(tmp_path):
    async with open_api(tmp_path) as api:
        session = await api.create()
        agent = await api.refused(session, "hi", agent="nobody")
        other = await api.refused("/api/sessions/nobody", "hi")
        history = await api.contents(session)
    assert agent.status == 404
    assert "agent not found: nobody" in agent.json["message"]
    assert other.status == 404
    assert history == []


async def test_case_34_a_second_run_of_a_session_is_refused(tmp_path):
    go = trio.Event()
    async with open_api(tmp_path, [say("a") + until(go)]) as api:
        session = await api.create()
        async with api.run(session, "first") as stream:
            await stream.until("agent_choice")
            answer = await api.refused(session, "second")
            go.set()
            await stream.rest()
        history = await api.contents(session)
    assert (answer.status, answer.json) == (409, {"message": "session is already processing a request"})
    assert history == [("user", "first"), ("assistant", "a")]


async def test_case_35_two_sessions_run_side_by_side(tmp_path):
    go = trio.Event()
    async with open_api(tmp_path, [say("a") + until(go), say("b") + until(go)]) as api:
        first, second = await api.create(), await api.create()
        async with api.run(first, "1") as one, api.run(second, "2") as two:
            assert (await one.until("agent_choice"))["content"] == "a"
            assert (await two.until("agent_choice"))["content"] == "b"
            go.set()
            assert types(await one.rest())[-1] == types(await two.rest())[-1] == "stream_stopped"


async def test_case_36_a_drained_run_is_over(tmp_path):
    async with open_api(tmp_path, lambda _: "ok") as api:
        session = await api.create()
        for _ in range(20):
            assert text(await api.turn(session, "hi")) == "ok"


async def test_case_37_a_client_that_leaves_cancels_its_run(tmp_path):
    async with open_api(tmp_path, [say("half ") + hang(), "again"]) as api:
        session = await api.create()
        async with api.run(session, "hi") as stream:
            await stream.until("agent_choice")
        async with api.events(session) as followed:
            stopped = await followed.until("stream_stopped")
        assert stopped["reason"] == "canceled"
        assert text(await api.turn(session, "more")) == "again"
        assert api.model.outcomes == ["abandoned", "completed"]
        assert (await api.contents(session))[1] == ("assistant", "half ")


async def test_case_37_unless_it_asked_for_the_run_to_go_on(tmp_path):
    go = trio.Event()
    async with open_api(tmp_path, [say("half ") + until(go) + say("whole")]) as api:
        session = await api.create()
        async with api.run(session, "hi", headers={"X_On_Disconnect": "continue"}) as stream:
            await stream.until("agent_choice")
        go.set()
        async with api.events(session) as followed:
            stopped = await followed.until("stream_stopped")
        assert stopped["reason"] == "normal"
        assert (await api.contents(session))[1] == ("assistant", "half whole")


async def test_case_38_a_model_given_with_a_run_stays(tmp_path):
    async with open_api(tmp_path, ["1", "2"]) as api:
        session = await api.create()
        await api.turn(session, "hi", model="scripted/other")
        models = (await api.get(f"{session}/models")).json
        await api.turn(session, "hi")
        assert [request.model for request in api.model.requests] == ["other", "other"]
    assert (models["agent"], models["current_model_ref"]) == ("root", "scripted/other")
    assert [each["ref"] for each in models["models"] if each.get("is_current")] == ["scripted/other"]


async def test_case_38_also_after_a_restart(tmp_path):
    database = tmp_path / "s.db"
    async with open_api(tmp_path, ["1"], database=database) as api:
        session = await api.create()
        await api.turn(session, "hi", model="scripted/other")
    async with open_api(tmp_path, ["2"], database=database) as api:
        await api.turn(session, "hi")
        assert api.model.requests[0].model == "other"


async def test_case_39_an_empty_model_changes_nothing(tmp_path):
    async with open_api(tmp_path, ["1", "2"]) as api:
        session = await api.create()
        await api.turn(session, "hi", model="scripted/other")
        await api.turn(session, "hi", model="")
        assert api.model.requests[1].model == "other"


async def test_case_40_a_bad_model_stores_nothing(tmp_path):
    async with open_api(tmp_path, ["ok"]) as api:
        session = await api.create()
        answer = await api.refused(session, "hi", model="nonsense")
        assert answer.status == 500
        assert "nonsense" in answer.json["message"]
        assert await api.contents(session) == []
        assert text(await api.turn(session, "hi")) == "ok"
        assert api.model.requests[0].model == "x"


async def test_case_41_models_need_a_session_that_has_run(tmp_path):
    async with open_api(tmp_path) as api:
        for session in (await api.create(), "/api/sessions/nobody"):
            answer = await api.get(f"{session}/models")
            assert (answer.status, answer.json) == (404, {"message": "session not found or not running"})


async def test_case_42_without_an_override_the_default_is_current(tmp_path):
    async with open_api(tmp_path, ["1"]) as api:
        session = await api.create()
        await api.turn(session, "hi")
        models = (await api.get(f"{session}/models")).json
    assert "current_model_ref" not in models
    current = [each for each in models["models"] if each.get("is_current")]
    assert [(each["ref"], each.get("is_default")) for each in current] == [("scripted/x", True)]


async def test_case_43_a_call_waits_for_its_approval(tmp_path):
    async with open_api(tmp_path, [SHELL, "done"]) as api:
        session = await api.create()
        async with api.run(session, "go") as stream:
            asked = await stream.until("tool_call_confirmation")
            assert "tool_call" not in types(stream.seen)
            answer = await api.post(f"{session}/resume", {"confirmation": "approve"})
            events = await stream.rest()
    assert asked["tool_call"]["function"]["name"] == "shell"
    assert asked["tool_definition"]["name"] == "shell"
    assert (answer.status, answer.json) == (200, {"message": "session resumed"})
    assert in_order(events, "tool_call_confirmation", "tool_call", "tool_call_response", "stream_stopped")
    assert "out" in response(events)


async def test_case_44_a_rejection_tells_the_model_why(tmp_path):
    async with open_api(tmp_path, [SHELL, "understood"]) as api:
        session = await api.create()
        async with api.run(session, "go") as stream:
            await stream.until("tool_call_confirmation")
            await api.post(f"{session}/resume", {"confirmation": "reject", "reason": "no"})
            events = await stream.rest()
        assert response(events) == "The user rejected the tool call. Reason: no"
        assert "tool_call" not in types(events)
        assert text(events) == "understood"
        assert api.model.requests[1].messages[-1].is_error


async def test_case_45_approve_session_ends_the_questions(tmp_path):
    async with open_api(tmp_path, [SHELL, SHELL, "done"]) as api:
        session = await api.create()
        async with api.run(session, "go") as stream:
            await stream.until("tool_call_confirmation")
            await api.post(f"{session}/resume", {"confirmation": "approve-session"})
            events = await stream.rest()
        view = await api.view(session)
    assert types(events).count("tool_call_confirmation") == 1
    assert types(events).count("tool_call_response") == 2
    assert (view["safety_policy"], view["tools_approved"]) == ("autonomous", True)


async def test_case_46_approve_tool_ends_the_questions_for_that_tool(tmp_path):
    other = call("write_file", {"path": "f", "content": "c"})
    async with open_api(tmp_path, [SHELL, SHELL, other, "done"]) as api:
        session = await api.create()
        async with api.run(session, "go") as stream:
            await stream.until("tool_call_confirmation")
            await api.post(f"{session}/resume", {"confirmation": "approve-tool"})
            asked = await stream.until("tool_call_confirmation")
            await api.post(f"{session}/resume", {"confirmation": "approve"})
            events = await stream.rest()
        view = await api.view(session)
    assert asked["tool_call"]["function"]["name"] == "write_file"
    assert types(events).count("tool_call_response") == 3
    assert view["permissions"] == {"allow": ["shell"]}


async def test_case_47_one_question_is_shown_at_a_time(tmp_path):
    two = calls([("shell", {"cmd": "echo 1"}), ("shell", {"cmd": "echo 2"})])
    async with open_api(tmp_path, [two, two, "done"]) as api:
        session = await api.create()
        async with api.run(session, "go") as stream:
            first = await stream.until("tool_call_confirmation")
            assert len((await api.runtime.session(session.rpartition("/")[2]).view()).messages) == 2
            await api.post(f"{session}/resume", {"confirmation": "approve"})
            second = await stream.until("tool_call_confirmation")
            assert first["tool_call"]["id"] != second["tool_call"]["id"]
            await api.post(f"{session}/resume", {"confirmation": "approve"})
            await stream.until("tool_call_confirmation")
            await api.post(f"{session}/resume", {"confirmation": "approve-session"})
            events = await stream.rest()
    assert types(events).count("tool_call_confirmation") == 3
    assert types(events).count("tool_call_response") == 4


async def test_case_48_a_word_nobody_knows_is_ignored(tmp_path):
    async with open_api(tmp_path, [SHELL, "done"]) as api:
        session = await api.create()
        async with api.run(session, "go") as stream:
            await stream.until("tool_call_confirmation")
            answer = await api.post(f"{session}/resume", {"confirmation": "bogus"})
            assert answer.status == 200
            assert (await api.get(f"{session}/status")).json["streaming"]
            await api.post(f"{session}/resume", {"confirmation": "reject"})
            events = await stream.rest()
    assert response(events) == "The user rejected the tool call."


async def test_case_49_resume_needs_a_session_that_has_run(tmp_path):
    async with open_api(tmp_path) as api:
        for session in (await api.create(), "/api/sessions/nobody"):
            answer = await api.post(f"{session}/resume", {"confirmation": "approve"})
            assert answer.status == 404
            assert answer.json["message"].startswith("failed to resume session: session")


async def test_case_50_toggling_goes_to_autonomous_and_back(tmp_path):
    async with open_api(tmp_path, [SHELL, "1", SHELL, "2"]) as api:
        session = await api.create(safety_policy="balanced")
        toggled = await api.post(f"{session}/tools/toggle")
        assert (toggled.status, toggled.body) == (200, b"null\n")
        assert (await api.view(session))["tools_approved"] is True
        assert "tool_call_confirmation" not in types(await api.turn(session, "go"))
        await api.post(f"{session}/tools/toggle")
        view = await api.view(session)
        assert (view["safety_policy"], view["tools_approved"]) == ("balanced", False)
        await api.patch(f"{session}/safety-policy", {"safety_policy": "strict"})
        async with api.run(session, "go") as stream:
            await stream.until("tool_call_confirmation")
            await api.post(f"{session}/resume", {"confirmation": "approve"})
            await stream.rest()


async def test_case_51_read_only_tools_run_unasked(tmp_path):
    tmp_path.joinpath("f").write_text("content")
    async with open_api(tmp_path, [call("read_file", {"path": "f"}), SHELL, "done"]) as api:
        session = await api.create()
        async with api.run(session, "go") as stream:
            asked = await stream.until("tool_call_confirmation")
            ran = [
                event["tool_call"]["function"]["name"] for event in stream.seen if event.type == "tool_call"
            ]
            await api.post(f"{session}/resume", {"confirmation": "reject"})
            await stream.rest()
    assert ran == ["read_file"]
    assert asked["tool_call"]["function"]["name"] == "shell"


async def test_case_52_a_sessions_deny_rule_holds_in_autonomous_mode(tmp_path):
    async with open_api(tmp_path, [SHELL, "done"]) as api:
        session = await api.create(safety_policy="autonomous", permissions={"deny": ["shell"]})
        events = await api.turn(session, "go")
    assert response(events) == "Tool 'shell' is denied by session permissions."
    assert "tool_call" not in types(events)


async def test_case_53_allow_rules_look_at_arguments(tmp_path):
    script = [call("shell", {"cmd": "git status -s"}), call("shell", {"cmd": "git push"}), "done"]
    async with open_api(tmp_path, script) as api:
        session = await api.create(permissions={"allow": ["shell:cmd=git status*"]})
        async with api.run(session, "go") as stream:
            asked = await stream.until("tool_call_confirmation")
            ran = types(stream.seen).count("tool_call_response")
            await api.post(f"{session}/resume", {"confirmation": "reject"})
            await stream.rest()
    assert ran == 1
    assert "git push" in asked["tool_call"]["function"]["arguments"]


@pytest.mark.parametrize("method", ["cancel", "delete"])
async def test_a_run_can_be_ended_by_name(tmp_path, method):
    async with open_api(tmp_path, [say("a") + wait(60)], agents={"my": MY}) as api:
        session = await api.create()
        async with api.run(session, "go") as stream:
            await stream.until("agent_choice")
            if method == "cancel":
                assert (await api.post(f"{session}/cancel")).status == 200
            else:
                assert (await api.delete(session)).status == 200
            stopped = await stream.until("stream_stopped")
    assert stopped["reason"] == "canceled"
