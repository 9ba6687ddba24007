from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from actors import Agent, Settings, open_runtime
from actors.errors import Conflict, Invalid, NotFound
from actors.models.catalog import Models
from actors.testing.model import ScriptedModel, call, say


def settings(tmp_path, **changes):
    return Settings(data_dir=tmp_path, working_dir=tmp_path, **changes)


def scripted(tmp_path, *answers):
    models = Models({}, tmp_path)
    model = ScriptedModel(list(answers))
    models.register("scripted", model)
    return models, model


async def test_a_failure_in_the_block_comes_out_as_itself(tmp_path):
    with pytest.raises(ZeroDivisionError):
        async with open_runtime(settings(tmp_path)):
            raise ZeroDivisionError
    with pytest.raises(NotFound):
        async with open_runtime(settings(tmp_path)) as runtime:
            await runtime.session("nobody").view()


async def test_an_agent_made_in_python_uses_its_functions(tmp_path, autojump_clock):
    async def current_time(zone: int = 0) -> str:
        """Return the time.

        Args:
            zone: Hours ahead of UTC.
        """
        return f"noon+{zone}"

    models, model = scripted(tmp_path, call("current_time", {"zone": 2}), say("It is noon."))
    agent = Agent(name="clock", model="scripted/x", tools=[current_time], safety="autonomous")
    async with open_runtime(settings(tmp_path), agents=agent, models=models) as runtime:
        session = await runtime.create_session(title="Time")
        assert await session.ask("What time is it?") == "It is noon."
    assert model.requests[0].tools[0].parameters["properties"]["zone"]["description"] == "Hours ahead of UTC."
    assert model.requests[1].messages[-1].content == "noon+2"


async def test_the_only_agent_need_not_be_named_but_one_of_several_must(tmp_path, autojump_clock):
    models, _ = scripted(tmp_path)
    agents = [Agent(name="a", model="scripted/x"), Agent(name="b", model="scripted/x")]
    async with open_runtime(settings(tmp_path), agents=agents, models=models) as runtime:
        with pytest.raises(Invalid, match="a, b"):
            await runtime.create_session()
        with pytest.raises(NotFound):
            await runtime.create_session("c")
        with pytest.raises(Invalid, match="already"):
            runtime.agents.add(Agent(name="a"))
        assert [row.name for row in await runtime.agents.listing()] == ["a", "b"]


async def test_sessions_are_listed_newest_first_and_forked_with_numbers(tmp_path, autojump_clock):
    models, _ = scripted(tmp_path, say("one"), say("two"), say("three"))
    now = iter(range(1_000_000, 2_000_000))
    agent = Agent(name="a", model="scripted/x")
    async with open_runtime(
        settings(tmp_path), agents=agent, models=models, clock=lambda: float(next(now))
    ) as runtime:
        first = await runtime.create_session(title="talk")
        await first.ask("q1")
        await first.ask("q2")
        fork = await runtime.fork(first.id, 1)
        again = await runtime.fork(fork.id, 0)
        assert [m.content for m in fork.messages] == ["q1", "one"]
        assert (fork.title, again.title, again.messages) == ("talk (fork 1)", "talk (fork 2)", ())
        for index in (-1, 2):
            with pytest.raises(Invalid, match="out of range"):
                await runtime.fork(first.id, index)
        rows = await runtime.list_sessions()
        assert [row.id for row in rows] == [again.id, fork.id, first.id]
        assert [row.num_messages for row in rows] == [0, 2, 4]
        assert await runtime.session(fork.id, "a").ask("other") == "three"
        assert len((await first.view()).messages) == 4


async def test_a_taken_id_is_refused(tmp_path, autojump_clock):
    async with open_runtime(settings(tmp_path)) as runtime:
        await runtime.create_session(session_id="mine")
        with pytest.raises(Conflict):
            await runtime.create_session(session_id="mine")


