"""The model inside the process: SmolLM2-135M on llama.cpp, for use without a key and without a network.

It answers text and, on demand, JSON of a schema. It cannot call tools (its template has none): tools of a request
are left out, and tool traffic in the history is shown to it as text. One inference runs at a time.
"""

from __future__ import annotations

import math
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import trio

from actors.ids import new_id
from actors.models.assembly import Assembler
from actors.models.failure import ErrorFrame, Origin, frame_failure, protocol_failure
from actors.models.openai_wire import ChunkReader
from actors.models.provider import Message, ModelError, ModelEvent, ModelRequest, ModelStream
from actors.models.text import clean
from actors.models.weights import Progress, ensure_weights

CONTEXT_LIMIT = 4096
DEFAULT_MAX_TOKENS = 512
_TEMPERATURE = 0.2
_TOP_P = 0.9
_REPEAT_PENALTY = 1.05
_SILENT = -1


class _Job:
    """One inference, shared by the stream that reads it and the thread that runs it."""

    def __init__(self, engine: Any, request: dict[str, Any]) -> None:
        self.engine = engine
        self.request = request
        self.stopped = False
        self.send, self.receive = trio.open_memory_channel[dict[str, Any] | Exception](math.inf)

    def take(self, chunk: dict[str, Any]) -> bool:
        """Hand a chunk to the stream, from the thread; return whether generation shall stop."""
        if not self.stopped:
            trio.from_thread.run_sync(self.put, chunk)
        return self.stopped

    def put(self, item: dict[str, Any] | Exception) -> None:
        """Hand an item to the stream unless nobody reads any more. Its number is bounded by ``max_tokens``."""
        if not self.stopped:
            self.send.send_nowait(item)

    def stop(self) -> None:
        """Nobody reads any more: the thread ends at its next token."""
        self.stopped = True
        self.receive.close()


class LocalModel:
    """A :class:`~actors.models.provider.Provider` in this process; weights and engine load at the first call.

    Args:
        directory: Where the weights are kept or fetched to.
        progress: Told about the download, if there is one.
    """

    def __init__(self, directory: Path, progress: Progress | None = None) -> None:
        self.name = "local"
        self._directory = directory
        self._progress = progress
        self._engine: Any = None
        self._loading = trio.Lock()
        self._one_at_a_time = trio.CapacityLimiter(1)

    @asynccontextmanager
    async def open_stream(self, request: ModelRequest) -> AsyncGenerator[ModelStream]:
        """Start a call; waits for its turn.

        Raises:
            ModelError: the weights are missing and cannot be fetched, the engine is not installed, or the prompt is
                too long; from the entry or from iteration.

        Cancellation: generation stops at the next token; a prompt being read is read to its end first, and the next
        call waits for that.
        """
        job = _Job(await self._load(), _engine_request(request))
        # A system task and not a nursery: the stream may be left at any point, and the thread must not be waited
        # for then. It catches everything and ends by itself.
        trio.lowlevel.spawn_system_task(self._run, job, name="local model inference")
        try:
            async with aclosing(_batches(job, Origin("local", request.model))) as stream:
                yield stream
        finally:
            job.stop()

    async def aclose(self) -> None:
        """Wait for the running inference, which nobody reads any more, and free the memory."""
        async with self._one_at_a_time:
            self._engine = None

    async def _load(self) -> Any:
        async with self._loading:
            if self._engine is None:
                path = await ensure_weights(self._directory, self._progress)
                self._engine = await trio.to_thread.run_sync(_open_engine, path)
            return self._engine

    async def _run(self, job: _Job) -> None:
        outcome: Exception = trio.EndOfChannel()
        try:
            await trio.to_thread.run_sync(_infer, job, limiter=self._one_at_a_time, abandon_on_cancel=True)
        except Exception as error:  # noqa: BLE001 an edge: whatever the engine raises belongs to the reader
            outcome = error
        job.put(outcome)


def _infer(job: _Job) -> None:
    if not job.stopped:
        job.engine.handle_chat_completions(job.request, job.take)


def _open_engine(path: Path) -> Any:
    try:
        xllamacpp: Any = import_module("xllamacpp")
    except ImportError as error:
        message = "the local model needs the package xllamacpp: install greenroom[local]"
        raise ModelError(message, kind="invalid_request", provider="local") from error
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx = CONTEXT_LIMIT
    parameters.n_parallel = 1
    parameters.verbosity = _SILENT
    # One core stays free for the event loop; threads that spin for a busy core are slower than fewer threads.
    threads = max((os.cpu_count() or 1) - 1, 1)
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    engine: Any = xllamacpp.Server(parameters)
    return engine


def _engine_request(request: ModelRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "messages": [_plain(message) for message in request.messages],
        "max_tokens": request.max_tokens or DEFAULT_MAX_TOKENS,
        "temperature": _TEMPERATURE if request.temperature is None else request.temperature,
        "top_p": _TOP_P if request.top_p is None else request.top_p,
        "repeat_penalty": _REPEAT_PENALTY,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.response_schema is not None:
        schema = {"name": request.response_schema.name, "schema": request.response_schema.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": msgspec.to_builtins(schema)}
    body.update(request.options)
    return body


def _plain(message: Message) -> dict[str, Any]:
    """Return role and text only: the model's template knows nothing else."""
    texts = [message.content] if message.content else []
    texts += [part.text or f"[{part.type} {part.name}]".replace(" ]", "]") for part in message.parts]
    texts += [f"[called {call.name} with {call.arguments}]" for call in message.tool_calls]
    text = clean("\n".join(texts))
    if message.role == "tool":
        return {"role": "user", "content": f"[result] {text}"}
    return {"role": message.role, "content": text}


async def _batches(job: _Job, origin: Origin) -> AsyncGenerator[Sequence[ModelEvent]]:
    assembler = Assembler(partial(new_id, "call"))
    reader = ChunkReader(assembler)
    async for item in job.receive:
        match item:
            case trio.EndOfChannel():
                break
            case Exception():
                raise protocol_failure(origin, f"inference failed: {item}") from item
            case chunk:
                try:
                    reader.read_document(msgspec.json.encode(chunk))
                except ErrorFrame as error:
                    raise frame_failure(origin, error.frame) from None
                if batch := assembler.take():
                    yield batch
    if reader.finish is None:
        raise protocol_failure(origin, "the engine stopped before the answer ended")
    completed = assembler.complete(
        reader.finish, reader.usage, model=origin.model, response_id=reader.response_id
    )
    yield [*assembler.take(), completed]
