"""What is promised to readers: where reading begins and ends, what a budget means, waiting, and broken objects."""

from __future__ import annotations

import asyncio
import time

import pytest

from diskless_core.protocol.errors import ErrorCode
from tests.support.batches import batch_of, batch_ranges, read_values
from tests.support.guarantees import guarantee
from tests.support.produce_path import ProducePath, records_of
from tests.support.produce_path import batch_of as recent_batch_of
from tests.support.requests import append, create_topic, fetch, fetch_request, list_offset, produce, produce_request
from tests.support.shards import SHARD_ID
from tests.support.virtual_time import run

OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)
LONG_WAIT_MS = 240_000
WELL_BEFORE_S = 120.0
"""Far less than the wait that was asked for, far more than a busy machine needs."""


def fill(wire, topic, partition=0, count=5, size=1000):
    """Batches of two records each; the size of one batch comes back."""
    batch = batch_of(b"x" * size, b"y" * size)
    append(wire, topic, *[batch] * count, partition=partition)
    return len(batch)


@guarantee("Reads", "A fetch offset inside a batch returns that whole batch.")
@pytest.mark.parametrize(
    ("offset", "first"), [(0, 0), (1, 0), (2, 2), (5, 4), (8, 8), (9, 8)], ids=lambda value: str(value)
)
def test_an_offset_inside_a_batch_returns_that_whole_batch(wire, topic, offset, first):
    create_topic(wire, topic)
    fill(wire, topic)

    fetched = fetch(wire, topic, offset)

    assert batch_ranges(fetched.records) == [(base, base + 1) for base in range(first, 10, 2)]
    assert (fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset) == (10, 10, 0)


@guarantee(
    "Reads",
    "An offset beyond the end, below the log start or below 0 is answered at once with OFFSET_OUT_OF_RANGE.",
)
@pytest.mark.parametrize("offset", [-1, 3, 2**62])
def test_an_offset_beyond_the_log_end_or_negative_is_out_of_range(wire, topic, offset):
    create_topic(wire, topic)
    append(wire, topic, batch_of(b"a", b"b"))

    fetched = fetch(wire, topic, offset, max_wait_ms=LONG_WAIT_MS)

    assert fetched.error_code == OUT_OF_RANGE
    assert not fetched.records


@guarantee("Reads", "A fetch at the high watermark waits, and is answered without an error when there is nothing new.")
def test_at_the_high_watermark_nothing_comes_when_the_wait_is_over(wire, topic):
    create_topic(wire, topic)
    append(wire, topic, batch_of(b"a"))
    began = time.monotonic()

    fetched = fetch(wire, topic, 1, max_wait_ms=200)

    assert time.monotonic() - began >= 0.19
    assert (fetched.error_code, fetched.high_watermark) == (0, 1)
    assert fetched.records is not None
    assert bytes(fetched.records) == b""


@guarantee("Reads", "A waiting fetch is answered as soon as there is enough.")
def test_a_waiting_fetch_is_woken_by_the_commit(broker, wire, topic):
    create_topic(wire, topic)
    with broker.connect() as producer:
        wire.send(fetch_request(topic, {0: 0}, max_wait_ms=LONG_WAIT_MS), 12)
        began = time.monotonic()
        append(producer, topic, batch_of(b"news"))

        fetched = wire.receive().responses[0].partitions[0]

    assert time.monotonic() - began < WELL_BEFORE_S
    assert read_values(fetched.records) == [b"news"]


@guarantee("Reads", "A waiting fetch is answered as soon as there is enough.")
def test_a_waiting_fetch_is_woken_by_any_of_its_partitions(broker, wire, topic):
    create_topic(wire, topic, 3)
    with broker.connect() as producer:
        wire.send(fetch_request(topic, {0: 0, 1: 0, 2: 0}, max_wait_ms=LONG_WAIT_MS), 12)
        append(producer, topic, batch_of(b"news"), partition=2)

        partitions = wire.receive().responses[0].partitions

    assert [read_values(answer.records) for answer in partitions] == [[], [], [b"news"]]


