"""Other agents of the team: transfer_task, handoff, force_handoff, and agents in the background."""

from __future__ import annotations

import itertools

import pytest
import trio
import trio.testing

from actors.agent import messages as ev
from actors.agent.background import BackgroundAgents, BackgroundTask, open_background_agents
from actors.agent.delegation import KICK_OFF, MAX_DEPTH
from actors.agent.host import LivePolicy
from actors.models.provider import ModelError, ModelRequest
from actors.testing.host import RecordingHost, approve_all
from actors.testing.model import Answer, ScriptedModel, call, calls, fail, hang, say
from actors.tools.policy import Rules
from tests.agent.kit import agent, run, team_of

YOLO = LivePolicy("autonomous", Rules())


def transfer(to: str, task: str = "Do it.") -> Answer:
    return call("transfer_task", {"agent": to, "task": task, "expected_output": "A line."})


def outputs(host: RecordingHost) -> list[str]:
    return [message.content for message in host.all(ev.ToolMessageAdded) if not message.session]


async def test_a_task_runs_in_a_session_of_its_own_and_its_last_answer_is_the_result() -> None:
    host, model = RecordingHost(), ScriptedModel([transfer("b", "Count to 3."), "1 2 3", "It said 1 2 3."])
    team = team_of(
        model, agent("a", instruction="I am a.", sub_agents=("b",)), agent("b", instruction="I am b.")
    )
    assert await run(host, team, "secret history") == "normal"
    assert outputs(host) == ["1 2 3"]
    child = model.requests[1].messages
    assert [m.role for m in child] == ["system", "user"]
    assert child[0].content.startswith("I am b.")
    assert "<task>\nCount to 3.\n</task>" in child[0].content
    assert "<expected_output>\nA line.\n</expected_output>" in child[0].content
    assert child[1].content == KICK_OFF
    assert [(e.role, e.implicit) for e in host.all(ev.UserMessageAdded) if e.session] == [
        ("system", True),
        ("user", True),
    ]
    assert host.closed == ["child-1"]


async def test_the_events_of_a_delegation_nest() -> None:
    host, model = RecordingHost(), ScriptedModel([transfer("b"), "done", "ok"])
    await run(host, team_of(model, agent("a", sub_agents=("b",)), agent("b")))
    interesting = (
        ev.ToolStarted,
        ev.AgentSwitched,
        ev.RunStarted,
        ev.RunEnded,
        ev.ToolReturned,
        ev.StepStarted,
    )
    assert [(type(e).__name__, e.session) for e in host.log.events if isinstance(e, interesting)] == [
        ("RunStarted", ""),
        ("StepStarted", ""),
        ("ToolStarted", ""),
        ("AgentSwitched", ""),
        ("RunStarted", "child-1"),
        ("StepStarted", "child-1"),
        ("RunEnded", "child-1"),
        ("AgentSwitched", ""),
        ("ToolReturned", ""),
        ("StepStarted", ""),
        ("RunEnded", ""),
    ]
    there, back = host.all(ev.AgentSwitched)
    assert (there.switching, there.from_agent, there.to_agent) == (True, "a", "b")
    assert (back.switching, back.from_agent, back.to_agent) == (False, "b", "a")


async def test_an_agent_that_is_not_a_sub_agent_is_a_tool_error() -> None:
    host, model = RecordingHost(), ScriptedModel([transfer("c"), "ok"])
    spec = agent("a", sub_agents=("b", "d"))
    await run(host, team_of(model, spec, agent("b"), agent("c"), agent("d")))
    assert outputs(host) == [
        "Error calling tool: Agent a cannot transfer task to c: target agent not in sub-agents list. "
        "Available agent IDs are: b, d"
    ]
    assert not host.children


@pytest.mark.parametrize("path", [("a", "b", "a"), ("a", "a")])
async def test_a_cycle_is_a_tool_error_that_names_it(path: tuple[str, ...]) -> None:
    host = RecordingHost()
    model = ScriptedModel([*(transfer(name) for name in path[1:]), *["done"] * len(path)])
    await run(host, team_of(model, agent("a", sub_agents=("a", "b")), agent("b", sub_agents=("a",))))
    errors = [e.output for e in host.all(ev.ToolReturned) if e.is_error]
    assert errors == [f"Error calling tool: delegation cycle detected: {' -> '.join(path)}"]


async def test_a_chain_that_is_too_long_is_a_tool_error() -> None:
    host = RecordingHost()
    names = [f"a{number}" for number in range(MAX_DEPTH + 2)]
    specs = [agent(name, sub_agents=(following,)) for name, following in itertools.pairwise(names)]
    model = ScriptedModel([*(transfer(name) for name in names[1:]), *["done"] * (len(names) - 1)])
    await run(host, team_of(model, *specs, agent(names[-1])), agent=names[0])
    errors = [e.output for e in host.all(ev.ToolReturned) if e.is_error]
    assert len(errors) == 1
    assert "delegation depth limit exceeded: a0 -> a1" in errors[0]


async def test_a_failing_sub_agent_is_a_tool_error_and_the_parent_goes_on() -> None:
    host = RecordingHost()
    model = ScriptedModel([transfer("b"), fail(ModelError("no key", kind="authentication")), "I will do it."])
    assert await run(host, team_of(model, agent("a", sub_agents=("b",)), agent("b"))) == "normal"
    assert outputs(host) == ["Error calling tool: no key"]
    assert [(f.session, f.error_code) for f in host.all(ev.Failed)] == [("child-1", "model_error")]


