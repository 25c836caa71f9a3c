"""Tiered storage as a node has it, on fakes: beside a `ProducePath` that has been started."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

from diskless_core.config.tiering import TieringConfig
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadata
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.plugin.segment_compaction import BackendSources, SegmentCompaction
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.tiering.part import Tiering, TieringBackends, TieringNeighbours
from diskless_core.tiering.planning import TopicTiering
from diskless_core.tiering.retrying import Retries
from diskless_tiering.config import InlineSettings
from diskless_tiering.inline import InlineCompaction
from tests.support.produce_path import PARTITIONS, ProducePath
from tests.support.shards import TOPIC


class OneTopic:
    """All topics of a path, which is one. `tiering` says at any time what holds for its segments."""

    name = "t"
    topic_id = uuid.UUID(bytes=TOPIC)
    partition_count = PARTITIONS

    def __init__(self, shard: DisklessShard, tiering: Callable[[], TopicTiering]) -> None:
        self._shard = shard
        self._tiering = tiering

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        return self.name if topic_id == self.topic_id else None

    def id_of(self, name: str) -> uuid.UUID | None:
        return self.topic_id if name == self.name else None

    def all(self) -> Iterator[OneTopic]:
        yield self

    def by_name(self, name: str) -> OneTopic | None:
        return self if name == self.name else None

    def shard_of(self, partition: PartitionKey) -> int | None:
        return 0

    def replica_of(self, partition: PartitionKey) -> DisklessShard | None:
        return self._shard

    def tiering_of(self, partition: PartitionKey) -> TopicTiering | None:
        return self._tiering()


def tiering_on(
    path: ProducePath,
    settings: TieringConfig,
    tiering: Callable[[], TopicTiering],
    *,
    remote_storage: RemoteStorage,
    metadata: RemoteLogMetadata,
    objects: WalObjectStore | None = None,
    shard: DisklessShard | None = None,
    engine: SegmentCompaction | None = None,
    engine_settings: InlineSettings | None = None,
    sources: tuple[WalObjectStore, RemoteStorage] | None = None,
    node_id: int = 1,
) -> Tiering:
    """A node's tiered storage, as after a start of the node; it has not been started itself.

    Args:
        objects, shard: those of the path, if they are to be others.
        sources: what an engine in another process gets, if that is to be other than `objects` and `remote_storage`.
    """
    objects, shard = objects or path.objects, shard or path.node.shard
    for_others = sources or (objects, remote_storage)
    context = PluginContext(node_id=node_id, data_dir=None, log_dir=None, clock=path.clock)  # type: ignore[arg-type]
    chosen = engine or InlineCompaction(context, engine_settings or InlineSettings())
    backends = TieringBackends(
        objects=objects,
        remote_storage=remote_storage,
        metadata=metadata,
        sources=BackendSources(
            objects=lambda: for_others[0],
            remote_storage=lambda: for_others[1],
            backoff=Retries(settings, path.clock).backoff,
        ),
        engine_of=lambda name: (name or "inline", chosen),
    )
    neighbours = TieringNeighbours(
        node_id=node_id,
        cluster_id="c",
        cluster=path.node.shard,
        shards={0: shard},
        log=path.node.log,
        topics=OneTopic(shard, tiering),
        producer_id_expiration_ms=60_000,
        clock=path.clock,
        clock_watch=shard.clock_watch,
        metrics=path.metrics,
    )
    return Tiering(settings, backends, neighbours)
