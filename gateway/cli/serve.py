"""``greenroom serve api``: a runtime and the HTTP API over it, until a signal ends both."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import click
import msgspec

from actors import Runtime, open_runtime
from gateway.cli.enter import enter, settings_for
from gateway.cli.models import models_for
from gateway.endpoint import Endpoint
from gateway.listeners import Listener
from gateway.routes import TABLE
from gateway.serve import announce, serve, stop_on_signals
from gateway.settings import Settings

LOCKED_OUT = """\
no stored access key has the scope admin, so nobody could use this server or issue keys for it:
start it with --master-key (or GREENROOM_MASTER_KEY), or with --auth-token"""
_CREDENTIALS = ("GREENROOM_AUTH_TOKEN", "GREENROOM_MASTER_KEY")
OPEN_WARNING = """\
WARNING: {address} can be reached from other machines, and no --auth-token is set.
WARNING: whoever reaches it can run every tool of every agent served here.
WARNING: listen on 127.0.0.1, set --auth-token, or say --no-auth if this is meant.
"""
PULL_REFUSED = "--pull-interval flag can only be used with OCI or URL references, not local files"


def serve_api(
    *,
    agents: str,
    listen: str,
    session_db: str | None,
    data_dir: Path | None,
    auth_token: str | None,
    no_auth: bool,
    require_auth: bool,
    master_key: str | None,
    hidden_pages: tuple[str, ...],
    max_request_size: int,
    session_workingdir_root: str | None,
    pull_interval: int,
    default_model: str | None,
    on_disconnect: str,
    fake: str | None,
    record: str | None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP.

    Raises:
        click.UsageError: options contradict each other.
        click.ClickException: an agent file, the database or the address cannot be used.
    """
    secured = bool(auth_token or require_auth or master_key)
    if secured and no_auth:
        given = "--auth-token" if auth_token else "--require-auth" if require_auth else "--master-key"
        raise click.UsageError(f"{given} and --no-auth contradict each other")
    if "://" in agents:
        raise click.UsageError(f"agent files are read from disk, not from {agents}")
    if pull_interval:
        raise click.UsageError(PULL_REFUSED)
    base = settings_for(data_dir=data_dir, session_db=session_db, default_db=Path("session.db"))
    settings = msgspec.structs.replace(
        base,
        cancel_on_disconnect=on_disconnect == "cancel",
        environment=_without_credentials(base.environment),
    )
    if session_workingdir_root is not None:
        settings = msgspec.structs.replace(settings, working_dir_root=session_workingdir_root)
    if default_model:
        settings = msgspec.structs.replace(settings, default_model=default_model)
    limits = Settings(
        auth_token=auth_token or "",
        require_auth=require_auth,
        master_key=master_key or "",
        hidden_pages=hidden_pages,
        max_request_size=max_request_size,
    )

    def say(listener: Listener) -> None:
        if listener.bind == "network" and not secured and not no_auth:
            sys.stderr.write(OPEN_WARNING.format(address=listener.address))
        announce(listener)

    async def main() -> None:
        models = models_for(settings, fake=fake, record=record)
        # The signals come first and last: one that arrives while the journal closes must not kill the process.
        async with stop_on_signals() as stop, open_runtime(settings, agents=agents, models=models) as runtime:
            if not await runtime.agents.listing():
                await runtime.agents.only("")  # says why there is none
            if require_auth and not (auth_token or master_key):
                await _require_admin(runtime)
            await serve(Endpoint(TABLE, runtime, limits), [listen], stop, announce=say)

    enter(main)


async def _require_admin(runtime: Runtime) -> None:
    """Raise click.UsageError unless somebody can get in."""
    if not any("admin" in key.scopes for key in await runtime.keys.list()):
        raise click.UsageError(LOCKED_OUT)


def _without_credentials(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment that agents and their tools get: without the keys to the server they run in."""
    return {name: value for name, value in environment.items() if name not in _CREDENTIALS}
