"""``greenroom sessions``: what is stored, on standard output."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import click
import msgspec

from actors import Runtime, open_runtime
from gateway.cli.display import printable, shortened
from gateway.cli.enter import enter, settings_for
from gateway.copilot.log import lines
from gateway.copilot.methods.history import stored_events
from gateway.dialects.docker_sessions import list_entry, session_object


@asynccontextmanager
async def opened(data_dir: Path | None, session_db: str | None) -> AsyncGenerator[Runtime]:
    """Open a runtime on an existing database.

    Raises:
        click.ClickException: there is none; looking does not create one.
    """
    settings = settings_for(data_dir=data_dir, session_db=session_db)
    if settings.database is None or not settings.database.exists():
        raise click.ClickException(f"no session database at {settings.database}")
    async with open_runtime(settings) as runtime:
        yield runtime


def list_sessions(*, data_dir: Path | None, session_db: str | None, as_json: bool) -> None:
    """Print a line for every session."""

    async def main() -> None:
        async with opened(data_dir, session_db) as runtime:
            for row in await runtime.list_sessions():
                if as_json:
                    print(msgspec.json.encode(list_entry(row)).decode())
                    continue
                created = datetime.fromtimestamp(row.created_at, UTC).strftime("%Y-%m-%d %H:%M")
                print(f"{row.id}  {created}  {row.num_messages:>4}  {shortened(row.title, 60) or '-'}")

    enter(main)


def show_session(*, session: str, data_dir: Path | None, session_db: str | None) -> None:
    """Print the conversation as text."""

    async def main() -> None:
        async with opened(data_dir, session_db) as runtime:
            view = await runtime.session(session).view()
        print(f"# {printable(view.title) or view.id}")
        for message in view.messages:
            if message.implicit:
                continue
            print(f"\n{message.agent or message.role}:")
            if message.content:
                print(printable(message.content))
            for call in message.tool_calls:
                print(f"> {call.name} {printable(call.arguments)}")
            if message.interrupted:
                print("(interrupted)")

    enter(main)


def export_session(*, session: str, events: bool, data_dir: Path | None, session_db: str | None) -> None:
    """Print the session in the API's form, or its events as ``events.jsonl`` has them."""

    async def main() -> None:
        async with opened(data_dir, session_db) as runtime:
            if events:
                stored = await stored_events(runtime, session, version("greenroom"))
                print(lines(stored).decode(), end="")
                return
            view = await runtime.session(session).view()
        print(msgspec.json.format(msgspec.json.encode(session_object(view))).decode())

    enter(main)


def delete_sessions(*, ids: tuple[str, ...], data_dir: Path | None, session_db: str | None) -> None:
    """Delete the sessions, in order; the first unknown one ends it."""

    async def main() -> None:
        async with opened(data_dir, session_db) as runtime:
            for session_id in ids:
                await runtime.require_session(session_id)
                await runtime.session(session_id).delete()
                print(f"deleted {session_id}")

    enter(main)
