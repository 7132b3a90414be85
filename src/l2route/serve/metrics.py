"""Metrics of the server, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from l2route.serve.served import Served

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
"""Upper bounds of the buckets of latencies."""
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 10_000)
"""Upper bounds of the buckets of batch sizes."""
OTHER = "other"
"""The route of requests for paths that there are not."""


class Metrics:
    """Counters of a server, in a registry of its own.

    Args:
        served: the index, whose size and settings are reported.
        n_waiting: gives the number of searches that wait.
        n_changes_waiting: gives the number of changes that wait.
    """

    def __init__(
        self,
        served: Served,
        n_waiting: Callable[[], float],
        n_changes_waiting: Callable[[], float],
    ) -> None:
        self.registry = CollectorRegistry()
        self.seconds = Histogram(
            "l2route_request_seconds",
            "Time from the head of a request to the end of its answer.",
            ["route"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.requests = self._counter("l2route_requests", "Requests answered.", ["route", "status"])
        self.rejected = self._counter("l2route_rejected", "Requests refused.", ["reason"])
        self.queries = self._counter("l2route_queries", "Queries answered.", ["limit"])
        self.scored = self._counter("l2route_vectors_scored", "Vectors scored by searches.", [])
        self.changed = self._counter("l2route_vectors_changed", "Vectors changed.", ["change"])
        self.logged = self._counter("l2route_queries_logged", "Queries written to the log.", [])
        self.failures = self._counter("l2route_failures", "Work that failed.", ["work"])
        self.batches = Histogram(
            "l2route_batch_queries",
            "Queries searched as one batch.",
            buckets=SIZES,
            registry=self.registry,
        )
        self._gauge("l2route_queue_length", "Searches that wait.", n_waiting)
        self._gauge("l2route_change_queue_length", "Changes that wait.", n_changes_waiting)
        self._gauge("l2route_index_vectors", "Vectors of the index.", lambda: len(served.index))
        self._gauge("l2route_index_bytes", "Bytes of the index.", lambda: served.index.n_bytes)
        self._gauge("l2route_reloads", "Newer saves served.", lambda: served.n_reloads)
        self.registry.register(_Settings(served))
        self._routes: dict[tuple[str, int], tuple[Histogram, Counter]] = {}

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        known = self._routes.get((route, status))
        if known is None:
            known = (self.seconds.labels(route), self.requests.labels(route, str(status)))
            self._routes[route, status] = known
        known[0].observe(seconds)
        known[1].inc()

    def page(self) -> bytes:
        """All metrics, as Prometheus reads them."""
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, labels: list[str]) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        Gauge(name, text, registry=self.registry).set_function(value)


class _Settings(Collector):
    """The settings that searches with a recall use, as the index has them at the moment."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The recall measured of each setting, with its limits as labels."""
        labels = ["space", "k", "target", "share", "guarantee", "ef", "slack", "rerank"]
        family = GaugeMetricFamily(
            "l2route_setting_recall", "Recall measured of a setting.", labels=labels
        )
        for setting in self._served.index.settings:
            values = (getattr(setting, name) for name in labels)
            texts = ["" if each is None else f"{each}" for each in values]
            family.add_metric(texts, setting.recall)
        yield family
