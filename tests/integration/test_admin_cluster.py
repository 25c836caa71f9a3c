"""Leaders, replicas, features, voters and brokers: what an administrator may ask of a cluster of one broker."""

from __future__ import annotations

import time
import uuid

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest

from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    AddRaftVoterRequest,
    AlterReplicaLogDirsRequest,
    RemoveRaftVoterRequest,
    UnregisterBrokerRequest,
)
from tests.support.admin_requests import (
    PREFERRED,
    UNCLEAN,
    alter_reassignments_request,
    alter_replica_log_dirs_request,
    describe_cluster_request,
    describe_quorum_request,
    elect_leaders_request,
    update_features_request,
)
from tests.support.requests import create_topic

pytestmark = pytest.mark.in_a_cluster_too

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
INVALID_REPLICAS = ErrorCode.INVALID_REPLICA_ASSIGNMENT
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


@pytest.fixture
def node_id(wire):
    return wire.call(describe_cluster_request(), 2).controller_id


# --- leaders ---------------------------------------------------------------------------------------------------------


def elected(answer):
    return {
        (result.topic, one.partition_id): one.error_code
        for result in answer.replica_election_results
        for one in result.partition_result
    }


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
def test_no_election_is_needed_and_unknown_partitions_are_named(wire, topic, version, kind):
    create_topic(wire, topic, 2)

    answer = wire.call(elect_leaders_request({topic: [0, 1, 2, -1], f"{topic}-absent": [0]}, kind), version)

    needless = ErrorCode.ELECTION_NOT_NEEDED
    assert answer.error_code == NONE
    assert elected(answer) == {
        (topic, 0): needless,
        (topic, 1): needless,
        (topic, 2): UNKNOWN,
        (topic, -1): UNKNOWN,
        (f"{topic}-absent", 0): UNKNOWN,
    }


def test_an_election_everywhere_names_topics_without_partitions(wire, topic):
    create_topic(wire, topic, 2)

    answer = wire.call(elect_leaders_request(None), 2)

    assert topic in [result.topic for result in answer.replica_election_results]
    assert elected(answer) == {}


def test_an_unknown_kind_of_election_is_refused_everywhere(wire, topic):
    create_topic(wire, topic)

    answer = wire.call(elect_leaders_request({topic: [0]}, 7), 2)

    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert elected(answer) == {(topic, 0): ErrorCode.INVALID_REQUEST}


# --- replicas --------------------------------------------------------------------------------------------------------


def reassigned(answer):
    assert answer.error_code == NONE
    return {(topic.name, one.partition_index): one.error_code for topic in answer.responses for one in topic.partitions}


@pytest.mark.one_broker
@pytest.mark.parametrize("version", range(2))
def test_a_partition_can_be_assigned_to_this_broker_only(wire, topic, node_id, version):
    create_topic(wire, topic, 5)
    absent = f"{topic}-absent"
    wanted = {0: [node_id], 1: [node_id + 1], 2: [node_id, node_id], 3: [], 4: None, 5: [node_id]}

    answer = wire.call(alter_reassignments_request({topic: wanted, absent: {0: [node_id]}}), version)

    assert reassigned(answer) == {
        (topic, 0): NONE,
        (topic, 1): INVALID_REPLICAS,
        (topic, 2): INVALID_REPLICAS,
        (topic, 3): INVALID_REPLICAS,
        (topic, 4): ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        (topic, 5): UNKNOWN,
        (absent, 0): UNKNOWN,
    }


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_can_be_moved_to_the_folder_where_it_is(broker, wire, topic, version):
    create_topic(wire, topic)

    def moved(path, *partitions):
        [found] = wire.call(alter_replica_log_dirs_request(path, {topic: partitions}), version).results
        assert found.topic_name == topic
        return {one.partition_index: one.error_code for one in found.partitions}

    assert moved(str(broker.folder / "data"), 0, 1) == {0: NONE, 1: ErrorCode.REPLICA_NOT_AVAILABLE}
    assert moved("/elsewhere", 0, 1) == dict.fromkeys((0, 1), ErrorCode.LOG_DIR_NOT_FOUND)


def test_of_two_folders_for_a_replica_the_later_one_counts(broker, wire, topic):
    create_topic(wire, topic)
    here = alter_replica_log_dirs_request(str(broker.folder / "data"), {topic: [0]}).dirs
    there = alter_replica_log_dirs_request("/elsewhere", {topic: [0]}).dirs

    [found] = wire.call(AlterReplicaLogDirsRequest(dirs=[*there, *here]), 2).results

    assert [(one.partition_index, one.error_code) for one in found.partitions] == [(0, NONE)]


# --- features --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 4])
def test_the_level_of_the_metadata_is_that_of_kafka_4_2(wire, version):
    answer = wire.call(ApiVersionsRequest(client_software_name="wire", client_software_version="1"), version)

    supported = {one.name: (one.min_version, one.max_version) for one in answer.supported_features}
    finalized = {one.name: (one.min_version_level, one.max_version_level) for one in answer.finalized_features}
    assert supported["metadata.version"] == (29, 29)
    assert supported["diskless.version"] == (1, 1)
    assert finalized == {"diskless.version": (1, 1), "group.version": (1, 1), "metadata.version": (29, 29)}
    assert answer.finalized_features_epoch == 1


