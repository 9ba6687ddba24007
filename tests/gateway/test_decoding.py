"""Docker agent's lenient body rules on nested types, and the bound on nesting."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import Invalid
from gateway.decode import MAX_DEPTH, decode_body, is_json
from gateway.dialect import DOCKER_AGENT, SQUADS
from gateway.http import Request


class Node(msgspec.Struct):
    name: str = ""
    size: int = 0
    maybe: int | None = 7
    children: list[Node] = []
    by_name: dict[str, Node] = msgspec.field(default_factory=dict)  # pyright: ignore[reportUnknownVariableType]
    renamed: bool = msgspec.field(default=True, name="SendUserMessage")
    anything: Any = None


def lenient(body: bytes, content_type: str = "application/json") -> Node:
    request = Request("POST", "/", headers={"content-type": content_type}, raw=body)
    found: Node = decode_body(request, Node, DOCKER_AGENT.body_rule)
    return found


def test_names_match_without_case_at_every_depth() -> None:
    body = b'{"NAME":"a","Children":[{"nAmE":"b","BY_NAME":{"Kept":{"SIZE":3}}}],"sendusermessage":false}'
    node = lenient(body)
    assert (node.name, node.renamed) == ("a", False)
    assert node.children[0].name == "b"
    assert node.children[0].by_name == {"Kept": Node(size=3)}


def test_null_is_the_default_unless_the_field_has_a_use_for_it() -> None:
    node = lenient(b'{"name":null,"size":null,"maybe":null,"children":null,"anything":null}')
    assert node == Node(maybe=None)


def test_any_values_are_left_alone() -> None:
    assert lenient(b'{"anything":{"Name":null,"X":[1]}}').anything == {"Name": None, "X": [1]}


def test_an_exact_name_given_twice_is_read_as_the_last_one() -> None:
    assert lenient(b'{"name":"a","name":"b"}').name == "b"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"size":"x"}', "expected=int, got=string, field=size"),
        (b"[]", "expected=object, got=array"),
        (b'{"children":[{"size":true}]}', "expected=int, got=bool, field=children[0].size"),
    ],
)
def test_a_wrong_type_is_named_with_its_place(body: bytes, expected: str) -> None:
    with pytest.raises(Invalid) as caught:
        lenient(body)
    assert caught.value.message == f"invalid request body: code=400, message=Unmarshal type error: {expected}"


@pytest.mark.parametrize("rule", [DOCKER_AGENT.body_rule, SQUADS.body_rule])
@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":[', b'"[[[" ['])
def test_nesting_is_bounded_at_any_size(rule: Any, opening: bytes) -> None:
    request = Request("POST", "/", headers={"content-type": "application/json"}, raw=opening * 100_000)
    with pytest.raises(Invalid):
        decode_body(request, Any, rule)


def test_brackets_in_text_are_not_nesting() -> None:
    text = "[{" * (MAX_DEPTH + 10) + '\\"'
    body = msgspec.json.encode({"anything": text})
    assert lenient(body).anything == text


def test_nesting_up_to_the_bound_is_read() -> None:
    body = b'{"anything":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}"
    assert lenient(body).anything is not None


@given(st.binary(max_size=200))
def test_no_bytes_make_it_raise_anything_but_a_refusal(body: bytes) -> None:
    refusal = ""
    try:
        lenient(body)
    except Invalid as exc:
        refusal = exc.message
    assert not refusal or refusal.startswith("invalid request body: ")


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/problem+json", True),
        ("text/json", False),
        ("", False),
    ],
)
def test_which_content_types_are_json(value: str, answer: bool) -> None:
    assert is_json(value) is answer
