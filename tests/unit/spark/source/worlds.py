"""Partitions by hand: batches in WAL objects and segments of stores in memory, and the layouts that tell of them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from diskless_core.clock import SystemClock
from diskless_core.layout.partition import PartitionLayout
from diskless_core.protocol import record_batch
from diskless_core.protocol.names import uuid_text
from diskless_core.protocol.record_batch import RecordData
from diskless_core.remote_log.metadata import TopicIdPartition
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage
from diskless_core.wal.runs import Run
from diskless_spark.source.layouts import AbsentError, absent_of
from diskless_spark.source.offsets import NOWHERE, Position
from diskless_spark.source.options import SnapshotKind, Subscription
from diskless_spark.source.planning import place_of
from tests.support.built_segments import BuiltPartition

TOPIC_ID = uuid.UUID(int=7)


@dataclass
class World:
    """A connection to what is in memory, and who tells where it is."""

    store: MemoryWalObjectStore = field(default_factory=lambda: MemoryWalObjectStore(SystemClock()))
    storage: MemoryRemoteStorage = field(default_factory=MemoryRemoteStorage)
    layouts: dict[int, PartitionLayout] = field(default_factory=dict)
    kind: SnapshotKind = SnapshotKind.BROKER
    asked: int = 0
    """How often layouts were asked for."""

    def objects(self) -> MemoryWalObjectStore:
        return self.store

    def segments(self) -> MemoryRemoteStorage:
        return self.storage

    def require_reach(self) -> None:
        """It is here."""

    def patient(self) -> World:
        return self

    def of(self, subscription: Subscription, position: Position = NOWHERE) -> list[PartitionLayout]:
        self.asked += 1
        found = [
            _from(layout, position.of(place_of(layout), uuid_text(layout.partition.topic_id)))
            for layout in self.layouts.values()
            if subscription.chooses(layout.partition.topic) and subscription.wants(place_of(layout))
        ]
        if absent := absent_of(subscription, found):
            raise AbsentError(f"there is no {', '.join(absent)}")
        return found

    def put(self, key: str, *batches: tuple[int, int, Sequence[int]], append_time_ms: int | None = None) -> None:
        """An object with a batch each for (partition, base offset, timestamps), and the layouts with them behind."""
        data = bytearray(b"header")
        for partition, base_offset, timestamps in batches:
            records = [RecordData(None, b"%d of %d" % (n, partition), (), time) for n, time in enumerate(timestamps)]
            batch = record_batch.build(records, timestamp_ms=0)
            batches_there = Run(
                base_offset,
                base_offset + len(timestamps) - 1,
                key,
                len(data),
                len(batch),
                append_time_ms or 0,
                max(timestamps),
                int(append_time_ms is not None),
            )
            data += batch
            layout = self.layouts.get(partition) or self.empty(partition)
            self.layouts[partition] = PartitionLayout(
                partition=layout.partition,
                start_offset=layout.start_offset,
                end_offset=batches_there.last_offset + 1,
                segments=layout.segments,
                ranges=[*layout.ranges, batches_there],
            )
        self.store.objects[key] = bytes(data)

    async def put_segments(self, partition: int, *batches: int, **times: Callable[[int], int] | None) -> BuiltPartition:
        """Segments of so many batches of four records each; `times` as `BuiltPartition` has them."""
        built = BuiltPartition(TopicIdPartition(TOPIC_ID, "t", partition), **times)
        for count in batches:
            await built.add_segment(self.storage, count)
        self.layouts[partition] = PartitionLayout(
            partition=built.partition, start_offset=0, end_offset=built.next_offset, segments=built.segments, ranges=[]
        )
        return built

    @staticmethod
    def empty(partition: int) -> PartitionLayout:
        place = TopicIdPartition(TOPIC_ID, "t", partition)
        return PartitionLayout(partition=place, start_offset=0, end_offset=0, segments=[], ranges=[])


def _from(layout: PartitionLayout, offset: int) -> PartitionLayout:
    return replace(
        layout,
        segments=[one for one in layout.segments if one.end_offset >= offset],
        ranges=[one for one in layout.ranges if one.last_offset >= offset],
    )


def with_other_topic(layout: PartitionLayout) -> PartitionLayout:
    """The same partition of a topic of the same name that was created later."""
    return replace(layout, partition=layout.partition._replace(topic_id=uuid.UUID(int=8)))
