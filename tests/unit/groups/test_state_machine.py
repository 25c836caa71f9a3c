"""The groups shard's state machine and its records."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskless_core.coordinator.tables import State, Transaction
from diskless_core.groups.consumer import records as consumer
from diskless_core.groups.consumer.model import (
    CurrentAssignment,
    MemberMetadata,
    MemberState,
    ResolvedRegex,
    TopicIdPartition,
)
from diskless_core.groups.model import CommittedOffset, PersistedGroup, PersistedMember
from diskless_core.groups.records import GroupRecord, OffsetRecord
from diskless_core.groups.state_machine import GroupsMachine
from diskless_core.groups.tables import CONSUMER_GROUPS, GROUP_OFFSETS, GROUPS
from diskless_core.protocol.record_batch import RecordData
from diskless_core.protocol.record_frames import RecordFormatError

NAMES = st.sampled_from(["a", "b", "é", "a.b"])
INT32 = st.integers(min_value=0, max_value=2**31 - 1)
INT64 = st.integers(min_value=0, max_value=2**63 - 1)
TOPIC_IDS = st.uuids().filter(lambda one: one.int != 0)

OFFSETS = st.builds(
    CommittedOffset,
    offset=INT64,
    leader_epoch=st.integers(min_value=-1, max_value=2**31 - 1),
    metadata=st.text(max_size=5),
    commit_timestamp_ms=INT64,
    topic_id=st.none() | TOPIC_IDS,
) | st.builds(CommittedOffset, offset=INT64, commit_timestamp_ms=INT64, expire_timestamp_ms=INT64)
MEMBERS = st.builds(
    PersistedMember,
    member_id=st.text(max_size=5),
    instance_id=st.none() | NAMES,
    client_id=NAMES,
    client_host=NAMES,
    rebalance_timeout_ms=INT32,
    session_timeout_ms=INT32,
    subscription=st.binary(max_size=5),
    assignment=st.binary(max_size=5),
)
GROUP_VALUES = st.builds(
    PersistedGroup,
    protocol_type=NAMES,
    generation=INT32,
    protocol=st.none() | NAMES,
    leader=st.none() | NAMES,
    state_timestamp_ms=INT64,
    members=st.lists(MEMBERS, max_size=3).map(tuple),
)
PARTITIONS = st.builds(TopicIdPartition, TOPIC_IDS, INT32)
ASSIGNED = st.dictionaries(PARTITIONS, INT32, max_size=4)
CURRENT = st.builds(
    CurrentAssignment,
    epoch=st.integers(-2, 2**31 - 1),
    previous_epoch=INT32,
    state=st.sampled_from(MemberState),
    assigned=ASSIGNED,
    revoking=ASSIGNED,
)
METADATA = st.builds(
    MemberMetadata,
    instance_id=st.none() | NAMES,
    rack_id=st.none() | NAMES,
    client_id=NAMES,
    client_host=NAMES,
    topic_names=st.frozensets(NAMES),
    topic_regex=st.none() | NAMES,
    rebalance_timeout_ms=INT32,
    server_assignor=st.none() | NAMES,
)
CONSUMER_RECORDS = st.one_of(
    st.builds(consumer.GroupEpochRecord, group_id=NAMES, epoch=INT32, metadata_hash=INT64),
    st.builds(consumer.GroupEpochRecord, group_id=NAMES, epoch=st.none()),
    st.builds(consumer.MemberRecord, group_id=NAMES, member_id=NAMES, value=st.none() | METADATA),
    st.builds(consumer.TargetEpochRecord, group_id=NAMES, epoch=INT32, timestamp_ms=INT64),
    st.builds(consumer.TargetEpochRecord, group_id=NAMES, epoch=st.none()),
    st.builds(consumer.TargetRecord, group_id=NAMES, member_id=NAMES, value=st.none() | st.frozensets(PARTITIONS)),
    st.builds(consumer.CurrentRecord, group_id=NAMES, member_id=NAMES, value=st.none() | CURRENT),
    st.builds(
        consumer.RegexRecord,
        group_id=NAMES,
        regex=NAMES,
        value=st.none() | st.builds(ResolvedRegex, topics=st.frozensets(NAMES), timestamp_ms=INT64),
    ),
)
RECORDS = (
    st.builds(OffsetRecord, group_id=NAMES, topic=NAMES, partition=st.integers(0, 2), value=st.none() | OFFSETS)
    | st.builds(GroupRecord, group_id=NAMES, value=st.none() | GROUP_VALUES)
    | CONSUMER_RECORDS
)


def replayed(records):
    machine, state = GroupsMachine(), State(GroupsMachine().tables)
    for record in records:
        tx = Transaction(state)
        machine.replay(record, tx)
        state.commit(tx.writes)
    return {table.name: dict(state.rows(table)) for table in machine.tables}


@given(st.lists(RECORDS, max_size=20))
def test_replaying_what_was_written_gives_the_same_tables(records):
    machine = GroupsMachine()
    assert replayed(machine.decode(machine.encode(record)) for record in records) == replayed(records)


@given(CONSUMER_RECORDS)
def test_a_record_of_the_consumer_protocol_is_read_as_it_was_written(record):
    machine = GroupsMachine()
    assert machine.decode(machine.encode(record)) == record


@given(st.lists(CONSUMER_RECORDS, max_size=20))
def test_a_group_of_the_consumer_protocol_survives_the_store(records):
    for key, group in replayed(records)["consumer_groups"].items():
        assert CONSUMER_GROUPS.entity(CONSUMER_GROUPS.row(key, group)) == (key, group)


@given(st.lists(CONSUMER_RECORDS, max_size=20))
def test_the_tombstones_of_a_group_leave_nothing_of_it(records):
    groups = replayed(records)["consumer_groups"]
    deletions = [record for (group_id,), group in groups.items() for record in consumer.tombstones(group_id, group)]
    assert all(GroupsMachine().encode(record).value is None for record in deletions)
    assert replayed([*records, *deletions])["consumer_groups"] == {}


def test_a_member_is_written_as_apache_kafka_writes_it():
    assigned = {TopicIdPartition(uuid.UUID(int=1), 2): 7}
    value = CurrentAssignment(epoch=8, previous_epoch=7, state=MemberState.UNREVOKED_PARTITIONS, assigned=assigned)
    data = GroupsMachine().encode(consumer.CurrentRecord(group_id="g", member_id="m", value=value))
    assert data.key == b"\x00\x08" + b"\x00\x01g" + b"\x00\x01m"
    epochs = b"\x01\x00\x05\x02\x00\x00\x00\x07"  # one tagged field, tag 0, five bytes: an array of one int32
    topic = uuid.UUID(int=1).bytes + b"\x02\x00\x00\x00\x02" + epochs
    assert data.value == b"\x00\x00" + b"\x00\x00\x00\x08\x00\x00\x00\x07\x01" + b"\x02" + topic + b"\x01" + b"\x00"


def test_partitions_without_assignment_epochs_count_from_the_member_epoch():
    key = b"\x00\x08" + b"\x00\x01g" + b"\x00\x01m"
    topic = uuid.UUID(int=1).bytes + b"\x02\x00\x00\x00\x02" + b"\x00"
    value = b"\x00\x00" + b"\x00\x00\x00\x08\x00\x00\x00\x07\x00" + b"\x02" + topic + b"\x01" + b"\x00"
    record = GroupsMachine().decode(RecordData(key=key, value=value))
    assert record.value.assigned == {TopicIdPartition(uuid.UUID(int=1), 2): 8}


@given(OFFSETS)
def test_an_offset_survives_the_store(value):
    assert GROUP_OFFSETS.entity(GROUP_OFFSETS.row(("g", "t", 0), value)) == (("g", "t", 0), value)


@given(GROUP_VALUES)
def test_a_group_survives_the_store(value):
    assert GROUPS.entity(GROUPS.row(("g",), value)) == (("g",), value)


def test_an_offset_is_written_as_apache_kafka_writes_it():
    value = CommittedOffset(offset=258, leader_epoch=7, metadata="m", commit_timestamp_ms=1)
    data = GroupsMachine().encode(OffsetRecord(group_id="g", topic="t", partition=3, value=value))
    assert data.key == b"\x00\x01" + b"\x00\x01g" + b"\x00\x01t" + b"\x00\x00\x00\x03"
    assert data.value == b"\x00\x03" + bytes(6) + b"\x01\x02" + b"\x00\x00\x00\x07" + b"\x00\x01m" + bytes(7) + b"\x01"


def test_a_deletion_is_a_tombstone():
    data = GroupsMachine().encode(GroupRecord(group_id="g", value=None))
    assert data == RecordData(key=b"\x00\x02\x00\x01g", value=None)


def test_an_expiring_offset_has_no_place_for_a_topic_id():
    with pytest.raises(ValueError, match="own expiry"):
        CommittedOffset(offset=1, commit_timestamp_ms=1, expire_timestamp_ms=2, topic_id=uuid.uuid4())


@pytest.mark.parametrize(
    "data",
    [
        RecordData(key=None, value=b"x"),
        RecordData(key=b"\x00\x63", value=b""),
        RecordData(key=b"\x00\x02\x00\x01g", value=b"\x00\x03"),
    ],
    ids=["no key", "unknown key", "torn value"],
)
def test_a_foreign_record_is_refused(data):
    with pytest.raises(RecordFormatError):
        GroupsMachine().decode(data)
