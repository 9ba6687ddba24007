from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.models.anthropic import Anthropic
from actors.models.anthropic_wire import Dialect, request_body
from actors.models.provider import (
    Completed,
    Message,
    ModelError,
    ModelEvent,
    ModelRequest,
    Part,
    ReasoningDelta,
    ResponseSchema,
    ToolCall,
    ToolSpec,
    Usage,
)
from actors.testing.stub_server import (
    Reply,
    StubRequest,
    StubServer,
    anthropic_event,
    anthropic_text,
    json_reply,
    raw,
)

SAMPLES = Path(__file__).parent.parent / "data" / "llm"
USER = Message("user", "hi")
Opener = Callable[..., Anthropic]


def request(*messages: Message, **fields: Any) -> ModelRequest:
    return ModelRequest(model="claude", messages=messages or (USER,), **fields)


async def collect(provider: Anthropic, asked: ModelRequest | None = None) -> list[ModelEvent]:
    events: list[ModelEvent] = []
    async with provider.open_stream(asked or request()) as stream:
        async for batch in stream:
            events.extend(batch)
    return events


def completed(events: list[ModelEvent]) -> Completed:
    assert isinstance(events[-1], Completed)
    return events[-1]


def start(index: int, **block: Any) -> bytes:
    return anthropic_event("content_block_start", index=index, content_block=block)


def delta(index: int, **fields: Any) -> bytes:
    return anthropic_event("content_block_delta", index=index, delta=fields)


HEAD = anthropic_event(
    "message_start",
    message={
        "id": "m1",
        "model": "claude-x",
        "usage": {"input_tokens": 9, "cache_read_input_tokens": 4, "output_tokens": 1},
    },
)


def tail(reason: str = "end_turn") -> bytes:
    return anthropic_event(
        "message_delta",
        delta={"stop_reason": reason},
        usage={"output_tokens": 7, "cache_creation_input_tokens": 2},
    ) + anthropic_event("message_stop")


@pytest.mark.parametrize("size", [0, 1, 13])
async def test_thinking_text_and_calls_are_assembled(anthropic_at: Opener, size: int) -> None:
    stream = b"".join(
        [
            HEAD,
            start(0, type="thinking", thinking=""),
            delta(0, type="thinking_delta", thinking="let me "),
            delta(0, type="thinking_delta", thinking="see"),
            delta(0, type="signature_delta", signature="sig"),
            anthropic_event("ping"),
            start(1, type="text", text=""),
            delta(1, type="text_delta", text="Looking."),
            start(2, type="tool_use", id="toolu_1", name="look", input={}),
            start(3, type="tool_use", id="toolu_2", name="find", input={}),
            delta(2, type="input_json_delta", partial_json='{"a":'),
            delta(3, type="input_json_delta", partial_json=""),
            delta(2, type="input_json_delta", partial_json="1}"),
            anthropic_event("something_new"),
            tail("tool_use"),
        ]
    )
    events = await collect(anthropic_at(StubServer([raw(stream, size=size)])))
    assert completed(events) == Completed(
        Message(
            "assistant",
            "Looking.",
            reasoning="let me see",
            reasoning_signature="sig",
            tool_calls=(ToolCall("toolu_1", "look", '{"a":1}'), ToolCall("toolu_2", "find", "{}")),
        ),
        "tool_calls",
        Usage(9, 7, cached_input_tokens=4, cached_write_tokens=2),
        model="claude-x",
        response_id="m1",
    )
    assert ReasoningDelta("let me ") in events


async def test_redacted_thinking_goes_back_as_it_came(anthropic_at: Opener) -> None:
    blocks = [
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "thinking", "thinking": "hm", "signature": "s"},
    ]
    stream = HEAD + start(0, **blocks[0]) + start(1, **blocks[1]) + start(2, type="text", text="Hi") + tail()
    done = completed(await collect(anthropic_at(StubServer([raw(stream)]))))
    assert done.message.reasoning == "hm"
    body = request_body(request(USER, done.message, USER), Dialect(), 100)
    assert body["messages"][1]["content"] == [*blocks, {"type": "text", "text": "Hi"}]


@pytest.mark.parametrize("size", [0, 1, 7])
async def test_error_event_in_mid_answer_fails_the_call(anthropic_at: Opener, size: int) -> None:
    server = StubServer([raw((SAMPLES / "error_midstream.sse").read_bytes(), size=size)])
    with pytest.raises(ModelError, match="busy") as caught:
        await collect(anthropic_at(server))
    assert (caught.value.kind, caught.value.retryable) == ("overloaded", True)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("refusal", "refusal"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
    ],
)
async def test_stop_reasons(anthropic_at: Opener, reason: str, finish: str) -> None:
    stream = HEAD + start(0, type="text", text="x") + tail(reason)
    assert completed(await collect(anthropic_at(StubServer([raw(stream)])))).finish == finish


async def test_stream_without_an_end_is_a_protocol_error(anthropic_at: Opener) -> None:
    with pytest.raises(ModelError) as caught:
        await collect(anthropic_at(StubServer([raw(HEAD + start(0, type="text", text="x"))])))
    assert caught.value.kind == "protocol"


