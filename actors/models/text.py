"""Keeps text that vendors send, and text we send them, valid: no lone surrogate, no NUL.

Also decodes the JSON that strict decoders refuse for just these reasons.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

_BAD = re.compile("[\0\ud800-\udfff]")
_HIGH = re.compile("[\ud800-\udbff]$")


def clean(text: str) -> str:
    """Return ``text`` with surrogate pairs joined, lone surrogates as U+FFFD and NUL removed."""
    if text.isascii():
        return text.replace("\0", "") if "\0" in text else text
    if not _BAD.search(text):
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return joined.replace("\0", "")


def clean_json(value: Any) -> Any:
    """Return ``value`` with every text in it cleaned, keys included."""
    match value:
        case str():
            return clean(value)
        case dict():
            return {clean_json(key): clean_json(item) for key, item in value.items()}
        case list() | tuple():
            return [clean_json(item) for item in value]
        case _:
            return value


def encode_json(value: Any) -> bytes:
    """Encode a request body; text that no vendor accepts is cleaned first."""
    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(clean_json(msgspec.to_builtins(value)))
    if b"\\u0000" in data:
        return msgspec.json.encode(clean_json(msgspec.to_builtins(value)))
    return data


def decode_json_leniently(data: bytes) -> Any:
    """Decode JSON that may hold lone surrogates, raw control characters or invalid UTF-8.

    Raises:
        ValueError: it is not JSON even so.
    """
    return json.loads(data.decode("utf-8", "replace"), strict=False)


class TextJoiner:
    """Cleans a text that arrives in pieces: a surrogate pair cut in two becomes whole again."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return what can be shown now; the first half of a pair waits for the second."""
        if piece.isascii() and not self._held and "\0" not in piece:
            return piece
        text = self._held + piece
        self._held = ""
        if _HIGH.search(text):
            self._held = text[-1]
            text = text[:-1]
        return clean(text)

    def finish(self) -> str:
        """Return what a half pair at the end of the text becomes."""
        held, self._held = self._held, ""
        return clean(held)
