"""The same heartbeats, commits and fetches to Apache Kafka and to us: errors, epochs, assignments and states agree.

Kafka's assignment interval (KIP-1263), which gathers changes for a second, is off there: here every change is assigned
at once.
"""

from __future__ import annotations

import time

import pytest

from diskless_core.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from tests.compat.clients import TIMEOUT_S
from tests.support.admin_requests import delete_groups_request, list_groups_request, offset_delete_request
from tests.support.apache_kafka import ApacheKafka
from tests.support.requests import create_topic
from tests.support.wire import WireClient

pytestmark = pytest.mark.xdist_group("apache-kafka")

KAFKA_SETTINGS = {"group.consumer.migration.policy": "disabled", "group.consumer.assignment.interval.ms": "0"}
COORDINATOR_ERRORS = {14, 15, 16}
JOIN = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "owned": ()}


class Talk:
    """A conversation with one broker, and what it answered."""

    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self.wire = WireClient(host, int(port))
        self.topics = {name: create_topic(self.wire, name, count) for name, count in (("t", 4), ("u", 1))}
        self.answers = []
        # Apache Kafka makes its topic for groups when the first client looks for a coordinator.
        self.wire.call(FindCoordinatorRequest(key="g", key_type=0), 3)

    def beat(self, member, epoch, *, version=1, group="g", owned=None, **fields):
        entry = ConsumerGroupHeartbeatRequest.TopicPartitions
        topics = None if owned is None else [entry(topic_id=self.topics["t"], partitions=list(owned))][: len(owned)]
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, topic_partitions=topics, **fields
        )
        answer = self._once_loaded(request, version)
        assigned = answer.assignment and sorted(
            (name, sorted(one.partitions))
            for one in answer.assignment.topic_partitions
            for name, topic_id in self.topics.items()
            if one.topic_id == topic_id
        )
        self.answers.append((group, member, epoch, fields, answer.error_code, answer.member_epoch, assigned))

    def _once_loaded(self, request, version):
        deadline = time.monotonic() + TIMEOUT_S
        while (answer := self.wire.call(request, version)).error_code in COORDINATOR_ERRORS:
            assert time.monotonic() < deadline, answer
        return answer

    def describe(self, *groups):
        request = ConsumerGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=True)
        for group in sorted(self.wire.call(request, 1).groups, key=lambda one: one.group_id):
            members = sorted(
                (one.member_id, one.member_epoch, one.member_type, one.subscribed_topic_regex, one.instance_id)
                for one in group.members
            )
            of_group = (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch)
            self.answers.append((group.group_id, *of_group, group.assignor_name, group.authorized_operations, members))

    def commit(self, member, epoch, *, version=9, group="g", partition=0):
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        offset = topic.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=3, committed_leader_epoch=-1, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=epoch,
            member_id=member,
            group_instance_id=None,
            retention_time_ms=-1,
            topics=[topic(name="t", partitions=[offset])],
        )
        [answer] = self.wire.call(request, version).topics
        self.answers.append(("commit", member, epoch, partition, answer.partitions[0].error_code))

    def fetch(self, member, epoch, group="g"):
        of_group = OffsetFetchRequest.OffsetFetchRequestGroup
        wanted = of_group.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
        asked = of_group(group_id=group, member_id=member, member_epoch=epoch, topics=[wanted])
        [answer] = self.wire.call(OffsetFetchRequest(groups=[asked], require_stable=False), 9).groups
        offsets = [one.committed_offset for topic in answer.topics for one in topic.partitions]
        self.answers.append(("fetch", member, epoch, answer.error_code, offsets))


def dynamic_members(talk):
    for member, epoch, fields in (
        ("a", 0, JOIN),
        ("a", 0, JOIN),
        ("b", 0, JOIN),
        ("a", 2, {}),
        ("a", 2, {}),
        ("b", 3, {}),
        ("a", 2, {"owned": (0, 1)}),
        ("b", 3, {}),
        ("a", 2, {"owned": (0,)}),
        ("a", 2, {"owned": (2, 3)}),
        ("a", 2, {}),
        ("a", 9, {}),
        ("a", 0, JOIN),
        ("x", 1, {}),
        ("x", -1, {}),
        ("x", 1, {"group": "absent"}),
        ("x", -1, {"group": "absent"}),
        ("r", 0, {**JOIN, "group": "nothing", "subscribed_topic_names": None, "subscribed_topic_regex": ""}),
    ):
        talk.beat(member, epoch, **fields)
    talk.describe("g", "nothing", "absent", "")


