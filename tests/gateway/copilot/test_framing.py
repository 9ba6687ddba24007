"""Frames, cut anywhere and wrong in every way."""

from __future__ import annotations

import pytest

from gateway.copilot.framing import BadFrame, Frames, frame

BODY = {"prompt": "héllo 🙂"}


def test_the_length_counts_bytes_not_characters() -> None:
    head, _, body = frame(BODY).partition(b"\r\n\r\n")
    assert head == b"Content-Length: %d" % len(body)
    assert len(body) > len(body.decode())


def test_frames_cut_at_every_byte_and_glued_together_are_the_same_frames() -> None:
    data = frame(BODY) + frame([1])
    whole = list(Frames().feed(data))
    assert len(whole) == 2
    for cut in range(len(data) + 1):
        frames = Frames()
        assert [*frames.feed(data[:cut]), *frames.feed(data[cut:])] == whole
    frames = Frames()
    assert [body for byte in data for body in frames.feed(bytes([byte]))] == whole


@pytest.mark.parametrize(
    "data",
    [
        b"Content-Length: x\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: 9999999999999\r\n\r\n",
        b"Content-Length: 999999999\r\n\r\n",
        b"Other: 1\r\n\r\n",
        b"a" * 9000,
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        list(Frames().feed(data))


def test_other_headers_beside_the_length_are_allowed() -> None:
    data = b"Content-Type: application/json\r\ncontent-length: 2\r\n\r\n{}"
    assert list(Frames().feed(data)) == [b"{}"]
