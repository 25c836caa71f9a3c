"""The read path of one node, as a part: made from its settings and its neighbours.

A broker, the simulation, tests and benchmarks make it alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from diskless_core.background import Background
from diskless_core.clock import Clock
from diskless_core.config.broker import BrokerConfig
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.purgatory import Purgatory
from diskless_core.diskless.shard import DisklessShard
from diskless_core.fetch.fetcher import Fetcher, ShardFor
from diskless_core.fetch.object_cache import ObjectCache
from diskless_core.fetch.object_reader import ObjectReader
from diskless_core.fetch.offset_range_check import CoordinatorFor, OffsetRangeCheck
from diskless_core.fetch.offsets import OffsetLookup
from diskless_core.fetch.read_ahead import ReadAhead
from diskless_core.fetch.segments import SegmentFetcher
from diskless_core.fetch.store_reads import StoreReads
from diskless_core.metrics import Metrics
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.tiering.segment_reader import SegmentReader
from diskless_core.tiering.segment_times import SegmentTimes

_READ_AHEAD_PART = 4
"""Of the cache: what is read ahead has to stay there until it is wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How much of the objects memory keeps, how much is read ahead, and how long a request waits for a segment."""

    cache_max_bytes: int
    read_ahead_max_bytes: int
    remote_max_wait_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> FetchSettings:
        """The settings of a broker."""
        return cls(
            cache_max_bytes=config.diskless_fetch_cache_max_bytes,
            read_ahead_max_bytes=config.diskless_fetch_cache_max_bytes // _READ_AHEAD_PART,
            remote_max_wait_ms=config.remote_fetch_max_wait_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentReads:
    """What of tiered storage reads the segments of partitions.

    Attributes:
        is_tiered: whether a partition's topic is compacted periodically.
    """

    reader: SegmentReader
    times: SegmentTimes
    is_tiered: Callable[[PartitionKey], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchNeighbours:
    """What the read path stands on.

    Attributes:
        objects: the store that objects are read from, started by others.
        shards: the Diskless shards with a replica on this node.
        replica_of: the one of them that a partition belongs to.
        coordinator_of: who decides about a partition, wherever it is led.
        purgatory: where requests wait.
        segments: None on a node without tiered storage.
    """

    objects: WalObjectStore
    shards: Mapping[int, DisklessShard]
    replica_of: ShardFor
    coordinator_of: CoordinatorFor
    purgatory: Purgatory
    segments: SegmentReads | None = None
    clock: Clock
    metrics: Metrics


class Fetch:
    """From offsets, or timestamps, to batches.

    Attributes:
        fetcher: answers Fetch requests.
        reader: reads objects through the node's cache.
        lookup: finds offsets by time, for the shards.
    """

    def __init__(self, settings: FetchSettings, neighbours: FetchNeighbours) -> None:
        metrics, segments = neighbours.metrics, neighbours.segments
        self._reads = StoreReads(neighbours.objects)
        reader = self.reader = ObjectReader(self._reads, ObjectCache(settings.cache_max_bytes, metrics), metrics)
        self._loops = Background()
        self._read_ahead = ReadAhead(reader, settings.read_ahead_max_bytes)
        self._neighbours = neighbours
        offset_ranges = OffsetRangeCheck(neighbours.coordinator_of)
        segment_fetcher, self.lookup = None, OffsetLookup(reader)
        if segments is not None:
            segment_fetcher = SegmentFetcher(
                segments.reader,
                reader,
                offset_ranges,
                max_wait_ms=settings.remote_max_wait_ms,
                clock=neighbours.clock,
                metrics=metrics,
            )
            self.lookup = OffsetLookup(reader, segments.times, segments.is_tiered)
        self.fetcher = Fetcher(
            neighbours.replica_of,
            offset_ranges,
            reader,
            self._read_ahead,
            neighbours.purgatory,
            neighbours.clock,
            metrics,
            segment_fetcher,
        )

    def start(self) -> None:
        """From now on the shards wake waiting requests, and answer ListOffsets."""
        for shard in self._neighbours.shards.values():
            shard.on_head_moved(self._neighbours.purgatory.wake)
            shard.find_offsets_with(self.lookup.list)
        self._loops.run(self._reads.probe, "reads of an object store that has failed")

    @property
    def failing(self) -> str | None:
        """Why the object store does not answer reads; see `StoreReads.failing`."""
        return self._reads.failing

    async def stop(self) -> None:
        """End what is being read ahead."""
        await self._loops.stop()
        await self._read_ahead.stop()
