"""What ended executions add up to."""

from __future__ import annotations

import pytest

from actors.squad.analytics import analyse
from actors.squad.requests import Analytics, DailyUsage, Period
from actors.squad.values import HistoryRecord, TokenUsage, timestamp

NOW = 1_700_000_000.0
DAY = 86_400.0


def record(age: float, status: str = "completed", tokens: int = 10, agent: str = "ann") -> HistoryRecord:
    usage = TokenUsage(prompt_tokens=tokens - 1, completion_tokens=1)
    return HistoryRecord(
        execution_id=f"{age}",
        squad_id="s",
        squad_name="s",
        request="r",
        status=status,
        total_token_usage=usage,
        per_agent_token_usage={agent: usage},
        duration_ms=100,
        completed_at=timestamp(NOW - age),
    )


def test_nothing_adds_up_to_zeros() -> None:
    assert analyse([], "all", NOW) == Analytics()


def test_figures_are_summed_by_agent_day_and_outcome() -> None:
    found = analyse(
        [record(0), record(1, "failed", 20, "bob"), record(DAY, "cancelled", 5), record(DAY)], "all", NOW
    )
    assert (found.total_executions, found.total_tokens, found.avg_duration_ms) == (4, 45, 100)
    assert (found.completed_count, found.failed_count, found.cancelled_count) == (2, 1, 1)
    assert found.success_rate == 0.5
    assert found.per_agent_tokens == {"ann": 25, "bob": 20}
    assert found.daily_usage == (
        DailyUsage(date="2023-11-13", tokens=15, executions=2),
        DailyUsage(date="2023-11-14", tokens=30, executions=2),
    )


@pytest.mark.parametrize(("period", "count"), [("day", 1), ("week", 2), ("month", 3), ("all", 4)])
def test_a_period_reaches_back_from_now(period: Period, count: int) -> None:
    records = [record(age * DAY) for age in (0.5, 6, 29, 400)]
    assert analyse(records, period, NOW).total_executions == count


def test_a_record_without_a_time_counts_only_in_everything() -> None:
    timeless = HistoryRecord(
        execution_id="e", squad_id="s", squad_name="s", request="r", completed_at="never"
    )
    assert analyse([timeless], "all", NOW).total_executions == 1
    assert analyse([timeless], "month", NOW).total_executions == 0
