"""Compactions in one process on virtual time: a real shard and WAL objects, remote storage and metadata in memory.

Every call of a backend is a step before which, or behind which, a job can be stopped for good.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from diskless_core.config.tiering import TieringConfig
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.shard import DisklessShard
from diskless_core.log import leader_epochs, producer_snapshot
from diskless_core.log.segment_indexer import SegmentIndexer
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_log_metadata import IllegalTransitionError
from diskless_core.plugin.remote_storage import IndexType
from diskless_core.plugin.segment_compaction import BackendSources, SegmentCompaction
from diskless_core.protocol import record_batch
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from diskless_core.testing.fakes.remote_log_metadata import MemoryRemoteLogMetadata
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage
from diskless_core.tiering.compaction import CompactionRequest, CompactionServices, Compactor, TopicTiering
from diskless_core.tiering.copies import CopyServices, key_of
from diskless_core.tiering.planning import SegmentRules
from diskless_core.tiering.report import JobReport
from diskless_core.tiering.retrying import Retries
from diskless_tiering.config import InlineSettings
from diskless_tiering.inline import InlineCompaction
from tests.support.produce_path import ProducePath, batch_of
from tests.support.produce_path import key_of as produced_key
from tests.support.shards import TOPIC

RULES = SegmentRules(segment_bytes=400, segment_ms=2**62, index_interval_bytes=100)
SESSION_TIMEOUT_MS = 60_000

Step = Callable[[], Awaitable[None]]


async def _no_step() -> None:
    pass


class Stepped:
    """A backend whose coroutine methods of these names take a step before and one behind."""

    def __init__(self, inner: Any, step: Step, *names: str) -> None:
        self._inner = inner
        self._step = step
        self._names = names

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in self._names:
            return found

        async def stepped(*args: Any, **kwargs: Any) -> Any:
            await self._step()
            result = await found(*args, **kwargs)
            await self._step()
            return result

        return stepped


class CompactionWorld:
    """Around a `ProducePath` that has been started."""

    def __init__(self, path: ProducePath, rules: SegmentRules = RULES) -> None:
        self.path = path
        self.rules = rules
        self.remote = MemoryRemoteStorage(custom_metadata=b"custom")
        self.metadata = MemoryRemoteLogMetadata()
        self.produced: dict[int, list[tuple[int, bytes]]] = {}
        self.is_tiered = True

    @property
    def shard(self) -> DisklessShard:
        return self.path.node.shard

    def compactor(
        self,
        step: Step = _no_step,
        *,
        node_id: int = 1,
        engine: SegmentCompaction | None = None,
        parallel_partitions: int = 1,
        settings: InlineSettings | None = None,
    ) -> Compactor:
        """A node's compactor, as after a start of the node."""
        path = self.path
        context = PluginContext(node_id=node_id, data_dir=None, log_dir=None, clock=path.clock)  # type: ignore[arg-type]
        chosen = engine or InlineCompaction(context, settings or InlineSettings())
        retries = Retries(TieringConfig(), path.clock)
        services = CopyServices(
            node_id=node_id,
            clock=path.clock,
            shards={0: Stepped(self.shard, step, "tier")},  # type: ignore[dict-item]
            metadata=Stepped(self.metadata, step, "add", "update", "list"),  # type: ignore[arg-type]
            remote_storage=Stepped(self.remote, step, "copy", "delete", "fetch_index"),  # type: ignore[arg-type]
            retries=retries,
            metrics=path.metrics,
        )
        return Compactor(
            CompactionServices(
                copies=services,
                objects=Stepped(path.objects, step, "get"),  # type: ignore[arg-type]
                backends=BackendSources(
                    objects=lambda: path.objects, remote_storage=lambda: self.remote, backoff=retries.backoff
                ),
                topic_of=lambda key: TopicTiering(topic="t", rules=self.rules, is_tiered=self.is_tiered),
                require_allowed=lambda: None,
                engine_of=lambda name: (name or "inline", chosen),
                parallel_partitions=parallel_partitions,
                producer_id_expiration_ms=60_000,
                driver_session_timeout_ms=SESSION_TIMEOUT_MS,
            )
        )

    async def compact(self, compactor: Compactor | None = None, *, everything: bool = True) -> JobReport:
        """Run a job to its end."""
        compactor = compactor or self.compactor()
        report = compactor.begin(CompactionRequest(everything=everything))
        await asyncio.gather(*compactor._tasks)
        return report

    async def produce(self, partition: int, *values: bytes, **batch: Any) -> None:
        """One batch in an object of its own."""
        [result] = await self.path.produce((partition, batch_of(*values, **batch)))
        base = result.base_offset
        self.produced.setdefault(partition, []).extend((base + index, value) for index, value in enumerate(values))

    async def fill(self, partition: int = 0, batches: int = 8) -> None:
        """Some batches, of which a few make a segment."""
        for index in range(batches):
            await self.produce(partition, b"%d" % index * 20, b"second %d" % index)

    # --- what is there -------------------------------------------------------------------------------------------

    def partition(self, partition: int = 0) -> TopicIdPartition:
        return TopicIdPartition(uuid.UUID(bytes=TOPIC), "t", partition)

    def tiered_ids(self, partition: int = 0) -> list[RemoteLogSegmentId]:
        tiered = self.shard.tiered(produced_key(partition))
        return [RemoteLogSegmentId(self.partition(partition), uuid.UUID(bytes=one.segment_id)) for one in tiered]

    async def records(self, partition: int = 0) -> list[tuple[int, bytes | None]]:
        """All that consumers can read from the log start on: from segments, then from WAL objects."""
        key = produced_key(partition)
        head = self.shard.head(key)
        if head is None:
            return []
        found: list[tuple[int, bytes | None]] = []
        next_offset: int | None = None
        for tiered, segment_id in zip(self.shard.tiered(key), self.tiered_ids(partition), strict=True):
            assert next_offset is None or tiered.start_offset == next_offset, "a gap between segments"
            next_offset = tiered.end_offset + 1
            stored = self.remote.segments[segment_id]
            assert stored.is_complete
            assert len(stored.log) == tiered.size_bytes
            found += [pair for pair in records_of(stored.log) if tiered.start_offset <= pair[0] <= tiered.end_offset]
        assert next_offset is None or next_offset == head.local_start_offset, "a gap before the WAL objects"
        offset = head.local_start_offset
        while runs := await self.shard.runs_from(key, offset):
            for read in await self.path.reader.read(runs):
                assert read.failure is None
                found += [pair for pair in records_of(read.data) if pair[0] >= offset]
            offset = runs[-1].last_offset + 1
        return [pair for pair in found if pair[0] >= head.log_start_offset]

    async def check(self, partition: int = 0) -> None:
        """Nothing is lost, nothing is there twice, all segments are whole."""
        head = self.shard.head(produced_key(partition))
        start = head.log_start_offset if head is not None else 2**62
        assert await self.records(partition) == [pair for pair in self.produced.get(partition, []) if pair[0] >= start]
        for segment_id in self.tiered_ids(partition):
            metadata = self.metadata.ledger.log(self.partition(partition)).get(segment_id)
            assert metadata is not None
            assert metadata.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
            self._check_indexes(metadata, self.remote.segments[segment_id])

    def _check_indexes(self, metadata: Any, stored: Any) -> None:
        indexer = SegmentIndexer(metadata.start_offset, interval_bytes=self.rules.index_interval_bytes)
        for _, header in record_batch.walk(stored.log):
            assert header.partition_leader_epoch == 0
            indexer.add(header)
        built = indexer.finish()
        assert built.end_offset == metadata.end_offset
        assert built.max_timestamp == metadata.max_timestamp_ms
        assert stored.indexes[IndexType.OFFSET] == built.offset_index
        assert stored.indexes[IndexType.TIMESTAMP] == built.time_index
        assert leader_epochs.decode(stored.indexes[IndexType.LEADER_EPOCH]) == {0: 0}
        producer_snapshot.decode(stored.indexes[IndexType.PRODUCER_SNAPSHOT])

    async def check_clean(self, partition: int = 0) -> None:
        """Remote storage and metadata have what the coordinator took, and nothing else."""
        await self.remove_below_log_start(partition)
        wanted = set(self.tiered_ids(partition))
        known = {one.segment_id for one in self.metadata.ledger.log(self.partition(partition)).segments()}
        stored = {one for one in self.remote.segments if one.topic_id_partition == self.partition(partition)}
        assert (known, stored) == (wanted, wanted)

    # --- what others do ------------------------------------------------------------------------------------------

    async def delete_records(self, offset: int, partition: int = 0) -> None:
        while True:
            try:
                await self.shard.delete_records(produced_key(partition), offset)
                return
            except CoordinatorError:
                await asyncio.sleep(0.1)

    async def delete_topic(self) -> None:
        """As the remover and the broker do it: the segments that are known, then the topic."""
        await self.remove_all()
        await self.shard.delete_topic(uuid.UUID(bytes=TOPIC))

    async def remove_all(self, partition: int = 0) -> None:
        for segment in self.metadata.ledger.log(self.partition(partition)).segments():
            await self._remove(segment)

    async def remove_below_log_start(self, partition: int = 0) -> None:
        """As the remover does it."""
        head = self.shard.head(produced_key(partition))
        for segment in self.metadata.ledger.log(self.partition(partition)).segments():
            if head is not None and segment.end_offset < head.log_start_offset:
                await self._remove(segment)

    async def _remove(self, segment: Any) -> None:
        for state in (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED):
            try:
                await self.metadata.update(
                    RemoteLogSegmentMetadataUpdate(
                        segment_id=segment.segment_id,
                        event_timestamp_ms=self.path.clock.now_ms(),
                        state=state,
                        broker_id=1,
                    )
                )
            except IllegalTransitionError:
                return
            if state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
                self.remote.segments.pop(segment.segment_id, None)


def records_of(log: Any) -> Sequence[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    for position, header in record_batch.walk(log):
        batch = log[position : position + header.size]
        assert record_batch.crc_is_valid(batch, 0, header)
        found += [(record.offset, record.value) for record in record_batch.records(batch)]
    return found


__all__ = ["RULES", "CompactionWorld", "Stepped", "key_of", "records_of"]
