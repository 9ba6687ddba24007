"""What a provider's failure means: status codes, error bodies and frames become one :class:`ModelError`.

Pure apart from reading exceptions of the HTTP layer. Messages never hold a key.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
import msgspec

from actors.ids import wall_clock
from actors.models.provider import ModelError, ModelErrorKind
from actors.models.text import clean, is_array, is_object

RETRY_AFTER_CAP = 60.0
"""Seconds; a provider may ask for less but not for more."""
_MESSAGE_LIMIT = 2000
_KEY = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|ghp|gho|nvapi|csk|pplx|tgp|AIza)[-_]?[A-Za-z0-9_*.-]{12,}"
    r"|(?<=Bearer )[^\s\"',;]+"
)
_USERINFO = re.compile(r"(?<=://)[^/\s@]+@")
_CONTEXT = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|context window|context length|"
    r"available context size|context size (?:has been )?exceeded|prompt is too long|prompt too long|"
    r"input is too long|input too long|too many (?:input )?tokens|maximum model length|max_model_len|"
    r"reduce the length of the|exceed context limit|input token count .{0,40}exceeds",
    re.IGNORECASE,
)
_QUOTA = re.compile(r"insufficient_quota|billing|credit balance|exceeded your current quota", re.IGNORECASE)
_FRAME_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "api_error": 500,
    "server_error": 500,
    "internal_server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
    "service_unavailable": 503,
}


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds a provider asks to wait, within [0, ``RETRY_AFTER_CAP``], or ``None``.

    Args:
        headers: Response headers with lower-case names (or case-insensitive).
        now: Seconds since the epoch, for dates.
    """
    seconds = _number(headers.get("retry-after-ms", ""))
    if seconds is not None:
        seconds /= 1000
    else:
        text = headers.get("retry-after", "").strip()
        seconds = _number(text)
        if seconds is None:
            seconds = _date(text, now)
    return None if seconds is None else min(max(seconds, 0.0), RETRY_AFTER_CAP)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def _date(text: str, now: float) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp() - now


def redact(text: str, secrets: Collection[str] = ()) -> str:
    """Return ``text`` without the given secrets and without what looks like a key, cleaned and bounded."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "[redacted]")
    text = _USERINFO.sub("[redacted]@", _KEY.sub("[redacted]", clean(text)))
    return text if len(text) <= _MESSAGE_LIMIT else text[:_MESSAGE_LIMIT] + "..."


class ErrorFrame(Exception):
    """A stream that began with 200 holds an error object; ``frame`` is the vendor's JSON."""

    def __init__(self, frame: Any) -> None:
        super().__init__("error frame")
        self.frame = frame


class Origin(msgspec.Struct, frozen=True):
    """Who failed, for the error's message and fields; ``secrets`` are kept out of both."""

    provider: str
    model: str
    secrets: tuple[str, ...] = ()

    def error(
        self,
        message: str,
        kind: ModelErrorKind,
        *,
        status: int | None = None,
        retryable: bool = False,
        wait: float | None = None,
    ) -> ModelError:
        """Return the error, redacted."""
        return ModelError(
            f"{self.provider}/{self.model}: {redact(message, self.secrets)}",
            kind=kind,
            status=status,
            retryable=retryable,
            retry_after=wait,
            provider=self.provider,
            model=self.model,
        )


def protocol_failure(origin: Origin, message: str) -> ModelError:
    """Return the error for an answer that makes no sense; another attempt may do better."""
    return origin.error(message, "protocol", retryable=True)


def status_failure(
    origin: Origin, status: int, body: bytes, headers: Mapping[str, str], now: float
) -> ModelError:
    """Return the error for an HTTP error response."""
    message, code = _describe(body)
    kind, retryable = classify(status, f"{code} {message}")
    text = f"answered {status}" + (f": {message}" if message else "")
    return origin.error(text, kind, status=status, retryable=retryable, wait=retry_after(headers, now))


def frame_failure(origin: Origin, frame: Any) -> ModelError:
    """Return the error for an error object inside a stream that began with 200."""
    message, code = _describe_object(frame)
    status = _FRAME_STATUS.get(code) or (int(code) if code.isdigit() and 400 <= int(code) < 600 else 500)
    kind, retryable = classify(status, f"{code} {message}")
    return origin.error(
        f"failed in mid-answer: {message or code or 'unknown error'}",
        kind,
        status=status,
        retryable=retryable,
    )


def classify(status: int, text: str) -> tuple[ModelErrorKind, bool]:
    """Return what an HTTP status and the error's code and message mean, and whether it may pass by itself."""
    if status == 429:
        return "rate_limited", not _QUOTA.search(text)
    if status != 401 and _CONTEXT.search(text) and status not in {503, 529}:
        return "context_exceeded", False
    match status:
        case 401 | 402 | 403 | 407:
            return "authentication", False
        case 408:
            return "network", True
        case 413:
            return "request_too_large", False
        case 503 | 529:
            return "overloaded", True
        case _ if status >= 500:
            return "server", True
        case _:
            return "invalid_request", False


def _describe(body: bytes) -> tuple[str, str]:
    try:
        return _describe_object(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body[: 2 * _MESSAGE_LIMIT].decode("utf-8", "replace").strip(), ""


def _describe_object(value: Any) -> tuple[str, str]:
    """Return message and code of an error in any vendor's shape."""
    outer = value[0] if is_array(value) and value else value
    if not is_object(outer):
        return _as_text(outer), ""
    error = outer.get("error", outer)
    if not is_object(error):
        return _as_text(error), ""
    message = error.get("message") or error.get("detail") or error.get("msg") or outer.get("message")
    labels = [str(label) for label in (error.get("code"), error.get("type"), outer.get("code")) if label]
    known = [label for label in labels if label in _FRAME_STATUS]
    return _as_text(message or error), (known or labels or [""])[0]


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


@contextmanager
def translated(sdk: Any, origin: Origin) -> Generator[None]:
    """Turn what ``sdk`` and the HTTP layer raise into :class:`ModelError`.

    Raises:
        ModelError: instead of them.
    """
    try:
        yield
    except sdk.APIStatusError as error:
        response: httpx2.Response = error.response
        failure = status_failure(
            origin, response.status_code, response.content, response.headers, wall_clock()
        )
        raise failure from error
    except (sdk.APIConnectionError, httpx2.HTTPError) as error:
        cause = error.__cause__ if isinstance(error, sdk.APIConnectionError) and error.__cause__ else error
        raise origin.error(f"no answer: {cause}", "network", retryable=True) from error
