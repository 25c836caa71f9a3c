"""The health of backends as Prometheus' metrics, read when they are scraped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from diskless_core.plugin_host.health import BUCKETS_S, Health, HealthBook, Result

_PLUGIN = ("noun", "name")


class Declaration(NamedTuple):
    """One metric; `name` has no `diskless_` and no `_total`."""

    kind: str
    name: str
    text: str
    labels: tuple[str, ...] = _PLUGIN


CALLS = Declaration(
    "counter",
    "plugin_calls",
    "Calls of a selected backend that ended: result is ok, error (of the noun's own kind), foreign (an exception that "
    "its interface does not know) or cancelled.",
    (*_PLUGIN, "result"),
)
STREAM_ERRORS = Declaration(
    "counter", "plugin_stream_errors", "Errors of streams after they were opened, by kind.", (*_PLUGIN, "result")
)
SECONDS = Declaration("histogram", "plugin_call_seconds", "How long these calls took.")
UNDER_WAY = Declaration("gauge", "plugin_calls_under_way", "Calls of a backend that have not ended.")
SLOW = Declaration(
    "counter", "plugin_slow_calls", "Calls that took, or have taken by now, longer than is expected of their noun."
)
STALLS = Declaration(
    "counter", "plugin_loop_stalls", "How often the broker's event loop stood still inside of the backend."
)
STALL_SECONDS = Declaration("counter", "plugin_loop_stall_seconds", "How long it did so.")

DECLARATIONS = (CALLS, STREAM_ERRORS, SECONDS, UNDER_WAY, SLOW, STALLS, STALL_SECONDS)


class HealthCollector:
    """Exports what a book has; nothing but names without one."""

    def __init__(self) -> None:
        self.book: HealthBook | None = None

    def collect(self) -> Iterator[Metric]:
        """All metrics, as the registry asks for them."""
        records = list(self.book or ())
        yield _by_result(CALLS, ((record, result, record.results[result]) for record in records for result in Result))
        kinds = (Result.ERROR, Result.FOREIGN)
        yield _by_result(
            STREAM_ERRORS, ((record, kind, record.stream_errors[kind]) for record in records for kind in kinds)
        )
        yield _histogram(records)
        under_way = GaugeMetricFamily(f"diskless_{UNDER_WAY.name}", UNDER_WAY.text, labels=UNDER_WAY.labels)
        for record in records:
            under_way.add_metric([record.noun, record.name], record.under_way)
        yield under_way
        yield _counter(SLOW, ((record, record.slow) for record in records))
        yield _counter(STALLS, ((record, record.stalls) for record in records))
        yield _counter(STALL_SECONDS, ((record, record.stall_s) for record in records))


def _by_result(declared: Declaration, values: Iterable[tuple[Health, Result, int]]) -> Metric:
    family = CounterMetricFamily(f"diskless_{declared.name}", declared.text, labels=declared.labels)
    for record, result, value in values:
        family.add_metric([record.noun, record.name, result.value], value)
    return family


def _counter(declared: Declaration, values: Iterable[tuple[Health, float]]) -> Metric:
    family = CounterMetricFamily(f"diskless_{declared.name}", declared.text, labels=declared.labels)
    for record, value in values:
        family.add_metric([record.noun, record.name], value)
    return family


def _histogram(records: Iterable[Health]) -> Metric:
    family = HistogramMetricFamily(f"diskless_{SECONDS.name}", SECONDS.text, labels=SECONDS.labels)
    for record in records:
        ends, below = [*map(str, BUCKETS_S), "+Inf"], 0
        buckets: list[tuple[str, float]] = []
        for end, count in zip(ends, list(record.buckets), strict=True):
            below += count
            buckets.append((end, below))
        family.add_metric([record.noun, record.name], buckets, sum_value=record.sum_s)
    return family
