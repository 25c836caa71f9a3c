"""Records in KRaft's framing, and those of `__consumer_offsets`."""

from __future__ import annotations

import struct
import uuid

import pytest

from diskless_core.protocol import messages
from diskless_core.protocol.record_frames import (
    GROUP_RECORDS,
    GROUP_VALUE_VERSION,
    IgnorableRecordError,
    RecordFormatError,
    UnknownRecordError,
    decode_record,
    encode_key,
    encode_record,
    encode_value,
    read_record,
)

TOPIC_ID = uuid.UUID(int=0x0102030405060708090A0B0C0D0E0F10)


def test_a_topic_record_has_the_bytes_that_kraft_writes() -> None:
    record = messages.TopicRecord(name="foo", topic_id=TOPIC_ID)
    assert encode_record(record) == b"\x01\x02\x00" + b"\x04foo" + TOPIC_ID.bytes + b"\0"


def test_the_records_of_ours_have_the_bytes_of_their_schemas() -> None:
    entry = messages.CoordinatorEntryRecord(term=5, sequence=9, log_id=TOPIC_ID)
    assert encode_record(entry) == b"\x01\x78\x00" + struct.pack(">qq", 5, 9) + TOPIC_ID.bytes + b"\0"
    assert encode_record(messages.CoordinatorNoOpRecord()) == b"\x01\x7a\x00\0"
    claim = messages.CoordinatorClaimRecord(broker_id=3, claim_id=TOPIC_ID, read_offset=9, read_term=5, read_sequence=2)
    position = struct.pack(">qqq", 9, 5, 2)
    assert encode_record(claim) == b"\x01\x79\x00" + struct.pack(">i", 3) + TOPIC_ID.bytes + position + b"\0"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\x01\x02",
        b"\x80" * 50,
        b"\x02\x02\x00\x04foo" + TOPIC_ID.bytes + b"\0",
        b"\x01\x7f\x00\x04foo" + TOPIC_ID.bytes + b"\0",
        b"\x01\x02\x01\x04foo" + TOPIC_ID.bytes + b"\0",
        b"\x01\x02\x00\x04foo" + TOPIC_ID.bytes,
        b"\x01\x02\x00\x04foo" + TOPIC_ID.bytes + b"\0\0",
        b"\x01\x02\x00\x04fo\xff" + TOPIC_ID.bytes + b"\0",
    ],
    ids=[
        "empty",
        "only a frame version",
        "no record version",
        "an endless varint",
        "another frame version",
        "an unknown api key",
        "an unknown version",
        "truncated",
        "trailing bytes",
        "not UTF-8",
    ],
)
def test_what_is_no_known_record_is_a_format_error(data: bytes) -> None:
    with pytest.raises(RecordFormatError):
        decode_record(data)


def test_a_record_that_only_a_later_version_knows_is_told_from_a_malformed_one_and_named() -> None:
    with pytest.raises(UnknownRecordError, match="api key 97, version 3"):
        decode_record(b"\x01\x61\x03anything")
    with pytest.raises(UnknownRecordError, match="knows TopicRecord up to version 0, not version 1"):
        decode_record(b"\x01\x02\x01anything")
    with pytest.raises(UnknownRecordError, match="keys of version 4"):
        GROUP_RECORDS.decode_key(struct.pack(">hh1s", 4, 1, b"g"))
    with pytest.raises(UnknownRecordError, match="knows OffsetCommitValue up to version 4, not version 9"):
        GROUP_RECORDS.decode_value(messages.OffsetCommitKey(group="g", topic="t", partition=0), b"\0\x09")
    with pytest.raises(RecordFormatError) as malformed:
        decode_record(b"\x03\x02\x00\x04foo")
    assert not isinstance(malformed.value, UnknownRecordError)


def test_a_frame_can_say_that_its_record_may_be_ignored_whether_it_is_known_or_not() -> None:
    record = messages.TopicRecord(name="foo", topic_id=TOPIC_ID)
    data = encode_record(record, ignorable=True)
    assert data == b"\x02\x02\x00" + b"\x04foo" + TOPIC_ID.bytes + b"\0"
    for ignorable in (data, b"\x02\x61\x03anything"):
        with pytest.raises(IgnorableRecordError):
            decode_record(ignorable)
    assert read_record(data).name == "foo"


def test_a_committed_offset_has_the_bytes_that_kafka_writes() -> None:
    key = messages.OffsetCommitKey(group="g", topic="foo", partition=2)
    value = messages.OffsetCommitValue(offset=10, leader_epoch=-1, metadata="m", commit_timestamp=99)
    key_bytes, value_bytes = encode_key(key), encode_value(value, GROUP_VALUE_VERSION)
    assert key_bytes == struct.pack(">hh1sh3si", 1, 1, b"g", 3, b"foo", 2)
    assert value_bytes == struct.pack(">hqih1sq", 3, 10, -1, 1, b"m", 99)
    assert GROUP_RECORDS.decode_key(key_bytes) == key
    decoded = GROUP_RECORDS.decode_value(key, memoryview(value_bytes))
    assert (decoded.offset, decoded.leader_epoch, decoded.metadata, decoded.commit_timestamp) == (10, -1, "m", 99)


def test_a_group_has_the_bytes_that_kafka_writes() -> None:
    member = messages.GroupMetadataValue.MemberMetadata(
        member_id="a",
        group_instance_id=None,
        client_id="c",
        client_host="/h",
        rebalance_timeout=7,
        session_timeout=8,
        subscription=b"sub",
        assignment=b"",
    )
    value = messages.GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol=None,
        leader="a",
        current_state_timestamp=55,
        members=[member],
    )
    key = messages.GroupMetadataKey(group="g")
    assert encode_key(key) == struct.pack(">hh1s", 2, 1, b"g")
    head = struct.pack(">hh8sihh1sqi", 3, 8, b"consumer", 4, -1, 1, b"a", 55, 1)
    body = struct.pack(">h1shh1sh2siii3si", 1, b"a", -1, 1, b"c", 2, b"/h", 7, 8, 3, b"sub", 0)
    assert encode_value(value, GROUP_VALUE_VERSION) == head + body
    assert GROUP_RECORDS.decode_value(key, head + body).members[0].subscription == b"sub"


def test_older_keys_and_values_of_offsets_are_read() -> None:
    key = GROUP_RECORDS.decode_key(struct.pack(">hh1sh1si", 0, 1, b"g", 1, b"t", 5))
    assert (type(key), key.partition) == (messages.OffsetCommitKey, 5)
    assert GROUP_RECORDS.decode_value(key, struct.pack(">hqh0sqq", 1, 10, 0, b"", 3, 4)).expire_timestamp == 4


@pytest.mark.parametrize(
    "data", [b"", b"\0", struct.pack(">hh1s", 4, 1, b"g"), struct.pack(">hh", 2, 1), b"\0\2\0\1gg"]
)
def test_what_is_no_known_group_key_is_a_format_error(data: bytes) -> None:
    with pytest.raises(RecordFormatError):
        GROUP_RECORDS.decode_key(data)


@pytest.mark.parametrize("data", [b"", struct.pack(">h", 3), struct.pack(">h", 9) + b"\0" * 40, b"\0\3" + b"\0" * 23])
def test_what_is_no_known_group_value_is_a_format_error(data: bytes) -> None:
    with pytest.raises(RecordFormatError):
        GROUP_RECORDS.decode_value(messages.OffsetCommitKey(group="g", topic="t", partition=0), data)
