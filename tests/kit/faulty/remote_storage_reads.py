"""Remote storages that read what was not asked for, or say that something is not there that is, or the reverse."""

from __future__ import annotations

from diskless_core.plugin.remote_storage import IndexType, RemoteResourceNotFoundError, RemoteStorageError
from diskless_core.testing.fakes.remote_storage import StoredSegment
from tests.kit.fault import Correct
from tests.kit.segment_backends import (
    NOUN,
    InFolder,
    InMemory,
    WithCustomMetadata,
    folder_fault,
    folder_suite,
    memory_fault,
    memory_suite,
)


class EndIsInclusive(InMemory):
    """The end of a range is read, too, as in HTTP's header."""

    async def fetch(self, metadata, start, end):
        return await super().fetch(metadata, start, end + 1 if end > start else end)


class EndsTooSoon(InMemory):
    """The last byte of a range is not read."""

    async def fetch(self, metadata, start, end):
        return await super().fetch(metadata, start, max(start, min(end, metadata.segment_size_bytes) - 1))


class StartIsIgnored(InMemory):
    """A range from the middle begins at the log's start."""

    async def fetch(self, metadata, start, end):
        return await super().fetch(metadata, 0 if start < metadata.segment_size_bytes else start, max(0, end - start))


class RangesInBlocks(InMemory):
    """A range is extended to whole blocks of 4096 bytes, and not cut down again."""

    async def fetch(self, metadata, start, end):
        return await super().fetch(metadata, start // 4096 * 4096, end)


class RefusesBeyondTheEnd(InMemory):
    """A range with an end beyond the log is an error, as a service's status 416."""

    async def fetch(self, metadata, start, end):
        if end > metadata.segment_size_bytes:
            raise RemoteStorageError("416 Requested Range Not Satisfiable", retriable=False)
        return await super().fetch(metadata, start, end)


class PadsBeyondTheEnd(InMemory):
    """What a range has beyond the log comes as zeros."""

    async def fetch(self, metadata, start, end):
        found = await super().fetch(metadata, start, end)
        return bytes(found) + bytes(min(end - start, 1 << 20) - len(found))


class EmptyRangeIsAll(InMemory):
    """An empty range is taken for none, so everything is read."""

    async def fetch(self, metadata, start, end):
        return await super().fetch(metadata, start, end if end != start else metadata.segment_size_bytes)


class IndexesMixedUp(InMemory):
    """The offset index and the time index are read one for the other."""

    async def fetch_index(self, metadata, index):
        other = {IndexType.OFFSET: IndexType.TIMESTAMP, IndexType.TIMESTAMP: IndexType.OFFSET}
        return await super().fetch_index(metadata, other.get(index, index))


class IndexesCutOff(InMemory):
    """Of an index no more is read than the first MiB."""

    async def fetch_index(self, metadata, index):
        return (await super().fetch_index(metadata, index))[: 1 << 20]


class AbsentIndexIsEmpty(InMemory):
    """An index that was not copied is read as an empty one."""

    async def fetch_index(self, metadata, index):
        try:
            return await super().fetch_index(metadata, index)
        except RemoteResourceNotFoundError:
            return b""


class EmptyIndexIsAbsent(InMemory):
    """An index that is empty is said not to be there."""

    async def fetch_index(self, metadata, index):
        found = await super().fetch_index(metadata, index)
        if not found:
            raise RemoteResourceNotFoundError("it is empty")
        return found


class AbsentIndexIsAFailure(InMemory):
    """An index that was not copied is told as a failure that a retry can help."""

    async def fetch_index(self, metadata, index):
        try:
            return await super().fetch_index(metadata, index)
        except RemoteResourceNotFoundError as error:
            raise RemoteStorageError("404 Not Found") from error


class AbsentIndexIsAKeyError(InMemory):
    """Of an index that was not copied a KeyError is raised."""

    async def fetch_index(self, metadata, index):
        try:
            return await super().fetch_index(metadata, index)
        except RemoteResourceNotFoundError:
            raise KeyError(index) from None


class AbsentSegmentIsAFailure(InMemory):
    """A segment that is not there is told as a failure that a retry can help."""

    async def fetch(self, metadata, start, end):
        try:
            return await super().fetch(metadata, start, end)
        except RemoteResourceNotFoundError as error:
            raise RemoteStorageError("404 Not Found") from error


class AbsentSegmentIsEmpty(InMemory):
    """A segment that is not there is read as an empty one."""

    async def fetch(self, metadata, start, end):
        try:
            return await super().fetch(metadata, start, end)
        except RemoteResourceNotFoundError:
            return b""


class EmptyRangeOfAnAbsentSegment(InMemory):
    """An empty range is answered without a look at whether there is such a segment."""

    async def fetch(self, metadata, start, end):
        return b"" if start == end else await super().fetch(metadata, start, end)


class FailureIsAbsence(InMemory):
    """Whatever goes wrong when a segment is read is told as its absence."""

    async def fetch(self, metadata, start, end):
        try:
            return await super().fetch(metadata, start, end)
        except RemoteStorageError as error:
            raise RemoteResourceNotFoundError("it cannot be read") from error


class IndexFailureIsAbsence(InMemory):
    """Whatever goes wrong when an index is read is told as its absence."""

    async def fetch_index(self, metadata, index):
        try:
            return await super().fetch_index(metadata, index)
        except RemoteStorageError as error:
            raise RemoteResourceNotFoundError("it cannot be read") from error


class ReadsWhatIsGone(InMemory):
    """What was read once is read again from a cache when it has been deleted."""

    def __init__(self, place):
        super().__init__(place)
        self.cache = {}

    async def fetch(self, metadata, start, end):
        key = metadata.segment_id, start, end
        if key not in self.cache:
            self.cache[key] = await super().fetch(metadata, start, end)
        return self.cache[key]


class IndexesOfWhatIsGone(InMemory):
    """Indexes that were read once are read again from a cache when the segment has been deleted."""

    def __init__(self, place):
        super().__init__(place)
        self.cache = {}

    async def fetch_index(self, metadata, index):
        key = metadata.segment_id, index
        if key not in self.cache:
            self.cache[key] = await super().fetch_index(metadata, index)
        return self.cache[key]


class GivesItsOwnMemory(InMemory):
    """What is read is the memory in which the segment is kept, and can be written to."""

    async def copy(self, metadata, data):
        await super().copy(metadata, data)
        stored = self.segments[metadata.segment_id]
        self.segments[metadata.segment_id] = StoredSegment(bytearray(stored.log), stored.indexes, is_complete=True)

    async def fetch(self, metadata, start, end):
        await super().fetch(metadata, start, end)
        return memoryview(self.segments[metadata.segment_id].log)[start:end]


class SameOffsetsShareAPlace(InFolder):
    """A segment is named after its partition and offset: copies of the same offsets share a place."""

    def name(self, metadata):
        partition = metadata.segment_id.topic_id_partition
        return f"{partition.topic_id.hex}-{partition.partition}-{metadata.start_offset}"


class NamesRunTogether(InFolder):
    """Partition and topic are put together without a separator, and the copy's id is left out."""

    def name(self, metadata):
        partition = metadata.segment_id.topic_id_partition
        return f"{partition.topic[:100].lower()}{partition.partition}-{metadata.start_offset}"


class StateIsPartOfTheName(InFolder):
    """A segment is found only in the state in which it was copied."""

    def name(self, metadata):
        return f"{metadata.segment_id.id.hex}-{int(metadata.state)}"


class BrokerIsPartOfTheName(InFolder):
    """A segment is found only with the broker that copied it."""

    def name(self, metadata):
        return f"{metadata.segment_id.id.hex}-{metadata.broker_id}"


_RANGE = "a fetch gives the range from start inclusive to end exclusive"
_BEYOND = "a fetch beyond the end gives what there is"
_INDEX = "an index is there if it was copied and only then"
_NEVER_COPIED = "of a segment that was never copied there is nothing"
_ABSENCE = "a failure is not told as absence"
_GONE = "what was deleted is not read again"
_WHOEVER = "a segment is found in every state and whoever asks"

CORRECT = (
    Correct(noun=NOUN, name="in-memory", suite=memory_suite(InMemory)),
    Correct(noun=NOUN, name="with-custom-metadata", suite=memory_suite(WithCustomMetadata)),
    Correct(noun=NOUN, name="in-a-folder", suite=folder_suite(InFolder)),
)

FAULTS = (
    memory_fault("the-end-of-a-range-is-read-too", EndIsInclusive, _RANGE),
    memory_fault("a-range-ends-too-soon", EndsTooSoon, _RANGE),
    memory_fault("the-start-of-a-range-is-ignored", StartIsIgnored, _RANGE),
    memory_fault("ranges-in-blocks", RangesInBlocks, _RANGE),
    memory_fault("refuses-a-range-beyond-the-end", RefusesBeyondTheEnd, _BEYOND),
    memory_fault("pads-a-range-beyond-the-end", PadsBeyondTheEnd, _BEYOND),
    memory_fault("an-empty-range-is-everything", EmptyRangeIsAll, "an empty range is empty"),
    memory_fault("indexes-mixed-up", IndexesMixedUp, _INDEX),
    memory_fault("indexes-cut-off", IndexesCutOff, "large indexes are read whole"),
    memory_fault("an-absent-index-is-empty", AbsentIndexIsEmpty, _INDEX),
    memory_fault("an-empty-index-is-absent", EmptyIndexIsAbsent, "an empty index is there and empty"),
    memory_fault("an-absent-index-is-a-failure", AbsentIndexIsAFailure, _INDEX),
    memory_fault("an-absent-index-is-a-key-error", AbsentIndexIsAKeyError, _INDEX),
    memory_fault("an-absent-segment-is-a-failure", AbsentSegmentIsAFailure, _NEVER_COPIED),
    memory_fault("an-absent-segment-is-empty", AbsentSegmentIsEmpty, _NEVER_COPIED),
    memory_fault("an-empty-range-of-what-is-absent", EmptyRangeOfAnAbsentSegment, _NEVER_COPIED),
    memory_fault("a-failed-read-is-absence", FailureIsAbsence, _ABSENCE),
    memory_fault("a-failed-read-of-an-index-is-absence", IndexFailureIsAbsence, _ABSENCE),
    memory_fault("reads-what-is-gone", ReadsWhatIsGone, _GONE),
    memory_fault("reads-indexes-of-what-is-gone", IndexesOfWhatIsGone, _GONE),
    memory_fault("gives-its-own-memory", GivesItsOwnMemory, "writing into what was read changes nothing"),
    folder_fault("same-offsets-share-a-place", SameOffsetsShareAPlace, "copies of the same offsets are apart"),
    folder_fault("names-run-together", NamesRunTogether, "segments of different partitions and offsets are apart"),
    folder_fault("found-in-one-state-only", StateIsPartOfTheName, _WHOEVER),
    folder_fault("found-by-one-broker-only", BrokerIsPartOfTheName, _WHOEVER),
)
