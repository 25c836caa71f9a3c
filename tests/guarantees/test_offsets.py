"""What is promised of offsets: which batches get one, and which one, whoever writes and however they are stored."""

from __future__ import annotations

import asyncio
import random
import time
import uuid

import pytest

from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.log import SharedLog
from tests.support.batches import NOW_MS, batch_of, read_records, read_values, timed_batch, with_header
from tests.support.guarantees import guarantee
from tests.support.produce_path import ProducePath, key_of, records_of
from tests.support.produce_path import batch_of as recent_batch_of
from tests.support.requests import (
    append,
    create_topic,
    fetch,
    fetch_request,
    list_offset,
    produce,
    produce_request,
)
from tests.support.shards import TOPIC, ShardNode, batch, commit_of
from tests.support.virtual_time import START_MS, VirtualClock, run

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
CONTROL, TRANSACTIONAL, LOG_APPEND_TIME = 1 << 5, 1 << 4, 1 << 3
LONG = b"long enough to be worth compressing " * 20
REFUSED = {int(ErrorCode.INVALID_RECORD), int(ErrorCode.CORRUPT_MESSAGE)}
GOOD = batch_of(b"one", b"two")
BAD_BATCHES = {
    "no records": (None, ErrorCode.INVALID_RECORD),
    "zero bytes": (b"", ErrorCode.INVALID_RECORD),
    "a wrong checksum": (with_header(GOOD, crc=1), ErrorCode.CORRUPT_MESSAGE),
    "a changed value": (GOOD[:-2] + b"X" + GOOD[-1:], ErrorCode.CORRUPT_MESSAGE),
    "magic 0": (with_header(GOOD, magic=0), ErrorCode.INVALID_RECORD),
    "magic 1": (with_header(GOOD, magic=1), ErrorCode.INVALID_RECORD),
    "magic 3": (with_header(GOOD, magic=3), ErrorCode.CORRUPT_MESSAGE),
    "a truncated batch": (GOOD[:-1], ErrorCode.INVALID_RECORD),
    "a truncated header": (GOOD[:40], ErrorCode.INVALID_RECORD),
    "a negative length": (with_header(GOOD, batch_length=-1), ErrorCode.CORRUPT_MESSAGE),
    "no records in the batch": (with_header(GOOD, record_count=0, last_offset_delta=-1), ErrorCode.INVALID_RECORD),
    "too high a record count": (with_header(GOOD, record_count=3), ErrorCode.INVALID_RECORD),
    "too low a last offset delta": (with_header(GOOD, last_offset_delta=0), ErrorCode.INVALID_RECORD),
    "a control batch": (with_header(GOOD, attributes=CONTROL), ErrorCode.INVALID_RECORD),
    "a transactional batch": (
        with_header(GOOD, attributes=TRANSACTIONAL, producer_id=1, producer_epoch=0, base_sequence=0),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "two batches": (GOOD + GOOD, ErrorCode.INVALID_RECORD),
    "bytes behind the batch": (GOOD + b"\0", ErrorCode.INVALID_RECORD),
    "an unknown codec": (with_header(GOOD, attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "a producer id without a sequence": (
        with_header(GOOD, producer_id=9, producer_epoch=0, base_sequence=-1),
        ErrorCode.INVALID_RECORD,
    ),
    "a timestamp set by the broker": (with_header(GOOD, attributes=LOG_APPEND_TIME), ErrorCode.INVALID_TIMESTAMP),
}


@guarantee(
    "Offsets",
    "Format, size, checksum, record count and last offset delta of a batch are checked before it is taken.",
)
@guarantee("Offsets", "A request holds at most one batch of a partition.")
@guarantee("Offsets", "Control batches and batches of transactions are refused.")
@guarantee("Offsets", "A batch that is refused leaves no trace and takes no offset.")
@pytest.mark.parametrize(("records", "code"), BAD_BATCHES.values(), ids=BAD_BATCHES)
def test_a_bad_batch_is_refused_and_leaves_no_trace(wire, topic, records, code):
    create_topic(wire, topic, 2)

    response = wire.call(produce_request(topic, {0: records, 1: GOOD}), 9)

    bad, good = response.responses[0].partition_responses
    assert (bad.error_code, bad.base_offset, bad.log_append_time_ms) == (int(code), -1, -1)
    assert bad.error_message
    assert (good.error_code, good.base_offset) == (0, 0)
    assert list_offset(wire, topic, -1, 0).offset == 0
    assert append(wire, topic, GOOD) == [0]


@guarantee("Offsets", "The base offset that a client writes has to be 0, as Apache Kafka wants it.")
def test_the_base_offset_that_a_client_writes_has_to_be_0_as_in_kafka(wire, topic):
    create_topic(wire, topic)

    assert produce(wire, topic, batch_of(b"a", base_offset=1000)).error_code == ErrorCode.INVALID_RECORD
    assert append(wire, topic, batch_of(b"a", b"b"), batch_of(b"c")) == [0, 2]
    assert [record.offset for record in read_records(fetch(wire, topic, 0).records)] == [0, 1, 2]


@guarantee("Offsets", "Each partition of a request is answered by itself, in the order of the request.")
def test_partitions_of_one_request_are_answered_each_by_itself_in_the_order_of_the_request(wire, topic):
    create_topic(wire, topic, 3)
    append(wire, topic, batch_of(b"x"), partition=1)

    records = [(2, batch_of(b"two")), (9, GOOD), (0, with_header(GOOD, crc=7)), (1, batch_of(b"one", b"more"))]
    response = wire.call(produce_request(topic, records), 9)

    answers = [(a.index, a.error_code, a.base_offset) for a in response.responses[0].partition_responses]
    assert answers == [(2, 0, 0), (9, 3, -1), (0, 2, -1), (1, 0, 1)]


@guarantee("Offsets", "A batch for a topic or a partition that is not there is refused, and those beside it are not.")
def test_an_unknown_topic_is_refused_beside_a_known_one(wire, topic):
    create_topic(wire, topic)
    request = produce_request(f"{topic}-absent", {0: GOOD})
    request.topic_data += produce_request(topic, {0: GOOD}).topic_data

    response = wire.call(request, 9)

    assert [(t.name, t.partition_responses[0].error_code) for t in response.responses] == [
        (f"{topic}-absent", int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
        (topic, 0),
    ]


@guarantee("Offsets", "With CreateTime the producer's timestamps stay, and the answer has no log append time.")
def test_create_time_is_kept_and_the_answer_has_no_append_time(wire, topic):
    create_topic(wire, topic)

    answer = produce(wire, topic, timed_batch(NOW_MS, NOW_MS - 5))

    assert answer.log_append_time_ms == -1
    records = read_records(fetch(wire, topic, 0).records)
    assert [(record.timestamp, record.timestamp_type) for record in records] == [(NOW_MS, 0), (NOW_MS - 5, 0)]


@guarantee(
    "Offsets",
    "With LogAppendTime the time of the commit is in the answer and in the batch, whose checksum is right.",
)
@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_log_append_time_is_the_time_of_the_commit_in_the_answer_and_in_the_batch(wire, topic, codec):
    create_topic(wire, topic, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)

    answer = produce(wire, topic, batch_of(LONG, LONG, timestamp_ms=NOW_MS, compression=codec))

    assert before <= answer.log_append_time_ms <= int(time.time() * 1000)
    records = read_records(fetch(wire, topic, 0).records)
    assert [(record.timestamp, record.timestamp_type) for record in records] == [(answer.log_append_time_ms, 1)] * 2
    assert list_offset(wire, topic, -3).timestamp == answer.log_append_time_ms


@guarantee("Offsets", "However many connections write to a partition at once, offsets have no gap and no overlap.")
def test_concurrent_connections_get_offsets_without_gap_or_overlap(broker, wire, topic):
    create_topic(wire, topic)
    others = [broker.connect() for _ in range(8)]
    try:
        for _ in range(20):
            for client in others:
                client.send(produce_request(topic, {0: batch_of(b"a", b"b", b"c")}), 9)
        offsets = [
            client.receive().responses[0].partition_responses[0].base_offset for client in others for _ in range(20)
        ]
    finally:
        for client in others:
            client.close()

    assert sorted(offsets) == list(range(0, 480, 3))
    fetched = wire.call(fetch_request(topic, {0: 0}), 12).responses[0].partitions[0]
    assert [record.offset for record in read_records(fetched.records)] == list(range(480))


@guarantee("Offsets", "Compressed batches are checked as others are.")
@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_a_batch_that_lies_is_refused_whatever_its_codec(wire, topic, codec):
    create_topic(wire, topic)
    batch = batch_of(LONG, LONG, LONG, compression=codec)

    for lie in ({"record_count": 4}, {"last_offset_delta": 3}, {"crc": 1}):
        assert produce(wire, topic, with_header(batch, **lie)).error_code in REFUSED, lie
    assert append(wire, topic, batch) == [0]


@guarantee("Offsets", "A batch gets the high watermark as its base offset and moves it by its number of records.")
def test_offsets_are_counted_from_the_high_watermark(wire, topic):
    create_topic(wire, topic, 2)

    assert append(wire, topic, batch_of(b"0"), batch_of(b"1", b"2", b"3"), batch_of(b"4", b"5")) == [0, 1, 4]
    assert append(wire, topic, batch_of(b"0"), partition=1) == [0]
    assert [list_offset(wire, topic, -1, partition).offset for partition in (0, 1)] == [6, 1]


@guarantee("Offsets", "Batches of a partition that come together in one object keep their order.")
def test_what_one_connection_sends_ahead_is_stored_in_its_order(wire, topic):
    create_topic(wire, topic, 2)
    sent = [(number % 2, batch_of(b"%d" % number)) for number in range(40)]

    wire.send_together(*(produce_request(topic, {partition: batch}) for partition, batch in sent), version=9)
    answers = [wire.receive().responses[0].partition_responses[0] for _ in sent]

    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, n // 2) for n in range(40)]
    for partition in (0, 1):
        assert read_values(fetch(wire, topic, 0, partition).records) == [b"%d" % n for n in range(partition, 40, 2)]


@guarantee("Offsets", "Brokers that write to one partition at once get offsets without gap or overlap, in order.")
@pytest.mark.parametrize("seed", range(5))
def test_concurrent_brokers_get_offsets_without_gap_or_overlap(seed: int) -> None:
    async def main() -> None:
        rnd = random.Random(seed)
        node = ShardNode(SharedLog(), VirtualClock(asyncio.get_running_loop()))
        await node.start()
        await node.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])
        appended: list[tuple[int, int]] = []

        async def broker(uploader_id: int) -> None:
            last = -1
            for number in range(20):
                await asyncio.sleep(rnd.random() / 10)
                counts = [rnd.randint(1, 4) for _ in range(rnd.randint(1, 3))]
                request = commit_of(f"{uploader_id}-{number}", *(batch(count=count) for count in counts))
                for count, result in zip(counts, await node.commit(request), strict=True):
                    assert result.error is ErrorCode.NONE
                    assert result.base_offset > last
                    last = result.base_offset
                    appended.append((result.base_offset, count))

        await asyncio.gather(*map(broker, range(4)))
        next_offset = 0
        for base_offset, count in sorted(appended):
            assert base_offset == next_offset
            next_offset += count
        await node.stop()

    run(main)


@guarantee("Offsets", "That adjacent batches are kept as one run changes no answer of a write and none of a read.")
@pytest.mark.parametrize("seed", range(3))
def test_batches_kept_as_one_run_read_as_batches_kept_apart(seed: int) -> None:
    rnd = random.Random(seed)
    batches = [
        recent_batch_of(*[b"x" * rnd.randint(1, 200)] * rnd.randint(1, 4), timestamp_ms=START_MS + rnd.randint(0, 20))
        for _ in range(8)
    ]

    async def seen(*, together: bool) -> tuple[int, list[object]]:
        async with ProducePath(linger_ms=50 if together else 0) as path:
            if together:
                answers = await asyncio.gather(*(path.produce((0, batch)) for batch in batches))
            else:
                answers = [await path.produce((0, batch)) for batch in batches]
            offsets = [result.base_offset for [result] in answers]
            found: list[object] = [offsets]
            end = offsets[-1] + len(batches)
            for offset in range(end):
                for max_bytes in (1, 500, 1 << 20):
                    [fetched] = await path.fetch((0, offset), max_bytes=max_bytes)
                    found.append((fetched.error, records_of(fetched) if fetched.records else []))
            timestamps = (-3, -2, -1, *range(START_MS - 1, START_MS + 22))
            found += [await path.lookup.list(path.node.shard, key_of(0), timestamp) for timestamp in timestamps]
            return len(await path.node.shard.runs_from(key_of(0), 0)), found

    async def main() -> None:
        runs_together, together = await seen(together=True)
        runs_apart, apart = await seen(together=False)
        assert (runs_together, runs_apart) == (1, len(batches))
        assert together == apart

    run(main)
