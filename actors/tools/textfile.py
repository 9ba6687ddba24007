"""What a file's bytes mean as text, and the way back without touching a byte that was not edited."""

from __future__ import annotations

import codecs
import re

from msgspec import Struct

from actors.tools.tool import ToolError

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE = 4096
_CONTROL = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
_NEWLINE = re.compile(r"\r\n|\n")


class TextFile(Struct, frozen=True):
    """A file's text with what is needed to write it back. Line ends in ``text`` are as in the file."""

    text: str
    encoding: str = "utf-8"
    bom: bytes = b""

    def encode(self) -> bytes:
        """Return the bytes of the file.

        Raises:
            UnicodeEncodeError: the text has a character that the file's encoding lacks.
        """
        return self.bom + self.text.encode(self.encoding)

    def shown(self) -> str:
        """Return the text as readers see it, with plain line ends."""
        return self.text.replace("\r\n", "\n")


def decode(data: bytes, name: str) -> TextFile:
    """Find out the encoding: a byte-order mark, UTF-8, UTF-16 without mark, or else one byte a character.

    The last is Latin-1, which gives every byte back as it was, whatever encoding it really is.

    Raises:
        ToolError: the file is binary.
    """
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return TextFile(_strict(data[len(bom) :], encoding, name), encoding, bom)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and "\0" not in text:
        return TextFile(text)
    if encoding := _wide_encoding(data):
        return TextFile(_strict(data, encoding, name), encoding)
    if _CONTROL.search(data[:_SAMPLE]):
        raise ToolError(f"{name}: binary file")
    return TextFile(data.decode("latin-1"), "latin-1")


def _strict(data: bytes, encoding: str, name: str) -> str:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise ToolError(f"{name}: the file is neither text nor valid {encoding}") from error
    if "\0" in text:
        raise ToolError(f"{name}: binary file")
    return text


def _wide_encoding(data: bytes) -> str:
    """Return the UTF-16 byte order when most characters of the sample are ASCII in it; else nothing."""
    sample = data[:_SAMPLE]
    pairs = len(sample) // 2
    if pairs == 0 or len(data) % 2:
        return ""
    high_last, high_first = sample[1::2].count(0), sample[0::2].count(0)
    if high_last > pairs * 0.4 and high_first == 0:
        return "utf-16-le"
    if high_first > pairs * 0.4 and high_last == 0:
        return "utf-16-be"
    return ""


def replace_once(file: TextFile, old: str, new: str, name: str) -> TextFile:
    """Replace the only occurrence of ``old``; every other byte of the file stays as it is.

    Line ends in ``old`` match either style; those of ``new`` are written as in the text they replace, or, where it
    has none, as in the file.

    Raises:
        ToolError: ``old`` is empty, missing or ambiguous, or ``new`` cannot be written in the file's encoding.
    """
    if not old:
        raise ToolError(f"{name}: oldText is empty")
    lines = old.replace("\r\n", "\n").split("\n")
    pattern = re.compile(r"\r?\n".join(map(re.escape, lines)))
    found = list(_first_two(pattern, file.text))
    if not found:
        raise ToolError(f"{name}: old text not found")
    if len(found) > 1:
        raise ToolError(f"{name}: old text is found more than once; give more of the text around it")
    match = found[0]
    sample = _NEWLINE.search(match[0]) or _NEWLINE.search(file.text)
    plain = new.replace("\r\n", "\n")
    written = plain.replace("\n", "\r\n") if sample and sample[0] == "\r\n" else plain
    changed = TextFile(
        file.text[: match.start()] + written + file.text[match.end() :], file.encoding, file.bom
    )
    try:
        changed.encode()
    except UnicodeEncodeError as error:
        raise ToolError(
            f"{name}: the file is not UTF-8 and cannot hold {error.object[error.start]!r}; nothing was changed"
        ) from error
    return changed


def _first_two(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    found: list[re.Match[str]] = []
    at = 0
    while len(found) < 2 and (match := pattern.search(text, at)):
        found.append(match)
        at = match.start() + 1
    return found
