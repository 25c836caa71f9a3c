"""The load: bulk and paced clients are librdkafka's; small requests come from sockets, to measure the broker alone."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
import uuid
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from diskless_core.protocol.record_batch import RecordData, build
from tests.support.requests import metadata_request
from tests.support.wire import WireClient

PARTITIONS = 8
PACED_LINGER_MS = 5
TIMEOUT_S = 120.0
_BATCH = 1_000
_CLIENT_IDS = 1_000
_METADATA_VERSION = 12
_MAX_QUEUED = 200_000
_PRODUCE_VERSION = 11


class Latency(NamedTuple):
    """Milliseconds from `produce()` to the acknowledgement."""

    p50_ms: float
    p99_ms: float


def create_topic(bootstrap: str, partitions: int = PARTITIONS) -> str:
    """A new topic."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, num_partitions=partitions)])[name].result(timeout=TIMEOUT_S)
    return name


def client_id_at(bootstrap: str, topic: str) -> str:
    """A client id whose holders on this host are told that the broker at `bootstrap` leads all of a topic.

    Every broker has to be a gateway of every coordinator.
    """
    host, _, port = bootstrap.rpartition(":")
    for number in range(_CLIENT_IDS):
        client_id = f"bench-{number}"
        with WireClient(host, int(port), client_id=client_id) as wire:
            told = wire.call(metadata_request(topic), _METADATA_VERSION)
        asked = next(broker.node_id for broker in told.brokers if broker.port == int(port))
        if {partition.leader_id for partition in told.topics[0].partitions} == {asked}:
            return client_id
    raise RuntimeError(f"{bootstrap} is no gateway of all coordinators")


def produce_bulk(
    bootstrap: str,
    topic: str,
    total_bytes: int,
    record_bytes: int,
    partitions: int = PARTITIONS,
    client_id: str = "bench",
) -> float:
    """Write as fast as one producer can, and return the seconds until all is acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "acks": "all",
            "enable.idempotence": False,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "message.max.bytes": 1_000_000,
            "batch.num.messages": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    values = [{"value": os.urandom(record_bytes)} for _ in range(_BATCH)]
    producer.list_topics(topic, timeout=TIMEOUT_S)
    began = time.perf_counter()
    for batch in range(total_bytes // record_bytes // _BATCH):
        while len(producer) > _MAX_QUEUED:
            producer.poll(0.005)
        queued = producer.produce_batch(topic, values, partition=batch % partitions)
        if queued != _BATCH:
            raise RuntimeError(f"only {queued} of {_BATCH} records were taken by the producer")
    if producer.flush(TIMEOUT_S):
        raise RuntimeError("not all records were acknowledged")
    return time.perf_counter() - began


def produce_one(bootstrap: str) -> None:
    """The first record of a topic that the broker makes for it."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    producer.produce(f"first-{uuid.uuid4().hex[:8]}", b"first")
    if producer.flush(TIMEOUT_S):
        raise RuntimeError("the first record was not acknowledged")


def consume_bulk(bootstrap: str, topic: str, records: int, client_id: str = "bench") -> float:
    """Read `records` from the beginning with large fetches, and return the seconds it took."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "group.id": f"bench-{uuid.uuid4().hex[:8]}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 8 << 20,
            "fetch.max.bytes": 64 << 20,
            "queued.max.messages.kbytes": 256 << 10,
            "check.crcs": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    began, seen = time.perf_counter(), 0
    deadline = began + TIMEOUT_S
    while seen < records:
        seen += len(consumer.consume(10_000, timeout=1))
        if time.perf_counter() > deadline:
            raise RuntimeError(f"only {seen} of {records} records could be read in time")
    elapsed = time.perf_counter() - began
    consumer.close()
    return elapsed


def records_of(bootstrap: str, topic: str) -> int:
    """How many records a topic has."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench-ends"})
    ends = [
        consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_S)
        for partition in range(PARTITIONS)
    ]
    consumer.close()
    return sum(end - start for start, end in ends)


def produce_paced(bootstrap: str, topic: str, bytes_s: int, record_bytes: int, seconds: float) -> Latency:
    """Write at a steady rate, and return how long records waited for their acknowledgement."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": PACED_LINGER_MS})
    latencies_s: list[float] = []
    producer.list_topics(topic, timeout=TIMEOUT_S)
    value, gap_s = os.urandom(record_bytes), record_bytes / bytes_s
    began = time.perf_counter()
    for index in range(int(seconds / gap_s)):
        while (ahead := began + index * gap_s - time.perf_counter()) > 0:
            producer.poll(ahead)
        producer.produce(
            topic,
            value,
            on_delivery=lambda _, message: latencies_s.append(message.latency()),
        )
    if producer.flush(TIMEOUT_S):
        raise RuntimeError("not all records were acknowledged")
    latencies_s.sort()
    p50, p99 = (latencies_s[int(len(latencies_s) * share)] * 1000 for share in (0.50, 0.99))
    return Latency(p50, p99)


def produce_small(bootstrap: str, topic: str, connections: int, requests: int, record_bytes: int) -> float:
    """One record a request, one request at a time on each connection; returns the seconds for all `requests`."""
    return asyncio.run(_produce_small(bootstrap, topic, connections, requests, record_bytes))


def open_idle(bootstrap: str, count: int) -> list[socket.socket]:
    """Connections that say nothing."""
    host, _, port = bootstrap.rpartition(":")
    return [socket.create_connection((host, int(port)), timeout=TIMEOUT_S) for _ in range(count)]


async def _produce_small(bootstrap: str, topic: str, connections: int, requests: int, record_bytes: int) -> float:
    host, _, port = bootstrap.rpartition(":")
    streams = [await asyncio.open_connection(host, int(port)) for _ in range(connections)]
    each = requests // connections
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for index, (reader, writer) in enumerate(streams):
            frame = _produce_frame(topic, index % PARTITIONS, record_bytes)
            group.create_task(_ask_repeatedly(reader, writer, frame, each))
    elapsed = time.perf_counter() - began
    for _, writer in streams:
        writer.close()
    return elapsed


async def _ask_repeatedly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame: bytes, times: int) -> None:
    answer = b""
    for _ in range(times):
        writer.write(frame)
        answer = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
    _check_accepted(answer)


def _check_accepted(answer: bytes) -> None:
    response = ProduceResponse.decode(answer[5:], version=_PRODUCE_VERSION)
    codes = {partition.error_code for topic in response.responses for partition in topic.partition_responses}
    if codes != {0}:
        raise RuntimeError(f"produce requests were answered with the errors {codes}")


def _produce_frame(topic: str, partition: int, record_bytes: int) -> bytes:
    records = build([RecordData(key=None, value=os.urandom(record_bytes))], timestamp_ms=int(time.time() * 1000))
    data = ProduceRequest.TopicProduceData
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            data(name=topic, partition_data=[data.PartitionProduceData(index=partition, records=records)]),
        ],
    )
    request.API_VERSION = _PRODUCE_VERSION
    request.with_header(correlation_id=1, client_id="bench")
    return bytes(request.encode(version=_PRODUCE_VERSION, header=True, framed=True))
