"""What is produced to a partition while its coordinator does not have it yet."""

from __future__ import annotations

import asyncio
import uuid

from diskless_core.produce.awaited_partitions import LOOK_S, UNWANTED_S
from diskless_core.protocol.errors import ErrorCode
from tests.support.guarantees import guarantee
from tests.support.produce_path import PARTITIONS, ProducePath, batch_of, key_of
from tests.support.shards import TOPIC
from tests.support.virtual_time import run

NEW = PARTITIONS
"""A partition that the cluster's metadata has and the coordinator has not."""

TIMEOUT_S = 30.0


class NewPartitionPath(ProducePath):
    async def __aenter__(self) -> NewPartitionPath:
        await super().__aenter__()
        self.awaited |= {key_of(NEW), key_of(NEW + 1)}
        return self

    async def create(self, partition: int) -> None:
        await self.node.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [partition])
        self.awaited.remove(key_of(partition))


def idempotent(sequence: int, *values: bytes) -> bytes:
    return batch_of(*values, producer_id=7, producer_epoch=0, base_sequence=sequence)


@guarantee(
    "Idempotence",
    "What a producer sends to a partition that is just being created is appended in the order in which it was sent: "
    "no batch is refused while a later one is accepted.",
)
def test_batches_wait_in_order_for_their_partition_to_be_created() -> None:
    async def main() -> None:
        async with NewPartitionPath() as path:
            first = path.produce((NEW, idempotent(0, b"a", b"b")))
            await asyncio.sleep(5)
            second = path.produce((NEW, idempotent(2, b"c")))
            assert not first.done()
            await path.create(NEW)
            third = path.produce((NEW, idempotent(3, b"d")))
            again = path.produce((NEW, idempotent(0, b"a", b"b")))
            results = [*await first, *await second, *await third, *await again]
            assert [(one.error, one.base_offset) for one in results] == [(ErrorCode.NONE, n) for n in (0, 2, 3, 0)]
            assert [value for _, value in await path.read(NEW)] == [b"a", b"b", b"c", b"d"]
            assert path.released == 4
            assert path.writer.backlog.size_bytes == 0

    run(main)


def test_a_partition_that_is_awaited_holds_up_no_other() -> None:
    async def main() -> None:
        async with NewPartitionPath() as path:
            mixed = path.produce(
                (0, batch_of(b"a")), (NEW, batch_of(b"n")), (0, batch_of(b"b")), (NEW + 1, batch_of(b"m"))
            )
            [after] = await path.produce((0, batch_of(b"c")))
            assert after.base_offset == 2, "what the other request has for this partition is in front of it"
            assert path.released == 2, "what waits does not keep the memory of its request"
            await path.create(NEW)
            await asyncio.sleep(1)
            assert [value for _, value in await path.read(NEW)] == [b"n"]
            assert not mixed.done()
            await path.create(NEW + 1)
            assert [one.base_offset for one in await mixed] == [0, 0, 1, 0]
            assert path.released == 2

    run(main)


def test_when_the_topic_is_gone_its_batches_are_refused_as_of_any_topic_that_is_gone() -> None:
    async def main() -> None:
        async with NewPartitionPath() as path:
            answer = path.produce((NEW, batch_of(b"a")))
            await asyncio.sleep(1)
            path.awaited.clear()
            [result] = await answer
            assert result.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(main)


def test_of_a_partition_that_never_comes_nothing_is_kept_once_nobody_waits_any_more() -> None:
    async def main() -> None:
        async with NewPartitionPath() as path:
            first = path.produce((NEW, idempotent(0, b"a")))
            await asyncio.sleep(TIMEOUT_S)
            second = path.produce((NEW, idempotent(1, b"b")))
            await asyncio.sleep(TIMEOUT_S + UNWANTED_S - 1)
            assert not first.done(), "the second one, which somebody waits for, must not pass it"
            await asyncio.sleep(1 + 2 * LOOK_S)
            assert [one.error for one in (*await first, *await second)] == [ErrorCode.REQUEST_TIMED_OUT] * 2
            assert (path.released, path.writer.backlog.size_bytes) == (2, 0)

    run(main)


def test_what_waits_counts_as_in_flight_and_lets_no_later_batch_in_before_it_is_appended() -> None:
    async def main() -> None:
        async with NewPartitionPath(inflight_max_bytes=1) as path:
            answers = [path.produce((NEW, batch_of(b"a")))]
            resumed = path.writer.backlog.wait_if_full(lambda: answers.append(path.produce((NEW, batch_of(b"b")))))
            assert resumed
            await path.create(NEW)
            await asyncio.sleep(1)
            assert [value for _, value in await path.read(NEW)] == [b"a", b"b"]

    run(main)
