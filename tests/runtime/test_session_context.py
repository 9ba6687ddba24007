"""An agent looks at earlier conversations of its runtime, through the real tools and a real journal."""

from __future__ import annotations

from actors import Agent, Settings, open_runtime
from actors.models.catalog import Models
from actors.testing.model import ScriptedModel, call, say


async def test_an_agent_lists_and_reads_earlier_conversations(tmp_path, autojump_clock):
    models = Models({}, tmp_path)
    answers = [
        say("The word is plum."),
        call("list_sessions", {"limit": 5}),
        call("read_session", {"session_id": "first"}),
        call("read_session", {"session_id": "nothing"}),
        call("list_sessions", {"limit": 0}),
        say("It was plum."),
    ]
    model = ScriptedModel(answers)
    models.register("scripted", model)
    agent = Agent(name="rememberer", model="scripted/x", toolsets=[{"type": "session_context"}])
    settings = Settings(data_dir=tmp_path, working_dir=tmp_path)
    async with open_runtime(settings, agents=agent, models=models) as runtime:
        first = await runtime.create_session(title="Fruit", session_id="first")
        await first.ask("Name a word.")
        second = await runtime.create_session(title="Later")
        assert await second.ask("Which word was it?") == "It was plum."
    listed, read, missing, refused = [request.messages[-1].content for request in model.requests[2:6]]
    assert "- first: Fruit (" in listed
    assert read == "user: Name a word.\n\nrememberer: The word is plum."
    assert "nothing" in missing
    assert "from 1 to 100" in refused
