"""Agent files through the one way in: what is accepted with which meaning, and every refusal's exact words."""

# ruff: noqa: E501 - a table is read row by row

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.config.errors import ConfigError
from actors.config.load import check, load, load_file
from actors.config.schema import Command, Config, Hook, Skill
from actors.config.yaml import MAX_BYTES
from actors.errors import Invalid
from actors.tools.options import FilesystemOptions, McpOptions, ShellOptions, ThinkOptions

REALISTIC = """\
agents:
  root:
    model: openai/gpt-4o
    description: Coordinator
    instruction: Delegate when useful.
    sub_agents: [reviewer]
    toolsets: [{type: think}, {type: filesystem}, {type: shell}]
    commands:
      review: "Review the last change: $1"
  reviewer:
    model: anthropic/claude-sonnet-4-5
    description: Reviews code
    instruction: Review strictly.
permissions:
  allow: ["read_*", "shell:cmd=git status*"]
  deny: ["shell:cmd=sudo*"]
"""


def problems(text: str | bytes) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(text, "agent.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_the_smallest_realistic_file_loads_as_written() -> None:
    config = load(REALISTIC)
    root, reviewer = config.agents.values()
    assert (root.name, reviewer.name) == ("root", "reviewer")
    assert [type(toolset) for toolset in root.toolsets] == [ThinkOptions, FilesystemOptions, ShellOptions]
    assert root.commands == {"review": Command(instruction="Review the last change: $1")}
    assert root.models == ("openai/gpt-4o",)
    assert config.permissions is not None
    assert config.permissions.deny == ["shell:cmd=sudo*"]
    assert config.version == ""


def test_agents_keep_file_order_and_root_is_the_default() -> None:
    config = load("agents: {zoe: {}, root: {}, amy: {}}")
    assert list(config.agents) == ["zoe", "root", "amy"]
    assert (config.first.name, config.default.name) == ("zoe", "root")
    assert load("agents: {zoe: {}, amy: {}}").default.name == "zoe"


def agent(body: str) -> str:
    return f"agents: {{root: {{{body}}}}}"


def test_defaults_are_those_of_the_manual() -> None:
    root = load("agents:\n  root:\n").agents["root"]
    assert root.redact_secrets
    assert root.session_compaction
    assert root.compaction_threshold == 0.9
    assert root.max_consecutive_tool_calls == 5
    assert root.max_iterations == 0
    assert root.models == ()
    fallback = load(agent("fallback: {models: [openai/a]}")).agents["root"].fallback
    assert fallback is not None
    assert (fallback.attempts, fallback.cooldown_seconds) == (2, 60)
    never = load(agent("fallback: {retries: -1, cooldown: 90s}")).agents["root"].fallback
    assert never is not None
    assert (never.attempts, never.cooldown_seconds) == (0, 90)


def test_an_empty_value_means_the_default() -> None:
    root = load("agents:\n  root:\n    model:\n    toolsets:\n    max_iterations: ~\n").agents["root"]
    assert (root.model, root.toolsets, root.max_iterations) == ("", [], 0)


def test_text_is_taken_as_written_where_text_is_expected() -> None:
    config = load(
        agent("description: no, instruction: 1.10, model: openai/on, toolsets: [{type: shell, env: {n: 08}}]")
    )
    root = config.agents["root"]
    assert (root.description, root.instruction, root.model) == ("no", "1.10", "openai/on")
    assert isinstance(root.toolsets[0], ShellOptions)
    assert root.toolsets[0].env == {"n": "08"}


def test_agents_and_commands_may_be_called_no_or_on() -> None:
    config = load("agents: {no: {commands: {on: off, y: yes}}}")
    assert list(config.agents) == ["no"]
    assert config.agents["no"].commands == {"on": Command(instruction="off"), "y": Command(instruction="yes")}


@pytest.mark.parametrize(
    "form",
    [
        "{a: one, b: {description: d, instruction: two}}",
        "[{a: one}, {b: {description: d, instruction: two}}]",
    ],
)
def test_commands_may_be_a_map_or_a_list_of_pairs(form: str) -> None:
    commands = load(agent(f"commands: {form}")).agents["root"].commands
    assert commands == {"a": Command(instruction="one"), "b": Command(description="d", instruction="two")}


@pytest.mark.parametrize(
    ("form", "meaning"),
    [
        ("true", True),
        ("false", False),
        ("[local, git]", [Skill(source="local"), Skill(source="git")]),
        ("[{name: n, instructions: i, context: fork}]", [Skill(name="n", instructions="i", context="fork")]),
    ],
)
def test_skills_may_be_a_switch_or_a_list(form: str, meaning: object) -> None:
    assert load(agent(f"skills: {form}")).agents["root"].skills == meaning


def test_a_hook_may_stand_where_a_list_is_expected() -> None:
    hooks = (
        load(agent("hooks: {stop: {command: x}, pre_tool_use: {matcher: 'sh.*', hooks: {command: y}}}"))
        .agents["root"]
        .hooks
    )
    assert hooks is not None
    assert hooks.stop == [Hook(command="x")]
    assert (hooks.pre_tool_use[0].matcher, hooks.pre_tool_use[0].hooks[0].command) == ("sh.*", "y")


@pytest.mark.parametrize("form", ["0", "-1", "2048", "none", "high", "adaptive", "adaptive/low"])
def test_thinking_budgets_are_tokens_or_words(form: str) -> None:
    model = load(
        f"agents: {{a: {{model: m}}}}\nmodels: {{m: {{provider: p, model: q, thinking_budget: {form}}}}}"
    ).models["m"]
    assert str(model.thinking_budget) == form


def test_an_instruction_may_be_a_list_of_paragraphs() -> None:
    assert load(agent("instruction: [one, two]")).agents["root"].instruction == "one\n\ntwo"


def test_a_comma_list_of_models_is_an_alloy() -> None:
    assert load(agent("model: 'openai/a, auto,openai/b'")).agents["root"].models == (
        "openai/a",
        "auto",
        "openai/b",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least one agent must be configured (add an entry under 'agents') (agent.yaml)"),
        ("# nothing", "at least one agent must be configured (add an entry under 'agents') (agent.yaml)"),
        ("agents: {}", "at least one agent must be configured (add an entry under 'agents') (agent.yaml:1)"),
        ("models: {}", "at least one agent must be configured (add an entry under 'agents') (agent.yaml)"),
        ("[]", "the file must be a map with the key 'agents' (agent.yaml:1)"),
        ("hello", "the file must be a map with the key 'agents' (agent.yaml:1)"),
        (b"\xffa", "the file is not UTF-8 text (agent.yaml:1)"),
        ("a: 1".encode("utf-16"), "the file is not UTF-8 text (agent.yaml:1)"),
        (b"\x7fELF\0\0", "the file is binary, not YAML (agent.yaml)"),
        ("#" * (MAX_BYTES + 1), f"the file is larger than {MAX_BYTES} bytes (agent.yaml)"),
        ("agents:\n  root:\n    instrution: x", "unknown key 'instrution' in agents.root (agent.yaml:3); did you mean 'instruction'?"),
        ("agnets: {}\nagents: {a: }", "unknown key 'agnets' at the top level (agent.yaml:1); did you mean 'agents'?"),
        (agent("zzz: 1"), "unknown key 'zzz' in agents.root (agent.yaml:1)"),
        (agent("toolsets: [{type: think, path: x}]"), "path can only be used with type 'memory' or 'tasks' (agent.yaml:1)"),
        (agent("toolsets: [{type: shell, shell: {}}]"), "shell can only be used with type 'script' (agent.yaml:1)"),
        (agent("toolsets: [{type: shel}]"), "unknown toolset type 'shel' in agents.root.toolsets[0] (agent.yaml:1); did you mean 'shell'?"),
        (agent("toolsets: [{env: {}}]"), "agents.root.toolsets[0] needs the key 'type' (agent.yaml:1)"),
        (agent("toolsets: [think]"), "agents.root.toolsets[0] must be a map, not 'think' (agent.yaml:1)"),
        (agent("toolsets: {type: think}"), "agents.root.toolsets must be a list, not a map (agent.yaml:1)"),
        (agent("toolsets: [{type: mcp}]"), "agents.root.toolsets[0]: a toolset of type 'mcp' needs exactly one of 'command', 'remote' and 'ref' (agent.yaml:1)"),
        (agent("toolsets: [{type: mcp, command: x, ref: 'docker:y'}]"), "agents.root.toolsets[0]: a toolset of type 'mcp' needs exactly one of 'command', 'remote' and 'ref' (agent.yaml:1)"),
        (agent("toolsets: [{type: api}]"), "agents.root.toolsets[0] needs the key 'api_config' (agent.yaml:1)"),
        (agent("toolsets: [{type: rag, rag_config: {strategies: [{limit: 1}]}}]"), "agents.root.toolsets[0].rag_config.strategies[0] needs the key 'type' (agent.yaml:1)"),
        (agent("add_date: yes"), "agents.root.add_date must be true or false, not 'yes' (agent.yaml:1)"),
        (agent("add_date: 1"), "agents.root.add_date must be true or false, not '1' (agent.yaml:1)"),
        (agent("max_iterations: -1"), "agents.root.max_iterations must be at least 0, not -1 (agent.yaml:1)"),
        (agent("max_iterations: 1.5"), "agents.root.max_iterations must be a whole number, not '1.5' (agent.yaml:1)"),
        (agent("max_iterations: true"), "agents.root.max_iterations must be a whole number, not 'true' (agent.yaml:1)"),
        (agent("model: [a]"), "agents.root.model must be text, not a list (agent.yaml:1)"),
        (agent("compaction_threshold: 0"), "agents.root.compaction_threshold must be more than 0, not 0.0 (agent.yaml:1)"),
        (agent("compaction_threshold: 1.1"), "agents.root.compaction_threshold must be at most 1, not 1.1 (agent.yaml:1)"),
        (agent("compaction_threshold: .nan"), "agents.root.compaction_threshold must be a number, not '.nan' (agent.yaml:1)"),
        (agent("safety: wild"), "agents.root.safety must be one of 'strict', 'balanced', 'autonomous', not 'wild' (agent.yaml:1)"),
        (agent("skills: {a: b}"), "agents.root.skills must be true or false or a list, not a map (agent.yaml:1)"),
        (agent("commands: [{a: 1, b: 2}]"), "agents.root.commands: each item must be a map with one key (agent.yaml:1)"),
        (agent("commands: [{a: 1}, {a: 2}]"), "duplicate key 'a' (agent.yaml:1); first given in line 1"),
        (agent("fallback: {cooldown: 10}"), "agents.root.fallback.cooldown: invalid duration '10': missing unit (such as '10s' or '1m30s') (agent.yaml:1)"),
        (agent("fallback: {cooldown: -1s}"), "agents.root.fallback.cooldown: a duration cannot be negative (agent.yaml:1)"),
        (agent("structured_output: {name: x}"), "agents.root.structured_output needs the key 'schema' (agent.yaml:1)"),
        (agent("structured_output: {name: x, schema: {maximum: .inf}}"), "agents.root.structured_output.schema.maximum holds '.inf', which is too large or no number (agent.yaml:1)"),
        ("agents: root", "agents must be a map, not 'root' (agent.yaml:1)"),
        ("agents: {a: {}}\nmetadata: {tags: x}", "metadata.tags must be a list, not 'x' (agent.yaml:2)"),
        ("agents: {a: {}}\nmodels: {m: {provider: p, model: q, thinking_budget: much}}", "models.m.thinking_budget must be a number of tokens or one of none, minimal, low, medium, high, xhigh, max, adaptive, adaptive/<level>, not 'much' (agent.yaml:2)"),
        ("agents: {a: {}}\nbudgets: {b: {max_time: soon}}", "budgets.b.max_time: invalid duration 'soon' (agent.yaml:2)"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_with_file_line_and_key(text: str | bytes, message: str) -> None:
    assert problems(text) == [message]


def test_all_problems_of_a_file_are_reported_in_order() -> None:
    text = "agents:\n  root:\n    modle: x\n    toolsets:\n      - type: think\n        path: x\n    max_iterations: -1\nfoo: 1\n"
    assert problems(text) == [
        "unknown key 'modle' in agents.root (agent.yaml:3); did you mean 'model'?",
        "path can only be used with type 'memory' or 'tasks' (agent.yaml:6)",
        "agents.root.max_iterations must be at least 0, not -1 (agent.yaml:7)",
        "unknown key 'foo' at the top level (agent.yaml:8)",
    ]


def test_errors_say_where_in_fields_too() -> None:
    with pytest.raises(ConfigError) as caught:
        load("agents:\n  root:\n    modle: x", "a.yaml")
    error = caught.value
    assert (error.file, error.line, error.key, error.code) == (
        "a.yaml",
        3,
        "agents.root.modle",
        "invalid_config",
    )
    assert error.fields == {"file": "a.yaml", "line": 3, "key": "agents.root.modle"}
    assert isinstance(error, Invalid)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_utf8_is_read_with_and_without_byte_order_mark(mark: bytes) -> None:
    assert load(mark + "agents: {é: {}}".encode()).first.name == "é"


def test_check_and_load_give_the_same_verdict(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(REALISTIC)
    bad.write_text("agents: {root: {modle: x, max_iterations: -1}}")
    assert check(good) == []
    found = check(bad)
    with pytest.raises(ConfigError) as caught:
        load_file(bad)
    assert [str(problem) for problem in found] == [str(problem) for problem in caught.value.problems]
    assert len(found) == 2
    assert found[0].file == str(bad)


def test_paths_that_are_no_agent_file_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "dir.yaml").mkdir()
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "x.hcl").write_text("agent {}")
    (tmp_path / "big.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    expected = {
        "dir.yaml": "this is a directory, not an agent file",
        "pipe.yaml": "not a regular file",
        "none.yaml": "no such file",
        "x.hcl": "HCL agent files are not supported; write the same keys as YAML",
        "big.yaml": f"the file is larger than {MAX_BYTES} bytes",
        "nul\0.yaml": "not a usable file name",
    }
    for name, problem in expected.items():
        (found,) = check(tmp_path / name)
        assert (found.problem, found.file) == (problem, str(tmp_path / name))


def test_the_built_in_assistant_loads() -> None:
    import actors.config as room

    config = load_file(Path(room.__file__).parent / "assistant.yaml")
    assert config.first.model == "auto"
    assert [toolset.type for toolset in config.first.toolsets] == ["filesystem", "shell", "think", "todo"]


def test_named_references_are_merged() -> None:
    config = load("""
agents:
  root:
    toolsets: [{type: mcp, ref: srv, tools: [x]}]
    use_toolsets: [helper]
    use_commands: [group]
    use_skills: [set]
    skills: true
    commands: {own: mine}
mcps: {srv: {command: run, instruction: hi, env: {A: '${env.A}'}}}
toolsets: {helper: {type: think}}
commands: {group: {own: theirs, other: too}}
skills: {set: [git]}
""")
    root = config.agents["root"]
    server = root.toolsets[0]
    assert isinstance(server, McpOptions)
    assert (server.command, server.ref, server.tools, server.instruction) == ("run", "", ["x"], "hi")
    assert server.env == {"A": "${env.A}"}
    assert root.toolsets[1].type == "think"
    assert root.commands == {"own": Command(instruction="mine"), "other": Command(instruction="too")}
    assert root.skills == [Skill(source="local"), Skill(source="git")]
    assert (root.use_toolsets, root.use_commands, root.use_skills) == ([], [], [])


def test_an_mcp_entry_with_another_server_replaces_nothing() -> None:
    config = load("agents: {a: {toolsets: [{type: mcp, ref: 'docker:github'}]}}")
    (server,) = config.agents["a"].toolsets
    assert isinstance(server, McpOptions)
    assert server.ref == "docker:github"


def test_instruction_files_become_the_instruction(tmp_path: Path) -> None:
    (tmp_path / "one.md").write_bytes(b"\xef\xbb\xbfFirst")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "two.md").write_text("Second")
    file = tmp_path / "a.yaml"
    file.write_text("agents: {a: {instruction_file: [one.md, sub/two.md]}, b: {instruction_file: one.md}}")
    config = load_file(file)
    assert config.agents["a"].instruction == "First\n\nSecond"
    assert (config.agents["b"].instruction, config.agents["b"].instruction_file) == ("First", [])


def test_instruction_files_stay_inside_the_directory(tmp_path: Path) -> None:
    home = tmp_path / "agents"
    home.mkdir()
    (tmp_path / "secret").write_text("s")
    (home / "link").symlink_to(tmp_path / "secret")
    (home / "binary").write_bytes(b"\xff")
    file = home / "a.yaml"
    outside = "must be a relative path inside the agent file's directory"
    for name, problem in {
        "../secret": outside,
        "x/../../secret": outside,
        str(tmp_path / "secret"): outside,
        "link": outside,
        "none": "cannot be read: No such file or directory",
        ".": "cannot be read: Is a directory",
        "binary": "is not UTF-8 text",
    }.items():
        file.write_text(f"agents:\n  a:\n    instruction_file: {name}")
        (found,) = check(file)
        assert found.problem == f"agent 'a': instruction_file {name!r} {problem}"
        assert found.line == 3
    with pytest.raises(ConfigError, match="works for local files only"):
        load("agents: {a: {instruction_file: x}}")


KEYS = st.sampled_from(["agents", "root", "model", "toolsets", "type", "think", "mcp", "commands", "hooks", "stop", "skills",
                        "version", "models", "flavors", "budgets", "max_time", "<<", "rag", "instruction_file"])  # fmt: skip
TREE = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 20) | st.floats() | KEYS | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(
    TREE
    | st.fixed_dictionaries({"agents": st.dictionaries(KEYS, TREE, max_size=3)}, optional={"models": TREE})
)
def test_any_document_loads_or_is_refused(tree: object) -> None:
    import yaml

    with suppress(ConfigError):
        assert isinstance(load(yaml.safe_dump(tree, allow_unicode=True)), Config)


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_any_content_loads_or_is_refused(content: bytes | str) -> None:
    with suppress(ConfigError):
        load(content)
