"""The manual of agent files: every example loads, and every key and toolset is mentioned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec import Struct

from actors.config.decode import fields_of
from actors.config.load import load
from actors.config.schema import Agent, Config, Hooks, Metadata, Model, Permissions, Provider, Runtime
from actors.tools.options import OPTIONS

PAGE = Path(__file__).parents[2] / "docs" / "agents-yaml.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_loads(example: str) -> None:
    assert load(example, PAGE.name).agents


def test_the_flavor_of_the_example_applies() -> None:
    (example,) = [example for example in EXAMPLES if "flavors:" in example]
    root = load(example, flavors=["cheap"]).agents["root"]
    assert (root.model, [toolset.type for toolset in root.toolsets]) == ("openai/gpt-4o-mini", ["think"])


@pytest.mark.parametrize("kind", [Config, Agent, Model, Provider, Hooks, Metadata, Permissions, Runtime])
def test_every_key_is_mentioned(kind: type[Struct]) -> None:
    assert [key for key in fields_of(kind) if not re.search(rf"\b{key}\b", TEXT)] == []


def test_every_toolset_type_has_an_example() -> None:
    types = {
        toolset.type
        for example in EXAMPLES
        for agent in load(example).agents.values()
        for toolset in agent.toolsets
    }
    assert set(OPTIONS) - types == set()
