"""Wrappers around toolsets, the registry, and the small toolsets without a file of their own."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from actors.errors import Invalid, Unsupported
from actors.tools.options import OPTIONS
from actors.tools.registry import BUILDERS, Deps, build_toolset, read_options
from actors.tools.tool import Elicitation, ElicitationReply, ToolContext
from actors.tools.wrappers import Instructed, OutputBounded, Prefixed, only, read_only
from tests.tools.kit import build, call, context_in

READ_ONLY = {
    "filesystem": {
        "read_file", "read_multiple_files", "list_directory", "directory_tree", "search_files_content",
    },
    "think": {"think"},
    "todo": {"create_todo", "create_todos", "update_todos", "list_todos"},
    "user_prompt": {"user_prompt"},
    "memory": {"get_memories", "search_memories"},
    "session_plan": {"read_session_plan", "exit_plan_mode"},
    "git": {"git_status", "git_log", "git_branches", "git_show", "git_blame"},
    "shell": set[str](),
    "fetch": set[str](),
    "open_url": set[str](),
    "tasks": {"get_task", "list_tasks", "next_task"},
}  # fmt: skip
ARGUMENTS = {
    "shell": {"shell": ["cmd", "cwd", "timeout"]},
    "filesystem": {
        "read_file": ["path", "line", "limit"],
        "read_multiple_files": ["paths", "json"],
        "write_file": ["path", "content"],
        "edit_file": ["path", "edits"],
        "list_directory": ["path"],
        "directory_tree": ["path"],
        "search_files_content": ["path", "query", "is_regex", "excludePatterns"],
        "create_directory": ["paths"],
        "remove_directory": ["paths"],
    },
    "think": {"think": ["thought"]},
    "todo": {
        "create_todo": ["description"],
        "create_todos": ["descriptions"],
        "update_todos": ["updates"],
        "list_todos": [],
    },
    "fetch": {"fetch": ["urls", "timeout", "format"]},
    "user_prompt": {"user_prompt": ["message", "title", "schema"]},
    "memory": {
        "add_memory": ["memory", "category"],
        "get_memories": [],
        "delete_memory": ["id"],
        "search_memories": ["query", "category"],
        "update_memory": ["id", "memory", "category"],
    },
    "session_plan": {"write_session_plan": ["content"], "read_session_plan": [], "exit_plan_mode": []},
    "open_url": {"open_url": ["url"]},
}


@pytest.mark.parametrize("kind", sorted(READ_ONLY))
def test_read_only_hints_are_those_of_the_contract(kind: str) -> None:
    tools = build(kind).tools()
    assert {
        tool.definition.name for tool in tools if tool.definition.annotations.read_only_hint
    } == READ_ONLY[kind]


@pytest.mark.parametrize("kind", sorted(ARGUMENTS))
def test_tools_and_arguments_are_those_of_the_contract(kind: str) -> None:
    found = {
        tool.definition.name: list(tool.definition.parameters["properties"]) for tool in build(kind).tools()
    }
    assert found == ARGUMENTS[kind]
    assert all(tool.definition.description for tool in build(kind).tools())


def test_edit_arguments_are_camel_case() -> None:
    edit = next(tool for tool in build("filesystem").tools() if tool.definition.name == "edit_file")
    assert list(edit.definition.parameters["$defs"]["Edit"]["properties"]) == ["oldText", "newText"]


@pytest.mark.parametrize("kind", sorted(set(OPTIONS) - set(BUILDERS)))
def test_type_that_is_not_built_here_is_named_in_the_refusal(kind: str) -> None:
    needed = {
        "mcp": {"command": "x"},
        "rag": {"ref": "x"},
        "api": {"api_config": {"name": "a", "endpoint": "http://x"}},
        "openapi": {"url": "http://x"},
        "lsp": {"command": "x"},
        "a2a": {"url": "http://x"},
    }
    with pytest.raises(Unsupported, match=f"'{kind}' is not available"):
        build(kind, **needed.get(kind, {}))


@pytest.mark.parametrize("kind", ["plan", "background_jobs"])
def test_type_whose_service_is_missing_is_unsupported(kind: str) -> None:
    with pytest.raises(Unsupported):
        build(kind)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({}, "type None is unknown"),
        ({"type": "shel"}, "type 'shel' is unknown"),
        ({"type": "shell", "pth": 1}, "unknown field `pth`"),
        ({"type": "fetch", "timeout": 0}, "'timeout' must be positive"),
        ({"type": "fetch", "allowed_domains": ["a"], "blocked_domains": ["b"]}, "cannot be used together"),
        ({"type": "mcp"}, "exactly one of"),
        ({"type": "mcp", "command": "a", "ref": "b"}, "exactly one of"),
        ({"type": "rag"}, "exactly one of"),
        ({"type": "script", "shell": {"a": {"cmd": "x", "args": {"b-c": {}}}}}, "environment variable"),
        ({"type": "script", "shell": {"a": {"cmd": "x", "required": ["q"]}}}, "not in 'args'"),
        ({"type": "webhook", "webhook_config": {"provider": "fax"}}, "'fax' is unknown"),
    ],
)
def test_wrong_options_are_refused(raw: dict[str, object], problem: str) -> None:
    with pytest.raises(Invalid, match=problem):
        build_toolset(read_options(raw), Deps())


def test_common_options_wrap_the_toolset() -> None:
    toolset = build("filesystem", tools=["read_file", "write_file"], readonly=True, instruction="Be careful.")
    assert [tool.definition.name for tool in toolset.tools()] == ["read_file"]
    assert toolset.instruction.startswith("Paths are relative")
    assert toolset.instruction.endswith("Be careful.")
    assert toolset.name == "filesystem"


async def test_wrappers_pass_calls_through(tmp_path: Path) -> None:
    inner = build("think")
    toolset = OutputBounded(Prefixed(Instructed(inner, ""), "my"), 50)
    await toolset.start()
    result = await call(toolset, "my_think", context_in(tmp_path), thought="x" * 500)
    assert len(result.output) == 50
    assert toolset.instruction == inner.instruction
    await toolset.aclose()
    assert not only(inner, {"other"}).tools()
    assert len(read_only(inner).tools()) == 1


async def test_todo_list_follows_updates(tmp_path: Path) -> None:
    toolset, context = build("todo"), context_in(tmp_path)
    await call(toolset, "create_todo", context, description="one")
    await call(toolset, "create_todos", context, descriptions=["two", "three"])
    updates = [{"id": "todo_2", "status": "in-progress"}, {"id": "x", "status": "completed"}]
    assert "Unknown id: x" in (await call(toolset, "update_todos", context, updates=updates)).output
    listed = await call(toolset, "list_todos", context)
    assert listed.output == "[ ] todo_1: one\n[~] todo_2: two\n[ ] todo_3: three"
    assert listed.meta["todos"][1]["status"] == "in-progress"
    assert (
        await call(toolset, "update_todos", context, updates=[{"id": "x", "status": "completed"}])
    ).is_error
    assert (
        await call(toolset, "update_todos", context, updates=[{"id": "todo_1", "status": "gone"}])
    ).is_error


async def test_shared_todo_lists_are_one(tmp_path: Path) -> None:
    deps, context = Deps(), context_in(tmp_path)
    first, second, own = (
        build("todo", deps, shared=True),
        build("todo", deps, shared=True),
        build("todo", deps),
    )
    await call(first, "create_todo", context, description="shared")
    assert "shared" in (await call(second, "list_todos", context)).output
    assert (await call(own, "list_todos", context)).output == "The list is empty."


class Person:
    """Answers questions and remembers them."""

    def __init__(self, reply: ElicitationReply) -> None:
        self.reply = reply
        self.asked: list[Elicitation] = []

    async def __call__(self, question: Elicitation) -> ElicitationReply:
        self.asked.append(question)
        return self.reply


def asking(person: Person, tmp_path: Path) -> ToolContext:
    return context_in(tmp_path, elicit=person)


async def test_user_prompt_returns_action_and_content(tmp_path: Path) -> None:
    person = Person(ElicitationReply("accept", {"response": "blue"}))
    result = await call(
        build("user_prompt"),
        "user_prompt",
        asking(person, tmp_path),
        message="Colour?",
        schema={"type": "string"},
    )
    assert msgspec.json.decode(result.output) == {"action": "accept", "content": {"response": "blue"}}
    assert person.asked[0].schema == {
        "type": "object",
        "properties": {"response": {"type": "string"}},
        "required": ["response"],
    }


async def test_declined_prompt_has_no_content(tmp_path: Path) -> None:
    result = await call(build("user_prompt"), "user_prompt", context_in(tmp_path), message="Colour?")
    assert result.output == '{"action":"cancel"}'
    assert (await call(build("user_prompt"), "user_prompt", context_in(tmp_path), message=" ")).is_error


async def test_open_url_asks_for_a_visit_and_refuses_other_schemes(tmp_path: Path) -> None:
    person = Person(ElicitationReply("accept"))
    await call(build("open_url"), "open_url", asking(person, tmp_path), url="https://example.com/a")
    assert (person.asked[0].mode, person.asked[0].url) == ("url", "https://example.com/a")
    for url in ("file:///etc/passwd", "javascript:alert(1)", "x"):
        assert (await call(build("open_url"), "open_url", asking(person, tmp_path), url=url)).is_error
    fixed = build("open_url", url="https://${env.HOST}/b")
    await call(fixed, "open_url", context_in(tmp_path, elicit=person, env={"HOST": "h"}))
    assert person.asked[1].url == "https://h/b"
