"""What of an object is committed with which coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from diskless_core.coordinator.errors import NotCoordinatorError
from diskless_core.diskless.commands import BatchResult, CommitBatch, CommitFile, PartitionKey
from diskless_core.metrics import Metrics
from diskless_core.produce.accumulator import Place, SealedFile, Submission
from diskless_core.produce.committer import Committer
from diskless_core.protocol.errors import ErrorCode
from tests.support.shards import batch, commit_of
from tests.support.virtual_time import VirtualClock, run


class Recorder:
    """A coordinator that gives each batch its partition's number as its offset."""

    def __init__(self) -> None:
        self.requests: list[CommitFile] = []

    async def commit_files(self, requests: Sequence[CommitFile]) -> list[list[BatchResult]]:
        return [await self.commit_one(request) for request in requests]

    async def commit_one(self, request: CommitFile) -> list[BatchResult]:
        self.requests.append(request)
        return [BatchResult(base_offset=one.partition) for one in request.batches]


def sealed(batches: Sequence[CommitBatch], committer: Committer) -> SealedFile:
    whole = Submission(batches=[], release=lambda: None, settle=lambda _: None)
    keys = (PartitionKey(one.topic_id, one.partition) for one in batches)
    places = [Place(whole, index, committer.owner_of(key)) for index, key in enumerate(keys)]
    return SealedFile(data=memoryview(b""), batches=list(batches), places=places)


async def commit(shards: dict[int, Recorder], batches: Sequence[CommitBatch]) -> list[BatchResult]:
    """Commit an object of which the partition's number is its shard's."""
    committer = Committer(
        node_id=1,
        coordinators=shards,  # type: ignore[arg-type]  # all that a committer asks for
        shard_of=lambda key: key.partition,
        clock=VirtualClock(asyncio.get_running_loop()),
        metrics=Metrics(),
    )
    file = sealed(batches, committer)
    parts = committer.take_tickets(file)
    whole = committer.whole("object", file, parts)
    answers = await asyncio.gather(*(committer.commit(whole, part) for part in parts))
    results: dict[int, BatchResult] = {}
    for part, answer in zip(parts, answers, strict=True):
        results |= zip(part.indexes, answer, strict=True)
    return [results[index] for index in range(len(batches))]


def test_each_coordinator_gets_its_batches_in_order_and_hears_of_all_owners() -> None:
    async def main() -> None:
        shards = {index: Recorder() for index in range(3)}
        batches = commit_of("object", *(batch(partition, size=size) for size, partition in enumerate((1, 0, 1, 0), 1)))
        results = await commit(shards, batches.batches)
        assert [result.base_offset for result in results] == [1, 0, 1, 0]
        [first], [second] = shards[0].requests, shards[1].requests
        assert [one.size for one in first.batches] == [2, 4]
        assert [one.size for one in second.batches] == [1, 3]
        assert first.owner_ids == second.owner_ids
        assert sorted(first.owner_ids) == [0, 1]
        assert shards[2].requests == []

    run(main)


def test_a_partition_of_a_coordinator_that_this_broker_was_not_told_of_takes_nothing_from_the_others() -> None:
    async def main() -> None:
        shards = {0: Recorder()}
        results = await commit(shards, commit_of("object", batch(0), batch(7)).batches)
        assert [result.error for result in results] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert [list(request.owner_ids) for request in shards[0].requests] == [[0]]

    run(main)


def test_a_defect_of_one_coordinator_is_told_to_its_batches_only() -> None:
    class Broken(Recorder):
        async def commit_one(self, request: CommitFile) -> list[BatchResult]:
            raise ZeroDivisionError

    class Slow(Recorder):
        async def commit_one(self, request: CommitFile) -> list[BatchResult]:
            await asyncio.sleep(1)
            if not self.requests:
                self.requests.append(request)
                raise NotCoordinatorError("it moved")
            return await super().commit_one(request)

    async def main() -> None:
        results = await commit({0: Broken(), 1: Slow()}, commit_of("object", batch(1), batch(0), batch(1)).batches)
        assert results == [
            BatchResult(base_offset=1),
            BatchResult(ErrorCode.KAFKA_STORAGE_ERROR),
            BatchResult(base_offset=1),
        ]

    run(main)
