"""The clients for Node.js: kafkajs, and @platformatic/kafka, its living successor."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import confluent_kafka
import pytest

from tests.support.downloads import filled_once

HERE = Path(__file__).parent / "node"
RECORDS = 50
TIMEOUT_S = 300
INSTALL = ("npm", "ci", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


@pytest.fixture(scope="session")
def programs():
    """The programs of this folder beside the clients that they import."""

    def fill(folder):
        shutil.copytree(HERE, folder)
        subprocess.run(INSTALL, cwd=folder, check=True, timeout=10 * TIMEOUT_S)

    try:
        return filled_once("node", HERE.iterdir(), fill)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        if os.environ.get("DISKLESS_REQUIRE_NODE"):
            raise
        pytest.skip(f"npm cannot install the clients: {error}")


@pytest.mark.parametrize("client", ["kafkajs", "platformatic"])
def test_records_go_round_in_a_group(client, programs, broker, topic):
    arguments = [broker.bootstrap, f"{client} on node", topic, f"{topic}-group", str(RECORDS)]

    done = subprocess.run(
        ["node", str(programs / f"{client}.mjs"), *arguments], capture_output=True, text=True, timeout=TIMEOUT_S
    )

    assert done.returncode == 0, done.stdout + done.stderr
    got = json.loads(done.stdout)
    assert {tuple(record[2:]) for record in got} == {(f"k{i}", f"v{i}", f"h{i}") for i in range(RECORDS)}
    ends = {partition: max(record[1] for record in got if record[0] == partition) + 1 for partition, *_ in got}
    assert committed(broker, topic, ends) == ends


def committed(broker, topic, partitions):
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"{topic}-group"})
    try:
        wanted = [confluent_kafka.TopicPartition(topic, partition) for partition in partitions]
        return {entry.partition: entry.offset for entry in consumer.committed(wanted, TIMEOUT_S)}
    finally:
        consumer.close()
