"""Where records of partitions lie: in segments, then in WAL objects. What a reader needs that asks no broker. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, TopicIdPartition
from diskless_core.wal.runs import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLayout:
    """A partition at one moment.

    Attributes:
        start_offset: the log start: records before it are deleted, also where the first segment or batch has some.
        end_offset: the high watermark, one behind the last record. A segment can have some that came later.
        segments: finished copies, in order and without gaps.
        ranges: what comes behind the segments, in order; of the first one, the records behind the last segment. All
            of the partition's batches are in one of both, but for those before an offset that whoever asked has named.
    """

    partition: TopicIdPartition
    start_offset: int
    end_offset: int
    segments: Sequence[RemoteLogSegmentMetadata]
    ranges: Sequence[Run]
