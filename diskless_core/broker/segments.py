"""Makes what reads and removes segments in remote storage, from a broker's configuration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from diskless_core.broker.tiering import TieringServices
from diskless_core.clock import Clock
from diskless_core.diskless.shard import DisklessShard
from diskless_core.fetch.object_reader import ObjectReader
from diskless_core.fetch.offset_range_check import OffsetRangeCheck
from diskless_core.fetch.segments import SegmentFetcher
from diskless_core.metrics import Metrics
from diskless_core.remote_log.metadata import TopicIdPartition
from diskless_core.tiering.index_cache import IndexCache
from diskless_core.tiering.leadership import LeadershipNews
from diskless_core.tiering.remote_reads import RemoteReads
from diskless_core.tiering.remover import RemoverServices, SegmentRemover
from diskless_core.tiering.retrying import Retries
from diskless_core.tiering.segment_reader import SegmentReader
from diskless_core.tiering.time_lookup import SegmentTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentReads:
    """How Fetch and ListOffsets get at what is in segments."""

    fetcher: SegmentFetcher
    times: SegmentTimes


def segment_reads(
    services: TieringServices,
    objects: ObjectReader,
    positions: OffsetRangeCheck,
    metrics: Metrics,
    stack: AsyncExitStack,
) -> SegmentReads:
    """Make the readers of segments; `stack` stops them."""
    settings = services.settings
    reads = RemoteReads(
        services.remote_storage,
        at_once=settings.remote_log_reader_threads,
        max_waiting=settings.remote_log_reader_max_pending_tasks,
        metrics=metrics,
    )
    indexes = IndexCache(reads, settings.remote_log_index_file_cache_total_size_bytes)
    reader = SegmentReader(services.metadata, reads, indexes, settings.diskless_segment_cache_max_bytes)
    stack.push_async_callback(reader.stop)
    return SegmentReads(
        fetcher=SegmentFetcher(
            reader, objects, positions, max_wait_ms=settings.remote_fetch_max_wait_ms, metrics=metrics
        ),
        times=SegmentTimes(reader),
    )


def segment_removal(
    services: TieringServices,
    shards: Mapping[int, DisklessShard],
    removes_here: Callable[[TopicIdPartition], bool],
    *,
    node_id: int,
    clock: Clock,
    metrics: Metrics,
) -> tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]:
    """The loops that remove segments and tell `remote_log_metadata` who leads what. To be run until the node stops."""
    retries = Retries(services.settings, clock)
    remover = SegmentRemover(
        RemoverServices(
            node_id=node_id,
            clock=clock,
            shards=shards,
            metadata=services.metadata,
            remote_storage=services.remote_storage,
            removes_here=removes_here,
            retries=retries,
            settings=services.settings,
            metrics=metrics,
        )
    )
    return remover.run, LeadershipNews(shards.values(), services.metadata, retries).run
