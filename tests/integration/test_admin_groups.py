"""ListGroups, DescribeGroups, DeleteGroups and OffsetDelete over the wire, in every version."""

from __future__ import annotations

import pytest
from kafka.protocol.consumer.group import JoinGroupRequest, OffsetCommitRequest

from diskless_core.protocol.errors import ErrorCode
from tests.support.admin_requests import (
    delete_groups_request,
    describe_groups_request,
    list_groups_request,
    offset_delete_request,
)
from tests.support.requests import create_topic


@pytest.fixture
def group(topic):
    return f"group-of-{topic}"


def commit(wire, group, topic, *partitions):
    topic_class = OffsetCommitRequest.OffsetCommitRequestTopic
    offsets = [
        topic_class.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=0, committed_leader_epoch=-1, committed_metadata=""
        )
        for partition in partitions
    ]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[topic_class(name=topic, partitions=offsets)],
    )
    [answer] = wire.call(request, 8).topics
    assert [one.error_code for one in answer.partitions] == [0] * len(partitions)


def join(wire, group):
    """The id of the only member, which does not ask for its assignment."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"meta")
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[protocol],
    )
    answer = wire.call(request, 3)
    assert answer.error_code == 0
    return answer.member_id


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed(wire, topic, group, version):
    create_topic(wire, topic)
    commit(wire, group, topic, 0)
    join(wire, f"{group}-joining")

    response = wire.call(list_groups_request(), version)

    assert response.error_code == 0
    listed = {one.group_id: one for one in response.groups}
    simple, joining = listed[group], listed[f"{group}-joining"]
    assert (simple.protocol_type, joining.protocol_type) == ("", "consumer")
    if version >= 4:
        assert (simple.group_state, joining.group_state) == ("Empty", "CompletingRebalance")
        empty = wire.call(list_groups_request(["empty"]), version).groups
        assert {group} <= {one.group_id for one in empty}
        assert f"{group}-joining" not in {one.group_id for one in empty}
    if version >= 5:
        assert simple.group_type == "classic"
        consumers = wire.call(list_groups_request(types=["consumer"]), version).groups
        assert not {group, f"{group}-joining"} & {one.group_id for one in consumers}


@pytest.mark.parametrize("version", range(7))
def test_groups_are_described(wire, topic, group, version):
    member_id = join(wire, group)

    known, unknown = wire.call(describe_groups_request(group, f"{group}-unknown"), version).groups

    assert (known.error_code, known.group_state, known.protocol_type) == (0, "CompletingRebalance", "consumer")
    assert [(one.member_id, one.client_id) for one in known.members] == [(member_id, "wire")]
    assert (unknown.group_state, unknown.error_code) == (
        "Dead",
        ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE,
    )


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted(wire, topic, group, version):
    create_topic(wire, topic, 2)
    commit(wire, group, topic, 0, 1)
    join(wire, f"{group}-joining")

    results = wire.call(delete_groups_request(group, f"{group}-joining", "unknown"), version).results

    assert {one.group_id: one.error_code for one in results} == {
        group: ErrorCode.NONE,
        f"{group}-joining": ErrorCode.NON_EMPTY_GROUP,
        "unknown": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert group not in {one.group_id for one in wire.call(list_groups_request(), 5).groups}


def test_offsets_are_deleted_unless_somebody_may_be_using_them(wire, topic, group):
    create_topic(wire, topic, 2)
    commit(wire, group, topic, 0, 1)
    commit(wire, f"{group}-joining", topic, 0)
    join(wire, f"{group}-joining")

    simple = wire.call(offset_delete_request(group, {topic: [0, 1], "absent-for-sure": [0]}), 0)
    joining = wire.call(offset_delete_request(f"{group}-joining", {topic: [0]}), 0)
    unknown = wire.call(offset_delete_request(f"{group}-unknown", {topic: [0]}), 0)

    assert simple.error_code == joining.error_code == 0
    assert [[one.error_code for one in answer.partitions] for answer in simple.topics] == [[0, 0], [3]]
    assert joining.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert (unknown.error_code, unknown.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
