"""A job on Spark beside the periodic worker of the engine `inline`: of the two, one wins each partition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from diskless_core.clock import SystemClock
from diskless_core.diskless.commands import PartitionKey
from diskless_core.log import producer_snapshot
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import IndexType
from diskless_core.plugin.segment_compaction import CompactionJob, SegmentCompaction
from diskless_core.protocol.names import uuid_text
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from diskless_core.tiering.compaction import CompactionRequest, Compactor
from diskless_core.tiering.copies import Copies
from diskless_spark.compaction import SparkCompaction
from diskless_spark.config import SparkCompactionSettings
from diskless_tiering.config import InlineSettings
from diskless_tiering.inline import InlineCompaction
from tests.support.admin_requests import alter
from tests.support.batches import batch_of, read_values
from tests.support.cluster import Cluster, in_thread, until
from tests.support.requests import append, create_topic, fetch, new_producer_id
from tests.support.wire import WireClient

TOPIC = "raced"
PARTITIONS = 4
BATCHES = 6
WON_BY_SPARK, WON_BY_WORKER = {1, 3}, {0, 2}
WORKER, SPARK = 1, 2
TOPIC_RESOURCE, SET = 2, 0
TIERED = {
    "diskless.append.commit.interval.ms": "20",
    "remote.log.manager.task.interval.ms": "20",
    "remote.log.storage.system.enable": "true",
}


class Racing(SegmentCompaction):
    """An engine that finishes a segment as soon as it may. `begun` and `lost` are partitions of copies."""

    def __init__(self, engine: SegmentCompaction) -> None:
        self.may_finish: Callable[[int], bool] = lambda _: True
        self.begun: set[int] = set()
        self.lost: set[int] = set()
        self._engine = engine

    async def compact(self, job: CompactionJob) -> None:
        begin, finish = job.begin, job.finish

        async def noted(segment: Any) -> RemoteLogSegmentMetadata:
            metadata = await begin(segment)
            self.begun.add(segment.partition.partition)
            return metadata

        async def in_turn(metadata: RemoteLogSegmentMetadata, *copied: Any) -> bool:
            partition = metadata.segment_id.topic_id_partition.partition
            await until(lambda: self.may_finish(partition))
            is_taken = await finish(metadata, *copied)
            if not is_taken:
                self.lost.add(partition)
            return is_taken

        job.begin, job.finish = noted, in_turn  # type: ignore[method-assign]
        await self._engine.compact(job)


def turns(other: Racing, *, first: Set[int], is_taken: Callable[[int], bool]) -> Callable[[int], bool]:
    """When an engine may finish a segment: as soon as the other one has begun a copy of the same partition.

    Of partitions that it is not to take `first`, as soon as the other one has taken a segment, too.
    """
    return lambda index: index in other.begun and (index in first or is_taken(index))


def values(partition: int) -> list[bytes]:
    """Of a partition; four of them make a segment."""
    return [b"%d %d " % (partition, number) * 60_000 for number in range(BATCHES)]


def fill(wire: WireClient, producer_id: int) -> None:
    for partition in range(PARTITIONS):
        sent = [
            batch_of(value, producer_id=producer_id, producer_epoch=0, base_sequence=number)
            for number, value in enumerate(values(partition))
        ]
        assert append(wire, TOPIC, *sent, partition=partition) == list(range(BATCHES))


def read_all(wire: WireClient, partition: int) -> Sequence[bytes]:
    found: list[bytes] = []
    while len(found) < BATCHES:
        answer = fetch(wire, TOPIC, len(found), partition, max_wait_ms=500)
        assert answer.error_code == 0
        found += read_values(answer.records)
    return found


def stored_in(folder: Path) -> set[str]:
    """The topic's segments of which any file is there."""
    return {path.name.partition(".")[0] for path in folder.rglob(f"kafka-tiered-storage/{TOPIC}-*/*")}


async def test_each_partition_has_one_winner_and_every_record_once_and_the_loser_leaves_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    context = PluginContext(node_id=SPARK, data_dir=tmp_path, log_dir=tmp_path, clock=SystemClock())
    inline = Racing(InlineCompaction(context, InlineSettings()))
    on_spark = Racing(SparkCompaction(context, SparkCompactionSettings(task_bytes=1)))
    shared = TIERED | {"remote_storage.fsspec.url": (tmp_path / "segments").as_uri()}
    async with Cluster(tmp_path, {0: WORKER}, (WORKER,), shared) as cluster:
        with cluster.connect(WORKER) as wire:
            options = {"segment_bytes": str(1 << 20), "local_retention_bytes": "1"}
            topic_id = await in_thread(lambda: create_topic(wire, TOPIC, PARTITIONS, **options))
            producer_id = await in_thread(lambda: new_producer_id(wire))
            await in_thread(lambda: fill(wire, producer_id))

            tiered_storage = cluster.nodes[WORKER].tiered_storage()
            worker = tiered_storage.compactor
            services = worker._services
            [shard] = services.segments.shards.values()
            keys = [PartitionKey(topic_id.bytes, index) for index in range(PARTITIONS)]
            inline.may_finish = turns(on_spark, first=WON_BY_WORKER, is_taken=lambda i: bool(shard.tiered(keys[i])))
            on_spark.may_finish = turns(inline, first=WON_BY_SPARK, is_taken=lambda i: bool(shard.tiered(keys[i])))
            worker._services = replace(services, engine_of=lambda _: ("inline", inline))
            of_spark = replace(services.segments, node_id=SPARK)
            other = Compactor(
                replace(
                    services,
                    segments=of_spark,
                    copies=Copies(of_spark),
                    engine_of=lambda _: ("spark", on_spark),
                )
            )

            report = other.begin(CompactionRequest(everything=True))
            enabled = ("remote.storage.enable", SET, "true")
            assert await in_thread(lambda: alter(wire, TOPIC_RESOURCE, TOPIC, enabled)) == (0, None)
            await asyncio.gather(*other._tasks)
            await until(lambda: all(shard.head(key).local_start_offset == BATCHES for key in keys))
            await until(lambda: not worker._turn.locked())

            assert report.failures == []
            assert inline.lost >= WON_BY_SPARK
            assert on_spark.lost >= WON_BY_WORKER
            known = await tiered_storage.remote_log.segments(topic=TOPIC, partition=None)
            assert {one.state for one in known} == {RemoteLogSegmentState.COPY_SEGMENT_FINISHED}
            for index, key in enumerate(keys):
                own = [one for one in known if one.segment_id.topic_id_partition.partition == index]
                assert [one.segment_id.id.bytes for one in own] == [one.segment_id for one in shard.tiered(key)]
                assert own[0].broker_id == (SPARK if index in WON_BY_SPARK else WORKER)
                assert [one.start_offset for one in own] == [0, *(one.end_offset + 1 for one in own[:-1])]
                for one in own:
                    snapshot = await services.segments.remote_storage.fetch_index(one, IndexType.PRODUCER_SNAPSHOT)
                    [producer] = producer_snapshot.decode(bytes(snapshot)).values()
                    assert (producer.producer_id, producer.last_offset) == (producer_id, one.end_offset)
            assert stored_in(tmp_path) == {f"{one.start_offset:020}-{uuid_text(one.segment_id.id)}" for one in known}
            for index in range(PARTITIONS):
                assert await in_thread(lambda index=index: read_all(wire, index)) == values(index)
