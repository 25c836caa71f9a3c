"""What must hold whatever happens, checked at every answer, every entry of the log and every deleted object."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.tables import PartitionHead
from diskless_core.groups.model import CommittedOffset
from diskless_core.protocol import record_batch
from diskless_core.protocol.file_committed import FileCommitted
from diskless_core.remote_log.tiered import TieredSegment
from diskless_core.wal.format import created_ms_of
from tests.simulation.bucket import Bucket
from tests.simulation.history import History
from tests.simulation.segments import SEGMENT_PREFIX, is_segment, objects_of, segment_of
from tests.simulation.truth import Committed, OffsetPlace, Truth, name_of

OBJECT_PREFIX = "wal"


class Sent(NamedTuple):
    """What makes a record's value: who sent it, and the how manieth of its sender it is in the partition."""

    producer: int
    number: int
    is_idempotent: bool
    sent_ms: int

    def value(self) -> bytes:
        return b"%d.%d.%d.%d" % self

    @classmethod
    def of(cls, value: bytes) -> Sent:
        producer, number, is_idempotent, sent_ms = map(int, value.split(b"."))
        return cls(producer, number, bool(is_idempotent), sent_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowances:
    """What differing clocks may cost: `skew_ms` between any two, and the waits that are measured by them."""

    skew_ms: int
    delete_delay_ms: int
    retention_ms: int


@dataclass(slots=True)
class _Seen:
    """What anybody was ever told of a partition."""

    at: dict[int, Sent] = field(default_factory=dict)
    acknowledged_end: int = 0
    wanted_start: int = 0
    is_dropped: bool = False


class Checker:
    """The promises. It sees the truth, so a promise is broken when it is, not when somebody notices."""

    def __init__(
        self,
        history: History,
        now_s: Callable[[], float],
        now_ms: Callable[[], int],
        expiration_ms: int,
        *,
        stamps_are_true: bool,
    ) -> None:
        self.truth = Truth(history.violated, now_s, expiration_ms, stamps_are_true=stamps_are_true)
        self.allowances = Allowances(skew_ms=0, delete_delay_ms=0, retention_ms=-1)
        self.acknowledged = 0
        self.read = 0
        self.committed_offsets = 0
        self._deleted: set[str] = set()
        self._put_too_late: dict[str, str] = {}
        self._uploader: dict[str, str] = {}
        self._newest_ms: dict[tuple[str, PartitionKey], int] = {}
        self.bucket: Bucket
        self._history = history
        self._now_s = now_s
        self._now_ms = now_ms
        self._seen: defaultdict[PartitionKey, _Seen] = defaultdict(_Seen)
        self._heads: dict[tuple[str, PartitionKey], PartitionHead] = {}
        self._owners: dict[OffsetPlace, list[str]] = {}
        self._topics_to_go: set[str] = set()
        self.truth.on_file_committed(self._file_committed)
        self.truth.on_segments_lost(self._segments_lost)
        self.truth.on_tiered(self._segment_taken)
        self.truth.on_offset(self._offset_committed)

    def broken(self, promise: str) -> None:
        self._history.violated(promise)

    # --- producers -----------------------------------------------------------------------------------------------

    def answered(self, key: PartitionKey, base_offset: int) -> None:
        """A broker is about to tell a producer that its batch is at this offset."""
        committed = base_offset in self.truth.partitions[key].batches
        if not committed:
            self.broken(f"{name_of(key)}@{base_offset} is acknowledged and not in the log")

    def acknowledged_batch(self, key: PartitionKey, base_offset: int, sent: Sequence[Sent]) -> None:
        """A producer was told that its batch is at this offset."""
        self.acknowledged += 1
        partition = self.truth.partitions[key]
        committed = partition.batches.get(base_offset)
        if committed is None:
            return
        here = f"{name_of(key)}@{base_offset}"
        self._learn(key, base_offset, sent)
        self._seen[key].acknowledged_end = max(self._seen[key].acknowledged_end, committed.last_offset + 1)
        may_be_gone = partition.deleted or committed.last_offset < partition.local_start_offset
        if not may_be_gone and self._values(committed) != list(sent):
            self.broken(f"{here} is not what was acknowledged as {sent}")

    def _values(self, committed: Committed) -> list[Sent] | None:
        data = self.bucket.objects.get(committed.object_key)
        if data is None:
            return None
        end = committed.byte_offset + committed.byte_size
        return [Sent.of(record.value or b"") for record in record_batch.records(data[committed.byte_offset : end])]

    def _learn(self, key: PartitionKey, base_offset: int, sent: Sequence[Sent]) -> None:
        at = self._seen[key].at
        for offset, one in enumerate(sent, base_offset):
            known = at.setdefault(offset, one)
            if known != one:
                self.broken(f"{name_of(key)}@{offset} was {known} and is {one}")

    # --- consumers -----------------------------------------------------------------------------------------------

    def fetched(self, key: PartitionKey, offset: int, records: Sequence[tuple[int, bytes | None]]) -> None:
        """A consumer that asked for `offset` got these."""
        partition = self.truth.partitions[key]
        self.read += len(records)
        offsets = [one for one, _ in records]
        if offsets != list(range(offsets[0], offsets[0] + len(offsets))):
            self.broken(f"{name_of(key)} has gaps: {offsets}")
        if not offsets[0] <= offset <= offsets[-1]:
            self.broken(f"{name_of(key)}@{offset} was asked for, not {offsets}")
        if offsets[-1] >= partition.high_watermark:
            self.broken(f"{name_of(key)}@{offsets[-1]} was read and is not committed")
        self._learn(key, offsets[0], [Sent.of(value or b"") for _, value in records])

    def out_of_range(self, key: PartitionKey, offset: int) -> None:
        """A consumer at an offset that it was given before was told that there is no such offset."""
        partition = self.truth.partitions[key]
        if not partition.deleted and offset >= partition.log_start_offset:
            self.broken(f"{name_of(key)}@{offset} was called out of range")

    def acknowledged_end(self, key: PartitionKey) -> int:
        return self._seen[key].acknowledged_end

    def listed_end(self, key: PartitionKey, at_least: int, offset: int) -> None:
        """ListOffsets, asked when `at_least` was acknowledged, says that the partition ends at `offset`."""
        partition = self.truth.partitions[key]
        if not partition.deleted and not at_least <= offset <= partition.high_watermark:
            self.broken(f"{name_of(key)} ends at {offset}, and {at_least} was acknowledged")

    def head_seen(self, process: str, key: PartitionKey, head: PartitionHead) -> None:
        """What one process has of a partition."""
        before = self._heads.get((process, key), head)
        if head.next_offset < before.next_offset or head.log_start_offset < before.log_start_offset:
            self.broken(f"{name_of(key)} went back from {before} to {head} on {process}")
        self._heads[process, key] = head
        truth = self.truth.partitions[key]
        if head.next_offset > truth.high_watermark:
            self.broken(f"{name_of(key)} is seen ahead of its log: {head}")

    # --- groups --------------------------------------------------------------------------------------------------

    def offset_acknowledged(self, place: OffsetPlace, mark: str, offset: int) -> None:
        """A member was told that its commit with this mark has succeeded."""
        self.committed_offsets += 1
        if not any(
            one is not None and (one.metadata, one.offset) == (mark, offset) for one in self.truth.offsets[place]
        ):
            self.broken(f"the commit {mark} of {place} at {offset} is acknowledged and not in the log")

    def offsets_seen(self, place: OffsetPlace) -> int:
        """How many offsets were committed, or dropped, by now; for `offset_found`."""
        return len(self.truth.offsets[place])

    def offset_found(self, place: OffsetPlace, seen: int, mark: str, offset: int) -> None:
        """A group was told that it is at this offset, after it asked when `seen` were there: it is none before."""
        current = self.truth.offsets[place][max(0, seen - 1) :]
        possible = [(one.metadata, one.offset) if one is not None else ("", -1) for one in current]
        if not seen:
            possible.append(("", -1))
        if (mark, offset) not in possible:
            self.broken(f"{place} is said to be at {offset} of {mark!r}, and was at {possible}")

    def topic_may_go(self, topic: str) -> None:
        """Somebody asked to delete a topic: its offsets and its segments go with it."""
        self._topics_to_go.add(topic)

    def _offset_committed(self, place: OffsetPlace, value: CommittedOffset | None) -> None:
        """Nobody commits a partition that somebody else has been given since; nothing is dropped that is in use."""
        if value is None:
            if place.topic not in self._topics_to_go:
                self.broken(f"the offset of {place} is dropped")
            return
        owner, owners = value.metadata.rpartition(".")[0], self._owners.setdefault(place, [])
        if owner in owners[:-1]:
            self.broken(f"{owner} commits {place} at {value.offset}, which {owners[-1]} has")
        elif owner not in owners:
            owners.append(owner)

    # --- the end of data -----------------------------------------------------------------------------------------

    def wants_start(self, key: PartitionKey, offset: int) -> None:
        """Somebody asked to delete the records below `offset`, which may or may not happen."""
        seen = self._seen[key]
        seen.wanted_start = max(seen.wanted_start, offset)

    def log_starts(self) -> None:
        """Nothing was deleted that nobody asked to delete, and that retention does not cover."""
        for key, partition in self.truth.partitions.items():
            seen, rules = self._seen[key], self.allowances
            for offset in range(seen.wanted_start, partition.log_start_offset):
                sent = seen.at.get(offset)
                if sent is not None:
                    age_ms = self._now_ms() - sent.sent_ms
                    expired = rules.retention_ms >= 0 and age_ms > rules.retention_ms - rules.skew_ms
                    if not expired:
                        self.broken(f"{name_of(key)}@{offset} is gone, and nobody deleted it")

    @property
    def deleted_objects(self) -> int:
        return len(self._deleted)

    def object_put(self, process: str, key: str) -> None:
        """An object appeared, or was written once more."""
        if _is_wal(key):
            self._uploader[key] = process
        elif is_segment(key) and self.truth.is_going(segment_of(key)):
            self._put_too_late[key] = process

    def object_deleted(self, key: str, size_bytes: int) -> None:
        """An object is gone from the object store."""
        del size_bytes
        if is_segment(key) and self.truth.refers_to(segment_of(key)):
            self.broken(f"{key} was deleted, and a partition has records in it")
        if not _is_wal(key):
            return
        self._deleted.add(key)
        if self.truth.is_live(key):
            self.broken(f"{key} was deleted with live batches in it")
        died_s = self.truth.died_s.get(key)
        if died_s is not None:
            waited_ms = (self._now_s() - died_s) * 1000
            least_ms = self.allowances.delete_delay_ms - self.allowances.skew_ms - 1
            if waited_ms < least_ms:
                self.broken(f"{key} was deleted {waited_ms:.0f} ms after its end")

    def _file_committed(self, record: FileCommitted) -> None:
        if record.topics and record.object_key not in self.bucket.objects:
            self.broken(f"{record.object_key} was committed and is not there")
            return
        for topic_id, partitions in record.topics:
            for partition, _ in partitions:
                self._in_order(PartitionKey(topic_id, partition), record.object_key)

    def _in_order(self, key: PartitionKey, object_key: str) -> None:
        """A process commits its objects in the order in which it made them."""
        place, created_ms = (self._uploader[object_key], key), created_ms_of(object_key)
        if created_ms < self._newest_ms.get(place, 0):
            self.broken(f"{object_key} comes to {name_of(key)} behind later objects of {place[0]}")
        self._newest_ms[place] = created_ms

    def dead_objects(self) -> list[str]:
        """Objects that were committed, hold nothing alive, and were never deleted.

        What a late put brought back, or an owner has never heard of, is left to the scan for orphans and its horizon.
        """
        dead = [
            key for key in self.truth.committed_objects if key in self.bucket.objects and not self.truth.is_live(key)
        ]
        return sorted(key for key in dead if self.truth.is_committed_everywhere(key) and key not in self._deleted)

    def _segment_taken(self, key: PartitionKey, segment: TieredSegment) -> None:
        missing = [one for one in objects_of(segment.segment_id) if one not in self.bucket.objects]
        if missing:
            self.broken(f"{name_of(key)} takes a segment without {missing}")

    def _segments_lost(self, topic: str) -> None:
        if topic not in self._topics_to_go:
            self.broken(f"{topic} loses its segments, and nobody deleted it")

    def segments_are_there(self) -> None:
        for segment_id in sorted(self.truth.segments()):
            missing = [key for key in objects_of(segment_id) if key not in self.bucket.objects]
            if missing:
                self.broken(f"of a segment that has records is missing: {missing}")

    def left_of_segments(self, running: Collection[str]) -> list[str]:
        """What there is of segments that no partition has.

        Nobody sees what appeared when the segment was being removed, by a put that had failed, or whose process has
        ended since.
        """
        unseen = {key for key, process in self._put_too_late.items() if process not in running} | self.bucket.came_late
        there = self.bucket.keys(f"{SEGMENT_PREFIX}/") - unseen
        return sorted(key for key in there if not self.truth.refers_to(segment_of(key)))

    def live_objects_are_there(self) -> None:
        missing = [key for key in self.truth.live_objects() if key not in self.bucket.objects]
        if missing:
            self.broken(f"live objects are missing: {sorted(missing)}")

    # --- all that was ever seen ----------------------------------------------------------------------------------

    def order_and_uniqueness(self) -> None:
        """Each producer's records are in the order in which it sent them.

        An idempotent one's are there once, unless it was forgotten.
        """
        for key, seen in self._seen.items():
            newest: dict[int, int] = {}
            counts: Counter[Sent] = Counter()
            for offset in sorted(seen.at):
                sent = seen.at[offset]
                counts[sent] += 1
                is_known = sent.is_idempotent and (key, sent.producer) not in self.truth.forgotten
                if is_known and counts[sent] != 1:
                    self.broken(f"{name_of(key)}@{offset} repeats {sent}")
                if counts[sent] == 1:
                    before = newest.get(sent.producer, -1)
                    if sent.number <= before:
                        self.broken(f"{name_of(key)}@{offset}: {sent} comes after {before}")
                    newest[sent.producer] = sent.number


def _is_wal(key: str) -> bool:
    return key.startswith(f"{OBJECT_PREFIX}/")
