"""Text that is safe to store and send, and bounded excerpts of text of any length, even endless."""

from __future__ import annotations

import codecs
import re
from collections import deque

OUTPUT_LIMIT = 64_000
"""Code points of a tool's output that are kept when nothing else is set."""

_UNSENDABLE = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def clean_text(text: str) -> str:
    """Replace NUL and lone surrogates, which JSON readers and model providers refuse."""
    return _UNSENDABLE.sub(_REPLACEMENT, text)


def decode_output(data: bytes) -> str:
    """Decode a program's output, putting a replacement character for what is not UTF-8."""
    return clean_text(data.decode("utf-8", "replace"))


def marker(omitted: int) -> str:
    """Return the text that stands for ``omitted`` code points."""
    return f"\n\n[... {omitted} characters omitted ...]\n\n"


def truncate_output(text: str, limit: int) -> str:
    """Return at most ``limit`` code points: the text itself, or its beginning and end around a marker.

    Cuts between code points, so an emoji outside the basic plane is never torn in two.
    """
    if len(text) <= limit:
        return text
    head, tail = _shares(limit, len(text))
    if head == 0:
        return text[: max(limit, 0)]
    return text[:head] + marker(len(text) - head - tail) + text[len(text) - tail :]


def _shares(limit: int, total: int) -> tuple[int, int]:
    """Return how many code points of head and tail fit beside the marker; zero when it does not fit."""
    room = limit - len(marker(total))
    if room < 2:
        return 0, 0
    head = room * 2 // 3
    return head, room - head


class Excerpt:
    """Collects output as it arrives and keeps a bounded excerpt: the beginning and the end.

    Args:
        limit: Code points of the excerpt; memory use is a small multiple of it however much arrives.
    """

    def __init__(self, limit: int = OUTPUT_LIMIT) -> None:
        self.limit = limit
        self.total = 0
        self._head: list[str] = []
        self._head_size = 0
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        """Take bytes, which may end inside a character; return the cleaned text that they completed."""
        return self._take(clean_text(self._decoder.decode(data)))

    def finish(self) -> str:
        """Take the end of the stream; return what an unfinished character at the end became."""
        return self._take(clean_text(self._decoder.decode(b"", final=True)))

    def text(self) -> str:
        """Return the excerpt, at most ``limit`` code points."""
        held = "".join(self._head) + "".join(self._tail)
        if self.total == len(held):
            return truncate_output(held, self.limit)
        head, tail = _shares(self.limit, self.total)
        if head == 0:
            return held[: max(self.limit, 0)]
        return held[:head] + marker(self.total - head - tail) + held[len(held) - tail :]

    def _take(self, text: str) -> str:
        self.total += len(text)
        rest = text
        if self._head_size < self.limit:
            part = text[: self.limit - self._head_size]
            self._head.append(part)
            self._head_size += len(part)
            rest = text[len(part) :]
        if rest:
            rest = rest[-self.limit :] if self.limit > 0 else ""
            self._tail.append(rest)
            self._tail_size += len(rest)
            while self._tail and self._tail_size - len(self._tail[0]) >= self.limit:
                self._tail_size -= len(self._tail.popleft())
            if len(self._tail) > 1024:
                self._tail = deque(["".join(self._tail)])
        return text
