"""Consumers that read while what they read is deleted."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.objects import Operation
from tests.support.guarantees import guarantee
from tests.support.produce_path import ProducePath, batch_of, key_of, records_of
from tests.support.shards import TOPIC
from tests.support.virtual_time import run


async def written(path: ProducePath) -> None:
    """Three objects: offsets 0 and 1 of partition 0, and offset 0 of partition 1."""
    for partition, value in ((0, b"a"), (0, b"b"), (1, b"c")):
        await path.produce((partition, batch_of(value)))


def keys_of(path: ProducePath) -> list[str]:
    return list(path.objects.objects)


@guarantee(
    "Deletion and retention",
    "Within the grace period a reader gets what it has found, though it was deleted meanwhile.",
)
def test_within_the_grace_period_a_reader_gets_what_it_has_found() -> None:
    async def main() -> None:
        async with ProducePath(cache_bytes=0) as path:
            await written(path)
            with path.objects.hold(Operation.GET) as hold:
                fetch = asyncio.create_task(path.fetch((0, 0)))
                await hold.reached()
                await path.node.shard.delete_records(key_of(0), -1)
                hold.release()
                [answer] = await fetch
            assert (answer.error, records_of(answer)) == (ErrorCode.NONE, [(0, b"a"), (1, b"b")])
            [again] = await path.fetch((0, 0))
            assert again.error is ErrorCode.OFFSET_OUT_OF_RANGE

    run(main)


@pytest.mark.parametrize("topic_goes", [False, True])
def test_a_reader_that_comes_too_late_is_told_why_and_other_partitions_do_not_suffer(topic_goes: bool) -> None:
    async def main() -> None:
        async with ProducePath(cache_bytes=0) as path:
            await written(path)
            gone = keys_of(path)[:2]
            with path.objects.hold(Operation.GET) as hold:
                fetch = asyncio.create_task(path.fetch((0, 0), (1, 0)))
                await hold.reached(3)
                if topic_goes:
                    await path.node.shard.delete_topic(uuid.UUID(bytes=TOPIC))
                else:
                    await path.node.shard.delete_records(key_of(0), -1)
                for key in gone:
                    del path.objects.objects[key]
                hold.release()
                late, other = await fetch
            expected = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic_goes else ErrorCode.OFFSET_OUT_OF_RANGE
            assert (late.error, late.records) == (expected, [])
            assert records_of(other) == [(0, b"c")]

    run(main)


@guarantee("Reads", "Only who asks for what was deleted is told that it is out of range.")
def test_a_reader_of_what_remains_is_not_told_to_reset_when_older_objects_go() -> None:
    async def main() -> None:
        async with ProducePath(cache_bytes=0) as path:
            await written(path)
            await path.node.shard.delete_records(key_of(0), 1)
            del path.objects.objects[keys_of(path)[0]]
            [answer] = await path.fetch((0, 1))
            assert (answer.error, records_of(answer)) == (ErrorCode.NONE, [(1, b"b")])
            assert answer.log_start_offset == 1

    run(main)


@guarantee("Reads", "Only who asks for what was deleted is told that it is out of range.")
def test_an_object_that_is_missing_though_it_is_live_is_no_reason_to_reset() -> None:
    async def main() -> None:
        async with ProducePath(cache_bytes=0) as path:
            await written(path)
            del path.objects.objects[keys_of(path)[0]]
            [answer] = await path.fetch((0, 0))
            assert answer.error not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE)

    run(main)


def test_what_was_deleted_leaves_the_cache_too() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            await written(path)
            for key in keys_of(path):
                path.reader.deleted(key)
            path.objects.objects.clear()
            await path.node.shard.delete_records(key_of(0), -1)
            [answer] = await path.fetch((1, 0))
            assert answer.error is not ErrorCode.NONE

    run(main)
