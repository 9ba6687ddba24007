"""What every benchmark prints: machine, versions, figures and goals as JSON, and the goals for people."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

PACKAGES = ("trio", "msgspec", "apsw", "quart-trio", "hypercorn", "httptools", "openai")


class Goal(Struct, frozen=True):
    """A figure with the bound it is held to."""

    name: str
    value: float
    bound: float
    sense: Literal["<=", ">=", "<"] = "<="
    unit: str = ""

    @property
    def ok(self) -> bool:
        """Tell whether the bound holds."""
        if self.sense == ">=":
            return self.value >= self.bound
        return self.value < self.bound if self.sense == "<" else self.value <= self.bound


def spread(values: Sequence[float], scale: float = 1.0) -> dict[str, float]:
    """Return min, median, 99th percentile and max of ``values`` times ``scale``, rounded to three digits."""
    if not values:
        return {}
    ordered = sorted(values)
    points = {
        "min": ordered[0],
        "p50": statistics.median(ordered),
        "p99": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))],
        "max": ordered[-1],
    }
    return {name: round(value * scale, 3) for name, value in points.items()}


def machine() -> dict[str, Any]:
    """Describe where the figures were taken."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "versions": versions,
    }


def finish(name: str, results: dict[str, Any], goals: Sequence[Goal]) -> int:
    """Print the JSON document on stdout and the goals on stderr; return the exit status."""
    rows = [
        {"name": g.name, "value": g.value, "goal": f"{g.sense} {g.bound:g} {g.unit}".strip(), "ok": g.ok}
        for g in goals
    ]
    print(json.dumps({"bench": name, "machine": machine(), "results": results, "goals": rows}, indent=2))
    for row in rows:
        verdict = "pass" if row["ok"] else "FAIL"
        print(f"{verdict}  {row['name']:<42} {row['value']:>10.3f}   goal {row['goal']}", file=sys.stderr)
    return 0 if all(goal.ok for goal in goals) else 1
