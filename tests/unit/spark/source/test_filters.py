"""Filters: nothing that could pass them is left out."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import EqualNullSafe, EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNotNull, LessThan, Not

from diskless_spark.source.decoding import Place
from diskless_spark.source.filters import Bounds
from diskless_spark.source.offsets import Span

SPANS = {Place(topic, partition): Span(0, 100) for topic in "ab" for partition in range(4)}
TIME = datetime(2024, 1, 1, tzinfo=UTC)


def wanted(*filters) -> dict[tuple[str, int], tuple[int, int]]:
    bounds = Bounds()
    bounds.narrow(filters)
    return {tuple(place): (span.start, span.end) for place, span in bounds.wanted(SPANS).items()}


@pytest.mark.parametrize(
    ("filters", "places"),
    [
        ([EqualTo(("topic",), "a"), EqualTo(("partition",), 2)], {("a", 2)}),
        ([In(("partition",), (1, None, 3)), GreaterThan(("partition",), 2)], {("a", 3), ("b", 3)}),
        ([In(("topic",), ("a", "c")), LessThan(("partition",), 0)], {("a", 0)}),
        ([In(("partition",), (None,))], set()),
        ([Not(EqualTo(("partition",), 1)), IsNotNull(("topic",)), EqualTo(("value",), b"x")], set(map(tuple, SPANS))),
        ([EqualNullSafe(("topic",), None)], set(map(tuple, SPANS))),
    ],
)
def test_partitions(filters, places):
    assert set(wanted(*filters)) == places


def test_offsets():
    found = wanted(EqualTo(("partition",), 0), GreaterThanOrEqual(("offset",), 10), LessThan(("offset",), 20))
    assert found == {("a", 0): (10, 21), ("b", 0): (10, 21)}
    assert wanted(EqualTo(("offset",), 100)) == {}
    assert wanted(In(("offset",), (5, 9)))["a", 0] == (5, 10)


def test_times_only_say_what_is_too_early():
    bounds = Bounds()
    bounds.narrow([LessThan(("timestamp",), TIME), GreaterThan(("timestamp",), TIME.replace(microsecond=1_999))])
    assert bounds.min_timestamp_ms == TIME.timestamp() * 1000 + 1
    assert wanted(LessThan(("timestamp",), TIME)) == wanted()
