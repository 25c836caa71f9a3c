"""What is asked of a Diskless coordinator, wherever it is led (KIP-1164, "Diskless coordinator API").

`DisklessShard` answers from this node, `RemoteCoordinator` asks another one, `CoordinatorClient` whichever leads.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Protocol

from diskless_core.diskless.commands import (
    BatchResult,
    CommitFile,
    DeletedRecords,
    FoundRuns,
    HandOver,
    ListedOffset,
    PartitionKey,
)
from diskless_core.protocol.errors import ErrorCode

FIND_COORDINATOR_KEY_TYPE = 100
"""FindCoordinator's key type of a Diskless coordinator, whose key is its index. Kafka's own begin at 0."""


class DisklessCoordinator(Protocol):
    """One Diskless coordinator, wherever it is led.

    All methods raise a CoordinatorError when there is no answer: NotCoordinatorError and CoordinatorLoadingError when
    nothing happened, OutcomeUnknownError and CoordinatorError itself when it may have. Every command can be sent
    again as it is.
    """

    async def create_partitions(self, topic_id: uuid.UUID, name: str, partitions: Sequence[int]) -> None:
        """DisklessCreatePartitions: those that exist already stay as they are."""
        ...

    async def delete_topic(self, topic_id: uuid.UUID) -> ErrorCode:
        """DisklessDeleteTopics: UNKNOWN_TOPIC_ID when the coordinator has nothing of it."""
        ...

    async def commit_files(self, requests: Sequence[CommitFile]) -> list[list[BatchResult]]:
        """DisklessCommitFile: commit objects in this order, all or none of them.

        Returns, for each object, a result for each batch, in order. An object that is committed already, in this list
        or another one, gets its first answer.
        """
        ...

    async def delete_records(self, partition: PartitionKey, offset: int) -> DeletedRecords:
        """DisklessDeleteRecords: the partition begins at `offset` now, -1 standing for the high watermark."""
        ...

    async def list_offsets(self, partition: PartitionKey, timestamp: int) -> ListedOffset:
        """DisklessListOffsets, strictly: it reflects all that was committed before the call.

        Args:
            timestamp: in milliseconds since the epoch, or one of Kafka's special ones, which are negative.
        """
        ...

    async def find(self, partition: PartitionKey, offset: int, max_bytes: int) -> FoundRuns:
        """DisklessFindBatches, maybe stale: runs from the one that contains `offset` on, about `max_bytes` of them."""
        ...

    async def describe_files(self, object_keys: Sequence[str]) -> Mapping[str, bool]:
        """DisklessDescribeFiles, strictly: whether objects have live batches here.

        An object that never was committed here, nor is about to be, or that was forgotten, is not among them.
        """
        ...

    async def oldest_file_ms(self) -> int | None:
        """When the oldest object with live batches here was created, by its key, in milliseconds since the epoch."""
        ...

    async def raise_horizon(self, horizon_ms: int) -> None:
        """From now on no object is committed whose key says that it was created before. It never goes back."""
        ...

    async def hand_over(self, files: Sequence[HandOver]) -> None:
        """When it returns, the coordinator owns these objects, or had them and is through with them."""
        ...
