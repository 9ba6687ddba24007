"""Reading a curl command line into a declared call; nothing is run. Pure."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import msgspec

from actors.errors import Invalid
from actors.tools.http_api.call import METHODS, ApiCall, is_array

JSON = Any
_TAKES_VALUE = {
    "-X": "method", "--request": "method", "-H": "header", "--header": "header", "-d": "data", "--data": "data",
    "--data-raw": "data", "--data-binary": "data", "--data-ascii": "data", "--json": "json", "-u": "user",
    "--user": "user", "--url": "url", "-A": "agent", "--user-agent": "agent", "-m": "seconds",
    "--max-time": "seconds", "--data-urlencode": "encoded", "-e": "referer", "--referer": "referer",
    "--oauth2-bearer": "bearer",
}  # fmt: skip
_IGNORED_VALUE = {"-o", "--output", "--connect-timeout", "--retry", "-w", "--write-out", "-b", "--cookie"}
_FLAGS = {
    "-s", "--silent", "-S", "--show-error", "-L", "--location", "-i", "--include", "-v", "--verbose", "-f", "--fail",
    "--compressed", "-g", "--globoff", "-k", "--insecure", "--http1.1", "--http2", "-N", "--no-buffer",
}  # fmt: skip


class _Parsed:
    def __init__(self) -> None:
        self.url = ""
        self.method = ""
        self.headers: dict[str, str] = {}
        self.data: list[str] = []
        self.user = ""
        self.bearer = ""
        self.seconds = 30.0
        self.get = False
        self.json = False


def call_from_curl(command: str) -> ApiCall:
    """Return the call a curl command makes; values of its body or query become optional arguments with defaults.

    Raises:
        Invalid: it is no curl command, has no URL, or uses an option that has no counterpart here.
    """
    try:
        words = shlex.split(command.replace("\\\r\n", " ").replace("\\\n", " "))
    except ValueError as error:
        raise Invalid(f"curl: the quotes are not closed ({error})", field="curl") from error
    if not words or words[0].rpartition("/")[2] not in {"curl", "curl.exe"}:
        raise Invalid("curl: the text must begin with 'curl'", field="curl")
    parsed = _parse(words[1:])
    if not parsed.url:
        raise Invalid("curl: there is no URL", field="curl")
    if "://" not in parsed.url:
        parsed.url = f"http://{parsed.url}"
    return _as_call(parsed)


def _parse(words: list[str]) -> _Parsed:
    parsed = _Parsed()
    rest = iter(words)
    for word in rest:
        name, glued = word, None
        if word.startswith("--") and "=" in word:
            name, _, glued = word.partition("=")
        elif re.match(r"^-[XHduAme].", word):
            name, glued = word[:2], word[2:].removeprefix("=")
        if name in {"-G", "--get"}:
            parsed.get = True
        elif name in {"-I", "--head", "-F", "--form", "-T", "--upload-file", "-x", "--proxy"}:
            raise Invalid(f"curl: the option {name} has no counterpart in an API tool", field="curl")
        elif name in _TAKES_VALUE or name in _IGNORED_VALUE:
            value = glued if glued is not None else next(rest, None)
            if value is None:
                raise Invalid(f"curl: the option {name} needs a value", field="curl")
            if name in _TAKES_VALUE:
                _take(parsed, _TAKES_VALUE[name], value)
        elif name in _FLAGS or re.fullmatch(r"-[sSLivfgkN]+", name):
            continue
        elif name.startswith("-"):
            raise Invalid(f"curl: the option {name} is unknown", field="curl")
        elif parsed.url:
            raise Invalid("curl: there is more than one URL", field="curl")
        else:
            parsed.url = word
    return parsed


def _take(parsed: _Parsed, what: str, value: str) -> None:
    match what:
        case "method":
            parsed.method = value.upper()
        case "header":
            name, _, text = value.partition(":")
            if text.strip():
                parsed.headers[name.strip()] = text.strip()
        case "data" | "encoded" | "json":
            if value.startswith("@"):
                raise Invalid("curl: files of this machine are not read", field="curl")
            parsed.data.append(value)
            parsed.json = parsed.json or what == "json"
        case "user":
            parsed.user = value
        case "bearer":
            parsed.bearer = value
        case "agent":
            parsed.headers["User-Agent"] = value
        case "referer":
            parsed.headers["Referer"] = value
        case "seconds":
            try:
                parsed.seconds = float(value)
            except ValueError as error:
                raise Invalid(f"curl: {value!r} is no number of seconds", field="curl") from error
        case _:
            parsed.url = value


def _as_call(parsed: _Parsed) -> ApiCall:
    method = parsed.method or ("POST" if parsed.data and not parsed.get else "GET")
    if method not in METHODS:
        raise Invalid(f"curl: the method {method} is not one of {', '.join(METHODS)}", field="curl")
    auth, credentials = _credentials(parsed)
    dropped = {
        "content-length",
        "host",
        "connection",
        "transfer-encoding",
        *({"authorization"} if auth else ()),
    }
    headers = {name: value for name, value in parsed.headers.items() if name.lower() not in dropped}
    host = urlsplit(parsed.url)
    words = re.findall(r"[A-Za-z0-9]+", f"{method.lower()} {host.path}") or [method.lower()]
    return ApiCall(
        name="_".join([*words, host.hostname or ""] if len(words) == 1 else words).replace(".", "_")[:64],
        url=parsed.url,
        method=method,
        headers=headers,
        auth_type="Basic" if auth == "Basic" else "Bearer" if auth else "",
        credentials=credentials,
        seconds=min(max(round(parsed.seconds), 1), 120),
        parameters={"type": "object", "properties": _properties(parsed, method)},
    )


def _credentials(parsed: _Parsed) -> tuple[str, str]:
    given = next((value for name, value in parsed.headers.items() if name.lower() == "authorization"), "")
    if parsed.bearer:
        return "Bearer", parsed.bearer
    if parsed.user:
        return "Basic", parsed.user if ":" in parsed.user else f"{parsed.user}:"
    kind, _, secret = given.partition(" ")
    if kind.lower() == "bearer":
        return "Bearer", secret.strip()
    if kind.lower() == "basic":
        try:
            return "Basic", base64.b64decode(secret, validate=True).decode()
        except ValueError:
            return "", ""
    return "", ""


def _properties(parsed: _Parsed, method: str) -> dict[str, JSON]:
    """Return a schema for each value of the body; what the URL's query holds stays in the URL."""
    text = "&".join(parsed.data)
    if not text:
        return {}
    try:
        value: JSON = msgspec.json.decode(text)
    except msgspec.DecodeError:
        if method != "GET" and not parsed.get and "json" in str(parsed.headers).lower():
            raise Invalid("curl: the body is not valid JSON", field="curl") from None
        value = dict(parse_qsl(text, keep_blank_values=True))
    if not isinstance(value, Mapping):
        raise Invalid("curl: the body must be a JSON object", field="curl")
    return {name: schema_of(item) for name, item in cast("Mapping[str, JSON]", value).items()}


def schema_of(value: JSON) -> dict[str, JSON]:
    """Return a schema that an example value satisfies, with the value as its default where it is a scalar."""
    match value:
        case bool():
            return {"type": "boolean", "default": value}
        case int():
            return {"type": "integer", "default": value}
        case float():
            return {"type": "number", "default": value}
        case str():
            return {"type": "string", "default": value}
        case _ if is_array(value):
            items = value
            return (
                {"type": "array", "items": _without_defaults(schema_of(items[0]))}
                if items
                else {"type": "array"}
            )
        case None:
            return {"nullable": True}
        case _:
            return {
                "type": "object",
                "properties": {
                    name: schema_of(item) for name, item in cast("Mapping[str, JSON]", value).items()
                },
            }


def _without_defaults(schema: dict[str, JSON]) -> dict[str, JSON]:
    out = {name: value for name, value in schema.items() if name != "default"}
    if "properties" in out:
        out["properties"] = {name: _without_defaults(each) for name, each in out["properties"].items()}
    return out
