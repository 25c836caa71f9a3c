"""An object being gathered: what is in it when it is sealed, and that frames are let go once."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from diskless_core.diskless.commands import PartitionKey
from diskless_core.produce.accumulator import Accumulator, Submission
from diskless_core.produce.validation import ValidBatch
from diskless_core.wal import format as wal_format
from tests.support.guarantees import guarantee
from tests.support.shards import OTHER_TOPIC, TOPIC


def allocate(size: int) -> memoryview:
    return memoryview(bytearray(size))


def valid(content: bytes, records: int) -> ValidBatch:
    return ValidBatch(memoryview(content), records, 5, 0, 7, 1, 10, 10 + records - 1)


class Frame:
    """Counts how often it is let go."""

    def __init__(self) -> None:
        self.releases = 0

    def release(self) -> None:
        self.releases += 1


def submission(frame: Frame, batches: Sequence[tuple[PartitionKey, ValidBatch]]) -> Submission:
    return Submission(batches=batches, release=frame.release, settle=lambda _: None)


keys = st.builds(PartitionKey, st.sampled_from([TOPIC, OTHER_TOPIC]), st.integers(0, 3))
requests = st.lists(
    st.lists(st.tuples(keys, st.binary(min_size=1, max_size=20), st.integers(1, 9)), min_size=1, max_size=4), max_size=6
)


@guarantee("Offsets", "Batches of a partition that come together in one object keep their order.")
@given(requests)
def test_sealing_sorts_by_partition_keeps_the_order_of_arrival_and_loses_no_byte(
    wanted: list[list[tuple[PartitionKey, bytes, int]]],
) -> None:
    active = Accumulator()
    assert active.is_empty
    frames = [Frame() for _ in wanted]
    sent = []
    for frame, batches in zip(frames, wanted, strict=True):
        one = submission(frame, [(key, valid(content, records)) for key, content, records in batches])
        active.add(one, 0)
        sent += [(key, content, records, one, position) for position, (key, content, records) in enumerate(batches)]
    assert active.size_bytes == sum(len(content) for _, content, *_ in sent)
    sealed = active.seal(allocate)
    expected = sorted(sent, key=lambda entry: entry[0])
    found = [
        (
            PartitionKey(batch.topic_id, batch.partition),
            bytes(sealed.data[batch.byte_offset : batch.byte_offset + batch.size]),
            batch.record_count,
            place.submission,
            place.position,
        )
        for batch, place in zip(sealed.batches, sealed.places, strict=True)
    ]
    assert found == expected
    assert [frame.releases for frame in frames] == [1] * len(frames)
    partitions = sorted({key for key, *_ in sent})
    position = wal_format.HEADER_BYTES
    for batch in sealed.batches:
        assert batch.byte_offset == position
        position += batch.size
    index = wal_format.read_index(sealed.data)
    assert [(entry.topic_id, entry.partition) for entry in index] == partitions
    for entry in index:
        mine = [one for one in expected if one[0] == (entry.topic_id, entry.partition)]
        content = sealed.data[entry.byte_offset : entry.byte_offset + entry.size]
        assert bytes(content) == b"".join(one[1] for one in mine)
        assert (entry.batch_count, entry.record_count) == (len(mine), sum(one[2] for one in mine))


def test_what_is_sealed_does_not_hang_on_the_frames_any_more() -> None:
    frame = bytearray(b"content")
    active = Accumulator()
    active.add(submission(Frame(), [(PartitionKey(TOPIC, 0), valid(frame, 1))]), 0)
    sealed = active.seal(allocate)
    frame[:] = b"another"
    assert b"content" in bytes(sealed.data)


def test_the_fields_of_a_batch_reach_the_commit_unchanged() -> None:
    active = Accumulator()
    active.add(submission(Frame(), [(PartitionKey(TOPIC, 3), valid(b"abc", 4))]), 0)
    [batch] = active.seal(allocate).batches
    assert batch._asdict() == {
        "topic_id": TOPIC,
        "partition": 3,
        "byte_offset": wal_format.HEADER_BYTES,
        "size": 3,
        "record_count": 4,
        "max_timestamp": 5,
        "timestamp_type": 0,
        "producer_id": 7,
        "producer_epoch": 1,
        "base_sequence": 10,
        "last_sequence": 13,
    }
