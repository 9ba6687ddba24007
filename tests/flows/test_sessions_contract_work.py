"""Sessions contract, section 7, cases 71 to 94: queues, questions, delegation, failures, restarts, other servers."""

from __future__ import annotations

import msgspec
import trio

from actors.models.provider import ModelError
from actors.testing.model import call, say, until
from tests.flows.kit import MY, open_api, text, types
from tests.flows.test_sessions_contract_history import NESTED, TASK

THINK = call("think", {"thought": "hm"})
ASK = call(
    "user_prompt",
    {"message": "Which?", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}}},
)


def said(*texts: str) -> bytes:
    return msgspec.json.encode({"messages": [{"content": each} for each in texts]})


async def test_case_71_steering_reaches_the_model_before_it_stops(tmp_path):
    go = trio.Event()
    async with open_api(tmp_path, [say("working") + until(go), "adjusted"]) as api:
        session = await api.create()
        async with api.run(session, "start") as stream:
            await stream.until("agent_choice")
            answer = await api.post(f"{session}/steer", said("left", "no, right"))
            go.set()
            events = await stream.rest()
        prompt = [message.content for message in api.model.requests[1].messages[1:]]
    assert (answer.status, answer.json) == (202, {"status": "queued"})
    messages = [event["message"] for event in events if event.type == "user_message"]
    assert messages == ["start", "left\n", "no, right"]
    assert prompt == ["start", "working", "left\n", "no, right"]
    assert types(events).count("stream_stopped") == 1


async def test_case_71_and_the_next_call_after_tools(tmp_path):
    asked = trio.Event()
    async with open_api(tmp_path, [ASK, "done"]) as api:
        session = await api.create()
        async with api.run(session, "start") as stream:
            await stream.until("elicitation_request")
            await api.post(f"{session}/steer", said("also this"))
            await api.post(f"{session}/elicitation", {"action": "decline"})
            events = await stream.rest()
        asked.set()
    order = [
        event.type for event in events if event.type in ("tool_call_response", "user_message", "agent_choice")
    ]
    assert order == ["user_message", "tool_call_response", "user_message", "agent_choice"]


async def test_case_72_the_steering_queue_has_an_end(tmp_path):
    go = trio.Event()
    async with open_api(tmp_path, [say("a") + until(go), "b"]) as api:
        session = await api.create()
        async with api.run(session, "start") as stream:
            await stream.until("agent_choice")
            found = [(await api.post(f"{session}/steer", said(str(n)))).status for n in range(5)]
            sixth = await api.post(f"{session}/steer", said("6"))
            queue = (await api.get(f"{session}/queue")).json
            go.set()
            await stream.rest()
    assert found == [202] * 5
    assert (sixth.status, sixth.headers["retry-after"], sixth.json) == (
        429,
        "1",
        {"message": "steer queue full"},
    )
    assert queue == {"steer": {"depth": 5, "capacity": 5}, "followup": {"depth": 0, "capacity": 20}}


async def test_case_73_queues_need_messages_and_a_session_that_has_run(tmp_path):
    async with open_api(tmp_path, ["ok"]) as api:
        session = await api.create()
        for name, action in (("steer", "steer session"), ("followup", "enqueue follow-up")):
            empty = await api.post(f"{session}/{name}", {"messages": []})
            assert (empty.status, empty.json["message"]) == (400, "at least one message is required")
            for target in (session, "/api/sessions/nobody"):
                answer = await api.post(f"{target}/{name}", said("x"))
                message = f"failed to {action}: session not found or not running"
                assert (answer.status, answer.json["message"]) == (409, message)


async def test_case_74_a_follow_up_gets_a_turn_of_its_own_on_the_same_stream(tmp_path):
    go = trio.Event()
    async with open_api(tmp_path, [say("first") + until(go), "second"]) as api:
        session = await api.create()
        async with api.run(session, "start") as stream:
            await stream.until("agent_choice")
            answer = await api.post(f"{session}/followup", said("and then"))
            go.set()
            events = await stream.rest()
    assert (answer.status, answer.json) == (202, {"status": "queued_streaming", "duplicate": False})
    assert [event["message"] for event in events if event.type == "user_message"] == ["start", "and then"]
    assert text(events) == "firstsecond"
    assert types(events).count("stream_stopped") == 1


