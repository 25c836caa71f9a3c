"""The hand-packed DisklessFileCommittedRecord against the generic codec."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.protocol import messages
from diskless_core.protocol.file_committed import (
    CommittedBatch,
    DuplicateBatch,
    FileCommitted,
    RefusedBatch,
    is_file_committed,
    pack,
    unpack,
)
from diskless_core.protocol.record_frames import RecordFormatError, decode_record, encode_record

int8, int16, int32, int64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64))


def tuples(strategy: st.SearchStrategy[Any], max_size: int = 3) -> st.SearchStrategy[Any]:
    return st.lists(strategy, max_size=max_size).map(tuple)


batches = st.builds(CommittedBatch, int8, int32, int32, int64, int64, int64, int64, int8, int64, int16, int32, int32)
partitions = st.tuples(int32, tuples(batches))
topics = st.tuples(st.binary(min_size=16, max_size=16), tuples(partitions))
contents = st.builds(
    FileCommitted,
    object_key=st.text(max_size=200),
    object_format=int8,
    file_size=int64,
    uploader_broker_id=int32,
    owner_ids=tuples(int32),
    topics=tuples(topics),
    refused=tuples(st.builds(RefusedBatch, int32, int16)),
    duplicates=tuples(st.builds(DuplicateBatch, int32, int64, int64)),
    batch_order=tuples(int32, max_size=40),
    content_digest=st.binary(max_size=200),
    committed_at=int64,
)


def generic(content: FileCommitted) -> messages.DisklessFileCommittedRecord:
    record = messages.DisklessFileCommittedRecord
    topic = record.DisklessCommittedTopic
    partition = topic.DisklessCommittedPartition
    return record(
        object_key=content.object_key,
        object_format=content.object_format,
        file_size=content.file_size,
        uploader_broker_id=content.uploader_broker_id,
        owner_ids=list(content.owner_ids),
        topics=[
            topic(
                topic_id=uuid.UUID(bytes=topic_id),
                partitions=[
                    partition(
                        partition_index=index,
                        batches=[partition.DisklessCommittedBatch(*batch) for batch in batches],
                    )
                    for index, batches in partitions
                ],
            )
            for topic_id, partitions in content.topics
        ],
        refused=[record.DisklessRefusedBatch(*refused) for refused in content.refused],
        duplicates=[record.DisklessDuplicateBatch(*duplicate) for duplicate in content.duplicates],
        batch_order=list(content.batch_order),
        content_digest=content.content_digest,
        committed_at=content.committed_at,
    )


@settings(deadline=None)
@given(content=contents)
def test_packed_by_hand_it_has_the_bytes_of_the_generic_codec(content: FileCommitted) -> None:
    packed = pack(content)
    assert packed == encode_record(generic(content))
    assert is_file_committed(packed)
    assert unpack(packed) == content
    assert unpack(memoryview(packed)) == content


def test_many_batches_are_counted_in_varints_of_several_bytes() -> None:
    batch = CommittedBatch(2, 0, 100, 5, 6, 7, 8, 0, -1, -1, -1, -1)
    content = FileCommitted(
        object_key="k",
        object_format=1,
        file_size=1,
        uploader_broker_id=1,
        owner_ids=tuple(range(200)),
        topics=((bytes(16), tuple((index, (batch,) * 20_000) for index in range(2))),),
    )
    packed = pack(content)
    assert packed == encode_record(generic(content))
    assert unpack(packed) == content


def test_a_tag_of_a_later_version_is_skipped() -> None:
    content = FileCommitted(
        object_key="k", object_format=1, file_size=1, uploader_broker_id=1, owner_ids=(), topics=(), committed_at=9
    )
    packed = pack(content)
    one_tag = b"\x01\x04\x08" + (9).to_bytes(8, "big")
    assert packed.endswith(one_tag)
    later = packed.removesuffix(one_tag) + b"\x02" + one_tag[1:] + b"\x63\x03abc"
    assert unpack(later) == content
    assert decode_record(later).committed_at == 9


@settings(max_examples=300, deadline=2000)
@given(content=contents, seed=st.integers(0, 2**32))
def test_a_damaged_record_is_refused_or_read_as_the_generic_codec_reads_it(content: FileCommitted, seed: int) -> None:
    rnd = random.Random(seed)
    damaged = bytearray(pack(content))
    for _ in range(rnd.randrange(1, 3)):
        damaged[rnd.randrange(3, len(damaged))] = rnd.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
    if rnd.random() < 0.3:
        del damaged[rnd.randrange(3, len(damaged) + 1) :]
    try:
        unpacked = unpack(bytes(damaged))
    except RecordFormatError:
        return
    read = decode_record(bytes(damaged))
    assert (read.object_key, read.file_size) == (unpacked.object_key, unpacked.file_size)
    assert encode_record(read) == pack(unpacked)


@pytest.mark.parametrize("data", [b"", b"\x01\x66", b"\x01\x66\x00", b"\x01\x66\x01", b"\x01\x65\x00" + b"\0" * 40])
def test_another_record_is_refused(data: bytes) -> None:
    with pytest.raises(RecordFormatError):
        unpack(data)
