"""Making a stored tool of what a client sent, and changing one: defaults, limits and merge rules; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from msgspec import structs

from actors.apitools.messages import StoredTool
from actors.tools.http_api import rules
from actors.tools.http_api.call import METHODS, ApiCall, AuthType, is_array
from actors.tools.http_api.rules import Refusal

JSON = Any
Seal = Callable[[str], str]
_FIELDS = (
    "name", "description", "input_schema", "api_configuration", "response_mode", "speak_during_execution",
    "allow_interruption_during_execution",
)  # fmt: skip
_CONFIGURATION = ("url", "method", "headers", "auth_type", "auth_credentials", "timeout_seconds")
_NOT_NULL = frozenset(_FIELDS) - {"description"}


def new_tool(body: JSON, tool_id: str, now: int, seal: Seal) -> StoredTool:
    """Return the tool a client asks for.

    Args:
        body: The decoded request body.
        tool_id: Its id.
        now: Milliseconds since the epoch.
        seal: Encrypts its secret.

    Raises:
        Refusal: naming the field.
    """
    given = _object(body)
    for required in ("name", "input_schema", "api_configuration"):
        if given.get(required) is None:
            raise Refusal(required, "is required")
    schema = rules.check_schema(given["input_schema"])
    configuration = _configuration(given["api_configuration"])
    if configuration.get("method") is None:
        raise Refusal("api_configuration.method", "is required", METHODS)
    properties = cast("Mapping[str, JSON]", schema.get("properties") or {})
    blank = StoredTool(
        id=tool_id,
        name=rules.check_name(given["name"]),
        url=rules.check_url(configuration.get("url"), properties),
        method="GET",
        input_schema=schema,
        created_at=now,
        updated_at=now,
    )
    return changed_tool(blank, given, now, seal)


def changed_tool(tool: StoredTool, body: JSON, now: int, seal: Seal) -> StoredTool:
    """Return the tool with a client's changes: what is left out stays, ``api_configuration`` is merged one level deep.

    Raises:
        Refusal: naming the field.
    """
    given = _object(body)
    for name in _NOT_NULL:
        if name in given and given[name] is None:
            raise Refusal(name, "must not be null")
    changes: dict[str, Any] = {"updated_at": now}
    if "name" in given:
        changes["name"] = rules.check_name(given["name"])
    if "description" in given:
        changes["description"] = rules.check_description(given["description"])
    if "input_schema" in given:
        changes["input_schema"] = rules.check_schema(given["input_schema"])
    if "response_mode" in given:
        changes["response_mode"] = _one_of("response_mode", given["response_mode"], rules.RESPONSE_MODES)
    if "allow_interruption_during_execution" in given:
        changes["allow_interruption_during_execution"] = _bool(
            "allow_interruption_during_execution", given["allow_interruption_during_execution"]
        )
    if "speak_during_execution" in given:
        changes["speak_during_execution"] = _speech(given["speak_during_execution"])
    changes |= _changed_configuration(tool, _configuration(given.get("api_configuration", {})), seal)
    changed = structs.replace(tool, **changes)
    # The URL's placeholders and the schema depend on each other, whichever of them changed.
    rules.check_url(changed.url, cast("Mapping[str, JSON]", changed.input_schema.get("properties") or {}))
    rules.check_headers(changed.headers, auth=bool(changed.auth_type))
    return changed


def _changed_configuration(tool: StoredTool, given: Mapping[str, JSON], seal: Seal) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    auth = tool.auth_type
    if "auth_type" in given:
        wanted = given["auth_type"]
        checked = "" if wanted is None else _one_of("api_configuration.auth_type", wanted, rules.AUTH_TYPES)
        auth = cast("AuthType", checked)
        changes["auth_type"] = auth
        if not auth:
            changes["sealed"] = ""
    if given.get("auth_credentials") is not None:
        if not auth:
            raise Refusal(
                "api_configuration.auth_type", "is required with auth_credentials", rules.AUTH_TYPES
            )
        changes["sealed"] = seal(rules.check_credentials(auth, given["auth_credentials"]))
    elif auth and (not tool.sealed or auth != tool.auth_type):
        raise Refusal("api_configuration.auth_credentials", f"is required with auth_type {auth}")
    if "url" in given:
        changes["url"] = str(given["url"] or "").partition("#")[0]
    if "method" in given:
        changes["method"] = rules.check_method(given["method"])
    if "headers" in given:
        changes["headers"] = rules.check_headers(given["headers"], auth=bool(auth))
    if "timeout_seconds" in given:
        changes["timeout_seconds"] = rules.check_seconds(given["timeout_seconds"])
    return changes


def _object(body: JSON) -> Mapping[str, JSON]:
    if not isinstance(body, Mapping):
        raise Refusal("body", "must be a JSON object")
    given = cast("Mapping[str, JSON]", body)
    for name in given:
        if name not in _FIELDS:
            raise Refusal(name, "is not a field of a tool", _FIELDS)
    return given


def _configuration(value: JSON) -> Mapping[str, JSON]:
    if not isinstance(value, Mapping):
        raise Refusal("api_configuration", "must be an object")
    given = cast("Mapping[str, JSON]", value)
    for name in given:
        if name not in _CONFIGURATION:
            raise Refusal(f"api_configuration.{name}", "is not a field of a configuration", _CONFIGURATION)
    return given


def _one_of(field: str, value: JSON, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise Refusal(field, "is not one of the allowed values", allowed)
    return str(value)


def _bool(field: str, value: JSON) -> bool:
    if not isinstance(value, bool):
        raise Refusal(field, "must be true or false")
    return value


def _speech(value: JSON) -> dict[str, JSON]:
    at = "speak_during_execution"
    if not isinstance(value, Mapping):
        raise Refusal(at, "must be an object")
    given = cast("Mapping[str, JSON]", value)
    messages: JSON = given.get("messages", [])
    if not is_array(messages) or not all(isinstance(each, str) for each in messages):
        raise Refusal(f"{at}.messages", "must be a list of texts")
    if unknown := set(given) - {"enabled", "messages"}:
        raise Refusal(f"{at}.{min(unknown)}", "is not a field")
    return {"enabled": _bool(f"{at}.enabled", given.get("enabled", False)), "messages": messages}


def as_call(tool: StoredTool, credentials: str) -> ApiCall:
    """Return the tool as what the executor makes calls of; ``credentials`` is its opened secret."""
    return ApiCall(
        name=tool.name,
        description=tool.description or "",
        url=tool.url,
        method=tool.method,
        headers=tool.headers,
        auth_type=tool.auth_type,
        credentials=credentials,
        seconds=tool.timeout_seconds,
        parameters=tool.input_schema,
        response_mode=tool.response_mode,
    )


def rendered(tool: StoredTool) -> dict[str, JSON]:
    """Return the tool as clients see it: without its secret."""
    configuration: dict[str, JSON] = {
        "url": tool.url,
        "method": tool.method,
        "headers": dict(tool.headers),
        "timeout_seconds": tool.timeout_seconds,
        "has_auth_credentials": bool(tool.sealed),
    }
    if tool.auth_type:
        configuration["auth_type"] = tool.auth_type
    body: dict[str, JSON] = {
        "id": tool.id,
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "api_configuration": configuration,
        "response_mode": tool.response_mode,
        "allow_interruption_during_execution": tool.allow_interruption_during_execution,
        "created_at": tool.created_at,
        "updated_at": tool.updated_at,
    }
    if tool.speak_during_execution is not None:
        body["speak_during_execution"] = tool.speak_during_execution
    return body


def draft(call: ApiCall) -> dict[str, JSON]:
    """Return an imported call as the body that would create it."""
    configuration: dict[str, JSON] = {
        "url": call.url,
        "method": call.method,
        "headers": dict(call.headers),
        "timeout_seconds": int(call.seconds),
    }
    if call.auth_type:
        configuration |= {"auth_type": call.auth_type, "auth_credentials": call.credentials}
    return {
        "name": call.name,
        "description": call.description or None,
        "input_schema": call.parameters,
        "api_configuration": configuration,
    }
