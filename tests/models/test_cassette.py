from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
import yaml

from actors.errors import Invalid
from actors.models.cassette import Player, Recorder
from actors.models.catalog import Models
from actors.models.provider import (
    Completed,
    Message,
    ModelError,
    ModelEvent,
    ModelRequest,
    Provider,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from actors.models.recording import cassette_path, normalised
from actors.testing.model import Answer, ScriptedModel, call, calls, fail, hang, reason, say
from actors.testing.stub_server import anthropic_text, openai_text

USER = Message("user", "hi")
NOWHERE = Path("/nonexistent")


def request(*messages: Message, **fields: Any) -> ModelRequest:
    return ModelRequest(model="gpt", messages=messages or (USER,), **fields)


async def collect(provider: Provider, asked: ModelRequest | None = None) -> list[ModelEvent]:
    events: list[ModelEvent] = []
    async with provider.open_stream(asked or request()) as stream:
        async for batch in stream:
            events.extend(batch)
    return events


def merged(events: list[ModelEvent]) -> list[ModelEvent]:
    """Drop the batching of tool-call pieces, which are joined per call."""
    return [event for event in events if not isinstance(event, ToolCallDelta)]


def record(path: Path, script: list[Answer | str | Exception], name: str = "scripted") -> Models:
    registry = Models({}, NOWHERE, cassette=Recorder(path))
    registry.register(name, ScriptedModel(script, name=name))
    return registry


def replay(path: Path, delay: float = 0.0) -> Models:
    registry = Models({}, NOWHERE, cassette=Player(path, delay))
    registry.register("scripted", ScriptedModel())  # never called
    return registry


async def test_conversation_replays_as_it_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    script = [
        reason("hm\u2028m", chunks=2, signature="sig")
        + say("I will", chunks=3)
        + calls([("look", {"q": "ä\n: |"}), call("find", {"n": 1}, chunks=4)]),
        say("Done: \ttab \U0001f600 'quotes' \"x\"\n\n  indented\n").ending(usage=Usage(5, 6, 7, 8, 9)),
        say("cut").ending("length"),
    ]
    recorded = record(path, list(script)).resolve("scripted/gpt").provider
    history: tuple[Message, ...] = (USER,)
    requests: list[ModelRequest] = []
    originals: list[list[ModelEvent]] = []
    for _ in script:
        requests.append(request(*history))
        events = await collect(recorded, requests[-1])
        originals.append(events)
        done = events[-1]
        assert isinstance(done, Completed)
        results = tuple(Message("tool", "r", tool_call_id=c.id) for c in done.message.tool_calls)
        history += (done.message, *results, *(() if results else (USER,)))
    player = replay(path).resolve("scripted/gpt").provider
    for asked, original in zip(requests, originals, strict=True):
        again = await collect(player, asked)
        assert merged(again) == merged(original)
        assert [e for e in again if isinstance(e, ToolCallDelta)] == [
            e for e in original if isinstance(e, ToolCallDelta)
        ]


async def test_recording_has_the_layout_of_go_vcr(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    await collect(record(path, [say("Hi")], "openai").resolve("openai/gpt").provider)
    document = yaml.safe_load(path.read_text())
    assert document["version"] == 2
    [interaction] = document["interactions"]
    asked = interaction["request"]
    assert (asked["method"], asked["url"]) == ("POST", "https://api.openai.com/v1/chat/completions")
    assert asked["host"] == "api.openai.com"
    assert json.loads(asked["body"])["messages"] == [{"role": "user", "content": "hi"}]
    answered = interaction["response"]
    assert answered["code"] == 200
    assert answered["body"].startswith("data: ")
    assert answered["body"].endswith("data: [DONE]\n\n")
    assert await trio.to_thread.run_sync(lambda: [file.name for file in tmp_path.iterdir()]) == ["c.yaml"]


def written(path: Path, *pairs: tuple[str, Any, bytes], code: int = 200) -> Path:
    interactions: list[dict[str, Any]] = [
        {
            "id": number,
            "request": {"url": url, "method": "POST", "body": json.dumps(body, indent=1)},
            "response": {"body": answer.decode(), "code": code, "headers": {}},
        }
        for number, (url, body, answer) in enumerate(pairs)
    ]
    path.write_text(yaml.safe_dump({"version": 2, "interactions": interactions}))
    return path


CHAT = "https://api.openai.com/v1/chat/completions"


def chat_body(**fields: Any) -> dict[str, Any]:
    head = {"stream_options": {"include_usage": True}, "stream": True, "model": "gpt"}
    return {**head, **fields, "messages": [{"content": "hi", "role": "user"}]}


async def test_match_is_on_parsed_json_and_ignores_settings(tmp_path: Path) -> None:
    answer = b"".join(openai_text("yes").pieces)
    body = chat_body(max_tokens=99, tool_choice="auto", reasoning={"effort": "high"})
    provider = replay(written(tmp_path / "c.yaml", (CHAT, body, answer))).resolve("openai/gpt").provider
    events = await collect(provider)
    assert TextDelta("yes") in events
    assert isinstance(events[-1], Completed)
    assert events[-1].usage == Usage(21, 34)


async def test_each_interaction_is_used_once_in_file_order(tmp_path: Path) -> None:
    answers = [(CHAT, chat_body(), b"".join(openai_text(text).pieces)) for text in ("one", "two")]
    provider = replay(written(tmp_path / "c.yaml", *answers)).resolve("openai/gpt").provider
    assert TextDelta("one") in await collect(provider)
    assert TextDelta("two") in await collect(provider)
    with pytest.raises(ModelError, match="no unused interaction") as caught:
        await collect(provider)
    assert (caught.value.status, caught.value.retryable) == (500, False)


async def test_other_url_or_other_text_does_not_match(tmp_path: Path) -> None:
    answer = b"".join(openai_text("x").pieces)
    path = written(tmp_path / "c.yaml", (CHAT.replace("openai", "other"), chat_body(), answer))
    with pytest.raises(ModelError):
        await collect(replay(path).resolve("openai/gpt").provider)
    path = written(tmp_path / "d.yaml", (CHAT, {**chat_body(), "model": "gpt-2"}, answer))
    with pytest.raises(ModelError):
        await collect(replay(path).resolve("openai/gpt").provider)


async def test_messages_dialect_is_replayed(tmp_path: Path) -> None:
    body = {
        "model": "claude",
        "max_tokens": 64000,
        "stream": True,
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}],
            }
        ],
    }
    answer = b"".join(anthropic_text("bonjour", 2).pieces)
    path = written(tmp_path / "c.yaml", ("https://api.anthropic.com/v1/messages?beta=true", body, answer))
    provider = replay(path).resolve("anthropic/claude").provider
    done = (await collect(provider, ModelRequest(model="claude", messages=(USER,))))[-1]
    assert isinstance(done, Completed)
    assert done.message.content == "bonjour"


