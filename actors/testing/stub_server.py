"""A model server that says what you wrote, over HTTP: OpenAI's chat completions and Anthropic's messages.

In tests it is driven over memory streams (:meth:`StubServer.connect`); for load it runs as its own process::

    python -m actors.testing.stub_server --port 0 --chunks 20 --delay 0

and prints the address it listens on. It speaks just enough HTTP/1.1 for client libraries, on loopback.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httptools
import msgspec
import trio
import trio.testing

from actors.models.provider import Message, ModelError, ToolCall
from actors.testing.strict import check_history

_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


@dataclass(frozen=True)
class StubRequest:
    """One request as it came in. ``body`` is the decoded JSON, or ``None``."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True)
class Reply:
    """One response: ``pieces`` are sent one by one, ``delay`` seconds apart.

    ``cut`` closes the connection instead of ending the response; ``hang`` stays silent after the last piece.
    """

    pieces: Sequence[bytes] = ()
    status: int = 200
    content_type: str = "text/event-stream"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    delay: float = 0.0
    cut: bool = False
    hang: bool = False


Handler = Callable[[StubRequest], Reply]


def raw(data: bytes, *, size: int = 0, **options: Any) -> Reply:
    """Reply with these bytes, cut into pieces of ``size`` bytes (0: one piece)."""
    step = size or max(len(data), 1)
    return Reply([data[start : start + step] for start in range(0, len(data), step)], **options)


def json_reply(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """Reply with a JSON document."""
    return Reply([msgspec.json.encode(body)], status, "application/json", headers or {})


def sse(*documents: object, done: bool = True) -> Reply:
    """Reply with one ``data:`` event per JSON document and, with ``done``, the closing ``[DONE]``."""
    pieces = [b"data: " + msgspec.json.encode(document) + b"\n\n" for document in documents]
    return Reply([*pieces, b"data: [DONE]\n\n"] if done else pieces)


def _openai_chunk(delta: Mapping[str, Any] | None, finish: str | None = None) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    head: dict[str, Any] = {
        "id": "cmpl-stub",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "stub",
    }
    if delta is None:
        head["usage"] = {"prompt_tokens": 21, "completion_tokens": 34, "total_tokens": 55}
    return b"data: " + msgspec.json.encode({**head, "choices": choices}) + b"\n\n"


def openai_text(text: str, chunks: int = 1, delay: float = 0.0) -> Reply:
    """Stream ``text`` in ``chunks`` chat-completion chunks."""
    head = [_openai_chunk({"role": "assistant", "content": ""})]
    body = [_openai_chunk({"content": piece}) for piece in _cut(text, chunks)]
    tail = [_openai_chunk({}, "stop"), _openai_chunk(None), b"data: [DONE]\n\n"]
    return Reply(_framed(head, body, tail), delay=delay)


def openai_call(name: str, arguments: str, call_id: str = "call_stub") -> Reply:
    """Stream one tool call."""
    function = {"name": name, "arguments": arguments}
    call = {"index": 0, "id": call_id, "type": "function", "function": function}
    pieces = [_openai_chunk({"role": "assistant", "content": None, "tool_calls": [call]})]
    return Reply([*pieces, _openai_chunk({}, "tool_calls"), _openai_chunk(None), b"data: [DONE]\n\n"])


def openai_document(text: str) -> Reply:
    """Answer without streaming."""
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 21, "completion_tokens": 34, "total_tokens": 55}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    head = {"id": "cmpl-stub", "object": "chat.completion", "created": 1, "model": "stub"}
    return json_reply({**head, "choices": choices, "usage": usage})


def anthropic_event(kind: str, **fields: Any) -> bytes:
    """Return one event of the messages dialect."""
    return f"event: {kind}\n".encode() + b"data: " + msgspec.json.encode({"type": kind, **fields}) + b"\n\n"


