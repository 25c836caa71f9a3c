"""Layouts to lines and back, and what is noticed of lines that are damaged or not all there."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.layout import codec as layout_codec
from diskless_core.layout.codec import LayoutEncoder, LayoutFormatError, decode_layouts
from diskless_core.layout.partition import PartitionLayout
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from diskless_core.wal.runs import Run

OFFSETS = st.integers(0, 2**63 - 1)
PARTITIONS = st.builds(TopicIdPartition, st.uuids(), st.text("abc.-_", min_size=1), st.integers(0, 2**31 - 1))
RANGES = st.builds(
    Run,
    base_offset=OFFSETS,
    last_offset=OFFSETS,
    object_key=st.sampled_from(["wal/a", "wal/b", "wal/ü"]),
    byte_offset=OFFSETS,
    byte_size=OFFSETS,
    append_time=OFFSETS,
    max_timestamp=st.integers(-1, 2**63 - 1),
    timestamp_type=st.integers(0, 1),
    bytes_before=st.just(0),
)


@st.composite
def layouts(draw):
    partition = draw(PARTITIONS)
    segments = draw(
        st.lists(
            st.builds(
                RemoteLogSegmentMetadata,
                segment_id=st.builds(RemoteLogSegmentId, st.just(partition), st.uuids().filter(lambda one: one.int)),
                start_offset=OFFSETS,
                end_offset=OFFSETS,
                max_timestamp_ms=OFFSETS,
                broker_id=st.integers(0, 2**31 - 1),
                event_timestamp_ms=OFFSETS,
                segment_size_bytes=st.integers(0, 2**31 - 1),
                segment_leader_epochs=st.dictionaries(st.integers(0, 9), OFFSETS, min_size=1, max_size=3),
                state=st.just(RemoteLogSegmentState.COPY_SEGMENT_FINISHED),
                custom_metadata=st.none() | st.binary(min_size=1, max_size=10),
                txn_index_empty=st.booleans(),
            ),
            max_size=3,
        )
    )
    ranges = draw(st.lists(RANGES, max_size=5))
    start = min((found.base_offset for found in ranges), default=0)
    ranges = [found._replace(last_offset=max(found.base_offset, start)) for found in ranges]
    ranges.sort()
    return PartitionLayout(
        partition=partition,
        start_offset=draw(OFFSETS),
        end_offset=draw(OFFSETS),
        segments=tuple(segments),
        ranges=tuple(ranges),
    )


SOME = PartitionLayout(
    partition=TopicIdPartition(uuid.UUID(int=7), "t", 3),
    start_offset=5,
    end_offset=30,
    segments=(),
    ranges=(Run(0, 9, "wal/a", 16, 100, 7, 8, 0), Run(10, 29, "wal/a", 200, 300, 9, 9, 1)),
)


def encode_layouts(layouts: Iterable[PartitionLayout]) -> Iterator[bytes]:
    """All lines of layouts that are known whole."""
    encoder = LayoutEncoder()
    yield encoder.begin()
    for layout in layouts:
        yield encoder.partition(layout.partition)
        for start in range(0, len(layout.ranges), layout_codec.LINE_ITEMS):
            yield encoder.ranges(layout.ranges[start : start + layout_codec.LINE_ITEMS])
        yield from encoder.layout(
            layout.segments,
            start_offset=layout.start_offset,
            end_offset=layout.end_offset,
            local_start_offset=layout.ranges[0].base_offset if layout.ranges else layout.end_offset,
        )
    yield encoder.end()


@settings(deadline=None)
@given(some=st.lists(layouts(), max_size=3), line_items=st.integers(1, 3), keep_ends=st.booleans())
def test_layouts_come_back_as_they_were(some, line_items, keep_ends):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout_codec, "LINE_ITEMS", line_items)
        data = b"".join(encode_layouts(some))
    assert list(decode_layouts(data.splitlines(keepends=keep_ends))) == some


@settings(deadline=None)
@given(some=st.lists(layouts(), max_size=2), data=st.data())
def test_a_stream_that_was_cut_off_is_an_error(some, data):
    whole = b"".join(encode_layouts(some))
    cut = data.draw(st.integers(0, len(whole) - 2))
    with pytest.raises(LayoutFormatError):
        list(decode_layouts(whole[:cut].splitlines()))


@settings(deadline=None)
@given(some=st.lists(layouts(), max_size=2), data=st.data())
def test_no_line_can_be_left_out_or_repeated_but_ranges_and_segments(some, data):
    lines = list(encode_layouts(some))
    movable = (b'{"object_keys"', b'{"segments"')
    index = data.draw(st.sampled_from([at for at, line in enumerate(lines) if not line.startswith(movable)]))
    for changed in (lines[:index] + lines[index + 1 :], lines[: index + 1] + lines[index:]):
        with pytest.raises(LayoutFormatError):
            list(decode_layouts(changed))


def test_an_object_is_named_once_for_many_ranges_and_kept_once_for_many_partitions():
    lines = list(encode_layouts([SOME, SOME]))
    assert sum(line.count(b"wal/a") for line in lines) == 2
    first, second = decode_layouts(lines)
    assert first.ranges[0].object_key is second.ranges[1].object_key


def test_ranges_that_turn_out_to_be_in_segments_do_not_count():
    encoder = LayoutEncoder()
    lines = [encoder.begin(), encoder.partition(SOME.partition), encoder.ranges(SOME.ranges)]
    lines += [*encoder.layout((), start_offset=5, end_offset=30, local_start_offset=10), encoder.end()]
    (found,) = decode_layouts(lines)
    assert found.ranges == SOME.ranges[1:]


def test_a_partition_that_is_gone_is_none():
    encoder = LayoutEncoder()
    lines = [encoder.begin(), encoder.partition(SOME.partition), encoder.ranges(SOME.ranges), encoder.gone()]
    assert list(decode_layouts([*lines, encoder.end()])) == []


def test_the_reason_why_there_are_not_all_is_told():
    encoder = LayoutEncoder()
    lines = [encoder.begin(), encoder.partition(SOME.partition), encoder.broken_off("the store failed")]
    with pytest.raises(LayoutFormatError, match="the store failed"):
        list(decode_layouts(lines))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"no JSON",
        b"\xff",
        b"[]",
        b"7",
        b'{"partition":{"topic":"t","topic_id":"7","partition":1}}',
        b'{"partition":{"topic":"t","partition":1}}',
        b'{"partitions":2}',
        b'{"layout":{"start_offset":"5","end_offset":30,"local_start_offset":0}}',
        b'{"object_keys":["a"],"ranges":[[1,0,9,16,100,7,8,0]]}',
        b'{"object_keys":["a"],"ranges":[[0,0,9,16,100,7,8]]}',
        b'{"object_keys":["a"],"ranges":[0]}',
        b'{"segments":["?"]}',
        b'{"segments":["AAAA"]}',
    ],
)
def test_a_damaged_line_is_an_error_that_names_it(line):
    lines = list(encode_layouts([SOME]))
    place = {b"{": 2}.get(line[:1], 3)
    place = 1 if line.startswith(b'{"partition"') else 4 if line.startswith(b'{"partitions"') else place
    lines[place] = line
    with pytest.raises(LayoutFormatError, match=f"line {place + 1} of the layouts is damaged"):
        list(decode_layouts(lines))


def test_another_version_is_refused():
    with pytest.raises(LayoutFormatError, match="of version 2, and 1 can be read"):
        list(decode_layouts([json.dumps({"version": 2})]))
