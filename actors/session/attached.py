"""A session with a person at it: what is said to it from outside starts a turn, as if it had been typed there."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from actors.kernel.ref import Ref
from actors.session import messages as m

KEYS = 256
"""How many idempotency keys are remembered."""


class Attached:
    """How to give a session follow-ups that need not wait for a run.

    Args:
        source: The agent source its runs use.
        agent: The source's agent to start with; empty for its default.
    """

    def __init__(self, source: str, agent: str = "") -> None:
        self._source = source
        self._agent = agent
        self._keys: OrderedDict[str, None] = OrderedDict()

    async def follow_up(
        self, ref: Ref[Any], messages: tuple[m.UserInput, ...], key: str = ""
    ) -> m.QueueAccepted:
        """Give each message a turn: at once when the session is idle.

        Args:
            ref: The session's actor.
            messages: What is said.
            key: Idempotency key; empty for none.

        Raises:
            Overloaded: the queue is full. The messages before that one were taken.
        """
        if key and key in self._keys:
            return m.QueueAccepted(streaming=True, duplicate=True)
        if key:  # before anything is awaited, so that two requests with one key cannot both go on
            self._keys[key] = None
        delivered = False
        try:
            for message in messages:
                await ref.ask(m.Send(source=self._source, agent=self._agent, message=message))
            delivered = True
        finally:
            if not delivered:
                self._keys.pop(key, None)  # the client may try again
        if len(self._keys) > KEYS:
            self._keys.popitem(last=False)
        return m.QueueAccepted(streaming=True)
