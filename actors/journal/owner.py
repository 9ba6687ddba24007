"""Who is alive among the processes that share a journal: a lock file each, which the kernel frees when one dies.

No clock and no heartbeat: a process that was killed is known to be dead at once, one that is merely slow never is.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path


class LocalOwner:
    """The only process there is: for a journal in memory."""

    def __init__(self) -> None:
        self._me = secrets.token_hex(8)

    @property
    def me(self) -> str:
        """This process's name, unique for ever."""
        return self._me

    def alive(self, owner: str) -> bool:
        """Whether ``owner`` is this process."""
        return owner == self._me


class FileOwner:
    """One process among those on the same database; made by :func:`open_owner`."""

    def __init__(self, directory: Path, me: str) -> None:
        self._directory = directory
        self._me = me

    @property
    def me(self) -> str:
        """This process's name, unique for ever."""
        return self._me

    def alive(self, owner: str) -> bool:
        """Whether the process called ``owner`` still runs on this host."""
        if owner == self._me:
            return True
        if not owner or not owner.isalnum():
            return False
        try:
            descriptor = os.open(self._directory / owner, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        with suppress(FileNotFoundError):
            (self._directory / owner).unlink()
        return False


@contextmanager
def open_owner(database: Path) -> Generator[FileOwner]:
    """Announce this process beside ``database`` (in ``<database>.owners/``) until the block ends or it dies.

    Raises:
        OSError: The directory cannot be written.
    """
    directory = database.with_name(database.name + ".owners")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    me = secrets.token_hex(8)
    path = directory / me
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield FileOwner(directory, me)
    finally:
        with suppress(FileNotFoundError):
            path.unlink()
        os.close(descriptor)
