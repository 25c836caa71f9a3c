"""The read path of one node, as a part: made from its settings and its neighbours.

A broker, the simulation, tests and benchmarks make it alike.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from diskless_core.background import Background
from diskless_core.clock import Clock
from diskless_core.config.broker import BrokerConfig
from diskless_core.coordinator.peers import PeerTransport
from diskless_core.diskless.clients import CoordinatorClients
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.purgatory import Purgatory
from diskless_core.diskless.shard import DisklessShard
from diskless_core.fetch.asking import AskedLeaders
from diskless_core.fetch.fetcher import Elsewhere, Fetcher, ShardFor
from diskless_core.fetch.object_cache import ObjectCache
from diskless_core.fetch.object_lender import ObjectLender
from diskless_core.fetch.object_reader import ObjectReader
from diskless_core.fetch.offset_range_check import CoordinatorFor, OffsetRangeCheck
from diskless_core.fetch.offsets import OffsetLookup
from diskless_core.fetch.peer_objects import PeerObjects
from diskless_core.fetch.read_ahead import ReadAhead
from diskless_core.fetch.segments import SegmentFetcher
from diskless_core.fetch.store_reads import StoreReads
from diskless_core.metrics import Metrics
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.tiering.segment_reader import SegmentReader
from diskless_core.tiering.segment_times import SegmentTimes

_LENDING_PART = 4
"""Of the cache: what may be on its way from the object store at once because other brokers asked for it."""

_READ_AHEAD_PART = 4
"""Of the cache: what is read ahead has to stay there until it is wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How much of the objects memory keeps, how much is read ahead, and how long a request waits for a segment."""

    cache_max_bytes: int
    read_ahead_max_bytes: int
    remote_max_wait_ms: int
    object_prefix: str = "wal"
    shares_cache: bool = True

    @classmethod
    def of(cls, config: BrokerConfig) -> FetchSettings:
        """The settings of a broker."""
        return cls(
            cache_max_bytes=config.diskless_fetch_cache_max_bytes,
            read_ahead_max_bytes=config.diskless_fetch_cache_max_bytes // _READ_AHEAD_PART,
            remote_max_wait_ms=config.remote_fetch_max_wait_ms,
            object_prefix=config.diskless_wal_object_prefix,
            shares_cache=config.diskless_peer_cache_enable,
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
class Rack:
    """The brokers that share a cache.

    Attributes:
        live: their node ids, this one's included while it is live; the same sequence while nothing has changed.
        new_transport: makes connections to them.
    """

    node_id: int
    live: Callable[[], Sequence[int]]
    new_transport: Callable[[], PeerTransport]


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
        rack: None on a node that is alone.
        clients: of the coordinators, for shards without a copy; None where the node has copies of all.
        want: has a shard followed for a while.
    """

    objects: WalObjectStore
    shards: Mapping[int, DisklessShard]
    replica_of: ShardFor
    coordinator_of: CoordinatorFor
    purgatory: Purgatory
    segments: SegmentReads | None = None
    rack: Rack | None = None
    clients: CoordinatorClients | None = None
    want: Callable[[DisklessShard], None] = lambda _: None
    clock: Clock
    metrics: Metrics


class Fetch:
    """From offsets, or timestamps, to batches.

    Attributes:
        fetcher: answers Fetch requests.
        reader: reads objects through the node's cache.
        lookup: finds offsets by time, for the shards.
        lender: answers other brokers that ask for what the cache has.
    """

    def __init__(self, settings: FetchSettings, neighbours: FetchNeighbours) -> None:
        metrics, segments = neighbours.metrics, neighbours.segments
        self._peers = _peers(settings, neighbours)
        self._reads = StoreReads(neighbours.objects)
        cache = ObjectCache(settings.cache_max_bytes, metrics)
        reader = self.reader = ObjectReader(self._reads, cache, metrics, self._peers)
        self.lender = ObjectLender(
            reader,
            object_prefix=settings.object_prefix,
            max_bytes=settings.cache_max_bytes // _LENDING_PART if self._peers is not None else 0,
            metrics=metrics,
        )
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
        self._leaders: AskedLeaders | None = None
        elsewhere: Elsewhere | None = None
        if neighbours.clients is not None:
            self._leaders = AskedLeaders(neighbours.clients, neighbours.purgatory, neighbours.clock)
            elsewhere = Elsewhere(self._leaders, neighbours.want)
        self.fetcher = Fetcher(
            neighbours.replica_of,
            offset_ranges,
            reader,
            self._read_ahead,
            neighbours.purgatory,
            neighbours.clock,
            metrics,
            segment_fetcher,
            elsewhere,
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

    def new_object_id(self) -> uuid.UUID:
        """An id for an object that this node is about to write."""
        return self._peers.new_object_id() if self._peers is not None else self._neighbours.clock.new_uuid()

    async def stop(self) -> None:
        """End the reads under way."""
        await self._loops.stop()
        if self._leaders is not None:
            await self._leaders.stop()
        await self._read_ahead.stop()
        if self._peers is not None:
            await self._peers.stop()
        await self.reader.stop()


def _peers(settings: FetchSettings, neighbours: FetchNeighbours) -> PeerObjects | None:
    rack = neighbours.rack
    if rack is None or not settings.shares_cache:
        return None
    return PeerObjects(rack.node_id, rack.live, rack.new_transport, neighbours.clock, neighbours.metrics)
