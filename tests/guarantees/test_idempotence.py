"""What is promised to idempotent producers: what is a retry, what is out of order, and what is forgotten."""

from __future__ import annotations

import asyncio
import random
import uuid
from dataclasses import replace
from functools import partial

import pytest

from diskless_core.diskless.commands import BatchResult, PartitionKey
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.log import SharedLog
from tests.support.batches import batch_of, read_values
from tests.support.guarantees import guarantee
from tests.support.requests import (
    create_topic,
    delete_topic,
    fetch,
    list_offset,
    new_producer_id,
    produce,
    produce_request,
)
from tests.support.shards import TOPIC, ShardNode, batch, commit_of
from tests.support.virtual_time import VirtualClock, run

MAX_SEQUENCE = 2**31 - 1
OUT_OF_ORDER = int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
DUPLICATE = int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


@pytest.fixture
def producer(wire, topic):
    """Send a batch as an idempotent producer; error code and base offset come back."""
    create_topic(wire, topic)
    producer_id = new_producer_id(wire)

    def send(sequence, *values, epoch=0, producer_id=producer_id):
        batch = batch_of(*(values or (b"v",)), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        answer = produce(wire, topic, batch)
        return answer.error_code, answer.base_offset

    return send


@pytest.fixture
def forgotten_producer(wire, topic, producer):
    """As `producer`, with an id of which something was forgotten: it may begin at any sequence."""
    producer_id = new_producer_id(wire)
    create_topic(wire, f"{topic}-forgotten")
    first = batch_of(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=0)
    assert produce(wire, f"{topic}-forgotten", first).error_code == 0
    assert delete_topic(wire, f"{topic}-forgotten") == 0
    return partial(producer, producer_id=producer_id)


def high_watermark(wire, topic):
    return list_offset(wire, topic, -1).offset


@guarantee("Idempotence", "Producer ids are unique.")
def test_producer_ids_are_unique(broker, wire):
    with broker.connect() as other:
        ids = [new_producer_id(client) for _ in range(5) for client in (wire, other)]

    assert len(set(ids)) == 10


@guarantee("Idempotence", "Producer ids are unique.")
def test_producer_ids_are_not_given_again_after_a_crash(new_broker):
    broker = new_broker()
    with broker.connect() as wire:
        before = new_producer_id(wire)
    broker.kill()
    broker.start()
    with broker.connect() as wire:
        assert new_producer_id(wire) > before


@guarantee(
    "Idempotence",
    "A retry of any of a producer's last five batches gets its original offset, and nothing is appended.",
)
def test_each_of_the_last_five_batches_can_be_repeated(wire, topic, producer):
    originals = [producer(number) for number in range(6)]

    assert [producer(number) for number in range(1, 6)] == originals[1:]
    assert [producer(number) for number in reversed(range(1, 6))] == originals[:0:-1]
    assert high_watermark(wire, topic) == 6


@guarantee(
    "Idempotence",
    "A retry of an older batch is a duplicate too, without an offset: DUPLICATE_SEQUENCE_NUMBER, a success to clients.",
)
def test_a_batch_older_than_the_last_five_is_a_duplicate_without_an_offset(wire, topic, producer):
    for number in range(12):
        producer(number)

    assert [producer(number) for number in range(7)] == [(DUPLICATE, -1)] * 7
    assert high_watermark(wire, topic) == 12


@guarantee(
    "Idempotence",
    "A batch of before a producer began, or was forgotten, is no duplicate: it is out of order, "
    "OUT_OF_ORDER_SEQUENCE_NUMBER.",
)
@pytest.mark.parametrize("began", [10, MAX_SEQUENCE - 3])
def test_a_batch_that_may_never_have_come_is_no_duplicate(wire, topic, forgotten_producer, began):
    def send(number):
        return forgotten_producer((began + number) % (MAX_SEQUENCE + 1))

    assert [send(number) for number in range(8)] == [(0, number) for number in range(8)]
    assert [send(-1), send(-5)] == [(OUT_OF_ORDER, -1)] * 2
    assert [send(number) for number in range(3)] == [(DUPLICATE, -1)] * 3
    assert high_watermark(wire, topic) == 8


@guarantee("Idempotence", "A gap in a producer's sequence is out of order, and can still be filled.")
def test_a_gap_in_the_sequence_is_out_of_order_and_can_be_filled(wire, topic, producer):
    producer(0)

    assert producer(2) == (OUT_OF_ORDER, -1)
    assert producer(1) == (0, 1)
    assert producer(2) == (0, 2)


@guarantee("Idempotence", "A retry is recognised by the same epoch and the exact range of sequence numbers.")
def test_a_repetition_has_to_have_the_exact_range(producer):
    producer(0, b"a", b"b")

    assert producer(0, b"a") == (OUT_OF_ORDER, -1)
    assert producer(1, b"b") == (OUT_OF_ORDER, -1)
    assert producer(0, b"a", b"b") == (0, 0)


@guarantee("Idempotence", "Sequence numbers wrap from 2147483647 to 0, between batches and inside one.")
def test_sequence_numbers_wrap_between_batches(forgotten_producer):
    assert forgotten_producer(MAX_SEQUENCE) == (0, 0)
    assert forgotten_producer(0) == (0, 1)
    assert forgotten_producer(MAX_SEQUENCE) == (0, 0)


@guarantee("Idempotence", "Sequence numbers wrap from 2147483647 to 0, between batches and inside one.")
def test_sequence_numbers_wrap_within_a_batch(wire, topic, forgotten_producer):
    assert forgotten_producer(MAX_SEQUENCE - 1, b"a", b"b", b"c", b"d") == (0, 0)
    assert forgotten_producer(1) == (OUT_OF_ORDER, -1)
    assert forgotten_producer(2) == (0, 4)
    assert forgotten_producer(MAX_SEQUENCE - 1, b"a", b"b", b"c", b"d") == (0, 0)
    assert high_watermark(wire, topic) == 5


@guarantee("Idempotence", "A lower epoch is fenced: INVALID_PRODUCER_EPOCH.")
def test_a_lower_epoch_is_fenced(producer):
    producer(0, epoch=3)

    assert producer(1, epoch=2) == (int(ErrorCode.INVALID_PRODUCER_EPOCH), -1)
    assert producer(0, epoch=2) == (int(ErrorCode.INVALID_PRODUCER_EPOCH), -1)


@guarantee("Idempotence", "A higher epoch starts at sequence 0, whatever was remembered of the old one.")
def test_a_higher_epoch_starts_at_sequence_0(producer):
    producer(0)
    producer(1)

    assert producer(2, epoch=1) == (OUT_OF_ORDER, -1)
    assert producer(0, epoch=1) == (0, 2)
    assert producer(1, epoch=1) == (0, 3)


@guarantee(
    "Idempotence",
    "A producer's first batch of a partition is its first, also if a later one comes before it by another broker.",
)
def test_a_new_producer_begins_at_sequence_0(producer):
    assert producer(1) == (OUT_OF_ORDER, -1)
    assert producer(0) == (0, 0)
    assert producer(1) == (0, 1)


@guarantee("Idempotence", "A producer of which something may have been forgotten may start at any sequence.")
def test_a_forgotten_producer_may_start_at_any_sequence(forgotten_producer):
    assert forgotten_producer(41) == (0, 0)
    assert forgotten_producer(42) == (0, 1)


@guarantee("Idempotence", "A batch that is refused leaves no state of its producer.")
def test_a_refused_batch_leaves_no_state_of_its_producer(wire, topic, producer):
    producer_id = new_producer_id(wire)
    bad = batch_of(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=0)
    assert produce(wire, topic, bad[:-1] + b"X").error_code == ErrorCode.CORRUPT_MESSAGE

    assert producer(0, producer_id=producer_id) == (0, 0)


@guarantee("Idempotence", "Sequences are counted for each producer and partition apart.")
def test_producers_and_partitions_do_not_disturb_each_other(wire, topic):
    create_topic(wire, topic, 2)
    first, second = new_producer_id(wire), new_producer_id(wire)

    def send(producer_id, sequence, partition):
        batch = batch_of(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        answer = produce(wire, topic, batch, partition)
        return answer.error_code, answer.base_offset

    assert [send(first, 0, 0), send(second, 0, 0), send(first, 0, 1)] == [(0, 0), (0, 1), (0, 0)]
    assert [send(first, 1, 0), send(second, 1, 0), send(first, 1, 1)] == [(0, 2), (0, 3), (0, 1)]


@guarantee("Idempotence", "A retry that comes together with its original, in one object, gets the original's offset.")
def test_duplicates_within_one_object_get_the_original_offset(wire, topic):
    create_topic(wire, topic)
    producer_id = new_producer_id(wire)
    batches = [
        batch_of(b"%d" % number, producer_id=producer_id, producer_epoch=0, base_sequence=number) for number in range(3)
    ]
    sent = [batches[0], batches[1], batches[0], batches[2], batches[1]]

    wire.send_together(*(produce_request(topic, {0: batch}) for batch in sent), version=9)
    answers = [wire.receive().responses[0].partition_responses[0] for _ in sent]

    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0), (0, 1), (0, 0), (0, 2), (0, 1)]
    assert read_values(fetch(wire, topic, 0).records) == [b"0", b"1", b"2"]


