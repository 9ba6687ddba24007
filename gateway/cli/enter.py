"""From a command into trio and back: settings from options, expected failures as one line for the user."""

from __future__ import annotations

import resource
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar, cast

import click
import msgspec
import trio

from actors.config.remote import remote_source
from actors.errors import ActorsError
from actors.settings import Settings

R = TypeVar("R")
PULL_REFUSED = "--pull-interval flag can only be used with OCI or URL references, not local files"


def enter(main: Callable[[], Awaitable[R]]) -> R:
    """Run ``main`` under trio.

    Raises:
        click.ClickException: an expected failure: the product's own, or the operating system's.
        KeyboardInterrupt: the user interrupted, wherever trio noticed it.
        BrokenPipeError: the reader of the output went away.
    """
    try:
        return trio.run(main)
    except (ActorsError, OSError) as error:
        raise expected(error) from error
    except BaseExceptionGroup as group:
        leaves = list(_leaves(group))
        # Whatever else broke while everything was being taken down follows from the interrupt.
        if any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves):
            raise KeyboardInterrupt from group
        if all(isinstance(leaf, ActorsError | OSError) for leaf in leaves):
            raise expected(leaves[0]) from group
        raise


def expected(error: BaseException) -> Exception:
    """Return the failure as the command line raises it."""
    if isinstance(error, BrokenPipeError):
        return error
    if isinstance(error, ActorsError):
        return click.ClickException(error.message)
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        return click.ClickException(f"{error.strerror}{where}")
    return click.ClickException(str(error))


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(cast("BaseExceptionGroup[BaseException]", error))
        else:
            yield error


def pull_seconds(agents: str, minutes: int) -> float:
    """Return ``--pull-interval`` in seconds.

    Raises:
        click.UsageError: the agents come from disk.
    """
    if minutes and remote_source(agents) is None:
        raise click.UsageError(PULL_REFUSED)
    return minutes * 60.0


def settings_for(
    *,
    data_dir: Path | None,
    session_db: str | None,
    default_db: Path | None = None,
    working_dir: Path | None = None,
) -> Settings:
    """Return the environment's settings with what the options say.

    Args:
        data_dir: ``--data-dir``.
        session_db: ``--session-db``; ``~`` is expanded.
        default_db: The database when none is named; by default ``session.db`` in the data directory.
        working_dir: Where tools work; by default the current directory.
    """
    settings = Settings.from_environment()
    if data_dir is not None:
        settings = msgspec.structs.replace(settings, data_dir=data_dir.expanduser().absolute())
    database = Path(session_db).expanduser() if session_db else default_db or settings.data_dir / "session.db"
    return msgspec.structs.replace(
        settings, database=database.absolute(), working_dir=(working_dir or Path.cwd()).absolute()
    )


def raise_descriptor_limit() -> None:
    """Use as many descriptors as the machine allows: a server's usual 1,024 are fewer than its clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # some systems name a hard limit that they do not grant
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
