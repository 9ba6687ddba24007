"""From the arguments a model wrote to those that are sent: checked, losslessly converted, in a stable order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

import re2  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

from actors.tools.http_api.call import BadArguments, is_array

JSON = Any
Schema = Mapping[str, JSON]
_INTEGER = re.compile(r"-?(0|[1-9]\d*)")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_MAX_DEPTH = 32


def prepare(schema: Schema, arguments: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the arguments to send.

    Declared properties come first, in the schema's order, then unknown ones in the model's. A missing optional one
    takes its default, if any. Unknown ones are dropped where ``additionalProperties`` is false. ``"5"`` becomes 5
    where an integer is asked for, ``"true"`` becomes true, 5 becomes ``"5"``; nothing that would lose anything.

    Raises:
        BadArguments: an argument is missing or does not fit; it is named.
    """
    return _object(schema, arguments, "", 0)


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """Return a pattern ready for use, of an engine in which no text takes long. Raises: re2.error."""
    return re2.compile(pattern)


def matches(pattern: str, text: str) -> bool:
    """Tell whether a text matches a schema's pattern; one that cannot be read here matches everything."""
    try:
        return compiled(pattern).search(text) is not None
    except re2.error:
        return True


def _object(schema: Schema, value: Mapping[str, JSON], at: str, depth: int) -> dict[str, JSON]:
    properties: Mapping[str, JSON] = schema.get("properties") or {}
    required: list[str] = schema.get("required") or []
    extra = schema.get("additionalProperties", True)
    out: dict[str, JSON] = {}
    for name, wanted in properties.items():
        where = f"{at}.{name}" if at else name
        if name in value:
            out[name] = _value(wanted, value[name], where, depth + 1)
        elif isinstance(wanted, Mapping) and "default" in wanted:
            out[name] = cast("Schema", wanted)["default"]
        elif name in required:
            raise BadArguments(f"argument '{where}' is required", where)
    if extra is not False:
        for name, item in value.items():
            if name not in properties:
                where = f"{at}.{name}" if at else name
                out[name] = _value(extra, item, where, depth + 1)
    return out


def _value(schema: JSON, value: JSON, at: str, depth: int) -> JSON:
    if depth > _MAX_DEPTH:
        raise BadArguments(f"argument '{at}' is nested too deeply", at)
    if not isinstance(schema, Mapping):
        return value
    schema = cast("Schema", schema)
    for part in schema.get("allOf") or ():
        value = _value(part, value, at, depth + 1)
    for keyword in ("anyOf", "oneOf"):
        if schema.get(keyword):
            value = _first_fit(schema[keyword], value, at, depth + 1)
    names = _type_names(schema)
    if value is None:
        if not names or schema.get("nullable") is True or "null" in names:
            return None
        raise BadArguments(f"argument '{at}' may not be null", at)
    if names:
        value = _converted(value, names, at)
    _check(schema, value, at)
    if isinstance(value, Mapping):
        return _object(schema, cast("Mapping[str, JSON]", value), at, depth)
    if is_array(value):
        items = value
        wanted = schema.get("items")
        return [_value(wanted, item, f"{at}[{index}]", depth + 1) for index, item in enumerate(items)]
    return value


def _first_fit(options: list[JSON], value: JSON, at: str, depth: int) -> JSON:
    """Return the value in the first form it has as it is, else in the first it can be converted to."""
    problem: BadArguments | None = None
    candidates: list[JSON] = []
    for option in options:
        try:
            found = _value(option, value, at, depth)
        except BadArguments as error:
            problem = problem or error
            continue
        if type(found) is type(value) and found == value:
            return found
        candidates.append(found)
    if candidates:
        return candidates[0]
    raise problem or BadArguments(f"argument '{at}' has no form that is allowed", at)


def _type_names(schema: Schema) -> tuple[str, ...]:
    wanted = schema.get("type")
    if wanted is None:
        return ()
    return (wanted,) if isinstance(wanted, str) else tuple(wanted)


def _converted(value: JSON, names: tuple[str, ...], at: str) -> JSON:
    kinds = _kinds(value)
    if kinds.intersection(names):
        return int(value) if "number" not in names and isinstance(value, float) else value
    if isinstance(value, str):
        text = value.strip()
        if "boolean" in names and text in {"true", "false"}:
            return text == "true"
        if "integer" in names and _INTEGER.fullmatch(text) and len(text) <= 40:
            return int(text)
        if "number" in names and _NUMBER.fullmatch(text) and len(text) <= 40:
            return int(text) if _INTEGER.fullmatch(text) else float(text)
    elif "string" in names and kinds & {"integer", "number"}:
        return str(value)
    raise BadArguments(f"argument '{at}' must be of type {' or '.join(names)}", at)


def _kinds(value: JSON) -> set[str]:
    match value:
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"integer", "number"} if value.is_integer() and abs(value) < 2**53 else {"number"}
        case str():
            return {"string"}
        case list():
            return {"array"}
        case _:
            return {"object"}


def _check(schema: Schema, value: JSON, at: str) -> None:
    if "enum" in schema and not any(type(each) is type(value) and each == value for each in schema["enum"]):
        raise BadArguments(f"argument '{at}' must be one of {', '.join(map(repr, schema['enum']))}", at)
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        if "minimum" in schema and value < schema["minimum"]:
            raise BadArguments(f"argument '{at}' must be at least {schema['minimum']}", at)
        if "maximum" in schema and value > schema["maximum"]:
            raise BadArguments(f"argument '{at}' must be at most {schema['maximum']}", at)
    elif isinstance(value, str):
        _length(schema, len(value), at, "Length", "characters")
        if (pattern := schema.get("pattern")) and not matches(str(pattern), value):
            raise BadArguments(f"argument '{at}' must match {pattern}", at)
    elif is_array(value):
        _length(schema, len(value), at, "Items", "items")


def _length(schema: Schema, length: int, at: str, suffix: str, unit: str) -> None:
    least, most = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
    if least is not None and length < least:
        raise BadArguments(f"argument '{at}' must have at least {least} {unit}", at)
    if most is not None and length > most:
        raise BadArguments(f"argument '{at}' must have at most {most} {unit}", at)