@guarantee("Idempotence", "Retries are recognised after a restart and after a crash.")
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_repetitions_are_known_after_a_restart(new_broker, topic, how):
    broker = new_broker()
    with broker.connect() as wire:
        create_topic(wire, topic)
        producer_id = new_producer_id(wire)
        batches = [batch_of(b"%d" % n, producer_id=producer_id, producer_epoch=0, base_sequence=n) for n in range(6)]
        assert [produce(wire, topic, batch).base_offset for batch in batches] == list(range(6))
    getattr(broker, how)()
    broker.start()
    with broker.connect() as wire:
        assert [produce(wire, topic, batch).base_offset for batch in batches[1:]] == list(range(1, 6))
        assert produce(wire, topic, batches[0]).error_code == DUPLICATE
        assert read_values(fetch(wire, topic, 0).records) == [b"%d" % n for n in range(6)]


@guarantee(
    "Idempotence",
    "A producer that was silent for producer.id.expiration.ms is forgotten at the next check, and may start anew.",
)
def test_a_producer_that_was_silent_for_too_long_is_forgotten(new_broker, topic):
    broker = new_broker({"producer.id.expiration.ms": "1", "producer.id.expiration.check.interval.ms": "1"})
    with broker.connect() as wire:
        create_topic(wire, topic)
        batch = batch_of(b"v", producer_id=new_producer_id(wire), producer_epoch=0, base_sequence=0)
        offsets = [produce(wire, topic, batch).base_offset]
        while offsets[-1] == offsets[0]:
            offsets.append(produce(wire, topic, batch).base_offset)

    assert offsets[-1] == 1


