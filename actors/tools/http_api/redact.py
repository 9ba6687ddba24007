"""Hiding secrets in text that is kept or shown: as they are, percent-encoded, and as JSON writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote, quote_plus

import msgspec

MASK = "***"


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return the text with every secret replaced by ``***``."""
    for secret in secrets:
        escaped = msgspec.json.encode(secret)[1:-1].decode()
        for form in sorted(
            {secret, escaped, quote(secret, safe=""), quote_plus(secret)}, key=len, reverse=True
        ):
            if form in text:
                text = text.replace(form, MASK)
    return text


def redact_headers(headers: Mapping[str, str], secrets: Iterable[str]) -> dict[str, str]:
    """Return headers that can be kept; cookies and authorisation are hidden as a whole."""
    hidden = {"authorization", "proxy-authorization", "cookie", "set-cookie"}
    known = tuple(secrets)
    return {name: MASK if name.lower() in hidden else redact(value, known) for name, value in headers.items()}
