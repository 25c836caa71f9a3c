"""Kafka Streams: a word count with a repartition topic of its own, at least once."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compat.clients import Confluent, Sent
from tests.support.apache_kafka import java
from tests.support.requests import create_topic

PROGRAM = Path(__file__).parent / "java/WordCount.java"
STOP_TIMEOUT_S = 300


@pytest.fixture
def word_count(kafka_jars, broker, topic, tmp_path):
    """The running application; it has to stop cleanly."""
    arguments = [broker.bootstrap, str(tmp_path / "state"), f"{topic}-count", topic, f"{topic}-counts"]
    with subprocess.Popen(java(kafka_jars, str(PROGRAM), *arguments, log_level="error")) as process:
        try:
            yield process
            process.terminate()
            # 143 is a JVM that ended by SIGTERM.
            assert process.wait(STOP_TIMEOUT_S) == 143
        finally:
            process.kill()


def test_words_are_counted_through_a_repartition_topic(broker, wire, topic, request):
    create_topic(wire, topic, 2)
    create_topic(wire, f"{topic}-counts")
    client = Confluent(broker.bootstrap)
    client.produce(topic, [Sent(b"all streams lead"), Sent(b"lead all", partition=1), Sent(b"to the sea")])

    request.getfixturevalue("word_count")
    client.produce(topic, [Sent(b"sea to sea")])

    counts = {}
    for record in client.read(f"{topic}-counts", 11):
        counts[record.key.decode()] = int(record.value)
    assert counts == {"all": 2, "streams": 1, "lead": 2, "to": 2, "the": 1, "sea": 3}
