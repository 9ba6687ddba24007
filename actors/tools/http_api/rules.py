"""What a declared call must satisfy before it is kept; every refusal names the field and the reason. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from actors.errors import Invalid
from actors.tools.http_api.call import METHODS, is_array
from actors.tools.http_api.request import PLACEHOLDER, VARIABLE

JSON = Any
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MAX_DESCRIPTION = 4000
MAX_URL = 2048
MAX_SCHEMA = 64 * 1024
MAX_SCHEMA_DEPTH = 8
SECONDS = range(1, 121)
RESPONSE_MODES = ("wait", "fire_and_forget")
AUTH_TYPES = ("Basic", "Bearer")
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_KEYWORDS = frozenset(
    [
        "type",
        "properties",
        "required",
        "items",
        "enum",
        "default",
        "description",
        "format",
        "nullable",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "pattern",
        "minItems",
        "maxItems",
        "additionalProperties",
        "oneOf",
        "anyOf",
        "allOf",
        "title",
        "example",
        "const",
    ]
)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_FIXED = frozenset({"host", "content-length", "transfer-encoding", "connection"})


class Refusal(Invalid):
    """A field is not acceptable; ``fields`` has ``field``, ``reason`` and, when known, ``allowed_values``."""

    code = "bad_request"

    def __init__(self, field: str, reason: str, allowed: Sequence[str] = ()) -> None:
        more = {"allowed_values": list(allowed)} if allowed else {}
        super().__init__(f"{field}: {reason}", field=field, reason=reason, **more)


def check_name(name: JSON) -> str:
    """Return an acceptable tool name. Raises: Refusal."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise Refusal("name", "must be 1 to 64 letters, digits, '_' or '-'")
    return name


def check_description(text: JSON) -> str | None:
    """Return an acceptable description. Raises: Refusal."""
    if text is not None and (not isinstance(text, str) or len(text) > MAX_DESCRIPTION):
        raise Refusal("description", f"must be text of at most {MAX_DESCRIPTION} characters")
    return text


def check_url(url: JSON, properties: Mapping[str, JSON]) -> str:
    """Return an acceptable endpoint, without its fragment. Raises: Refusal."""
    at = "api_configuration.url"
    if not isinstance(url, str) or not url:
        raise Refusal(at, "is required")
    url = url.partition("#")[0]
    if len(url) > MAX_URL:
        raise Refusal(at, f"must have at most {MAX_URL} characters")
    if any(char <= " " or char == "\x7f" for char in url):
        raise Refusal(at, "must not contain spaces or control characters")
    try:
        plain = VARIABLE.sub("x", url)
        parts = urlsplit(plain)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise Refusal(at, f"is not a valid URL ({error})") from error
    if parts.scheme.lower() not in {"http", "https"}:
        raise Refusal(at, "must begin with http:// or https://", ("http", "https"))
    if not host:
        raise Refusal(at, "has no host")
    if parts.username is not None or parts.password is not None:
        raise Refusal(at, "must not contain a user name or password; use auth_type")
    for name in PLACEHOLDER.findall(plain):
        if name not in properties:
            raise Refusal(at, f"the placeholder {{{name}}} is not a property of input_schema")
    if PLACEHOLDER.search(parts.netloc):
        raise Refusal(at, "an argument must not decide about the host")
    return str(url)


def check_method(method: JSON) -> str:
    """Return an acceptable method. Raises: Refusal."""
    if method not in METHODS:
        raise Refusal("api_configuration.method", "must be one of the methods, in upper case", METHODS)
    return str(method)


def check_headers(headers: JSON, *, auth: bool) -> dict[str, str]:
    """Return acceptable headers. ``auth``: the ``Authorization`` header is made of the credentials. Raises: Refusal."""
    at = "api_configuration.headers"
    if not isinstance(headers, Mapping):
        raise Refusal(at, "must be an object of names and values")
    out: dict[str, str] = {}
    for name, value in cast("Mapping[str, JSON]", headers).items():
        if not _TOKEN.fullmatch(name):
            raise Refusal(at, f"{name!r} is not a header name")
        if not isinstance(value, str) or re.search(r"[\r\n\0]", value):
            raise Refusal(at, f"the value of {name!r} must be text of one line")
        if name.lower() in _FIXED:
            raise Refusal(at, f"{name} is set by the client and cannot be configured")
        if auth and name.lower() == "authorization":
            raise Refusal(at, "Authorization cannot be set together with auth_type")
        if name.lower() in (known.lower() for known in out):
            raise Refusal(at, f"{name} is there twice")
        out[name] = value
    return out


