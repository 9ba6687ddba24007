"""Sessions contract, section 7, cases 1 to 29: agents, stored sessions, limits, tokens, readiness."""

from __future__ import annotations

import uuid

import msgspec
import pytest
import trio
import trio.testing

from actors.session import messages as m
from actors.testing.model import say, until
from gateway.settings import Settings as Limits
from tests.flows.kit import open_api, text, types

SINGLE = "agents:\n  {name}:\n    model: scripted/x\n    description: {text}\n    instruction: i\n"
TWO = SINGLE.format(name="first", text="Two") + SINGLE.format(name="second", text="No").removeprefix(
    "agents:\n"
)
TEAM = SINGLE.format(name="root", text="R") + "".join(
    SINGLE.format(name=name, text=name).removeprefix("agents:\n") for name in ("coder", "reviewer")
)


async def test_case_01_agents_are_listed_by_name_with_the_first_ones_description(tmp_path):
    agents = {
        "pirate": SINGLE.format(name="root", text="Arr"),
        "multi": TWO,
        "contradict": SINGLE.format(name="root", text="No"),
    }
    async with open_api(tmp_path, agents=agents) as api:
        answer = await api.get("/api/agents")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json == [
        {"name": "contradict", "description": "No", "multi": False},
        {"name": "multi", "description": "Two", "multi": True},
        {"name": "pirate", "description": "Arr", "multi": False},
    ]


async def test_case_02_an_empty_directory_lists_no_agents(tmp_path):
    async with open_api(tmp_path, agents={}) as api:
        answer = await api.get("/api/agents")
    assert (answer.status, answer.body) == (200, b"[]\n")


async def test_case_03_a_file_without_agents_is_left_out(tmp_path):
    agents = {"empty": "agents: {}\n", "good": SINGLE.format(name="root", text="Good")}
    async with open_api(tmp_path, agents=agents) as api:
        assert [row["name"] for row in (await api.get("/api/agents")).json] == ["good"]


async def test_case_04_commands_are_listed_sorted(tmp_path):
    with_commands = SINGLE.format(name="root", text="d") + "    commands: {review: Review it., deploy: Go.}\n"
    async with open_api(
        tmp_path, agents={"a": with_commands, "b": SINGLE.format(name="root", text="d")}
    ) as api:
        first, second = (await api.get("/api/agents")).json
    assert first["commands"] == ["deploy", "review"]
    assert "commands" not in second


async def test_case_05_an_agents_configuration_is_an_array_of_named_agents(tmp_path):
    async with open_api(tmp_path, agents={"multi": TWO}) as api:
        answer = await api.get("/api/agents/multi")
    assert answer.status == 200
    assert [agent["Name"] for agent in answer.json["agents"]] == ["first", "second"]
    assert answer.json["agents"][0]["description"] == "Two"


async def test_case_06_an_unknown_agent_is_not_found(tmp_path):
    async with open_api(tmp_path) as api:
        answer = await api.get("/api/agents/nope")
    assert answer.status == 404
    assert answer.json["message"]


async def test_case_07_tools_are_counted(tmp_path):
    agent = SINGLE.format(name="root", text="d") + "    toolsets: [{type: think}, {type: filesystem}]\n"
    async with open_api(tmp_path, agents={"my": agent}) as api:
        answer = await api.get("/api/agents/my/root/tools/count")
        missing = await api.get("/api/agents/my/nobody/tools/count")
    assert (answer.status, answer.json) == (200, {"available_tools": 10})
    assert missing.status == 404


async def test_case_08_ping(tmp_path):
    async with open_api(tmp_path) as api:
        answer = await api.get("/api/ping")
    assert (answer.status, answer.json) == (200, {"status": "ok"})


async def test_case_09_a_new_database_has_no_sessions(tmp_path):
    async with open_api(tmp_path, database=tmp_path / "s.db") as api:
        answer = await api.get("/api/sessions")
    assert (answer.status, answer.json) == (200, [])


async def test_case_10_a_session_is_created_with_defaults(tmp_path):
    async with open_api(tmp_path) as api:
        answer = await api.post("/api/sessions", {})
    body = answer.json
    assert answer.status == 200
    assert uuid.UUID(body.pop("id")).version == 4
    assert body.pop("created_at").endswith("Z")
    assert body == {
        "title": "",
        "messages": None,
        "tools_approved": False,
        "hide_tool_results": False,
        "SendUserMessage": True,
        "max_iterations": 0,
        "starred": False,
        "input_tokens": 0,
        "output_tokens": 0,
        "cost": 0,
    }


