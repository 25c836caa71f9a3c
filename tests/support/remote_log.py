"""Events of remote segments for tests: some of each kind, and random lives of segments."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import NamedTuple

from hypothesis import strategies as st

from diskless_core.remote_log.metadata import (
    RemoteLogMetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    TopicIdPartition,
)
from diskless_core.testing.remote_log_metadata_tools import deletion, segment, update

_FAR = TopicIdPartition(uuid.UUID("ffffffff-ffff-4fff-8fff-ffffffffffff"), "größe", 2**31 - 1)
_PLAIN = segment(0xFEDC_BA98_7654_3210 << 64 | 5, 100, 199, custom_metadata=b"abc")

EVENTS: tuple[RemoteLogMetadataEvent, ...] = (
    _PLAIN,
    replace(
        segment(6, 2**40, 2**62, epochs={7: 2**41, 2: 2**40, 300: 2**42}, partition=_FAR),
        max_timestamp_ms=-1,
        segment_size_bytes=2**31 - 1,
        txn_index_empty=False,
        state=RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
    ),
    replace(_PLAIN, custom_metadata=b""),
    update(_PLAIN, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, custom_metadata=bytes(200)),
    update(_PLAIN, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED, broker_id=-1),
    deletion(RemotePartitionDeleteState.DELETE_PARTITION_MARKED),
    deletion(RemotePartitionDeleteState.DELETE_PARTITION_FINISHED, _FAR),
)
"""Some of each kind. `kafka_records.tsv` of the unit tests has what Apache Kafka makes of them, a line for each."""

EPOCHS = 3
OFFSETS = 40

_PATHS = (
    (RemoteLogSegmentState.COPY_SEGMENT_FINISHED,),
    (
        RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
        RemoteLogSegmentState.DELETE_SEGMENT_FINISHED,
    ),
    (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED),
    (),
)


class Life(NamedTuple):
    """A segment and all that happens to it, in order."""

    number: int
    events: tuple[RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate, ...]

    def state_after(self, steps: int) -> RemoteLogSegmentState:
        """The state that it is in when so many events have happened."""
        return self.events[steps - 1].state


def epoch_range(metadata: RemoteLogSegmentMetadata, epoch: int) -> tuple[int, int] | None:
    """First and last offset of a leader epoch in a segment; None without any."""
    starts = metadata.segment_leader_epochs
    if epoch not in starts:
        return None
    end = min((start - 1 for other, start in starts.items() if other > epoch), default=metadata.end_offset)
    return (starts[epoch], end) if starts[epoch] <= end else None


@st.composite
def segments(draw: st.DrawFn, number: int) -> RemoteLogSegmentMetadata:
    """A copy that begins, somewhere in the first `OFFSETS` offsets, of one leader epoch or several."""
    start = draw(st.integers(0, OFFSETS - 1))
    end = draw(st.integers(start, OFFSETS))
    epochs = sorted(draw(st.sets(st.integers(0, EPOCHS - 1), min_size=1)))
    later = sorted(draw(st.lists(st.integers(start, end), min_size=len(epochs) - 1, max_size=len(epochs) - 1)))
    metadata = segment(number, start, end, epochs=dict(zip(epochs, [start, *later], strict=True)))
    return replace(metadata, broker_id=number)


@st.composite
def lives(draw: st.DrawFn) -> list[Life]:
    """Some segments with all that happens to each; what two of them do can come in any order."""
    made = []
    for number in range(draw(st.integers(1, 7))):
        metadata = draw(segments(number))
        path = draw(st.sampled_from(_PATHS))
        at_ms = draw(st.integers(1, 3))
        made.append(Life(number, (metadata, *(update(metadata, state, after_ms=at_ms) for state in path))))
    return made