@guarantee("Idempotence", "What is known of a producer goes with its topic.")
def test_a_topic_of_the_same_name_knows_nothing_of_its_predecessors_producers(wire, topic, producer):
    assert [producer(0), producer(1), producer(2)] == [(0, 0), (0, 1), (0, 2)]
    assert delete_topic(wire, topic) == 0
    create_topic(wire, topic)

    assert producer(2) == (0, 0)
    assert producer(1) == (OUT_OF_ORDER, -1)
    assert producer(3) == (0, 1)


@guarantee(
    "Idempotence", "A retry through another broker gets its original offset too, also while the first is under way."
)
@pytest.mark.parametrize("seed", range(5))
def test_a_retry_through_another_broker_is_recognised(seed: int) -> None:
    async def main() -> None:
        rnd = random.Random(seed)
        node = ShardNode(SharedLog(), VirtualClock(asyncio.get_running_loop()))
        await node.start()
        await node.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])

        async def write(broker: int, sequence: int) -> BatchResult:
            key = f"{sequence}-through-{broker}"
            [result] = await node.commit(replace(commit_of(key, batch(producer=(7, 0, sequence))), uploader_id=broker))
            return result

        for sequence in range(20):
            brokers = [1, 2, 3]
            rnd.shuffle(brokers)
            together = rnd.random() < 0.5
            if together:
                results = await asyncio.gather(*(write(broker, sequence) for broker in brokers))
            else:
                results = [await write(broker, sequence) for broker in brokers]
            assert {(result.error, result.base_offset) for result in results} == {(ErrorCode.NONE, sequence)}
            assert [result.is_duplicate for result in results] == [False, True, True]
        assert [run.last_offset for run in await node.read_all(PartitionKey(TOPIC, 0))] == list(range(20))
        await node.stop()

    run(main)
