"""Applies retention, every so often, to the partitions of the shards that this node leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import PartitionHead
from diskless_core.files.retention import Piece, RetentionRules, expired, piece_of_run, piece_of_segment
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.protocol.errors import ErrorCode
from diskless_core.side_by_side import together

RulesOf = Callable[[PartitionKey], RetentionRules | None]
"""The rules of a partition's topic; None when there is no such topic any more."""

PARALLEL_PARTITIONS = 8
"""Partitions of a shard that are looked at or trimmed at once, so that their log entries share a write."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSchedule:
    """When retention is checked: first `initial_delay_ms` after the start, then every `interval_ms`, as in Kafka."""

    initial_delay_ms: int
    interval_ms: int


class RetentionWorker:
    """Kafka's retention check, over segments and WAL objects.

    A partition that keeps its oldest segment or run costs no I/O, others the pages of runs that they lose.
    """

    def __init__(self, shards: Mapping[int, DisklessShard], rules_of: RulesOf, schedule: RetentionSchedule) -> None:
        self._shards = shards
        self._rules_of = rules_of
        self._schedule = schedule
        self._oldest: dict[PartitionKey, Piece] = {}

    async def run(self) -> None:
        """Check again and again, the first time after the initial delay."""
        await asyncio.sleep(self._schedule.initial_delay_ms / 1000)
        while True:
            await self.check()
            await asyncio.sleep(self._schedule.interval_ms / 1000)

    async def check(self) -> None:
        """One round over all partitions of the shards that this node leads now."""
        known, self._oldest = self._oldest, {}
        for shard in self._shards.values():
            if shard.leading:
                await self._check_shard(shard, known)

    async def _check_shard(self, shard: DisklessShard, known: Mapping[PartitionKey, Piece]) -> None:
        partitions = iter(list(shard.heads()))
        shortened: list[PartitionKey] = []

        async def work() -> None:
            for partition in partitions:
                await asyncio.sleep(0)
                if await self._check_partition(shard, partition, known.get(partition)):
                    shortened.append(partition)

        try:
            await together(work() for _ in range(PARALLEL_PARTITIONS))
        except (CoordinatorError, CoordinatorStoreError) as error:
            _log.warning("retention is put off", shard=str(shard.id), error=str(error))
        if shortened:
            _log.info("retention removed records", shard=str(shard.id), partitions=len(shortened))

    async def _check_partition(self, shard: DisklessShard, partition: PartitionKey, oldest: Piece | None) -> bool:
        """Remove what has to go of one partition. Whether there was anything.

        Args:
            oldest: what was the partition's oldest piece at the last check.
        """
        head, rules = shard.head(partition), self._rules_of(partition)
        if head is None or rules is None or not rules.may_remove_from(head.size_bytes):
            return False
        if oldest is not None and oldest.base_offset <= head.log_start_offset <= oldest.last_offset:
            self._oldest[partition] = oldest
            if not rules.removes(oldest, head.size_bytes, shard.clock_watch.passed()):
                return False
        log_start_offset = await self._new_log_start(shard, partition, head, rules)
        if log_start_offset == head.log_start_offset:
            return False
        deleted = await shard.delete_records(partition, log_start_offset)
        return deleted.error is ErrorCode.NONE

    async def _new_log_start(
        self, shard: DisklessShard, partition: PartitionKey, head: PartitionHead, rules: RetentionRules
    ) -> int:
        """Where the partition has to begin, as far as that is known of the partition of this head."""
        offset, size_bytes, passed = head.log_start_offset, head.size_bytes, shard.clock_watch.passed()
        pieces = [piece_of_segment(segment, head.max_timestamp) for segment in shard.tiered(partition)]
        while True:
            removed = expired(pieces, size_bytes, rules, passed)
            if removed:
                offset = removed[-1].last_offset + 1
                size_bytes -= sum(piece.size_bytes for piece in removed)
            if len(removed) < len(pieces):
                self._oldest[partition] = pieces[len(removed)]
                return offset
            runs = await shard.runs_from(partition, max(offset, head.local_start_offset))
            if not runs or _begins(shard.head(partition)) != _begins(head):
                return offset  # runs may be missing between those before and these: the next check sees what is there
            pieces = [piece_of_run(run) for run in runs]


def _begins(head: PartitionHead | None) -> tuple[int, int] | None:
    return None if head is None else (head.log_start_offset, head.local_start_offset)
