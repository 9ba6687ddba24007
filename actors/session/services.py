"""What the runtime lends to every session actor. Plain values and callables, so that a test can bring its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from actors.agent.team import Team
from actors.journal.log import EventLog
from actors.journal.tail import Tails
from actors.models.provider import Message
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


@dataclass(frozen=True, kw_only=True)
class SessionServices:
    """See the module.

    Attributes:
        log: The journal.
        tails: Where followers of streams wait.
        owners: Tells a live owner of a run from a dead one.
        clock: Seconds since the epoch.
        dirty: Told when a recorder has events to store soon.
        open_team: Build the agents of a source; raises NotFound, Invalid or Unavailable.
        check_model: Raise when a ``provider/model`` reference cannot be used.
        make_title: One model call that names a conversation; empty when it fails.
        bound: Ids of the sessions that ran in this process.
        data_dir: Where tools keep files of their own.
        default_dir: Working directory of sessions that were created without one.
        env: Environment for tools.
    """

    log: EventLog
    tails: Tails
    owners: Owners
    clock: Callable[[], float]
    dirty: Callable[[Recorder], None]
    open_team: Callable[[str], Team]
    check_model: Callable[[str], None]
    make_title: Callable[[Team, str, str, Sequence[Message]], Awaitable[str]]
    data_dir: Path
    default_dir: Path
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    bound: set[str] = field(default_factory=set[str])