async def test_case_75_an_idle_sessions_follow_up_waits_for_the_next_run(tmp_path):
    async with open_api(tmp_path, ["one", "two", "three"]) as api:
        session = await api.create()
        await api.turn(session, "start")
        answer = await api.post(f"{session}/followup", said("later"))
        assert len(api.model.requests) == 1
        events = await api.turn(session, "own")
    assert answer.json == {"status": "queued_idle", "duplicate": False}
    assert [event["message"] for event in events if event.type == "user_message"] == ["own", "later"]


async def test_case_76_a_repeated_key_delivers_once(tmp_path):
    async with open_api(tmp_path, lambda _: "ok") as api:
        session = await api.create()
        await api.turn(session, "start")
        first = await api.post(f"{session}/followup", said("x"), Idempotency_Key="k")
        second = await api.post(f"{session}/followup", said("x"), Idempotency_Key="k")
        events = await api.turn(session, "go")
    assert first.json["duplicate"] is False
    assert (second.status, second.json) == (202, {"status": "duplicate", "duplicate": True})
    assert [event["message"] for event in events if event.type == "user_message"] == ["go", "x"]


async def test_case_76_also_across_a_restart(tmp_path):
    database = tmp_path / "s.db"
    async with open_api(tmp_path, lambda _: "ok", database=database) as api:
        session = await api.create()
        await api.turn(session, "start")
        await api.post(f"{session}/followup", said("x"), Idempotency_Key="k")
    async with open_api(tmp_path, lambda _: "ok", database=database) as api:
        events = await api.turn(session, "go")
        again = await api.post(f"{session}/followup", said("x"), Idempotency_Key="k")
    assert [event["message"] for event in events if event.type == "user_message"] == ["go", "x"]
    assert again.json["duplicate"] is True


async def test_case_77_keys_are_per_session_and_not_kept_for_ever(tmp_path):
    async with open_api(tmp_path, lambda _: "ok") as api:
        one, two = await api.create(), await api.create()
        for session in (one, two):
            await api.turn(session, "start")
        path = f"{one}/followup"
        assert (await api.post(path, said("x"), Idempotency_Key="k0")).json["duplicate"] is False
        assert (await api.post(f"{two}/followup", said("x"), Idempotency_Key="k0")).json["duplicate"] is False
        for batch in range(16):
            await api.turn(one, "drain")
            for number in range(16):
                key = f"k{1 + 16 * batch + number}"
                assert (await api.post(path, said("x"), Idempotency_Key=key)).json["duplicate"] is False
        await api.turn(one, "drain")
        assert (await api.post(path, said("x"), Idempotency_Key="k0")).json["duplicate"] is False


async def test_case_77_a_refused_follow_up_leaves_its_key_free(tmp_path):
    async with open_api(tmp_path, lambda _: "ok") as api:
        session = await api.create()
        await api.turn(session, "start")
        path = f"{session}/followup"
        await api.post(path, said(*(str(n) for n in range(20))))
        full = await api.post(path, said("x"), Idempotency_Key="k")
        assert (full.status, full.headers["retry-after"]) == (429, "1")
        assert full.json == {"message": "follow-up queue full"}
        await api.turn(session, "drain")
        assert (await api.post(path, said("x"), Idempotency_Key="k")).json["duplicate"] is False


async def test_case_78_a_tools_question_is_answered(tmp_path):
    async with open_api(tmp_path, [ASK, "done"]) as api:
        session = await api.create()
        async with api.run(session, "go") as stream:
            asked = await stream.until("elicitation_request")
            body = {"action": "accept", "content": {"n": 3}, "elicitation_id": asked["elicitation_id"]}
            answer = await api.post(f"{session}/elicitation", body)
            twice = await api.post(f"{session}/elicitation", body)
            events = await stream.rest()
    assert (asked["message"], asked["schema"]["type"]) == ("Which?", "object")
    assert (answer.status, answer.body) == (200, b"null\n")
    message = "failed to resume elicitation: no elicitation request in progress"
    assert (twice.status, twice.json["message"]) == (500, message)
    [response] = [event["response"] for event in events if event.type == "tool_call_response"]
    assert msgspec.json.decode(response) == {"action": "accept", "content": {"n": 3}}


