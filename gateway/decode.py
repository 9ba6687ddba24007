"""Bytes and query text to the types a row declares, strictly or by docker agent's lenient rules."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from typing import Any, cast

import msgspec
from msgspec import inspect

from actors.errors import Invalid
from gateway.dialect import BodyRule
from gateway.errors import HttpFailure
from gateway.http import JSON, Request

MAX_DEPTH = 200
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_AT_BYTE = re.compile(r"\(byte (\d+)\)")
_TYPE_ERROR = re.compile(
    r"^Expected `(?P<expected>[^`]*)`, got `(?P<got>[^`]*)`(?: - at `\$\.?(?P<where>.*)`)?$"
)
_GO_NAMES = {"str": "string", "object": "object", "array": "array", "bool": "bool", "null": "null"}

Normaliser = Callable[[JSON], JSON]


def decode_body(request: Request, as_type: Any, rule: BodyRule) -> Any:
    """Return the request's body as ``as_type``.

    Raises:
        Invalid: it does not fit; the message is the dialect's.
        HttpFailure: 415, under strict rules, for a body that is not JSON.
    """
    raw = request.raw
    if rule.lenient:
        return _decode_lenient(raw, request.headers.get("content-type", ""), as_type, rule)
    if rule.typed and raw and not is_json(request.headers.get("content-type", "")):
        raise HttpFailure(415, "the body must be sent as application/json")
    if not raw.strip():
        if rule.required:
            raise Invalid("invalid input: the request body is empty")
        raw = b"{}"
    try:
        _check_depth(raw)
        return msgspec.json.decode(raw, type=as_type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise Invalid(f"invalid input: {exc}") from None


def is_json(content_type: str) -> bool:
    """Say whether a ``Content-Type`` value is JSON's."""
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == "application/json" or (
        media_type.startswith("application/") and media_type.endswith("+json")
    )


def decode_params(request: Request, as_type: type[Any]) -> Any:
    """Return path and query together as ``as_type``; a path value wins over a query value of its name.

    Raises:
        Invalid: a value does not fit its field.
    """
    lists = _list_fields(as_type)  # type: ignore[arg-type] # classes are hashable
    values: dict[str, Any] = {
        name: given if name in lists else given[0] for name, given in request.query.items()
    }
    values.update(request.path_params)
    try:
        return msgspec.convert(values, as_type, strict=False)
    except msgspec.ValidationError as exc:
        raise Invalid(f"invalid input: {exc}") from None


@cache
def _list_fields(as_type: Hashable) -> frozenset[str]:
    info = inspect.type_info(as_type)
    assert isinstance(info, inspect.StructType)
    kinds = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)
    return frozenset(field.encode_name for field in info.fields if isinstance(field.type, kinds))


# --- the lenient rules ------------------------------------------------------------------------------------


def _decode_lenient(raw: bytes, content_type: str, as_type: Any, rule: BodyRule) -> Any:
    if not raw:
        if rule.required:
            raise Invalid("invalid request body: EOF")
        raw = b"{}"
    elif rule.typed and content_type.partition(";")[0].strip().lower() != "application/json":
        raise Invalid("invalid request body: code=415, message=Unsupported Media Type")
    value = _first_value(raw)
    if value is None:
        value = {}
    try:
        return msgspec.convert(normaliser(as_type)(value), as_type)
    except msgspec.ValidationError as exc:
        raise Invalid(f"invalid request body: code=400, message={_go_type_error(str(exc))}") from None


def _first_value(raw: bytes) -> JSON:
    """Return the first JSON value in ``raw``; what follows it is ignored."""
    try:
        _check_depth(raw)
        try:
            return msgspec.json.decode(raw)
        except msgspec.DecodeError as exc:
            trailing = _TRAILING.search(str(exc))
            return msgspec.json.decode(raw[: int(trailing[1]) - 1] if trailing else _repair(raw))
    except (ValueError, RecursionError) as exc:
        at = _AT_BYTE.search(str(exc))
        offset = int(at[1]) if at else len(raw)
        raise Invalid(
            f"invalid request body: code=400, message=Syntax error: offset={offset}, error={exc}"
        ) from None


