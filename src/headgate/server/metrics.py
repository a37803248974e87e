"""Metrics for Prometheus: how much comes in and goes out, and how far behind the engine is; for operators only."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate.egress.level_logs import Logs
from headgate.ingress.ingress_log import IngressLog
from headgate.labels import source_shown
from headgate.recovery.counts import RunCounts
from headgate.server.dispatch import Dispatcher
from headgate.server.engine import ServerEngine
from headgate.server.publishing import Publishing


class Metrics(Collector):
    def __init__(
        self, engine: ServerEngine, dispatcher: Dispatcher, log: Logs, ingress: IngressLog, publishing: Publishing
    ) -> None:
        self._engine, self._dispatcher, self._log, self._ingress = engine, dispatcher, log, ingress
        self._publishing = publishing
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        counts = self._engine.counts
        yield GaugeMetricFamily("headgate_ready", "1 if the engine runs", int(self._engine.is_ready))
        yield GaugeMetricFamily("headgate_sources_failed", "sources that cannot be read now", self._engine.failed)
        yield CounterMetricFamily("headgate_batches", "batches processed", counts.batches)
        tuples = CounterMetricFamily("headgate_tuples", "tuples processed, whose results are out", labels=["stream"])
        for stream, n in dict(counts.tuples).items():
            tuples.add_metric([source_shown(stream)], n)
        rejected = CounterMetricFamily("headgate_rejected", "tuples rejected", labels=["stream", "reason"])
        for (stream, reason), n in dict(counts.rejected).items():
            rejected.add_metric([source_shown(stream), reason], n)
        late = CounterMetricFamily("headgate_late", "tuples that came late", labels=["stream"])
        for stream, n in dict(counts.late).items():
            late.add_metric([source_shown(stream)], n)
        lag = GaugeMetricFamily(
            "headgate_lag_seconds", "from arrival of the last batch to its results", labels=["stream"]
        )
        for stream, seconds in dict(counts.lag).items():
            lag.add_metric([source_shown(stream)], seconds)
        waiting = GaugeMetricFamily("headgate_waiting_bytes", "published, and not processed yet", labels=["stream"])
        for stream in dict(counts.tuples):
            if (size := self._ingress.waiting(stream)) is not None:
                waiting.add_metric([source_shown(stream)], size)
        left_out = CounterMetricFamily(
            "headgate_left_out", "tuples that a level goes without under overload", labels=["level", "stream"]
        )
        for (level, stream), n in counts.left_out.items():
            left_out.add_metric([level, source_shown(stream)], n)
        unseen = CounterMetricFamily(
            "headgate_unseen", "tuples that nobody was permitted to see when they came", labels=["stream"]
        )
        for stream, n in dict(counts.unseen).items():
            unseen.add_metric([source_shown(stream)], n)
        yield from (tuples, rejected, late, lag, waiting, left_out, unseen)
        yield from _deadlines(counts)
        yield CounterMetricFamily("headgate_published", "tuples taken into the ingress log", self._ingress.rows)
        yield CounterMetricFamily("headgate_published_repeats", "requests that were repeats", self._ingress.repeats)
        yield CounterMetricFamily(
            "headgate_published_refused", "requests refused for their rows or signature", self._publishing.refused
        )
        yield CounterMetricFamily(
            "headgate_published_removed", "files of tuples removed because nobody read them", self._ingress.removed
        )
        yield CounterMetricFamily("headgate_sent", "results sent to subscribers", self._dispatcher.sent)
        yield CounterMetricFamily("headgate_resets", "connections reset by a lost right", self._dispatcher.resets)
        yield GaugeMetricFamily("headgate_subscribers", "subscribers connected", len(self._dispatcher.connections))
        yield GaugeMetricFamily("headgate_delivery_log_bytes", "bytes of results kept for readers", self._log.size)


def _deadlines(counts: RunCounts) -> Iterator[Metric]:
    """By query (its number) and level of its readers; of levels, what the last control period was like."""
    queries, levels = counts.due
    if not queries:
        return
    pieces = CounterMetricFamily(
        "headgate_deadline_transactions", "work of queries with deadlines", labels=["query", "level", "outcome"]
    )
    for x in queries:
        for outcome in ("admitted", "rejected", "timely", "missed"):
            pieces.add_metric([x.query, x.level, outcome], getattr(x, outcome))
    yield pieces
    for name, about in (
        ("misses", "admitted work that missed its deadline"),
        ("utilisation", "use of the processor"),
        ("quality", "QoS"),
        ("limit", "limit on the sum of estimates"),
    ):
        found = GaugeMetricFamily(f"headgate_deadline_{name}_percent", f"{about}, last period", labels=["level"])
        for level in levels:
            found.add_metric([level.level], getattr(level, name))
        yield found
