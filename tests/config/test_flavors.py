"""Flavors lay patches over the file before anything reads it."""

from __future__ import annotations

import pytest

from actors.config.errors import ConfigError
from actors.config.load import load

BASE = """\
agents:
  root:
    model: openai/big
    instruction: Base.
    description: d
    toolsets: [{type: think}, {type: shell, env: {A: "1"}}]
    commands: {x: one, y: two}
  other: {model: openai/big}
flavors:
"""


@pytest.mark.parametrize(
    ("patch", "attribute", "meaning"),
    [
        ("{agents: {root: {model: openai/small}}}", "model", "openai/small"),
        ("{agents: {root: {description: null}}}", "description", ""),
        ("{agents: {root: {instruction+: [More.]}}}", "instruction", "Base.\n\nMore."),
        ("{agents: {root: {handoffs+: [other]}}}", "handoffs", ["other"]),
        ("{agents: {root: {commands: {y: null, z: three}}}}", "command_names", ["x", "z"]),
        ("{agents: {root: {commands-: [x]}}}", "command_names", ["y"]),
        ("{agents: {root: {toolsets+: [{type: todo}]}}}", "types", ["think", "shell", "todo"]),
        ("{agents: {root: {toolsets: [{type: todo}]}}}", "types", ["todo"]),
        ("{agents: {root: {toolsets-: [{type: shell, env: {A: '1'}}]}}}", "types", ["think"]),
        (
            "{agents: {root: {toolsets-: [{type: shell, env: {A: '2'}}, nothing]}}}",
            "types",
            ["think", "shell"],
        ),
        ("{agents: {root: {sub_agents-: [x]}}}", "sub_agents", []),
        ("", "model", "openai/big"),
    ],
)
def test_a_patch_merges_replaces_removes_and_appends(patch: str, attribute: str, meaning: object) -> None:
    root = load(BASE + f"  dev: {patch}\n", flavors=["dev"]).agents["root"]
    views = {"command_names": list(root.commands), "types": [toolset.type for toolset in root.toolsets]}
    assert views.get(attribute, getattr(root, attribute, None)) == meaning


def test_without_the_flavor_nothing_changes_and_unknown_flavors_are_ignored() -> None:
    text = BASE + "  dev: {agents: {root: {model: openai/small}}}\n"
    assert load(text).agents["root"].model == "openai/big"
    assert load(text, flavors=["prod"]).agents["root"].model == "openai/big"


def test_flavors_apply_in_order_and_cannot_redefine_later_ones() -> None:
    text = BASE + (
        "  one: {agents: {root: {model: openai/one}}, flavors: {two: {agents: {root: {description: changed}}}}}\n"
        "  two: {agents: {root: {model: openai/two}}}\n"
    )
    assert load(text, flavors=["two", "one"]).agents["root"].model == "openai/one"
    root = load(text, flavors=["one", "two"]).agents["root"]
    assert (root.model, root.description) == ("openai/two", "d")


def test_agent_order_is_kept() -> None:
    text = BASE + "  dev: {agents: {other: {model: openai/x}, new: {}}}\n"
    assert list(load(text, flavors=["dev"]).agents) == ["root", "other", "new"]


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ("text", "flavors.dev must be a map to lay over the file (f.yaml:10)"),
        ("{agents+: x}", "flavors.dev: 'agents+' needs a list (f.yaml:10)"),
        ("{agents+: [x]}", "flavors.dev: 'agents+' appends to a list, but 'agents' is a map (f.yaml:10)"),
        (
            "{agents-: [{a: b}]}",
            "flavors.dev: 'agents-' removes keys of a map and takes their names (f.yaml:10)",
        ),
        (
            "{agents: {root: {model-: [x]}}}",
            "flavors.dev: 'model-' removes from a list or a map, but 'model' is neither (f.yaml:10)",
        ),
        (
            "{agents: {root: {modle: x}}}",
            "unknown key 'modle' in agents.root (f.yaml:10); did you mean 'model'?",
        ),
    ],
)
def test_a_patch_that_does_not_fit_is_refused(patch: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(BASE + f"  dev: {patch}\n", "f.yaml", flavors=["dev"])
    assert str(caught.value) == message
