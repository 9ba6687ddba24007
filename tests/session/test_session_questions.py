from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio

from actors.agent.messages import (
    ApprovalDecided,
    ApprovalRequested,
    ElicitationRequested,
    RunEnded,
    ToolMessageAdded,
    ToolReturned,
    ToolStarted,
)
from actors.agent.team import AgentSpec
from actors.agent.toolbox import ToolsetSpec
from actors.errors import Conflict, NotFound, Overloaded
from actors.session import messages as m
from actors.testing.model import ScriptedModel, call, calls, hang, say
from actors.tools.tool import Annotations, Definition, Elicitation, ToolContext, ToolResult

from .world import open_world


class Recorded:
    """A tool that notes its calls and may ask a question or wait for ever."""

    def __init__(
        self, name: str, *, read_only: bool = False, asks: bool = False, hangs: bool = False
    ) -> None:
        self.definition = Definition(name, annotations=Annotations(read_only_hint=read_only))
        self.ran: list[Mapping[str, Any]] = []
        self._asks, self._hangs = asks, hangs

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        self.ran.append(arguments)
        if self._hangs:
            await trio.sleep_forever()
        if self._asks:
            reply = await context.elicit(Elicitation(f"which {arguments}?"))
            return ToolResult(f"{reply.action}:{dict(reply.content)}")
        return ToolResult(f"did {dict(arguments)}")


class Tools:
    instruction = ""
    name = "recorded"

    def __init__(self, *tools: Recorded) -> None:
        self._tools = tools

    async def start(self) -> None:
        pass

    async def aclose(self) -> None:
        pass

    def tools(self):
        return self._tools


def with_tools(*tools: Recorded) -> list[AgentSpec]:
    return [
        AgentSpec(name="root", models=("test/m",), toolsets=(ToolsetSpec("recorded", lambda: Tools(*tools)),))
    ]


async def pending(events):
    async for event in events:
        if isinstance(event, ApprovalRequested):
            return event
    raise AssertionError("no approval was requested")


async def rest(events):
    return [event async for event in events]


async def test_nothing_runs_before_the_approval_and_it_runs_once(autojump_clock):
    tool = Recorded("write")
    model = ScriptedModel([call("write", {"x": 1}), say("done")])
    async with open_world(model, agents=with_tools(tool)) as world:
        session = await world.create(title="t")
        async with session.run("go") as events:
            asked = await pending(events)
            assert tool.ran == []
            await session.decide("approve")
            await session.decide("approve")
            seen = await rest(events)
        assert tool.ran == [{"x": 1}]
        decided = [event for event in seen if isinstance(event, ApprovalDecided)]
        assert [(each.approval_id, each.verdict) for each in decided] == [(asked.approval_id, "approved")]
        kinds = [type(event) for event in seen]
        assert kinds.index(ApprovalDecided) < kinds.index(ToolStarted) < kinds.index(ToolReturned)


async def test_a_rejection_tells_the_model_why_and_the_run_goes_on(autojump_clock):
    tool = Recorded("write")
    model = ScriptedModel([call("write", {}), say("understood")])
    async with open_world(model, agents=with_tools(tool)) as world:
        session = await world.create(title="t")
        async with session.run("go") as events:
            await pending(events)
            await session.decide("reject", reason="no")
            seen = await rest(events)
    returned = next(event for event in seen if isinstance(event, ToolReturned))
    assert (returned.output, returned.is_error) == ("The user rejected the tool call. Reason: no", True)
    assert not any(isinstance(event, ToolStarted) for event in seen)
    assert tool.ran == []
    assert len(model.requests) == 2


async def test_approving_for_the_session_lets_the_call_queued_behind_run_unasked(autojump_clock):
    tool = Recorded("write")
    model = ScriptedModel([calls([("write", {"n": 1}), ("write", {"n": 2})]), say("done")])
    async with open_world(model, agents=with_tools(tool)) as world:
        session = await world.create(title="t")
        async with session.run("go") as events:
            await pending(events)
            await session.decide("approve-session")
            seen = await rest(events)
        assert not any(isinstance(event, ApprovalRequested) for event in seen)
        assert (await session.view()).safety_policy == "autonomous"
    assert len(tool.ran) == 2


async def test_approving_a_tool_adds_a_rule_for_it_alone(autojump_clock):
    write, other = Recorded("write"), Recorded("other")
    model = ScriptedModel([call("write", {}), call("write", {}), call("other", {}), say("done")])
    async with open_world(model, agents=with_tools(write, other)) as world:
        session = await world.create(title="t")
        async with session.run("go") as events:
            await pending(events)
            await session.decide("approve-tool")
            assert (await pending(events)).call.name == "other"
            await session.decide("reject")
            await rest(events)
        rules = (await session.view()).permissions
    assert rules == m.PermissionRules(allow=("write",))
    assert len(write.ran) == 2


async def test_a_bogus_word_or_a_foreign_id_decides_nothing(autojump_clock):
    tool = Recorded("write")
    async with open_world(ScriptedModel([call("write", {}), say("x")]), agents=with_tools(tool)) as world:
        session = await world.create(title="t")
        async with session.run("go") as events:
            await pending(events)
            await session.decide("bogus")
            with pytest.raises(Conflict):
                await session.decide("approve", approval_id="approval_other")
            await trio.testing.wait_all_tasks_blocked()
            assert tool.ran == []
            await session.decide("approve")
            await rest(events)


