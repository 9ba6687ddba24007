"""A run that goes on in this process, with what belongs to it while it does."""

from __future__ import annotations

import trio

from actors.kernel import Work
from actors.session.approvals import Desk
from actors.session.title import TitleJob


class ActiveRun:
    """A run of this incarnation: its work, the questions it asks and the title made beside it."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.work: Work | None = None
        self.desk = Desk()
        self.title = TitleJob()
        self.settled = trio.Event()

    def cancel(self, reason: str) -> None:
        """Cancel its work; nothing before it has begun."""
        if self.work is not None:
            self.work.cancel(reason)