def _repair(raw: bytes) -> bytes:
    """Replace what no text may hold, lone surrogates and broken UTF-8, by U+FFFD; leave other faults as they are."""
    value, _ = json.JSONDecoder().raw_decode(raw.decode("utf-8", "replace").lstrip())
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _check_depth(raw: bytes) -> None:
    """Refuse nesting so deep that code which walks the value would run out of stack."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", raw)):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise msgspec.DecodeError(f"nested more than {MAX_DEPTH} levels deep")


def _go_type_error(message: str) -> str:
    match = _TYPE_ERROR.match(message)
    if match is None:
        return f"Unmarshal type error: {message}"
    expected, got = (_GO_NAMES.get(name, name) for name in match.group("expected", "got"))
    where = f", field={match['where']}" if match["where"] else ""
    return f"Unmarshal type error: expected={expected}, got={got}{where}"


@cache
def normaliser(as_type: Any) -> Normaliser:
    """Return what turns a decoded value into one that strict conversion to ``as_type`` reads leniently.

    It matches names without regard to case, and drops unknown names and ``null`` for a field that has a
    default and no use for it.
    """
    return _Normalisers().of(inspect.type_info(as_type))


class _Field:
    __slots__ = ("keeps_null", "name", "normalise")

    def __init__(self, name: str, normalise: Normaliser, *, keeps_null: bool) -> None:
        self.name = name
        self.normalise = normalise
        self.keeps_null = keeps_null


class _Normalisers:
    """Builds one normaliser per type; structs that contain themselves meet their own entry."""

    def __init__(self) -> None:
        self._fields: dict[type[Any], dict[str, _Field]] = {}

    def of(self, info: inspect.Type) -> Normaliser:
        match info:
            case inspect.StructType():
                return self._struct(info)
            case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
                return _each_item(self.of(info.item_type))
            case inspect.DictType():
                return _each_value(self.of(info.value_type))
            case inspect.UnionType():
                branches = [kind for kind in info.types if not isinstance(kind, inspect.NoneType)]
                return self.of(branches[0]) if len(branches) == 1 else _as_it_is
            case _:
                return _as_it_is

    def _struct(self, info: inspect.StructType) -> Normaliser:
        fields = self._fields.get(info.cls)
        if fields is None:
            fields = self._fields[info.cls] = {}
            for each in info.fields:
                fields[each.encode_name.lower()] = _Field(
                    each.encode_name, self.of(each.type), keeps_null=each.required or _takes_null(each.type)
                )

        def normalise(value: JSON) -> JSON:
            if not isinstance(value, Mapping):
                return value
            result: dict[str, JSON] = {}
            for name, item in cast("Mapping[str, JSON]", value).items():
                known = fields.get(name.lower())
                if known is None or (item is None and not known.keeps_null):
                    continue
                result[known.name] = known.normalise(item)
            return result

        return normalise


def _takes_null(info: inspect.Type) -> bool:
    if isinstance(info, inspect.UnionType):
        return any(isinstance(kind, inspect.NoneType) for kind in info.types)
    return isinstance(info, inspect.AnyType | inspect.NoneType)


def _as_it_is(value: JSON) -> JSON:
    return value


def _each_item(normalise: Normaliser) -> Normaliser:
    if normalise is _as_it_is:
        return _as_it_is

    def each(value: JSON) -> JSON:
        if not isinstance(value, list):
            return value
        items: list[JSON] = value  # pyright: ignore[reportUnknownVariableType] - JSON is Any
        return [normalise(item) for item in items]

    return each


def _each_value(normalise: Normaliser) -> Normaliser:
    if normalise is _as_it_is:
        return _as_it_is

    def each(value: JSON) -> JSON:
        if not isinstance(value, dict):
            return value
        return {name: normalise(item) for name, item in cast("dict[str, JSON]", value).items()}

    return each
