"""What the runtime lends to every execution actor. Plain values and callables, so that a test can bring its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import trio

from actors.ids import new_uuid
from actors.journal.log import EventLog
from actors.kernel.killswitch import KillSwitch
from actors.squad.events import SquadEvent
from actors.squad.ledger import Caps
from actors.squad.lineup import Bench
from actors.squad.ports import SquadStore

T = TypeVar("T")


class Owners(Protocol):
    """Which processes on this journal are alive (see ``journal.owner``)."""

    @property
    def me(self) -> str:
        """This process's name, unique for ever."""
        ...

    def alive(self, owner: str) -> bool:
        """Whether the process called ``owner`` still runs."""
        ...


async def in_thread(act: Callable[[], T]) -> T:
    """Touch the disk in a thread, which is left to itself on cancellation."""
    return await trio.to_thread.run_sync(act, abandon_on_cancel=True)


class Disk(Protocol):
    """How files are touched."""

    async def __call__(self, act: Callable[[], T], /) -> T:
        """Return what ``act`` returns. Raises: what it raises."""
        ...


@dataclass(frozen=True, kw_only=True)
class ExecutionServices:
    """See the module.

    Attributes:
        log: The journal.
        owners: Tells a live owner of an execution from a dead one.
        clock: Seconds since the epoch.
        store: The squads' stored resources.
        bench: Builds the agents.
        publish: Shows an event to everybody who follows.
        switch: Returns a squad's kill switch.
        history_lock: Returns the lock on a workspace's history.
        caps: The ledgers'.
        data_dir: Where tools keep files of their own.
        env: Environment for tools.
        new_id: Makes ids of plans, tasks and directives.
        disk: Touches the workspaces' files.
    """

    log: EventLog
    owners: Owners
    clock: Callable[[], float]
    store: SquadStore
    bench: Bench
    publish: Callable[[SquadEvent], None]
    switch: Callable[[str], KillSwitch]
    history_lock: Callable[[str], trio.Lock]
    caps: Caps = field(default_factory=Caps)
    data_dir: Path
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    new_id: Callable[[], str] = new_uuid
    disk: Disk = in_thread
