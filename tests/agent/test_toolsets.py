"""Options of toolsets that the loop obeys: deferred tools and the model for the step after results."""

from __future__ import annotations

from actors.agent import messages as ev
from actors.agent.toolbox import ToolsetSpec
from actors.testing.host import RecordingHost
from actors.testing.model import ScriptedModel, call
from tests.agent.kit import ListToolset, agent, run, standard_tools, team_of


def names(model: ScriptedModel, request: int) -> list[str]:
    return [tool.name for tool in model.requests[request].tools]


async def test_deferred_tools_are_found_loaded_and_then_called() -> None:
    host = RecordingHost()
    model = ScriptedModel(
        [
            call("search_tool", {"query": "ECHO tool"}),
            call("add_tool", {"name": "echo"}),
            call("echo", {"text": "loaded"}),
            "done",
        ]
    )
    toolset = ListToolset(standard_tools())
    spec = agent(toolsets=(ToolsetSpec("t", lambda: toolset, defer=True),))
    assert await run(host, team_of(model, spec)) == "normal"
    assert names(model, 0) == ["search_tool", "add_tool"]
    assert names(model, 2) == ["search_tool", "add_tool", "echo"]
    results = [returned.output for returned in host.all(ev.ToolReturned)]
    assert results == ["- echo: The echo tool.", "echo is loaded.", "loaded"]


async def test_a_hidden_tool_cannot_be_called_and_an_unknown_one_not_loaded() -> None:
    host = RecordingHost()
    model = ScriptedModel([call("echo"), call("add_tool", {"name": "nothing"}), "done"])
    toolset = ListToolset(standard_tools())
    await run(host, team_of(model, agent(toolsets=(ToolsetSpec("t", lambda: toolset, defer=("echo",)),))))
    assert "slow" in names(model, 0)
    assert "echo" not in names(model, 0)
    assert [returned.outcome for returned in host.all(ev.ToolReturned)] == ["unknown", "failed"]


async def test_without_deferred_toolsets_there_is_nothing_to_search() -> None:
    model = ScriptedModel(["ok"])
    await run(RecordingHost(), team_of(model))
    assert "search_tool" not in names(model, 0)


async def test_a_toolsets_model_answers_the_step_after_its_results_only() -> None:
    main, special = (
        ScriptedModel([call("echo", {"text": "1"}), "end"]),
        ScriptedModel([call("finish", {"fail": True})]),
    )
    toolset, other = ListToolset(standard_tools()[:1]), ListToolset(standard_tools()[3:4])
    spec = agent(
        toolsets=(ToolsetSpec("a", lambda: toolset, model="special"), ToolsetSpec("b", lambda: other))
    )
    await run(RecordingHost(), team_of({"m": main, "special": special}, spec))
    assert (len(main.requests), len(special.requests)) == (2, 1)
