"""Layouts as lines of JSON, for a stream that may be long: no line is, and its end can be told from a cut. Pure.

    {"version": 1}
    {"partition": {"topic": …, "topic_id": …, "partition": …}}
    {"object_keys": […], "ranges": [[a row of `wal.runs.run_rows`], …]}
    {"segments": [base64 of `remote_log.records.encode`, …]}
    {"layout": {"start_offset": …, "end_offset": …, "local_start_offset": …}}
    {"partitions": how many of them there were}

Ranges and segments are any number of lines. The line after them is null in the place of the layout where the partition
is gone. Else it says where WAL objects begin: ranges that end before do not count, so that whoever writes can tell
ranges before it knows what became of them. In the place of the last line, `{"error": …}` says why there is no more.
"""

from __future__ import annotations

import json
import uuid
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from diskless_core.layout.partition import PartitionLayout
from diskless_core.remote_log import records
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, TopicIdPartition
from diskless_core.remote_log.records import CorruptRecordError
from diskless_core.wal.runs import Run, run_rows, runs_of

T = TypeVar("T")

CONTENT_TYPE = "application/x-ndjson"

VERSION = 1

LINE_ITEMS = 1_000
"""Ranges or segments in one line at most."""


class LayoutFormatError(Exception):
    """These lines are no layouts, or not all of them; the message says why."""


class LayoutEncoder:
    """Makes the lines, each with its end, one after the other: partitions can be too large to be known whole."""

    def __init__(self) -> None:
        self._partitions = 0

    def begin(self) -> bytes:
        """The first line."""
        return _line({"version": VERSION})

    def partition(self, partition: TopicIdPartition) -> bytes:
        """Begin a partition. `layout` or `gone` ends it."""
        self._partitions += 1
        topic_id, topic, index = partition
        return _line({"partition": {"topic": topic, "topic_id": str(topic_id), "partition": index}})

    def ranges(self, ranges: Sequence[Run]) -> bytes:
        """Some ranges, at most `LINE_ITEMS`, that come behind those before."""
        object_keys, rows = run_rows(ranges)
        return _line({"object_keys": object_keys, "ranges": rows})

    def layout(
        self,
        segments: Sequence[RemoteLogSegmentMetadata],
        *,
        start_offset: int,
        end_offset: int,
        local_start_offset: int,
    ) -> Iterator[bytes]:
        """The segments of the partition, in order, and its end. Ranges below `local_start_offset` do not count."""
        for some in _chunks(segments):
            yield _line({"segments": [b64encode(records.encode(segment)).decode() for segment in some]})
        offsets = {"start_offset": start_offset, "end_offset": end_offset, "local_start_offset": local_start_offset}
        yield _line({"layout": offsets})

    def gone(self) -> bytes:
        """The partition was deleted meanwhile: what was said of it does not count."""
        self._partitions -= 1
        return _line({"layout": None})

    def end(self) -> bytes:
        """The last line."""
        return _line({"partitions": self._partitions})

    def broken_off(self, reason: str) -> bytes:
        """The last line, in the midst of it all: there will be no more."""
        return _line({"error": reason})


def decode_layouts(lines: Iterable[bytes | str]) -> Iterator[PartitionLayout]:
    """The layouts of these lines, with or without their ends, each as soon as its last line was read.

    Raises:
        LayoutFormatError: the lines are of another format or version, or there are not all of them. What came before is
            right, but not everything.
    """
    decoder = _Decoder()
    for number, line in enumerate(lines, start=1):
        try:
            layout = decoder.take(json.loads(line))
        except (ValueError, CorruptRecordError) as error:
            raise LayoutFormatError(f"line {number} of the layouts is damaged: {error}") from error
        if layout is not None:
            yield layout
    if not decoder.is_complete:
        raise LayoutFormatError("the layouts were cut off")


class _Decoder:
    """Where in the lines it is, and what it knows of the partition that it is in."""

    def __init__(self) -> None:
        self.is_complete = False
        self._has_begun = False
        self._count = 0
        self._partition: TopicIdPartition | None = None
        self._ranges: list[Run] = []
        self._segments: list[RemoteLogSegmentMetadata] = []
        self._keys: dict[str, str] = {}

    def take(self, line: Any) -> PartitionLayout | None:
        """Take the next line; the layout that it ends, if it does.

        Raises:
            LayoutFormatError: there is a reason that no more lines come, or another version's.
            ValueError, CorruptRecordError: it is no such line, or none that can come here.
        """
        if self.is_complete:
            raise ValueError("there is something behind the end")
        if not self._has_begun:
            self._begin(line)
            return None
        match line:
            case {"error": str(reason)}:
                raise LayoutFormatError(f"the layouts were broken off: {reason}")
            case {"partition": {"topic": str(topic), "topic_id": str(topic_id), "partition": int(index)}} if (
                self._partition is None
            ):
                self._partition = TopicIdPartition(uuid.UUID(topic_id), topic, index)
            case {"object_keys": [*keys], "ranges": [*rows]} if self._partition is not None:
                # Partitions share objects: one string for each of them is enough.
                shared = [self._keys.setdefault(str(key), str(key)) for key in keys]
                self._ranges += runs_of(shared, rows)
            case {"segments": [*encoded]} if self._partition is not None:
                self._segments += map(_segment, encoded)
            case {"layout": None} if self._partition is not None:
                self._forget_partition()
            case {
                "layout": {
                    "start_offset": int(start_offset),
                    "end_offset": int(end_offset),
                    "local_start_offset": int(local_start_offset),
                }
            } if self._partition is not None:
                layout = PartitionLayout(
                    partition=self._partition,
                    start_offset=start_offset,
                    end_offset=end_offset,
                    segments=tuple(self._segments),
                    ranges=tuple(found for found in self._ranges if found.last_offset >= local_start_offset),
                )
                self._count += 1
                self._forget_partition()
                return layout
            case {"partitions": self._count} if self._partition is None:
                self.is_complete = True
            case _:
                raise ValueError("it is none that could come here")
        return None

    def _begin(self, line: Any) -> None:
        match line:
            case {"version": int(version)}:
                if version != VERSION:
                    raise LayoutFormatError(f"the layouts are of version {version}, and {VERSION} can be read")
            case _:
                raise ValueError("there is no version")
        self._has_begun = True

    def _forget_partition(self) -> None:
        self._partition, self._ranges, self._segments = None, [], []


def _segment(encoded: Any) -> RemoteLogSegmentMetadata:
    segment = records.decode(b64decode(str(encoded), validate=True))
    if not isinstance(segment, RemoteLogSegmentMetadata):
        raise ValueError(f"a segment is a {type(segment).__name__}")
    return segment


def _line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + LINE_ITEMS] for start in range(0, len(items), LINE_ITEMS))
