"""``greenroom serve chat``: agents as models behind OpenAI's Chat Completions, until a signal ends it."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from actors import open_runtime
from actors.errors import NotFound
from gateway.chat import Chat, ChatOptions
from gateway.cli.enter import enter, pull_seconds, raise_descriptor_limit, settings_for
from gateway.cli.listening import Access, without_credentials
from gateway.cli.models import models_for
from gateway.cors import CorsEndpoint
from gateway.endpoint import Endpoint
from gateway.route import Table
from gateway.routes import chat, operations
from gateway.serve import serve, stop_on_signals
from gateway.settings import Settings


def serve_chat(
    *,
    agents: str,
    agent: str | None,
    listen: str,
    cors_origin: tuple[str, ...],
    api_key: str | None,
    api_key_env: str | None,
    no_auth: bool,
    yolo: bool,
    max_request_size: int,
    request_timeout: float,
    conversations_max: int,
    conversation_ttl: float,
    pull_interval: int,
    working_dir: Path | None,
    data_dir: Path | None,
    fake: str | None,
    record: str | None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP. Conversations are kept in memory.

    Raises:
        click.UsageError: options contradict each other, or the key's variable is empty.
        click.ClickException: an agent or the address cannot be used.
    """
    if api_key and api_key_env:
        raise click.UsageError("--api-key and --api-key-env contradict each other")
    if api_key_env:
        api_key = os.environ.get(api_key_env, "")
        if not api_key:
            raise click.UsageError(f"the variable {api_key_env} that --api-key-env names is empty")
    base = settings_for(data_dir=data_dir, session_db=None, working_dir=working_dir)
    settings = msgspec.structs.replace(
        base,
        database=None,
        environment=without_credentials(base.environment, *([api_key_env] if api_key_env else [])),
        pull_interval=pull_seconds(agents, pull_interval),
    )
    options = ChatOptions(
        agent=agent or "",
        autonomous=yolo,
        request_seconds=request_timeout,
        conversations_max=conversations_max,
        conversation_ttl=conversation_ttl,
    )

    async def main() -> None:
        access = Access(listen, api_key, no_auth=no_auth, option="--api-key")
        limits = Settings(auth_token=access.token, max_request_size=max_request_size)
        table = Table((*chat.rows(options), *operations.ROUTES))
        models = models_for(settings, fake=fake, record=record)
        async with stop_on_signals() as stop, open_runtime(settings, agents=agents, models=models) as runtime:
            if not await runtime.agents.listing():
                await runtime.agents.only("")  # says why there is none
            if agent and not await Chat(options).offered(runtime):
                raise NotFound(f"there is no agent {agent!r}")
            endpoint: Endpoint
            if cors_origin:
                endpoint = CorsEndpoint(table, runtime, limits, cors_origin)
            else:
                endpoint = Endpoint(table, runtime, limits)
            await serve(endpoint, [listen], stop, announce=access.announce)

    raise_descriptor_limit()
    enter(main)