async def test_case_79_of_two_questions_the_one_named_is_answered(tmp_path):
    async with open_api(tmp_path, [ASK + ASK, "done"]) as api:
        session = await api.create()
        async with api.run(session, "go") as stream:
            first = await stream.until("elicitation_request")
            second = await stream.until("elicitation_request")
            unnamed = await api.post(f"{session}/elicitation", {"action": "decline"})
            named = {"action": "accept", "content": {"n": 2}, "elicitation_id": second["elicitation_id"]}
            assert (await api.post(f"{session}/elicitation", named)).status == 200
            rest = {"action": "decline", "elicitation_id": first["elicitation_id"]}
            assert (await api.post(f"{session}/elicitation", rest)).status == 200
            events = await stream.rest()
    assert unnamed.status == 500
    assert [
        msgspec.json.decode(e["response"])["action"] for e in events if e.type == "tool_call_response"
    ] == [
        "accept",
        "decline",
    ]


async def test_case_80_a_background_agents_question_outlives_the_run(tmp_path):
    agents = """\
agents:
  root:
    {model: scripted/parent, description: R, instruction: i, sub_agents: [helper],
     toolsets: [{type: background_agents}]}
  helper: {model: scripted/child, description: H, instruction: i, toolsets: [{type: user_prompt}]}
"""
    go = trio.Event()
    answers = {
        "parent": iter([call("run_background_agent", {"agent": "helper", "task": "t"}), say("started")]),
        "child": iter([until(go) + ASK, say("thanks")]),
    }
    async with open_api(tmp_path, lambda request: next(answers[request.model]), agents={"my": agents}) as api:
        session = await api.create(safety_policy="autonomous")
        await api.turn(session, "go")
        go.set()
        async with api.events(session) as stream:
            asked = await stream.until("elicitation_request")
            body = {"action": "accept", "content": {"n": 1}, "elicitation_id": asked["elicitation_id"]}
            answer = await api.post(f"{session}/elicitation", body)
            await stream.until("sub_session_completed")
        history = await api.contents(session)
    assert answer.status == 200
    assert ("assistant", "thanks") in history


async def test_case_81_an_oauth_answer_needs_a_flow_that_waits_for_it(tmp_path):
    async with open_api(tmp_path) as api:
        found = [
            await api.post(f"/api/mcp-oauth/callback?{query}")
            for query in ("code=c", "state=s", "state=s&code=c", "state=s&error=denied&error_description=d")
        ]
    assert [(answer.status, answer.json["message"]) for answer in found] == [
        (400, "missing state query parameter"),
        (400, "missing both code and error query parameters"),
        (404, "no pending OAuth flow for the given state"),
        (404, "no pending OAuth flow for the given state"),
    ]


async def test_case_82_every_running_session_hears_of_a_shared_plan(tmp_path):
    agent = MY.replace("toolsets: [", "toolsets: [{type: plan}, ")
    go = trio.Event()
    write = call("write_plan", {"name": "p", "content": "the secret content"})
    answers = {"x": iter([say("a") + until(go), write, say("done")])}
    async with open_api(tmp_path, lambda request: next(answers[request.model]), agents={"my": agent}) as api:
        one, two, idle = await api.create(), await api.create(safety_policy="autonomous"), await api.create()
        async with api.run(one, "wait") as waiting, api.run(two, "write") as writing:
            await waiting.until("agent_choice")
            events = await writing.rest()
            other = await waiting.until("plan_changed")
            go.set()
            await waiting.rest()
        changed = next(event for event in events if event.type == "plan_changed")
        quiet = (await api.runtime.session(idle.rpartition("/")[2]).view()).seq
    for event in (changed, other):
        body = {name: event.data.get(name) for name in ("scope", "name", "action", "version")}
        assert body == {"scope": "shared", "name": "p", "action": "write", "version": 1}
        assert "secret" not in str(event.data)
    assert quiet == 1