async def test_recorded_refusal_is_refused_again(tmp_path: Path) -> None:
    path = written(tmp_path / "c.yaml", (CHAT, chat_body(), b'{"error":{"message":"slow down"}}'), code=429)
    with pytest.raises(ModelError, match="slow down") as caught:
        await collect(replay(path).resolve("openai/gpt").provider)
    assert caught.value.kind == "rate_limited"


async def test_failures_are_recorded_before_and_after_text(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    failure = ModelError("down", kind="overloaded", status=503, retryable=True)
    recorded = record(path, [failure, say("par") + fail(failure)]).resolve("scripted/gpt").provider
    for _ in range(2):
        with pytest.raises(ModelError):
            await collect(recorded)
    player = replay(path).resolve("scripted/gpt").provider
    for _ in range(2):
        with pytest.raises(ModelError, match="down") as caught:
            await collect(player)
        assert (caught.value.kind, caught.value.status) == ("overloaded", 503)


async def test_cancelled_call_is_recorded_as_far_as_it_came(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    path = tmp_path / "c.yaml"
    recorded = record(path, [say("half") + hang()]).resolve("scripted/gpt").provider
    with trio.move_on_after(1):
        await collect(recorded)
    seen: list[ModelEvent] = []
    async with replay(path).resolve("scripted/gpt").provider.open_stream(request()) as stream:
        async for batch in stream:
            seen.extend(batch)
            break
    assert seen == [TextDelta("half")]


async def test_paced_replay_sleeps_after_each_event(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    path = tmp_path / "c.yaml"
    await collect(record(path, [reason("r") + say("abc", chunks=3)]).resolve("scripted/gpt").provider)
    began = trio.current_time()
    events = await collect(replay(path, 0.5).resolve("scripted/gpt").provider)
    assert ReasoningDelta("r") in events
    assert trio.current_time() - began == pytest.approx(2.0, abs=0.01)


def test_normalisation_makes_runs_comparable() -> None:
    def body(ident: str, path: str, limit: int) -> str:
        text = f'Instructions from: {path}\nThe working directory is "{path}"'
        return json.dumps({"id": ident, "text": text, "max_tokens": limit, "max_output_tokens": limit})

    assert normalised(body("call_abc-1", "/a/b", 1)) == normalised(body("call_z9", "/c", 2))
    assert normalised(body("call_a", "/a", 1)) != normalised(body("id_a", "/a", 1))


@pytest.mark.parametrize("content", ["[", "version: 2\ninteractions: 7\n", "just text"])
def test_unreadable_cassette_is_invalid_and_names_the_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(content)
    with pytest.raises(Invalid, match=r"broken\.yaml"):
        Player(path)
    with pytest.raises(Invalid, match="absent"):
        Player(tmp_path / "absent.yaml")


def test_extension_is_added_once() -> None:
    assert cassette_path("a") == cassette_path("a.yaml") == Path("a.yaml")


def test_history_with_recorded_ids_matches_other_ids() -> None:
    assert normalised(b'{"a":"call_x"}') == normalised(b'{ "a" : "call_y" }')
