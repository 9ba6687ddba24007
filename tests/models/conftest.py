from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
import trio

from actors.models.anthropic import Anthropic
from actors.models.http import open_client
from actors.models.network import forbid_network
from actors.models.openai_compatible import OpenAICompatible
from actors.models.openai_wire import Dialect
from actors.testing.stub_server import StubServer

forbid_network()


@pytest.fixture
async def background() -> AsyncGenerator[trio.Nursery]:
    """A nursery for servers, cancelled when the test ends."""
    async with trio.open_nursery() as nursery:
        yield nursery
        nursery.cancel_scope.cancel()


@pytest.fixture
async def openai_at(background: trio.Nursery) -> Callable[..., OpenAICompatible]:
    """Returns a function that opens the provider on a stub server, over memory streams."""

    def opener(
        server: StubServer, dialect: Dialect | None = None, key: str = "sk-test-key-1234567890"
    ) -> Any:
        client = open_client({}, server.connect(background))
        return OpenAICompatible("stub", "http://stub/v1", key, client, dialect=dialect)

    return opener


@pytest.fixture
async def anthropic_at(background: trio.Nursery) -> Callable[..., Anthropic]:
    """Returns a function that opens the provider on a stub server, over memory streams."""

    def opener(server: StubServer) -> Any:
        return Anthropic("http://stub", "sk-ant-key-1234567890", open_client({}, server.connect(background)))

    return opener
