"""All Diskless coordinators together as the place where `remote_log_metadata` can keep its events.

(KIP-405, "RemoteLogMetadataManager".) Changes need the leader of the partition's coordinator to be this node; reads are
of this node's replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.tables import Key, Writes
from diskless_core.diskless import remote_segments
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.remote_segments import REMOTE_DELETIONS, REMOTE_SEGMENTS
from diskless_core.diskless.shard import DisklessShard
from diskless_core.plugin.remote_log_metadata import IllegalTransitionError, RemoteLogMetadataError
from diskless_core.remote_log.metadata import (
    RemoteLogMetadataEvent,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
    partition_of,
)
from diskless_core.remote_log.partition_log import PartitionLog
from diskless_core.remote_log.states import RemoteLogStateError

_EMPTY = PartitionLog()
_NO_SHARD = -1
_FIRST_SHARD = 0


class CoordinatorLedger:
    """A `RemoteLogLedger` on the shards of this node, which have been started."""

    def __init__(self, shards: Mapping[int, DisklessShard], shard_of: Callable[[PartitionKey], int | None]) -> None:
        self._shards = shards
        self._shard_of = shard_of
        self._logs: dict[Key, PartitionLog] = {}
        self._ids: dict[Key, RemoteLogSegmentId] = {}
        self._index_of: dict[Key, int] = {}
        for index, shard in shards.items():
            known = shard.state.rows(REMOTE_SEGMENTS)
            self._learn(index, known)
            shard.on_commit(partial(self._committed, index))

    async def append(self, event: RemoteLogMetadataEvent) -> None:
        shard = self._shards.get(self._coordinator_of(partition_of(event)))
        if shard is None:
            raise RemoteLogMetadataError(f"no coordinator has the partition {partition_of(event)}", retriable=False)
        try:
            await shard.submit(lambda command: remote_segments.append(command, event))
        except RemoteLogStateError as error:
            raise IllegalTransitionError(str(error)) from error
        except CoordinatorError as error:
            raise RemoteLogMetadataError(f"the coordinator gave no answer: {error}") from error

    def log(self, partition: TopicIdPartition) -> PartitionLog:
        return self._logs.get(remote_segments.key_of(partition), _EMPTY)

    def delete_states(self) -> Sequence[RemotePartitionDeleteMetadata]:
        return [deletion for shard in self._shards.values() for _, deletion in shard.state.rows(REMOTE_DELETIONS)]

    def leads(self, partition: TopicIdPartition) -> bool:
        """Whether this node sees to the segments of a partition that is deleted.

        It does if it leads the coordinator that has the last traces of it, or the first one where there are none.
        """
        index = self._coordinator_of(partition)
        shard = self._shards.get(_FIRST_SHARD if index == _NO_SHARD else index)
        return shard is not None and shard.leading

    def _coordinator_of(self, partition: TopicIdPartition) -> int:
        """The one that has segments of it, or their deletion: when the topic is gone, it is known by nothing else."""
        key = remote_segments.key_of(partition)
        known = self._index_of.get(key)
        if known is None:
            known = self._shard_of(PartitionKey(*key))
        if known is None:
            deleting = (
                index
                for index, shard in self._shards.items()
                if shard.state.committed(REMOTE_DELETIONS, key) is not None
            )
            known = next(deleting, _NO_SHARD)
        return known

    def _committed(self, index: int, writes: Writes) -> None:
        self._learn(index, writes.get(REMOTE_SEGMENTS, {}).items())

    def _learn(self, index: int, rows: Iterable[tuple[Key, RemoteLogSegmentMetadata | None]]) -> None:
        for key, metadata in rows:
            partition = key[:2]
            if metadata is None:
                self._forget(partition, key)
                continue
            self._index_of[partition] = index
            self._ids[key] = metadata.segment_id
            self._logs.setdefault(partition, PartitionLog()).put(metadata)

    def _forget(self, partition: Key, key: Key) -> None:
        segment_id = self._ids.pop(key, None)
        if segment_id is None:
            return
        log = self._logs[partition]
        log.forget(segment_id)
        if not len(log):
            del self._logs[partition], self._index_of[partition]