def static_members(talk):
    for member, epoch, fields in (
        ("s", 0, JOIN),
        ("s", 0, JOIN),
        ("s2", 0, JOIN),
        ("s2", 1, {}),
        ("s", 2, {"instance_id": "other"}),
        ("d", 0, {**JOIN, "instance_id": None}),
        ("s", 2, {"owned": (0, 1, 2, 3)}),
        ("s", -2, {}),
        ("s", 2, {}),
        ("s9", 0, JOIN),
        ("s9", 3, {"owned": (0, 1)}),
        ("d", 3, {"instance_id": None, "owned": ()}),
        ("s9", -2, {}),
        ("s9", 0, JOIN),
        ("s", -1, {}),
        ("s9", -1, {}),
    ):
        talk.beat(member, epoch, group="static", **{"instance_id": "i", **fields})
    talk.describe("static")


def bad_requests(talk):
    for member, epoch, fields in (
        ("", 0, JOIN),
        ("", 1, {"version": 0}),
        ("c", 0, {**JOIN, "group": ""}),
        ("c", -3, {}),
        ("c", -2, {}),
        ("c", 0, {**JOIN, "rebalance_timeout_ms": -1}),
        ("c", 0, {**JOIN, "subscribed_topic_names": None}),
        ("c", 0, {**JOIN, "owned": None}),
        ("c", 0, {**JOIN, "owned": (1,)}),
        ("c", 0, {**JOIN, "server_assignor": "mine"}),
        ("c", 0, {**JOIN, "instance_id": ""}),
        ("c", 0, {**JOIN, "rack_id": ""}),
        ("c", 0, {**JOIN, "subscribed_topic_regex": "("}),
        ("c", 0, {**JOIN, "subscribed_topic_regex": "(?=t)"}),
    ):
        talk.beat(member, epoch, **fields)


def offsets(talk):
    for member, epoch, options in (
        ("b", 3, {}),
        ("b", 4, {}),
        ("b", 2, {"partition": 2}),
        ("a", 2, {"partition": 0}),
        ("a", 2, {"partition": 3}),
        ("x", 3, {}),
        ("", -1, {}),
        ("b", 3, {"version": 8}),
        ("x", 2, {"group": "absent"}),
    ):
        talk.commit(member, epoch, **options)
    for member, epoch in (("b", 3), ("b", 2), ("x", 1), (None, -1), ("", -1)):
        talk.fetch(member, epoch)
    talk.fetch("x", 3, "absent")


def administration(talk):
    for version in (5, 6):
        request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=False)
        [group] = talk.wire.call(request, version).groups
        talk.answers.append(("classic", group.error_code, group.group_state))
    deleted = talk.wire.call(delete_groups_request("g"), 2).results
    talk.answers.append(("delete", [one.error_code for one in deleted]))
    topics = talk.wire.call(offset_delete_request("g", {"t": [0], "u": [0]}), 0).topics
    talk.answers.append(("offsets", [(one.name, one.partitions[0].error_code) for one in topics]))
    for member in "ab":
        talk.beat(member, -1)
    talk.describe("g")
    groups = talk.wire.call(list_groups_request(types=["consumer"]), 5).groups
    talk.answers.append(("list", sorted((one.group_id, one.group_state, one.protocol_type) for one in groups)))


@pytest.fixture(scope="module")
def kafka(kafka_jars, tmp_path_factory):
    kafka = ApacheKafka(kafka_jars, tmp_path_factory.mktemp("kafka-groups"), KAFKA_SETTINGS)
    try:
        yield kafka.start()
    finally:
        kafka.end()


def test_apache_kafka_answers_the_same(kafka, new_broker):
    theirs, ours = Talk(kafka.bootstrap), Talk(new_broker().bootstrap)
    for talk in (theirs, ours):
        with talk.wire:
            for part in (dynamic_members, static_members, bad_requests, offsets, administration):
                part(talk)
    assert ours.answers == theirs.answers
