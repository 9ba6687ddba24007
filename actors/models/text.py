"""Keeps text that vendors send, and text we send them, valid: no lone surrogate, no NUL.

Also decodes the JSON that strict decoders refuse for just these reasons.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeGuard, TypeVar

import msgspec

T = TypeVar("T")
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


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a decoded JSON value is an object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Whether a decoded JSON value is an array."""
    return isinstance(value, list)


def clean_json(value: Any) -> Any:
    """Return ``value`` with every text in it cleaned, keys included."""
    if isinstance(value, str):
        return clean(value)
    if is_object(value):
        return {clean(key): clean_json(item) for key, item in value.items()}
    if is_array(value):
        return [clean_json(item) for item in value]
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


def decode_event(decoder: msgspec.json.Decoder[T], kind: type[T], data: bytes) -> T:
    """Decode an event of a provider's stream, leniently where its text is at fault.

    Raises:
        ValueError: it is not JSON, or not of this kind.
    """
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise ValueError(f"unexpected shape: {error}") from error
    except msgspec.DecodeError:
        value = decode_json_leniently(data)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"unexpected shape: {error}") from error


def decode_or_text(data: bytes) -> Any:
    """Decode JSON, or return the text when it is none."""
    try:
        return decode_json_leniently(data)
    except ValueError:
        return data.decode("utf-8", "replace")


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
