"""CreatePartitions, DescribeProducers and DescribeCluster over the wire."""

from __future__ import annotations

import pytest

from diskless_core.protocol.errors import ErrorCode
from tests.support.admin_requests import (
    create_partitions,
    describe_cluster_request,
    describe_producers_request,
    grown,
)
from tests.support.batches import batch_of
from tests.support.requests import append, create_topic, fetch, metadata_request, new_producer_id, produce

pytestmark = pytest.mark.in_a_cluster_too

# --- CreatePartitions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_new_partitions_can_be_written_to_at_once_and_old_ones_keep_their_records(wire, topic, version):
    create_topic(wire, topic, 1)
    append(wire, topic, batch_of(b"old"))

    assert create_partitions(wire, grown(topic, 3), version=version) == [(0, None)]

    assert [append(wire, topic, batch_of(b"new"), partition=partition) for partition in (1, 2)] == [[0], [0]]
    assert fetch(wire, topic, 0).high_watermark == 1
    assert len(wire.call(metadata_request(topic), 12).topics[0].partitions) == 3
    assert produce(wire, topic, batch_of(b"v"), 3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_each_topic_of_a_request_has_its_own_outcome(wire, topic):
    fine, same, twice = f"{topic}-fine", f"{topic}-same", f"{topic}-twice"
    for name in (fine, same, twice):
        create_topic(wire, name, 2)

    outcomes = create_partitions(
        wire,
        grown(fine, 3, [[1]]),
        grown(same, 2),
        grown(twice, 3),
        grown(twice, 4),
        grown(f"{topic}-absent", 2),
        grown("bad name", 2),
    )

    assert [code for code, _ in outcomes] == [
        0,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert outcomes[1][1] == "Topic already has 2 partition(s)."


def test_shrinking_and_wrong_assignments_are_refused(wire, topic):
    create_topic(wire, topic, 2)

    [(fewer, message)] = create_partitions(wire, grown(topic, 1))
    [(other_broker, _)] = create_partitions(wire, grown(topic, 3, [[99]]))
    [(too_few, _)] = create_partitions(wire, grown(topic, 4, [[1]]))
    [(too_many, _)] = create_partitions(wire, grown(topic, 20_000))

    assert (fewer, message) == (
        ErrorCode.INVALID_PARTITIONS,
        f"The topic {topic} currently has 2 partition(s); 1 would not be an increase.",
    )
    assert (other_broker, too_few) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT,) * 2
    assert too_many == ErrorCode.POLICY_VIOLATION
    assert len(wire.call(metadata_request(topic), 12).topics[0].partitions) == 2


def test_validate_only_creates_no_partition(wire, topic):
    create_topic(wire, topic, 2)

    assert create_partitions(wire, grown(topic, 5), validate_only=True) == [(0, None)]
    assert create_partitions(wire, grown(topic, 2), validate_only=True)[0][0] == ErrorCode.INVALID_PARTITIONS

    assert len(wire.call(metadata_request(topic), 12).topics[0].partitions) == 2


def test_new_partitions_are_spread_over_coordinators_and_survive_a_kill(new_broker, topic):
    broker = new_broker({"diskless.metadata.topic.num.partitions": "2"})
    with broker.connect() as wire:
        create_topic(wire, topic, 1)
        assert create_partitions(wire, grown(topic, 4)) == [(0, None)]
        for partition in range(4):
            append(wire, topic, batch_of(b"v"), partition=partition)
    broker.kill()
    broker.start()
    with broker.connect() as wire:
        assert [fetch(wire, topic, 0, partition).high_watermark for partition in range(4)] == [1] * 4


# --- DescribeProducers -----------------------------------------------------------------------------------------------


def idempotent_batch(producer_id, base_sequence, *values):
    return batch_of(*values, producer_id=producer_id, producer_epoch=0, base_sequence=base_sequence)


def test_idempotent_producers_are_described_by_partition(wire, topic):
    create_topic(wire, topic, 3)
    first, second = new_producer_id(wire), new_producer_id(wire)
    append(wire, topic, idempotent_batch(first, 0, b"a", b"b"), idempotent_batch(first, 2, b"c"))
    append(wire, topic, idempotent_batch(second, 0, b"a"), partition=0)
    append(wire, topic, idempotent_batch(second, 0, b"a"), partition=1)
    append(wire, topic, batch_of(b"of nobody"), partition=2)

    [answer] = wire.call(describe_producers_request(topic, 0, 1, 2, 3), 0).topics

    assert [partition.partition_index for partition in answer.partitions] == [0, 1, 2, 3]
    producers = [
        [(one.producer_id, one.producer_epoch, one.last_sequence) for one in partition.active_producers]
        for partition in answer.partitions
    ]
    assert producers == [[(first, 0, 2), (second, 0, 0)], [(second, 0, 0)], [], []]
    assert [(partition.error_code, partition.error_message) for partition in answer.partitions] == [
        (0, None),
        (0, None),
        (0, None),
        (3, None),
    ]
    state = answer.partitions[0].active_producers[0]
    assert state.last_timestamp > 0
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (-1, -1)


def test_producers_of_an_unknown_topic_cannot_be_described(wire, topic):
    [answer] = wire.call(describe_producers_request(topic, 0), 0).topics

    assert answer.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.partitions[0].error_message == "This server does not host this topic-partition."


# --- DescribeCluster -------------------------------------------------------------------------------------------------


@pytest.mark.one_broker
@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_this_broker(broker, wire, version):
    metadata = wire.call(metadata_request(), 12)

    response = wire.call(describe_cluster_request(), version)

    [node] = response.brokers
    assert (response.error_code, response.cluster_id) == (0, metadata.cluster_id)
    assert f"{node.host}:{node.port}" == broker.bootstrap
    assert response.controller_id == node.broker_id == metadata.controller_id
    assert response.authorized_operations is None


def test_allowed_cluster_operations_are_shown_to_those_who_ask(wire):
    response = wire.call(describe_cluster_request(operations=True), 2)

    assert response.authorized_operations == {5, 7, 8, 9, 10, 11, 12}


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_there_are_no_controllers_apart(wire, endpoint_type, code):
    response = wire.call(describe_cluster_request(endpoint_type=endpoint_type), 1)

    assert response.error_code == code
    assert response.error_message
    assert response.brokers == []


def test_the_rack_is_shown(new_broker):
    with new_broker({"broker.rack": "r1"}).connect() as wire:
        assert wire.call(describe_cluster_request(), 0).brokers[0].rack == "r1"
