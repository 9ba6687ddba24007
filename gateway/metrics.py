"""What the gateway counts, and the text in which a scraper reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

Statistics = Callable[[], Mapping[str, float]]


class Metrics:
    """One gateway's counters. Routes are counted by template, so that ids never become labels."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            "greenroom_http_request_seconds",
            "Time from a request's head to its answer's head",
            ["method", "route", "status"],
            registry=self.registry,
            buckets=BUCKETS,
        )
        self.streams = Gauge("greenroom_http_streams", "Open event streams", registry=self.registry)
        self.sockets = Gauge("greenroom_http_sockets", "Open WebSockets", registry=self.registry)
        self.connections = Gauge("greenroom_http_connections", "Open connections", registry=self.registry)
        self.refused = Counter(
            "greenroom_http_accept_failures",
            "Connections not accepted for want of resources",
            registry=self.registry,
        )
        self._children: dict[tuple[str, str, int], Histogram] = {}

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count an answered request; an unknown method counts as ``other``."""
        key = (route, method, status)
        child = self._children.get(key)
        if child is None:
            name = method if method in _METHODS else "other"
            child = self._seconds.labels(name, route, str(status))
            if name != "other":
                self._children[key] = child
        child.observe(seconds)

    def observe(self, prefix: str, statistics: Statistics) -> None:
        """Add gauges read at scrape time: ``prefix_name`` for each name in ``statistics()``."""
        self.registry.register(_Statistics(prefix, statistics))

    def render(self) -> bytes:
        """Return the text format."""
        return generate_latest(self.registry)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class _Statistics(Collector):
    def __init__(self, prefix: str, statistics: Statistics) -> None:
        self._prefix = prefix
        self._statistics = statistics

    def collect(self) -> Iterable[Metric]:
        for name, value in self._statistics().items():
            yield GaugeMetricFamily(f"{self._prefix}_{name}", name.replace("_", " "), value=value)

    def describe(self) -> Iterable[Metric]:
        return ()
