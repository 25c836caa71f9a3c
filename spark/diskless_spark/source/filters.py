"""What a query's filters say of partitions, offsets and times, so that nothing else is read. Pure.

Spark applies all filters itself once more: what is pushed down here only has to leave out nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import datasource
from pyspark.sql.datasource import ColumnPath, Filter

from diskless_spark.source.decoding import Place
from diskless_spark.source.offsets import Span

_MAX = 2**63 - 2
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(slots=True)
class Bounds:
    """What can pass all filters. Offsets are from `start` to before `end`; None stands for everything."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start: int = 0
    end: int = _MAX
    min_partition: int = 0
    max_partition: int = _MAX
    min_timestamp_ms: int | None = None

    def narrow(self, filters: Iterable[Filter]) -> None:
        """Take in filters, all of which have to hold. Those that say nothing of this are passed over."""
        for one in filters:
            attribute: ColumnPath = getattr(one, "attribute", ())
            value = getattr(one, "value", None)
            if isinstance(one, datasource.In):
                value = tuple(found for found in one.value if found is not None)  # nothing equals null
            if len(attribute) == 1 and value is not None:
                self._narrow(attribute[0], one, value)

    def wanted(self, spans: Mapping[Place, Span]) -> dict[Place, Span]:
        """What of these spans can pass."""
        found: dict[Place, Span] = {}
        for place, span in spans.items():
            start, end = max(span.start, self.start), min(span.end, self.end)
            if start < end and self._has(place):
                found[place] = Span(start, end)
        return found

    def _has(self, place: Place) -> bool:
        return (
            (self.topics is None or place.topic in self.topics)
            and (self.partitions is None or place.partition in self.partitions)
            and self.min_partition <= place.partition <= self.max_partition
        )

    def _narrow(self, column: str, one: Filter, value: Any) -> None:
        match column:
            case "topic" if (names := _values(one, value)) is not None:
                self.topics = names if self.topics is None else self.topics & names
            case "partition":
                numbers = _values(one, value)
                if numbers is not None:
                    self.partitions = numbers if self.partitions is None else self.partitions & numbers
                low, high = _range(one, value)
                self.min_partition, self.max_partition = max(self.min_partition, low), min(self.max_partition, high)
            case "offset":
                low, high = _range(one, value)
                self.start, self.end = max(self.start, low), min(self.end, high + 1)
            case "timestamp" if isinstance(value, datetime):
                low, _ = _range(one, _milliseconds(value))
                # Filters have microseconds: the whole millisecond is taken, and Spark looks at the rest.
                if low > 0:
                    self.min_timestamp_ms = max(self.min_timestamp_ms or 0, low)


def _values(one: Filter, value: Any) -> frozenset[Any] | None:
    if isinstance(one, datasource.In):
        return frozenset(value)
    return frozenset({value}) if isinstance(one, datasource.EqualTo | datasource.EqualNullSafe) else None


def _range(one: Filter, value: Any) -> tuple[int, int]:
    """The least and the greatest value that can pass, both inclusive."""
    match one:
        case datasource.EqualTo() | datasource.EqualNullSafe():
            return value, value
        case datasource.GreaterThan():
            return value, _MAX
        case datasource.GreaterThanOrEqual():
            return value, _MAX
        case datasource.LessThan() | datasource.LessThanOrEqual():
            return 0, value
        case datasource.In() if value:
            return min(value), max(value)
    return 0, _MAX


def _milliseconds(value: datetime) -> int:
    aware = value if value.tzinfo is not None else value.astimezone(UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // _MILLISECOND
