"""Anthropic's models, called through the official ``anthropic`` SDK.

As with ``openai_compatible``: the SDK sends, the stream is decoded here, retries are left to ``fallback``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import anthropic
import httpx2

from actors.ids import new_id
from actors.models.anthropic_wire import Dialect, MessageReader, repaired, request_body
from actors.models.assembly import Assembler
from actors.models.failure import Origin
from actors.models.provider import ModelError, ModelRequest, ModelStream
from actors.models.sdk_stream import open_batches, post

DEFAULT_OUTPUT_LIMIT = 8192
"""``max_tokens`` for models whose limit is unknown."""
_BAD_REQUEST = 400


class Anthropic:
    """A :class:`~actors.models.provider.Provider` for the messages API.

    Args:
        base_url: Up to and without ``/v1/messages``.
        key: The API key.
        http_client: The client that carries the calls; closed with the provider.
        headers: Sent with every call.
        output_limit: Returns the most tokens a model may write, 0 for unknown.
        name: The provider's name in references and errors.
    """

    def __init__(
        self,
        base_url: str,
        key: str,
        http_client: httpx2.AsyncClient,
        *,
        headers: Mapping[str, str] | None = None,
        output_limit: Callable[[str], int] = lambda _model: 0,
        name: str = "anthropic",
    ) -> None:
        self.name = name
        self.base_url = base_url
        self._secrets = (key,) if key else ()
        self._output_limit = output_limit
        self._learned: dict[str, Dialect] = {}
        self._client = anthropic.AsyncAnthropic(
            api_key=key or "none",
            base_url=base_url,
            max_retries=0,
            http_client=http_client,
            default_headers=dict(headers or {}),
        )

    @asynccontextmanager
    async def open_stream(self, request: ModelRequest) -> AsyncGenerator[ModelStream]:
        """Start a call; a 400 that names a feature the model lacks is answered once with a corrected request.

        Raises:
            ModelError: from the entry or from iteration.

        Cancellation: the connection is closed.
        """
        origin = Origin(self.name, request.model, self._secrets)
        response = await self._send_repaired(request, origin)
        reader = MessageReader(Assembler(partial(new_id, "call")))
        async with open_batches(anthropic, response, reader, origin) as stream:
            yield stream

    async def aclose(self) -> None:
        """Close the shared client."""
        await self._client.close()

    async def _send_repaired(self, request: ModelRequest, origin: Origin) -> httpx2.Response:
        dialect = self._learned.get(request.model, Dialect())
        try:
            return await self._send(request, dialect, origin)
        except ModelError as error:
            body = self._body(request, dialect)
            better = repaired(dialect, body, error.message) if error.status == _BAD_REQUEST else None
            if better is None:
                raise
        response = await self._send(request, better, origin)
        self._learned[request.model] = better
        return response

    async def _send(self, request: ModelRequest, dialect: Dialect, origin: Origin) -> httpx2.Response:
        body = self._body(request, dialect)
        return await post(anthropic, self._client, "/v1/messages", body, request.headers, origin)

    def _body(self, request: ModelRequest, dialect: Dialect) -> dict[str, object]:
        limit = self._output_limit(request.model) or DEFAULT_OUTPUT_LIMIT
        return request_body(request, dialect, limit)
