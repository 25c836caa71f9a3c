"""A Java consumer that is stuck on a batch goes on behind it by the commands of docs/damaged-batches.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.kafka_tools import KafkaTools, ToolRunner
from tests.support.batches import batch_of, with_header
from tests.support.broker import BrokerProcess
from tests.support.damaged_batches import change_batch
from tests.support.requests import append, create_topic

TOPIC, GROUP = "orders", "billing"
GOOD, MANY, LAST = batch_of(b"one"), batch_of(b"two", b"three"), batch_of(b"four")


@pytest.fixture
def stuck(tmp_path: Path, kafka_jars: Path, tool_runner: ToolRunner) -> Iterator[KafkaTools]:
    """The tools on a broker with a topic whose offsets 1 and 2 are of a batch that counts more records than it has."""
    broker = BrokerProcess(tmp_path)
    try:
        broker.start()
        with broker.connect() as wire:
            create_topic(wire, TOPIC)
            append(wire, TOPIC, GOOD, MANY, LAST)
        broker.stop()
        change_batch(tmp_path / "data", MANY, lambda batch: with_header(batch, record_count=5))
        broker.start()
        yield KafkaTools(kafka_jars, tool_runner, broker.bootstrap)
    finally:
        broker.end()


def test_a_java_consumer_that_is_stuck_is_freed_by_an_offset_or_by_deleting_records(
    stuck: KafkaTools, tmp_path: Path
) -> None:
    read = ("--topic", TOPIC, "--from-beginning", "--max-messages")
    stopped = stuck.run("kafka-console-consumer", *read, "5", "--group", GROUP)
    assert "Received exception when fetching the next record from orders-0" in stopped.err

    reset = ("--group", GROUP, "--topic", f"{TOPIC}:0", "--reset-offsets", "--to-offset", "3", "--execute")
    assert "orders" in stuck.out("kafka-consumer-groups", *reset)
    assert stuck.out("kafka-console-consumer", *read, "1", "--group", GROUP) == "four\n"

    (tmp_path / "delete.json").write_text(
        json.dumps({"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "offset": 3}]})
    )
    deleted = stuck.out("kafka-delete-records", "--offset-json-file", str(tmp_path / "delete.json"))
    assert "low_watermark: 3" in deleted
