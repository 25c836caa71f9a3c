"""Whether a position exists that this node's replica does not have yet: the coordinator is asked, wherever it is led.

A consumer answers OFFSET_OUT_OF_RANGE by starting somewhere else, so a replica that lags must not send it.
"""

from __future__ import annotations

from collections.abc import Callable

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.api import DisklessCoordinator
from diskless_core.diskless.commands import FoundRuns, PartitionKey, SpecialTimestamp
from diskless_core.protocol.errors import ErrorCode

CoordinatorFor = Callable[[PartitionKey], DisklessCoordinator | None]


class OffsetRangeCheck:
    """Looks twice at what a replica takes for out of range."""

    def __init__(self, coordinator_for: CoordinatorFor) -> None:
        self._coordinator_for = coordinator_for

    async def checked(self, partition: PartitionKey, offset: int, found: FoundRuns) -> FoundRuns:
        """What a client is told of `offset`, of which a replica has said `found`.

        A position between the replica's high watermark and the true one is empty as yet. Where that cannot be said,
        it is OFFSET_NOT_AVAILABLE, after which a consumer asks again. Below the log start, a replica is always right.
        """
        if found.error is not ErrorCode.OFFSET_OUT_OF_RANGE or offset <= found.high_watermark:
            return found
        coordinator = self._coordinator_for(partition)
        if coordinator is None:
            return FoundRuns(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            latest = await coordinator.list_offsets(partition, SpecialTimestamp.LATEST)
        except CoordinatorError:
            return found._replace(error=ErrorCode.OFFSET_NOT_AVAILABLE)
        if latest.error is not ErrorCode.NONE:
            return found._replace(error=latest.error)
        return found if offset > latest.offset else found._replace(error=ErrorCode.NONE)

    async def is_deleted(self, partition: PartitionKey, offset: int) -> bool:
        """Whether `offset` is surely below the log start by now, for a replica whose object is missing at it."""
        coordinator = self._coordinator_for(partition)
        if coordinator is None:
            return False
        try:
            earliest = await coordinator.list_offsets(partition, SpecialTimestamp.EARLIEST)
        except CoordinatorError:
            return False
        return earliest.error is ErrorCode.NONE and offset < earliest.offset
