"""DeleteRecords on a shard: where a partition begins, what is left to read, and how large it counts."""

from __future__ import annotations

import asyncio

import pytest

from diskless_core.diskless.commands import DeletedRecords, PartitionKey
from diskless_core.diskless.tables import PartitionHead
from diskless_core.protocol.errors import ErrorCode
from tests.support.file_life import FileLife
from tests.support.shards import BATCH_BYTES, TOPIC, batch, commit_of
from tests.support.virtual_time import run

P0 = PartitionKey(TOPIC, 0)
OK, OUT_OF_RANGE = ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE


async def written(life: FileLife) -> None:
    """Offsets 0 to 8 of partition 0 in three objects, three records in each batch."""
    await life.create_topic()
    for key in "abc":
        await life.put(key, batch(count=3))


def head_of(life: FileLife) -> PartitionHead:
    head = life.nodes[0].shard.head(P0)
    assert head is not None
    return head


@pytest.mark.parametrize(
    ("offset", "answer"),
    [
        (-1, DeletedRecords(OK, 9)),
        (9, DeletedRecords(OK, 9)),
        (0, DeletedRecords(OK, 3)),
        (3, DeletedRecords(OK, 3)),
        (4, DeletedRecords(OK, 4)),
        (6, DeletedRecords(OK, 6)),
        (10, DeletedRecords(OUT_OF_RANGE, -1)),
        (2**63 - 1, DeletedRecords(OUT_OF_RANGE, -1)),
        (-2, DeletedRecords(OUT_OF_RANGE, -1)),
        (-(2**63), DeletedRecords(OUT_OF_RANGE, -1)),
    ],
)
def test_the_log_start_moves_up_to_the_high_watermark_and_never_back(offset: int, answer: DeletedRecords) -> None:
    async def main() -> None:
        async with FileLife() as life:
            await written(life)
            await life.delete_records(3)
            assert await life.nodes[0].shard.delete_records(P0, offset) == answer
            head = head_of(life)
            assert (head.log_start_offset, head.next_offset) == (max(3, answer.log_start_offset), 9)

    run(main)


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize(("offset", "batches"), [(0, 3), (2, 3), (3, 2), (5, 2), (8, 1), (9, 0)])
def test_a_batch_that_keeps_a_record_is_kept_and_counts_in_the_size(offset: int, batches: int, flushed: bool) -> None:
    async def main() -> None:
        async with FileLife() as life:
            await written(life)
            if flushed:
                await life.restart()
            await life.delete_records(offset)
            assert head_of(life).size_bytes == batches * BATCH_BYTES
            assert [run.object_key for run in await life.live_runs()] == list("abc")[3 - batches :]
            await life.restart(with_empty_stores=True)
            assert head_of(life).size_bytes == batches * BATCH_BYTES

    run(main)


def test_a_partition_all_of_which_was_deleted_goes_on_at_its_high_watermark() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await written(life)
            await life.delete_records()
            [result] = await life.nodes[0].commit(commit_of("d", batch(count=2)))
            assert (result.error, result.base_offset) == (OK, 9)
            assert (head_of(life).log_start_offset, head_of(life).size_bytes) == (9, BATCH_BYTES)

    run(main)


def test_what_lies_below_the_log_start_is_out_of_range_for_readers() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await written(life)
            await life.delete_records(4)
            shard = life.nodes[0].shard
            for offset, error in ((3, OUT_OF_RANGE), (4, OK), (9, OK)):
                found = await shard.find(P0, offset, 1)
                assert (found.error, found.log_start_offset, found.high_watermark) == (error, 4, 9)

    run(main)


def test_a_partition_that_is_not_there_has_no_records_to_delete() -> None:
    async def main() -> None:
        async with FileLife() as life:
            answer = await life.nodes[0].shard.delete_records(P0, -1)
            assert answer == DeletedRecords(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)

    run(main)


def test_deletions_that_overlap_end_at_the_greatest_offset() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await written(life)
            life.shared.hold_high_watermark(life.nodes[0].shard_id)
            asks = [asyncio.create_task(life.nodes[0].shard.delete_records(P0, offset)) for offset in (7, 2, -1, 5)]
            await asyncio.sleep(0.1)
            assert head_of(life).log_start_offset == 0
            life.shared.release_high_watermark(life.nodes[0].shard_id)
            answers = await asyncio.gather(*asks)
            assert [answer.log_start_offset for answer in answers] == [7, 7, 9, 9]
            assert head_of(life).size_bytes == 0

    run(main)
