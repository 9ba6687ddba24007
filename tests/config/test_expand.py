"""Environment and header references at the moment of use; every other dollar sign stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.config.expand import expand, expand_all, variables

ENV = {"A": "1", "SECRET": "pa$USER${env.A}word", "EMPTY": ""}
HEADERS = {"x-token": "t"}


@pytest.mark.parametrize(
    "text",
    [
        "$", "$$", "$X", "${", "${}", "\\$", "%X%", "pa$USERword", "${A}", "${ env.A }", "${env.A }", "${env.}",
        "${env.1A}", "${env.A-B}", "${ENV.A}", "${env.A || 'x'}", "$ {env.A}", "${header.X}", "${headers.}", "${arg}",
    ],
)  # fmt: skip
def test_what_is_not_exactly_a_reference_stays(text: str) -> None:
    assert expand(text, ENV, HEADERS) == text


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("${env.A}", "1"),
        ("a${env.A}b${env.A}", "a1b1"),
        ("Bearer ${headers.X-Token}", "Bearer t"),
        ("${headers.x-token}", "t"),
        ("[${env.MISSING}${env.EMPTY}${headers.none}]", "[]"),
        ("$${env.A}", "${env.A}"),
        ("$${headers.X-Token}", "${headers.X-Token}"),
        ("$$${env.A}", "$${env.A}"),
        ("${${env.A}}", "${1}"),
        ("${env.SECRET}", "pa$USER${env.A}word"),
    ],
)
def test_references_are_replaced_once_and_can_be_escaped(text: str, meaning: str) -> None:
    assert expand(text, ENV, HEADERS) == meaning


def test_values_are_expanded_at_any_depth_and_keys_are_not() -> None:
    value = {"${env.A}": ["${env.A}", {"x": "v${env.A}", "n": 1, "t": True, "none": None}]}
    assert expand_all(value, ENV) == {"${env.A}": ["1", {"x": "v1", "n": 1, "t": True, "none": None}]}


def test_the_variables_that_would_be_read_can_be_told() -> None:
    assert list(variables({"a": "${env.A}", "b": ["${env.B} $${env.C}", 1, "${headers.D}"]})) == ["A", "B"]


@given(st.text(alphabet="$\\{}%aA.env ", max_size=40).filter(lambda text: "${env." not in text))
def test_text_without_references_is_unchanged(text: str) -> None:
    assert expand(text, {"A": "x", "a": "y"}) == text


@given(st.text(max_size=30))
def test_a_secret_arrives_as_it_is(secret: str) -> None:
    assert expand("<${env.S}>", {"S": secret}) == f"<{secret}>"
