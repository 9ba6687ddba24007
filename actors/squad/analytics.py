"""What a squad's ended executions add up to. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from actors.squad.requests import Analytics, DailyUsage, Period
from actors.squad.values import HistoryRecord

DAYS: dict[Period, int] = {"day": 1, "week": 7, "month": 30}


def analyse(records: Iterable[HistoryRecord], period: Period, now: float) -> Analytics:
    """Return the figures of the executions that ended within a period.

    Args:
        records: The squad's history.
        period: The last 24 hours, 7 days or 30 days, or everything.
        now: Seconds since the epoch.
    """
    since = None
    if period in DAYS:
        since = datetime.fromtimestamp(now, UTC) - timedelta(days=DAYS[period])
    statuses: Counter[str] = Counter()
    per_agent: Counter[str] = Counter()
    tokens_of_day: Counter[str] = Counter()
    runs_of_day: Counter[str] = Counter()
    tokens = duration = 0
    for record in records:
        ended = _moment(record.completed_at or record.started_at)
        if since is not None and (ended is None or ended < since):
            continue
        statuses[record.status] += 1
        tokens += record.total_token_usage.total
        duration += record.duration_ms
        for agent_id, usage in record.per_agent_token_usage.items():
            per_agent[agent_id] += usage.total
        if ended is not None:
            day = ended.date().isoformat()
            tokens_of_day[day] += record.total_token_usage.total
            runs_of_day[day] += 1
    total = statuses.total()
    return Analytics(
        total_executions=total,
        total_tokens=tokens,
        per_agent_tokens=dict(per_agent),
        success_rate=statuses["completed"] / total if total else 0.0,
        avg_duration_ms=round(duration / total) if total else 0,
        daily_usage=tuple(
            DailyUsage(date=day, tokens=tokens_of_day[day], executions=runs_of_day[day])
            for day in sorted(runs_of_day)
        ),
        completed_count=statuses["completed"],
        failed_count=statuses["failed"],
        cancelled_count=statuses["cancelled"],
    )


def _moment(text: str | None) -> datetime | None:
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
