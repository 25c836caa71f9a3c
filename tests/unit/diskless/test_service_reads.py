"""How often a coordinator is searched for another broker that waits."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from diskless_core.diskless.attempts import Attempt
from diskless_core.diskless.commands import FoundRuns, PartitionKey
from diskless_core.diskless.purgatory import Purgatory
from diskless_core.diskless.service_reads import CoordinatorReads
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import DisklessFindBatchesRequest
from diskless_core.wal.runs import Run
from tests.support.shards import TOPIC
from tests.support.virtual_time import VirtualClock, run

KEY = PartitionKey(TOPIC, 0)


class Searched:
    """A coordinator in which there is one run, from some moment on."""

    def __init__(self) -> None:
        self.searches = 0
        self.runs: list[Run] = []

    async def ask(self, index: int, question: Callable[[Any], Awaitable[Any]], timeout_ms: int) -> Attempt[Any]:
        self.searches += 1
        return Attempt(FoundRuns(ErrorCode.NONE, 0, len(self.runs), self.runs, 0))


def find_batches(max_wait_ms: int) -> DisklessFindBatchesRequest:
    topic_class = DisklessFindBatchesRequest.DisklessFindBatchesTopic
    asked = topic_class.DisklessFindBatchesPartition(partition_index=0, offset=0, max_partition_fetch_bytes=1 << 20)
    topic = topic_class(topic_id=uuid.UUID(bytes=TOPIC), partitions=[asked])
    return DisklessFindBatchesRequest(
        fetch_max_bytes=1 << 20, max_batches_per_partition=10, topics=[topic], shard=0, max_wait_ms=max_wait_ms
    )


def test_a_search_for_another_broker_that_has_to_wait_looks_once_before_it_waits() -> None:
    async def main() -> None:
        coordinator, purgatory = Searched(), Purgatory()
        reads = CoordinatorReads(coordinator, purgatory, VirtualClock(asyncio.get_running_loop()))
        waiting = asyncio.create_task(reads.find_batches(find_batches(max_wait_ms=15_000)))
        await asyncio.sleep(1)
        assert coordinator.searches == 1
        coordinator.runs.append(Run(0, 0, "object", 16, 100, 1, 1, 0))
        purgatory.wake([KEY])
        [topic] = (await waiting).topics
        assert len(topic.partitions[0].batches) == 1
        assert coordinator.searches == 2

    run(main)