async def test_case_11_a_given_title_is_trimmed_and_comes_first(tmp_path):
    async with open_api(tmp_path, ["hello"]) as api:
        session = await api.create(title="  deploy check ")
        events = await api.turn(session, "hi")
        assert (events[0].type, events[0]["title"]) == ("session_title", "deploy check")
        assert (await api.view(session))["title"] == "deploy check"
        assert len(api.model.requests) == 1


async def test_case_12_a_title_is_made_by_a_call_of_its_own(tmp_path):
    def script(request):
        return "A fine title" if not request.tools else "hello"

    async with open_api(tmp_path, script) as api:
        session = await api.create(title="")
        events = await api.turn(session, "hi")
        titles = [event["title"] for event in events if event.type == "session_title"]
        assert titles == ["A fine title"]
        assert types(events)[-1] == "stream_stopped"
        assert (await api.view(session))["title"] == "A fine title"
        assert len(api.model.requests) == 2


async def test_case_13_a_directory_that_climbs_is_refused(tmp_path):
    async with open_api(tmp_path) as api:
        answer = await api.post("/api/sessions", {"working_dir": "/tmp/../etc"})
    assert answer.status == 400
    assert answer.json["message"].startswith("invalid working directory: ")


async def test_case_14_a_directory_that_is_none_is_refused(tmp_path):
    tmp_path.joinpath("file").touch()
    async with open_api(tmp_path) as api:
        for name in ("missing", "file"):
            answer = await api.post("/api/sessions", {"working_dir": str(tmp_path / name)})
            assert answer.status == 400
            assert answer.json["message"].startswith("invalid working directory: ")
        assert (await api.get("/api/sessions")).json == []


async def test_case_15_directories_outside_the_root_are_refused(tmp_path):
    root = tmp_path / "R"
    for made in (root / "sub", tmp_path / "R-evil"):
        made.mkdir(parents=True)
    (root / "link").symlink_to(tmp_path)
    async with open_api(tmp_path, working_dir_root=str(root)) as api:
        found = [
            (await api.post("/api/sessions", {"working_dir": str(each)})).status
            for each in (root, root / "sub", root / "link", tmp_path / "R-evil")
        ]
        assert found == [200, 200, 400, 400]
        refusal = await api.post("/api/sessions", {"working_dir": str(tmp_path)})
    assert refusal.json["message"] == (
        f'invalid working directory: "{tmp_path}" is outside the permitted root "{root}"'
    )


async def test_case_16_without_a_root_any_directory_is_echoed(tmp_path):
    async with open_api(tmp_path) as api:
        answer = await api.post("/api/sessions", {"working_dir": f" {tmp_path} "})
    assert (answer.status, answer.json["working_dir"]) == (200, str(tmp_path))


def _sized(size: int) -> bytes:
    body = b'{"title":""}'
    return b'{"title":"' + b"x" * (size - len(body)) + b'"}'


async def test_case_17_a_body_may_be_as_large_as_the_limit(tmp_path):
    async with open_api(tmp_path) as api:
        exact = await api.post("/api/sessions", _sized(1_048_576))
        over = await api.post("/api/sessions", _sized(1_048_577))
    assert exact.status == 200
    assert (over.status, over.json) == (413, {"message": "Request Entity Too Large"})


async def test_case_18_a_larger_limit_takes_a_larger_message(tmp_path):
    async with open_api(
        tmp_path, ["ok"], limits=Limits(max_request_size=2_097_152, grace_seconds=0.3)
    ) as api:
        session = await api.create()
        assert text(await api.turn(session, "x" * 1_500_000)) == "ok"


@pytest.mark.parametrize(
    ("header", "status", "message"),
    [
        ("", 401, "missing Authorization header"),
        ("Basic x", 401, "invalid Authorization header format"),
        ("bearer t", 401, "invalid Authorization header format"),
        ("Bearer u", 401, "invalid token"),
        ("Bearer t", 200, None),
    ],
)
async def test_case_19_a_token_is_asked_for(tmp_path, header, status, message):
    async with open_api(tmp_path, limits=Limits(auth_token="t", grace_seconds=0.3)) as api:
        answer = await api.get("/api/ping", **({"Authorization": header} if header else {}))
    assert (answer.status, answer.json.get("message")) == (status, message)


async def test_case_20_health_is_open_and_unknown_paths_are_guarded(tmp_path):
    async with open_api(tmp_path, limits=Limits(auth_token="t", grace_seconds=0.3)) as api:
        assert (await api.get("/health")).json == {"status": "ok", "version": ""}
        assert (await api.get("/ready")).status == 200
        assert (await api.get("/api/unknown")).status == 401
        assert (await api.get("/api/unknown", Authorization="Bearer t")).json == {"message": "Not Found"}


