"""What YAML may say, what it means, and what is refused with which words."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.config.errors import ConfigError
from actors.config.yaml import MAX_WEIGHT, Mapping, Node, Scalar, Sequence, parse, plain

SAMPLES = Path(__file__).parents[1] / "data" / "yaml"


def value(text: str) -> Any:
    node = parse(text, "f.yaml")
    return None if node is None else plain(node)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("", None),
        ("# only a comment", None),
        ("~", None),
        ("a: 1", {"a": 1}),
        ("\ufeffa: 1", {"a": 1}),
        ("[yes, no, on, off, y, n, Yes, NO]", ["yes", "no", "on", "off", "y", "n", "Yes", "NO"]),
        ("[true, False, TRUE]", [True, False, True]),
        ("['true', \"1\", !!str 1, ! 1]", ["true", "1", "1", "1"]),
        ("[1, -1, +1, 08, 0o17, 0x1F, 1_000, 1:30]", [1, -1, 1, 8, 15, 31, "1_000", "1:30"]),
        ("[1.5, .5, 1e3, 1., 2026-01-01]", [1.5, 0.5, 1000.0, 1.0, "2026-01-01"]),
        ("[null, ~, Null, 'null', ]", [None, None, None, "null"]),
        ("a: |\n  x\n  \ty\n", {"a": "x\n\ty\n"}),
        ("key:\tvalue", {"key": "value"}),
        ("{1: a, true: b, 1.0: c}", {"1": "a", "true": "b", "1.0": "c"}),
        ("x: !!int '3'", {"x": 3}),
        ("{'<<': 1}", {"<<": 1}),
        ("&k key: 1\nb: {*k : 2}", {"key": 1, "b": {"key": 2}}),
    ],
)
def test_values_have_yaml_1_2_types_and_keys_are_text(text: str, meaning: Any) -> None:
    assert value(text) == meaning


@pytest.mark.parametrize(
    ("text", "message", "key"),
    [
        ("a: 1\na: 2", "duplicate key 'a' (f.yaml:2); first given in line 1", "a"),
        ("{1: a, '1': b}", "duplicate key '1' (f.yaml:1); first given in line 1", "1"),
        ("x:\n- y: {z: 1,\n    z: 2}", "duplicate key 'z' (f.yaml:3); first given in line 2", "x[0].y.z"),
        ("a:\n\tb: 1", "tabs cannot be used for indentation in YAML; use spaces (f.yaml:2)", ""),
        ("a:\n  - b: 1\n\t- c", "tabs cannot be used for indentation in YAML; use spaces (f.yaml:3)", ""),
        ("a: &a [*a]", "the alias '*a' stands for something that contains it (f.yaml:1)", "a[0]"),
        ("a: *b", "the alias '*b' has no anchor before it (f.yaml:1)", "a"),
        ("a: 1\n---\nb: 2", "a file may hold only one YAML document (f.yaml:2)", ""),
        (
            "a: !!python/object:os.system x",
            "the tag '!!python/object:os.system' is not supported (f.yaml:1)",
            "a",
        ),
        ("a: !secret x", "the tag '!secret' is not supported (f.yaml:1)", "a"),
        ("a: !!set {x}", "the tag '!!set' is not supported (f.yaml:1)", "a"),
        ("a: !!int x", "'x' is not of the type that its tag '!!int' says (f.yaml:1)", "a"),
        ("? [a]\n: b", "a key must be a single value, not a list or a map (f.yaml:1)", ""),
        ("? {a: b}\n: b", "a key must be a single value, not a list or a map (f.yaml:1)", ""),
        ("x: &x [1]\n*x : 2", "a key must be a single value, not a list or a map (f.yaml:2)", ""),
        ("{? : 1}", "a key is empty (f.yaml:1)", ""),
        ("<<: 1", "'<<' takes a map or a list of maps (f.yaml:1)", ""),
        ("<<: [{a: 1}, 2]", "'<<' takes a map or a list of maps (f.yaml:1)", ""),
        (
            "<<: {a: 1}\n<<: {b: 1}",
            "duplicate key '<<' (f.yaml:2); write a list of aliases: <<: [*a, *b]",
            "",
        ),
        ("a: b: c", "invalid YAML: mapping values are not allowed in this context (f.yaml:1)", ""),
        (
            "a: 'x",
            "invalid YAML: found unexpected end of stream while scanning a quoted scalar (f.yaml:1)",
            "",
        ),
        ('a: "\\0"', "NUL characters are not supported (f.yaml:1)", "a"),
        ("a: \ud800", "the file is not valid Unicode text (f.yaml)", ""),
        (f"a: {'[' * 101}", "maps and lists are nested deeper than 100 levels (f.yaml:1)", "a" + "[0]" * 99),
    ],
)
def test_what_is_refused_names_file_line_and_key(text: str, message: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "f.yaml")
    assert str(caught.value) == message
    assert caught.value.key == key


def test_control_characters_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^invalid YAML: unacceptable character"):
        parse("a: \x01", "f.yaml")


def test_a_bomb_of_aliases_is_refused_before_it_expands() -> None:
    started = time.perf_counter()
    with pytest.raises(ConfigError) as caught:
        parse((SAMPLES / "alias_bomb.yaml").read_text(), "bomb.yaml")
    assert str(caught.value) == f"the file expands to more than {MAX_WEIGHT} values (bomb.yaml:9)"
    assert time.perf_counter() - started < 1


def test_a_long_text_repeated_by_aliases_counts_each_time() -> None:
    with pytest.raises(ConfigError, match="expands to more than"):
        parse(f"a: &a {'x' * 500_000}\nb: [{', '.join(['*a'] * 50)}]")


def test_aliases_within_bounds_are_copies() -> None:
    assert value("a: &a [1, 2]\nb: [*a, *a]") == {"a": [1, 2], "b": [[1, 2], [1, 2]]}


def test_a_second_permissions_block_is_an_error_and_not_the_winner() -> None:
    with pytest.raises(ConfigError) as caught:
        parse((SAMPLES / "duplicate_keys.yaml").read_text(), "d.yaml")
    assert (caught.value.problem, caught.value.line) == ("duplicate key 'permissions'", 7)


def test_a_nested_duplicate_is_found_and_merge_keys_may_be_overridden() -> None:
    text = (SAMPLES / "nested_dup_and_merge.yaml").read_text()
    with pytest.raises(ConfigError) as caught:
        parse(text, "n.yaml")
    assert (caught.value.line, caught.value.key) == (14, "agents[2].tools.http.headers")
    legal = parse("".join(text.splitlines(keepends=True)[:8]))
    assert isinstance(legal, Mapping)
    agents = plain(legal)["agents"]
    assert agents[0] == {"id": "legal_override", "model": "stub-1", "temperature": 0.9}
    assert agents[1] == {"id": "legal_list_merge", "model": "stub-1", "temperature": 0.2, "max_steps": 5}


def test_of_several_merged_maps_the_first_wins() -> None:
    assert value("x: {<<: [{a: 1}, {a: 2, b: 3}]}")["x"] == {"a": 1, "b": 3}


def test_country_codes_and_switches_stay_text() -> None:
    norway = value((SAMPLES / "norway.yaml").read_text())
    assert norway["id"] == "no"
    assert norway["countries"] == ["se", "no", "dk"]
    assert norway["parameters"] == {"n": 2, "y": 3}
    assert "False" not in repr(norway)


def test_lines_are_those_of_the_keys() -> None:
    node = parse("a:\n  b:\n    c: 1\n")
    assert isinstance(node, Mapping)
    inner = node.entries["a"].node
    assert isinstance(inner, Mapping)
    assert (node.entries["a"].line, inner.entries["b"].line) == (1, 2)


YAMLISH = st.text(alphabet="ab:-[]{}&*!<|>'\"#%@`,? \n\t01~.\\\0\ufeff\ud800é", max_size=60)


@given(st.one_of(st.text(max_size=200), YAMLISH))
def test_any_text_is_either_read_or_refused(text: str) -> None:
    with suppress(ConfigError):
        parse(text)


@settings(max_examples=25)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=30))
def test_no_ladder_of_aliases_expands_beyond_the_bound(widths: list[int]) -> None:
    lines = ["l0: &l0 [z]"]
    for index, width in enumerate(widths):
        lines.append(f"l{index + 1}: &l{index + 1} [{', '.join([f'*l{index}'] * width)}]")
    try:
        node = parse("\n".join(lines))
    except ConfigError:
        return
    assert node is not None
    assert count(node) <= MAX_WEIGHT


def count(node: Node) -> int:
    match node:
        case Mapping():
            return 1 + sum(count(entry.node) for entry in node.entries.values())
        case Sequence():
            return 1 + sum(map(count, node.items))
        case Scalar():
            return 1
