"""What the model reads of an exchange: one JSON object, alike for success and failure, within a bound; pure."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from actors.tools.http_api.call import Outcome
from actors.tools.http_api.fit import dumps, fit, size
from actors.tools.http_api.redact import redact
from actors.tools.tool import ToolResult

JSON = Any
MODEL_LIMIT = 16_000
"""Characters of a result that a model reads."""
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_TEXTUAL = re.compile(r"^(text/.*|.*[/+](json|xml|javascript|yaml|x-www-form-urlencoded|csv|graphql))$")
_JSON_TYPE = re.compile(r"^(application|text)/(.*\+)?json$")


def render(outcome: Outcome, secrets: tuple[str, ...] = (), limit: int = MODEL_LIMIT) -> ToolResult:
    """Return the result for the model.

    Args:
        outcome: What happened.
        secrets: Texts that must not appear, even if the server echoes them.
        limit: Characters; the result stays valid JSON when it is shortened.
    """
    if outcome.kind:
        return ToolResult(redact(dumps(_failure(outcome)), secrets), is_error=True)
    head: dict[str, JSON] = {"status": outcome.status}
    failed = outcome.status >= 400
    if failed:
        head["error"] = True
    if wait := outcome.headers.get("retry-after"):
        head["retry_after"] = wait[:64]
    if 300 <= outcome.status < 400 and (target := outcome.headers.get("location")):
        head["location"] = target[:2048]
    media = outcome.headers.get("content-type", "").partition(";")[0].strip().lower()
    if exact := _exact_json(outcome, media):
        text = dumps(head)[:-1] + ',"body":' + exact + "}"
        if len(text) <= limit:
            return ToolResult(redact(text, secrets), is_error=failed)
    text = _shortened(head, outcome, media, limit)
    return ToolResult(redact(text, secrets), is_error=failed)


def _failure(outcome: Outcome) -> dict[str, JSON]:
    failure: dict[str, JSON] = {"error": True, "kind": outcome.kind}
    if outcome.kind == "timeout":
        failure["timeout_seconds"] = outcome.seconds
    if outcome.field:
        failure["field"] = outcome.field
    if outcome.message:
        failure["message"] = outcome.message
    return failure


def _exact_json(outcome: Outcome, media: str) -> str:
    """Return a JSON body without needless space and otherwise as it came: key order, numbers and all; else empty."""
    if outcome.cut or not outcome.body.strip() or not _looks_like_json(outcome.body, media):
        return ""
    try:
        body = _as_utf8(outcome)
        msgspec.json.decode(body)
        return msgspec.json.format(body, indent=-1).decode()
    except (ValueError, RecursionError):
        return ""


def _looks_like_json(body: bytes, media: str) -> bool:
    return bool(_JSON_TYPE.match(media)) or (not media and body.lstrip()[:1] in (b"{", b"["))


def _as_utf8(outcome: Outcome) -> bytes:
    charset = _charset(outcome)
    body = outcome.body.removeprefix(b"\xef\xbb\xbf")
    if charset in {"", "utf-8", "utf8", "us-ascii"}:
        return body
    return decode_text(outcome).encode()


def _shortened(head: dict[str, JSON], outcome: Outcome, media: str, limit: int) -> str:
    body, notes = read_body(outcome)
    result = {**head, "body": body, **notes}
    if not _JSON_TYPE.match(media) and media:
        result["content_type"] = media
    if size(result) > limit:
        result["truncated"] = True
        room = limit - size({**result, "body": None}) + 4
        result["body"] = fit(body, room)
    return dumps(result)


def read_body(outcome: Outcome) -> tuple[JSON, dict[str, JSON]]:
    """Return a body as JSON, text, ``None`` for none or a description of binary data, and flags about it."""
    media = outcome.headers.get("content-type", "").partition(";")[0].strip().lower()
    notes: dict[str, JSON] = {"truncated": True} if outcome.cut else {}
    if not outcome.body.strip():
        return None, notes
    if _looks_like_json(outcome.body, media):
        try:
            if not outcome.cut:
                value: JSON = json.loads(_as_utf8(outcome))
                return value, notes
        except (ValueError, RecursionError):
            notes["parse_error"] = True
        return decode_text(outcome), notes
    if (media and not _TEXTUAL.match(media)) or (b"\0" in outcome.body[:1024] and not _charset(outcome)):
        return f"<binary {len(outcome.body)} bytes {media or 'application/octet-stream'}>", notes
    return decode_text(outcome), notes


def _charset(outcome: Outcome) -> str:
    found = _CHARSET.search(outcome.headers.get("content-type", ""))
    return found[1].lower() if found else ""


def decode_text(outcome: Outcome) -> str:
    """Return the body as text: by its charset, else as UTF-8; what does not fit becomes U+FFFD, NUL is dropped."""
    try:
        text = outcome.body.decode(_charset(outcome) or "utf-8", "replace")
    except LookupError:
        text = outcome.body.decode("utf-8", "replace")
    return text.removeprefix("\ufeff").replace("\0", "")