async def test_case_83_a_delegated_session_flows_on_its_parents_stream(tmp_path):
    async with open_api(tmp_path, [TASK, "from helper", "from root"], agents={"my": NESTED}) as api:
        session = await api.create()
        events = await api.turn(session, "go")
        history = await api.contents(session)
    own = session.rpartition("/")[2]
    child = next(event["session_id"] for event in events if event.data.get("session_id", own) != own)
    order = [
        (event.type, event.data.get("session_id", ""))
        for event in events
        if event.type
        in ("agent_switching", "stream_started", "stream_stopped", "sub_session_completed", "tool_call")
    ]
    assert order == [
        ("stream_started", own),
        ("tool_call", ""),
        ("agent_switching", ""),
        ("stream_started", child),
        ("stream_stopped", child),
        ("sub_session_completed", ""),
        ("agent_switching", ""),
        ("stream_stopped", own),
    ]
    completed = next(event for event in events if event.type == "sub_session_completed")
    assert completed["parent_session_id"] == own
    sub = completed["sub_session"]
    assert (sub["id"], sub["title"]) == (child, "Transferred task")
    assert [each["message"]["message"]["role"] for each in sub["messages"]] == ["system", "user", "assistant"]
    assert sub["messages"][-1]["message"]["message"]["content"] == "from helper"
    assert [role for role, _ in history] == ["user", "assistant", "user", "assistant", "tool", "assistant"]
    assert history[3] == ("assistant", "from helper")
    assert text([event for event in events if event.data.get("session_id") == own]) == "from root"


async def test_case_84_delegation_to_a_stranger_or_in_a_circle_is_the_models_mistake(tmp_path):
    circle = """\
agents:
  root: {model: scripted/x, description: R, instruction: i, sub_agents: [b]}
  b: {model: scripted/x, description: B, instruction: i, sub_agents: [root]}
"""
    stranger = call("transfer_task", {"agent": "nobody", "task": "t", "expected_output": "e"})
    to_b = call("transfer_task", {"agent": "b", "task": "t", "expected_output": "e"})
    back = call("transfer_task", {"agent": "root", "task": "t", "expected_output": "e"})
    script = [stranger, to_b, back, "b's", "done"]
    async with open_api(tmp_path, script, agents={"my": circle}) as api:
        events = await api.turn(await api.create(), "go")
    failed = [e["response"] for e in events if e.type == "tool_call_response" and e["result"].get("isError")]
    assert "cannot transfer task to nobody: target agent not in sub-agents list" in failed[0]
    assert "delegation cycle detected: root -> b -> root" in failed[1]
    assert events[-1]["reason"] == "normal"
    assert text(events) == "b'sdone"


async def test_case_85_a_provider_that_stays_broken_ends_the_run(tmp_path):
    def script(_):
        raise ModelError("boom", kind="server", provider="scripted", model="x")

    agent = MY + "    fallback: {retries: -1}\n"
    async with open_api(tmp_path, script, agents={"my": agent}) as api:
        events = await api.turn(await api.create(), "go")
    assert types(events)[-2:] == ["error", "stream_stopped"]
    assert events[-1]["reason"] == "error"
    assert events[-2]["code"] == "model_error"
    assert "boom" in events[-2]["error"]


async def test_case_86_the_iteration_limit_asks_a_person(tmp_path):
    agent = MY + "    max_iterations: 1\n"
    async with open_api(tmp_path, [THINK, "done", THINK], agents={"my": agent}) as api:
        session = await api.create()
        async with api.run(session, "go") as stream:
            assert (await stream.until("max_iterations_reached"))["max_iterations"] == 1
            await api.post(f"{session}/resume", {"confirmation": "approve"})
            assert text(await stream.rest()) == "done"
        async with api.run(session, "go") as stream:
            await stream.until("max_iterations_reached")
            await api.post(f"{session}/resume", {"confirmation": "reject"})
            await stream.rest()
        history = await api.contents(session)
    assert history[-1] == (
        "assistant",
        "Execution stopped after reaching the configured max_iterations limit (1).",
    )