async def test_case_21_a_body_that_is_not_called_json_is_refused(tmp_path):
    async with open_api(tmp_path) as api:
        answer = await api.call("POST", "/api/sessions", b"{}", Content_Type="text/plain")
        empty = await api.call("POST", "/api/sessions", b"", Content_Type="text/plain")
    assert answer.status == 400
    assert answer.json["message"] == "invalid request body: code=415, message=Unsupported Media Type"
    assert empty.status == 200


async def test_case_22_an_unknown_session_is_not_found(tmp_path):
    async with open_api(tmp_path) as api:
        answer = await api.get("/api/sessions/unknown")
    assert answer.status == 404
    assert answer.json["message"].startswith("session not found: ")


async def test_case_23_an_unknown_sessions_snapshot_has_a_code(tmp_path):
    async with open_api(tmp_path) as api:
        answer = await api.get("/api/sessions/unknown/snapshot")
    expected = {"code": "unknown_session", "message": "session not found: session not found"}
    assert (answer.status, answer.json) == (404, expected)


async def test_case_24_a_snapshots_cost_is_the_sum_of_all_items(tmp_path):
    async with open_api(tmp_path) as api:
        history = (
            m.HistoryMessage(id=1, role="user", content="q"),
            m.HistoryMessage(id=2, role="assistant", content="a", cost=0.25),
            m.HistoryMessage(id=3, role="assistant", content="sub", cost=0.5, session="child"),
        )
        view = await _with_history(api, history)
        summary = {"summary": "short", "cost": 0.125, "first_kept_entry": 1}
        assert (await api.post(f"/api/sessions/{view.id}/summaries", summary)).status == 201
        snapshot = (await api.get(f"/api/sessions/{view.id}/snapshot")).json
    assert snapshot["cost"] == 0.875


async def _with_history(api, history):
    from actors.session.create import create_session

    return await create_session(
        api.runtime.journal, api.runtime.now(), m.Template(title="t"), history=history
    )


async def test_case_25_status_tells_whether_a_run_streams(tmp_path):
    go = trio.Event()
    async with open_api(tmp_path, [say("a") + until(go) + say("b")]) as api:
        session = await api.create()
        async with api.run(session, "hi") as stream:
            await stream.until("agent_choice")
            running = (await api.get(f"{session}/status")).json
            go.set()
            await stream.rest()
        status = await api.get(f"{session}/status")
    assert (running["streaming"], running["agent"]) == (True, "root")
    assert status.status == 200
    assert status.json == {
        "id": session.rpartition("/")[2],
        "title": "t",
        "streaming": False,
        "agent": "root",
        "input_tokens": 10,
        "output_tokens": 5,
        "num_messages": 2,
    }


async def test_case_26_status_waits_until_the_session_has_run(tmp_path):
    async with open_api(tmp_path, ["hello"]) as api:
        session = await api.create()
        found = []

        async def ask() -> None:
            found.append(await api.get(f"{session}/status?wait=5s"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked(0.02)
            assert found == []
            await api.turn(session, "hi")
    assert found[0].status == 200


async def test_case_27_status_stops_waiting(tmp_path):
    async with open_api(tmp_path) as api:
        session = await api.create()
        answer = await api.get(f"{session}/status?wait=1ms")
        at_once = await api.get(f"{session}/status")
    assert (answer.status, answer.json) == (503, {"message": "session not ready within timeout"})
    assert at_once.status == 404


@pytest.mark.parametrize("wait", ["10", "x", "1.2.3s"])
async def test_case_28_a_wait_that_is_no_duration_is_refused(tmp_path, wait):
    async with open_api(tmp_path) as api:
        session = await api.create()
        answer = await api.get(f"{session}/status?wait={wait}")
    assert answer.status == 400
    assert answer.json["message"].startswith("invalid wait: ")


async def test_case_29_the_server_is_ready_once_any_session_has_run(tmp_path):
    async with open_api(tmp_path, ["hello"]) as api:
        session = await api.create()
        fresh = await api.get("/api/ready?timeout=5ms")
        await api.turn(session, "hi")
        ready = await api.get("/api/ready?timeout=5ms")
        wrong = await api.get("/api/ready?timeout=5")
    assert (fresh.status, fresh.json) == (503, {"message": "no sessions registered within timeout"})
    assert (ready.status, ready.json) == (200, {"status": "ready"})
    assert wrong.status == 400
    assert msgspec.json.decode(wrong.body)["message"].startswith("invalid timeout: ")
