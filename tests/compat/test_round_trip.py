"""What real clients produce is what real clients consume."""

from __future__ import annotations

import time

import pytest
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import KafkaException
from kafka.errors import KafkaError as KafkaPythonError

from tests.compat.clients import CLIENTS, CODECS, Sent, compressed_again
from tests.support.requests import create_topic

NOW_MS = 1_700_000_000_000
ERRORS = (KafkaException, KafkaPythonError, AioKafkaError)
ONE_MB = 1_000_000

RECORDS = [
    Sent(b"plain"),
    Sent(b"with a key", key=b"key"),
    Sent(b"", key=b""),
    Sent(None, key=b"tombstone"),
    Sent(b"with headers", headers=(("a", b"1"), ("a", b"2"), ("empty", b""))),
    Sent(b"with a null header", headers=(("null", None),)),
    Sent(b"of the past", timestamp_ms=NOW_MS - 86_400_000),
    Sent(b"compressible " * 1000),
]


def values(records):
    return [record.value for record in records]


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec_come_back_in_order(client, wire, topic, codec, idempotent):
    create_topic(wire, topic)
    sent = [Sent(b"value %d " % number * 20) for number in range(200)]

    offsets = client.produce(topic, sent, codec=codec, idempotent=idempotent)

    assert offsets == list(range(200))
    got = client.read(topic, 200)
    assert [(record.offset, record.value) for record in got] == list(enumerate(values(sent)))


def test_what_a_topic_compresses_again_comes_back_in_order(client, wire, topic):
    sent = compressed_again(wire, topic)

    assert values(client.read(topic, len(sent))) == sent


@pytest.mark.parametrize("reader", CLIENTS.values(), ids=CLIENTS)
def test_every_part_of_a_record_is_kept_from_any_client_to_any_other(client, broker, wire, topic, reader):
    create_topic(wire, topic)
    records = [record._replace(timestamp_ms=record.timestamp_ms or NOW_MS) for record in RECORDS]
    if not client.sends_null_headers:
        records.remove(next(record for record in records if ("null", None) in record.headers))

    client.produce(topic, records, codec="zstd")

    got = reader(broker.bootstrap).read(topic, len(records))
    assert [
        Sent(record.value, record.key, record.headers, record.timestamp_ms, record.partition) for record in got
    ] == records
    assert {record.timestamp_type for record in got} == {0}


def test_records_of_several_partitions(client, wire, topic):
    create_topic(wire, topic, 5)
    sent = [Sent(b"%d" % number, partition=number % 5) for number in range(100)]

    client.produce(topic, sent, idempotent=True)

    got = client.read(topic, 100, range(5))
    for partition in range(5):
        assert [(r.offset, r.value) for r in got if r.partition == partition] == list(
            enumerate(values(sent)[partition::5])
        )


def test_log_append_time_is_what_consumers_see(client, wire, topic):
    create_topic(wire, topic, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)

    client.produce(topic, [Sent(b"v", timestamp_ms=NOW_MS)] * 3, codec="gzip")

    got = client.read(topic, 3)
    assert {record.timestamp_type for record in got} == {1}
    assert all(before <= record.timestamp_ms <= time.time() * 1000 for record in got)


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acks(client, wire, topic, acks):
    create_topic(wire, topic)

    offsets = client.produce(topic, [Sent(b"a"), Sent(b"b")], acks=acks)

    if acks != 0:
        assert offsets == [0, 1]
    assert values(client.read(topic, 2)) == [b"a", b"b"]


def test_messages_of_a_megabyte(client, wire, topic):
    create_topic(wire, topic)
    sent = [Sent(bytes([number]) * ONE_MB) for number in range(10)]

    client.produce(topic, sent)

    assert values(client.read(topic, 10)) == values(sent)


def test_a_message_above_max_message_bytes_is_an_error_for_the_producer(client, wire, topic):
    create_topic(wire, topic, max_message_bytes="10000")

    with pytest.raises(ERRORS, match=r"(?i)large|size|MSG_SIZE"):
        client.produce(topic, [Sent(b"v" * 20_000)])

    assert client.produce(topic, [Sent(b"small")]) == [0]


def test_a_group_of_one_goes_on_where_it_stopped(client, wire, topic):
    create_topic(wire, topic, 3)
    client.produce(topic, [Sent(b"%d" % number, partition=number % 3) for number in range(30)])

    first = client.consume_as_group(topic, f"group-of-{topic}", 30)
    client.produce(topic, [Sent(b"more")])
    second = client.consume_as_group(topic, f"group-of-{topic}", 1)

    assert sorted(values(first), key=int) == [b"%d" % number for number in range(30)]
    assert [(record.offset, record.value) for record in second] == [(10, b"more")]


def test_producing_to_an_unknown_topic_creates_it(client, topic):
    assert client.produce(topic, [Sent(b"first")]) == [0]
    assert values(client.read(topic, 1)) == [b"first"]


def test_a_transactional_producer_is_told_at_once_that_there_are_no_transactions(client):
    began = time.monotonic()

    with pytest.raises(ERRORS, match=r"(?i)transactional.?id.?authorization|transactional id"):
        client.begin_transactions()

    assert time.monotonic() - began < 5
