"""Kafka Connect standalone: lines of a file into a topic, and from the topic into another file."""

from __future__ import annotations

import subprocess
import time

from tests.compat.clients import Confluent
from tests.support.apache_kafka import java

LINES = 200
TIMEOUT_S = 300


def write_properties(path, settings):
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def test_exactly_the_lines_of_a_file_arrive_in_another(broker, kafka_jars, topic, tmp_path):
    source, sink, log = tmp_path / "source.txt", tmp_path / "sink.txt", tmp_path / "connect.log"
    text = "".join(f"line {number}\n" for number in range(LINES))
    source.write_text(text)
    string = "org.apache.kafka.connect.storage.StringConverter"
    worker = {
        "bootstrap.servers": broker.bootstrap,
        "key.converter": string,
        "value.converter": string,
        "offset.storage.file.filename": tmp_path / "offsets",
        "offset.flush.interval.ms": "200",
        "plugin.discovery": "service_load",
        "listeners": "http://127.0.0.1:0",
    }
    connectors = [
        {
            "name": f"{topic}-source",
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "file": source,
            "topic": topic,
            "topic.creation.default.replication.factor": "-1",
            "topic.creation.default.partitions": "1",
        },
        {
            "name": f"{topic}-sink",
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "file": sink,
            "topics": topic,
        },
    ]
    files = [
        write_properties(tmp_path / f"{number}.properties", settings)
        for number, settings in enumerate([worker, *connectors])
    ]

    command = java(kafka_jars, "org.apache.kafka.connect.cli.ConnectStandalone", *files)
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as connect:
        try:
            wait_for(lambda: sink.exists() and sink.read_text() == text, connect, log)
            connect.terminate()
            connect.wait(TIMEOUT_S)
        finally:
            connect.kill()

    assert sink.read_text() == text
    read = Confluent(broker.bootstrap).read(topic, LINES)
    assert [record.value.decode() for record in read] == text.splitlines()


def wait_for(condition, process, log):
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