@pytest.mark.parametrize("raw", ["../x", "/a/../b", "nope", "file.txt"])
async def test_unacceptable_working_directories_are_refused(tmp_path, autojump_clock, raw):
    from actors.session.messages import Template

    (tmp_path / "file.txt").write_text("x")
    async with open_runtime(settings(tmp_path)) as runtime:
        with pytest.raises(Invalid, match="invalid working directory"):
            await runtime.create(Template(working_dir=raw))


async def test_a_root_confines_directories_after_symlinks(tmp_path, autojump_clock):
    from actors.session.messages import Template

    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "root-evil").mkdir()
    (root / "link").symlink_to(tmp_path)
    async with open_runtime(settings(tmp_path, working_dir_root=str(root))) as runtime:
        for good in (root, root / "sub"):
            view = await runtime.create(Template(working_dir=str(good)))
            assert view.template.working_dir == str(good.resolve())
        for bad in (root / "link", tmp_path / "root-evil", tmp_path):
            with pytest.raises(Invalid, match="outside the permitted root"):
                await runtime.create(Template(working_dir=str(bad)))


async def test_stopping_everything_reaches_runs_and_forbids_new_ones_until_released(tmp_path, autojump_clock):
    from actors.agent.messages import RunEnded, TextDelta
    from actors.testing.model import hang

    models, _ = scripted(tmp_path, say("a") + hang(), say("b"))
    agent = Agent(name="a", model="scripted/x")
    async with open_runtime(settings(tmp_path), agents=agent, models=models) as runtime:
        session = await runtime.create_session(title="t")
        reasons = []
        async with session.run("go") as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    assert runtime.emergency_stop("fire") >= 1
                if isinstance(event, RunEnded):
                    reasons.append((event.reason, event.detail))
        assert reasons == [("canceled", "fire")]
        runtime.release_emergency_stop()
        assert await session.ask("again") == "b"


async def test_what_was_said_is_there_for_the_next_runtime(tmp_path):
    database = tmp_path / "s.db"
    agent = Agent(name="a", model="scripted/x")
    models, _ = scripted(tmp_path, say("one"))
    async with open_runtime(settings(tmp_path, database=database), agents=agent, models=models) as runtime:
        session = await runtime.create_session(title="t")
        await session.ask("first")
    models, model = scripted(tmp_path, say("two"))
    async with open_runtime(settings(tmp_path, database=database), agents=agent, models=models) as runtime:
        assert await runtime.session(session.id, "a").ask("second") == "two"
    assert [m.content for m in model.requests[0].messages if m.role != "system"] == ["first", "one", "second"]


async def test_closing_with_a_run_going_on_leaves_it_interrupted_or_cancelled(tmp_path):
    from actors.agent.messages import TextDelta
    from actors.testing.model import hang

    database = tmp_path / "s.db"
    agent = Agent(name="a", model="scripted/x")
    models, _ = scripted(tmp_path, say("so far") + hang())
    with trio.fail_after(20):
        async with open_runtime(
            settings(tmp_path, database=database), agents=agent, models=models
        ) as runtime:
            session = await runtime.create_session(title="t")
            async with session.run("go") as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        break
        models, _ = scripted(tmp_path, say("next"))
        async with open_runtime(
            settings(tmp_path, database=database), agents=agent, models=models
        ) as runtime:
            view = await runtime.session(session.id, "a").view()
            assert [(m.content, m.interrupted) for m in view.messages] == [("go", False), ("so far", True)]
            assert await runtime.session(session.id, "a").ask("on") == "next"


async def test_following_without_a_number_begins_with_the_first_event(tmp_path, autojump_clock):
    models, _ = scripted(tmp_path, say("one"))
    agent = Agent(name="a", model="scripted/x")
    async with open_runtime(settings(tmp_path), agents=agent, models=models) as runtime:
        session = await runtime.create_session(title="t")
        await session.ask("q")
        async with session.follow() as follower:
            frames = await follower.next()
    assert isinstance(frames, Sequence)
    assert frames[0].seq == 1
