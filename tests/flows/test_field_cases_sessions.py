"""What went wrong elsewhere with sessions, approvals, files, secrets and configuration, tried on the real server."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio

from actors.models.provider import ModelError
from actors.testing.model import call, calls, hang, say
from gateway.settings import Settings as Limits
from tests.flows.kit import MY, Answer, Api, open_api, text, types
from tests.flows.test_sessions_contract_history import NESTED, TASK
from tests.flows.test_sessions_contract_work import said

CHAINED = Path(__file__).parents[1] / "data/shell/chain_allow_git_status.txt"
TRACE = call("shell", {"cmd": "echo ran >> trace"})


async def at_once(count: int, ask) -> list[Answer]:
    """Make many requests at the same time."""
    answers: list[Answer] = []

    async def one(number: int) -> None:
        answers.append(await ask(number))

    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(one, number)
    return answers


# --- sessions -----------------------------------------------------------------------------------------------------


async def test_of_many_prompts_at_once_one_is_taken_and_the_others_change_nothing(tmp_path):
    async with open_api(tmp_path, lambda _: say("a", every=0.01, chunks=3)) as api:
        session = await api.create()
        answers = await at_once(20, lambda number: api.refused(session, f"p{number}"))
        history = await api.contents(session)
    accepted = sum(answer.status == 200 for answer in answers)
    assert accepted >= 1
    assert {answer.status for answer in answers} <= {200, 409}
    assert [role for role, _ in history] == ["user", "assistant"] * accepted


async def test_a_fork_at_every_index_is_exactly_the_prefix(tmp_path):
    script = ["a0", TASK, "from helper", "a1", "a2"]
    async with open_api(tmp_path, script, agents={"my": NESTED}) as api:
        session = await api.create()
        for number in range(3):
            await api.turn(session, f"u{number}")
        history = await api.contents(session)
        users = [index for index, (role, _) in enumerate(history) if role == "user"]
        for ordinal in range(-1, len(users) + 1):
            answer = await api.post(f"{session}/fork", {"user_message_index": ordinal})
            inside = 0 <= ordinal < len(users) and history[users[ordinal]][1] == "Please proceed."
            if not 0 <= ordinal < len(users) or inside:
                assert answer.status == 400
                continue
            copied = [
                (m["message"]["role"], m["message"]["content"]) for m in answer.json.get("messages", [])
            ]
            assert copied == history[: users[ordinal]]


async def test_a_forks_sub_sessions_have_ids_of_their_own_and_keep_their_names(tmp_path):
    async with open_api(tmp_path, [TASK, "from helper", "a0", "a1"], agents={"my": NESTED}) as api:
        session = await api.create()
        await api.turn(session, "u0")
        await api.turn(session, "u1")
        fork = (await api.post(f"{session}/fork", {"user_message_index": 2})).json["id"]
        ours = await api.runtime.session(session.rpartition("/")[2]).view()
        copy = await api.runtime.session(fork).view()
    [one], [other] = ours.subs, copy.subs
    assert one.id != other.id
    assert (one.title, one.agent, one.parent) == (other.title, other.agent, other.parent)
    assert [m.content for m in copy.messages if m.session == other.id] == [
        m.content for m in ours.messages if m.session == one.id
    ]


async def test_one_key_used_many_times_at_once_delivers_once(tmp_path):
    async with open_api(tmp_path, lambda _: "ok") as api:
        session = await api.create()
        await api.turn(session, "start")
        answers = await at_once(
            20, lambda _: api.post(f"{session}/followup", said("x"), Idempotency_Key="k" * 300)
        )
        events = await api.turn(session, "go")
    assert Counter(answer.json["duplicate"] for answer in answers) == {False: 1, True: 19}
    assert [event["message"] for event in events if event.type == "user_message"] == ["go", "x"]


async def test_a_failed_title_leaves_no_trace_in_the_conversation(tmp_path):
    def script(request):
        if not request.tools:
            raise ModelError("no titles today", kind="invalid_request", provider="scripted", model="x")
        return "hello"

    async with open_api(tmp_path, script) as api:
        session = await api.create(title="")
        events = await api.turn(session, "hi")
        history = await api.contents(session)
        assert (await api.view(session))["title"] == ""
    assert history == [("user", "hi"), ("assistant", "hello")]
    assert {"session_title", "error"}.isdisjoint(types(events))
    assert events[-1]["reason"] == "normal"


# --- approvals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("approve",), ("reject",), ("approve", "reject")])
async def test_of_many_decisions_at_once_one_counts(tmp_path, words):
    async with open_api(tmp_path, [TRACE, TRACE, "done"]) as api:
        session = await api.create()
        async with api.run(session, "go") as stream:
            asked = await stream.until("tool_call_confirmation")
            answers = await at_once(
                50,
                lambda number: api.post(
                    f"{session}/resume",
                    {"confirmation": words[number % len(words)], "approval_id": asked["approval_id"]},
                ),
            )
            second = await stream.until("tool_call_confirmation")
            ran = tmp_path.joinpath("trace").exists()
            await api.post(f"{session}/resume", {"confirmation": "reject"})
            events = await stream.rest()
    assert Counter(answer.status for answer in answers) == {200: 1, 409: 49}
    assert second["approval_id"] != asked["approval_id"]
    if words != ("approve", "reject"):
        assert ran == (words == ("approve",))
    assert types(events).count("tool_call_response") == 2


async def test_no_chained_command_passes_for_its_harmless_beginning(tmp_path):
    lines = [line for line in CHAINED.read_text().splitlines() if line and not line.startswith("#")]
    commands = [line.encode().decode("unicode_escape") for line in lines]
    script = [call("shell", {"cmd": command}) for command in commands]
    async with open_api(tmp_path, [*script, "done"]) as api:
        session = await api.create(permissions={"allow": ["shell:cmd=git status*"]})
        async with api.run(session, "go") as stream:
            for command in commands:
                asked = await stream.until("tool_call_confirmation")
                assert asked["tool_call"]["function"]["name"] == "shell", command
                await api.post(f"{session}/resume", {"confirmation": "reject"})
            events = await stream.rest()
    assert len(commands) > 10
    assert "tool_call" not in types(events)


async def test_cancelling_closes_every_waiting_call_and_asks_no_more(tmp_path):
    four = calls([("shell", {"cmd": f"echo {n} >> trace"}) for n in range(4)])
    async with open_api(tmp_path, [four, "next"]) as api:
        session = await api.create()
        async with api.run(session, "go") as stream:
            asked = await stream.until("tool_call_confirmation")
            await api.post(f"{session}/cancel")
            events = await stream.rest()
        late = {"confirmation": "approve", "approval_id": asked["approval_id"]}
        assert (await api.post(f"{session}/resume", late)).status == 409
        results = [content for role, content in await api.contents(session) if role == "tool"]
        assert text(await api.turn(session, "again")) == "next"
    assert types(events).count("tool_call_confirmation") == 1
    assert results == ["The tool call was canceled by the user."] * 4
    assert not tmp_path.joinpath("trace").exists()


@pytest.mark.parametrize(
    ("rules", "asks", "runs"),
    [
        ({"deny": ["shell"]}, False, False),
        ({"allow": ["shell"]}, False, True),
        ({"ask": ["shell"]}, True, True),
    ],
)
async def test_a_sessions_rules_hold_for_the_agents_it_delegates_to(tmp_path, rules, asks, runs):
    agents = NESTED.replace(
        "description: H, instruction: i", "description: H, instruction: i, toolsets: [{type: shell}]"
    )
    async with open_api(tmp_path, [TASK, TRACE, "child", "root"], agents={"my": agents}) as api:
        session = await api.create(permissions=rules)
        async with api.run(session, "go") as stream:
            if asks:
                await stream.until("tool_call_confirmation")
                await api.post(f"{session}/resume", {"confirmation": "approve"})
            events = await stream.rest()
    assert ("tool_call_confirmation" in types(events)) == asks
    assert tmp_path.joinpath("trace").exists() == runs
    assert text(events).endswith("root")


async def test_a_deleted_session_takes_its_question_with_it(tmp_path):
    async with open_api(tmp_path, [TRACE]) as api:
        session = await api.create()
        async with api.events(session) as followed, api.run(session, "go") as stream:
            await stream.until("tool_call_confirmation")
            await api.delete(session)
            decided = await followed.until("approval_decided")
            assert types(await followed.rest())[-1] == "session_exited"
        assert (await api.post(f"{session}/resume", {"confirmation": "approve"})).status == 404
    assert decided["verdict"] == "deleted"
    assert not tmp_path.joinpath("trace").exists()


# --- files, secrets, configuration --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["../secret", "link/secret", "%2e%2e/secret", "/etc/hostname"])
async def test_file_tools_stay_in_the_sessions_directory(tmp_path, path):
    work = tmp_path / "work"
    work.mkdir()
    tmp_path.joinpath("secret").write_text("the secret")
    work.joinpath("link").symlink_to(tmp_path)
    script = [call("read_file", {"path": path}), call("write_file", {"path": path, "content": "x"}), "done"]
    async with open_api(tmp_path, script) as api:
        session = await api.create(safety_policy="autonomous", working_dir=str(work))
        events = await api.turn(session, "go")
    responses = [event for event in events if event.type == "tool_call_response"]
    assert responses[0]["result"].get("isError")
    assert "the secret" not in str([event.data for event in events])
    assert tmp_path.joinpath("secret").read_text() == "the secret"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example"])
async def test_a_rebound_page_reaches_no_session(tmp_path, host):
    async with open_api(tmp_path) as api:
        session = await api.create()
        for method, path in (("GET", session), ("GET", f"{session}/events"), ("POST", f"{session}/agent/my")):
            answer = await api.server.request(method, path, host=host)
            assert 400 <= answer.status < 500
        assert (await api.runtime.session(session.rpartition("/")[2]).view()).seq == 1


async def test_every_session_route_asks_for_the_token(tmp_path):
    async with open_api(tmp_path, limits=Limits(auth_token="the-token", grace_seconds=0.3)) as api:
        rows = [row for row in api.server.endpoint.table.routes if row.path.startswith("/api/sessions")]
        for row in rows:
            path = (
                row.path.replace("{id}", "x")
                .replace("{agent}", "my")
                .replace("{name}", "root")
                .replace("{msg_id}", "1")
            )
            answer = await api.server.request(row.method, path, b"{}")
            assert answer.status == 401, path
            assert b"the-token" not in answer.body
    assert len(rows) > 20


async def test_a_secret_of_the_environment_is_shown_by_no_answer(tmp_path):
    agent = MY.replace("instruction: Help.", "instruction: 'Use ${env.CANARY}.'")
    environment = {"CANARY": "sk-canary-0123456789abcdef"}

    def script(_):
        raise ModelError(
            "key sk-canary-0123456789abcdef refused", kind="authentication", provider="scripted", model="x"
        )

    async with open_api(tmp_path, script, agents={"my": agent}, environment=environment) as api:
        document = await api.get("/api/agents/my")
        assert b"${env.CANARY}" in document.body
        assert b"sk-canary" not in document.body
        session = await api.create()
        await api.refused(session, "hi", model="scripted/sk-canary")
        bad = await api.call("POST", "/api/sessions", b'{"title": {"password": "sk-canary"}}')
    assert bad.status == 400
    assert b"sk-canary" not in bad.body


async def test_files_that_attack_the_reader_leave_the_others_served(tmp_path):
    data = Path(__file__).parents[1] / "data/yaml"
    agents = {path.stem: path.read_text() for path in data.glob("*.yaml") if path.stem != "norway"}
    async with open_api(tmp_path, ["ok"], agents={"my": MY, **agents}) as api:
        names = [row["name"] for row in (await api.get("/api/agents")).json]
        assert "my" in names
        assert "alias_bomb" not in names
        assert text(await api.turn(await api.create(), "hi")) == "ok"


async def test_a_hanging_model_blocks_nobody_else(tmp_path):
    async def others(api: Api) -> None:
        for _ in range(5):
            assert text(await api.turn(await api.create(), "quick")) == "ok"

    def script(request):
        return hang() if request.messages[-1].content == "hang" else "ok"

    async with open_api(tmp_path, script) as api:
        stuck = await api.create()
        async with api.run(stuck, "hang") as stream:
            await stream.until("agent_info")
            await others(api)