async def test_cancelling_while_calls_wait_closes_all_of_them(autojump_clock):
    tool = Recorded("write")
    model = ScriptedModel([calls([("write", {"n": n}) for n in range(4)]), say("fresh")])
    async with open_world(model, agents=with_tools(tool)) as world:
        session = await world.create(title="t")
        async with session.run("go") as events:
            await pending(events)
            await session.cancel()
            seen = await rest(events)
        assert not any(isinstance(event, ApprovalRequested) for event in seen)
        assert [event.verdict for event in seen if isinstance(event, ApprovalDecided)] == ["cancelled"]
        assert sum(isinstance(event, ToolMessageAdded) for event in seen) == 4
        assert tool.ran == []
        assert await session.ask("again") == "fresh"


async def test_toggling_yolo_does_not_answer_a_waiting_question(autojump_clock):
    tool = Recorded("write")
    model = ScriptedModel([call("write", {}), call("write", {}), say("x")])
    async with open_world(model, agents=with_tools(tool)) as world:
        session = await world.create(title="t", safety_policy="balanced")
        async with session.run("go") as events:
            await pending(events)
            await session.ref.ask(m.ToggleYolo())
            await trio.testing.wait_all_tasks_blocked()
            assert tool.ran == []
            await session.decide("approve")
            seen = await rest(events)
        assert not any(isinstance(event, ApprovalRequested) for event in seen)
        await session.ref.ask(m.ToggleYolo())
        assert (await session.view()).safety_policy == "balanced"


async def test_two_questions_are_told_apart_by_their_ids(autojump_clock):
    tool = Recorded("ask", read_only=True, asks=True)
    model = ScriptedModel([calls([("ask", {"n": 1}), ("ask", {"n": 2})]), say("thanks")])
    async with open_world(model, agents=with_tools(tool)) as world:
        session = await world.create(title="t")
        async with session.run("go") as events:
            asked = []
            async for event in events:
                if isinstance(event, ElicitationRequested):
                    asked.append(event.elicitation_id)
                    if len(asked) == 2:
                        break
            with pytest.raises(Conflict, match="no elicitation request in progress"):
                await session.answer("accept", {})
            await session.answer("accept", {"a": 2}, asked[1])
            with pytest.raises(Conflict):
                await session.answer("accept", {"a": 3}, asked[1])
            await session.answer("decline")
            seen = await rest(events)
    outputs = [event.output for event in seen if isinstance(event, ToolReturned)]
    assert sorted(outputs) == ["accept:{'a': 2}", "decline:{}"]


async def test_questions_on_a_session_that_never_ran_here_are_not_found(autojump_clock):
    async with open_world(ScriptedModel([])) as world:
        session = await world.create(title="t")
        with pytest.raises(NotFound):
            await session.decide("approve")
        with pytest.raises(NotFound):
            await session.answer("accept")
        with pytest.raises(Conflict):
            await session.steer("x")


async def test_queues_are_bounded_and_take_all_or_nothing(autojump_clock):
    async with open_world(ScriptedModel([say("a") + hang()])) as world:
        session = await world.create(title="t")
        async with session.run("go"):
            await session.steer(*["s"] * 5)
            with pytest.raises(Overloaded, match="steer queue full"):
                await session.steer("s")
            await session.follow_up(*["f"] * 19)
            with pytest.raises(Overloaded, match="follow-up queue full"):
                await session.follow_up("f", "f", key="k")
            assert (await session.view()).followup_depth == 19
            assert not (await session.follow_up("f", key="k")).duplicate


async def test_steering_reaches_the_model_before_its_next_call(autojump_clock):
    tool = Recorded("look", read_only=True)
    release = trio.Event()

    class Slow(Recorded):
        async def run(self, arguments, context):
            await release.wait()
            return await super().run(arguments, context)

    slow = Slow("slow", read_only=True)
    model = ScriptedModel([call("slow", {}), say("ok")])
    async with open_world(model, agents=with_tools(tool, slow)) as world:
        session = await world.create(title="t")
        async with session.run("go") as events:
            async for event in events:
                if isinstance(event, ToolStarted):
                    assert (await session.steer("hurry")).streaming
                    release.set()
    assert [x.content for x in model.requests[1].messages if x.role == "user"][-1] == "hurry"


async def test_stopping_everything_ends_runs_with_a_record(autojump_clock):
    tool = Recorded("look", read_only=True, hangs=True)
    async with open_world(ScriptedModel([call("look", {}), say("ok")]), agents=with_tools(tool)) as world:
        session = await world.create(title="t")
        async with session.run("go") as events:
            async for event in events:
                if isinstance(event, ToolStarted):
                    assert world.system.killswitch.trip("fire") == 1
                if isinstance(event, RunEnded):
                    assert (event.reason, event.detail) == ("canceled", "fire")
        world.system.killswitch.reset()
        assert await session.ask("again") == "ok"