@guarantee("Reads", "A waiting fetch is answered as soon as there is enough.")
def test_min_bytes_are_waited_for(broker, wire, topic):
    create_topic(wire, topic)
    with broker.connect() as producer:
        size = fill(producer, topic, count=1)
        wire.send(fetch_request(topic, {0: 0}, max_wait_ms=LONG_WAIT_MS, min_bytes=3 * size), 12)
        fill(producer, topic, count=2)

        fetched = wire.receive().responses[0].partitions[0]

    assert len(fetched.records) == 3 * size


@guarantee("Reads", "What there is comes when the wait is over, though it is less than was asked for.")
def test_less_than_min_bytes_come_when_the_wait_is_over(wire, topic):
    create_topic(wire, topic)
    size = fill(wire, topic, count=1)

    fetched = fetch(wire, topic, 0, max_wait_ms=100, min_bytes=10 * size)

    assert len(fetched.records) == size


@guarantee("Reads", "A fetch that asks for 0 bytes at least is answered at once.")
def test_min_bytes_0_is_answered_at_once(wire, topic):
    create_topic(wire, topic)
    began = time.monotonic()

    assert not fetch(wire, topic, 0, max_wait_ms=LONG_WAIT_MS, min_bytes=0).records
    assert time.monotonic() - began < WELL_BEFORE_S


@guarantee("Reads", "An error in one partition is not held back by the others.")
def test_an_error_in_one_partition_is_not_held_back(wire, topic):
    create_topic(wire, topic)
    began = time.monotonic()

    response = wire.call(fetch_request(topic, {0: 0, 5: 0}, max_wait_ms=LONG_WAIT_MS), 12)

    assert [answer.error_code for answer in response.responses[0].partitions] == [0, 3]
    assert time.monotonic() - began < WELL_BEFORE_S


@guarantee("Reads", "A partition gets whole batches within its limit.")
def test_a_partition_gets_whole_batches_within_its_limit(wire, topic):
    create_topic(wire, topic)
    size = fill(wire, topic)

    fetched = fetch(wire, topic, 0, partition_max_bytes=3 * size - 1)

    assert batch_ranges(fetched.records) == [(0, 1), (2, 3)]


@guarantee("Reads", "A request gets at least one batch, even over budget.")
@pytest.mark.parametrize("limits", [{"max_bytes": 1}, {"partition_max_bytes": 1}, {"max_bytes": 0}])
def test_one_batch_is_returned_even_over_budget(wire, topic, limits):
    create_topic(wire, topic)
    fill(wire, topic)

    assert batch_ranges(fetch(wire, topic, 3, **limits).records) == [(2, 3)]


@guarantee("Reads", "Partitions that the budget does not reach are empty, with their true watermarks.")
def test_partitions_beyond_the_budget_are_empty_with_their_true_watermarks(wire, topic):
    create_topic(wire, topic, 3)
    size, _, _ = (fill(wire, topic, partition, count=partition + 1) for partition in range(3))

    answers = wire.call(fetch_request(topic, {0: 0, 1: 0, 2: 0}, max_bytes=size), 12).responses[0].partitions

    assert [batch_ranges(answer.records) for answer in answers] == [[(0, 1)], [], []]
    assert [(answer.error_code, answer.high_watermark) for answer in answers] == [(0, 2), (0, 4), (0, 6)]


@guarantee("Reads", "What the budget did not reach comes first the next time.")
def test_what_the_budget_did_not_reach_comes_first_the_next_time(wire, topic):
    create_topic(wire, topic, 3)
    for partition in range(3):
        fill(wire, topic, partition)
    request = fetch_request(topic, {0: 0, 1: 0, 2: 0}, max_bytes=1)

    served = []
    for _ in range(6):
        answers = wire.call(request, 12).responses[0].partitions
        served += [answer.partition_index for answer in answers if answer.records]

    assert served == [0, 1, 2, 0, 1, 2]


@guarantee("Reads", "Neither a broken partition nor one without news uses up the one batch that a request gets.")
def test_broken_and_caught_up_partitions_do_not_use_up_the_one_batch(wire, topic):
    create_topic(wire, topic, 3)
    fill(wire, topic, 0, count=1)
    fill(wire, topic, 2, count=2)

    request = fetch_request(topic, [(9, 0), (0, 2), (1, 5), (2, 0)], max_bytes=1)
    answers = wire.call(request, 12).responses[0].partitions

    assert [answer.error_code for answer in answers] == [3, 0, OUT_OF_RANGE, 0]
    assert batch_ranges(answers[3].records) == [(0, 1)]


