"""What stock producers make of a batch that was written long ago, and whose answer they never got."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import confluent_kafka
import pytest

from diskless_core.protocol import record_batch
from tests.support.apache_kafka import free_ports, java
from tests.support.batches import batch_of, read_values
from tests.support.broker import BrokerProcess
from tests.support.guarantees import guarantee
from tests.support.relay import Relay
from tests.support.requests import create_topic, fetch, list_offset, produce
from tests.support.waiting import wait_until

LIMIT_S = 120.0
NO_OFFSET = -1
BATCHES = 12
PRODUCE = 0

_REQUEST = struct.Struct(">ih")
"""How a request begins: the size of the rest, and the number of its API."""

Send = Callable[[str, str], int]
"""Have an idempotent producer write one record: bootstrap and topic. The offset that it is told, or `NO_OFFSET`."""


def librdkafka(bootstrap: str, topic: str) -> int:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
    heard: list[tuple[confluent_kafka.KafkaError | None, int | None]] = []
    producer.produce(topic, b"0", partition=0, on_delivery=lambda error, one: heard.append((error, one.offset())))
    assert producer.flush(LIMIT_S) == 0
    [(error, offset)] = heard
    assert error is None, error
    return offset if offset is not None else NO_OFFSET


def java_producer(jars: Path, folder: Path) -> Send:
    def send(bootstrap: str, topic: str) -> int:
        settings = folder / "producer.properties"
        settings.write_text("enable.idempotence=true\nretries=2000000000\n")
        arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--max-messages", "1", "--acks", "-1"]
        command = java(jars, "org.apache.kafka.tools.VerifiableProducer", *arguments, "--command-config", str(settings))
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        [answer] = [one for one in events if one["name"].startswith("producer_send_")]
        assert answer["name"] == "producer_send_success", answer
        assert "bumped" not in done.stderr
        return int(answer["offset"])

    return send


@pytest.fixture(params=["librdkafka", "java"])
def send(request: pytest.FixtureRequest, tmp_path: Path) -> Send:
    if request.param == "librdkafka":
        return librdkafka
    return java_producer(request.getfixturevalue("kafka_jars"), tmp_path)


@contextmanager
def behind_a_relay(folder: Path) -> Iterator[tuple[BrokerProcess, Relay]]:
    """A broker that tells clients the address of a relay."""
    [port] = free_ports(1)
    with ExitStack() as stack:
        relay = stack.enter_context(Relay(port))
        relay.pass_on()
        broker = BrokerProcess(
            folder / "broker",
            {
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{relay.port}",
            },
        )
        stack.callback(broker.end)
        broker.start()
        yield broker, relay


@guarantee(
    "Idempotence",
    "A retry of an older batch is a duplicate too, without an offset: DUPLICATE_SEQUENCE_NUMBER, a success to clients.",
)
def test_a_stock_producers_retry_of_an_old_batch_is_a_success_and_is_not_there_twice(
    send: Send, tmp_path: Path
) -> None:
    with behind_a_relay(tmp_path) as (broker, relay), broker.connect() as wire, ThreadPoolExecutor(1) as pool:
        create_topic(wire, "t")
        relay.lose_answers_from(has_produce_request)
        told = pool.submit(send, f"127.0.0.1:{relay.port}", "t")
        wait_until(lambda: told.done() or list_offset(wire, "t", -1).offset, "the first batch")
        written = record_batch.read_header(fetch(wire, "t", 0).records)
        for number in range(1, BATCHES):  # as if these had been in flight by other brokers
            later = batch_of(
                b"%d" % number,
                producer_id=written.producer_id,
                producer_epoch=written.producer_epoch,
                base_sequence=number,
            )
            assert produce(wire, "t", later).error_code == 0
        relay.pass_on()
        relay.drop()

        assert told.result(LIMIT_S) == NO_OFFSET
        assert read_values(fetch(wire, "t", 0).records) == [b"%d" % number for number in range(BATCHES)]


def has_produce_request(data: bytes) -> bool:
    """Whether a Produce request begins in a piece of requests that begins with one."""
    at = 0
    while at + _REQUEST.size <= len(data):
        size, api_key = _REQUEST.unpack_from(data, at)
        if api_key == PRODUCE:
            return True
        at += 4 + size
    return False
