"""The hand-packed DisklessCommitFile, request and response, against the generic codec."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.protocol import messages
from diskless_core.protocol.commit_file import (
    BatchResult,
    CommitBatch,
    CommitFileRequest,
    CommitFileResponse,
    OtherFile,
    ShardPart,
    pack_request,
    pack_response,
    unpack_request,
    unpack_response,
)
from diskless_core.protocol.errors import ErrorCode, code_of
from diskless_core.protocol.record_batch import MAGIC
from diskless_core.protocol.structure import FrameError, check_structure

int8, int16, int32, int64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64))
counts = st.integers(1, 2**31 - 1)
ids = st.binary(min_size=16, max_size=16)

batches = st.builds(CommitBatch, ids, int32, int32, int32, counts, int64, int8, int64, int16, int32, int32)
requests = st.builds(
    CommitFileRequest,
    object_key=st.text(max_size=200),
    object_format=int8,
    file_size=int64,
    owner_ids=st.lists(int32, max_size=200).map(tuple),
    batches=st.lists(batches, max_size=4),
    timeout_ms=int32,
    shards=st.lists(st.builds(ShardPart, int32, int32), max_size=3).map(tuple),
    uploader_id=int32,
    others=st.lists(
        st.builds(
            OtherFile,
            st.text(max_size=20),
            st.integers(-128, 127),
            int64,
            st.lists(int32, max_size=3).map(tuple),
            st.lists(batches, max_size=3),
        ),
        max_size=3,
    ).map(tuple),
)
results = st.builds(
    BatchResult,
    st.sampled_from(ErrorCode),
    int64,
    int64,
    st.booleans(),
    int64,
    st.none() | st.none() | st.text(max_size=200),
)
responses = st.builds(CommitFileResponse, results=st.lists(results, max_size=5), throttle_time_ms=int32)


def generic_request(content: CommitFileRequest, base_offset: int = 0, request_id: int = 0) -> Any:
    message = messages.DisklessCommitFileRequest
    return message(
        object_key=content.object_key,
        object_format=content.object_format,
        file_size=content.file_size,
        owner_ids=list(content.owner_ids),
        batches=generic_batches(message.DisklessCommitBatch, content.batches, base_offset, request_id),
        other_files=[
            message.DisklessCommitOtherFile(
                object_key=other.object_key,
                object_format=other.object_format,
                file_size=other.file_size,
                owner_ids=list(other.owner_ids),
                batches=generic_batches(
                    message.DisklessCommitOtherFile.DisklessCommitOtherBatch, other.batches, base_offset, request_id
                ),
            )
            for other in content.others
        ],
        timeout_ms=content.timeout_ms,
        shards=[message.DisklessCommitShard(*part) for part in content.shards],
        uploader_broker_id=content.uploader_id,
    )


def generic_batches(batch: Any, batches: Sequence[CommitBatch], base_offset: int, request_id: int) -> list[Any]:
    return [
        batch(
            magic=MAGIC,
            request_id=request_id,
            topic_id=uuid.UUID(bytes=one.topic_id),
            partition_index=one.partition,
            byte_offset=one.byte_offset,
            size=one.size,
            base_offset=base_offset,
            last_offset=base_offset + one.record_count - 1,
            batch_max_timestamp=one.max_timestamp,
            timestamp_type=one.timestamp_type,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            base_sequence=one.base_sequence,
            last_sequence=one.last_sequence,
        )
        for one in batches
    ]


def generic_response(content: CommitFileResponse) -> Any:
    message = messages.DisklessCommitFileResponse
    return message(
        throttle_time_ms=content.throttle_time_ms,
        batches=[
            message.DisklessCommitBatchResult(
                error_code=result.error,
                error_message=result.message,
                assigned_base_offset=result.base_offset,
                log_append_time=result.append_time,
                log_start_offset=result.log_start_offset,
                is_duplicate=result.is_duplicate,
            )
            for result in content.results
        ],
    )


def encoded(message: Any) -> bytes:
    return bytes(message.encode(version=0))


@settings(deadline=None)
@given(content=requests)
def test_a_request_packed_by_hand_has_the_bytes_of_the_generic_codec(content: CommitFileRequest) -> None:
    packed = pack_request(content)
    assert packed == encoded(generic_request(content))
    assert unpack_request(packed) == content
    assert unpack_request(memoryview(packed)) == content


@settings(deadline=None)
@given(content=requests, base_offset=st.integers(0, 2**60), request_id=int32)
def test_a_request_that_counts_offsets_from_elsewhere_says_the_same(
    content: CommitFileRequest, base_offset: int, request_id: int
) -> None:
    assert unpack_request(encoded(generic_request(content, base_offset, request_id))) == content


@settings(deadline=None)
@given(content=responses)
def test_a_response_packed_by_hand_has_the_bytes_of_the_generic_codec(content: CommitFileResponse) -> None:
    packed = pack_response(content)
    assert packed == encoded(generic_response(content))
    assert unpack_response(packed) == content
    assert unpack_response(memoryview(packed)) == content


def test_many_batches_are_counted_in_varints_of_several_bytes() -> None:
    batch = CommitBatch(bytes(16), 1, 0, 100, 5, 6, 0, -1, -1, -1, -1)
    request = CommitFileRequest(object_key="k", object_format=1, file_size=1, owner_ids=(), batches=[batch] * 20_000)
    assert unpack_request(encoded(generic_request(request))) == request
    assert pack_request(request) == encoded(generic_request(request))
    result = BatchResult(ErrorCode.NONE, 5, 6, False, 0)
    response = CommitFileResponse(results=[result] * 20_000)
    assert unpack_response(encoded(generic_response(response))) == response
    assert pack_response(response) == encoded(generic_response(response))


def test_a_tag_of_a_later_version_is_skipped() -> None:
    content = CommitFileRequest(object_key="k", object_format=1, file_size=1, owner_ids=(), batches=[], uploader_id=9)
    packed = pack_request(content)
    one_tag = b"\x01\x01\x04" + (9).to_bytes(4, "big")
    assert packed.endswith(one_tag)
    assert unpack_request(packed.removesuffix(one_tag) + b"\x02" + one_tag[1:] + b"\x63\x03abc") == content
    response = CommitFileResponse(results=[])
    assert unpack_response(pack_response(response)[:-1] + b"\x01\x63\x03abc") == response


def damaged(packed: bytes, rnd: random.Random) -> bytes:
    spoiled = bytearray(packed)
    for _ in range(rnd.randrange(1, 3)):
        spoiled[rnd.randrange(len(spoiled))] = rnd.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
    if rnd.random() < 0.3:
        del spoiled[rnd.randrange(len(spoiled)) :]
    return bytes(spoiled)


@settings(max_examples=300, deadline=2000)
@given(content=requests, rnd=st.randoms(use_true_random=False))
def test_a_damaged_request_is_refused_or_read_as_the_generic_codec_reads_it(
    content: CommitFileRequest, rnd: random.Random
) -> None:
    spoiled = damaged(pack_request(content), rnd)
    try:
        unpacked = unpack_request(spoiled)
    except FrameError:
        return
    message = messages.DisklessCommitFileRequest
    assert check_structure(message, 0, memoryview(spoiled), 0) == len(spoiled)
    read = message.decode(spoiled, version=0)
    for one in [*read.batches, *(batch for other in read.other_files for batch in other.batches)]:
        one.last_offset, one.base_offset, one.request_id = one.last_offset - one.base_offset, 0, 0
    assert read.to_dict() == message.decode(pack_request(unpacked), version=0).to_dict()


@settings(max_examples=300, deadline=2000)
@given(content=responses, rnd=st.randoms(use_true_random=False))
def test_a_damaged_response_is_refused_or_read_as_the_generic_codec_reads_it(
    content: CommitFileResponse, rnd: random.Random
) -> None:
    spoiled = damaged(pack_response(content), rnd)
    try:
        unpacked = unpack_response(spoiled)
    except FrameError:
        return
    message = messages.DisklessCommitFileResponse
    assert check_structure(message, 0, memoryview(spoiled), 0) == len(spoiled)
    read = message.decode(spoiled, version=0)
    for one in read.batches:
        one.error_code = code_of(one.error_code)
    assert read.to_dict() == message.decode(pack_response(unpacked), version=0).to_dict()


@pytest.mark.parametrize(
    ("field", "value"), [("magic", 1), ("magic", 3), ("last_offset", -1), ("last_offset", 2**31 - 1)]
)
def test_a_batch_of_another_format_or_without_a_plausible_number_of_records_is_refused(field: str, value: int) -> None:
    batch = CommitBatch(bytes(16), 1, 0, 100, 5, 6, 0, -1, -1, -1, -1)
    request = CommitFileRequest(object_key="k", object_format=1, file_size=1, owner_ids=(), batches=[batch])
    message = generic_request(request)
    setattr(message.batches[0], field, value)
    with pytest.raises(FrameError, match="malformed"):
        unpack_request(encoded(message))
