"""The data source `diskless`: what Spark asks for, in a batch query and in a stream."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from diskless_core.clock import SystemClock
from diskless_core.layout.partition import PartitionLayout
from diskless_core.protocol.record_batch import CorruptBatchError
from diskless_spark.source import offsets, planning, tables
from diskless_spark.source.connection import connect
from diskless_spark.source.decoding import Place, PlainBatch, decode, plain_batch, wanted_offsets
from diskless_spark.source.filters import Bounds
from diskless_spark.source.layouts import (
    PATIENCE_S,
    PLAN_PATIENCE_S,
    AbsentError,
    Layouts,
    absent_of,
    still_there,
    those_there,
)
from diskless_spark.source.offsets import NOWHERE, Extent, Losses, Position, Span
from diskless_spark.source.options import (
    BACKEND_NOUNS,
    At,
    Missing,
    SourceOptionError,
    SourceOptions,
    check,
    includes_headers,
    parse,
)
from diskless_spark.source.planning import Piece, extents_of, place_of, topic_ids_of
from diskless_spark.source.reading import BatchReader, DamagePolicy, LossPolicy
from diskless_spark.source.stores import Stores
from diskless_spark.source.times import first_offset_from
from diskless_spark.source.triggers import TriggerGate

ROWS_BYTES = 4 << 20
"""Bytes of records that become one Arrow batch, about: so many stay in the processor's caches."""

_log = logging.getLogger(__name__)

_FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_LOOKUPS = 16


