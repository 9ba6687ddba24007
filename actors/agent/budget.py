"""What a run has used of its budgets: tokens, money, time, per agent. Pure; the clock is an argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from actors.agent.messages import BudgetExceeded, BudgetReported
from actors.agent.team import BudgetSpec
from actors.models.provider import Usage

JSON = Any


class Used(Struct):
    """One agent's share. ``seconds`` counts its model calls, not its waiting."""

    cost: float = 0.0
    tokens: int = 0
    seconds: float = 0.0


class Meter:
    """Counts one run together with the runs it delegates.

    Args:
        budgets: The limits that hold; without any, nothing is reported and nothing ends the run.
        started: The clock's reading at the run's start, in seconds.
    """

    def __init__(self, budgets: Sequence[BudgetSpec], started: float) -> None:
        self.budgets = tuple(budgets)
        self._started = started
        self._agents: dict[str, Used] = {}
        self._unpriced = False

    def add(self, agent: str, usage: Usage, cost: float, seconds: float) -> None:
        """Count one model call."""
        used = self._agents.setdefault(agent, Used())
        tokens = usage.context_tokens + usage.output_tokens
        used.tokens += tokens
        used.cost += cost
        used.seconds += seconds
        self._unpriced = self._unpriced or (tokens > 0 and cost == 0.0)

    def report(self, agent: str, now: float) -> BudgetReported | None:
        """Return the use so far in the wire's shape; nothing without budgets."""
        if not self.budgets:
            return None
        return BudgetReported(agent=agent, budgets=tuple(self._row(budget, now) for budget in self.budgets))

    def exceeded(self, agent: str, now: float) -> BudgetExceeded | None:
        """Return the first limit that is reached, if any."""
        for budget in self.budgets:
            for limit, used, most in (
                ("max_cost", self.cost, budget.max_cost),
                ("max_tokens", float(self.tokens), float(budget.max_tokens)),
                ("max_time", now - self._started, budget.max_time),
            ):
                if 0 < most <= used:
                    return BudgetExceeded(
                        agent=agent,
                        budget=budget.name,
                        limit=limit,
                        used=used,
                        max=most,
                        config_path=f"{budget.config_path}.{limit}",
                        message=f"Budget {budget.name!r} is used up: {limit} {used:g} of {most:g}.",
                    )
        return None

    @property
    def cost(self) -> float:
        """USD used so far."""
        return sum(used.cost for used in self._agents.values())

    @property
    def tokens(self) -> int:
        """Tokens used so far, prompts and answers."""
        return sum(used.tokens for used in self._agents.values())

    def _row(self, budget: BudgetSpec, now: float) -> Mapping[str, JSON]:
        row: dict[str, JSON] = {
            "name": budget.name,
            "cost": self.cost,
            "tokens": self.tokens,
            "elapsed_seconds": now - self._started,
            "per_agent": [
                {"agent_name": name, "cost": used.cost, "tokens": used.tokens, "active_seconds": used.seconds}
                for name, used in self._agents.items()
            ],
        }
        limits = {
            "max_cost": budget.max_cost,
            "max_tokens": budget.max_tokens,
            "max_time_seconds": budget.max_time,
        }
        row.update({name: limit for name, limit in limits.items() if limit})
        if self._unpriced and budget.max_cost:
            row["unpriced"] = True
        return row
