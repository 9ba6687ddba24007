"""Arguments are checked against the schema and named when they are wrong."""

from __future__ import annotations

from typing import Any

import pytest

from actors.errors import Invalid
from actors.tools.schema import check_arguments

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 1, "maximum": 9},
        "x": {"type": "number"},
        "b": {"type": "boolean"},
        "s": {"type": "string", "minLength": 1, "maxLength": 3},
        "e": {"enum": ["a", "b"]},
        "l": {"type": "array", "items": {"$ref": "#/$defs/Item"}, "minItems": 1, "maxItems": 2},
        "o": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "m": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "c": {"const": 1},
        "t": {"type": ["string", "integer"]},
        "never": False,
        "loop": {"$ref": "#/properties/loop"},
    },
    "required": ["n"],
    "additionalProperties": False,
    "$defs": {"Item": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}},
}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"n": 1}, {"n": 1}),
        ({"n": "5"}, {"n": 5}),
        ({"n": 5.0}, {"n": 5}),
        ({"n": 1, "x": "1.5"}, {"n": 1, "x": 1.5}),
        ({"n": 1, "b": "true"}, {"n": 1, "b": True}),
        ({"n": 1, "s": "12"}, {"n": 1, "s": "12"}),
        ({"n": 1, "o": None, "m": "7"}, {"n": 1, "o": None, "m": 7}),
        ({"n": 1, "l": [{"id": "a", "z": 1}]}, {"n": 1, "l": [{"id": "a", "z": 1}]}),
        ({"n": 1, "t": "5"}, {"n": 1, "t": "5"}),
    ],
)
def test_fitting_arguments_pass(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert check_arguments(SCHEMA, given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "argument 'n' is required"),
        ({"n": 0}, "argument 'n' must be at least 1"),
        ({"n": 10}, "argument 'n' must be at most 9"),
        ({"n": "x"}, "argument 'n' must be of type integer, not string"),
        ({"n": "1e400"}, "argument 'n' must be of type integer, not string"),
        ({"n": True}, "argument 'n' must be of type integer, not boolean"),
        ({"n": None}, "argument 'n' must be of type integer, not null"),
        ({"n": 1, "z": 1}, "argument 'z' is unknown"),
        ({"n": 1, "s": ""}, "argument 's' must have at least 1 characters"),
        ({"n": 1, "s": "long"}, "argument 's' must have at most 3 characters"),
        ({"n": 1, "e": "c"}, "argument 'e' must be one of 'a', 'b'"),
        ({"n": 1, "c": 2}, "argument 'c' must be 1"),
        ({"n": 1, "l": []}, "argument 'l' must have at least 1 items"),
        ({"n": 1, "l": [{"id": "a"}, {}]}, "argument 'l[1].id' is required"),
        ({"n": 1, "l": [{"id": 5}]}, "argument 'l[0].id' must be of type string, not integer"),
        ({"n": 1, "o": 5}, "argument 'o' must be of type string, not integer"),
        ({"n": 1, "never": 1}, "argument 'never' is not allowed"),
        ({"n": 1, "loop": 1}, "argument 'loop' is nested too deeply"),
    ],
)
def test_wrong_arguments_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid) as raised:
        check_arguments(SCHEMA, given)
    assert message in raised.value.message


def test_schema_without_rules_lets_everything_pass() -> None:
    assert check_arguments({}, {"a": [1, {"b": None}]}) == {"a": [1, {"b": None}]}
