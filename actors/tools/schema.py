"""Checking a call's arguments against the part of JSON Schema that tools use.

Knows ``$ref`` into the schema itself, ``anyOf``/``oneOf``/``allOf``, ``type``, ``enum``, ``const``,
``properties``, ``required``, ``additionalProperties``, ``items`` and the usual bounds. Other keywords are
left to the tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from actors.errors import Invalid

JSON = Any
Schema = Mapping[str, JSON]

_MAX_DEPTH = 64
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")


def _is_object(value: JSON) -> bool:
    return isinstance(value, Mapping)


def _is_array(value: JSON) -> bool:
    return isinstance(value, list | tuple)


def _is_number(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: JSON) -> bool:
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


_TYPES: Mapping[str, Callable[[JSON], bool]] = {
    "object": _is_object,
    "array": _is_array,
    "string": lambda value: isinstance(value, str),
    "number": _is_number,
    "integer": _is_integer,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


def check_arguments(schema: Schema, arguments: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the arguments as the schema wants them.

    Models often write ``"5"`` for 5; where a schema asks for a number or a boolean only, such a string is
    converted. An integral float becomes an integer where an integer is asked for.

    Raises:
        Invalid: an argument does not fit; the message names it.
    """
    checked = _Checker(schema).check(schema, dict(arguments), "", 0)
    return cast("dict[str, JSON]", checked)


class _Checker:
    def __init__(self, root: Schema) -> None:
        self._root = root

    def check(self, schema: JSON, value: JSON, at: str, depth: int) -> JSON:
        if schema is True or schema is None:
            return value
        if schema is False:
            raise _bad(at, "is not allowed")
        if not isinstance(schema, Mapping):
            return value
        if depth > _MAX_DEPTH:
            raise _bad(at, "is nested too deeply")
        schema = cast("Schema", schema)
        if "$ref" in schema:
            return self.check(self._resolve(schema["$ref"]), value, at, depth + 1)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                value = self._one_of(schema[keyword], value, at, depth + 1)
        for part in schema.get("allOf", ()):
            value = self.check(part, value, at, depth + 1)
        value = self._typed(schema, value, at)
        if "enum" in schema and value not in schema["enum"]:
            raise _bad(at, f"must be one of {', '.join(map(repr, schema['enum']))}")
        if "const" in schema and value != schema["const"]:
            raise _bad(at, f"must be {schema['const']!r}")
        self._bounds(schema, value, at)
        if _is_object(value):
            return self._object(schema, value, at, depth + 1)
        if _is_array(value) and "items" in schema:
            return [
                self.check(schema["items"], item, f"{at}[{index}]", depth + 1)
                for index, item in enumerate(value)
            ]
        return value

    def _resolve(self, ref: JSON) -> JSON:
        node: JSON = self._root
        for part in str(ref).removeprefix("#").strip("/").split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            node = cast("Schema", node).get(key) if isinstance(node, Mapping) else None
        return node

    def _one_of(self, options: Sequence[JSON], value: JSON, at: str, depth: int) -> JSON:
        exact = [option for option in options if _fits_type(option, value)]
        problem: Invalid | None = None
        for option in [*exact, *(option for option in options if option not in exact)]:
            try:
                return self.check(option, value, at, depth)
            except Invalid as error:
                problem = problem or error
        raise problem or _bad(at, "has no form that is allowed")

    def _typed(self, schema: Schema, value: JSON, at: str) -> JSON:
        wanted = schema.get("type")
        if wanted is None:
            return value
        names: list[str] = [wanted] if isinstance(wanted, str) else list(wanted)
        if any(name not in _TYPES or _TYPES[name](value) for name in names):
            return (
                int(value)
                if "integer" in names and isinstance(value, float) and value.is_integer()
                else value
            )
        if isinstance(value, str):
            converted = _from_text(value.strip(), names)
            if converted is not None:
                return converted
        raise _bad(at, f"must be of type {' or '.join(names)}, not {_name_of(value)}")

    def _object(self, schema: Schema, value: Mapping[str, JSON], at: str, depth: int) -> dict[str, JSON]:
        properties: Mapping[str, JSON] = schema.get("properties") or {}
        extra = schema.get("additionalProperties", True)
        for name in schema.get("required") or ():
            if name not in value:
                raise _bad(_join(at, name), "is required")
        out: dict[str, JSON] = {}
        for name, item in value.items():
            if name in properties:
                out[name] = self.check(properties[name], item, _join(at, name), depth)
            elif extra is False:
                known = ", ".join(properties) or "none"
                raise _bad(_join(at, name), f"is unknown (known: {known})")
            else:
                out[name] = self.check(extra, item, _join(at, name), depth)
        return out

    def _bounds(self, schema: Schema, value: JSON, at: str) -> None:
        if _is_number(value):
            if value < schema.get("minimum", value):
                raise _bad(at, f"must be at least {schema['minimum']}")
            if value > schema.get("maximum", value):
                raise _bad(at, f"must be at most {schema['maximum']}")
        elif isinstance(value, str):
            _check_length(at, len(value), schema.get("minLength"), schema.get("maxLength"), "characters")
        elif _is_array(value):
            _check_length(at, len(value), schema.get("minItems"), schema.get("maxItems"), "items")


def _check_length(at: str, length: int, least: int | None, most: int | None, unit: str) -> None:
    if least is not None and length < least:
        raise _bad(at, f"must have at least {least} {unit}")
    if most is not None and length > most:
        raise _bad(at, f"must have at most {most} {unit}")


def _fits_type(schema: JSON, value: JSON) -> bool:
    wanted = cast("Schema", schema).get("type") if isinstance(schema, Mapping) else None
    return isinstance(wanted, str) and wanted in _TYPES and _TYPES[wanted](value)


def _from_text(text: str, names: Sequence[str]) -> JSON:
    if "string" in names:
        return None
    if "boolean" in names and text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if not _NUMBER.fullmatch(text) or len(text) > 40:
        return None
    number = float(text)
    if "integer" in names and number.is_integer() and abs(number) < 2**53:
        return int(number)
    return number if "number" in names else None


def _name_of(value: JSON) -> str:
    return next(
        (name for name in ("null", "boolean", "integer", "number", "string", "array") if _TYPES[name](value)),
        "object",
    )


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _bad(at: str, problem: str) -> Invalid:
    return Invalid(f"argument '{at}' {problem}" if at else f"the arguments object {problem}", field=at)
