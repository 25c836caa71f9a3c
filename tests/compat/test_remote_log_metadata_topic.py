"""`remote_log_metadata=kafka`: restarts, several clusters on one topic, topics that are not as they should be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from diskless_core.clock import SystemClock
from diskless_core.plugin.remote_log_metadata import (
    IllegalTransitionError,
    RemoteLogMetadata,
    RemoteLogMetadataError,
    RemoteLogMetadataServices,
)
from diskless_core.protocol.names import uuid_text
from diskless_core.remote_log import records
from diskless_core.remote_log.metadata import RemoteLogSegmentState, RemotePartitionDeleteState, TopicIdPartition
from diskless_core.testing.fakes.remote_log_metadata import MemoryLedger
from diskless_core.testing.remote_log_metadata_tools import (
    PARTITION,
    TIMEOUT_S,
    copies_found,
    copies_listed,
    deletion,
    deletion_of,
    finished,
    segment,
    update,
)
from diskless_kafka.config import RemoteLogMetadataSettings
from diskless_kafka.snapshot_file import COMMITTED_OFFSETS, SNAPSHOT_NAMES, SUFFIX
from tests.support.apache_kafka import ApacheKafka
from tests.support.cluster import until
from tests.support.metadata_topic import PARTITIONS, node, topic_settings

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
MARKED = RemotePartitionDeleteState.DELETE_PARTITION_MARKED


@asynccontextmanager
async def running(
    settings: RemoteLogMetadataSettings, folder: Path, cluster_id: str = "ours"
) -> AsyncIterator[RemoteLogMetadata]:
    made = node(settings, folder)
    await made.start(RemoteLogMetadataServices(cluster_id=cluster_id, ledger=MemoryLedger()))
    try:
        yield made
    finally:
        await made.stop()


def new_partition() -> TopicIdPartition:
    return PARTITION._replace(topic_id=SystemClock().new_uuid())


@pytest.fixture
def settings(apache_kafka: ApacheKafka, topic: str) -> RemoteLogMetadataSettings:
    return topic_settings(apache_kafka.bootstrap, f"remote-segments-{topic}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "node"


def delete_all_records(settings: RemoteLogMetadataSettings) -> None:
    """Leave nothing in the topic but its offsets, as a retention that is too short would."""
    admin = KafkaAdminClient(bootstrap_servers=list(settings.bootstrap_servers))
    admin.delete_records({TopicPartition(settings.topic_name, number): -1 for number in range(PARTITIONS)})
    admin.close()


def do_damage(folder: Path, name: str, damage: str) -> None:
    (damaged,) = folder.glob(f"*/{name}")
    data = damaged.read_bytes()
    if damage == "missing":
        damaged.unlink()
    else:
        damaged.write_bytes(data[:-1] if damage == "cut" else bytes([data[0] ^ 0x40]) + data[1:])


def kept_in(folder: Path) -> list[str]:
    """The names of the flat files that count."""
    return [name for file in folder.glob(f"*/{SNAPSHOT_NAMES}") for name in file.read_text().splitlines()]


async def test_a_restart_reads_on_from_the_nodes_own_copy(settings: RemoteLogMetadataSettings, folder: Path) -> None:
    partition, other = new_partition(), new_partition()
    async with running(settings, folder) as metadata:
        await finished(metadata, segment(1, 0, 9), partition)
        await metadata.add(segment(2, 10, 19, partition=partition))
        await finished(metadata, segment(3, 0, 9), other)
        await metadata.update_partition(deletion(MARKED, other))
    delete_all_records(settings)
    async with running(settings, folder) as metadata:
        assert await copies_found(metadata, partition, 0, [5, 15]) == [1, None]
        assert await copies_listed(metadata, partition) == [1, 2]
        assert await deletion_of(metadata, other) == deletion(MARKED, other)
        await metadata.update(update(segment(2, 10, 19, partition=partition), FINISHED))
        await metadata.update(update(segment(3, 0, 9, partition=other), DELETING))
        await metadata.update(update(segment(3, 0, 9, partition=other), DELETED))
    async with running(settings, folder) as metadata:
        assert await copies_found(metadata, partition, 0, [5, 15]) == [1, 2]
        assert await copies_listed(metadata, other) == []


async def test_without_its_copy_a_node_reads_the_topic_from_the_start(
    settings: RemoteLogMetadataSettings, folder: Path, tmp_path: Path
) -> None:
    partition = new_partition()
    async with running(settings, folder) as metadata:
        await finished(metadata, segment(1, 0, 9), partition)
        async with running(settings, tmp_path / "another") as other:
            assert await copies_found(other, partition, 0, [5]) == [1]
    delete_all_records(settings)
    async with running(settings, tmp_path / "yet another") as other:
        assert await copies_listed(other, partition) == []


@pytest.mark.parametrize(
    ("name", "damage"), [(COMMITTED_OFFSETS, "cut"), (SNAPSHOT_NAMES, "missing"), (f"*{SUFFIX}", "other bytes")]
)
async def test_a_damaged_copy_is_not_used(
    settings: RemoteLogMetadataSettings, folder: Path, name: str, damage: str
) -> None:
    partition = new_partition()
    async with running(settings, folder) as metadata:
        await finished(metadata, segment(1, 0, 9), partition)
    do_damage(folder, name, damage)
    async with running(settings, folder) as metadata:
        assert await copies_found(metadata, partition, 0, [5]) == [1]
        assert await copies_listed(metadata, partition) == [1]
        await metadata.add(segment(2, 10, 19, partition=partition))
    async with running(settings, folder) as metadata:
        assert await copies_listed(metadata, partition) == [1, 2]


async def test_a_topic_that_is_made_anew_while_a_node_runs_is_read_from_its_start(
    settings: RemoteLogMetadataSettings, folder: Path
) -> None:
    partition = new_partition()
    async with running(settings, folder) as metadata:
        await finished(metadata, segment(1, 0, 9), partition)
        admin = KafkaAdminClient(bootstrap_servers=list(settings.bootstrap_servers))
        admin.delete_topics([settings.topic_name])
        topic = {"num_partitions": PARTITIONS, "replication_factor": 1, "configs": settings.topic_configs()}
        admin.create_topics({settings.topic_name: topic}, wait_for_metadata=True)
        admin.close()

        async with asyncio.timeout(TIMEOUT_S):
            while True:
                with suppress(RemoteLogMetadataError):  # it is being read
                    if not await copies_listed(metadata, partition):
                        break
                await asyncio.sleep(0.05)
        await metadata.add(segment(2, 10, 19, partition=partition))
        assert await copies_listed(metadata, partition) == [2]


async def test_the_copy_of_another_topic_is_not_used(settings: RemoteLogMetadataSettings, folder: Path) -> None:
    partition = new_partition()
    async with running(settings, folder) as metadata:
        await finished(metadata, segment(1, 0, 9), partition)
    other = settings.model_copy(update={"topic_name": f"{settings.topic_name}-other"})
    async with running(other, folder) as metadata:
        assert await copies_listed(metadata, partition) == []
        await finished(metadata, segment(2, 0, 9), partition)
    assert kept_in(folder) == [f"{uuid_text(partition.topic_id)}-{partition.partition}{SUFFIX}"]


async def test_what_was_read_is_kept_while_the_node_runs(
    settings: RemoteLogMetadataSettings, folder: Path, tmp_path: Path
) -> None:
    often = settings.model_copy(update={"snapshot_interval_ms": 10})
    partition = new_partition()
    name = f"{uuid_text(partition.topic_id)}-{partition.partition}{SUFFIX}"
    async with running(often, folder) as metadata:
        await finished(metadata, segment(1, 0, 9), partition)
        await until(lambda: kept_in(folder) == [name])


async def test_each_cluster_deletes_its_own_partitions(
    settings: RemoteLogMetadataSettings, folder: Path, tmp_path: Path
) -> None:
    ours, theirs, kafkas = new_partition(), new_partition(), new_partition()
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(running(settings, folder, "ours"))
        b = await stack.enter_async_context(running(settings, tmp_path / "b", "theirs"))
        await a.update_partition(deletion(MARKED, ours))
        await b.update_partition(deletion(MARKED, theirs))
        producer = KafkaProducer(bootstrap_servers=list(settings.bootstrap_servers))
        for number in range(PARTITIONS):
            marked = deletion(MARKED, kafkas._replace(partition=number))
            at = records.metadata_partition(kafkas.topic_id, number, PARTITIONS)
            producer.send(settings.topic_name, value=records.encode(marked), partition=at).get(TIMEOUT_S)
        producer.close()
        for metadata, own, other in ((a, ours, theirs), (b, theirs, ours)):
            await finished(metadata, segment(1, 0, 9), kafkas)
            assert await deletion_of(metadata, own) == deletion(MARKED, own)
            assert await deletion_of(metadata, other) is None
            assert await deletion_of(metadata, kafkas) is None
            if metadata is a:
                await a.update(update(segment(1, 0, 9, partition=kafkas), DELETING))
                await a.update(update(segment(1, 0, 9, partition=kafkas), DELETED))
    for place in (folder, tmp_path / "without a copy"):
        async with running(settings, place, "ours") as metadata:
            assert [found.topic_id_partition for found in await metadata.deleting_partitions()] == [ours]


async def test_events_that_do_not_follow_are_ignored_when_others_have_written_them(
    settings: RemoteLogMetadataSettings, folder: Path
) -> None:
    partition = new_partition()
    begun = segment(1, 0, 9, partition=partition)
    async with running(settings, folder) as metadata:
        await finished(metadata, begun, partition)
        at = records.metadata_partition(partition.topic_id, partition.partition, PARTITIONS)
        producer = KafkaProducer(bootstrap_servers=list(settings.bootstrap_servers))
        unknown = update(segment(2, 10, 19, partition=partition), FINISHED)
        for value in (records.encode(begun), records.encode(unknown), b"no event", b"", None):
            producer.send(settings.topic_name, key=b"key", value=value, partition=at).get(TIMEOUT_S)
        producer.close()
        await metadata.add(segment(3, 10, 19, partition=partition))
        assert await copies_listed(metadata, partition) == [1, 3]
        assert await copies_found(metadata, partition, 0, [5]) == [1]


async def test_a_node_knows_what_another_has_written_a_moment_ago(
    settings: RemoteLogMetadataSettings, folder: Path, tmp_path: Path
) -> None:
    async with running(settings, folder) as one, running(settings, tmp_path / "other") as other:
        for copy in range(5):
            begun = segment(copy, 0, 9, partition=new_partition())
            await one.add(begun)
            await other.update(update(begun, FINISHED))
            with pytest.raises(IllegalTransitionError):
                await one.add(begun)
            await one.update(update(begun, DELETING))
            with pytest.raises(IllegalTransitionError):
                await other.update(update(begun, FINISHED))


async def test_of_two_nodes_that_write_at_once_the_one_that_comes_too_late_is_told(
    settings: RemoteLogMetadataSettings, folder: Path, tmp_path: Path
) -> None:
    async with running(settings, folder) as one, running(settings, tmp_path / "other") as other:
        for copy in range(5):
            partition = new_partition()
            rivals = [segment(copy, 0, end, partition=partition) for end in (8, 9)]
            results = await asyncio.gather(one.add(rivals[0]), other.add(rivals[1]), return_exceptions=True)
            assert sorted(map(type, results), key=str) == sorted([type(None), IllegalTransitionError], key=str)
            winner = rivals[results.index(None)]
            for metadata in (one, other):
                await metadata.add(winner)
                assert list(await metadata.list(partition)) == [winner]


async def test_records_are_as_kafka_writes_them(settings: RemoteLogMetadataSettings, folder: Path) -> None:
    partition = new_partition()
    begun = segment(1, 0, 9, partition=partition)
    async with running(settings, folder) as metadata:
        await metadata.add(begun)
        await metadata.add(begun)
        await metadata.update(update(begun, FINISHED))
    consumer = KafkaConsumer(bootstrap_servers=list(settings.bootstrap_servers))
    at = TopicPartition(
        settings.topic_name, records.metadata_partition(partition.topic_id, partition.partition, PARTITIONS)
    )
    consumer.assign([at])
    consumer.seek_to_beginning(at)
    read: list[Any] = []
    while consumer.position(at) < consumer.end_offsets([at])[at]:
        read += consumer.poll(1_000).get(at, [])
    consumer.close()
    assert [(record.key, records.decode(record.value)) for record in read] == [
        (None, begun),
        (None, update(begun, FINISHED)),
    ]


async def test_the_topic_is_made_as_kafka_makes_it(settings: RemoteLogMetadataSettings, folder: Path) -> None:
    async with running(settings, folder):
        admin = KafkaAdminClient(bootstrap_servers=list(settings.bootstrap_servers))
        (described,) = admin.describe_topics([settings.topic_name])
        resource = ConfigResource(ConfigResourceType.TOPIC, settings.topic_name)
        configs = admin.describe_configs([resource])["topic"][settings.topic_name]
        admin.close()
    assert len(described["partitions"]) == PARTITIONS
    assert {name: config["value"] for name, config in configs.items() if name != "remote.storage.enable"} == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "min.insync.replicas": "1",
    }


@pytest.mark.parametrize(
    ("topic_options", "expected"),
    [
        ({"num_partitions": 5}, r"has 5 partitions and not 3: set .*topic\.num\.partitions=5"),
        ({"num_partitions": 3, "configs": {"cleanup.policy": "compact"}}, r"cleanup\.policy=compact"),
    ],
)
async def test_a_topic_that_is_not_as_configured_is_refused(
    settings: RemoteLogMetadataSettings, folder: Path, topic_options: dict[str, Any], expected: str
) -> None:
    admin = KafkaAdminClient(bootstrap_servers=list(settings.bootstrap_servers))
    admin.create_topics({settings.topic_name: {"replication_factor": 1, **topic_options}}, wait_for_metadata=True)
    admin.close()
    with pytest.raises(RemoteLogMetadataError, match=expected) as error:
        async with running(settings, folder):
            pass
    assert not error.value.retriable


async def test_options_that_the_client_does_not_know_are_refused(
    settings: RemoteLogMetadataSettings, folder: Path
) -> None:
    wrong = RemoteLogMetadataSettings(**{**settings.model_dump(), "admin_options": json.dumps({"no.such.option": "x"})})
    with pytest.raises(RemoteLogMetadataError, match=r"no\.such\.option") as error:
        async with running(wrong, folder):
            pass
    assert not error.value.retriable
