"""The data source `diskless`: what Spark asks for, in a batch query and in a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from diskless_core.plugin.layout import PartitionLayout
from diskless_spark.source import offsets, planning, tables
from diskless_spark.source.connection import connect
from diskless_spark.source.decoding import Place, PlainBatch, decode, plain_batch
from diskless_spark.source.filters import Bounds
from diskless_spark.source.layouts import Layouts
from diskless_spark.source.offsets import Extent, Losses, Span
from diskless_spark.source.options import (
    At,
    Missing,
    SourceOptionError,
    SourceOptions,
    includes_headers,
    parse,
)
from diskless_spark.source.planning import Piece, extent_of, place_of
from diskless_spark.source.reading import BatchReader, LossPolicy
from diskless_spark.source.stores import Stores
from diskless_spark.source.times import first_offset_from

ROWS_BYTES = 4 << 20
"""Bytes of records that become one Arrow batch, about: so many stay in the processor's caches."""

_FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_LOOKUPS = 16


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("diskless")` known to a session, and let Spark tell it the filters of queries."""
    spark.dataSource.register(DisklessDataSource)
    spark.conf.set(_FILTER_PUSHDOWN, "true")


@dataclass(frozen=True)
class ReadTask(InputPartition):
    """What one Spark task reads, in this order."""

    pieces: tuple[Piece, ...]


class DisklessDataSource(DataSource):
    """Topics as rows."""

    @classmethod
    def name(cls) -> str:
        return "diskless"

    def schema(self) -> StructType:
        return tables.full_schema(include_headers=includes_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchQuery(parse(self.options, is_stream=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
        return StreamQuery(parse(self.options, is_stream=True), schema)


class _Query:
    """What both kinds of queries have. It is sent to executors, for `rows`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.schema = tables.arrow_schema(schema)
        self.connection = connect(options)
        self.layouts = Layouts(connection=self.connection, kind=options.snapshot)
        self.policy = LossPolicy(fail=options.fail_on_data_loss)

    def rows(self, task: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task. Spark makes one that is no `ReadTask` where there is nothing to read."""
        if not isinstance(task, ReadTask):
            return
        with Stores(self.connection) as stores:
            together: list[PlainBatch] = []
            size = 0
            for batch in BatchReader(stores, self.layouts, self.policy).read(task.pieces):
                plain = plain_batch(*batch)
                if together and size + len(plain.records) > ROWS_BYTES:
                    yield decode(together, self.schema)
                    together, size = [], 0
                together.append(plain)
                size += len(plain.records)
            if together:
                yield decode(together, self.schema)

    def resolve(
        self, name: str, at: At, layouts: Sequence[PartitionLayout], missing: Missing = Missing.IS_THE_END
    ) -> offsets.Offsets:
        """The offsets that `at` means in partitions as they are."""
        extents = {place_of(layout): extent_of(layout) for layout in layouts}
        by_time = self._by_time(at, layouts)
        late = sorted(place for place, offset in by_time.items() if offset is None)
        if late and missing is Missing.IS_AN_ERROR:
            raise SourceOptionError(
                f"{name}: {late[0].topic}-{late[0].partition} has no record of that time or later; with "
                "startingOffsetsByTimestampStrategy=latest, it is read from its end on"
            )
        return offsets.resolve(name, at, extents, by_time)

    def _by_time(self, at: At, layouts: Sequence[PartitionLayout]) -> Mapping[Place, int | None]:
        wanted = [(layout, at.timestamps_ms.get(place_of(layout), at.timestamp_ms)) for layout in layouts]
        timed = [(layout, timestamp_ms) for layout, timestamp_ms in wanted if timestamp_ms is not None]
        if not timed:
            return {}
        with Stores(self.connection) as stores, ThreadPoolExecutor(_LOOKUPS) as threads:

            def find(layout: PartitionLayout, timestamp_ms: int) -> int | None:
                return first_offset_from(layout, timestamp_ms, stores, BatchReader(stores, self.layouts, self.policy))

            found = threads.map(lambda one: find(*one), timed)
            return {place_of(layout): offset for (layout, _), offset in zip(timed, found, strict=True)}

    def plan(
        self, layouts: Sequence[PartitionLayout], wanted: Mapping[Place, Span], min_timestamp_ms: int | None = None
    ) -> list[InputPartition]:
        tasks = planning.plan(
            layouts,
            wanted,
            max_task_bytes=self.options.max_task_bytes,
            min_tasks=self.options.min_partitions,
            min_timestamp_ms=min_timestamp_ms,
        )
        return [ReadTask(pieces) for pieces in tasks]


class BatchQuery(_Query, DataSourceReader):
    """One read of what there is when it is planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._bounds = Bounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - PySpark's name
        self._bounds.narrow(filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        layouts = self.layouts.of(self.options.subscription)
        starts = self.resolve("startingOffsets", self.options.starting, layouts, self.options.starting_missing)
        ends = self.resolve("endingOffsets", self.options.ending, layouts)
        losses = Losses()
        wanted = offsets.spans(starts, ends, {place_of(one): extent_of(one) for one in layouts}, losses)
        self.policy.report(losses)
        return self.plan(layouts, self._bounds.wanted(wanted), self._bounds.min_timestamp_ms)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.rows(partition)


class StreamQuery(_Query, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on and on. Spark keeps the offsets, in the form that its Kafka source has for them."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._known: Sequence[PartitionLayout] = ()
        self._last: Mapping[Place, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        layouts = self._look()
        at, missing = self.options.starting, self.options.starting_missing
        return offsets.noted(self.resolve("startingOffsets", at, layouts, missing))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - PySpark's name
        limit = self.options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - PySpark's name
        self._last = self._ends()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - PySpark's name
        return offsets.noted({place_of(layout): layout.end_offset for layout in self._known}) or None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """Where the next micro-batch ends. A partition that is new begins at its first record."""
        starts = offsets.from_noted(start)
        ends = self._ends() if self._last is None else self._last
        # A partition that is gone, or ends before, stays: whether that is a loss is said when it is read.
        ends = {place: max(ends.get(place, 0), starts.get(place, 0)) for place in {*ends, *starts}}
        if isinstance(limit, ReadMaxRows):
            ends = dict(offsets.share_out(limit.max_rows, {**self._starts(), **starts}, ends))
        return offsets.noted(ends)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        starts, ends = offsets.from_noted(start), offsets.from_noted(end)
        if not self._covers(ends):
            self._look()
        losses = Losses()
        wanted = offsets.spans(starts, ends, self._extents(), losses)
        self.policy.report(losses)
        return self.plan(self._known, wanted)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.rows(partition)

    def _look(self) -> Sequence[PartitionLayout]:
        self._known = self.layouts.of(self.options.subscription)
        return self._known

    def _ends(self) -> dict[Place, int]:
        return {place_of(layout): layout.end_offset for layout in self._look()}

    def _starts(self) -> dict[Place, int]:
        return {place_of(layout): layout.start_offset for layout in self._known}

    def _extents(self) -> dict[Place, Extent]:
        return {place_of(layout): extent_of(layout) for layout in self._known}

    def _covers(self, ends: offsets.Offsets) -> bool:
        extents = self._extents()
        return all(place in extents and end <= extents[place].end for place, end in ends.items())
