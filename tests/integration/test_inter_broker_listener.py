"""The inter-broker listener of a real broker, byte by byte: KIP-1164's APIs there, and nowhere else."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest

from diskless_core.clock import SystemClock
from diskless_core.cluster.membership.service import MEMBERSHIP_REQUESTS
from diskless_core.diskless.operations import HORIZON_AGE_MS
from diskless_core.protocol import messages
from diskless_core.protocol.errors import ErrorCode
from diskless_core.wal.format import object_key
from tests.support.batches import batch_of
from tests.support.broker import BrokerProcess
from tests.support.requests import append, create_topic, list_offset
from tests.support.wire import WireClient

BROKERS = "BROKERS"
DISKLESS_KEYS = set(messages.DISKLESS_APIS)
SHARDS = 2
DISKLESS_COORDINATOR = 100
LATEST, EARLIEST = -1, -2

CommitFile = messages.DisklessCommitFileRequest


def inter_broker_properties(shards: int) -> dict[str, str]:
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:0,{BROKERS}://127.0.0.1:0",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{BROKERS}:PLAINTEXT",
        "inter.broker.listener.name": BROKERS,
        "diskless.metadata.topic.num.partitions": str(shards),
    }


@pytest.fixture(scope="module")
def with_listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(
        tmp_path_factory.mktemp("inter-broker"),
        inter_broker_properties(SHARDS),
    )
    try:
        yield broker.start()
        broker.stop()
    finally:
        broker.end()


@pytest.fixture
def peer(with_listener: BrokerProcess) -> Iterator[WireClient]:
    with with_listener.connect(BROKERS, client_id="broker-2") as client:
        yield client


@pytest.fixture
def client(with_listener: BrokerProcess) -> Iterator[WireClient]:
    with with_listener.connect() as connection:
        yield connection


@pytest.fixture
def topic_id(peer: WireClient) -> uuid.UUID:
    """A topic that has partition 0 in shard 0 and partition 1 in shard 1, unknown to the cluster shard."""
    topic_id = SystemClock().new_uuid()
    for shard in range(SHARDS):
        assert create_partitions(peer, topic_id, shard, [shard]) == 0
    return topic_id


def create_partitions(peer: WireClient, topic_id: uuid.UUID, shard: int, partitions: list[int]) -> int:
    request_class = messages.DisklessCreatePartitionsRequest
    topic = request_class.DisklessCreatablePartitions(
        topic_id=topic_id, name=str(topic_id), num_partitions=len(partitions), partition_indexes=partitions
    )
    [result] = peer.call(request_class(topics=[topic], shard=shard), 0).topics
    return int(result.error_code)


def commit_batch(topic_id: uuid.UUID, partition: int, records: int = 3) -> Any:
    return CommitFile.DisklessCommitBatch(
        magic=2,
        topic_id=topic_id,
        partition_index=partition,
        byte_offset=16,
        size=100,
        base_offset=0,
        last_offset=records - 1,
        batch_max_timestamp=7,
        timestamp_type=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        last_sequence=-1,
    )


def new_key() -> str:
    clock = SystemClock()
    return object_key("wal", clock.now_ms(), clock.new_uuid())


def commit(peer: WireClient, key: str, parts: dict[int, list[Any]], **fields: Any) -> list[Any]:
    request = CommitFile(
        object_key=key,
        object_format=1,
        file_size=1000,
        owner_ids=[shard for shard in parts if shard < SHARDS],
        batches=[batch for batches in parts.values() for batch in batches],
        shards=[
            CommitFile.DisklessCommitShard(shard_index=shard, batch_count=len(batches))
            for shard, batches in parts.items()
        ],
        **fields,
    )
    results: list[Any] = peer.call(request, 0).batches
    return results


def found(peer: WireClient, topic_id: uuid.UUID, partition: int, offset: int, *, shard: int, **fields: Any) -> Any:
    request_class = messages.DisklessFindBatchesRequest
    asked = request_class.DisklessFindBatchesTopic.DisklessFindBatchesPartition(
        partition_index=partition, offset=offset, max_partition_fetch_bytes=1 << 20
    )
    topic = request_class.DisklessFindBatchesTopic(topic_id=topic_id, partitions=[asked])
    request = request_class(
        fetch_max_bytes=1 << 20, max_batches_per_partition=10, topics=[topic], shard=shard, **fields
    )
    return peer.call(request, 0).topics[0].partitions[0]


def listed(peer: WireClient, topic_id: uuid.UUID, partition: int, timestamp: int, *, shard: int) -> Any:
    request_class = messages.DisklessListOffsetsRequest
    asked = request_class.DisklessListOffsetsTopic.DisklessListOffsetsPartition(
        partition_index=partition, timestamp=timestamp
    )
    topic = request_class.DisklessListOffsetsTopic(topic_id=topic_id, partitions=[asked])
    return peer.call(request_class(topics=[topic], shard=shard), 0).topics[0].partitions[0]


def deleted(peer: WireClient, topic_id: uuid.UUID, partition: int, offset: int, *, shard: int) -> Any:
    request_class = messages.DisklessDeleteRecordsRequest
    asked = request_class.DisklessDeleteRecordsTopic.DisklessDeleteRecordsPartition(
        partition_index=partition, offset=offset
    )
    topic = request_class.DisklessDeleteRecordsTopic(topic_id=topic_id, partitions=[asked])
    return peer.call(request_class(topics=[topic], shard=shard), 0).topics[0].partitions[0]


def described(peer: WireClient, *keys: str, shard: int, include_oldest: bool = False) -> Any:
    request_class = messages.DisklessDescribeFilesRequest
    files = [request_class.DisklessDescribeFileEntry(object_key=key) for key in keys]
    return peer.call(request_class(files=files, shard=shard, include_oldest=include_oldest), 0)


def delete_topic(peer: WireClient, topic_id: uuid.UUID, shard: int) -> int:
    request_class = messages.DisklessDeleteTopicsRequest
    topic = request_class.DisklessDeletableTopicState(topic_id=topic_id)
    return int(peer.call(request_class(topics=[topic], shard=shard), 0).responses[0].error_code)


def raise_horizon(peer: WireClient, horizon_ms: int, shard: int) -> int:
    return int(peer.call(messages.DisklessRaiseHorizonRequest(horizon=horizon_ms, shard=shard), 0).error_code)


def hand_over(peer: WireClient, key: str, owners: list[int], shard: int) -> Any:
    request_class = messages.DisklessHandOverFilesRequest
    file = request_class.DisklessHandedOverFile(object_key=key, owner_ids=owners, committed_at=1, dead_at=2)
    return peer.call(request_class(files=[file], shard=shard), 0)


# --- each API ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "indexes"), [(2**31 - 1, []), (-1, []), (2, [0]), (1, [0, 1]), (1, [-1])], ids=repr)
def test_partitions_that_make_no_sense_are_not_created(peer, count, indexes):
    request_class = messages.DisklessCreatePartitionsRequest
    topic_id = SystemClock().new_uuid()
    topic = request_class.DisklessCreatablePartitions(
        topic_id=topic_id, name="t", num_partitions=count, partition_indexes=indexes
    )

    [result] = peer.call(request_class(topics=[topic], shard=0), 0).topics

    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert delete_topic(peer, topic_id, 0) == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_bundled_commit_gets_offsets_from_each_of_its_coordinators(peer, topic_id):
    parts = {1: [commit_batch(topic_id, 1), commit_batch(topic_id, 1, records=2)], 0: [commit_batch(topic_id, 0)]}
    key = new_key()

    results = commit(peer, key, parts, uploader_broker_id=2)

    assert [(one.error_code, one.assigned_base_offset, one.log_start_offset) for one in results] == [
        (0, 0, 0),
        (0, 3, 0),
        (0, 0, 0),
    ]
    assert all(one.log_append_time > 0 and not one.is_duplicate for one in results)
    assert commit(peer, key, parts, uploader_broker_id=2) == results, "the same request gets the same answer"


def test_what_was_committed_is_found_and_listed(peer, topic_id):
    key = new_key()
    commit(peer, key, {1: [commit_batch(topic_id, 1)]})

    partition = found(peer, topic_id, 1, 1, shard=1)
    [run] = partition.batches

    assert (partition.error_code, partition.log_start_offset, partition.high_watermark) == (0, 0, 3)
    assert (run.object_key, run.magic, run.byte_offset, run.byte_size) == (key, 2, 16, 100)
    assert (run.base_offset, run.last_offset, run.batch_max_timestamp, run.timestamp_type) == (0, 2, 7, 0)
    assert (listed(peer, topic_id, 1, LATEST, shard=1).offset, listed(peer, topic_id, 1, EARLIEST, shard=1).offset) == (
        3,
        0,
    )


def test_find_batches_waits_for_what_comes(with_listener, peer, topic_id):
    request_class = messages.DisklessFindBatchesRequest
    asked = request_class.DisklessFindBatchesTopic.DisklessFindBatchesPartition(
        partition_index=0, offset=0, max_partition_fetch_bytes=1
    )
    topic = request_class.DisklessFindBatchesTopic(topic_id=topic_id, partitions=[asked])
    waiting = request_class(fetch_max_bytes=1, max_batches_per_partition=1, topics=[topic], shard=0, max_wait_ms=15_000)
    peer.send(waiting, 0)
    with with_listener.connect(BROKERS) as other:
        commit(other, new_key(), {0: [commit_batch(topic_id, 0)]})

    [run] = peer.receive().topics[0].partitions[0].batches
    assert (run.base_offset, run.last_offset) == (0, 2)


def test_records_are_deleted(peer, topic_id):
    commit(peer, new_key(), {0: [commit_batch(topic_id, 0)]})

    answer = deleted(peer, topic_id, 0, 2, shard=0)
    assert (answer.error_code, answer.low_watermark) == (0, 2)
    assert deleted(peer, topic_id, 0, 9, shard=0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert found(peer, topic_id, 0, 0, shard=0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_objects_are_described_and_the_oldest_is_told(peer, topic_id):
    key, unknown = new_key(), new_key()
    commit(peer, key, {0: [commit_batch(topic_id, 0)]})

    response = described(peer, key, unknown, shard=0, include_oldest=True)

    assert [(file.object_key, file.error_code, file.has_live_batches, file.is_known) for file in response.files] == [
        (key, 0, True, True),
        (unknown, 0, False, False),
    ]
    assert response.error_code == 0
    assert response.oldest_file > 0
    assert described(peer, key, shard=0).oldest_file == -1, "it was not asked for"


def test_a_topic_is_deleted_once(peer, topic_id):
    assert delete_topic(peer, topic_id, 0) == 0
    assert delete_topic(peer, topic_id, 0) == ErrorCode.UNKNOWN_TOPIC_ID
    assert found(peer, topic_id, 0, 0, shard=0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_object_that_was_handed_over_unseen_cannot_be_committed_any_more(peer, topic_id):
    key = new_key()

    assert hand_over(peer, key, [0, 1], shard=1).error_code == 0
    assert hand_over(peer, key, [0, 1], shard=1).error_code == 0

    parts = {1: [commit_batch(topic_id, 1)]}
    [result] = commit(peer, key, parts)
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_below_the_horizon_nothing_is_committed(new_broker):
    broker = new_broker(inter_broker_properties(1))
    clock = SystemClock()
    topic_id = clock.new_uuid()
    key = object_key("wal", clock.now_ms() - 3 * HORIZON_AGE_MS, clock.new_uuid())
    with broker.connect(BROKERS) as peer:
        assert create_partitions(peer, topic_id, 0, [0]) == 0
        assert raise_horizon(peer, clock.now_ms(), 0) == ErrorCode.INVALID_TIMESTAMP
        assert raise_horizon(peer, clock.now_ms() - 2 * HORIZON_AGE_MS, 0) == 0
        [result] = commit(peer, key, {0: [commit_batch(topic_id, 0)]})
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR


# --- who is asked -----------------------------------------------------------------------------------------------------


def test_a_coordinator_that_is_not_here_refuses_each_item_and_no_other(peer, topic_id):
    absent = 7
    parts = {absent: [commit_batch(topic_id, 0)], 0: [commit_batch(topic_id, 0)]}

    refused, committed = commit(peer, new_key(), parts)

    assert refused.error_code == ErrorCode.NOT_COORDINATOR
    assert refused.assigned_base_offset == -1
    assert committed.error_code == 0
    codes = [
        create_partitions(peer, topic_id, absent, [0]),
        delete_topic(peer, topic_id, absent),
        found(peer, topic_id, 0, 0, shard=absent).error_code,
        listed(peer, topic_id, 0, LATEST, shard=absent).error_code,
        deleted(peer, topic_id, 0, 0, shard=absent).error_code,
        described(peer, "x", shard=absent).files[0].error_code,
        described(peer, shard=absent, include_oldest=True).error_code,
        raise_horizon(peer, 1, absent),
        hand_over(peer, "x", [absent], absent).error_code,
    ]
    assert codes == [ErrorCode.NOT_COORDINATOR] * len(codes)


def test_who_names_no_coordinator_gets_an_answer_only_where_there_is_just_one(new_broker, peer, topic_id):
    assert listed(peer, topic_id, 0, LATEST, shard=-1).error_code == ErrorCode.NOT_COORDINATOR
    broker = new_broker(inter_broker_properties(1))
    with broker.connect() as client:
        alone = create_topic(client, "t")
    with broker.connect(BROKERS) as only:
        answer = listed(only, alone, 0, LATEST, shard=-1)
    assert (answer.error_code, answer.offset) == (0, 0)


@pytest.mark.parametrize("counts", [(2, 0), (0, 0), (-1, 2), (2,)])
def test_a_commit_whose_parts_do_not_fit_its_batches_is_refused_whole(peer, topic_id, counts):
    shards = [
        CommitFile.DisklessCommitShard(shard_index=index, batch_count=count) for index, count in enumerate(counts)
    ]
    request = CommitFile(
        object_key=new_key(),
        object_format=1,
        file_size=1000,
        owner_ids=[0],
        batches=[commit_batch(topic_id, 0)],
        shards=shards,
    )

    [result] = peer.call(request, 0).batches

    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert listed(peer, topic_id, 0, LATEST, shard=0).offset == 0


def find_coordinator(connection: WireClient, *keys: str, key_type: int = DISKLESS_COORDINATOR) -> list[Any]:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
    coordinators: list[Any] = connection.call(request, 4).coordinators
    return coordinators


def test_a_diskless_coordinator_is_found_at_its_leaders_inter_broker_listener(with_listener, peer):
    coordinators = find_coordinator(peer, "0", "1")

    host, port = with_listener.address_of(BROKERS).split(":")
    assert [(one.key, one.error_code, one.node_id, one.host, one.port) for one in coordinators] == [
        ("0", 0, 1, host, int(port)),
        ("1", 0, 1, host, int(port)),
    ]


@pytest.mark.parametrize("key", ["2", "-1", "", "group", "٣"])
def test_a_diskless_coordinator_that_cannot_be_is_an_invalid_request(peer, key):
    [coordinator] = find_coordinator(peer, key)

    assert (coordinator.error_code, coordinator.node_id) == (ErrorCode.INVALID_REQUEST, -1)


def test_clients_are_not_told_of_diskless_coordinators(client):
    [coordinator] = find_coordinator(client, "0")

    assert (coordinator.error_code, coordinator.node_id) == (ErrorCode.INVALID_REQUEST, -1)


# --- which listener ---------------------------------------------------------------------------------------------------


def api_keys(connection: WireClient) -> set[int]:
    return {key.api_key for key in connection.call(ApiVersionsRequest(), 2).api_keys}


def test_only_the_inter_broker_listener_names_the_apis_between_brokers(client, peer):
    between_brokers = DISKLESS_KEYS | MEMBERSHIP_REQUESTS.keys() | {messages.EnvelopeRequest.API_KEY}
    assert api_keys(peer) - api_keys(client) == between_brokers
    assert not api_keys(client) & between_brokers


@pytest.mark.parametrize("api_key", sorted(DISKLESS_KEYS))
def test_on_a_client_listener_a_diskless_api_is_an_unknown_one(with_listener, api_key):
    request = messages.DISKLESS_APIS[api_key].request()
    with with_listener.connect() as connection:
        connection.send(request, 0)
        assert connection.is_closed()


def test_a_broker_without_an_inter_broker_listener_serves_none_of_them(broker):
    with broker.connect() as connection:
        assert not api_keys(connection) & DISKLESS_KEYS
        connection.send(messages.DisklessRaiseHorizonRequest(horizon=1), 0)
        assert connection.is_closed()


def test_the_inter_broker_listener_speaks_kafka_as_well(client, peer, tmp_path: Path):
    topic = tmp_path.name
    create_topic(peer, topic)
    append(peer, topic, batch_of(b"a"))

    assert list_offset(client, topic, LATEST).offset == 1


def test_malformed_bytes_end_the_connection_and_nothing_else(with_listener, peer, topic_id):
    with with_listener.connect(BROKERS) as connection:
        frame = connection.frame(CommitFile(object_key="k", batches=[commit_batch(topic_id, 0)]), 0)
        connection.send_bytes(frame[:40] + b"\xff" * (len(frame) - 40))
        assert connection.is_closed()
    assert commit(peer, new_key(), {0: [commit_batch(topic_id, 0)]})[0].error_code == 0


def test_a_listener_that_is_taken_ends_the_start_and_leaves_nothing_behind(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        listeners = f"PLAINTEXT://127.0.0.1:0,{BROKERS}://{address}"
        broker = BrokerProcess(tmp_path / "refused", inter_broker_properties(1) | {"listeners": listeners})
        with pytest.raises(AssertionError, match=f"cannot listen on {BROKERS}://{address}"):
            broker.start()
    broker.start()
    try:
        assert broker.address_of(BROKERS) == address
        broker.stop()
    finally:
        broker.end()
