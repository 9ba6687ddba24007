"""A memory file as text: sections under level-2 headings, appending, replacing and searching. Pure.

Works on bytes, so that whatever else people wrote into the file stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from actors.errors import Invalid

NAME_LENGTH = 200
_HEADING = re.compile(rb"^##[ \t]+(\S[^\r\n]*?)[ \t]*\r?$", re.MULTILINE)
_LIKE_HEADING = re.compile(r"^(?=#{1,6}(\s|$))", re.MULTILINE)
BOM = b"\xef\xbb\xbf"


class Section(Struct, frozen=True):
    """A section's name and where its body is in the file."""

    name: str
    start: int
    end: int


class Line(Struct, frozen=True):
    """A line found, numbered from 1, with the lines around it."""

    section: str
    number: int
    text: str
    before: tuple[str, ...]
    after: tuple[str, ...]


def new_file(agent_name: str) -> bytes:
    """Return the file of an agent who remembers nothing yet."""
    return f"# {' '.join(agent_name.split())}\n".encode(errors="replace")


def check_section(name: str) -> str:
    """Return a section's name as it is written. Raises: Invalid, it is blank or more than a line."""
    plain = name.strip()
    if not plain:
        raise Invalid("section is blank")
    if len(plain) > NAME_LENGTH or any(char < " " or char == "\x7f" for char in plain):
        raise Invalid(f"section must be one line of at most {NAME_LENGTH} characters")
    return plain


def sections(data: bytes) -> list[Section]:
    """Return the sections in the order of the file."""
    found = list(_HEADING.finditer(data))
    ends = [*(match.start() for match in found[1:]), len(data)]
    return [
        Section(match[1].decode(errors="replace"), min(match.end() + 1, len(data)), end)
        for match, end in zip(found, ends, strict=False)
    ]


def write(data: bytes, section: str, content: str, *, overwrite: bool, date: str) -> bytes:
    """Return the file with a section's content added or, with ``overwrite``, replaced.

    Args:
        data: The file; other sections stay as they are, byte for byte.
        section: A checked name; made at the end of the file when there is none, upper and lower case being the same.
        content: The text; lines in it that look like headings are kept from being some.
        overwrite: Replace the section's body.
        date: The day, put before an addition.
    """
    newline = b"\r\n" if b"\r\n" in data else b"\n"
    text = _plain(content) if overwrite else _bullet(content, date)
    body = newline.join(line.encode(errors="replace") for line in text.split("\n")) + newline
    for found in sections(data):
        if found.name.casefold() == section.casefold():
            return _put(data, found, body, newline, overwrite=overwrite)
    ahead = data.rstrip() + newline * 2 if data.strip() else b""
    heading = f"## {section}".encode(errors="replace")
    return ahead + heading + newline * 2 + body


def _put(data: bytes, section: Section, body: bytes, newline: bytes, *, overwrite: bool) -> bytes:
    old, rest = data[section.start : section.end], data[section.end :]
    head = data[: section.start]
    if not head.endswith(b"\n"):
        head += newline
    kept = newline if overwrite or not old.strip() else old.rstrip() + newline
    return head + kept + body + (newline + rest if rest else b"")


def _bullet(content: str, date: str) -> str:
    first, *others = content.strip("\n").replace("\r\n", "\n").split("\n")
    return "\n".join([f"- [{date}] {first}", *(f"  {line}".rstrip() for line in others)])


def _plain(content: str) -> str:
    return _LIKE_HEADING.sub(r"\\", content.strip("\n").replace("\r\n", "\n"))


# --- searching --------------------------------------------------------------------------------------------------


def search(
    data: bytes, query: str, *, section: str = "", case: bool = False, context: int = 2
) -> Iterator[Line]:
    """Yield the lines that contain ``query``; a file without any is only passed over once.

    Args:
        data: The file.
        query: Not empty.
        section: Search only the section of that name.
        case: Tell upper from lower case.
        context: Lines to give before and after each.
    """
    if section:
        spans = [found for found in sections(data) if found.name.casefold() == section.casefold()]
    else:
        spans = [Section("", 0, len(data))]
    for span in spans:
        body = data[span.start : span.end] if section else data
        yield from _found(data, body, span, query, case=case, context=context)


def _found(
    data: bytes, body: bytes, span: Section, query: str, *, case: bool, context: int
) -> Iterator[Line]:
    places = _places(body, query, case=case)
    first = next(places, None)
    if first is None:
        return
    lines = [_text(line) for line in data.split(b"\n")]
    names = _names_by_line(data)
    number = data.count(b"\n", 0, span.start)
    at = 0
    name = ""
    last = -1
    for place in _chain(first, places):
        number += body.count(b"\n", at, place)
        at = place
        if number == last:
            continue
        last = number
        name = names(number)
        yield Line(
            name,
            number + 1,
            lines[number],
            tuple(lines[max(number - context, 0) : number]),
            tuple(lines[number + 1 : number + 1 + context]),
        )


def _chain(first: int, others: Iterator[int]) -> Iterator[int]:
    yield first
    yield from others


def _places(body: bytes, query: str, *, case: bool) -> Iterator[int]:
    """Yield where in ``body`` lines with the query are, rising; more than one place of a line may be given."""
    if case or query.isascii():
        wanted = query.encode(errors="replace")
        text = body if case else body.lower()
        if not case:
            wanted = wanted.lower()
        at = text.find(wanted)
        while at >= 0:
            yield at
            end = text.find(b"\n", at)
            at = text.find(wanted, end) if end >= 0 else -1
        return
    folded = query.casefold()
    text_lines = body.split(b"\n")
    if folded not in body.decode(errors="replace").casefold():
        return
    at = 0
    for line in text_lines:
        if folded in line.decode(errors="replace").casefold():
            yield at
        at += len(line) + 1


class _names_by_line:  # noqa: N801 - used as a function
    """Finds the section of a line; asked for rising numbers."""

    def __init__(self, data: bytes) -> None:
        self._found: list[tuple[int, str]] = []
        line = at = 0
        for match in _HEADING.finditer(data):
            line += data.count(b"\n", at, match.start())
            at = match.start()
            self._found.append((line, match[1].decode(errors="replace")))
        self._next = 0
        self._name = ""

    def __call__(self, number: int) -> str:
        while self._next < len(self._found) and self._found[self._next][0] <= number:
            self._name = self._found[self._next][1]
            self._next += 1
        return self._name


def _text(line: bytes) -> str:
    return line.removesuffix(b"\r").removeprefix(BOM).decode(errors="replace")
