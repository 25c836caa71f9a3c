"""`remote_log_metadata=kafka` and Apache Kafka's own keeper of `__remote_log_metadata` understand each other."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadata, RemoteLogMetadataServices
from diskless_core.protocol.names import uuid_text
from diskless_core.remote_log.metadata import RemoteLogSegmentState, RemotePartitionDeleteState, TopicIdPartition
from diskless_core.testing.fakes.remote_log_metadata import MemoryLedger
from diskless_core.testing.remote_log_metadata_tools import (
    CLUSTER_ID,
    PARTITION,
    deletion,
    segment,
    update,
)
from tests.support.apache_kafka import ApacheKafka, java
from tests.support.cluster import until
from tests.support.metadata_topic import PARTITIONS, node, topic_settings

PROGRAM = Path(__file__).parents[1] / "kafka" / "RemoteLogManagerNode.java"
TOPIC = "__remote_log_metadata"
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


class KafkaNode:
    """Kafka's own keeper of the metadata, for one partition."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert self._line() == "ready"

    def ask(self, question: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "Kafka's node has ended"
        return line.rstrip("\n")


@contextmanager
def kafka_node(kafka: ApacheKafka, folder: Path, partition: TopicIdPartition) -> Iterator[KafkaNode]:
    folder.mkdir()
    of = [uuid_text(partition.topic_id), partition.topic, str(partition.partition)]
    command = java(kafka.jars, str(PROGRAM), kafka.bootstrap, str(PARTITIONS), str(folder), *of)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield KafkaNode(process)
        finally:
            process.kill()


@pytest.fixture
def partition() -> TopicIdPartition:
    return PARTITION._replace(topic_id=SystemClock().new_uuid())


@pytest.fixture
async def metadata(apache_kafka: ApacheKafka, tmp_path: Path) -> AsyncIterator[RemoteLogMetadata]:
    made = node(topic_settings(apache_kafka.bootstrap, TOPIC), tmp_path / "diskless")
    await made.start(RemoteLogMetadataServices(cluster_id=CLUSTER_ID, ledger=MemoryLedger()))
    yield made
    await made.stop()


async def test_kafka_and_diskless_read_what_the_other_has_written(
    apache_kafka: ApacheKafka, metadata: RemoteLogMetadata, partition: TopicIdPartition, tmp_path: Path
) -> None:
    before = [segment(copy, 10 * copy, 10 * copy + 9, partition=partition) for copy in range(3)]
    for begun in before:
        await metadata.add(begun)
    await metadata.update(update(before[0], FINISHED, custom_metadata=b"here"))
    await metadata.update(update(before[1], RemoteLogSegmentState.DELETE_SEGMENT_STARTED))
    ids = [uuid_text(begun.segment_id.id) for begun in before]
    theirs = SystemClock().new_uuid()
    with kafka_node(apache_kafka, tmp_path / "kafka", partition) as kafka:
        listed = [f"{ids[0]}:1:0:9:here", f"{ids[1]}:2:10:19:", f"{ids[2]}:0:20:29:"]
        assert sorted(kafka.ask("list").split(" ")) == sorted(listed)
        assert [kafka.ask(f"find 0 {offset}") for offset in (5, 15, 25)] == [ids[0], "-", "-"]

        assert kafka.ask(f"copy {uuid_text(theirs)} 30 39") == "copied"
        # to write to the same partition of the topic is to have read what Kafka wrote before
        await metadata.update(update(before[2], FINISHED))
        found = await metadata.find(partition, 0, 35)
        assert found is not None
        assert (found.segment_id.id, found.broker_id, found.custom_metadata) == (theirs, 77, b"\x01\x02\x03")
        await until(lambda: kafka.ask("find 0 25") == ids[2])


async def test_a_deletion_that_kafka_has_begun_is_not_a_diskless_clusters(
    apache_kafka: ApacheKafka, metadata: RemoteLogMetadata, partition: TopicIdPartition, tmp_path: Path
) -> None:
    marked = deletion(RemotePartitionDeleteState.DELETE_PARTITION_MARKED, partition)
    begun = segment(1, 0, 9, partition=partition)
    with kafka_node(apache_kafka, tmp_path / "kafka", partition) as kafka:
        assert kafka.ask("mark") == "marked"
        await metadata.add(begun)
        assert partition not in [found.topic_id_partition for found in await metadata.deleting_partitions()]
        await metadata.update_partition(marked)
        assert partition in [found.topic_id_partition for found in await metadata.deleting_partitions()]
