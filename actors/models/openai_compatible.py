"""Any server that speaks chat completions, called through the official ``openai`` SDK.

The SDK builds, authenticates and sends the request; the stream's bytes are decoded here, since one SDK object
per chunk would cost more than the rest of a turn. The SDK's own retries are off: ``fallback`` retries.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2
import openai

from actors.ids import new_id
from actors.models.assembly import Assembler
from actors.models.failure import Origin
from actors.models.openai_wire import ChunkReader, Dialect, repaired, request_body
from actors.models.provider import ModelError, ModelRequest, ModelStream
from actors.models.sdk_stream import open_batches, post

_REPAIRABLE = frozenset({400, 422})


class OpenAICompatible:
    """A :class:`~actors.models.provider.Provider` for one base URL and key.

    Args:
        name: The provider's name in references and errors.
        base_url: Up to and without ``/chat/completions``.
        key: The bearer key; empty for servers without one.
        http_client: The client that carries the calls; closed with the provider.
        dialect: What is known of the server from the start; per model it learns from answered 400s.
        headers: Sent with every call.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        key: str,
        http_client: httpx2.AsyncClient,
        *,
        dialect: Dialect | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.base_url = base_url
        self._secrets = (key,) if key else ()
        self._dialect = dialect or Dialect()
        self._learned: dict[str, Dialect] = {}
        self._client = openai.AsyncOpenAI(
            api_key=key or "none",
            base_url=base_url,
            max_retries=0,
            http_client=http_client,
            default_headers=dict(headers or {}),
        )

    @asynccontextmanager
    async def open_stream(self, request: ModelRequest) -> AsyncGenerator[ModelStream]:
        """Start a call.

        A 400 that names a field this server does not know (or misses) is answered once with a corrected
        request; the correction is kept for the model.

        Raises:
            ModelError: from the entry or from iteration.

        Cancellation: the connection is closed.
        """
        origin = Origin(self.name, request.model, self._secrets)
        response = await self._send_repaired(request, origin)
        reader = ChunkReader(Assembler(partial(new_id, "call")))
        async with open_batches(openai, response, reader, origin) as stream:
            yield stream

    async def aclose(self) -> None:
        """Close the shared client."""
        await self._client.close()

    async def _send_repaired(self, request: ModelRequest, origin: Origin) -> httpx2.Response:
        dialect = self._learned.get(request.model, self._dialect)
        body = request_body(request, dialect)
        try:
            return await self._post(body, request.headers, origin)
        except ModelError as error:
            better = repaired(dialect, body, error.message) if error.status in _REPAIRABLE else None
            if better is None:
                raise
        response = await self._post(request_body(request, better), request.headers, origin)
        self._learned[request.model] = better
        return response

    async def _post(
        self, body: Mapping[str, Any], headers: Mapping[str, str], origin: Origin
    ) -> httpx2.Response:
        return await post(openai, self._client, "/chat/completions", body, headers, origin)
