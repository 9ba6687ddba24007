"""Rows of the OpenAI-compatible API: agents as models, and their answers as chat completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from actors.errors import Conflict, Invalid, NotFound
from actors.ids import new_uuid
from actors.runtime import Runtime
from gateway.chat import Chat, ChatOptions, Turn
from gateway.dialect import OPENAI
from gateway.dialects import openai_chat as wire
from gateway.http import JSON, Answer, Reply, Request, StreamReply
from gateway.route import Route, Scope, query, route
from gateway.sse import FAREWELL, HEADERS

TAG = "Chat completions"
CONVERSATION = "x-conversation-id"


class ChunkSource:
    """A turn as chunks: the role first, then the text, then how it ended."""

    def __init__(self, turn: Turn, head: wire.Head, *, wants_usage: bool) -> None:
        self._turn = turn
        self._head = head
        self._wants_usage = wants_usage
        self._begun = False
        self._ended = False

    async def next(self) -> bytes | None:
        """Return the next chunks; ``None`` after the last."""
        if not self._begun:
            self._begun = True
            return wire.chunk(self._head, {"role": "assistant", "content": ""})
        if self._ended:
            return None
        text = await self._turn.next()
        if text is not None:
            return wire.chunk(self._head, {"content": text})
        self._ended = True
        failure = self._turn.failure
        if failure is not None:
            return wire.event(OPENAI.render(failure.failure))
        last = wire.chunk(self._head, {}, self._turn.finish)
        if self._wants_usage:
            last += wire.usage_chunk(self._head, self._turn.usage)
        return last + wire.DONE


def rows(options: ChatOptions) -> tuple[Route, ...]:
    """Return the rows, which share one set of kept conversations."""
    chat = Chat(options)

    async def complete(request: Request, runtime: Runtime) -> Answer:
        body: wire.ChatRequest = request.body
        offered = await chat.find(runtime, body.model)
        body.split()  # refuses before anything is stored
        head = wire.Head(f"chatcmpl-{new_uuid()}", int(runtime.now()), offered.model)
        begun = await chat.begin(runtime, body, offered, request.headers.get(CONVERSATION, ""))
        if body.stream:

            @asynccontextmanager
            async def chunks() -> AsyncGenerator[ChunkSource]:
                async with chat.turn(runtime, begun) as turn:
                    yield ChunkSource(turn, head, wants_usage=body.wants_usage)

            return StreamReply(chunks, headers=HEADERS, farewell=FAREWELL)
        texts: list[str] = []
        async with chat.turn(runtime, begun) as turn:
            while (text := await turn.next()) is not None:
                texts.append(text)
        if turn.failure is not None:
            raise turn.failure
        return Reply(wire.completion(head, "".join(texts), turn.finish, turn.usage))

    async def listing(_: Request, runtime: Runtime) -> JSON:
        ids = [each.model for each in await chat.offered(runtime)]
        return wire.models(ids, int(runtime.started_at))

    async def one(request: Request, runtime: Runtime) -> JSON:
        found = await chat.find(runtime, request.path_params["model"])
        return wire.model(found.model, int(runtime.started_at))

    return (
        query("/v1/models", Scope.READ, listing, summary="Agents as models", dialect=OPENAI, tag=TAG),
        query(
            "/v1/models/{model...}",
            Scope.READ,
            one,
            summary="One agent as a model",
            dialect=OPENAI,
            errors=(NotFound,),
            tag=TAG,
        ),
        route(
            "POST",
            "/v1/chat/completions",
            Scope.WRITE,
            complete,
            summary="Have an agent answer a conversation, streamed or whole",
            body=wire.ChatRequest,
            dialect=OPENAI,
            errors=(Invalid, NotFound, Conflict),
            tag=TAG,
        ),
    )


ROUTES = rows(ChatOptions())
