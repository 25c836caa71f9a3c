"""A broker with `segment_compaction=spark`: it compacts, it is killed meanwhile, it compacts again; nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerFactory, BrokerProcess
from tests.support.crash import CLIENT
from tests.support.spark import spark_environment
from tests.support.waiting import wait_until

TOPIC = "events"
PARTITIONS = 4
COUNT = 6_000
TIMEOUT_S = 300.0
DISKLESS = Path(sys.executable).with_name("diskless")
SETTINGS = {
    "admin.listener": "http://127.0.0.1:0",
    "diskless.append.commit.interval.ms": "20",
    "log.segment.bytes": str(1 << 20),
    "segment_compaction": "spark",
    "segment_compaction.spark.master": "local[2]",
    "segment_compaction.spark.conf": json.dumps(
        {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
        }
    ),
}


def value_of(number: int) -> bytes:
    return b"%d " % number * 400


def produce(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **CLIENT})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(10)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, **CLIENT})
    for number in range(COUNT):
        producer.produce(TOPIC, value_of(number), partition=number % PARTITIONS)
        if number % 100 == 0:
            assert producer.flush(30) == 0
    assert producer.flush(30) == 0


def consume(broker: BrokerProcess) -> dict[int, list[bytes | None]]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", **CLIENT})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    found: dict[int, list[bytes | None]] = {index: [] for index in range(PARTITIONS)}
    deadline = time.monotonic() + TIMEOUT_S
    while sum(map(len, found.values())) < COUNT:
        assert time.monotonic() < deadline
        for message in consumer.consume(500, 0.2):
            assert message.error() is None
            found[message.partition()].append(message.value())
    consumer.close()
    return found


def segments(broker: BrokerProcess) -> list[Any]:
    return list(httpx.get(f"{broker.admin}/remote-log").raise_for_status().json())


def test_a_broker_that_dies_in_a_compaction_on_spark_loses_nothing_and_the_next_one_finishes(
    new_broker: BrokerFactory,
) -> None:
    os.environ.update(spark_environment())
    broker = new_broker(SETTINGS)
    produce(broker)
    httpx.post(f"{broker.admin}/compaction", json={"topics": [TOPIC], "everything": True}).raise_for_status()
    wait_until(lambda: len(segments(broker)) > 1, "the compaction begins")
    children = psutil.Process(broker.pid).children(recursive=True)
    broker.kill()
    _, left = psutil.wait_procs(children, timeout=TIMEOUT_S)
    assert not left, "processes of Spark outlive the broker"
    broker.start()
    done = subprocess.run(
        [DISKLESS, "compact", "--topic", TOPIC, "--everything", "--json", "--url", broker.admin],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{broker.log_tail()}"
    report = json.loads(done.stdout)
    assert (report["state"], report["engine"]) == ("finished", "spark")
    known = segments(broker)
    assert {one["state"] for one in known} == {"COPY_SEGMENT_FINISHED"}
    assert sum(one["end_offset"] - one["start_offset"] + 1 for one in known) == COUNT
    assert consume(broker) == {
        index: [value_of(number) for number in range(index, COUNT, PARTITIONS)] for index in range(PARTITIONS)
    }
