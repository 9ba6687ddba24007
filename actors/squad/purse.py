"""What an execution may spend: reserved before each model call, settled after it, shared by all its workers.

The one counter is used for refusing and for reporting. A call begins only while what was used and reserved leaves
room for it, or when no other is under way; so workers in parallel overshoot a limit by one model call at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager

import trio

from actors.errors import Rejected
from actors.squad.state import total_spent
from actors.squad.values import BudgetConfig


class BudgetSpent(Rejected):
    """A limit is reached: the call must not be made."""

    code = "budget_exceeded"


class Account:
    """Whose money a call spends.

    Args:
        agent_id: Who makes the call.
        task_id: For which task; empty for planning and aggregating.
        waits: Wait for a higher limit when the execution's total is used up, instead of failing.
        used: What the task's attempt has used so far.
    """

    def __init__(self, agent_id: str, task_id: str = "", *, waits: bool = False, used: int = 0) -> None:
        self.agent_id = agent_id
        self.task_id = task_id
        self.waits = waits
        self.used = used
        self.clock: trio.CancelScope | None = None
        """The task's time limit; it stands still while the call waits for a higher limit."""

    @contextmanager
    def clock_stopped(self) -> Generator[None]:
        """Do not count the block's time."""
        clock, now = self.clock, trio.current_time()
        left = clock.deadline - now if clock is not None else 0.0
        if clock is not None:
            clock.deadline = math.inf
        try:
            yield
        finally:
            if clock is not None:
                clock.deadline = trio.current_time() + left


class Purse:
    """See the module. Synchronous but for :meth:`admit`.

    Args:
        limits: The limits now.
        exhausted: Told once, until :meth:`update`, that the total is used up and somebody waits.
    """

    def __init__(self, limits: BudgetConfig, exhausted: Callable[[str], None]) -> None:
        self.limits = limits
        self.tokens = 0
        self.cost = 0.0
        self._agents: dict[str, int] = {}
        self._reserved = 0
        self._calls = 0
        self._exhausted = exhausted
        self._told = False
        self._closed = ""
        self._changed = trio.Event()

    def update(self, limits: BudgetConfig) -> None:
        """Take other limits, and let those who wait look again."""
        self.limits = limits
        self._told = False
        self._wake()

    def close(self, reason: str) -> None:
        """Refuse every later call and all that wait."""
        self._closed = reason
        self._wake()

    def load(self, agent_id: str, tokens: int, cost: float) -> None:
        """Count what was used before this process, or outside of a reservation."""
        self.tokens += tokens
        self.cost += cost
        self._agents[agent_id] = self._agents.get(agent_id, 0) + tokens

    async def admit(self, account: Account, estimate: int) -> None:
        """Wait until a call of about ``estimate`` tokens may begin; :meth:`reserve` it before the next checkpoint.

        Raises:
            BudgetSpent: the task's or agent's limit is reached, or the total for an account that does not wait.
        """
        while True:
            if self._closed:
                raise BudgetSpent(self._closed)
            self._check_own(account)
            spent = total_spent(self.limits, self.tokens, self.cost)
            if not spent and (
                not self._calls or self.tokens + self._reserved + estimate <= self.limits.max_total_tokens
            ):
                return
            if spent:
                if not account.waits:
                    raise BudgetSpent(spent)
                if not self._told:
                    self._told = True
                    self._exhausted(spent)
            with account.clock_stopped():
                await self._changed.wait()

    @contextmanager
    def reserve(self, account: Account, estimate: int) -> Generator[Callable[[int, float], None]]:
        """Hold ``estimate`` tokens for the block, which settles with what the call took: tokens and USD."""
        self._reserved += estimate
        self._calls += 1

        def settle(tokens: int, cost: float) -> None:
            account.used += tokens
            self.load(account.agent_id, tokens, cost)

        try:
            yield settle
        finally:
            self._reserved -= estimate
            self._calls -= 1
            self._wake()

    def _check_own(self, account: Account) -> None:
        limits = self.limits
        if account.task_id and account.used >= limits.max_tokens_per_task:
            raise BudgetSpent(
                f"budget exceeded: the task used {account.used} of {limits.max_tokens_per_task} tokens"
            )
        used = self._agents.get(account.agent_id, 0)
        if account.task_id and used >= limits.max_tokens_per_agent:
            raise BudgetSpent(
                f"budget exceeded: the agent used {used} of {limits.max_tokens_per_agent} tokens"
            )

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
