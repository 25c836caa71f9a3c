"""Produce: which batches are accepted, and what each partition of a request is told."""

from __future__ import annotations

import time
import uuid

import pytest

from diskless_core.protocol.errors import ErrorCode
from tests.support.batches import NOW_MS, batch_of, batch_ranges, read_records, read_values, timed_batch, with_header
from tests.support.requests import (
    append,
    create_topic,
    fetch,
    fetch_request,
    list_offset,
    produce,
    produce_request,
)

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
CONTROL, TRANSACTIONAL, LOG_APPEND_TIME = 1 << 5, 1 << 4, 1 << 3
LONG = b"long enough to be worth compressing " * 20
HOUR_MS = 3_600_000

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


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_batches_of_every_codec_come_back_as_they_were_sent(wire, topic, codec):
    create_topic(wire, topic)
    batch = batch_of(LONG, LONG, compression=codec)

    append(wire, topic, batch, batch)

    records = bytes(fetch(wire, topic, 0).records)
    assert records[: len(batch)] == with_header(batch, base_offset=0)[:12] + b"\0\0\0\0" + batch[16:]
    assert read_values(records) == [LONG] * 4
    assert batch_ranges(records) == [(0, 1), (2, 3)]


def test_zstd_needs_produce_version_7(wire, topic):
    create_topic(wire, topic)
    batch = batch_of(LONG, compression=CODECS["zstd"])

    assert produce(wire, topic, batch, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(wire, topic, batch, version=7).error_code == 0


def test_the_base_offset_that_a_client_writes_has_to_be_0_as_in_kafka(wire, topic):
    create_topic(wire, topic)

    assert produce(wire, topic, batch_of(b"a", base_offset=1000)).error_code == ErrorCode.INVALID_RECORD
    assert append(wire, topic, batch_of(b"a", b"b"), batch_of(b"c")) == [0, 2]
    assert [record.offset for record in read_records(fetch(wire, topic, 0).records)] == [0, 1, 2]


def test_partitions_of_one_request_are_answered_each_by_itself_in_the_order_of_the_request(wire, topic):
    create_topic(wire, topic, 3)
    append(wire, topic, batch_of(b"x"), partition=1)

    records = [(2, batch_of(b"two")), (9, GOOD), (0, with_header(GOOD, crc=7)), (1, batch_of(b"one", b"more"))]
    response = wire.call(produce_request(topic, records), 9)

    answers = [(a.index, a.error_code, a.base_offset) for a in response.responses[0].partition_responses]
    assert answers == [(2, 0, 0), (9, 3, -1), (0, 2, -1), (1, 0, 1)]


def test_an_unknown_topic_is_refused_beside_a_known_one(wire, topic):
    create_topic(wire, topic)
    request = produce_request(f"{topic}-absent", {0: GOOD})
    request.topic_data += produce_request(topic, {0: GOOD}).topic_data

    response = wire.call(request, 9)

    assert [(t.name, t.partition_responses[0].error_code) for t in response.responses] == [
        (f"{topic}-absent", int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
        (topic, 0),
    ]


def test_produce_by_topic_id(wire, topic):
    topic_id = create_topic(wire, topic)

    known = wire.call(produce_request("", {0: GOOD}, topic_id=topic_id), 13).responses[0]
    unknown = wire.call(produce_request("", {0: GOOD}, topic_id=uuid.uuid4()), 13).responses[0]
    none = wire.call(produce_request(topic, {0: GOOD}, topic_id=None), 13).responses[0]

    assert (known.topic_id, known.partition_responses[0].error_code) == (topic_id, 0)
    assert unknown.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert none.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert read_values(fetch(wire, topic, 0).records) == [b"one", b"two"]


@pytest.mark.parametrize("acks", [1, -1])
def test_acks_1_and_all_wait_for_the_commit(wire, topic, acks):
    create_topic(wire, topic)

    wire.call(produce_request(topic, {0: GOOD}, acks=acks), 9)

    assert fetch(wire, topic, 0).high_watermark == 2


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_other_acks_are_refused(wire, topic, acks):
    create_topic(wire, topic)

    response = wire.call(produce_request(topic, {0: GOOD}, acks=acks), 9)

    assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_acks_0_is_not_answered_and_is_committed(wire, topic):
    create_topic(wire, topic)

    wire.send(produce_request(topic, {0: GOOD}, acks=0), 9, is_answered=False)

    fetched = fetch(wire, topic, 0, max_wait_ms=10_000)
    assert read_values(fetched.records) == [b"one", b"two"]


@pytest.mark.parametrize(
    ("records", "name_suffix"), [(with_header(GOOD, crc=1), ""), (GOOD, "-absent")], ids=["bad batch", "unknown topic"]
)
def test_an_error_with_acks_0_closes_the_connection(broker, wire, topic, records, name_suffix):
    create_topic(wire, topic)
    with broker.connect() as other:
        other.send(produce_request(topic + name_suffix, {0: records}, acks=0), 9, is_answered=False)

        assert other.is_closed()
    assert append(wire, topic, GOOD) == [0]


def test_a_request_with_a_transactional_id_is_refused(wire, topic):
    create_topic(wire, topic)

    response = wire.call(produce_request(topic, {0: GOOD}, transactional_id="t"), 9)

    code = response.responses[0].partition_responses[0].error_code
    assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_batch_larger_than_max_message_bytes_is_refused(wire, topic):
    create_topic(wire, topic, max_message_bytes="1000")

    assert produce(wire, topic, batch_of(b"v" * 1000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(wire, topic, batch_of(b"v" * 900)).error_code == 0


def test_max_message_bytes_is_inclusive(wire, topic):
    batch = batch_of(b"v" * 100)
    create_topic(wire, topic, max_message_bytes=str(len(batch)))
    create_topic(wire, f"{topic}-smaller", max_message_bytes=str(len(batch) - 1))

    assert produce(wire, topic, batch).error_code == 0
    assert produce(wire, f"{topic}-smaller", batch).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_the_broker_takes_batches_of_a_mebibyte_and_refuses_larger_ones(wire, topic):
    create_topic(wire, topic)
    one_mebibyte = batch_of(b"v" * (1 << 20))
    room = (1 << 20) + 12 - (len(one_mebibyte) - (1 << 20))

    assert produce(wire, topic, one_mebibyte).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(wire, topic, batch_of(b"v" * room)).error_code == 0


def test_create_time_is_kept_and_the_answer_has_no_append_time(wire, topic):
    create_topic(wire, topic)

    answer = produce(wire, topic, timed_batch(NOW_MS, NOW_MS - 5))

    assert answer.log_append_time_ms == -1
    records = read_records(fetch(wire, topic, 0).records)
    assert [(record.timestamp, record.timestamp_type) for record in records] == [(NOW_MS, 0), (NOW_MS - 5, 0)]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_log_append_time_is_the_time_of_the_commit_in_the_answer_and_in_the_batch(wire, topic, codec):
    create_topic(wire, topic, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)

    answer = produce(wire, topic, batch_of(LONG, LONG, timestamp_ms=NOW_MS, compression=codec))

    assert before <= answer.log_append_time_ms <= int(time.time() * 1000)
    records = read_records(fetch(wire, topic, 0).records)
    assert [(record.timestamp, record.timestamp_type) for record in records] == [(answer.log_append_time_ms, 1)] * 2
    assert list_offset(wire, topic, -3).timestamp == answer.log_append_time_ms


@pytest.mark.parametrize(
    ("setting", "sent"),
    [("message_timestamp_before_max_ms", -2 * HOUR_MS), ("message_timestamp_after_max_ms", 2 * HOUR_MS)],
)
def test_timestamps_too_far_from_now_are_refused(wire, topic, setting, sent):
    create_topic(wire, topic, **{setting: str(HOUR_MS)})
    now = int(time.time() * 1000)

    assert produce(wire, topic, timed_batch(now + sent)).error_code == ErrorCode.INVALID_TIMESTAMP
    assert produce(wire, topic, timed_batch(now)).error_code == 0


def test_a_request_without_partitions_is_answered_at_once(wire, topic):
    create_topic(wire, topic)

    assert wire.call(produce_request(topic, {}), 9).responses == []


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