_REDACTED_OPTIONS = "spark.sql.redaction.options.regex"
_BACKEND_SETTINGS = f"(?i)^(?:{'|'.join(BACKEND_NOUNS)})[.]"


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("diskless")` known to a session.

    Spark then tells it the filters of queries, and shows no settings of backends in plans, its UI and its event log.
    """
    spark.dataSource.register(DisklessDataSource)
    spark.conf.set(_FILTER_PUSHDOWN, "true")
    redacted = spark.conf.get(_REDACTED_OPTIONS) or ""
    if _BACKEND_SETTINGS not in redacted:
        spark.conf.set(_REDACTED_OPTIONS, f"{redacted}|{_BACKEND_SETTINGS}" if redacted else _BACKEND_SETTINGS)


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
        check(self.options)
        return tables.full_schema(include_headers=includes_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchQuery(parse(self.options, is_stream=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
        try:
            return StreamQuery(parse(self.options, is_stream=True), schema)
        except Exception as error:
            # PySpark tells of no error that is raised here, but that there is no reader to stop.
            return RefusedStream(error)


class _Query:
    """What both kinds of queries have. It is sent to executors, for `rows`."""

    def __init__(self, options: SourceOptions, schema: StructType, *, is_stream: bool) -> None:
        self.options = options
        self.schema = tables.arrow_schema(schema)
        self.connection = connect(options)
        self.layouts = Layouts(
            connection=self.connection,
            kind=options.snapshot,
            patience_s=PATIENCE_S if is_stream else PLAN_PATIENCE_S,
            is_stream=is_stream,
        )
        self.policy = LossPolicy(fail=options.fail_on_data_loss)
        self.damage = DamagePolicy(skip=options.skip_damaged)

    def rows(self, task: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task. Spark makes one that is no `ReadTask` where there is nothing to read."""
        if not isinstance(task, ReadTask):
            return
        self.connection.require_reach()
        with Stores(self.connection) as stores:
            together: list[PlainBatch] = []
            size = 0
            for batch in self._batches(stores, self.layouts.patient()).read(task.pieces):
                try:
                    plain = plain_batch(*batch)
                except CorruptBatchError as error:
                    self.damage.report(batch.place, *wanted_offsets(batch.start, batch.end, batch.header), error)
                    continue
                if together and size + len(plain.records) > ROWS_BYTES:
                    yield from self._decoded(together)
                    together, size = [], 0
                together.append(plain)
                size += len(plain.records)
            yield from self._decoded(together)

    def _decoded(self, batches: Sequence[PlainBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of batches. If records of any are damaged, each batch is decoded alone, to tell which."""
        if not batches:
            return
        try:
            yield decode(batches, self.schema)
        except CorruptBatchError as error:
            if len(batches) == 1:
                [batch] = batches
                self.damage.report(batch.place, *wanted_offsets(batch.start, batch.end, batch.header), error)
            else:
                for batch in batches:
                    yield from self._decoded([batch])

    def _batches(self, stores: Stores, layouts: Layouts) -> BatchReader:
        return BatchReader(stores, layouts, self.policy, self.damage)

    def resolve(
        self, at: At, layouts: Sequence[PartitionLayout], missing: Missing = Missing.IS_THE_END
    ) -> offsets.Offsets:
        """The offsets that `at` means in partitions as they are."""
        extents = extents_of(layouts)
        by_time = self._by_time(at, layouts)
        late = sorted(place for place, offset in by_time.items() if offset is None)
        if late and missing is Missing.IS_AN_ERROR:
            raise SourceOptionError(
                f"{at.option}: {late[0].topic}-{late[0].partition} has no record of that time or later; with "
                "startingOffsetsByTimestampStrategy=latest, it is read from its end on"
            )
        return offsets.resolve(at, extents, by_time)

    def _by_time(self, at: At, layouts: Sequence[PartitionLayout]) -> Mapping[Place, int | None]:
        wanted = [(layout, at.timestamps_ms.get(place_of(layout), at.timestamp_ms)) for layout in layouts]
        timed = [(layout, timestamp_ms) for layout, timestamp_ms in wanted if timestamp_ms is not None]
        if not timed:
            return {}
        with Stores(self.connection) as stores, ThreadPoolExecutor(_LOOKUPS) as threads:

            def find(layout: PartitionLayout, timestamp_ms: int) -> int | None:
                return first_offset_from(layout, timestamp_ms, stores, self._batches(stores, self.layouts))

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
        super().__init__(options, schema, is_stream=False)
        self._bounds = Bounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - PySpark's name
        self._bounds.narrow(filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        layouts = self.layouts.of(self.options.subscription)
        starts = self.resolve(self.options.starting, layouts, self.options.starting_missing)
        ends = self.resolve(self.options.ending, layouts)
        losses = Losses()
        wanted = offsets.spans(starts, ends, extents_of(layouts), losses)
        self.policy.report(losses)
        return self.plan(layouts, self._bounds.wanted(wanted), self._bounds.min_timestamp_ms)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.rows(partition)


class StreamQuery(_Query, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on and on. Spark keeps its position, with which a topic is told from another one of the same name.

    Attributes:
        _known: the partitions as they were when they were looked at last, and where their records from `_known_from`
            on are.
        _last: those that a stream ends with (`availableNow`).
        _absent: what it goes on without.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema, is_stream=True)
        self._known: Sequence[PartitionLayout] = ()
        self._known_from = NOWHERE
        self._last: Sequence[PartitionLayout] | None = None
        self._absent: frozenset[str] = frozenset()
        self._clock = SystemClock()
        least = options.min_offsets_per_trigger
        delay_ms = options.max_trigger_delay_ms
        self._gate = None if least is None else TriggerGate(min_offsets=least, max_delay_ms=delay_ms)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        layouts = self.layouts.of(self.options.subscription)
        self._known, self._known_from = layouts, NOWHERE
        begin = self.resolve(self.options.starting, layouts, self.options.starting_missing)
        return Position(topic_ids=topic_ids_of(layouts), offsets=begin).noted()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - PySpark's name
        """PySpark has no limit for both ends: the lower one is kept by `latestOffset` whenever any limit holds."""
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        return ReadAllAvailable() if self._gate is None else ReadMinRows(self._gate.min_offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - PySpark's name
        self._last = self._look()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - PySpark's name
        return _end_of(self._known).noted() or None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        """Where the next micro-batch ends. A partition that is new begins at its first record.

        One that is gone has no end, and may have had more records than were known.
        """
        begun = Position.from_noted(start)
        layouts = self._look(begun) if self._last is None else self._last
        last, extents = _end_of(layouts), extents_of(layouts)
        losses = Losses()
        resumed = offsets.resumed(begun, last.topic_ids, extents, losses)
        here = offsets.without_gone(resumed, extents, self._wants, losses)
        self.policy.report(losses)
        self._report_absent(layouts, begun)
        # A partition that ends before stays: whether that is a loss is said when it is read.
        places = {*last.offsets, *here.offsets}
        ends = {place: max(last.offsets.get(place, 0), here.offsets.get(place, 0)) for place in places}
        begins = {place: extent.start for place, extent in extents.items()} | dict(here.offsets)
        if self._holds_back(limit, offsets.count(begins, ends)):
            return here.noted()
        if isinstance(limit, ReadMaxRows):
            ends = dict(offsets.share_out(limit.max_rows, begins, ends))
        return Position(topic_ids={**here.topic_ids, **last.topic_ids}, offsets=ends).noted()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What was planned, whatever the subscription has become meanwhile."""
        ended = Position.from_noted(end)
        losses = Losses()
        begun = offsets.resumed(Position.from_noted(start), ended.topic_ids, {}, losses)
        if not self._covers(begun, ended):
            behind = {place: begun.of(place, ended.topic_ids[place.topic]) for place in ended.offsets}
            self._known_from = Position(topic_ids=ended.topic_ids, offsets=behind)
            self._known = still_there(self.layouts, self._known_from)
        wanted = offsets.spans(begun.offsets, ended.offsets, self._extents(ended.topic_ids), losses)
        self.policy.report(losses)
        return self.plan(self._known, wanted)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.rows(partition)

    def _holds_back(self, limit: ReadLimit, count: int) -> bool:
        """Whether to wait for more. A stream that ends with what there is does not."""
        if self._gate is None or self._last is not None or isinstance(limit, ReadAllAvailable):
            return False
        return not self._gate.opens(count, int(self._clock.monotonic() * 1000))

    def _look(self, position: Position = NOWHERE) -> Sequence[PartitionLayout]:
        self._known, self._known_from = those_there(self.layouts, self.options.subscription, position), position
        return self._known

    def _wants(self, place: Place) -> bool:
        return self.options.subscription.chooses(place.topic) and self.options.subscription.wants(place)

    def _report_absent(self, layouts: Sequence[PartitionLayout], begun: Position) -> None:
        """Say what the subscription names and nobody knows, once, but for what was lost just now.

        Raises:
            AbsentError: there is such a thing, and the policy is to fail.
        """
        absent = absent_of(self.options.subscription, layouts)
        words = f"there is no {', '.join(absent)}"
        if absent and self.policy.fail:
            raise AbsentError(f"{words}. With failOnDataLoss=false, the query goes on with what there is")
        lost = {*begun.topic_ids, *(place.name for place in begun.offsets)}
        if set(absent) - self._absent - lost:
            _log.warning("%s, and the query goes on without", words)
        self._absent = frozenset(absent)

    def _extents(self, topic_ids: Mapping[str, str]) -> dict[Place, Extent]:
        """Of the partitions of these topics, not of others with their names."""
        known = topic_ids_of(self._known)
        extents = extents_of(self._known)
        return {place: one for place, one in extents.items() if topic_ids.get(place.topic) == known[place.topic]}

    def _covers(self, begun: Position, ended: Position) -> bool:
        """Whether it is known where all records from one position to the other are."""
        extents = self._extents(ended.topic_ids)

        def is_known(place: Place, end: int) -> bool:
            extent, topic_id = extents.get(place), ended.topic_ids[place.topic]
            known_from = self._known_from.of(place, topic_id)
            return extent is not None and end <= extent.end and known_from <= begun.of(place, topic_id)

        return all(is_known(place, end) for place, end in ended.offsets.items() if begun.offsets.get(place, 0) < end)


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stands for a stream that cannot be read, and says why as soon as it is asked for anything."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise self._error

    getDefaultReadLimit = prepareForTriggerAvailableNow = _refuse  # noqa: N815 - PySpark's names
    initialOffset = latestOffset = partitions = read = _refuse  # noqa: N815 - PySpark's name


def _end_of(layouts: Sequence[PartitionLayout]) -> Position:
    return Position(
        topic_ids=topic_ids_of(layouts), offsets={place_of(layout): layout.end_offset for layout in layouts}
    )
