from __future__ import annotations

import pytest
import trio

from actors.agent.messages import (
    RunEnded,
    RunStarted,
    TextDelta,
)
from actors.errors import Conflict, NotFound
from actors.journal.tail import Gap
from actors.session import messages as m
from actors.testing.model import ScriptedModel, hang, say, wait

from .world import open_world


async def test_a_run_streams_its_events_in_the_documented_order(autojump_clock):
    async with open_world(ScriptedModel([say("Hello there", chunks=2)])) as world:
        session = await world.create(title="given")
        seen = [event async for event in session.run("hi")]
    kinds = [type(event).__name__ for event in seen]
    order = ["TitleChanged", "TeamAnnounced", "UserMessageAdded", "RunStarted", "StepStarted", "TextDelta"]
    order += ["AssistantMessageAdded", "UsageReported", "StepEnded", "RunEnded"]
    positions = [kinds.index(kind) for kind in order]
    assert positions == sorted(positions), kinds
    assert "".join(e.text for e in seen if isinstance(e, TextDelta)) == "Hello there"


async def test_a_run_is_in_the_history_after_it(autojump_clock):
    async with open_world(ScriptedModel([say("one"), say("two")])) as world:
        session = await world.create(title="t")
        assert await session.ask("first") == "one"
        assert await session.ask("second") == "two"
        view = await session.view()
    assert [(x.role, x.content) for x in view.messages] == [
        ("user", "first"),
        ("assistant", "one"),
        ("user", "second"),
        ("assistant", "two"),
    ]
    assert not view.streaming


async def test_a_second_run_is_refused_and_stores_nothing(autojump_clock):
    async with open_world(ScriptedModel([say("s") + wait(5) + say("low")])) as world:
        session = await world.create(title="t")
        async with session.run("first") as events:
            with pytest.raises(Conflict, match="already processing"):
                await session.ask("second")
            async for _ in events:
                pass
        view = await session.view()
    assert [x.content for x in view.messages] == ["first", "slow"]


async def test_cancelling_keeps_the_text_so_far_and_frees_the_session(autojump_clock):
    async with open_world(ScriptedModel([say("partial") + hang(), say("next")])) as world:
        session = await world.create(title="t")
        async with session.run("go") as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    await session.cancel("enough")
                if isinstance(event, RunEnded):
                    assert event.reason == "canceled"
        view = await session.view()
        assert [(x.content, x.interrupted) for x in view.messages] == [("go", False), ("partial", True)]
        assert await session.ask("again") == "next"


async def test_an_unknown_session_is_not_found_and_leaves_no_actor(autojump_clock):
    async with open_world(ScriptedModel([])) as world:
        with pytest.raises(NotFound):
            await world.session_ref("nobody").ask(m.GetView())
        await trio.testing.wait_all_tasks_blocked()
        assert world.system.statistics().actors == 0


async def test_numbers_rise_by_one_on_the_stream_and_replay_gives_the_same_events(autojump_clock):
    async with open_world(ScriptedModel([say("abc", chunks=3)])) as world:
        session = await world.create(title="t")
        async with world.follow(session.id, 0) as follower:
            await session.ask("go")
            live = []
            while not any(isinstance(frame.event, RunEnded) for frame in live):
                batch = await follower.next()
                live += [] if batch is None or isinstance(batch, Gap) else batch
        replayed = await world.events(session)
    assert [frame.seq for frame in live] == list(range(1, len(live) + 1))
    assert [(x.seq, x.event) for x in replayed] == [(x.seq, x.event) for x in live]


async def test_a_run_whose_process_died_is_closed_when_the_session_is_next_touched(autojump_clock):
    class Dead:
        me = "survivor"

        def alive(self, owner):
            return owner == self.me

    class Victim(Dead):
        me = "victim"

    async with open_world(ScriptedModel([say("said so far") + hang()]), owners=Victim()) as first:
        session = await first.create(title="t")
        async with session.run("question") as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    break
        await trio.sleep(1)  # the flusher stores the text so far
        before = await first.events(session)
        assert any(isinstance(x.event, RunStarted) and x.event.owner == "victim" for x in before)
        async with open_world(ScriptedModel([say("fine")]), owners=Dead(), log=first.log) as second:
            again = m.GetView()
            view = await second.session_ref(session.id).ask(again)
            assert [(x.content, x.interrupted) for x in view.messages] == [
                ("question", False),
                ("said so far", True),
            ]
            assert not view.streaming
            events = await second.events(session)
            assert [x.event.reason for x in events if isinstance(x.event, RunEnded)] == ["interrupted"]
            seqs = [x.seq for x in events]
            assert seqs == sorted(set(seqs))
            first.system.killswitch.trip("gone")


async def test_a_title_is_made_by_the_model_before_the_run_ends(autojump_clock):
    model = ScriptedModel([say("answer"), say("A fine title")])
    async with open_world(model) as world:
        session = await world.create()
        kinds = [event async for event in session.run("hello")]
        view = await session.view()
    assert view.title in ("A fine title", "answer")
    assert any(isinstance(event, m.TitleChanged) for event in kinds)


async def test_follow_ups_get_a_turn_each_and_survive_in_the_queue(autojump_clock):
    model = ScriptedModel([say("o") + wait(2) + say("ne"), say("two")])
    async with open_world(model) as world:
        session = await world.create(title="t")
        async with session.run("first") as events:
            async for event in events:
                if isinstance(event, RunStarted):
                    queued = await session.follow_up("second", key="k")
                    assert queued.streaming
                    assert not queued.duplicate
                    assert (await session.follow_up("second", key="k")).duplicate
        view = await session.view()
    assert [x.content for x in view.messages] == ["first", "one", "second", "two"]
    assert view.followup_depth == 0


