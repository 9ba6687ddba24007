"""``greenroom serve copilot``: a runtime for the official Copilot SDKs, over TCP or standard input and output."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from actors import open_runtime
from gateway.cli.enter import enter, raise_descriptor_limit, settings_for
from gateway.cli.listening import Access, without_credentials
from gateway.cli.models import models_for
from gateway.copilot.door import open_door
from gateway.copilot.methods import METHODS
from gateway.copilot.serve import announce_port, serve_stdio, serve_tcp
from gateway.listeners import Listener
from gateway.serve import stop_on_signals

CREDENTIALS = ("COPILOT_CONNECTION_TOKEN", "COPILOT_SDK_AUTH_TOKEN")


def serve_copilot(
    *,
    agents: str | None,
    agent: str | None,
    listen: str | None,
    host: str,
    port: int | None,
    stdio: bool,
    connection_token: str | None,
    no_auth: bool,
    session_db: str | None,
    data_dir: Path | None,
    working_dir: Path | None,
    default_model: str | None,
    fake: str | None,
    record: str | None,
) -> None:
    """Serve until a signal, until the client at standard input leaves, or until an SDK ends what it started.

    Raises:
        click.UsageError: options contradict each other.
        click.ClickException: an agent file, the database or the address cannot be used.
    """
    if stdio and (listen or port is not None):
        raise click.UsageError("--stdio and an address contradict each other")
    if listen and port is not None:
        raise click.UsageError("--listen and --port contradict each other")
    home = os.environ.get("COPILOT_HOME")
    base = settings_for(
        data_dir=data_dir or (Path(home) if home else None), session_db=session_db, working_dir=working_dir
    )
    settings = msgspec.structs.replace(
        base,
        default_model=default_model or base.default_model,
        environment=without_credentials(base.environment, *CREDENTIALS),
    )
    address = listen or f"{host}:{port or 0}"
    access = Access(address, connection_token, no_auth=no_auth or stdio, option="--connection-token")

    def announced(listener: Listener) -> None:
        access.announce(listener)
        announce_port(listener)

    async def main() -> None:
        models = models_for(settings, fake=fake, record=record)
        async with (
            stop_on_signals() as stop,
            open_runtime(settings, agents=agents, models=models) as runtime,
            open_door(
                runtime,
                METHODS,
                settings.data_dir / "session-state",
                token=access.token,
                source=agent or "",
                shutdown=lambda: stop.request("the client that started it asked"),
            ) as door,
        ):
            if stdio:
                await serve_stdio(door, stop)
            else:
                await serve_tcp(door, address, stop, announced)

    raise_descriptor_limit()
    enter(main)
