"""`coordinator_log=kafka` creates its topics safely, and refuses ones that are unsafe or not the same any more."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from diskless_core.plugin import kafka_client
from diskless_core.plugin.context import TOOL_NODE_ID
from diskless_core.plugin.coordinator_log import CoordinatorLogError, EntryRefusedError, LogBounds
from diskless_core.shards import GROUPS
from diskless_core.testing.coordinator_log_tools import (
    OTHER_SHARD,
    SHARD,
    TIMEOUT_S,
    batch_of,
    batch_of_size,
    read_all,
    read_batches,
    same_content,
    started,
)
from diskless_kafka.kafka_log import KafkaCoordinatorLog
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_log import kafka_log, log_properties
from tests.support.waiting import wait_until

_numbers = itertools.count()


@pytest.fixture
def prefix() -> str:
    return f"topics_{next(_numbers)}_"


@pytest.fixture
def properties(apache_kafka: ApacheKafka, prefix: str) -> dict[str, Any]:
    return log_properties(apache_kafka.bootstrap, prefix)


@pytest.fixture
def admin(apache_kafka: ApacheKafka) -> Iterator[AdminClient]:
    with kafka_client.open_admin({"bootstrap.servers": apache_kafka.bootstrap}, 60) as client:
        yield client


def make_topic(admin: AdminClient, name: str, **configs: str) -> None:
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    kafka_client.answer(admin.create_topics([NewTopic(name, 1, 1, config=settings)]))


async def set_max_message_bytes(admin: AdminClient, name: str, size_bytes: int) -> None:
    """Change the limit of a topic, and wait until its broker says that it has it."""
    value = str(size_bytes)
    change = ConfigEntry("max.message.bytes", value, incremental_operation=AlterConfigOpType.SET)
    kafka_client.answer(
        admin.incremental_alter_configs([ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[change])])
    )

    def is_so() -> bool:
        asked = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, name)])
        return bool(kafka_client.answer(asked)["max.message.bytes"].value == value)

    await asyncio.to_thread(wait_until, is_so, f"max.message.bytes={value} of the topic {name}")


def delete_topic(admin: AdminClient, name: str) -> None:
    kafka_client.answer(admin.delete_topics([name]))


async def until_there(admin: AdminClient, name: str, *, there: bool) -> None:
    def is_so() -> bool:
        return (kafka_client.describe_topic(admin, name) is not None) == there

    await asyncio.to_thread(wait_until, is_so, f"the topic {name}: {there}")


async def test_topics_are_created_as_they_have_to_be_with_a_partition_for_each_shard(
    properties: dict[str, Any], admin: AdminClient, prefix: str, tmp_path: Path
) -> None:
    name = f"{prefix}metadata"
    async with started(kafka_log(properties, tmp_path)) as log:
        await log.append(SHARD, [batch_of(b"a")])
        await log.append(OTHER_SHARD, [batch_of(b"b")])
    described = kafka_client.describe_topic(admin, name)
    assert described is not None
    assert len(described.partitions) == 2
    told = kafka_client.answer(admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, name)]))
    assert {setting: told[setting].value for setting in ("retention.ms", "retention.bytes", "cleanup.policy")} == {
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "cleanup.policy": "delete",
    }
    assert told["unclean.leader.election.enable"].value == "false"
    assert told["max.message.bytes"].value == str(2 << 20)
    async with started(kafka_log(properties, tmp_path)) as log:
        assert same_content(await read_all(log, SHARD), [batch_of(b"a")])


async def test_to_ask_where_a_log_ends_creates_neither_topic_nor_partition(
    properties: dict[str, Any], admin: AdminClient, prefix: str, tmp_path: Path
) -> None:
    async with started(kafka_log(properties, tmp_path)) as log:
        await log.append(SHARD, [batch_of(b"a")])
        assert await log.bounds(OTHER_SHARD) == LogBounds(0, 0)
        assert await log.bounds(GROUPS.shard(0)) == LogBounds(0, 0)
    topics = await asyncio.to_thread(lambda: admin.list_topics(timeout=60).topics)
    found = {name: len(topic.partitions) for name, topic in topics.items() if name.startswith(prefix)}
    assert found == {f"{prefix}metadata": 1}


async def test_a_tool_reads_beside_the_broker_and_creates_nothing(
    properties: dict[str, Any], admin: AdminClient, prefix: str, tmp_path: Path
) -> None:
    batches = [batch_of(b"a"), batch_of(b"b")]
    async with started(kafka_log(properties, tmp_path)) as log:
        await log.append(SHARD, batches)
        tool = kafka_log(properties, tmp_path / "tool", node_id=TOOL_NODE_ID)
        await tool.start_reading()
        try:
            assert same_content(await read_all(tool, SHARD), batches)
            assert await tool.bounds(GROUPS.shard(0)) == LogBounds(0, 0)
            assert await tool.bounds(OTHER_SHARD) == LogBounds(0, 0)
            with pytest.raises(CoordinatorLogError, match="there is no"):
                await read_batches(tool, GROUPS.shard(0), 0, 1)
            with pytest.raises(CoordinatorLogError, match="for reading only"):
                await tool.append(SHARD, batches)
        finally:
            await tool.stop()
    described = kafka_client.describe_topic(admin, f"{prefix}metadata")
    assert described is not None
    assert len(described.partitions) == 1
    assert not (tmp_path / "tool").exists()


async def test_an_unsafe_topic_refuses_the_start_and_all_that_is_wrong_is_named(
    properties: dict[str, Any], admin: AdminClient, prefix: str, tmp_path: Path
) -> None:
    make_topic(admin, f"{prefix}metadata", retention_ms="60000", cleanup_policy="compact")
    with pytest.raises(CoordinatorLogError) as error:
        async with started(kafka_log(properties, tmp_path)):
            pass
    for wrong in ("retention.ms=60000 and must have -1", "cleanup.policy=compact", "max.message.bytes=1048588"):
        assert f"topic {prefix}metadata has {wrong}" in str(error.value)


async def test_one_replica_refuses_the_start_unless_it_is_called_unsafe(
    properties: dict[str, Any], tmp_path: Path
) -> None:
    async with started(kafka_log(properties, tmp_path)) as log:
        await log.append(SHARD, [batch_of(b"a")])
    safe = {**properties, "allow.unsafe": False, "topic.replication.factor": 3}
    with pytest.raises(CoordinatorLogError, match=r"has replication factor=1 and must have 3 or more"):
        async with started(kafka_log(safe, tmp_path)):
            pass


async def test_a_kafka_with_too_few_brokers_is_an_error_that_names_the_replication_factor(
    properties: dict[str, Any], tmp_path: Path
) -> None:
    safe = {**properties, "allow.unsafe": False, "topic.replication.factor": 3}
    async with started(kafka_log(safe, tmp_path)) as log:
        with pytest.raises(CoordinatorLogError, match="replication factor of 3"):
            await log.bounds(SHARD)


async def test_a_topic_that_was_made_anew_is_refused_at_the_next_start(
    properties: dict[str, Any], admin: AdminClient, prefix: str, tmp_path: Path
) -> None:
    name = f"{prefix}metadata"
    async with started(kafka_log(properties, tmp_path)) as log:
        await log.append(SHARD, [batch_of(b"a")])
    delete_topic(admin, name)
    await until_there(admin, name, there=False)
    async with started(kafka_log(properties, tmp_path)) as log:
        with pytest.raises(CoordinatorLogError, match=f"{name}.* is gone"):
            await log.append(SHARD, [batch_of(b"b")])
    async with started(kafka_log(properties, tmp_path, node_id=2)) as other:
        await other.append(SHARD, [batch_of(b"of a cluster that has begun anew")])
    with pytest.raises(CoordinatorLogError, match="deleted and made anew"):
        async with started(kafka_log(properties, tmp_path)):
            pass


async def test_a_topic_that_is_made_anew_while_a_node_uses_it_is_refused(
    properties: dict[str, Any], admin: AdminClient, prefix: str, tmp_path: Path
) -> None:
    name = f"{prefix}metadata"
    async with started(kafka_log({**properties, "append.timeout.ms": 5_000}, tmp_path)) as log:
        await log.append(SHARD, [batch_of(b"a"), batch_of(b"b")])
        delete_topic(admin, name)
        await until_there(admin, name, there=False)
        async with started(kafka_log(properties, tmp_path, node_id=2)) as other:
            await other.append(SHARD, [batch_of(b"new")])  # fewer than were read: where the node goes on is nothing
        async with asyncio.timeout(TIMEOUT_S):
            told = ""
            while "deleted and made anew" not in told:
                with pytest.raises(CoordinatorLogError) as error:
                    await log.append(SHARD, [batch_of(b"never acknowledged")])
                told = str(error.value)


async def test_a_limit_that_is_lowered_while_brokers_run_fails_what_is_too_large_and_nothing_else_for_long(
    properties: dict[str, Any], admin: AdminClient, prefix: str, tmp_path: Path
) -> None:
    name = f"{prefix}metadata"
    async with started(kafka_log(properties, tmp_path)) as log:
        before, behind = batch_of(b"before"), batch_of(b"behind")
        await log.append(SHARD, [before])
        await set_max_message_bytes(admin, name, 1_048_588)
        with pytest.raises(EntryRefusedError) as refused:
            await log.append(SHARD, [before, batch_of_size(1_500_000), behind])
        assert refused.value.position == 1
        await log.append(SHARD, [behind])
        assert same_content(await read_all(log, SHARD), [before, before, behind])

        await set_max_message_bytes(admin, name, 100_000)
        small = [batch_of_size(30_000 + number) for number in range(8)]
        under_load = [*small, batch_of_size(200_000), behind]
        with pytest.raises(CoordinatorLogError) as failed:
            await log.append(SHARD, under_load)
        assert not isinstance(failed.value, EntryRefusedError), "they share a record batch"
        for _ in range(2):
            with pytest.raises(EntryRefusedError) as refused:
                await log.append(SHARD, under_load)
            assert refused.value.position == len(small)
        assert same_content((await read_all(log, SHARD))[-2 * len(small) :], small * 2)

        await set_max_message_bytes(admin, name, 2 << 20)
        await log.append(SHARD, under_load)
        assert same_content((await read_all(log, SHARD))[-len(under_load) :], under_load)


async def test_what_others_wrote_into_the_topic_is_nothing_to_read_at_its_offset(
    apache_kafka: ApacheKafka, properties: dict[str, Any], prefix: str, tmp_path: Path
) -> None:
    async with started(kafka_log(properties, tmp_path)) as log:
        await log.append(SHARD, [batch_of(b"a")])
        producer = kafka_client.open_producer({"bootstrap.servers": apache_kafka.bootstrap})
        producer.produce(f"{prefix}metadata", b"hello", partition=0)
        producer.produce(f"{prefix}metadata", None, partition=0)
        kafka_client.close_producer(producer, 60)
        await log.append(SHARD, [batch_of(b"b")])
        assert [entry.data for entry in await read_all(log, SHARD)] == [batch_of(b"a"), b"", b"", batch_of(b"b")]


async def test_the_control_batch_of_a_transaction_leaves_no_gap_that_readers_wait_for(
    apache_kafka: ApacheKafka, properties: dict[str, Any], prefix: str, tmp_path: Path
) -> None:
    async with started(kafka_log(properties, tmp_path)) as log:
        await log.append(SHARD, [batch_of(b"a")])
        options = {"bootstrap.servers": apache_kafka.bootstrap, "transactional.id": prefix}
        producer = kafka_client.open_producer(options)
        await asyncio.to_thread(producer.init_transactions, 60)
        producer.begin_transaction()
        producer.produce(f"{prefix}metadata", b"foreign", partition=0)
        await asyncio.to_thread(producer.commit_transaction, 60)
        kafka_client.close_producer(producer, 60)
        await _until_end(log, 3)  # the marker is written after the commit was answered
        async with started(kafka_log(properties, tmp_path, node_id=2)) as late:
            for reader in (log, late):
                entries = await read_all(reader, SHARD)
                assert [entry.data for entry in entries] == [batch_of(b"a"), b"", b""]
                assert entries[-1].next_offset == 3


async def _until_end(log: KafkaCoordinatorLog, end: int) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            if (await log.bounds(SHARD)).end == end:
                return
            await asyncio.sleep(0.02)
