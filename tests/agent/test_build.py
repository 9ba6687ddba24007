"""Agent files as run-time values."""

from __future__ import annotations

from pathlib import Path

from actors.agent.build import build_team
from actors.config.load import load
from actors.models.catalog import Models
from actors.tools.registry import Deps, build_toolset


def team_of(text: str, tmp_path: Path):
    deps = Deps()
    return build_team(load(text), Models({}, tmp_path), lambda options: build_toolset(options, deps), {})


def test_keys_that_nothing_obeys_are_named(tmp_path: Path) -> None:
    team = team_of(
        """
agents:
  root:
    model: local/smollm2-135m
    instruction: i
    skills: true
    code_mode_tools: true
    cache: {enabled: true}
    toolsets: [{type: shell, toon: ".*"}]
  plain:
    model: local/smollm2-135m
    instruction: i
    cache: {enabled: false}
    toolsets: [{type: shell}]
""",
        tmp_path,
    )
    assert team.agents["root"].ignored == ("skills", "code_mode_tools", "cache", "toon")
    assert team.agents["plain"].ignored == ()


def test_a_named_model_brings_its_parameters_and_its_providers_endpoint(tmp_path: Path) -> None:
    team = team_of(
        """
agents:
  root: {model: fast, instruction: i}
models:
  fast: {provider: mine, model: tiny, max_tokens: 7, temperature: 0.5}
providers:
  mine: {provider: openai, base_url: "http://127.0.0.1:1/v1", top_p: 0.9}
""",
        tmp_path,
    )
    bound = team.bind("root")
    assert bound.info.ref == "openai/tiny"
    request = bound.request(())
    assert (request.max_tokens, request.temperature, request.top_p) == (7, 0.5, 0.9)
