from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.models.openai_compatible import OpenAICompatible
from actors.models.openai_wire import Dialect, reasoning_effort, request_body
from actors.models.provider import (
    Completed,
    Message,
    ModelError,
    ModelEvent,
    ModelRequest,
    Part,
    ReasoningDelta,
    ResponseSchema,
    TextDelta,
    ToolCall,
    ToolSpec,
    Usage,
)
from actors.testing.stub_server import (
    Reply,
    StubRequest,
    StubServer,
    assistant,
    json_reply,
    openai_document,
    openai_text,
    raw,
    sse,
)

SAMPLES = Path(__file__).parent.parent / "data" / "llm"
USER = Message("user", "hi")
Opener = Callable[..., OpenAICompatible]


def request(*messages: Message, **fields: Any) -> ModelRequest:
    return ModelRequest(model="m", messages=messages or (USER,), **fields)


async def collect(provider: OpenAICompatible, asked: ModelRequest | None = None) -> list[ModelEvent]:
    events: list[ModelEvent] = []
    async with provider.open_stream(asked or request()) as stream:
        async for batch in stream:
            events.extend(batch)
    return events


def completed(events: list[ModelEvent]) -> Completed:
    assert isinstance(events[-1], Completed)
    assert not any(isinstance(event, Completed) for event in events[:-1])
    return events[-1]


async def sample(openai_at: Opener, name: str, size: int) -> Completed:
    return completed(await collect(openai_at(StubServer([raw((SAMPLES / name).read_bytes(), size=size)]))))


SIZES = pytest.mark.parametrize("size", [0, 1, 7, 61])


@SIZES
async def test_interleaved_fragments_without_ids(openai_at: Opener, size: int) -> None:
    done = await sample(openai_at, "interleaved_no_id.sse", size)
    assert done.message.tool_calls == (
        ToolCall("call_a", "get_tide", '{"port":"Tromso"}'),
        ToolCall("call_b", "get_wind", '{"height":80}'),
    )
    assert (done.finish, done.usage) == ("tool_calls", Usage(21, 34))


@SIZES
async def test_parallel_calls_that_share_one_index(openai_at: Opener, size: int) -> None:
    done = await sample(openai_at, "same_index.sse", size)
    assert [call.arguments for call in done.message.tool_calls] == [
        '{"who": "Ada"}',
        '{"who": "Grace"}',
        '{"who": "Edsger"}',
    ]


@SIZES
async def test_empty_missing_and_null_choices(openai_at: Opener, size: int) -> None:
    done = await sample(openai_at, "azure_empty_choices.sse", size)
    assert (done.message.content, done.finish, done.usage) == ("Hei der", "stop", Usage(21, 34))


@SIZES
async def test_length_cut_call_is_reported_as_cut_and_not_repaired(openai_at: Opener, size: int) -> None:
    done = await sample(openai_at, "length_cut_call.sse", size)
    assert done.finish == "length"
    assert done.message.tool_calls[0].arguments.endswith("2;3")


@SIZES
async def test_stop_with_calls_means_calls(openai_at: Opener, size: int) -> None:
    done = await sample(openai_at, "stop_with_calls.sse", size)
    assert (done.finish, done.message.content) == ("tool_calls", "I will look.")


@SIZES
async def test_unicode_line_separators_survive(openai_at: Opener, size: int) -> None:
    done = await sample(openai_at, "u2028_provider.sse", size)
    assert done.message.content == "first\u2028second\u2029third\x85fourth fifth"


TEXT: dict[str, Any] = {"choices": [{"index": 0, "delta": {"content": "partial"}}]}
STOP: dict[str, Any] = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
CALL = {"index": 0, "id": "c", "function": {"name": "t", "arguments": '{"a":'}}
CALLING = {"choices": [{"index": 0, "delta": {"tool_calls": [CALL]}}]}
OVERLOADED: dict[str, Any] = {"error": {"type": "overloaded_error", "message": "busy"}}


