"""Engines whose segments are not what consumers get: batches, headers, indexes and snapshots that are wrong."""

from __future__ import annotations

from dataclasses import replace

from diskless_core.log import leader_epochs, producer_snapshot
from diskless_core.plugin.remote_storage import IndexType
from diskless_core.protocol import record_batch
from diskless_core.wal import batches
from tests.kit.compaction_backends import NOUN, AtOnce, OneByOne, fault, inline, suite
from tests.kit.fault import Correct


def batches_of(log):
    return [bytes(log[position : position + header.size]) for position, header in record_batch.walk(log)]


class ChangedLog(OneByOne):
    """Copies another log than it has made the indexes of."""

    async def copy(self, job, metadata, log, indexes):
        changed = b"".join(self.changed(batches_of(log)))
        there = replace(metadata, segment_size_bytes=len(changed))  # the storage of the suite counts them
        return await super().copy(job, there, changed, indexes)

    def changed(self, found):
        raise NotImplementedError


class LosesTheLast(ChangedLog):
    """The last batch of a segment of several is lost."""

    def changed(self, found):
        return found[:-1] if len(found) > 1 else found


class LosesAtASeam(OneByOne):
    """Where one object ends and the next begins, a batch is lost."""

    async def read(self, job, plan):
        runs = [await self.read_run(job, run) for run in plan.ranges]
        return b"".join([*(b"".join(batches_of(run)[:-1]) for run in runs[:-1]), runs[-1]])

    async def copy(self, job, metadata, log, indexes):
        return await super().copy(job, replace(metadata, segment_size_bytes=len(log)), log, indexes)


class DoublesAtASeam(ChangedLog):
    """A batch is written twice."""

    def changed(self, found):
        return [*found[:1], *found]


class OutOfOrder(ChangedLog):
    """The batches of the objects are written as they come in, the last ones first."""

    def changed(self, found):
        return [*found[1:], found[0]]


class CutsTheLastOne(ChangedLog):
    """The last batch is cut off at the plan's size, which is taken for one less."""

    def changed(self, found):
        return [*found[:-1], found[-1][:-1]]


class BeyondThePlan(ChangedLog):
    """A batch is copied along that comes after the plan's end."""

    def changed(self, found):
        more = bytearray(found[-1])
        header = record_batch.read_header(more)
        record_batch.patch_base_offset(more, 0, header.last_offset + 1)
        return [*found, bytes(more)]


class KeepsProducersOffsets(OneByOne):
    """Batches have the offset 0 that their producers gave them."""

    async def copy(self, job, metadata, log, indexes):
        changed = bytearray(log)
        for position, _ in list(record_batch.walk(changed)):
            record_batch.patch_base_offset(changed, position, 0)
        return await super().copy(job, metadata, bytes(changed), indexes)


class FillsGaps(OneByOne):
    """Batches get offsets without gaps, from the segment's start on."""

    async def copy(self, job, metadata, log, indexes):
        changed, offset = bytearray(log), metadata.start_offset
        for position, header in list(record_batch.walk(changed)):
            record_batch.patch_base_offset(changed, position, offset)
            offset += header.last_offset_delta + 1
        return await super().copy(job, metadata, bytes(changed), indexes)


class OtherLeaderEpoch(OneByOne):
    """Batches keep the leader epoch -1 that their producers gave them."""

    async def copy(self, job, metadata, log, indexes):
        changed = bytearray(log)
        for position, header in list(record_batch.walk(changed)):
            record_batch.patch_base_offset(changed, position, header.base_offset, leader_epoch=-1)
        return await super().copy(job, metadata, bytes(changed), indexes)


class IgnoresAppendTime(OneByOne):
    """Batches of topics with LogAppendTime keep the timestamps of their producers."""

    def prepare(self, found, run):
        return super().prepare(found, run._replace(timestamp_type=0))


class AlwaysAppendTime(OneByOne):
    """All batches get the time of their commit, also those that should keep their producers' times."""

    def prepare(self, found, run):
        return super().prepare(found, run._replace(timestamp_type=1))


class NeverVerifies(OneByOne):
    """Checksums are not looked at: damaged batches are copied."""

    def prepare(self, found, run):
        batches.prepare(found, run, verify=False)
        return bytes(found)


class TakesWhatThereIs(OneByOne):
    """Of batches that are damaged, or fewer than planned, it takes those that are sound."""

    def prepare(self, found, run):
        prepared = batches.prepare(found, run)
        return bytes(found[: prepared.size_bytes])

    async def copy(self, job, metadata, log, indexes):
        return await super().copy(job, replace(metadata, segment_size_bytes=len(log)), log, indexes)


class OffsetsInTheObject(OneByOne):
    """The offset index has positions that are not those in the log."""

    def indexes(self, job, plan, log, producers):
        indexes, behind = super().indexes(job, plan, log, producers)
        index = bytearray(indexes[IndexType.OFFSET])
        for position in range(7, len(index), 8):
            index[position] ^= 1
        return {**indexes, IndexType.OFFSET: bytes(index)}, behind


class AnotherInterval(OneByOne):
    """The indexes are made with Kafka's default interval, and not the topic's."""

    def indexes(self, job, plan, log, producers):
        return super().indexes(job, replace(plan, index_interval_bytes=4096), log, producers)


