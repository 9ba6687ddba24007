"""Messages sent whatever the session is doing: runs, queues, and what an abort leaves."""

from __future__ import annotations

from actors.agent.messages import RunEnded, UserMessageAdded
from actors.journal.tail import Gap
from actors.session import messages as m
from actors.testing.model import ScriptedModel, call, hang, say, wait

from .world import World, open_world


async def send(session, text: str, **options) -> str:
    message = m.Send(source="test", message=m.UserInput(text, client_id=text), **options)
    return (await session.ref.ask(message)).delivery


async def settled(world: World, session, runs: int) -> list[str]:
    """Wait for the end of that many runs and return what the user said, in order."""
    async with world.follow(session.id, 0) as follower:
        said: list[str] = []
        while runs:
            batch = await follower.next()
            assert batch is not None
            assert not isinstance(batch, Gap)
            for frame in batch:
                if isinstance(frame.event, UserMessageAdded):
                    said.append(frame.event.client_id)
                runs -= isinstance(frame.event, RunEnded)
        return said


async def test_a_message_starts_a_run_or_waits_and_the_caller_need_not_know(autojump_clock):
    async with open_world(ScriptedModel([wait(1) + say("1"), say("2"), say("3")])) as world:
        session = await world.create(title="t")
        how = [await send(session, "a"), await send(session, "b"), await send(session, "c", steer=True)]
        assert how == ["idle", "queued", "steering"]
        assert await settled(world, session, 1) == ["a", "c", "b"]


async def test_a_message_sent_while_an_aborted_run_ends_still_gets_its_run(autojump_clock):
    async with open_world(ScriptedModel([hang(), say("2")])) as world:
        session = await world.create(title="t")
        await send(session, "a")
        await send(session, "dropped")
        await session.ref.ask(m.ClearQueue())
        await session.cancel()
        await send(session, "b")
        assert await settled(world, session, 2) == ["a", "b"]


async def test_no_model_call_names_a_session_that_messages_are_sent_to(autojump_clock):
    model = ScriptedModel([say("1")])
    async with open_world(model) as world:
        session = await world.create()
        await send(session, "How  are\nyou?")
        await settled(world, session, 1)
        assert (await session.view()).title == "How are you?"
    assert len(model.requests) == 1


async def test_a_run_on_autopilot_ends_with_the_task(autojump_clock):
    model = ScriptedModel([say("plan"), call("task_complete", {"summary": "s"})])
    async with open_world(model) as world:
        session = await world.create(title="t")
        await send(session, "a", max_continues=5)
        await settled(world, session, 1)
        kinds = [type(item.event).__name__ for item in await world.events(session)]
    assert "TaskCompleted" in kinds


async def test_a_note_is_on_record(autojump_clock):
    async with open_world(ScriptedModel()) as world:
        session = await world.create(title="t")
        await session.ref.ask(m.Note(kind="k", data={"a": 1}))
        (noted,) = [item.event for item in await world.events(session) if isinstance(item.event, m.Noted)]
    assert (noted.kind, noted.data) == ("k", {"a": 1})
