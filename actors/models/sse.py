"""Byte-exact, incremental decoder for the server-sent events of model providers.

Lines end at CR, LF or CRLF and at nothing else: U+2028 and its kin are text. Knows no provider.
"""

from __future__ import annotations

import re
from typing import NamedTuple

EVENT_LIMIT = 16 * 1024 * 1024
"""Bytes of one event; a stream beyond it is broken or hostile."""
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class ServerSentEvent(NamedTuple):
    """One event: its name (``b""`` when unnamed) and its data lines joined by LF."""

    event: bytes
    data: bytes


class EventTooLargeError(ValueError):
    """An event exceeded the decoder's limit."""


class SseDecoder:
    """Turns chunks of bytes, cut anywhere, into events. Comments, ids and retry hints are dropped."""

    def __init__(self, limit: int = EVENT_LIMIT) -> None:
        self._limit = limit
        self._rest: bytes = b""
        self._after_cr = False
        self._at_start = True
        self._event = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Return the events completed by ``data``.

        Raises:
            EventTooLargeError: a line or an event exceeds the limit.
        """
        if self._after_cr and data:
            self._after_cr = False
            if data.startswith(b"\n"):
                data = data[1:]
        if self._at_start:
            data = self._rest + data
            self._rest = b""
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._rest = data
                return []
            self._at_start = False
            data = data.removeprefix(_BOM)
        if b"\r" in data:
            lines = _LINE_END.split(data)
            self._after_cr = data.endswith(b"\r")
        else:
            lines = data.split(b"\n")
        lines[0] = self._rest + lines[0]
        self._rest = lines.pop()
        if self._size + len(self._rest) > self._limit:
            raise EventTooLargeError(f"a server-sent event exceeds {self._limit} bytes")
        return self._take(lines)

    def finish(self) -> list[ServerSentEvent]:
        """Return what the end of the stream completes: servers forget the last blank line."""
        lines = [self._rest, b""] if self._rest else [b""]
        self._rest = b""
        return self._take(lines)

    def _take(self, lines: list[bytes]) -> list[ServerSentEvent]:
        events: list[ServerSentEvent] = []
        for line in lines:
            if not line:
                if self._data:
                    data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                    events.append(ServerSentEvent(self._event, data))
                    self._data = []
                    self._size = 0
                self._event = b""
                continue
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                self._size += len(value)
                if self._size > self._limit:
                    raise EventTooLargeError(f"a server-sent event exceeds {self._limit} bytes")
                self._data.append(value)
            elif name == b"event":
                self._event = value
        return events
