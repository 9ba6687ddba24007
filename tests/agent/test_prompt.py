"""What goes to the model: system prompt, trimmed history, titles, and texts without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from actors.agent.host import LivePolicy
from actors.agent.prompt import REMOVED, Trim, World, estimate_tokens, excerpt, system_prompt, trimmed
from actors.agent.redact import MARK, redact, redact_json
from actors.agent.titles import generate_title
from actors.agent.toolbox import ToolsetSpec
from actors.agent.world import describe_environment, find_prompt_files
from actors.models.provider import Message, ModelError, ToolCall
from actors.testing.host import RecordingHost
from actors.testing.model import Answer, ScriptedModel, call, fail, hang, reason, say
from actors.testing.strict import check_history
from actors.tools.policy import Rules
from tests.agent.kit import ListToolset, agent, run, standard_tools, team_of

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----"
SECRETS = [
    "sk-" + "proj-" + "a1B2" * 10,
    "sk-" + "ant-" + "api03-" + "x" * 40,
    "gh" + "p_" + "A1" * 18,
    "AK" + "IA" + "ABCDEFGHIJKLMNOP",
    "xox" + "b-123456789012-abcdef",
    "gl" + "pat-" + "x" * 20,
    "ey" + "JhbGciOiJIUzI1NiJ9.ey" + "JzdWIiOiIxMjM0NTY3ODkwIn0.abcdefghijklmnop",
    PEM,
]


def test_the_system_prompt_has_its_parts_in_order() -> None:
    spec = agent(
        "a",
        instruction="Be kind.",
        sub_agents=("b",),
        handoffs=("c",),
        add_date=True,
        add_environment_info=True,
    )
    team = team_of(
        ScriptedModel([]), spec, agent("b", description="Counts."), agent("c", description="Sings.")
    )
    world = World("2025-01-31", "Working directory: /w", (("AGENTS.md", "House rules.\n"),))
    text = system_prompt(team, spec, world, ["Use tools."], "A task.")
    parts = [
        "Be kind.",
        "Use tools.",
        "- b: Counts.",
        "- c: Sings.",
        "2025-01-31",
        "<env>",
        "House rules.",
        "A task.",
    ]
    assert [part for part in parts if part in text] == parts
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)


def test_an_agent_with_nothing_to_say_has_no_system_prompt() -> None:
    spec = agent()
    assert system_prompt(team_of(ScriptedModel([]), spec), spec, World("2025-01-31"), []) == ""


def test_prompt_files_are_found_upwards_and_at_home(tmp_path: Path) -> None:
    deep, home = tmp_path / "a" / "b", tmp_path / "home"
    deep.mkdir(parents=True)
    home.mkdir()
    (tmp_path / "a" / "AGENTS.md").write_text("up")
    (home / "own.md").write_bytes(b"bad \xff byte")
    assert find_prompt_files(["AGENTS.md", "own.md", "none.md"], deep, home) == (
        ("AGENTS.md", "up"),
        ("own.md", "bad \N{REPLACEMENT CHARACTER} byte"),
    )
    assert f"Working directory: {deep}" in describe_environment(deep)


async def test_instructions_of_toolsets_and_their_tools_reach_the_model() -> None:
    toolset = ListToolset(standard_tools(), instruction="Prefer echo.")
    model = ScriptedModel(["ok"])
    spec = agent(toolsets=(ToolsetSpec("t", lambda: toolset),), add_description_parameter=True)
    await run(RecordingHost(), team_of(model, spec))
    assert model.requests[0].messages[0].content == "Prefer echo."
    assert [tool.name for tool in model.requests[0].tools] == ["echo", "slow", "broken", "finish", "write"]
    assert all("description" in tool.parameters["properties"] for tool in model.requests[0].tools)


async def test_a_readonly_agent_has_only_read_only_tools() -> None:
    model = ScriptedModel(["ok"])
    await run(RecordingHost(), team_of(model, agent(readonly=True)))
    assert "write" not in [tool.name for tool in model.requests[0].tools]


def history(rounds: int, size: int = 400) -> list[Message]:
    found = [Message("user", "question")]
    for number in range(rounds):
        found.append(Message("assistant", tool_calls=(ToolCall(f"c{number}", "t", '{"a":1}'),)))
        found.append(Message("tool", "r" * size, tool_call_id=f"c{number}"))
    return found


@pytest.mark.parametrize("count", range(1, 13))
def test_the_newest_items_are_kept_without_splitting_a_pair_or_losing_the_question(count: int) -> None:
    kept = trimmed(history(5), Trim(num_history_items=count))
    check_history(kept)
    assert kept[0].content == "question"
    assert len(kept) <= count + 1


def test_old_tool_calls_are_emptied_and_the_newest_batch_is_whole() -> None:
    kept = trimmed(history(5), Trim(max_old_tool_call_tokens=150))
    check_history(kept)
    assert [m.content == REMOVED for m in kept if m.role == "tool"] == [True, True, True, False, False]


@pytest.mark.parametrize("limit", range(10, 40))
def test_a_result_is_cut_between_code_points(limit: int) -> None:
    text = "ascii " + "\N{PILE OF POO}" * 100
    message = Message("tool", text, tool_call_id="c")
    cut = trimmed([message], Trim(max_tool_result_tokens=limit))[0].content
    cut.encode()
    assert "left out" in cut
    assert cut.startswith("ascii")


def test_short_texts_and_unlimited_histories_stay_the_same_objects() -> None:
    messages = history(2)
    assert trimmed(messages, Trim()) is messages
    assert excerpt("short", 10) == "short"
    assert estimate_tokens([Message("user", "x" * 400)]) >= 100


@pytest.mark.parametrize("secret", SECRETS)
def test_known_secrets_are_scrubbed_and_the_rest_stays(secret: str) -> None:
    assert redact(f"before {secret} after") == f"before {MARK} after"


@pytest.mark.parametrize(
    "text",
    [
        "plain words",
        "d41d8cd98f00b204e9800998ecf8427e",
        "https://example.org/path?x=1",
        "sk-short",
        "task-list-of-things",
    ],
)
def test_ordinary_texts_are_not_touched(text: str) -> None:
    assert redact(text) is text


def test_passwords_in_urls_are_scrubbed_and_json_keeps_its_shape() -> None:
    assert redact("postgres://me:hunter2@db/x") == f"postgres://me:{MARK}@db/x"
    assert redact_json({"a": [SECRETS[0], 1], "b": {"c": "ok"}}) == {"a": [MARK, 1], "b": {"c": "ok"}}


async def test_secrets_reach_neither_tool_nor_model_unless_the_author_wants_it() -> None:
    secret = SECRETS[0]
    for wanted, spec in ((MARK, agent()), (secret, agent(redact_secrets=False))):
        model = ScriptedModel([call("echo", {"text": secret}), "ok"])
        host = RecordingHost(policy=LivePolicy("autonomous", Rules()))
        await run(host, team_of(model, spec), f"my key is {secret}")
        sent = model.requests[1].messages
        assert sent[0].content == f"my key is {wanted}"
        assert sent[-1].content == wanted


async def test_a_title_is_the_first_line_of_one_small_call() -> None:
    model = ScriptedModel([reason("hm") + say("\n  Fixing the build \nmore")])
    title = await generate_title(team_of(model), "root", "", [Message("user", "the build fails")])
    assert title == "Fixing the build"
    request = model.requests[0]
    assert (request.max_tokens, request.tools) == (20, ())
    assert "the build fails" in request.messages[-1].content


@pytest.mark.parametrize("answer", [fail(ModelError("no", kind="server")), say("  \n "), hang()])
async def test_a_title_that_fails_is_empty(answer: Answer, autojump_clock: trio.abc.Clock) -> None:
    began = trio.current_time()
    assert await generate_title(team_of(ScriptedModel([answer])), "root", "", [Message("user", "x")]) == ""
    assert trio.current_time() - began <= 31


async def test_nothing_to_name_makes_no_call() -> None:
    model = ScriptedModel([])
    assert await generate_title(team_of(model), "root", "", [Message("user", "  ")]) == ""
    assert not model.requests


async def test_the_title_model_comes_first_and_the_override_is_next() -> None:
    small, chosen = ScriptedModel(["small"]), ScriptedModel(["chosen"])
    models = {"m": ScriptedModel([]), "small": small, "chosen": chosen}
    asked = [Message("user", "x")]
    assert (
        await generate_title(team_of(models, agent(title_model="small")), "root", "chosen", asked) == "small"
    )
    assert await generate_title(team_of(models, agent()), "root", "chosen", asked) == "chosen"