@pytest.mark.parametrize("before", [[], [TEXT], [CALLING], [TEXT, CALLING]])
@pytest.mark.parametrize(
    ("frame", "kind", "retryable"),
    [
        (OVERLOADED, "overloaded", True),
        ({"error": {"message": "slow down", "code": 429}}, "rate_limited", True),
        ({"error": "plain words"}, "server", True),
        (
            {"object": "error", "message": "bad", "type": "BadRequestError", "code": 400},
            "invalid_request",
            False,
        ),
        ({"choices": [{"index": 0, "delta": {}, "error": {"message": "x", "code": 502}}]}, "server", True),
        ({"choices": [{"index": 0, "finish_reason": "error"}]}, "server", True),
    ],
)
async def test_error_frame_fails_the_call_wherever_it_comes(
    openai_at: Opener, before: list[Any], frame: Any, kind: str, retryable: bool
) -> None:
    with pytest.raises(ModelError) as caught:
        await collect(openai_at(StubServer([sse(*before, frame)])))
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)


@pytest.mark.parametrize(
    "reply",
    [
        sse(TEXT, done=False),
        sse(TEXT, CALLING, done=False),
        sse(),
        Reply([b'data: {"choices": [{"ind']),
        raw(b"data: nonsense\n\n"),
        raw(b"data: [1]\n\n"),
        raw(b"<html>gateway</html>", content_type="text/html"),
        json_reply({"choices": []}),
    ],
)
async def test_answer_that_ends_early_or_makes_no_sense_is_a_protocol_error(
    openai_at: Opener, reply: Reply
) -> None:
    with pytest.raises(ModelError) as caught:
        await collect(openai_at(StubServer([reply])))
    assert (caught.value.kind, caught.value.retryable) == ("protocol", True)


async def test_connection_cut_in_mid_answer_is_a_network_error(openai_at: Opener) -> None:
    server = StubServer([Reply(sse(TEXT, done=False).pieces, cut=True)])
    with pytest.raises(ModelError) as caught:
        await collect(openai_at(server))
    assert (caught.value.kind, caught.value.retryable) == ("network", True)


async def test_missing_done_marker_is_fine_after_a_finish(openai_at: Opener) -> None:
    assert (
        completed(await collect(openai_at(StubServer([sse(TEXT, STOP, done=False)])))).message.content
        == "partial"
    )


async def test_text_after_the_done_marker_is_not_read(openai_at: Opener) -> None:
    pieces = [*sse(TEXT, STOP).pieces, *sse(TEXT).pieces]
    assert completed(await collect(openai_at(StubServer([Reply(pieces)])))).message.content == "partial"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking"])
async def test_reasoning_is_never_answer_text(openai_at: Opener, field: str) -> None:
    chunk = {"choices": [{"index": 0, "delta": {field: "hm", "reasoning": "hm"}}]}
    events = await collect(openai_at(StubServer([sse(chunk, TEXT, STOP)])))
    assert events[:2] == [ReasoningDelta("hm"), TextDelta("partial")]
    assert completed(events).message == Message("assistant", "partial", reasoning="hm")


async def test_content_in_parts_is_sorted_into_text_and_reasoning(openai_at: Opener) -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "yes"},
    ]
    events = await collect(openai_at(StubServer([sse({"choices": [{"delta": {"content": parts}}]}, STOP)])))
    assert completed(events).message == Message("assistant", "yes", reasoning="hm")


async def test_lone_surrogate_escapes_and_raw_control_characters_are_survived(openai_at: Opener) -> None:
    stream = (
        b'data: {"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00 \\udc00\\u0000"}}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{"content":"tab\there \xff"},"finish_reason":"stop"}]}\n\n'
        b"data: [DONE]\n\n"
    )
    done = completed(await collect(openai_at(StubServer([raw(stream)]))))
    assert done.message.content == "a\U0001f600 \ufffdtab\there \ufffd"


async def test_server_that_does_not_stream_is_understood(openai_at: Opener) -> None:
    done = completed(await collect(openai_at(StubServer([openai_document("whole")]))))
    assert (done.message.content, done.finish, done.usage) == ("whole", "stop", Usage(21, 34))


async def test_usage_counts_cached_and_reasoning_tokens(openai_at: Opener) -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 30,
        "prompt_tokens_details": {"cached_tokens": 60},
        "completion_tokens_details": {"reasoning_tokens": 20},
    }
    done = completed(await collect(openai_at(StubServer([sse(TEXT, STOP, {"choices": [], "usage": usage})]))))
    assert done.usage == Usage(40, 30, cached_input_tokens=60, reasoning_tokens=20)


