"""Frames of the wire: ``Content-Length: N``, a blank line, and N bytes of JSON. Knows no meaning of any."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

MAX_HEADER = 8192
MAX_BODY = 64 << 20
"""Bytes of one message; attachments come inside."""
_END = b"\r\n\r\n"


class BadFrame(Exception):
    """The bytes are no frame; nothing after them can be understood."""


def frame(message: Any) -> bytes:
    """Return a message as the only form that every SDK reads: one header line, then the body."""
    body = msgspec.json.encode(message)
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class Frames:
    """Cuts what arrives into bodies, however it was split on the way."""

    def __init__(self, max_body: int = MAX_BODY) -> None:
        self._buffer = bytearray()
        self._max_body = max_body
        self._length: int | None = None

    def feed(self, data: bytes | bytearray) -> Iterator[bytes]:
        """Take bytes and yield every body that is complete. Raises: BadFrame."""
        self._buffer += data
        while True:
            if self._length is None:
                end = self._buffer.find(_END)
                if end < 0:
                    if len(self._buffer) > MAX_HEADER:
                        raise BadFrame("the header has no end")
                    return
                self._length = self._read_header(bytes(self._buffer[:end]))
                del self._buffer[: end + len(_END)]
            if len(self._buffer) < self._length:
                return
            body = bytes(self._buffer[: self._length])
            del self._buffer[: self._length]
            self._length = None
            yield body

    def _read_header(self, header: bytes) -> int:
        for line in header.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length":
                text = value.strip()
                if not text.isdigit() or len(text) > 12:
                    raise BadFrame("Content-Length is no number")
                if int(text) > self._max_body:
                    raise BadFrame(f"a message is larger than {self._max_body} bytes")
                return int(text)
        raise BadFrame("there is no Content-Length")
