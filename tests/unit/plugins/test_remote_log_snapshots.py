"""What a node keeps of the metadata topic: file formats, and that no kill between files loses or repeats anything."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.protocol.messages.remote_log import snapshots as schemas
from diskless_core.remote_log.metadata import (
    RemoteLogMetadataEvent,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
)
from diskless_core.testing.remote_log_metadata_tools import PARTITION, deletion, segment, update
from diskless_kafka import snapshot_folder
from diskless_kafka.segment_states import SegmentStates, TopicRecord
from diskless_kafka.snapshot_file import (
    SUFFIX,
    CorruptSnapshotError,
    Deletion,
    PartitionSnapshot,
    decode,
    decode_names,
    decode_offsets,
    encode,
    encode_names,
    encode_offsets,
)
from diskless_kafka.snapshot_folder import SnapshotFolder

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
OFFSETS = st.integers(0, 2**63 - 1)
PARTITIONS = 2
US, THEM = "ours", "theirs"


@st.composite
def segments(draw: st.DrawFn, partition: TopicIdPartition) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(partition, draw(st.uuids())),
        start_offset=draw(INT64),
        end_offset=draw(INT64),
        max_timestamp_ms=draw(INT64),
        broker_id=draw(INT32),
        event_timestamp_ms=draw(INT64),
        segment_size_bytes=draw(INT32),
        segment_leader_epochs=draw(st.dictionaries(INT32, INT64, max_size=3)),
        state=draw(st.sampled_from(RemoteLogSegmentState)),
        custom_metadata=draw(st.none() | st.binary(max_size=40)),
        txn_index_empty=draw(st.booleans()),
    )


@st.composite
def partition_snapshots(draw: st.DrawFn) -> PartitionSnapshot:
    partition = TopicIdPartition(draw(st.uuids()), draw(st.text(max_size=30)), draw(st.integers(0, 2**31 - 1)))
    metadata = RemotePartitionDeleteMetadata(
        topic_id_partition=partition,
        state=draw(st.sampled_from(RemotePartitionDeleteState)),
        event_timestamp_ms=draw(INT64),
        broker_id=draw(INT32),
    )
    return PartitionSnapshot(
        partition=partition,
        next_offset=draw(OFFSETS),
        segments=draw(st.lists(segments(partition), max_size=4)),
        deletion=draw(st.none() | st.builds(Deletion, st.just(metadata), st.none() | st.text(max_size=10))),
    )


@settings(deadline=None)
@given(partition_snapshots())
def test_a_flat_file_comes_back_as_it_was(snapshot: PartitionSnapshot) -> None:
    assert decode(encode(snapshot), snapshot.partition.partition) == snapshot


@settings(deadline=None)
@given(partition_snapshots(), st.data())
def test_a_flat_file_that_was_cut_or_damaged_is_found_out(snapshot: PartitionSnapshot, data: st.DataObject) -> None:
    encoded = encode(snapshot)
    at = data.draw(st.integers(0, len(encoded) - 1))
    flipped = bytearray(encoded)
    flipped[at] ^= data.draw(st.integers(1, 255))
    for damaged in (encoded[:at], bytes(flipped), encoded + b"\0", encoded + encoded):
        with pytest.raises(CorruptSnapshotError):
            decode(damaged, snapshot.partition.partition)


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_other_bytes_are_no_flat_file(data: bytes) -> None:
    with pytest.raises(CorruptSnapshotError):
        decode(data, 0)


def test_a_flat_file_is_laid_out_as_kip_405_says() -> None:
    topic_id = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    partition = TopicIdPartition(topic_id, "orders", 3)
    marked = deletion(RemotePartitionDeleteState.DELETE_PARTITION_MARKED, partition)
    snapshot = PartitionSnapshot(
        partition=partition,
        next_offset=300,
        segments=[segment(1, 0, 9, partition=partition)],
        deletion=Deletion(marked, "us"),
    )
    header = b"\x00" + b"\x00\x06orders" + topic_id.bytes + b"\xd8\x04"
    encoded = encode(snapshot)
    assert encoded.startswith(header)
    entries = []
    rest = encoded[len(header) :]
    while rest:
        length = rest[0]
        assert length < 0x80
        entries.append(rest[1 : 1 + length])
        rest = rest[1 + length :]
    assert [(entry[0], entry[1]) for entry in entries] == [(3, 0), (100, 0), (101, 0)]
    assert entries[0][2:18] == uuid.UUID(int=1).bytes
    assert entries[1][-4:] == b"\x03us\x00"


def test_every_entry_has_a_schema_that_says_what_its_fields_are() -> None:
    for api_key, record_class in schemas.SNAPSHOT_RECORDS.items():
        assert record_class.json["apiKey"] == api_key
        assert record_class.json["name"] == record_class.__name__
        assert all(field["about"] for field in record_class.json["fields"])


@given(st.dictionaries(st.integers(0, 2**31 - 1), OFFSETS))
def test_committed_offsets_come_back_as_they_were(offsets: dict[int, int]) -> None:
    assert decode_offsets(encode_offsets(offsets)) == offsets


def test_committed_offsets_are_a_line_for_each_partition() -> None:
    assert encode_offsets({4: 104, 0: 2022, 2: 498}) == b"0 2022\n2 498\n4 104\n"


@pytest.mark.parametrize("data", [b"0 2", b"0\n", b"0 1 2\n", b"x 1\n", b"0 -1\n", b"-1 0\n", b"0 1\n0 2\n", b"\xff\n"])
def test_other_text_is_no_committed_offsets(data: bytes) -> None:
    with pytest.raises(CorruptSnapshotError):
        decode_offsets(data)


def test_names_are_lines_and_a_cut_one_is_found_out() -> None:
    assert decode_names(encode_names(["a", "b"])) == ["a", "b"]
    assert decode_names(b"") == []
    with pytest.raises(CorruptSnapshotError):
        decode_names(b"a\nb")


Event = tuple[RemoteLogMetadataEvent, str | None]
PLACES = [
    TopicIdPartition(uuid.UUID(int=topic), f"topic-{topic}", partition) for topic in (1, 2) for partition in (0, 1)
]


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Events of a few segments and partitions in any order, those that do not follow included."""
    events: list[Event] = []
    for _ in range(draw(st.integers(1, 40))):
        place = draw(st.sampled_from(PLACES))
        begun = segment(draw(st.integers(1, 2)), 0, 9, partition=place)
        writer = draw(st.sampled_from([US, THEM, None]))
        step = draw(st.integers(0, 7))
        if step < 2:
            events.append((begun, writer))
        elif step < 6:
            events.append((update(begun, RemoteLogSegmentState(draw(st.integers(1, 3)))), writer))
        else:
            events.append((deletion(RemotePartitionDeleteState(draw(st.integers(0, 2))), place), writer))
    return events


