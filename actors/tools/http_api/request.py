"""From a declared call and its arguments to the request: where each value goes and how it is spelled; pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from actors.tools.http_api.arguments import prepare
from actors.tools.http_api.call import REQUEST_LIMIT, URL_LIMIT, ApiCall, BadArguments, BuiltRequest, is_array

JSON = Any
USER_AGENT = "greenroom/0.1"
PLACEHOLDER = re.compile(r"(?<![{$])\{([A-Za-z_][A-Za-z0-9_.-]*)\}(?!\})")
VARIABLE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_.]*)\s*\}\}")
_SECRET_NAME = re.compile(r"authorization|cookie|key|token|secret|passw|signature|credential", re.IGNORECASE)
_BREAKS = re.compile(r"[\r\n\0]")


def build_request(
    call: ApiCall, arguments: Mapping[str, JSON], variables: Mapping[str, JSON] | None = None
) -> BuiltRequest:
    """Return the request of a call.

    GET puts the arguments into the query, after the URL's own; the other methods send them as a JSON object.
    Arguments are data: ``{{name}}`` inside one is sent as it stands.

    Args:
        call: The endpoint.
        arguments: As the model wrote them.
        variables: Values of ``{{name}}``; one that is not set stays as it is written.

    Raises:
        BadArguments: an argument does not fit, or what it makes cannot be sent.
    """
    given = variables or {}
    values = prepare(call.parameters, arguments)
    url, used = _fill_path(_fill_variables(call.url.partition("#")[0], given, encode=True), call, values)
    headers = _headers(call, given)
    secrets = _secrets(call, headers)
    rest = {name: value for name, value in values.items() if name not in used}
    query: dict[str, JSON] = {}
    body: dict[str, JSON] = {}
    for name, value in rest.items():
        place = call.places.get(name)
        target = place.where if place else "query" if call.method == "GET" else "body"
        if target == "query":
            query[place.name if place else name] = value
        elif target == "body":
            body[place.name if place else name] = value
        elif value is not None:
            headers = _with_header(headers, place.name if place else name, _scalar(value), name)
    url = append_query(url, query)
    if len(url.encode()) > URL_LIMIT:
        raise BadArguments(f"the URL would be longer than {URL_LIMIT} bytes", kind="too_large")
    if call.method == "GET":
        return BuiltRequest(method="GET", url=url, headers=headers, secrets=secrets)
    data = encode_json(rest.get(call.whole_body) if call.whole_body else body)
    if len(data) > REQUEST_LIMIT:
        raise BadArguments(f"the request's body would be larger than {REQUEST_LIMIT} bytes", kind="too_large")
    headers = headers if "content-type" in headers else {**headers, "content-type": "application/json"}
    return BuiltRequest(method=call.method, url=url, headers=headers, body=data, secrets=secrets)


def encode_json(value: JSON) -> bytes:
    """Return JSON in UTF-8 that keeps every value's type.

    Raises:
        BadArguments: a value has no JSON form.
    """
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, UnicodeEncodeError) as error:
        raise BadArguments(f"the arguments cannot be written as JSON ({error})") from error


def append_query(url: str, query: Mapping[str, JSON]) -> str:
    """Return the URL with the values after the query it has, which is kept byte for byte.

    Lists repeat their key, objects are JSON text, ``None`` and empty lists are left out.
    """
    pairs = [f"{_percent(name)}={_percent(text)}" for name, value in query.items() for text in _texts(value)]
    if not pairs:
        return url
    joint = "?" if "?" not in url else "" if url.endswith(("?", "&")) else "&"
    return url + joint + "&".join(pairs)


def _texts(value: JSON) -> list[str]:
    if value is None:
        return []
    if is_array(value):
        return [_scalar(item) for item in value if item is not None]
    return [_scalar(value)]


def _scalar(value: JSON) -> str:
    return value if isinstance(value, str) else encode_json(value).decode()


def _percent(text: str) -> str:
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as error:
        raise BadArguments("an argument holds half a character (a lone surrogate)") from error


def _fill_path(url: str, call: ApiCall, values: Mapping[str, JSON]) -> tuple[str, set[str]]:
    """Return the URL with its ``{name}`` filled, and the names used."""
    properties: Mapping[str, JSON] = call.parameters.get("properties") or {}
    used: set[str] = set()

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        if name not in properties:
            return match[0]
        value = values.get(name)
        if value is None or isinstance(value, dict | list) or value == "":
            raise BadArguments(f"argument '{name}' is part of the address and must have a value", name)
        text = _scalar(value)
        if text in {".", ".."}:
            raise BadArguments(f"argument '{name}' may not be '{text}'", name)
        used.add(name)
        return _percent(text)

    return PLACEHOLDER.sub(fill, url), used


def fill_variables(text: str, variables: Mapping[str, JSON]) -> str:
    """Return the text with each ``{{name}}`` that is set replaced; objects and lists become JSON text."""
    return _fill_variables(text, variables, encode=False)


def _fill_variables(text: str, variables: Mapping[str, JSON], *, encode: bool) -> str:
    def fill(match: re.Match[str]) -> str:
        if variables.get(match[1]) is None:
            return match[0]
        value = _scalar(variables[match[1]])
        return _percent(value) if encode else value

    return VARIABLE.sub(fill, text)


def _headers(call: ApiCall, variables: Mapping[str, JSON]) -> dict[str, str]:
    headers = {"accept": "application/json, */*;q=0.5", "user-agent": USER_AGENT}
    for name, value in call.headers.items():
        headers = _with_header(headers, name, _fill_variables(value, variables, encode=False), name)
    if call.auth_type == "Bearer":
        headers["authorization"] = f"Bearer {call.credentials}"
    elif call.auth_type == "Basic":
        headers["authorization"] = f"Basic {base64.b64encode(call.credentials.encode()).decode()}"
    return headers


def _with_header(headers: dict[str, str], name: str, value: str, at: str) -> dict[str, str]:
    if _BREAKS.search(value):
        raise BadArguments(f"header '{name}' would contain a line break", at)
    # HTTP's own alphabet is Latin-1; other text goes as the bytes of its UTF-8 form.
    text = value.encode().decode("latin-1") if not value.isascii() else value
    return {**headers, name.lower(): text}


def _secrets(call: ApiCall, headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return what may not be shown: the credentials in both forms, and the values of headers that carry secrets."""
    found = {call.credentials} if call.auth_type else set[str]()
    if call.auth_type == "Basic":
        found.add(call.credentials.partition(":")[2])
    for name, value in headers.items():
        if _SECRET_NAME.search(name):
            found |= {value, value.rpartition(" ")[2]}
    for name, value in (pair.partition("=")[::2] for pair in call.url.partition("?")[2].split("&")):
        if _SECRET_NAME.search(name):
            found.add(value)
    return tuple(sorted((text for text in found if len(text) >= 4), key=len, reverse=True))
