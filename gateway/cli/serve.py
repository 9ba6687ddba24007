"""``greenroom serve api``: a runtime and the HTTP API over it, until a signal ends both."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from actors import Runtime, open_runtime
from actors.errors import Unsupported
from actors.tools.egress import Reach
from gateway.cli.enter import enter, pull_seconds, raise_descriptor_limit, settings_for
from gateway.cli.listening import Access, without_credentials
from gateway.cli.models import models_for
from gateway.endpoint import Endpoint
from gateway.routes import TABLE
from gateway.serve import serve, stop_on_signals
from gateway.settings import Settings

LOCKED_OUT = """\
no stored access key has the scope admin, so nobody could use this server or issue keys for it:
start it with --master-key (or GREENROOM_MASTER_KEY), or with --auth-token"""


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
    allow_private_tools: bool,
    allow_tool_host: tuple[str, ...],
    fake: str | None,
    record: str | None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP.

    Raises:
        click.UsageError: options contradict each other.
        click.ClickException: an agent file, the database or the address cannot be used.
    """
    if no_auth and (auth_token or require_auth or master_key):
        given = "--auth-token" if auth_token else "--require-auth" if require_auth else "--master-key"
        raise click.UsageError(f"{given} and --no-auth contradict each other")
    base = settings_for(data_dir=data_dir, session_db=session_db, default_db=Path("session.db"))
    settings = msgspec.structs.replace(
        base,
        cancel_on_disconnect=on_disconnect == "cancel",
        environment=without_credentials(base.environment),
        pull_interval=pull_seconds(agents, pull_interval),
        allow_private_tools=allow_private_tools,
        reachable_hosts=allow_tool_host,
    )
    Reach(allow_tool_host)  # refuses what is no host before anything opens
    if session_workingdir_root is not None:
        settings = msgspec.structs.replace(settings, working_dir_root=session_workingdir_root)
    if default_model:
        settings = msgspec.structs.replace(settings, default_model=default_model)
    access = Access(listen, auth_token, no_auth=no_auth, guarded=bool(require_auth or master_key))
    limits = Settings(
        auth_token=access.token,
        require_auth=require_auth,
        master_key=master_key or "",
        hidden_pages=hidden_pages,
        max_request_size=max_request_size,
    )

    async def main() -> None:
        models = models_for(settings, fake=fake, record=record)
        # The signals come first and last: one that arrives while the journal closes must not kill the process.
        async with stop_on_signals() as stop, open_runtime(settings, agents=agents, models=models) as runtime:
            if not await runtime.agents.listing():
                await runtime.agents.only("")  # says why there is none
            if require_auth and not (auth_token or master_key):
                await _require_admin(runtime)
            await serve(Endpoint(TABLE, runtime, limits), [listen], stop, announce=access.announce)

    raise_descriptor_limit()
    enter(main)


async def _require_admin(runtime: Runtime) -> None:
    """Raise Unsupported unless somebody can get in."""
    if not any("admin" in key.scopes for key in await runtime.keys.list()):
        raise Unsupported(LOCKED_OUT)