async def test_refusal_is_text_with_its_own_finish(openai_at: Opener) -> None:
    chunk = {"choices": [{"index": 0, "delta": {"refusal": "No."}}]}
    done = completed(await collect(openai_at(StubServer([sse(chunk, STOP)]))))
    assert (done.message.content, done.finish) == ("No.", "refusal")


async def test_one_connection_serves_calls_one_after_the_other(openai_at: Opener) -> None:
    server = StubServer(assistant("hello", chunks=3))
    provider = openai_at(server)
    for _ in range(3):
        await collect(provider)
    assert server.connections == 1


async def test_leaving_early_closes_the_connection(
    openai_at: Opener, autojump_clock: trio.testing.MockClock
) -> None:
    server = StubServer([Reply(openai_text("abc", 3).pieces, delay=1), openai_text("next")])
    provider = openai_at(server)
    async with provider.open_stream(request()) as stream:
        async for _ in stream:
            break
    assert completed(await collect(provider)).message.content == "next"
    assert server.connections == 2


async def test_cancelled_call_is_gone_from_the_server(
    openai_at: Opener, autojump_clock: trio.testing.MockClock
) -> None:
    server = StubServer([Reply(openai_text("abc", 3).pieces, delay=10)])
    provider = openai_at(server)
    with trio.move_on_after(15) as scope:
        await collect(provider)
    assert scope.cancelled_caught
    await trio.sleep(20)
    assert server.open == 0


async def test_silence_is_a_network_error(openai_at: Opener, autojump_clock: trio.testing.MockClock) -> None:
    with pytest.raises(ModelError, match="silent") as caught:
        await collect(openai_at(StubServer([Reply(sse(TEXT, done=False).pieces, hang=True)])))
    assert caught.value.kind == "network"


async def test_key_is_sent_and_never_shown(openai_at: Opener) -> None:
    key = "secret-without-a-known-prefix"
    server = StubServer([json_reply({"error": {"message": f"bad key {key} or sk-abcdefghijklmnop"}}, 401)])
    with pytest.raises(ModelError) as caught:
        await collect(openai_at(server, key=key))
    assert server.requests[0].headers["authorization"] == f"Bearer {key}"
    assert (caught.value.kind, caught.value.status, caught.value.retryable) == ("authentication", 401, False)
    assert key not in caught.value.message
    assert "sk-abcdefg" not in caught.value.message


async def test_request_headers_reach_the_server(openai_at: Opener) -> None:
    server = StubServer(assistant("x"))
    await collect(openai_at(server), request(headers={"X-Cagent-Forward": "y"}))
    assert server.requests[0].headers["x-cagent-forward"] == "y"


def thoughtful() -> tuple[Message, ...]:
    call = Message("assistant", tool_calls=(ToolCall("c", "t", "{}"),), reasoning="because")
    return (USER, call, Message("tool", "r", tool_call_id="c"))


async def test_provider_that_requires_reasoning_gets_it_over_three_tool_turns(openai_at: Opener) -> None:
    def demanding(asked: StubRequest) -> Reply:
        for message in asked.body["messages"]:
            if message["role"] == "assistant" and "reasoning_content" not in message:
                text = "Missing `reasoning_content` field in the assistant message"
                return json_reply({"error": {"message": text}}, 400)
        return openai_text("ok")

    for dialect in (Dialect(), Dialect(reasoning="omit")):
        server = StubServer(demanding)
        provider = openai_at(server, dialect)
        history = thoughtful()
        for _ in range(3):
            assert completed(await collect(provider, request(*history))).message.content == "ok"
            history += thoughtful()[1:]
        repairs = 1 if dialect.reasoning == "omit" else 0
        assert len(server.requests) == 3 + repairs