def anthropic_text(text: str, chunks: int = 1, delay: float = 0.0) -> Reply:
    """Stream ``text`` in the messages dialect."""
    message: dict[str, Any] = {"id": "msg_stub", "role": "assistant", "content": [], "model": "stub"}
    usage = {"input_tokens": 12, "output_tokens": 1}
    head = [
        anthropic_event("message_start", message={**message, "usage": usage}),
        anthropic_event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    ]
    body = [
        anthropic_event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
        for piece in _cut(text, chunks)
    ]
    tail = [
        anthropic_event("content_block_stop", index=0),
        anthropic_event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 34}),
        anthropic_event("message_stop"),
    ]
    return Reply(_framed(head, body, tail), delay=delay)


def _cut(text: str, chunks: int) -> list[str]:
    count = min(chunks, len(text))
    return [text[len(text) * n // count : len(text) * (n + 1) // count] for n in range(count)]


def _framed(head: list[bytes], body: list[bytes], tail: list[bytes]) -> list[bytes]:
    """Join the framing events to the first and last piece, as one write brings them in practice."""
    if not body:
        return [b"".join(head + tail)]
    body[0] = b"".join(head) + body[0]
    body[-1] += b"".join(tail)
    return body


class StubServer:
    """Answers every request by ``script``: replies in order, or a function of the request.

    Attributes:
        requests: Every request received, in order.
        open: Responses being sent now.
    """

    def __init__(self, script: Iterable[Reply] | Handler) -> None:
        self.requests: list[StubRequest] = []
        self.connections = 0
        self.open = 0
        self._handler: Handler = script if callable(script) else self._in_order(iter(script))

    @staticmethod
    def _in_order(replies: Any) -> Handler:
        def handler(request: StubRequest) -> Reply:
            exhausted = json_reply(
                {"error": {"message": f"stub script has no reply for {request.path}"}}, 418
            )
            return next(replies, exhausted)

        return handler

    def connect(self, nursery: trio.Nursery) -> Callable[[str, int, bool], Any]:
        """Return a connector for the HTTP transport that reaches this server through memory streams."""

        async def connector(_host: str, _port: int, _tls: bool) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(self.serve_connection, theirs)
            return ours

        return connector

    async def serve(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve over TCP until cancelled; reports the base URL (without a path) once it listens."""
        listeners = await trio.open_tcp_listeners(port, host=host, backlog=4096)
        address = listeners[0].socket.getsockname()
        task_status.started(f"http://{address[0]}:{address[1]}")
        await trio.serve_listeners(self.serve_connection, listeners)

    async def serve_connection(self, stream: trio.abc.Stream) -> None:
        """Serve one connection until it closes."""
        self.connections += 1
        try:
            async with stream:
                collector = _Collector()
                parser = httptools.HttpRequestParser(collector)
                while data := await stream.receive_some(65536):
                    parser.feed_data(data)
                    if collector.complete:
                        request = collector.request(parser.get_method().decode())
                        self.requests.append(request)
                        if not await self._respond(stream, request):
                            return
                        collector = _Collector()
                        parser = httptools.HttpRequestParser(collector)
        except (trio.BrokenResourceError, trio.ClosedResourceError, httptools.HttpParserError):
            return

    async def _respond(self, stream: trio.abc.Stream, request: StubRequest) -> bool:
        reply = self._handler(request)
        self.open += 1
        try:
            head = [f"HTTP/1.1 {reply.status} {_REASONS.get(reply.status, 'Status')}"]
            head += [f"content-type: {reply.content_type}", "transfer-encoding: chunked"]
            head += [f"{name}: {value}" for name, value in reply.headers.items()]
            pending = "\r\n".join(head).encode() + b"\r\n\r\n"
            for position, piece in enumerate(reply.pieces):
                if position and reply.delay:
                    await stream.send_all(pending)
                    pending = b""
                    await trio.sleep(reply.delay)
                elif position:
                    await stream.send_all(pending)
                    pending = b""
                pending += b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b""
            if reply.cut or reply.hang:
                await stream.send_all(pending)
                await trio.sleep(math.inf if reply.hang else 0)
                return False
            await stream.send_all(pending + b"0\r\n\r\n")
        finally:
            self.open -= 1
        return True


class _Collector:
    """Callbacks of the request parser."""

    def __init__(self) -> None:
        self.path = b""
        self.headers: dict[str, str] = {}
        self.body: list[bytes] = []
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self.body.append(body)

    def on_message_complete(self) -> None:
        self.complete = True

    def request(self, method: str) -> StubRequest:
        data = b"".join(self.body)
        return StubRequest(
            method, self.path.decode("latin-1"), self.headers, msgspec.json.decode(data) if data else None
        )


def assistant(
    text: str,
    *,
    chunks: int = 1,
    delay: float = 0.0,
    tool: str = "",
    arguments: str = "{}",
    strict: bool = False,
) -> Handler:
    """Return a handler that answers every conversation in either dialect.

    Args:
        text: The answer.
        chunks: Into how many pieces it is cut.
        delay: Seconds between two pieces.
        tool: When set and offered, each user message first causes one call of this tool (OpenAI dialect).
        arguments: The call's arguments as JSON text.
        strict: Refuse invalid histories with 400 (OpenAI dialect).
    """
    openai, anthropic = openai_text(text, chunks, delay), anthropic_text(text, chunks, delay)
    document = openai_document(text)

    def handler(request: StubRequest) -> Reply:
        if request.path.endswith("/models"):
            return json_reply({"object": "list", "data": [{"id": "stub", "object": "model"}]})
        if request.path.endswith("/messages"):
            return anthropic
        if not request.path.endswith("/chat/completions"):
            return json_reply({"error": {"message": f"no such path: {request.path}"}}, 404)
        body = request.body
        if strict:
            try:
                check_history([_neutral(message) for message in body["messages"]])
            except ModelError as error:
                return json_reply({"error": {"message": str(error), "type": "invalid_request_error"}}, 400)
        offered = [spec["function"]["name"] for spec in body.get("tools", ())]
        if tool in offered and body["messages"][-1]["role"] == "user":
            return openai_call(tool, arguments, f"call_{len(body['messages'])}")
        return openai if body.get("stream") else document

    return handler


def _neutral(message: Mapping[str, Any]) -> Message:
    content = message.get("content") or ""
    calls = message.get("tool_calls") or ()
    return Message(
        role=message["role"],
        content=content if isinstance(content, str) else msgspec.json.encode(content).decode(),
        tool_calls=tuple(ToolCall(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in calls),
        tool_call_id=message.get("tool_call_id", ""),
    )


async def _main(server: StubServer, port: int) -> None:
    async with trio.open_nursery() as nursery:
        address = await nursery.start(partial(server.serve, port=port))
        print(address, flush=True)  # noqa: T201 the address is this program's output


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the server as a program."""
    parser = argparse.ArgumentParser(description="OpenAI- and Anthropic-compatible stub server on loopback")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--chunks", type=int, default=20, help="pieces of the answer")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds between two pieces")
    parser.add_argument("--text", default="", help="the answer; by default one word per chunk")
    parser.add_argument("--tool", default="", help="call this tool first, when it is offered")
    parser.add_argument("--arguments", default="{}", help="JSON arguments of that call")
    parser.add_argument("--strict", action="store_true", help="refuse invalid histories with 400")
    options = parser.parse_args(arguments)
    text = options.text or "word " * options.chunks
    handler = assistant(
        text,
        chunks=options.chunks,
        delay=options.delay,
        tool=options.tool,
        arguments=options.arguments,
        strict=options.strict,
    )
    server = StubServer(handler)
    server.requests = _Forgetful()
    try:
        trio.run(_main, server, options.port)
    except KeyboardInterrupt:
        return


class _Forgetful(list[StubRequest]):
    """A request list that stays empty, so that long load runs do not grow."""

    def append(self, request: StubRequest, /) -> None:
        """Drop ``request``."""


if __name__ == "__main__":
    main()
