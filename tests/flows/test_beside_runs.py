"""What a session's runs leave working, and what commands make of a message."""

from __future__ import annotations

from functools import partial

from actors.testing.model import call, say
from tests.flows.kit import open_api, text, types

JOBS = """\
agents:
  root: {model: scripted/x, description: R, instruction: i, toolsets: [{type: background_jobs, recall: true}]}
"""
COMMANDS = """\
agents:
  root:
    model: scripted/x
    description: R
    instruction: i
    commands:
      review: {instruction: "Review $1; !`printf 'seen %s' $1`.", agent: reviewer}
      plain: Just text.
  reviewer: {model: scripted/x, description: V, instruction: i}
"""


async def test_a_job_that_ends_while_the_session_is_idle_starts_a_turn(tmp_path):
    start = call("run_background_job", {"cmd": "test -e go || sleep 0.05; echo finished"})
    async with open_api(tmp_path, [start, "started", "noted"], agents={"my": JOBS}) as api:
        session = await api.create(safety_policy="autonomous")
        await api.turn(session, "go")
        after = (await api.get(f"{session}/snapshot")).json["last_event_seq"]
        async with api.events(session, f"?since={after}") as stream:
            told = await stream.until("user_message")
            await stream.until("stream_stopped")
    assert told["message"].startswith("Background job job_1 (completed")
    assert "finished" in told["message"]


async def test_a_deleted_sessions_jobs_are_stopped(tmp_path):
    start = call("run_background_job", {"cmd": "sleep 60", "recall": False})
    async with open_api(tmp_path, [start, "started"], agents={"my": JOBS}) as api:
        session = await api.create(safety_policy="autonomous")
        events = await api.turn(session, "go")
        assert "Started background job job_1." in [e.data.get("response") for e in events]
        await api.delete(session)
    # The guard around every test fails this one when the process is still there.


async def test_a_command_that_names_an_agent_calls_it_with_the_expanded_prompt(tmp_path):
    async with open_api(tmp_path, lambda _: "ok", agents={"my": COMMANDS}) as api:
        session = await api.create()
        events = await api.turn(session, "/review main.py")
        later = await api.turn(session, "more")
        models = (await api.get(f"{session}/models")).json
    message = next(event["message"] for event in events if event.type == "user_message")
    assert message == "Review main.py; seen main.py."
    for each in (events, later):
        assert {event["agent_name"] for event in each if event.type == "agent_choice"} == {"reviewer"}
    assert models["agent"] == "reviewer"


async def test_commands_without_an_agent_and_messages_of_other_roles_stay_literal(tmp_path):
    async with open_api(tmp_path, lambda _: "ok", agents={"my": COMMANDS}) as api:
        session = await api.create()
        for given in ("/plain x", "/unknown x", {"role": "assistant", "content": "/review x"}):
            events = await api.turn(session, given)
            message = next(event["message"] for event in events if event.type == "user_message")
            assert message == (given if isinstance(given, str) else given["content"])
            assert "reviewer" not in {
                event.data.get("agent_name") for event in events if event.type == "agent_choice"
            }


async def test_a_background_agents_conversation_is_kept_as_a_sub_session(tmp_path):
    agents = """\
agents:
  root:
    {model: scripted/parent, description: R, instruction: i, sub_agents: [h], toolsets: [{type: background_agents}]}
  h: {model: scripted/child, description: H, instruction: i}
"""
    answers = {
        "parent": iter([call("run_background_agent", {"agent": "h", "task": "t"}), say("started")]),
        "child": iter([say("found it")]),
    }
    database = tmp_path / "s.db"
    reopened = partial(
        open_api,
        tmp_path,
        lambda request: next(answers[request.model]),
        agents={"my": agents},
        database=database,
    )
    async with reopened() as api:
        session = await api.create(safety_policy="autonomous")
        events = await api.turn(session, "go")
        async with api.events(session) as stream:
            completed = await stream.until("sub_session_completed")
        assert text(events) == "started"
        sub = completed["sub_session"]
        assert (sub["title"], sub["messages"][-1]["message"]["message"]["content"]) == (
            "Background agent task",
            "found it",
        )
        before = await api.view(session)
        [row] = (await api.get("/api/sessions")).json
    async with reopened() as api:
        assert await api.view(session) == before
        assert (await api.get("/api/agents/my/root/tools/count")).json == {"available_tools": 5}
    assert row["num_messages"] == len(before["messages"])
    ids = [each["id"] for each in before["messages"]]
    assert len(set(ids)) == len(ids)


async def test_several_messages_of_one_run_are_all_stored_and_announced(tmp_path):
    async with open_api(tmp_path, ["ok"]) as api:
        session = await api.create()
        events = await api.turn(session, "one", "two", "three")
        history = await api.contents(session)
    assert [event["message"] for event in events if event.type == "user_message"] == ["one", "two", "three"]
    assert [content for role, content in history if role == "user"] == ["one", "two", "three"]


async def test_an_empty_run_goes_on_with_the_history_and_adds_no_message(tmp_path):
    async with open_api(tmp_path, ["ok", "more"]) as api:
        session = await api.create()
        await api.turn(session, "one")
        events = await api.turn(session)
        history = await api.contents(session)
    assert "user_message" not in types(events)
    assert history == [("user", "one"), ("assistant", "ok"), ("assistant", "more")]