class NoTimes(OneByOne):
    """The time index is empty."""

    def indexes(self, job, plan, log, producers):
        indexes, behind = super().indexes(job, plan, log, producers)
        return {**indexes, IndexType.TIMESTAMP: b""}, behind


class InventsTransactions(OneByOne):
    """There is an empty transaction index, though no index at all is due."""

    def indexes(self, job, plan, log, producers):
        indexes, behind = super().indexes(job, plan, log, producers)
        return {**indexes, IndexType.TRANSACTION: b""}, behind


class EpochOfTheSegment(OneByOne):
    """The leader epoch is said to begin at the segment's start."""

    def indexes(self, job, plan, log, producers):
        indexes, behind = super().indexes(job, plan, log, producers)
        return {**indexes, IndexType.LEADER_EPOCH: leader_epochs.encode({0: plan.start_offset})}, behind


class NoProducers(OneByOne):
    """The producer snapshot is empty."""

    def indexes(self, job, plan, log, producers):
        indexes, behind = super().indexes(job, plan, log, producers)
        return {**indexes, IndexType.PRODUCER_SNAPSHOT: producer_snapshot.encode([])}, behind


class NeverExpires(OneByOne):
    """Producers stay in the snapshots, however long ago they wrote."""

    def behind(self, job, plan, producers):
        return dict(producers)


class ForgetsProducers(OneByOne):
    """A snapshot has the producers of its own segment only."""

    def indexes(self, job, plan, log, producers):
        return super().indexes(job, plan, log, {})


class IgnoresProducersBefore(OneByOne):
    """The producers before the first segment are not asked for."""

    async def partition(self, job, partition):
        producers = {}
        async for plan in job.segments(partition):
            producers = await self.segment(job, plan, producers)
            if producers is None:
                return


class RemembersProducers(OneByOne):
    """Producers of one job are in the snapshots of the next."""

    def __init__(self):
        self.known = {}

    def indexes(self, job, plan, log, producers):
        indexes, self.known = super().indexes(job, plan, log, {**self.known, **producers})
        return indexes, self.known


class RemembersObjects(OneByOne):
    """What was read of an object is kept for other jobs, by its key."""

    def __init__(self):
        self.cache = {}

    async def read_run(self, job, run):
        key = run.object_key, run.byte_offset, run.byte_size
        if key not in self.cache:
            self.cache[key] = await super().read_run(job, run)
        return self.cache[key]


_EXACT = "every segment is made exactly"
_ONCE = "each batch is in the log once"
_ALL = "all batches of the plan are in the log"
_SNAPSHOTS = "snapshots have the producers up to the end of their segment"
_DAMAGED = "damaged batches make no segment"
_NEXT = "a job knows nothing of the one before"
_COMMIT = "the time of the commit goes into batches of such topics"

CORRECT = (
    Correct(noun=NOUN, name="one-by-one", suite=suite(OneByOne)),
    Correct(noun=NOUN, name="at-once", suite=suite(AtOnce)),
    Correct(noun=NOUN, name="inline", suite=suite(inline)),
    Correct(noun=NOUN, name="inline-in-folders", suite=suite(inline, in_folders=True)),
)

FAULTS = (
    fault("loses-the-last-batch", LosesTheLast, _ALL),
    fault("loses-a-batch-at-a-seam", LosesAtASeam, "a segment of many objects has no seams"),
    fault("doubles-a-batch", DoublesAtASeam, _ONCE),
    fault("batches-out-of-order", OutOfOrder, "batches are in order of their offsets"),
    fault("cuts-the-last-batch", CutsTheLastOne, "the log has whole batches only"),
    fault("copies-beyond-the-plan", BeyondThePlan, "only batches of the plan are in the log"),
    fault("keeps-producers-offsets", KeepsProducersOffsets, _EXACT),
    fault("fills-gaps", FillsGaps, "gaps between them keep their offsets"),
    fault("another-leader-epoch", OtherLeaderEpoch, "the leader epoch is 0 and not -1"),
    fault("ignores-the-append-time", IgnoresAppendTime, _COMMIT),
    fault("always-the-append-time", AlwaysAppendTime, "timestamps and their type are as consumers get them"),
    fault("never-verifies-checksums", NeverVerifies, _DAMAGED),
    fault("takes-what-there-is", TakesWhatThereIs, _DAMAGED),
    fault("wrong-positions-in-the-offset-index", OffsetsInTheObject, "the offset index matches the log"),
    fault("another-index-interval", AnotherInterval, "the offset index matches the log"),
    fault("an-empty-time-index", NoTimes, "the time index matches the log"),
    fault("invents-a-transaction-index", InventsTransactions, "there is no transaction index without transactions"),
    fault("the-leader-epoch-of-the-segment", EpochOfTheSegment, "the leader epochs are those of the topic"),
    fault("snapshots-without-producers", NoProducers, _SNAPSHOTS),
    fault("producers-never-expire", NeverExpires, _SNAPSHOTS),
    fault("forgets-producers-of-earlier-segments", ForgetsProducers, _SNAPSHOTS),
    fault("ignores-producers-before-the-job", IgnoresProducersBefore, _SNAPSHOTS),
    fault("remembers-producers-of-other-jobs", RemembersProducers, _NEXT),
    fault("remembers-objects-of-other-jobs", RemembersObjects, _NEXT),
)