def check_seconds(seconds: JSON) -> int:
    """Return an acceptable timeout. Raises: Refusal."""
    if isinstance(seconds, bool) or not isinstance(seconds, int) or seconds not in SECONDS:
        raise Refusal("api_configuration.timeout_seconds", "must be an integer from 1 to 120")
    return seconds


def check_credentials(auth_type: str, credentials: JSON) -> str:
    """Return an acceptable secret. Raises: Refusal, which never repeats it."""
    at = "api_configuration.auth_credentials"
    if not isinstance(credentials, str) or not credentials:
        raise Refusal(at, f"is required with auth_type {auth_type}")
    if re.search(r"[\r\n\0]", credentials) or (not credentials.isascii() and auth_type == "Bearer"):
        raise Refusal(at, "must be text of one line")
    if auth_type == "Basic" and ":" not in credentials:
        raise Refusal(at, "must have the form user:password")
    return credentials


def check_schema(schema: JSON) -> dict[str, JSON]:
    """Return an acceptable ``input_schema``. Raises: Refusal."""
    at = "input_schema"
    if not isinstance(schema, Mapping):
        raise Refusal(at, "must be an object schema")
    given = cast("Mapping[str, JSON]", schema)
    if given.get("type") != "object":
        raise Refusal(f"{at}.type", "the root must have type object", ("object",))
    try:
        length = len(msgspec.json.encode(given))
    except RecursionError as error:
        raise Refusal(at, "is nested too deeply") from error
    if length > MAX_SCHEMA:
        raise Refusal(at, f"must have at most {MAX_SCHEMA} bytes")
    _check_node(given, at, 1)
    return dict(given)


def _check_node(schema: Mapping[str, JSON], at: str, depth: int) -> None:
    if depth > MAX_SCHEMA_DEPTH:
        raise Refusal(at, f"is nested more than {MAX_SCHEMA_DEPTH} levels deep")
    if "$ref" in schema:
        raise Refusal(f"{at}.$ref", "references are not supported; write the schema in place")
    if unknown := [name for name in schema if name not in _KEYWORDS and not name.startswith("x-")]:
        raise Refusal(f"{at}.{unknown[0]}", "is not a supported keyword")
    names = schema.get("type")
    listed: list[JSON] = names if is_array(names) else [] if names is None else [names]
    for name in listed:
        if name not in _TYPES:
            raise Refusal(f"{at}.type", f"{name!r} is not a type", _TYPES)
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        raise Refusal(f"{at}.properties", "must be an object")
    for name, each in cast("Mapping[str, JSON]", properties).items():
        if not name or len(name) > 64:
            raise Refusal(f"{at}.properties", f"the property name {name[:80]!r} must have 1 to 64 characters")
        _check_child(each, f"{at}.properties.{name}", depth + 1)
    required = schema.get("required", [])
    if not is_array(required):
        raise Refusal(f"{at}.required", "must be a list of property names")
    for name in required:
        if name not in properties:
            raise Refusal(f"{at}.required", f"{name!r} is not in properties")
    if "enum" in schema and not is_array(schema["enum"]):
        raise Refusal(f"{at}.enum", "must be a list")
    for keyword in ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"):
        if keyword in schema and (
            isinstance(schema[keyword], bool) or not isinstance(schema[keyword], int | float)
        ):
            raise Refusal(f"{at}.{keyword}", "must be a number")
    for keyword in ("items", "additionalProperties"):
        if keyword in schema and not isinstance(schema[keyword], bool):
            _check_child(schema[keyword], f"{at}.{keyword}", depth + 1)
    for keyword in ("oneOf", "anyOf", "allOf"):
        options = schema.get(keyword, [])
        if not is_array(options):
            raise Refusal(f"{at}.{keyword}", "must be a list of schemas")
        for index, option in enumerate(options):
            _check_child(option, f"{at}.{keyword}[{index}]", depth + 1)


def _check_child(schema: JSON, at: str, depth: int) -> None:
    if not isinstance(schema, Mapping):
        raise Refusal(at, "must be a schema")
    _check_node(cast("Mapping[str, JSON]", schema), at, depth)
