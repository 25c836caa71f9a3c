"""Metadata of remote segments in memory, that fails, waits and loses answers when told to. Any event loop will do."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from diskless_core.plugin.remote_log_metadata import (
    IllegalTransitionError,
    RemoteLogMetadata,
    RemoteLogMetadataError,
    RemoteLogMetadataServices,
)
from diskless_core.remote_log.metadata import (
    RemoteLogMetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
    partition_of,
)
from diskless_core.remote_log.partition_log import PartitionLog
from diskless_core.remote_log.states import RemoteLogStateError, apply_deletion, is_over
from diskless_core.testing.fakes.faults import Misbehaving


class Operation(StrEnum):
    """What can be made to misbehave: `APPEND` of a ledger, the others of the metadata."""

    APPEND = "append"
    ADD = "add"
    UPDATE = "update"
    UPDATE_PARTITION = "update_partition"
    FIND = "find"
    HIGHEST_OFFSET = "highest_offset"
    LIST = "list"
    DELETING_PARTITIONS = "deleting_partitions"


def no_answer() -> RemoteLogMetadataError:
    """What a leader that is gone says: nothing. Retriable."""
    return RemoteLogMetadataError("injected: no answer")


class MemoryLedger(Misbehaving[Operation]):
    """A `RemoteLogLedger` in memory. Several nodes of a test, and a node after its restart, may share an instance.

    Attributes:
        events: all that changed anything, in order.
    """

    def __init__(self) -> None:
        super().__init__(Operation, no_answer)
        self.events: list[RemoteLogMetadataEvent] = []
        self._logs: dict[TopicIdPartition, PartitionLog] = {}
        self._deletions: dict[TopicIdPartition, RemotePartitionDeleteMetadata] = {}

    async def append(self, event: RemoteLogMetadataEvent) -> None:
        async with self._called(Operation.APPEND):
            self.take(event)

    def take(self, event: RemoteLogMetadataEvent) -> None:
        """`append` without any fault."""
        try:
            changed = self._apply(event)
        except RemoteLogStateError as error:
            raise IllegalTransitionError(str(error)) from error
        if changed:
            self.events.append(event)

    def log(self, partition: TopicIdPartition) -> PartitionLog:
        return self._logs.get(partition) or PartitionLog()

    def delete_states(self) -> Sequence[RemotePartitionDeleteMetadata]:
        return list(self._deletions.values())

    def _apply(self, event: RemoteLogMetadataEvent) -> bool:
        partition = partition_of(event)
        if not isinstance(event, RemotePartitionDeleteMetadata):
            return self._logs.setdefault(partition, PartitionLog()).apply(event)
        current = self._deletions.get(partition)
        changed = apply_deletion(current, event)
        if changed is None or changed is current:
            return False
        if is_over(changed):
            del self._deletions[partition]
        else:
            self._deletions[partition] = changed
        return True


class MemoryRemoteLogMetadata(Misbehaving[Operation], RemoteLogMetadata):
    """All of it in `ledger`, which another instance may share: another node, or this one after a restart."""

    def __init__(self, ledger: MemoryLedger | None = None) -> None:
        super().__init__(Operation, no_answer)
        self.ledger = ledger or MemoryLedger()

    async def start(self, services: RemoteLogMetadataServices) -> None:
        """Nothing to do: the broker's own ledger is left alone."""

    async def stop(self) -> None:
        """Nothing to do: what was noted is there for the next start."""

    async def add(self, metadata: RemoteLogSegmentMetadata) -> None:
        async with self._called(Operation.ADD):
            self.ledger.take(metadata)

    async def update(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        async with self._called(Operation.UPDATE):
            self.ledger.take(update)

    async def update_partition(self, update: RemotePartitionDeleteMetadata) -> None:
        async with self._called(Operation.UPDATE_PARTITION):
            self.ledger.take(update)

    async def find(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        async with self._called(Operation.FIND):
            return self.ledger.log(partition).find(leader_epoch, offset)

    async def highest_offset(self, partition: TopicIdPartition, leader_epoch: int) -> int | None:
        async with self._called(Operation.HIGHEST_OFFSET):
            return self.ledger.log(partition).highest_offset(leader_epoch)

    async def list(
        self, partition: TopicIdPartition, leader_epoch: int | None = None
    ) -> Sequence[RemoteLogSegmentMetadata]:
        async with self._called(Operation.LIST):
            return self.ledger.log(partition).segments(leader_epoch)

    async def deleting_partitions(self) -> Sequence[RemotePartitionDeleteMetadata]:
        async with self._called(Operation.DELETING_PARTITIONS):
            return self.ledger.delete_states()
