"""Produce: which batches are accepted, and what each partition of a request is told."""

from __future__ import annotations

import time
import uuid

import pytest

from diskless_core.protocol.errors import ErrorCode
from tests.support.batches import batch_of, batch_ranges, read_values, timed_batch, with_header
from tests.support.requests import (
    append,
    create_topic,
    fetch,
    produce,
    produce_request,
)

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
LONG = b"long enough to be worth compressing " * 20
HOUR_MS = 3_600_000
GOOD = batch_of(b"one", b"two")


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


def test_the_log_says_what_was_wrong_with_acks_0_and_the_partitions_that_are_well_are_appended(broker, wire, topic):
    create_topic(wire, topic, partitions=3)
    told = broker.log.stat().st_size
    with broker.connect() as other:
        records = {0: with_header(GOOD, crc=1), 1: GOOD, 2: None, 7: GOOD}
        other.send(produce_request(topic, records, acks=0), 9, is_answered=False)

        assert other.is_closed()
    fetched = fetch(wire, topic, 0, partition=1, max_wait_ms=10_000)
    assert read_values(fetched.records) == [b"one", b"two"]
    [line] = [line for line in broker.log_text(told).splitlines() if "acks=0" in line]
    assert "[info" in line
    assert "client_id=" in line
    assert "correlation_id=" in line
    for error in (f"'{topic}-0': 'CORRUPT_MESSAGE'", f"'{topic}-7': 'UNKNOWN_TOPIC_OR_PARTITION'"):
        assert error in line
    assert f"'{topic}-1'" not in line


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