async def test_case_86_a_sessions_own_limit_holds_where_its_agent_has_none(tmp_path):
    async with open_api(tmp_path, [THINK, "done"]) as api:
        session = await api.create(max_iterations=1)
        async with api.run(session, "go") as stream:
            assert (await stream.until("max_iterations_reached"))["max_iterations"] == 1
            await api.post(f"{session}/resume", {"confirmation": "approve"})
            await stream.rest()


async def test_case_86_and_an_agents_limit_replaces_the_sessions(tmp_path):
    agent = MY + "    max_iterations: 2\n"
    async with open_api(tmp_path, [THINK, "done"], agents={"my": agent}) as api:
        events = await api.turn(await api.create(max_iterations=1), "go")
    assert "max_iterations_reached" not in types(events)


async def test_case_87_identical_calls_end_the_run(tmp_path):
    async with open_api(tmp_path, lambda _: THINK) as api:
        events = await api.turn(await api.create(), "go")
    error = next(event for event in events if event.type == "error")
    assert error["code"] == "loop_detected"
    assert error["error"].startswith("Agent terminated: detected 5 consecutive identical calls to think.")
    assert events[-1]["reason"] == "loop_detected"


async def test_case_88_a_restart_keeps_sessions_and_their_history(tmp_path):
    database = tmp_path / "s.db"
    async with open_api(tmp_path, ["one"], database=database) as api:
        session = await api.create()
        await api.turn(session, "first")
    async with open_api(tmp_path, ["two"], database=database) as api:
        assert [f"/api/sessions/{row['id']}" for row in (await api.get("/api/sessions")).json] == [session]
        assert (await api.get(f"{session}/status")).status == 404
        await api.turn(session, "second")
        prompt = [message.content for message in api.model.requests[0].messages[1:]]
    assert prompt == ["first", "one", "second"]


async def test_case_89_two_servers_share_a_database(tmp_path):
    database = tmp_path / "s.db"
    go = trio.Event()
    script = [say("a") + until(go)]
    async with (
        open_api(tmp_path, script, database=database) as one,
        open_api(tmp_path, ["b", "c"], database=database) as two,
    ):
        mine, other = await one.create(), await two.create()
        for api in (one, two):
            assert len((await api.get("/api/sessions")).json) == 2
            assert (await api.get(mine)).status == (await api.get(other)).status == 200
        async with one.run(mine, "hi") as stream:
            await stream.until("agent_choice")
            assert (await two.refused(mine, "me too")).status == 409
            assert text(await two.turn(other, "hi")) == "b"
            go.set()
            await stream.rest()
        assert text(await two.turn(mine, "more")) == "c"
        assert await one.contents(mine) == [
            ("user", "hi"),
            ("assistant", "a"),
            ("user", "more"),
            ("assistant", "c"),
        ]


async def test_case_93_an_authors_safety_mode_holds_unless_the_client_chose(tmp_path):
    agent = MY + "runtime: {safety: balanced}\n"
    async with open_api(tmp_path, lambda _: "ok", agents={"my": agent}) as api:
        unchosen, chosen = await api.create(), await api.create(safety_policy="strict")
        for session in (unchosen, chosen):
            await api.turn(session, "hi")
        assert (await api.view(unchosen))["safety_policy"] == "balanced"
        assert (await api.view(chosen))["safety_policy"] == "strict"


async def test_case_94_a_file_with_an_unknown_key_is_not_listed_and_cannot_run(tmp_path):
    agents = {
        "good": MY,
        "typo": MY + "    modle: x\n",
        "twice": MY.replace("{type: think}", "{type: mcp, command: x, ref: y}"),
    }
    async with open_api(tmp_path, ["ok"], agents=agents) as api:
        assert [row["name"] for row in (await api.get("/api/agents")).json] == ["good"]
        session = await api.create()
        for name in ("typo", "twice"):
            answer = await api.refused(session, "hi", agent=name)
            assert answer.status == 500
            assert answer.headers["content-type"] == "application/json"
        assert await api.contents(session) == []
        assert set(api.runtime.agents.problems()) == {"typo", "twice"}