@pytest.mark.parametrize("version", range(3))
def test_a_feature_can_be_set_to_the_level_that_it_has(wire, version):
    answer = wire.call(
        update_features_request(("diskless.version", 1), ("group.version", 1), ("metadata.version", 29)), version
    )

    assert (answer.error_code, answer.error_message) == (NONE, None)
    results = [(one.feature, one.error_code) for one in answer.results or ()]
    features = ["diskless.version", "group.version", "metadata.version"]
    assert results == ([(feature, NONE) for feature in features] if version < 2 else [])


@pytest.mark.parametrize(
    ("feature", "level", "upgrade_type"),
    [
        ("group.version", 2, UPGRADE),
        ("group.version", 0, UPGRADE),
        ("group.version", 0, SAFE_DOWNGRADE),
        ("group.version", 0, UNSAFE_DOWNGRADE),
        ("group.version", -1, SAFE_DOWNGRADE),
        ("group.version", 1, 7),
        ("metadata.version", 28, SAFE_DOWNGRADE),
        ("metadata.version", 30, UPGRADE),
        ("diskless.version", 0, UNSAFE_DOWNGRADE),
        ("diskless.version", 2, UPGRADE),
        ("no.such.version", 1, UPGRADE),
    ],
)
def test_one_level_that_cannot_be_set_refuses_all(wire, feature, level, upgrade_type):
    request = update_features_request((feature, level), upgrade_type=upgrade_type)

    answer = wire.call(request, 1)

    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert f"Invalid update version {level} for feature {feature}." in answer.error_message
    assert answer.results in (None, [])


# --- the quorum and the brokers --------------------------------------------------------------------------------------


@pytest.mark.one_broker
@pytest.mark.parametrize("version", range(3))
def test_this_broker_is_the_quorum(broker, wire, topic, node_id, version):
    before = wire.call(describe_quorum_request(), version).topics[0].partitions[0]
    create_topic(wire, topic)

    answer = wire.call(describe_quorum_request(), version)

    [described] = answer.topics
    [partition] = described.partitions
    assert (described.topic_name, partition.partition_index) == ("__cluster_metadata", 0)
    assert (answer.error_code, partition.error_code, partition.leader_id) == (NONE, NONE, node_id)
    assert partition.leader_epoch >= 0
    assert partition.high_watermark > before.high_watermark
    assert partition.observers == []
    [voter] = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (node_id, partition.high_watermark)
    if version >= 1:
        now_ms = time.time() * 1000
        assert abs(voter.last_fetch_timestamp - now_ms) < 60_000
        assert abs(voter.last_caught_up_timestamp - now_ms) < 60_000
    if version >= 2:
        [node] = answer.nodes
        [listener] = node.listeners
        assert (node.node_id, f"{listener.host}:{listener.port}") == (node_id, broker.bootstrap)


@pytest.mark.parametrize(
    "asked", [[("__cluster_metadata", 1)], [("orders", 0)], [("__cluster_metadata", 0), ("orders", 0)]]
)
def test_nothing_else_has_a_quorum(wire, asked):
    answer = wire.call(describe_quorum_request(*asked), 2)

    found = [
        (topic.topic_name, one.partition_index, one.error_code) for topic in answer.topics for one in topic.partitions
    ]
    assert (answer.error_code, found) == (NONE, [(*one, UNKNOWN) for one in asked])


def test_the_voters_cannot_be_changed(wire, node_id):
    def errors(cluster_id=None, **fields):
        fields["cluster_id"] = cluster_id
        added = AddRaftVoterRequest(voter_id=node_id + 1, listeners=[], **fields)
        removed = RemoveRaftVoterRequest(voter_id=node_id, **fields)
        return wire.call(added, 1).error_code, wire.call(removed, 0).error_code

    assert errors(voter_directory_id=uuid.uuid4()) == (ErrorCode.UNSUPPORTED_VERSION,) * 2
    assert errors() == (ErrorCode.INVALID_REQUEST,) * 2
    assert errors(cluster_id="another") == (ErrorCode.INCONSISTENT_CLUSTER_ID,) * 2


@pytest.mark.one_broker
def test_a_broker_that_runs_or_is_unknown_cannot_be_unregistered(wire, node_id):
    def unregister(broker_id):
        return wire.call(UnregisterBrokerRequest(broker_id=broker_id), 0).error_code

    assert unregister(node_id) == ErrorCode.INVALID_REQUEST
    assert unregister(node_id + 1) == ErrorCode.BROKER_ID_NOT_REGISTERED


# --- coordinators ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 7))
def test_a_coordinator_that_is_found_has_the_error_message_of_kafka(wire, version):
    answer = wire.call(FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=["g"]), version)

    found = answer if version < 4 else answer.coordinators[0]
    assert (found.error_code, found.error_message) == (NONE, "NONE" if version < 4 else "")
