"""Reading an OpenAPI 3 document into declared calls, one per operation; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, cast
from urllib.parse import urljoin, urlsplit

import msgspec

from actors.errors import Invalid
from actors.tools.http_api.call import METHODS, ApiCall, Method, Place, is_array

JSON = Any
Object = Mapping[str, JSON]
MAX_OPERATIONS = 500
MAX_NODES = 1_000_000
_MAX_DEPTH = 12
_BODY = "body_"


def parse_document(text: bytes) -> dict[str, JSON]:
    """Return an OpenAPI 3 document written as JSON or YAML.

    Raises:
        Invalid: it is neither, or no OpenAPI 3 document.
    """
    try:
        document: JSON = msgspec.json.decode(text)
    except msgspec.DecodeError:
        try:
            document = msgspec.yaml.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Invalid(f"the OpenAPI document is neither JSON nor YAML ({error})") from error
        _check_size(document)
    except RecursionError as error:
        raise Invalid("the OpenAPI document is nested too deeply") from error
    if not isinstance(document, dict):
        raise Invalid("the OpenAPI document must be an object")
    found = cast("dict[str, JSON]", document)
    if not str(found.get("openapi", "")).startswith("3"):
        raise Invalid("the document is not OpenAPI 3 (its 'openapi' does not begin with 3)")
    if not isinstance(found.get("paths"), Mapping):
        raise Invalid("the OpenAPI document has no 'paths'")
    return found


def _check_size(value: JSON) -> None:
    """Refuse a YAML document whose aliases unfold into far more than was written."""
    waiting: list[JSON] = [value]
    seen = 0
    while waiting:
        node = waiting.pop()
        seen += 1
        if seen > MAX_NODES:
            raise Invalid(f"the OpenAPI document has more than {MAX_NODES} values")
        if isinstance(node, dict):
            waiting.extend(cast("dict[str, JSON]", node).values())
        elif is_array(node):
            waiting.extend(node)


def calls_from_openapi(document: Object, base: str = "") -> list[ApiCall]:
    """Return a call for each operation, in the document's order.

    Parameters of the path, query and header are arguments of their own names; the members of a JSON body are
    too, with ``body_`` before the name. A body that is no object is the argument ``body``.

    Args:
        document: From :func:`parse_document`.
        base: Where the document was found; its ``servers`` may be relative to it.

    Raises:
        Invalid: a server URL is missing or relative to nothing, or there are too many operations.
    """
    reader = _Reader(document)
    found: list[ApiCall] = []
    taken: set[str] = set()
    for path, raw in cast("Object", document["paths"]).items():
        item = reader.resolve(raw)
        for method in METHODS:
            operation = item.get(method.lower())
            if not isinstance(operation, Mapping):
                continue
            if len(found) == MAX_OPERATIONS:
                raise Invalid(f"the OpenAPI document has more than {MAX_OPERATIONS} operations")
            call = _call(reader, base, path, method, item, cast("Object", operation), taken)
            taken.add(call.name)
            found.append(call)
    return found


def _call(
    reader: _Reader, base: str, path: str, method: Method, item: Object, operation: Object, taken: set[str]
) -> ApiCall:
    servers = operation.get("servers") or item.get("servers") or reader.root.get("servers") or [{"url": "/"}]
    server = _server_url(cast("Object", servers[0]), base)
    properties: dict[str, JSON] = {}
    required: list[str] = []
    places: dict[str, Place] = {}
    for raw in [*(item.get("parameters") or ()), *(operation.get("parameters") or ())]:
        parameter = reader.resolve(raw)
        name, where = str(parameter.get("name", "")), parameter.get("in")
        if not name or where not in {"path", "query", "header"}:
            continue
        properties[name] = reader.schema(parameter.get("schema") or {}, parameter.get("description"))
        if (parameter.get("required") or where == "path") and name not in required:
            required.append(name)
        if where != "path":
            places[name] = Place(cast("Literal['query', 'header']", where), name)
    whole = _add_body(reader, operation, properties, required, places)
    return ApiCall(
        name=_name(operation, method, path, taken),
        description=_description(operation, method, path),
        url=server.rstrip("/") + (path if path.startswith("/") else f"/{path}"),
        method=method,
        parameters={"type": "object", "properties": properties, "required": required},
        places=places,
        whole_body=whole,
    )


def _add_body(
    reader: _Reader,
    operation: Object,
    properties: dict[str, JSON],
    required: list[str],
    places: dict[str, Place],
) -> str:
    body = reader.resolve(operation.get("requestBody") or {})
    content = cast("Object", body.get("content") or {})
    media = next((content[kind] for kind in content if "json" in kind.lower()), None)
    if not isinstance(media, Mapping):
        return ""
    schema = reader.schema(cast("Object", media).get("schema") or {}, body.get("description"))
    members = schema.get("properties")
    if not isinstance(members, Mapping) or not members:
        properties["body"] = schema
        if body.get("required"):
            required.append("body")
        return "body"
    for name, each in cast("Object", members).items():
        properties[_BODY + name] = each
        places[_BODY + name] = Place("body", name)
        if body.get("required") and name in (schema.get("required") or ()):
            required.append(_BODY + name)
    return ""


def _server_url(server: Object, base: str) -> str:
    url = str(server.get("url") or "/")
    for name, variable in cast("Object", server.get("variables") or {}).items():
        url = url.replace(f"{{{name}}}", str(cast("Object", variable).get("default", "")))
    url = urljoin(base, url) if base else url
    if urlsplit(url).scheme not in {"http", "https"}:
        raise Invalid(f"the OpenAPI document's server {url!r} is not an absolute http or https URL")
    return url


def _name(operation: Object, method: Method, path: str, taken: set[str]) -> str:
    wanted = str(operation.get("operationId") or f"{method.lower()}_{path}")
    name = re.sub(r"[^a-zA-Z0-9_-]+", "_", wanted).strip("_")[:64] or method.lower()
    count = 2
    while name in taken:
        name, count = f"{name[:60]}_{count}", count + 1
    return name


def _description(operation: Object, method: Method, path: str) -> str:
    parts = [str(operation[key]).strip() for key in ("summary", "description") if operation.get(key)]
    return "\n\n".join(dict.fromkeys(parts))[:4000] or f"{method} {path}"


class _Reader:
    """Follows references inside one document."""

    def __init__(self, root: Object) -> None:
        self.root = root

    def resolve(self, node: JSON, hops: int = 0) -> Object:
        """Return what a node refers to, or itself. Raises: Invalid for a reference that leads nowhere or outside."""
        if not isinstance(node, Mapping):
            return {}
        found = cast("Object", node)
        ref = found.get("$ref")
        if ref is None:
            return found
        if not str(ref).startswith("#/") or hops > _MAX_DEPTH:
            raise Invalid(f"the reference {ref!r} leads outside the OpenAPI document or in a circle")
        target: JSON = self.root
        for part in str(ref)[2:].split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            target = cast("Object", target).get(key) if isinstance(target, Mapping) else None
        if target is None:
            raise Invalid(f"the reference {ref!r} leads nowhere")
        return self.resolve(target, hops + 1)

    def schema(self, node: JSON, description: JSON = None, depth: int = 0) -> dict[str, JSON]:
        """Return a schema with its references written out; one that contains itself ends in "anything"."""
        if depth > _MAX_DEPTH:
            return {}
        out = dict(self.resolve(node))
        if isinstance(out.get("properties"), Mapping):
            out["properties"] = {
                name: self.schema(each, depth=depth + 1) for name, each in out["properties"].items()
            }
        for keyword in ("items", "additionalProperties"):
            if isinstance(out.get(keyword), Mapping):
                out[keyword] = self.schema(out[keyword], depth=depth + 1)
        for keyword in ("oneOf", "anyOf", "allOf"):
            if is_array(out.get(keyword)):
                out[keyword] = [self.schema(each, depth=depth + 1) for each in out[keyword]]
        if description and not out.get("description"):
            out["description"] = description
        return out
