"""The guard in front of the decoder: what it lets through, what it refuses, and how fast."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from diskless_core.protocol import messages
from diskless_core.protocol.framing import FrameError, check_structure, decode_request
from diskless_core.protocol.structure import MAX_ELEMENTS
from diskless_core.protocol.varint import encode_uvarint

NO_TAGS = b"\0"
NULL_ARRAY = b"\0"


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """So much work at most; other processes may keep the machine busy."""
    started = time.thread_time()
    yield
    assert time.thread_time() - started < seconds


def refused(request_class: type[messages.ApiMessage], version: int, frame: bytes, match: str = "") -> None:
    with within(1), pytest.raises(FrameError, match=match):
        decode_request(request_class, version, memoryview(frame), 0)


def compact(text: bytes) -> bytes:
    return encode_uvarint(len(text) + 1) + text


def tagged(*fields: tuple[int, bytes]) -> bytes:
    section = encode_uvarint(len(fields))
    for tag, content in fields:
        section += encode_uvarint(tag) + encode_uvarint(len(content)) + content
    return section


def metadata_v9(*topics: bytes, tags: bytes = NO_TAGS) -> bytes:
    flags = b"\1\0\0"
    return encode_uvarint(len(topics) + 1) + b"".join(topics) + flags + tags


def test_a_varint_of_400_kilobytes_is_refused_at_once() -> None:
    refused(messages.MetadataRequest, 9, b"\x80" * 400_000 + b"\1", "varint")


def test_a_varint_of_more_than_31_bits_is_refused() -> None:
    refused(messages.MetadataRequest, 9, b"\xff\xff\xff\xff\x0f" + b"\0" * 100, "varint")


def test_a_varint_that_is_longer_than_it_needs_to_be_is_understood() -> None:
    frame = b"\x81\x80\x00" + metadata_v9()[1:]
    assert decode_request(messages.MetadataRequest, 9, memoryview(frame), 0).topics == []


@pytest.mark.parametrize("count", [2**31 - 1, 1_000_000, 3])
def test_an_array_that_counts_more_elements_than_the_frame_can_hold_is_refused(count: int) -> None:
    refused(messages.MetadataRequest, 0, struct.pack(">i", count) + b"\0\0\0\0", "Topics is malformed")
    refused(messages.MetadataRequest, 9, encode_uvarint(count) + b"\1", "Topics is malformed")


def test_an_array_of_integers_that_goes_beyond_the_end_is_refused() -> None:
    request = messages.DisklessHandOverFilesRequest
    frame = encode_uvarint(2) + compact(b"key") + encode_uvarint(11) + b"\0" * 30
    refused(request, 0, frame, "OwnerIds is malformed")


def test_a_negative_count_other_than_null_is_refused() -> None:
    refused(messages.MetadataRequest, 1, struct.pack(">i", -2), "Topics is malformed")
    assert decode_request(messages.MetadataRequest, 1, memoryview(struct.pack(">i", -1)), 0).topics is None


def test_null_is_refused_where_the_version_does_not_allow_it() -> None:
    refused(messages.MetadataRequest, 0, struct.pack(">i", -1), "Topics is malformed")
    refused(messages.MetadataRequest, 9, metadata_v9(b"\0" + NO_TAGS), "Name is malformed")
    refused(messages.HeartbeatRequest, 0, struct.pack(">h", -1) + b"\0" * 20, "GroupId is malformed")


def test_a_truncated_string_is_refused() -> None:
    whole = metadata_v9(compact(b"topic") + NO_TAGS)
    decode_request(messages.MetadataRequest, 9, memoryview(whole), 0)
    refused(messages.MetadataRequest, 9, whole[:4], "truncated")


def test_bytes_behind_a_request_are_ignored_as_librdkafka_needs_it() -> None:
    for_all_topics = memoryview(b"\0\0\0\0\x01\0\0")
    assert decode_request(messages.MetadataRequest, 13, for_all_topics, 0).topics is None


def test_a_string_that_is_not_utf8_is_refused() -> None:
    refused(messages.MetadataRequest, 9, metadata_v9(compact(b"\xff\xfe") + NO_TAGS), "UTF-8")


def test_a_version_that_the_schema_does_not_have_is_refused() -> None:
    refused(messages.ProduceRequest, 2, b"\0" * 50, "no version 2")
    refused(messages.MetadataRequest, 99, b"", "no version 99")


def test_unknown_tags_are_skipped_wherever_they_are() -> None:
    frame = metadata_v9(compact(b"t") + tagged((7, b"abc"), (2, b"")), tags=tagged((9, b"x" * 300)))
    request = decode_request(messages.MetadataRequest, 9, memoryview(frame), 0)
    assert request.topics[0].name == "t"
    assert request.unknown_tags == {"_9": b"x" * 300}


def test_a_tag_that_goes_beyond_the_end_is_refused() -> None:
    refused(messages.MetadataRequest, 9, metadata_v9(tags=b"\1\5\x20abc"), "beyond the end")
    refused(messages.MetadataRequest, 9, metadata_v9(tags=b"\x7f\0\0"), "too many tagged fields")


def fetch_v17(tags: bytes) -> bytes:
    """A Fetch request without topics: wait, bytes, isolation, session, topics, forgotten topics, rack, tags."""
    return struct.pack(">iiibii", 500, 1, 2**20, 0, 0, -1) + b"\1\1" + compact(b"") + tags


def test_a_known_tag_has_to_fill_its_size_exactly() -> None:
    good = decode_request(messages.FetchRequest, 17, memoryview(fetch_v17(tagged((0, compact(b"cluster"))))), 0)
    assert good.cluster_id == "cluster"
    for wrong in (compact(b"cluster") + b"\0", b"\x20cluster", compact(b"cluster")[:-1]):
        refused(messages.FetchRequest, 17, fetch_v17(tagged((0, wrong))), "tagged field 0")


def test_tags_within_a_known_tag_are_refused_since_the_decoder_would_misread_them() -> None:
    state = struct.pack(">iq", 1, 2)
    assert decode_request(messages.FetchRequest, 17, memoryview(fetch_v17(tagged((1, state + NO_TAGS)))), 0)
    refused(messages.FetchRequest, 17, fetch_v17(tagged((1, state + tagged((0, b"x"))))), "within a tagged field")


def test_tagged_sections_that_would_make_the_decoder_copy_gigabytes_are_refused_at_once() -> None:
    topic = compact(b"t") + tagged((0, b"x" * 20))
    refused(messages.MetadataRequest, 9, metadata_v9(*[topic] * 40_000), "too many tagged fields")


def test_a_few_hundred_unknown_tags_in_a_frame_of_a_megabyte_are_no_problem() -> None:
    topics = [compact(b"t" * 200) + (tagged((3, b"new")) if number % 100 == 0 else NO_TAGS) for number in range(5000)]
    request = decode_request(messages.MetadataRequest, 9, memoryview(metadata_v9(*topics)), 0)
    assert len(request.topics) == 5000


def test_more_elements_than_any_client_sends_are_refused_before_they_are_decoded() -> None:
    refused(messages.MetadataRequest, 0, struct.pack(">i", MAX_ELEMENTS + 1) + b"\0\0" * (MAX_ELEMENTS + 1), "Topics")


def test_millions_of_empty_tags_are_refused_before_they_are_read() -> None:
    count = MAX_ELEMENTS + 1
    refused(messages.MetadataRequest, 9, metadata_v9(tags=encode_uvarint(count) + b"\1\0" * count), "too many")


def test_the_guard_takes_no_longer_for_larger_records() -> None:
    def cost(size: int) -> float:
        body = struct.pack(">hhii", -1, -1, 1000, 1) + struct.pack(">h", 1) + b"t" + struct.pack(">iii", 1, 0, size)
        frame = memoryview(body + bytes(size))
        timings = []
        for _ in range(20):
            started = time.thread_time()
            check_structure(messages.ProduceRequest, 3, frame, 0)
            timings.append(time.thread_time() - started)
        return min(timings)

    assert cost(32 * 1024 * 1024) < 20 * cost(100)


def test_a_nullable_struct_is_absent_present_or_malformed() -> None:
    request = messages.DescribeTopicPartitionsRequest
    head = b"\1" + struct.pack(">i", 100)
    assert decode_request(request, 0, memoryview(head + b"\xff" + NO_TAGS), 0).cursor is None
    cursor = compact(b"topic") + struct.pack(">i", 3) + NO_TAGS
    assert decode_request(request, 0, memoryview(head + b"\1" + cursor + NO_TAGS), 0).cursor.partition_index == 3
    refused(request, 0, head + b"\2" + cursor + NO_TAGS, "Cursor is malformed")