async def test_provider_that_rejects_reasoning_is_asked_once_more_and_remembered(openai_at: Opener) -> None:
    def refusing(asked: StubRequest) -> Reply:
        if any("reasoning_content" in message for message in asked.body["messages"]):
            text = "Additional properties are not allowed ('reasoning_content' was unexpected)"
            return json_reply({"error": {"message": text}}, 400)
        return openai_text("ok")

    server = StubServer(refusing)
    provider = openai_at(server)
    for _ in range(3):
        assert completed(await collect(provider, request(*thoughtful()))).message.content == "ok"
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("fields", "message", "gone"),
    [
        (
            {"max_tokens": 5},
            "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
            "max_tokens",
        ),
        (
            {"temperature": 0.3},
            "Unsupported value: 'temperature' does not support 0.3 with this model.",
            "temperature",
        ),
        ({}, "Unrecognized request argument supplied: stream_options", "stream_options"),
    ],
)
async def test_unknown_setting_is_dropped_once_and_remembered(
    openai_at: Opener, fields: dict[str, Any], message: str, gone: str
) -> None:
    def picky(asked: StubRequest) -> Reply:
        return json_reply({"error": {"message": message}}, 400) if gone in asked.body else openai_text("ok")

    server = StubServer(picky)
    provider = openai_at(server)
    for _ in range(2):
        await collect(provider, request(**fields))
    assert len(server.requests) == 3
    if gone == "max_tokens":
        assert server.requests[-1].body["max_completion_tokens"] == 5


async def test_bad_request_that_names_nothing_we_can_change_is_not_repeated(openai_at: Opener) -> None:
    server = StubServer(lambda _: json_reply({"error": {"message": "temperature must be at most 2"}}, 400))
    with pytest.raises(ModelError):
        await collect(openai_at(server), request(temperature=3.0))
    assert len(server.requests) == 1


def test_request_carries_everything_the_dialect_knows() -> None:
    schema = ResponseSchema("answer", {"type": "object"}, "d")
    asked = request(
        Message("system", "s"),
        Message(
            "user",
            "look",
            parts=(Part("image", data="AA", mime_type="image/png"), Part("image", url="http://x/i")),
        ),
        Message("assistant", tool_calls=(ToolCall("c", "t", ""),)),
        Message("tool", "seen", parts=(Part("image", data="BB", mime_type="image/png"),), tool_call_id="c"),
        Message(
            "user",
            parts=(
                Part("document", name="a.txt", text="body"),
                Part("audio", data="CC", mime_type="audio/mpeg"),
            ),
        ),
        tools=(ToolSpec("t", "does"),),
        tool_choice="t",
        parallel_tool_calls=False,
        max_tokens=9,
        temperature=0.5,
        thinking="high",
        response_schema=schema,
        options={"seed": 4},
    )
    body = request_body(asked, Dialect())
    assert [message["role"] for message in body["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "user",
        "user",
    ]
    assert body["messages"][1]["content"][1]["image_url"] == {"url": "data:image/png;base64,AA"}
    assert body["messages"][2]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert body["messages"][4]["content"][0]["image_url"]["url"].endswith("BB")
    assert body["messages"][5]["content"][1]["input_audio"] == {"data": "CC", "format": "mp3"}
    assert body["tool_choice"] == {"type": "function", "function": {"name": "t"}}
    assert body["response_format"]["json_schema"]["name"] == "answer"
    assert {
        name: body[name] for name in ("max_tokens", "reasoning_effort", "seed", "parallel_tool_calls")
    } == {
        "max_tokens": 9,
        "reasoning_effort": "high",
        "seed": 4,
        "parallel_tool_calls": False,
    }


async def test_bad_text_in_the_history_is_cleaned_on_the_way_out(openai_at: Opener) -> None:
    server = StubServer(assistant("x", strict=True))
    await collect(openai_at(server), request(Message("user", "a\ud83db\0c")))
    assert server.requests[0].body["messages"][0]["content"] == "a\ufffdbc"


@pytest.mark.parametrize(
    ("thinking", "effort"),
    [
        (0, "none"),
        (-1, ""),
        (500, "minimal"),
        (8000, "medium"),
        (99999, "high"),
        ("low", "low"),
        ("adaptive/max", "max"),
        ("adaptive", ""),
    ],
)
def test_thinking_budget_becomes_an_effort(thinking: str | int, effort: str) -> None:
    assert reasoning_effort(thinking) == effort
