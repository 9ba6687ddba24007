from __future__ import annotations

import msgspec
import pytest

from actors.models.failure import Origin, frame_failure, redact, retry_after, status_failure

NOW = 1_700_000_000.0
ORIGIN = Origin("openai", "gpt", ("topsecret",))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": " 2.5 "}, 2.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "99999999"}, 60.0),
        ({"retry-after": "inf"}, 60.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "abc"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:30 GMT"}, 10.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:30 -0000"}, 10.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2099 07:28:00 GMT"}, 60.0),
        ({"retry-after": "Xyz, 99 Foo 2015 07:28:00 GMT"}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
    ],
)
def test_retry_after_in_every_shape_is_within_bounds(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "invalid_request", False),
        (401, "authentication", False),
        (402, "authentication", False),
        (403, "authentication", False),
        (404, "invalid_request", False),
        (408, "network", True),
        (413, "request_too_large", False),
        (422, "invalid_request", False),
        (429, "rate_limited", True),
        (500, "server", True),
        (502, "server", True),
        (503, "overloaded", True),
        (529, "overloaded", True),
    ],
)
def test_status_says_what_kind_and_whether_it_may_pass(status: int, kind: str, retryable: bool) -> None:
    error = status_failure(ORIGIN, status, b"", {"retry-after": "1"}, NOW)
    assert (error.kind, error.status, error.retryable, error.retry_after) == (kind, status, retryable, 1.0)


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens",
        "prompt is too long: 250000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
        "request (6021 tokens) exceeds the available context size (4096 tokens), try increasing it",
        "the request exceeds the available context size. exceed_context_size_error",
        "The input (9000 tokens) is longer than the maximum model length of 8192",
        "Please reduce the length of the messages or completion.",
        "The input token count (1200000) exceeds the maximum number of tokens allowed",
    ],
)
@pytest.mark.parametrize("status", [400, 413, 500])
def test_vendors_words_for_a_full_context_are_recognised(text: str, status: int) -> None:
    body = msgspec.json.encode({"error": {"message": text}})
    error = status_failure(ORIGIN, status, body, {}, NOW)
    assert (error.kind, error.retryable) == ("context_exceeded", False)


def test_code_alone_tells_a_full_context() -> None:
    body = msgspec.json.encode({"error": {"message": "no", "code": "context_length_exceeded"}})
    assert status_failure(ORIGIN, 400, body, {}, NOW).kind == "context_exceeded"


def test_exhausted_quota_is_a_rate_limit_that_does_not_pass() -> None:
    body = msgspec.json.encode(
        {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    )
    error = status_failure(ORIGIN, 429, body, {}, NOW)
    assert (error.kind, error.retryable) == ("rate_limited", False)


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"why"}}',
        b'{"error":"why"}',
        b'{"message":"why"}',
        b'{"detail":"why"}',
        b'[{"error":{"message":"why"}}]',
        b"why",
        b'"why"',
    ],
)
def test_message_is_found_in_every_shape_of_body(body: bytes) -> None:
    assert status_failure(ORIGIN, 500, body, {}, NOW).message == "openai/gpt: answered 500: why"


def test_body_of_bytes_and_huge_body_make_a_bounded_message() -> None:
    error = status_failure(ORIGIN, 502, b"\xff\xfe<html>" + b"x" * 100_000, {}, NOW)
    assert len(error.message) < 2100
    error.message.encode()


def test_frame_with_an_unknown_type_is_a_server_error() -> None:
    error = frame_failure(ORIGIN, {"type": "error", "error": {"type": "odd", "message": "why"}})
    assert (error.kind, error.status, error.retryable) == ("server", 500, True)


@pytest.mark.parametrize(
    "text",
    [
        "key topsecret here",
        "sk-proj-abcdefghijklmnop",
        "Bearer abc.def",
        "https://user:pass@host/x",
        "gsk_abcdefghijklmnop",
    ],
)
def test_keys_never_appear(text: str) -> None:
    shown = redact(text, ("topsecret",))
    assert "[redacted]" in shown
    for secret in ("topsecret", "abcdef", "abc.def", "pass"):
        assert secret not in shown
