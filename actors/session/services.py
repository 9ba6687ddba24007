"""What the runtime lends to every session actor. Plain values and callables, so that a test can bring its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import trio

from actors.agent.team import Team
from actors.config.commands import Text, expand_command
from actors.journal.log import EventLog
from actors.journal.tail import Tails
from actors.models.provider import Message, ModelInfo
from actors.session.approvals import Elsewhere
from actors.session.overlay import Overlay
from actors.session.recorder import Recorder


class Owners(Protocol):
    """Which processes on this journal are alive (see ``journal.owner``)."""

    @property
    def me(self) -> str:
        """This process's name, unique for ever."""
        ...

    def alive(self, owner: str) -> bool:
        """Whether the process called ``owner`` still runs."""
        ...


class Bound:
    """The sessions that ran in this process: what the contract calls having a runtime."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._ever = False
        self._changed = trio.Event()

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._ids

    def add(self, session_id: str) -> None:
        """Note a session; wakes those who wait."""
        if session_id not in self._ids:
            self._ids.add(session_id)
            self._ever = True
            self._changed.set()
            self._changed = trio.Event()

    def discard(self, session_id: str) -> None:
        """Forget a deleted session."""
        self._ids.discard(session_id)

    async def wait(self, session_id: str = "") -> None:
        """Wait until ``session_id`` has run here, or any session when it is empty."""
        while not (session_id in self._ids if session_id else self.ever):
            await self._changed.wait()

    @property
    def ever(self) -> bool:
        """Whether any session has run here since the start, deleted ones included."""
        return self._ever


async def plain_command(template: str, typed: str, directory: Path) -> str:
    """Return a command's prompt without running any shell: its place holders for output stay empty."""
    del directory
    await trio.lowlevel.checkpoint()
    return "".join(piece.text for piece in expand_command(template, typed) if isinstance(piece, Text))


@dataclass(frozen=True, kw_only=True)
class SessionServices:
    """See the module.

    Attributes:
        log: The journal.
        tails: Where followers of streams wait.
        owners: Tells a live owner of a run from a dead one.
        clock: Seconds since the epoch.
        dirty: Told when a recorder has events to store soon.
        open_team: Build the agents of a source for a session; raises NotFound, Invalid or Unavailable.
        check_model: Raise when a ``provider/model`` reference cannot be used.
        make_title: One model call that names a conversation; empty when it fails.
        bound: The sessions that ran in this process.
        equip: Give a team the toolsets attached to its source or to the session, before each run.
        catalogue: Models a session may switch to, for listings.
        data_dir: Where tools keep files of their own.
        default_dir: Working directory of sessions that were created without one.
        env: Environment for tools.
        expand: Turn a command's template and what was typed into a prompt; the directory is where its shell runs.
        forget: End what works beside the runs of a deleted session; given its id and its sub-sessions'.
        elsewhere: Open questions of background agents.
    """

    log: EventLog
    tails: Tails
    owners: Owners
    clock: Callable[[], float]
    dirty: Callable[[Recorder], None]
    open_team: Callable[[str, str], Awaitable[Team]]
    check_model: Callable[[str], None]
    make_title: Callable[[Team, str, str, Sequence[Message]], Awaitable[str]]
    equip: Callable[[Team, str, str], Awaitable[None]] | None = None
    catalogue: Sequence[ModelInfo] = ()
    data_dir: Path
    default_dir: Path
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    bound: Bound = field(default_factory=Bound)
    overlays: Mapping[str, Overlay] = field(default_factory=dict[str, Overlay])
    expand: Callable[[str, str, Path], Awaitable[str]] = plain_command
    forget: Callable[[Sequence[str]], None] = lambda _: None
    elsewhere: Elsewhere = field(default_factory=Elsewhere)
