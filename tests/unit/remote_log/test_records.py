"""Events of remote segments as Apache Kafka's records and as its text. `kafka_records.tsv` came from Kafka 4.3.1."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.remote_log.formatter import format_record
from diskless_core.remote_log.metadata import partition_of
from diskless_core.remote_log.records import CorruptRecordError, decode, encode, metadata_partition
from tests.support.remote_log import EVENTS

KAFKA_RECORDS = [
    line.split("\t") for line in (Path(__file__).parent / "kafka_records.tsv").read_text(encoding="utf-8").splitlines()
]
VECTORS = pytest.mark.parametrize(
    ("event", "value", "partition", "text"),
    [(event, *made) for event, made in zip(EVENTS, KAFKA_RECORDS, strict=True)],
    ids=[f"{number}-{type(event).__name__}" for number, event in enumerate(EVENTS)],
)


@VECTORS
def test_an_event_has_the_bytes_and_the_text_that_kafka_gives_it(event, value, partition, text):
    assert encode(event).hex() == value
    assert decode(bytes.fromhex(value)) == event
    assert decode(memoryview(bytearray.fromhex(value))) == event
    assert format_record(7, 11, event) == text
    topic_id, _, number = partition_of(event)
    assert metadata_partition(topic_id, number, 50) == int(partition)


def test_leader_epochs_are_written_in_ascending_order_whatever_order_they_are_known_in():
    event = EVENTS[1]
    assert list(decode(encode(event)).segment_leader_epochs) == [2, 7, 300]
    assert encode(replace(event, segment_leader_epochs=dict(sorted(event.segment_leader_epochs.items())))) == encode(
        event
    )


@pytest.mark.parametrize("event", EVENTS[:1] + EVENTS[3:4] + EVENTS[5:6])
def test_what_is_cut_off_or_too_long_is_refused(event):
    value = encode(event)
    for size in range(len(value)):
        with pytest.raises(CorruptRecordError):
            decode(value[:size])
    with pytest.raises(CorruptRecordError, match="trailing bytes"):
        decode(value + b"\0")


@pytest.mark.parametrize(
    ("position", "byte", "reason"),
    [(0, 3, "frame version 3"), (1, 3, "api key 3"), (2, 1, "RemotePartitionDeleteMetadataRecord up to version 0")],
)
def test_an_unknown_frame_kind_or_version_is_refused_and_named(position, byte, reason):
    value = bytearray(encode(EVENTS[5]))
    value[position] = byte
    with pytest.raises(CorruptRecordError, match=f"no event of __remote_log_metadata: .*{reason}"):
        decode(value)


@pytest.mark.parametrize(
    ("event", "behind"), [(EVENTS[0], 5), (EVENTS[3], 2), (EVENTS[5], 2)], ids=["segment", "update", "deletion"]
)
def test_a_state_that_kip_405_does_not_have_is_refused(event, behind):
    value = bytearray(encode(event))
    value[-behind] = 9
    with pytest.raises(CorruptRecordError, match="9 is not a valid Remote"):
        decode(value)


def test_text_that_is_no_utf_8_is_refused():
    with pytest.raises(CorruptRecordError):
        decode(encode(EVENTS[0]).replace(b"orders", b"ord\xffrs"))


def test_a_number_that_does_not_fit_is_an_error_and_not_another_number():
    with pytest.raises(struct.error):
        encode(replace(EVENTS[0], segment_size_bytes=2**31))


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(EVENTS), st.data())
def test_damage_is_found_or_makes_another_event_and_nothing_else_happens(event, data):
    value = bytearray(encode(event))
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode(value)
    except CorruptRecordError:
        return
    assert decode(encode(decoded)) == decoded