@guarantee("Offsets", "That adjacent batches are kept as one run changes no answer of a write and none of a read.")
def test_coalesced_batches_read_as_they_were_written(wire, topic):
    create_topic(wire, topic)
    batches = [batch_of(*[b"%d" % number] * (number + 1)) for number in range(4)]
    wire.send_together(*(produce_request(topic, {0: batch}) for batch in batches), version=9)
    offsets = [wire.receive().responses[0].partition_responses[0].base_offset for _ in batches]

    assert offsets == [0, 1, 3, 6]
    for offset, first in [(0, 0), (2, 1), (5, 3), (9, 6)]:
        assert batch_ranges(fetch(wire, topic, offset).records)[0][0] == first
    assert [batch_ranges(fetch(wire, topic, offset, max_bytes=1).records) for offset in (1, 4)] == [[(1, 2)], [(3, 5)]]


@guarantee("Reads", "Everything that was acknowledged is read after a kill -9.")
def test_everything_acknowledged_is_read_after_a_kill(new_broker, topic):
    broker = new_broker({"diskless.fetch.cache.max.bytes": "0"})
    with broker.connect() as wire:
        create_topic(wire, topic, 2)
        for number in range(20):
            append(wire, topic, batch_of(b"%d" % number), partition=number % 2)
    broker.kill()
    broker.start()
    with broker.connect() as wire:
        read = [read_values(fetch(wire, topic, 0, partition).records) for partition in range(2)]
        assert read == [[b"%d" % number for number in range(partition, 20, 2)] for partition in range(2)]
        assert list_offset(wire, topic, -1).offset == 10
        assert produce(wire, topic, batch_of(b"next")).base_offset == 10


@guarantee("Reads", "An object that is missing or damaged fails its partition only.")
def test_a_missing_object_fails_its_partition_only(new_broker, topic, tmp_path):
    objects = tmp_path / "objects"
    broker = new_broker({"wal_object_store.fsspec.url": objects.as_uri(), "diskless.fetch.cache.max.bytes": "0"})
    with broker.connect() as wire:
        create_topic(wire, topic, 2)
        append(wire, topic, batch_of(b"lost"), partition=0)
        lost = [path for path in (objects / "wal").rglob("*") if path.is_file()]
        append(wire, topic, batch_of(b"kept"), partition=1)
        for path in lost:
            path.unlink()

        bad, good = wire.call(fetch_request(topic, {0: 0, 1: 0}), 12).responses[0].partitions

        assert bad.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert read_values(good.records) == [b"kept"]
        assert read_values(fetch(wire, topic, 0, 1).records) == [b"kept"]


@guarantee("Reads", "What is not committed yet is not there: an offset in it is neither read nor out of range.")
@pytest.mark.parametrize("offset", [1, 2])
def test_an_offset_that_is_given_and_not_committed_yet_is_waited_for(offset: int) -> None:
    async def main() -> None:
        async with ProducePath() as path:
            await path.produce((0, recent_batch_of(b"committed")))
            path.shared.hold_high_watermark(SHARD_ID)
            produced = path.produce((0, recent_batch_of(b"on", b"its", b"way")))
            await asyncio.sleep(1)
            fetched = asyncio.create_task(path.fetch((0, offset), max_wait_ms=5000))
            await asyncio.sleep(1)
            assert not fetched.done()
            assert not produced.done()
            path.shared.release_high_watermark(SHARD_ID)
            [answer] = await fetched
            assert answer.error is ErrorCode.NONE
            assert [read for read, _ in records_of(answer)] == [1, 2, 3]

    run(main)


@guarantee("Reads", "A deep backlog costs a reader what it gets, not what it skips.")
@pytest.mark.parametrize("offset", [0, 700, 999])
def test_a_fetch_reads_one_object_however_many_lie_before_and_behind_it(offset: int) -> None:
    async def main() -> None:
        async with ProducePath(cache_bytes=0) as path:
            for number in range(1000):
                await path.produce((0, recent_batch_of(b"%d" % number)))
            await path.node.stop()
            await path.node.start()
            reads = path.metrics.store_reads._value.get()
            [answer] = await path.fetch((0, offset), max_bytes=1)
            assert records_of(answer) == [(offset, b"%d" % offset)]
            assert path.metrics.store_reads._value.get() - reads == 1

    run(main)