async def test_delta_without_its_block_start_is_survived(anthropic_at: Opener) -> None:
    stream = HEAD + delta(0, type="thinking_delta", thinking="hm") + start(1, type="text", text="x") + tail()
    assert completed(await collect(anthropic_at(StubServer([raw(stream)])))).message.reasoning == "hm"


async def test_whole_document_is_understood(anthropic_at: Opener) -> None:
    document = {
        "id": "m",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "end_turn",
        "usage": {"output_tokens": 2},
    }
    done = completed(await collect(anthropic_at(StubServer([json_reply(document)]))))
    assert (done.message.content, done.usage.output_tokens) == ("hi", 2)


async def test_overloaded_status_carries_retry_after(anthropic_at: Opener) -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with pytest.raises(ModelError) as caught:
        await collect(anthropic_at(StubServer([json_reply(body, 529, {"retry-after": "7"})])))
    assert (caught.value.kind, caught.value.status, caught.value.retry_after) == ("overloaded", 529, 7.0)


async def test_key_is_sent_as_the_sdk_sends_it(anthropic_at: Opener) -> None:
    server = StubServer([anthropic_text("hello", chunks=2)])
    assert completed(await collect(anthropic_at(server))).message.content == "hello"
    assert "sk-ant-key-1234567890" in server.requests[0].headers["authorization"]
    assert server.requests[0].path == "/v1/messages"


async def test_model_that_only_thinks_adaptively_is_asked_once_more(anthropic_at: Opener) -> None:
    def newer(asked: StubRequest) -> Reply:
        if asked.body["thinking"]["type"] == "enabled":
            text = '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive".'
            return json_reply(
                {"type": "error", "error": {"type": "invalid_request_error", "message": text}}, 400
            )
        return anthropic_text("ok")

    server = StubServer(newer)
    provider = anthropic_at(server)
    for _ in range(2):
        await collect(provider, request(thinking="high"))
    assert len(server.requests) == 3
    assert server.requests[-1].body["output_config"] == {"effort": "high"}


async def test_model_without_structured_output_gets_the_schema_as_words(anthropic_at: Opener) -> None:
    def older(asked: StubRequest) -> Reply:
        if "output_config" in asked.body:
            text = "output_config: Extra inputs are not permitted"
            return json_reply(
                {"type": "error", "error": {"type": "invalid_request_error", "message": text}}, 400
            )
        return anthropic_text("{}")

    server = StubServer(older)
    await collect(anthropic_at(server), request(response_schema=ResponseSchema("x", {"type": "object"})))
    assert '{"type":"object"}' in server.requests[-1].body["system"][0]["text"]


def test_history_becomes_alternating_messages_with_results_first() -> None:
    body = request_body(
        request(
            Message("system", "one"),
            Message("assistant", "welcome"),
            Message("user", "a"),
            Message(
                "assistant", "", tool_calls=(ToolCall("c:1", "t", '{"x":1}'), ToolCall("c2", "t", "{broken"))
            ),
            Message("tool", "r1", tool_call_id="c:1"),
            Message("system", "two"),
            Message("user", "steer"),
            Message(
                "tool",
                "r2",
                tool_call_id="c2",
                is_error=True,
                parts=(Part("image", data="AA", mime_type="image/png"),),
            ),
            tools=(ToolSpec("t", "d"),),
            tool_choice="required",
            parallel_tool_calls=False,
        ),
        Dialect(),
        100,
    )
    assert [block["text"] for block in body["system"]] == ["one", "two"]
    assert [message["role"] for message in body["messages"]] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    uses = body["messages"][3]["content"]
    assert [use["input"] for use in uses] == [{"x": 1}, {"invalid_arguments": "{broken"}]
    answers = body["messages"][4]["content"]
    assert [block["type"] for block in answers] == ["tool_result", "tool_result", "text"]
    assert [answers[n]["tool_use_id"] for n in range(2)] == ["c_1", "c2"] == [use["id"] for use in uses]
    assert answers[1]["is_error"]
    assert answers[1]["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": "AA"}
    assert body["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    msgspec.json.encode(body)


def test_unsigned_reasoning_of_another_vendor_is_left_out() -> None:
    body = request_body(request(USER, Message("assistant", "a", reasoning="theirs"), USER), Dialect(), 100)
    assert body["messages"][1]["content"] == [{"type": "text", "text": "a"}]


def test_blank_text_is_never_sent() -> None:
    body = request_body(
        request(Message("system", " "), USER, Message("assistant", " \n"), USER), Dialect(), 100
    )
    assert "system" not in body
    assert [message["role"] for message in body["messages"]] == ["user"]


@pytest.mark.parametrize(
    ("thinking", "wire", "room"),
    [
        (None, None, 100),
        (0, None, 100),
        ("none", None, 100),
        (500, {"type": "enabled", "budget_tokens": 1024}, 5120),
        ("low", {"type": "enabled", "budget_tokens": 2048}, 6144),
        (-1, {"type": "adaptive"}, 100),
        ("adaptive/low", {"type": "adaptive"}, 100),
    ],
)
def test_thinking_budget_leaves_room_for_the_answer(thinking: Any, wire: Any, room: int) -> None:
    body = request_body(request(thinking=thinking, temperature=0.5), Dialect(), 100)
    assert body.get("thinking") == wire
    assert body["max_tokens"] == room
    assert ("temperature" in body) == (wire is None)