async def test_several_tasks_of_one_step_run_in_parallel() -> None:
    host = RecordingHost()
    together = trio.Event()

    def answer(request: ModelRequest) -> Answer:
        if any(m.role == "tool" for m in request.messages):
            return say("both done")
        if request.messages[-1].content == KICK_OFF:
            if len(model.requests) == 3:
                together.set()
            return Answer() + say("part") if together.is_set() else say("p") + _until(together)
        return calls([transfer("b"), transfer("c")])

    model = ScriptedModel(answer)
    with trio.fail_after(5):
        await run(host, team_of(model, agent("a", sub_agents=("b", "c")), agent("b"), agent("c")))
    assert sorted(outputs(host)) == ["p", "part"]


def _until(event: trio.Event) -> Answer:
    from actors.testing.model import until

    return until(event)


async def test_handoff_gives_the_conversation_to_another_agent_for_good() -> None:
    host, model = RecordingHost(), ScriptedModel([call("handoff", {"agent": "b"}), "I am b."])
    team = team_of(model, agent("a", handoffs=("b",)), agent("b", instruction="You are b."))
    assert await run(host, team) == "normal"
    assert [(e.agent, e.to_agent) for e in host.all(ev.AgentHandedOff)] == [("a", "b")]
    assert not host.all(ev.AgentSwitched)
    assert [step.agent for step in host.all(ev.StepStarted)] == ["a", "b"]
    seen = model.requests[1].messages
    assert seen[0].content == "You are b."
    assert seen[1].content == "Hello"
    assert "handed over to you, b" in seen[-1].content


async def test_a_handoff_elsewhere_is_a_tool_error() -> None:
    host, model = RecordingHost(), ScriptedModel([call("handoff", {"agent": "c"}), "ok"])
    await run(host, team_of(model, agent("a", handoffs=("b",)), agent("b"), agent("c")))
    assert host.all(ev.ToolReturned)[0].is_error
    assert not host.all(ev.AgentHandedOff)


async def test_force_handoff_follows_each_final_answer_once() -> None:
    host, model = RecordingHost(), ScriptedModel(["draft", "reviewed"])
    team = team_of(model, agent("a", force_handoff="b"), agent("b", force_handoff="a"))
    model.extend("final")
    assert await run(host, team) == "normal"
    assert [step.agent for step in host.all(ev.StepStarted)] == ["a", "b", "a"]
    assert [e.implicit for e in host.all(ev.UserMessageAdded)] == [False, True, True]


async def background_run(model: ScriptedModel, service: BackgroundAgents, host: RecordingHost) -> None:
    spec = agent("a", sub_agents=("b",), background_agents=True)
    await run(host, team_of(model, spec, agent("b"), background=service))


START = call("run_background_agent", {"agent": "b", "task": "Look.", "expected_output": ""})


async def test_a_background_agent_outlives_its_run_and_is_stored_when_it_ends() -> None:
    stored: list[BackgroundTask] = []
    release = trio.Event()

    def answer(request: ModelRequest) -> Answer:
        if request.messages[-1].content == KICK_OFF:
            return say("found ") + _until(release) + say("it")
        return say("started") if request.messages[-1].role == "tool" else START

    host = RecordingHost(policy=YOLO)
    async with open_background_agents(stored.append) as service:
        await background_run(ScriptedModel(answer), service, host)
        task = service.of("session-1")[0]
        assert task.id in host.all(ev.ToolMessageAdded)[0].content
        await trio.testing.wait_all_tasks_blocked()
        assert (task.status, task.output()) == ("running", "found ")
        release.set()
        await task.ended.wait()
    assert (task.status, task.result) == ("completed", "found it")
    assert stored == [task]
    assert any(isinstance(event, ev.RunEnded) for event in task.host.events)
    assert not any(event.session for event in host.log.events)


async def test_a_background_agent_is_never_asked_about() -> None:
    def answer(request: ModelRequest) -> Answer:
        if request.messages[-1].content == KICK_OFF:
            return call("write", {"text": "x"})
        if request.messages[-1].role == "tool":
            return say(request.messages[-1].content)
        return START

    host = RecordingHost(approver=approve_all)
    async with open_background_agents() as service:
        await background_run(ScriptedModel(answer), service, host)
        task = service.of("session-1")[0]
        await task.ended.wait()
    assert task.result == "Tool 'write' requires user confirmation but the session is non-interactive."


async def test_a_stopped_background_agent_ends_cancelled_and_another_session_cannot_touch_it() -> None:
    def answer(request: ModelRequest) -> Answer:
        if request.messages[-1].content == KICK_OFF:
            return say("half") + hang()
        return say("ok") if request.messages[-1].role == "tool" else START

    host = RecordingHost(policy=YOLO)
    async with open_background_agents() as service:
        await background_run(ScriptedModel(answer), service, host)
        task = service.of("session-1")[0]
        await trio.testing.wait_all_tasks_blocked()
        assert service.of("session-2") == []
        assert service.stop_all("session-2") == 0
        service.stop("session-1", task.id)
        await task.ended.wait()
    assert (task.status, task.output()) == ("stopped", "half")
    ended = [event for event in task.host.events if isinstance(event, ev.RunEnded)]
    assert [event.reason for event in ended] == ["canceled"]


async def test_a_crashing_background_agent_fails_alone() -> None:
    def answer(request: ModelRequest) -> Answer:
        if request.messages[-1].content == KICK_OFF:
            raise RuntimeError("bug")
        return say("ok") if request.messages[-1].role == "tool" else START

    host = RecordingHost(policy=YOLO)
    async with open_background_agents() as service:
        await background_run(ScriptedModel(answer), service, host)
        task = service.of("session-1")[0]
        await task.ended.wait()
    assert task.status == "failed"
