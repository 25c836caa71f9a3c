"""ConsumerGroupHeartbeat and ConsumerGroupDescribe over the wire, and what ApiVersions says of the protocol."""

from __future__ import annotations

import pytest
from kafka.protocol.metadata import ApiVersionsRequest

from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from tests.support.admin_requests import list_groups_request
from tests.support.requests import create_topic, delete_topic


@pytest.fixture
def group(topic):
    return f"group-of-{topic}"


def beat(wire, group, member_id, epoch, version=1, **fields):
    return wire.call(
        ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields), version
    )


def join(wire, group, member_id, topic, version=1, **fields):
    full = {"subscribed_topic_names": [topic], "rebalance_timeout_ms": 30_000, "topic_partitions": [], **fields}
    return beat(wire, group, member_id, 0, version, **full)


def partitions(answer):
    return {one.topic_id: one.partitions for one in answer.assignment.topic_partitions}


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_is_described_and_leaves(wire, topic, group, version):
    topic_id = create_topic(wire, topic, 2)

    joined = join(wire, group, "" if version == 0 else "m", topic, version)
    assert (joined.error_code, joined.member_epoch) == (0, 2)
    assert partitions(joined) == {topic_id: [0, 1]}

    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    [described] = wire.call(request, version).groups
    assert (described.group_state, described.group_epoch, described.assignor_name) == ("Stable", 2, "uniform")
    [member] = described.members
    assert (member.member_id, member.client_id) == (joined.member_id, "wire")
    assert [(one.topic_name, one.partitions) for one in member.assignment.topic_partitions] == [(topic, [0, 1])]

    assert beat(wire, group, joined.member_id, -1, version).error_code == 0
    groups = {one.group_id: one for one in wire.call(list_groups_request(types=["consumer"]), 5).groups}
    assert groups[group].group_state == "Empty"


def test_a_deleted_topic_is_taken_from_its_consumers(wire, topic, group):
    create_topic(wire, topic, 1)
    kept = create_topic(wire, f"{topic}-kept", 1)
    names = [topic, f"{topic}-kept"]
    assert len(partitions(join(wire, group, "m", topic, subscribed_topic_names=names))) == 2

    delete_topic(wire, topic)

    assert partitions(beat(wire, group, "m", 2)) == {kept: [0]}


def test_a_regular_expression_finds_topics(wire, topic, group):
    topic_id = create_topic(wire, topic, 1)
    regex = f"{topic[:-1]}[{topic[-1]}]"
    joined = join(wire, group, "m", topic, subscribed_topic_names=None, subscribed_topic_regex=regex)
    assert partitions(joined) == {topic_id: [0]}

    refused = join(wire, group, "n", topic, subscribed_topic_regex="(")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "missing )" in refused.error_message


@pytest.mark.parametrize("version", [3, 4])
def test_the_feature_that_clients_look_for_is_in_force(wire, version):
    answer = wire.call(ApiVersionsRequest(client_software_name="wire", client_software_version="1"), version)

    [finalized] = [one for one in answer.finalized_features if one.name == "group.version"]
    assert (finalized.min_version_level, finalized.max_version_level) == (1, 1)
    assert answer.finalized_features_epoch >= 0
    supported = {one.name: (one.min_version, one.max_version) for one in answer.supported_features}
    assert supported.get("group.version") == ((0, 1) if version >= 4 else None)
