"""What does not follow at one broker may be preceded at another one yet: a gap is final only when it has stayed one."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from diskless_core.diskless.commands import BatchResult, CommitFile, PartitionKey
from diskless_core.metrics import Metrics
from diskless_core.produce import sequence_gaps
from diskless_core.produce.accumulator import Submission
from diskless_core.produce.part import Produce, ProduceNeighbours, ProduceSettings
from diskless_core.produce.sequence_gaps import PATIENCE_S, SequenceGaps
from diskless_core.produce.validation import ValidBatch
from diskless_core.produce.writer import WriterSettings
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from tests.support.guarantees import guarantee
from tests.support.shards import TOPIC, batch
from tests.support.virtual_time import VirtualClock, run

GAP = BatchResult(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message="does not follow")
KEY = PartitionKey(TOPIC, 0)


@dataclass
class Coordinator:
    """Refuses what it gets, as out of order, until it `follows`."""

    follows: bool = False

    async def commit_files(self, requests: Sequence[CommitFile]) -> list[list[BatchResult]]:
        result = BatchResult(base_offset=7) if self.follows else GAP
        return [[result] * len(request.batches) for request in requests]


def produce_path(coordinator: Coordinator, *, is_one_of_many: bool) -> Produce:
    clock = VirtualClock(asyncio.get_running_loop())
    writer = WriterSettings(
        commit_interval_ms=250,
        linger_ms=0,
        buffer_max_bytes=1 << 20,
        inflight_max_bytes=1 << 20,
        object_prefix="wal",
    )
    return Produce(
        ProduceSettings(writer=writer, upload_parallelism=4, shutdown_timeout_ms=60_000),
        ProduceNeighbours(
            node_id=1,
            objects=MemoryWalObjectStore(clock),
            coordinators={0: coordinator},  # type: ignore[dict-item]  # all that is asked for
            shard_of=lambda _: 0,
            is_awaited=lambda _: False,
            on_uploaded=lambda *_: None,
            is_one_of_many=is_one_of_many,
            new_object_id=uuid.uuid4,
            clock=clock,
            metrics=Metrics(),
        ),
    )


async def told(path: Produce, sequence: int = 5) -> ErrorCode:
    """What a producer hears of a batch."""
    answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def settle(outcome: Sequence[BatchResult] | BaseException) -> None:
        assert not isinstance(outcome, BaseException)
        answer.set_result(outcome[0].error)

    valid = ValidBatch(memoryview(bytes(100)), 1, 0, 0, 7, 0, sequence, 0)
    path.writer.append(Submission(batches=[(KEY, valid)], release=lambda: None, settle=settle))
    return await answer


@guarantee(
    "Idempotence",
    "Of two batches in flight by two brokers the later one, if it comes first, is refused so that all clients send it "
    "again: OUT_OF_ORDER_SEQUENCE_NUMBER would have librdkafka send with a new epoch what is under way elsewhere.",
)
def test_in_a_cluster_a_gap_is_sent_again_until_it_is_filled_or_has_stayed_one() -> None:
    async def main() -> None:
        coordinator, loop = Coordinator(), asyncio.get_running_loop()
        path = produce_path(coordinator, is_one_of_many=True)
        begun = loop.time()
        while loop.time() < begun + PATIENCE_S - 1:
            assert await told(path) is ErrorCode.NOT_ENOUGH_REPLICAS
            await asyncio.sleep(0.5)
        await asyncio.sleep(2)
        assert await told(path) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await told(path, sequence=6) is ErrorCode.NOT_ENOUGH_REPLICAS
        coordinator.follows = True
        assert await told(path) is ErrorCode.NONE

    run(main)


def test_where_there_is_one_broker_a_gap_is_of_the_clients_own_making() -> None:
    async def main() -> None:
        path = produce_path(Coordinator(), is_one_of_many=False)
        assert await told(path) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    run(main)


def test_only_gaps_are_told_otherwise_and_they_say_what_does_not_follow() -> None:
    async def main() -> None:
        gaps = SequenceGaps(VirtualClock(asyncio.get_running_loop()))
        fine, stale = BatchResult(base_offset=3), BatchResult(ErrorCode.INVALID_PRODUCER_EPOCH)
        batches = [batch(partition, producer=(7, 0, 5)) for partition in range(3)]
        found = gaps.judged(batches, [fine, GAP, stale])
        assert found == [fine, GAP._replace(error=ErrorCode.NOT_ENOUGH_REPLICAS), stale]
        unharmed = [fine, stale]
        assert gaps.judged(batches[:2], unharmed) == unharmed

    run(main)


class Refusals:
    """A broker that refuses whatever it is asked behind gaps."""

    def __init__(self) -> None:
        self.gaps = SequenceGaps(VirtualClock(asyncio.get_running_loop()))

    def told(self, sequence: int, result: BatchResult = GAP, *, producer: int = 7) -> ErrorCode:
        return self.gaps.judged([batch(0, producer=(producer, 0, sequence))], [result])[0].error

    async def retried(self, *sequences: int, for_s: float) -> set[ErrorCode]:
        """What is said in so long, with a retry a second."""
        said = set()
        for _ in range(int(for_s)):
            await asyncio.sleep(1)
            said |= {self.told(sequence) for sequence in sequences}
        return said


def test_a_gap_that_has_begun_to_fill_is_given_its_time_again() -> None:
    async def main() -> None:
        refusals = Refusals()
        assert await refusals.retried(6, 7, 8, for_s=PATIENCE_S - 1) == {ErrorCode.NOT_ENOUGH_REPLICAS}
        assert refusals.told(6, BatchResult(base_offset=3)) is ErrorCode.NONE
        assert await refusals.retried(7, 8, for_s=PATIENCE_S - 1) == {ErrorCode.NOT_ENOUGH_REPLICAS}
        await refusals.retried(7, 8, for_s=3)
        assert refusals.told(8) is ErrorCode.NOT_ENOUGH_REPLICAS, "the one before it may be at another broker yet"
        assert refusals.told(7) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    run(main)


def test_behind_a_batch_that_its_producer_has_given_up_the_next_one_becomes_final() -> None:
    async def main() -> None:
        refusals = Refusals()
        await refusals.retried(6, 7, for_s=PATIENCE_S - 5)
        await refusals.retried(7, for_s=PATIENCE_S - 1)
        assert refusals.told(7) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER in await refusals.retried(7, for_s=PATIENCE_S + 5)

    run(main)


def test_of_more_gaps_than_are_remembered_some_become_final_and_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence_gaps, "MOST", 20)

    async def main() -> None:
        refusals, waiting = Refusals(), set(range(30))
        for _ in range(4 * int(PATIENCE_S)):
            await asyncio.sleep(1)
            waiting -= {
                one for one in waiting if refusals.told(5, producer=one) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            }
        assert not waiting

    run(main)