def as_records(events: list[Event]) -> list[TopicRecord]:
    at = SegmentStates(US, PARTITIONS)
    ends = dict.fromkeys(range(PARTITIONS), 0)
    made = []
    for event, writer in events:
        place = event.topic_id_partition if hasattr(event, "topic_id_partition") else event.segment_id[0]
        number = at.metadata_partition(place)
        made.append(TopicRecord(number, ends[number], event, writer))
        ends[number] += 1
    return made


def known(states: SegmentStates) -> object:
    logs = {place: list(states.log(place).segments()) for place in PLACES}
    return logs, sorted(states.deletions(), key=str), states.positions


class KilledError(BaseException):
    pass


def store_until_killed(folder: SnapshotFolder, states: SegmentStates, files: int) -> None:
    """Keep what is known, and die before so many files have their names."""
    left = files

    class DyingPath(type(Path())):  # type: ignore[misc]
        def replace(self, target: Path) -> Path:
            nonlocal left
            if left == 0:
                raise KilledError
            left -= 1
            return super().replace(target)

        def unlink(self, missing_ok: bool = False) -> None:
            nonlocal left
            if left == 0:
                raise KilledError
            left -= 1
            super().unlink(missing_ok)

    kept = states.take_snapshots()
    if kept is not None:
        dying = SnapshotFolder.__new__(SnapshotFolder)
        dying._folder = DyingPath(folder._folder)
        dying.store(kept)


