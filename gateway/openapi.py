"""The route table as an OpenAPI 3.1 document. Everything in it comes from the rows; nothing is kept beside them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import inspect

from gateway.credentials import COOKIE
from gateway.dialect import API_TOOLS, DOCKER_AGENT, OPENAI, SQUADS, Dialect
from gateway.errors import status_of
from gateway.http import JSON
from gateway.route import Route, Scope, Stream

_NAME = re.compile(r"\{(\w+)(?:\.\.\.)?\}")
_REF = "#/components/schemas/{name}"
_TEXT: JSON = {"type": "string"}
_OPTIONAL: JSON = {"type": ["string", "null"]}


def _object(required: str, **properties: JSON) -> JSON:
    return {"type": "object", "properties": properties, "required": required.split()}


_SQUAD_ERROR = {"code": _TEXT, "message": _TEXT}
_ERRORS: Mapping[Dialect, tuple[str, JSON]] = {
    DOCKER_AGENT: ("Error", _object("message", message=_TEXT, code=_TEXT)),
    SQUADS: ("SquadError", _object("error", error=_object("code message", **_SQUAD_ERROR))),
    API_TOOLS: (
        "ApiToolError",
        _object("error", error=_object("code message", **_SQUAD_ERROR, details={"type": "object"})),
    ),
    OPENAI: (
        "OpenAIError",
        _object(
            "error",
            error=_object("message type", message=_TEXT, type=_TEXT, param=_OPTIONAL, code=_OPTIONAL),
        ),
    ),
}
"""Dialect → the name and schema of its error body."""
_CREDENTIALS: Mapping[str, JSON] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "login": {"type": "apiKey", "in": "cookie", "name": COOKIE},
}
"""Name → how a credential may come; one of them is enough."""


def document(routes: Iterable[Route], version: str, *, secured: bool = False) -> dict[str, JSON]:
    """Return the document for the rows that are documented.

    Args:
        routes: The table's rows; undocumented ones are left out. A WebSocket row is the GET that asks for the upgrade.
        version: Of the program.
        secured: Whether a credential is asked for.
    """
    rows = [row for row in routes if row.documented]
    schemas, components = _schemas(rows)
    paths: dict[str, dict[str, JSON]] = {}
    for row in rows:
        path = _NAME.sub(r"{\1}", row.path)
        paths.setdefault(path, {})[row.method.lower()] = _operation(row, schemas, secured=secured)
    components.update(_ERRORS[row.dialect] for row in rows)
    body: dict[str, JSON] = {
        "openapi": "3.1.0",
        "info": {"title": "Greenroom", "version": version},
        "tags": [{"name": tag} for tag in dict.fromkeys(row.tag for row in rows if row.tag)],
        "paths": paths,
        "components": {"schemas": components},
    }
    if secured:
        body["components"]["securitySchemes"] = _CREDENTIALS
    return body


def _schemas(rows: Iterable[Route]) -> tuple[dict[int, JSON], dict[str, JSON]]:
    """Return the schema of each type used, by the type's identity, and the shared components."""
    types: list[Any] = []
    for row in rows:
        types += [each for each in (row.body, row.params, _reply_type(row)) if each is not None]
    distinct = list({id(each): each for each in types}.values())
    made, components = msgspec.json.schema_components(distinct, ref_template=_REF)
    return {id(each): schema for each, schema in zip(distinct, made, strict=True)}, dict(components)


def _reply_type(row: Route) -> Any:
    return row.reply.event if isinstance(row.reply, Stream) else row.reply


def _operation(row: Route, schemas: Mapping[int, JSON], *, secured: bool) -> dict[str, JSON]:
    operation: dict[str, JSON] = {
        "operationId": row.operation_id,
        "summary": row.summary,
        "parameters": _parameters(row),
        "responses": _responses(row, schemas),
    }
    if row.tag:
        operation["tags"] = [row.tag]
    if row.body is not None:
        operation["requestBody"] = {"content": {"application/json": {"schema": schemas[id(row.body)]}}}
    if secured and row.scope is not Scope.PUBLIC:
        operation["security"] = [{name: list[str]()} for name in _CREDENTIALS]
    return operation


def _parameters(row: Route) -> list[JSON]:
    names = _NAME.findall(row.path)
    found: list[JSON] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
    ]
    if row.params is not None:
        info = inspect.type_info(row.params)
        assert isinstance(info, inspect.StructType)
        found += [
            {
                "name": field.encode_name,
                "in": "query",
                "required": field.required,
                "schema": _plain(field.type),
            }
            for field in info.fields
            if field.encode_name not in names
        ]
    return found


def _plain(kind: inspect.Type) -> JSON:
    names: Mapping[type[inspect.Type], JSON] = {
        inspect.IntType: {"type": "integer"},
        inspect.FloatType: {"type": "number"},
        inspect.BoolType: {"type": "boolean"},
        inspect.VarTupleType: {"type": "array", "items": {"type": "string"}},
        inspect.ListType: {"type": "array", "items": {"type": "string"}},
    }
    return names.get(type(kind), {"type": "string"})


def _responses(row: Route, schemas: Mapping[int, JSON]) -> dict[str, JSON]:
    reply: dict[str, JSON] = {"description": "Success"}
    kind = _reply_type(row)
    schema: JSON = schemas[id(kind)] if kind is not None else {}
    if isinstance(row.reply, Stream):
        reply = {"description": "A stream of events", "content": {row.reply.content_type: {"schema": schema}}}
    elif row.socket is not None:
        reply = {"description": "A WebSocket"}
    elif row.status != 204:
        reply["content"] = {"application/json": {"schema": schema}}
    failures = {status_of(error) for error in row.errors} | {400}
    if row.scope is not Scope.PUBLIC:
        failures |= {401, 403}
    if "{" in row.path:
        failures.add(404)
    if row.socket is not None:
        failures.add(426)
    error = {"content": {"application/json": {"schema": {"$ref": _REF.format(name=_ERRORS[row.dialect][0])}}}}
    return {str(row.status): reply} | {
        str(status): {"description": "Failure", **error} for status in sorted(failures)
    }