async def test_deleting_ends_followers_with_the_last_event(autojump_clock):
    async with open_world(ScriptedModel([say("a") + hang()])) as world:
        session = await world.create(title="t")
        async with session.run("go"), world.follow(session.id, 0) as follower:
            await session.delete()
            frames = []
            while (batch := await follower.next()) is not None:
                frames += [] if isinstance(batch, Gap) else batch
            assert isinstance(frames[-1].event, m.SessionDeleted)
            assert any(isinstance(frame.event, RunEnded) for frame in frames)
        with pytest.raises(NotFound):
            await session.view()
        with pytest.raises(NotFound):
            await session.delete()


async def test_a_model_override_is_kept_and_a_bad_one_stores_nothing(autojump_clock):
    from actors.errors import Invalid

    model = ScriptedModel([say("a"), say("b")])
    async with open_world(model) as world:
        session = await world.create(title="t")
        with pytest.raises(Invalid):
            await session.ask("x", model="test/nothing")
        assert (await session.view()).messages == ()
        await session.ask("x", model="other/big")
        await session.ask("y")
        assert [request.model for request in model.requests] == ["big", "big"]
        assert (await session.view()).model_overrides == {"root": "other/big"}


async def test_idle_sessions_give_their_actor_back_and_wake_with_everything(autojump_clock):
    async with open_world(ScriptedModel([say("a"), say("b")]), idle_after=5) as world:
        session = await world.create(title="t")
        await session.ask("x")
        await trio.sleep(30)
        assert world.system.statistics().actors == 0
        assert await session.ask("y") == "b"
        assert [x.role for x in (await session.view()).messages] == ["user", "assistant"] * 2


async def test_without_its_snapshots_a_session_is_the_same(autojump_clock, monkeypatch):
    from actors.journal.snapshot import Cadence
    from actors.session import snapshot

    monkeypatch.setattr(snapshot, "CADENCE", Cadence(records=1))
    answers = [say("a" * 50), say("b"), say("c"), say("d")]
    async with open_world(ScriptedModel(answers), idle_after=5) as world:
        session = await world.create(title="t", safety_policy="balanced")
        await session.ask("x", model="other/m")
        await session.ask("y")
        await session.set_title("renamed")
        await trio.sleep(30)
        assert await world.log.load_snapshot(f"session/{session.id}") is not None
        awake = await session.view()
        assert await session.ask("z") == "c"
        await trio.sleep(30)
        with_snapshot = await session.view()
        await trio.sleep(30)
        await world.log.save_snapshot(f"session/{session.id}", 0, b"not a snapshot")
        without = await session.view()
        assert without == with_snapshot
        assert awake.title == without.title == "renamed"
        assert await session.ask("again") == "d"


async def test_a_run_may_follow_the_end_of_the_last_at_once(autojump_clock):
    count = 30
    async with open_world(ScriptedModel([say(str(n)) for n in range(count)])) as world:
        session = await world.create(title="t")
        for n in range(count):
            async with session.run("go") as events:
                async for event in events:
                    if isinstance(event, RunEnded):
                        assert event.reason == "normal"
                        break
            assert (await session.view()).messages[-1].content == str(n)
        ended = [x.event.reason for x in await world.events(session) if isinstance(x.event, RunEnded)]
    assert ended == ["normal"] * count


async def test_a_run_waits_for_the_last_ones_tools_to_close(autojump_clock):
    from actors.agent.team import AgentSpec
    from actors.agent.toolbox import ToolsetSpec

    log: list[str] = []

    class Slow:
        name, instruction = "slow", ""

        async def start(self):
            log.append("start")

        async def aclose(self):
            await trio.sleep(1)
            log.append("close")

        def tools(self):
            return ()

    agents = [AgentSpec(name="root", models=("test/m",), toolsets=(ToolsetSpec("slow", Slow),))]
    async with open_world(ScriptedModel([say("a"), say("b")]), agents=agents) as world:
        session = await world.create(title="t")
        await session.ask("x")
        await session.ask("y")
    assert log == ["start", "close", "start", "close"]


async def test_what_another_server_runs_is_only_shown_here(autojump_clock):
    class Elsewhere:
        me = "here"

        def alive(self, owner):
            return True

    class There(Elsewhere):
        me = "there"

    async with open_world(ScriptedModel([say("x") + hang()]), owners=There()) as there:
        session = await there.create(title="t")
        async with session.run("go") as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    break
            async with open_world(ScriptedModel([]), owners=Elsewhere(), log=there.log) as here:
                ref = here.session_ref(session.id)
                assert (await ref.ask(m.GetView())).streaming
                refused = (
                    m.SetTitle(title="no"),
                    m.CancelRun(),
                    m.DeleteSession(),
                    m.SetStarred(starred=True),
                )
                for command in refused:
                    with pytest.raises(Conflict):
                        await ref.ask(command)
            assert (await session.view()).title == "t"
            await session.set_title("mine")
            await session.cancel()
            reasons = [event.reason async for event in events if isinstance(event, RunEnded)]
            assert reasons == ["canceled"]


async def test_deleting_during_a_run_is_no_failure_of_the_run(autojump_clock, caplog):
    async with open_world(ScriptedModel([say("a") + hang()])) as world:
        session = await world.create(title="t")
        async with session.run("go") as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    await session.delete()
                    break
        await trio.sleep(5)
    assert [record.message for record in caplog.records if record.levelname in ("ERROR", "WARNING")] == []
