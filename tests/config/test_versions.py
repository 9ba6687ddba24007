"""Older versions of the file: which are read, what becomes of their keys, and what the refusals say."""

from __future__ import annotations

import pytest

from actors.config import yaml
from actors.config.errors import ConfigError
from actors.config.load import load
from actors.config.schema import LATEST
from actors.config.versions import upgrade
from actors.tools.options import RagOptions


@pytest.mark.parametrize("version", range(1, LATEST + 1))
@pytest.mark.parametrize("form", ["{}", "'{}'"])
def test_every_version_is_read_quoted_or_not(version: int, form: str) -> None:
    config = load(
        f"version: {form.format(version)}\nagents: {{a: {{model: openai/x, toolsets: [{{type: think}}]}}}}"
    )
    assert config.version == str(version)
    assert config.first.model == "openai/x"


@pytest.mark.parametrize("written", ["0", "16", "v2", "1.0", "01", "-1", "[2]"])
def test_other_versions_are_refused_with_the_range(written: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(f"version: {written}\nagents: {{a: {{}}}}", "f.yaml")
    shown = "not text" if written == "[2]" else written
    assert str(caught.value) == f"unsupported config version: {shown} (valid versions: 1 to 15) (f.yaml:1)"


def test_a_key_of_a_newer_version_is_named_with_that_version() -> None:
    with pytest.raises(ConfigError) as caught:
        load("version: 2\nagents:\n  a:\n    handoffs: [b]\n  b:\n", "f.yaml")
    assert str(caught.value) == (
        "unknown key 'handoffs' in agents.a (f.yaml:4); this key is supported by config version 3; "
        "update the top-level 'version' field (currently 2, latest 15)"
    )
    assert load("version: 3\nagents: {a: {handoffs: [b]}, b: }").agents["a"].handoffs == ["b"]


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("agents: {a: {}}\nworkflow: []", 2),
        ("agents: {a: {}}\nenv: {}", 1),
        ("agents: {a: {toolsets: [{type: shell, sandbox: {}}]}}", 6),
        ("agents: {a: {rag: [x]}}", 6),
    ],
)
def test_a_key_that_is_gone_is_named_with_its_last_version(text: str, last: int) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert caught.value.hint == f"this key was last supported by config version {last}"


@pytest.mark.parametrize("toolsets", ["", "toolsets: [{type: think}],"])
def test_an_agents_rag_sources_become_toolsets(toolsets: str) -> None:
    config = load(f"version: 4\nagents: {{a: {{{toolsets} rag: [docs]}}}}\nrag: {{docs: {{docs: [x]}}}}")
    assert config.first.toolsets[-1] == RagOptions(type="rag", ref="docs")
    assert len(config.first.toolsets) == (2 if toolsets else 1)


def test_upgrading_changes_nothing_else_and_not_the_original() -> None:
    document = yaml.parse("version: 4\nagents: {a: {rag: [x], model: m}, b: 1, c: {rag: x}}\nmodels: {m: {}}")
    assert isinstance(document, yaml.Mapping)
    before = yaml.plain(document)
    changed = yaml.plain(upgrade(document, 4))
    assert yaml.plain(document) == before
    assert changed["agents"] == {
        "a": {"model": "m", "toolsets": [{"type": "rag", "ref": "x"}]},
        "b": 1,
        "c": {"rag": "x"},
    }
    assert {**changed, "agents": None} == {**before, "agents": None}
    assert upgrade(document, LATEST) is document
