"""Applies retention, every so often, to the partitions of the shards that this node leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from diskless_core.clock import Clock
from diskless_core.coordinator.client import DisklessShard
from diskless_core.coordinator.commands import PartitionKey
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.state import PartitionHead
from diskless_core.files.retention import RetentionRules, expired
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.protocol.errors import ErrorCode

RulesOf = Callable[[PartitionKey], RetentionRules | None]
"""The rules of a partition's topic; None when there is no such topic any more."""

_log = structlog.get_logger(__name__)


class RetentionWorker:
    """Kafka's retention check. A partition costs one look-up a round, and what is removed costs its pages of runs."""

    def __init__(
        self, shards: Mapping[int, DisklessShard], rules_of: RulesOf, check_interval_ms: int, clock: Clock
    ) -> None:
        self._shards = shards
        self._rules_of = rules_of
        self._check_interval_ms = check_interval_ms
        self._clock = clock

    async def run(self) -> None:
        """Check now, and again after each interval."""
        while True:
            await self.check()
            await asyncio.sleep(self._check_interval_ms / 1000)

    async def check(self) -> None:
        """One round over all partitions of the shards that this node leads now."""
        for shard in self._shards.values():
            if not shard.shard.leading:
                continue
            try:
                for partition, head in shard.heads().items():
                    await self._check_partition(shard, partition, head)
            except (CoordinatorError, CoordinatorStoreError) as error:
                _log.warning("retention is put off", shard=str(shard.shard.id), error=str(error))

    async def _check_partition(self, shard: DisklessShard, partition: PartitionKey, head: PartitionHead) -> None:
        rules = self._rules_of(partition)
        if rules is None or head.size_bytes == 0 or not rules.may_remove_from(head.size_bytes):
            return
        log_start_offset = await self._new_log_start(shard, partition, head, rules)
        if log_start_offset == head.log_start_offset:
            return
        deleted = await shard.delete_records(partition, log_start_offset)
        if deleted.error is ErrorCode.NONE:
            _log.info(
                "retention removed records",
                topic_id=partition.topic_id.hex(),
                partition=partition.partition,
                log_start_offset=deleted.log_start_offset,
            )

    async def _new_log_start(
        self, shard: DisklessShard, partition: PartitionKey, head: PartitionHead, rules: RetentionRules
    ) -> int:
        offset, size_bytes, now_ms = head.log_start_offset, head.size_bytes, self._clock.now_ms()
        while offset < head.next_offset:
            runs = await shard.runs_from(partition, offset)
            removed = expired(runs, size_bytes, rules, now_ms)
            if removed:
                offset = removed[-1].last_offset + 1
                size_bytes -= sum(run.byte_size for run in removed)
            if len(removed) < len(runs) or not runs:
                return offset
        return offset
