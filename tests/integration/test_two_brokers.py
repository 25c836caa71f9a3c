"""Two whole brokers on one log and one bucket: each leads some coordinators, and clients may talk to either."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from diskless_core.coordinator.shard import CoordinatorShard
from diskless_core.plugin.coordinator_log import LogBatch
from diskless_core.plugin.errors import PluginError
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import DeleteRecordsRequest
from diskless_core.shards import DISKLESS, GROUPS
from diskless_core.tiering.compaction import CompactionRequest
from tests.support.batches import batch_of, read_values
from tests.support.cluster import Cluster, in_thread, until
from tests.support.guarantees import guarantee
from tests.support.requests import (
    append,
    commit_offset,
    committed_offset,
    create_topic,
    delete_topic,
    end_offset,
    fetch,
    list_offset,
    produce,
    produce_request,
)
from tests.support.wire import WireClient

PARTITIONS = 4
TOPIC = "t"
LATEST, EARLIEST = -1, -2
EACH_LEADS_ONE = {0: 1, 1: 2}


def read_all(wire: WireClient, partition: int, end: int) -> list[bytes]:
    """All records of a partition, of which there are `end`."""
    values: list[bytes] = []
    while len(values) < end:
        answer = fetch(wire, TOPIC, len(values), partition, max_wait_ms=500)
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        values += read_values(answer.records)
    return values


async def test_clients_of_either_broker_write_and_read_all_partitions(tmp_path: Path):
    async with Cluster(tmp_path, EACH_LEADS_ONE) as cluster:

        def clients() -> None:
            with cluster.connect(1) as one, cluster.connect(2) as two:
                create_topic(one, TOPIC, PARTITIONS)
                for partition in range(PARTITIONS):
                    assert append(one, TOPIC, batch_of(b"one"), partition=partition) == [0]
                    assert append(two, TOPIC, batch_of(b"two", b"more"), partition=partition) == [1]
                    assert append(one, TOPIC, batch_of(b"last"), partition=partition) == [3]
                    for wire in (one, two):
                        assert list_offset(wire, TOPIC, LATEST, partition).offset == 4
                        assert read_all(wire, partition, 4) == [b"one", b"two", b"more", b"last"]

        await in_thread(clients)
        assert cluster.answered(1, "DisklessCommitFile") > 0
        assert cluster.answered(2, "DisklessCommitFile") > 0


async def test_an_object_with_batches_for_two_coordinators_of_one_broker_is_one_commit(tmp_path: Path):
    async with Cluster(tmp_path, {0: 2, 1: 2, 2: 2}) as cluster:

        def clients() -> None:
            with cluster.connect(1) as one:
                create_topic(one, TOPIC, 6)
                before = cluster.answered(2, "DisklessCommitFile")
                request = produce_request(TOPIC, {partition: batch_of(b"x") for partition in range(6)})
                answers = one.call(request, 9).responses[0].partition_responses
                assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0)] * 6
                assert cluster.answered(2, "DisklessCommitFile") == before + 1

        await in_thread(clients)
        owners = {file for shard in range(3) for file in known_files(cluster, shard)}
        assert len(owners) == 1, "each coordinator has batches of the one object"


def known_files(cluster: Cluster, shard: int) -> list[str]:
    parts = cluster.nodes[2]._parts
    assert parts is not None
    replica = parts.coordinators.diskless[shard]
    return [run.object_key for partition in replica.heads() for run in replica._recent.since(partition, 0) or ()]


async def test_a_broker_without_any_coordinator_of_its_own_needs_no_log_leadership_to_serve(tmp_path: Path):
    async with Cluster(tmp_path, {0: 1, 1: 1}) as cluster:

        def clients() -> None:
            with cluster.connect(1) as one, cluster.connect(2) as two:
                create_topic(one, TOPIC, 2)
                assert append(two, TOPIC, batch_of(b"a"), partition=0) == [0]
                assert append(two, TOPIC, batch_of(b"b"), partition=1) == [0]
                assert list_offset(two, TOPIC, LATEST, 0).offset == 1
                assert read_all(one, 1, 1) == [b"b"]

        await in_thread(clients)
        assert cluster.answered(2, "DisklessCommitFile") == 0


@guarantee(
    "Reads",
    "An offset that a broker has not heard of yet is empty; only the coordinator's leader may call it out of range.",
)
async def test_a_broker_that_lags_does_not_send_consumers_elsewhere(tmp_path: Path):
    async with Cluster(tmp_path, {0: 1}) as cluster:

        def write() -> None:
            with cluster.connect(1) as one, cluster.connect(2) as two:
                create_topic(one, TOPIC)
                append(one, TOPIC, batch_of(b"a"))
                assert read_all(two, 0, 1) == [b"a"]

        await in_thread(write)
        cluster.lag(2)

        def lag() -> None:
            with cluster.connect(1) as one, cluster.connect(2) as two:
                append(one, TOPIC, batch_of(b"b"), batch_of(b"c"))
                answer = fetch(two, TOPIC, 3)
                assert (answer.error_code, answer.records or b"") == (0, b""), (
                    "it is the end, which is out of its sight"
                )
                assert list_offset(two, TOPIC, LATEST).offset == 3, "the leader is asked"
                assert end_offset(two, TOPIC, 0) == (0, 0, 3), "its own end is a truncated log to who has read on"
                beyond = fetch(two, TOPIC, 4)
                assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

        await in_thread(lag)
        cluster.catch_up(2)

        def catch_up() -> None:
            with cluster.connect(2) as two:
                assert read_all(two, 0, 3) == [b"a", b"b", b"c"]

        await in_thread(catch_up)


async def test_brokers_that_have_a_folder_each_for_segments_compact_nothing(tmp_path: Path):
    async with Cluster(tmp_path, {0: 1}) as cluster:
        for node in cluster.nodes.values():
            with pytest.raises(PluginError, match=r"a folder of this broker alone.*remote_storage\.fsspec\.url"):
                node.tiered_storage().compactor.begin(CompactionRequest(everything=True))


async def test_records_and_topics_are_deleted_through_the_broker_that_does_not_lead_them(tmp_path: Path):
    async with Cluster(tmp_path, {0: 2, 1: 1}) as cluster:

        def clients() -> None:
            with cluster.connect(1) as one, cluster.connect(2) as two:
                create_topic(one, TOPIC, 2)
                for partition in range(2):
                    append(one, TOPIC, batch_of(b"a"), batch_of(b"b"), partition=partition)
                    for wire, offset in ((one, 1), (two, 2)):
                        assert delete_records(wire, partition, offset) == (0, offset)
                        assert list_offset(one, TOPIC, EARLIEST, partition).offset == offset
                        assert list_offset(two, TOPIC, EARLIEST, partition).offset == offset
                assert delete_topic(one, TOPIC) == 0
                assert produce(one, TOPIC, batch_of(b"c")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        await in_thread(clients)
        await until(lambda: not any(topics(cluster, node_id, shard) for node_id in (1, 2) for shard in (0, 1)))


def delete_records(wire: WireClient, partition: int, offset: int) -> tuple[int, int]:
    topic_class = DeleteRecordsRequest.DeleteRecordsTopic
    asked = topic_class.DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(topics=[topic_class(name=TOPIC, partitions=[asked])], timeout_ms=10_000)
    answer = wire.call(request, 2).topics[0].partitions[0]
    return answer.error_code, answer.low_watermark


def topics(cluster: Cluster, node_id: int, shard: int) -> object:
    parts = cluster.nodes[node_id]._parts
    return list(parts.coordinators.diskless[shard].topics()) if parts is not None else None


# --- leadership moves -------------------------------------------------------------------------------------------------


class Writer:
    """Produces numbered records to one partition through one broker, one after the other, until it is told to stop."""

    def __init__(self, cluster: Cluster, node_id: int, partition: int) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self.partition = partition
        self._stop = threading.Event()
        self.acknowledged: dict[int, bytes] = {}

    def run(self) -> None:
        number = 0
        with self._cluster.connect(self._node_id) as wire:
            while not self._stop.is_set():
                value = b"%d-%d" % (self._node_id, number)
                answer = produce(wire, TOPIC, batch_of(value), self.partition)
                assert answer.error_code == 0, ErrorCode(answer.error_code)
                assert answer.base_offset not in self.acknowledged
                self.acknowledged[answer.base_offset] = value
                number += 1

    def stop(self) -> None:
        self._stop.set()


@asynccontextmanager
async def writing_everywhere(cluster: Cluster) -> AsyncIterator[list[Writer]]:
    """Clients of both brokers write to all partitions. In the end, what was acknowledged is what both brokers have."""

    def create() -> None:
        with cluster.connect(1) as one:
            create_topic(one, TOPIC, PARTITIONS)

    await in_thread(create)
    writers = [Writer(cluster, node_id, partition) for node_id in (1, 2) for partition in range(PARTITIONS)]
    threads = [threading.Thread(target=writer.run) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        yield writers
        await until(progress(writers))
    finally:
        for writer in writers:
            writer.stop()
        await in_thread(lambda: [thread.join() for thread in threads])
    await in_thread(lambda: check_what_was_written(cluster, writers))


def check_what_was_written(cluster: Cluster, writers: Sequence[Writer]) -> None:
    with cluster.connect(1) as one, cluster.connect(2) as two:
        for partition in range(PARTITIONS):
            acknowledged: dict[int, bytes] = {}
            for writer in writers:
                if writer.partition == partition:
                    assert not acknowledged.keys() & writer.acknowledged.keys()
                    acknowledged |= writer.acknowledged
            expected = [value for _, value in sorted(acknowledged.items())]
            for wire in (one, two):
                assert list_offset(wire, TOPIC, LATEST, partition).offset == len(expected)
                assert read_all(wire, partition, len(expected)) == expected


@guarantee("Reads", "While coordinators move between brokers, what is acknowledged is read at each of them, once.")
async def test_nothing_is_lost_or_doubled_while_coordinators_move_between_brokers(tmp_path: Path):
    async with Cluster(tmp_path, EACH_LEADS_ONE) as cluster, writing_everywhere(cluster) as writers:
        for moved in ({0: 2}, {1: 1}, {0: 1, 1: 2}):
            await until(progress(writers))
            for shard, node_id in moved.items():
                cluster.lead(shard, node_id)
            await until(lambda moved=moved: all(cluster.leads(node_id, shard) for shard, node_id in moved.items()))


@guarantee("Reads", "While connections between brokers break, what is acknowledged is read at each of them, once.")
async def test_nothing_is_lost_or_doubled_while_connections_between_brokers_break(tmp_path: Path):
    async with Cluster(tmp_path, EACH_LEADS_ONE) as cluster, writing_everywhere(cluster) as writers:
        for _ in range(10):
            await until(progress(writers))
            assert sum(cluster.break_connections(node_id) for node_id in (1, 2)) > 0


def progress(writers: list[Writer]) -> Callable[[], bool]:
    """Whether every writer has got an answer since now."""
    before = [len(writer.acknowledged) for writer in writers]
    return lambda: all(len(writer.acknowledged) > count for writer, count in zip(writers, before, strict=True))


async def test_a_broker_finds_the_leader_that_its_own_log_has_not_told_it_of(tmp_path: Path):
    async with Cluster(tmp_path, {0: 1}, node_ids=(1, 2, 3)) as cluster:

        def create() -> None:
            with cluster.connect(1) as one:
                create_topic(one, TOPIC)

        await in_thread(create)
        cluster.shared.set_leader(DISKLESS.shard(0), 2, seen_by=[1, 2])
        await until(lambda: cluster.leads(2, 0))

        def write() -> None:
            with cluster.connect(3) as three:
                assert append(three, TOPIC, batch_of(b"a")) == [0]

        await in_thread(write)
        assert cluster.answered(1, "FindCoordinator") > 0


@guarantee("Reads", "What one broker has acknowledged the others learn from it, not from the log.")
async def test_a_broker_learns_of_commits_from_the_one_that_leads(tmp_path: Path):
    async with Cluster(tmp_path, {0: 1, 1: 1}) as cluster:

        def create() -> None:
            with cluster.connect(1) as one:
                create_topic(one, TOPIC, 2)

        await in_thread(create)
        await until(lambda: cluster.answered(1, "DisklessFollowShard") > 0)
        cluster.shared.pause_reads(2)

        def write_and_read() -> None:
            with cluster.connect(1) as one, cluster.connect(2) as two:
                for number in range(20):
                    append(one, TOPIC, batch_of(b"%d" % number), partition=number % 2)
                for partition in range(2):
                    expected = [b"%d" % number for number in range(partition, 20, 2)]
                    assert read_all(two, partition, 10) == expected

        await in_thread(write_and_read)
        cluster.shared.resume_reads(2)


async def test_an_offset_by_name_is_the_new_topics_though_its_coordinators_node_knows_the_old_one(tmp_path: Path):
    async with Cluster(tmp_path, {0: 1}) as cluster:
        cluster.shared.set_leader(GROUPS.shard(0), 2)
        parts = cluster.nodes[2]._parts
        assert parts is not None
        await parts.coordinators.groups[0].until_leading()

        def begin() -> None:
            with cluster.connect(1) as one:
                create_topic(one, TOPIC)

        await in_thread(begin)
        await until(lambda: parts.cluster.topics.id_of(TOPIC) is not None)
        let_go = hold_back(parts.coordinators.cluster)
        old_id = parts.cluster.topics.id_of(TOPIC)

        def commit() -> None:
            with cluster.connect(1) as one, cluster.connect(2) as two:
                delete_topic(one, TOPIC)
                create_topic(one, TOPIC)
                loop.call_soon_threadsafe(loop.call_later, 0.2, let_go)
                assert commit_offset(two, "g", TOPIC, 5) == 0

        loop = asyncio.get_running_loop()
        await in_thread(commit)
        await until(lambda: parts.cluster.topics.id_of(TOPIC) not in (None, old_id))

        def look() -> None:
            with cluster.connect(2) as two:
                assert committed_offset(two, "g", TOPIC) == (0, 5)

        await in_thread(look)


def hold_back(shard: CoordinatorShard[Any]) -> Callable[[], None]:
    """A shard's copy takes nothing from now on, until what is returned is called."""
    following, may_go_on = shard._following, asyncio.Event()
    take = following._take

    async def later(batch: LogBatch, digest: bytes | None = None) -> bool:
        await may_go_on.wait()
        return await take(batch, digest)

    following._take = later
    return may_go_on.set