@settings(deadline=None, max_examples=40)
@given(histories(), st.data())
def test_a_kill_at_any_point_loses_nothing_and_repeats_nothing(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event], data: st.DataObject
) -> None:
    all_records = as_records(events)
    expected = SegmentStates(US, PARTITIONS)
    for record in all_records:
        expected.take(record)

    folder = SnapshotFolder(tmp_path_factory.mktemp("kept"), "topic")
    states = SegmentStates(US, PARTITIONS)
    position = 0
    while position < len(all_records):
        until = data.draw(st.integers(position + 1, len(all_records)))
        for record in all_records[:until]:
            if record.offset == states.positions[record.metadata_partition]:
                states.take(record)
        position = until
        try:
            store_until_killed(folder, states, data.draw(st.integers(0, 12)))
        except KilledError:
            loaded = folder.load()
            states = SegmentStates(US, PARTITIONS)
            if loaded is not None:
                states.load(loaded.snapshots, loaded.offsets)
            for record in all_records[:until]:
                if record.offset == states.positions[record.metadata_partition]:
                    states.take(record)
        assert states.positions == as_of(all_records[:until])
    assert known(states) == known(expected)


def test_a_kill_before_old_files_are_removed_brings_nothing_back(tmp_path: Path) -> None:
    begun = segment(1, 0, 9)
    folder, states = SnapshotFolder(tmp_path, "topic"), SegmentStates(US, PARTITIONS)
    number = states.metadata_partition(PARTITION)
    states.take(TopicRecord(number, 0, begun, US))
    store_until_killed(folder, states, 100)
    for offset, state in ((1, RemoteLogSegmentState(2)), (2, RemoteLogSegmentState(3))):
        states.take(TopicRecord(number, offset, update(begun, state), US))
    with pytest.raises(KilledError):
        store_until_killed(folder, states, 2)
    assert list(tmp_path.rglob(f"*{SUFFIX}"))
    loaded = folder.load()
    assert loaded is not None
    assert not loaded.snapshots
    assert loaded.offsets[number] == 3


def as_of(read: list[TopicRecord]) -> dict[int, int]:
    return dict.fromkeys(range(PARTITIONS), 0) | {record.metadata_partition: record.offset + 1 for record in read}


def test_a_disk_that_fails_costs_nothing_but_a_longer_restart(tmp_path: Path) -> None:
    states = SegmentStates(US, PARTITIONS)
    number = states.metadata_partition(PARTITION)
    states.take(TopicRecord(number, 0, segment(1, 0, 9), US))
    kept = states.take_snapshots()
    assert kept is not None
    assert states.take_snapshots() is None
    (tmp_path / "root").write_bytes(b"in the way")
    with pytest.raises(OSError, match="root"):
        SnapshotFolder(tmp_path / "root", "topic").store(kept)
    states.put_back(kept)
    again = states.take_snapshots()
    assert again == kept


def test_what_is_read_anew_is_known_no_more_until_then() -> None:
    states = SegmentStates(US, PARTITIONS)
    other = next(
        place
        for place in (PARTITION._replace(partition=number) for number in range(50))
        if states.metadata_partition(place) != states.metadata_partition(PARTITION)
    )
    for place in (PARTITION, other):
        states.take(TopicRecord(states.metadata_partition(place), 0, segment(1, 0, 9, partition=place), US))
    assert states.take_snapshots() is not None
    states.forget(states.metadata_partition(PARTITION), 5)
    assert not states.log(PARTITION)
    assert states.log(other)
    kept = states.take_snapshots()
    assert kept is not None
    assert [snapshot.partition for snapshot in kept.changed] == [other]
    assert kept.offsets[states.metadata_partition(PARTITION)] == 5


def test_names_of_files_fit_file_systems_whatever_the_topics_name(tmp_path: Path) -> None:
    partition = TopicIdPartition(uuid.UUID(int=2**128 - 1), "t" * 249, 2**31 - 1)
    states = SegmentStates(US, PARTITIONS)
    begun = segment(1, 0, 9, partition=partition)
    states.take(TopicRecord(states.metadata_partition(partition), 0, begun, US))
    kept = states.take_snapshots()
    assert kept is not None
    folder = SnapshotFolder(tmp_path, "topic")
    folder.store(kept)
    loaded = folder.load()
    assert loaded is not None
    assert [replace(snapshot) for snapshot in loaded.snapshots] == [
        PartitionSnapshot(partition=partition, next_offset=1, segments=[begun])
    ]
    assert not list(tmp_path.rglob(f"*{snapshot_folder._TEMPORARY}"))
