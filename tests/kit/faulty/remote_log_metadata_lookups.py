"""Keepers of segments' metadata that find or list the wrong ones, or change what they were told."""

from __future__ import annotations

from dataclasses import replace

from diskless_core.remote_log.metadata import RemoteLogSegmentState
from diskless_core.testing.fakes.remote_log_metadata import MemoryRemoteLogMetadata
from tests.kit.fault import Correct
from tests.kit.metadata_backends import NOUN, fault, suite

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


class _FindsAmong(MemoryRemoteLogMetadata):
    """Finds the first one of the list that will do."""

    async def find(self, partition, leader_epoch, offset):
        listed = await self.list(partition, leader_epoch)
        return next((one for one in listed if self.will_do(one, leader_epoch, offset)), None)

    def will_do(self, one, leader_epoch, offset):
        later = [start for epoch, start in one.segment_leader_epochs.items() if epoch > leader_epoch]
        start, end = one.segment_leader_epochs[leader_epoch], min([one.end_offset, *(other - 1 for other in later)])
        return one.state is FINISHED and start <= offset <= end


class FindsWhatIsBeingDeleted(_FindsAmong):
    """A segment that is being deleted is found."""

    def will_do(self, one, leader_epoch, offset):
        return super().will_do(
            replace(one, state=FINISHED if one.state > FINISHED else one.state), leader_epoch, offset
        )


class FindsWhatIsBeingCopied(_FindsAmong):
    """A segment whose copy has only begun is found."""

    def will_do(self, one, leader_epoch, offset):
        return super().will_do(
            replace(one, state=FINISHED if one.state < FINISHED else one.state), leader_epoch, offset
        )


class TheEndIsLeftOut(_FindsAmong):
    """The last offset of a segment is taken for the first one behind it."""

    def will_do(self, one, leader_epoch, offset):
        return super().will_do(one, leader_epoch, offset) and offset < one.end_offset


class TheOffsetBehindIsIncluded(MemoryRemoteLogMetadata):
    """The offset behind a segment is found in it."""

    async def find(self, partition, leader_epoch, offset):
        found = await super().find(partition, leader_epoch, offset)
        return found or await super().find(partition, leader_epoch, offset - 1)


class FindsTheNearestStart(_FindsAmong):
    """Only the segment that starts nearest below the offset is looked at."""

    async def find(self, partition, leader_epoch, offset):
        listed = [one for one in await self.list(partition, leader_epoch) if one.start_offset <= offset]
        return listed[-1] if listed and self.will_do(listed[-1], leader_epoch, offset) else None


class KnowsNoEpochs(MemoryRemoteLogMetadata):
    """A segment of an older leader epoch is found too."""

    async def find(self, partition, leader_epoch, offset):
        for epoch in range(leader_epoch, -1, -1):
            if found := await super().find(partition, epoch, offset):
                return found
        return None


class EpochsEndWithTheSegment(_FindsAmong):
    """Each leader epoch of a segment is taken to reach to the segment's end."""

    def will_do(self, one, leader_epoch, offset):
        start = one.segment_leader_epochs[leader_epoch]
        return one.state is FINISHED and start <= offset <= one.end_offset


class HighestOfAllEpochs(MemoryRemoteLogMetadata):
    """The highest offset of a leader epoch is that of the whole segment."""

    async def highest_offset(self, partition, leader_epoch):
        listed = await self.list(partition, leader_epoch)
        return max((one.end_offset for one in listed if one.state is FINISHED), default=None)


class HighestOfUnfinished(MemoryRemoteLogMetadata):
    """The highest offset is that of a copy that has only begun."""

    async def highest_offset(self, partition, leader_epoch):
        return max((one.end_offset for one in await self.list(partition, leader_epoch)), default=None)


class HighestOfNothing(MemoryRemoteLogMetadata):
    """Without a segment the highest offset is -1."""

    async def highest_offset(self, partition, leader_epoch):
        found = await super().highest_offset(partition, leader_epoch)
        return -1 if found is None else found


class HighestIsTheNext(MemoryRemoteLogMetadata):
    """The highest offset is the first one that is not there."""

    async def highest_offset(self, partition, leader_epoch):
        found = await super().highest_offset(partition, leader_epoch)
        return None if found is None else found + 1


class ListsOnePage(MemoryRemoteLogMetadata):
    """A list ends after its first page."""

    async def list(self, partition, leader_epoch=None):
        return (await super().list(partition, leader_epoch))[:20]


class ListsAsTheyCame(MemoryRemoteLogMetadata):
    """Lists are in the order in which the copies began."""

    async def list(self, partition, leader_epoch=None):
        came = [event.segment_id for event in self.ledger.events if hasattr(event, "segment_id")]
        return sorted(await super().list(partition, leader_epoch), key=lambda one: came.index(one.segment_id))


class ListsAllEpochs(MemoryRemoteLogMetadata):
    """The list of a leader epoch has the segments of all."""

    async def list(self, partition, leader_epoch=None):
        return await super().list(partition)


class ListsOnlyWhatIsCopied(MemoryRemoteLogMetadata):
    """A copy that has only begun is not listed, so nobody cleans up after it."""

    async def list(self, partition, leader_epoch=None):
        listed = await super().list(partition, leader_epoch)
        return [one for one in listed if one.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED]


class ForgetsWhatIsReplaced(MemoryRemoteLogMetadata):
    """Of two copies of the same records, one is not listed."""

    async def list(self, partition, leader_epoch=None):
        return list({one.start_offset: one for one in await super().list(partition, leader_epoch)}.values())


class MixesPartitionsUp(MemoryRemoteLogMetadata):
    """The partitions of a topic share their segments."""

    async def find(self, partition, leader_epoch, offset):
        for number in range(10):
            if found := await super().find(partition._replace(partition=number), leader_epoch, offset):
                return found
        return None


class CustomMetadataIsLost(MemoryRemoteLogMetadata):
    """Custom metadata that comes with an update is dropped."""

    async def update(self, update):
        await super().update(replace(update, custom_metadata=None))


class UpdatesHaveNoTime(MemoryRemoteLogMetadata):
    """An update leaves the time and the broker of the copy's beginning."""

    async def update(self, update):
        known = self.ledger.log(update.segment_id.topic_id_partition).get(update.segment_id)
        if known is not None:
            update = replace(update, event_timestamp_ms=known.event_timestamp_ms, broker_id=known.broker_id)
        await super().update(update)


class SmallOffsets(MemoryRemoteLogMetadata):
    """Offsets are kept in 32 bits."""

    async def add(self, metadata):
        await super().add(replace(metadata, end_offset=metadata.end_offset % 2**31))


class TransactionsAreForgotten(MemoryRemoteLogMetadata):
    """Whether a segment has an index of transactions is not kept."""

    async def add(self, metadata):
        await super().add(replace(metadata, txn_index_empty=True))


CORRECT = (Correct(noun=NOUN, name="memory", suite=suite(MemoryRemoteLogMetadata)),)

_ONCE_COPIED = "a segment is found once it is copied and listed until it is deleted"
_EPOCHS = "each leader epoch has its own offsets"
_BESIDE = "offsets beside the segments are in none"

FAULTS = (
    fault("finds-what-is-being-deleted", FindsWhatIsBeingDeleted, _ONCE_COPIED),
    fault("finds-what-is-being-copied", FindsWhatIsBeingCopied, _ONCE_COPIED),
    fault("the-last-offset-is-left-out", TheEndIsLeftOut, _BESIDE),
    fault("the-offset-behind-is-included", TheOffsetBehindIsIncluded, _BESIDE),
    fault("looks-at-the-nearest-start-only", FindsTheNearestStart, "no copy hides records that only another has"),
    fault("knows-no-epochs", KnowsNoEpochs, _BESIDE),
    fault("epochs-end-with-the-segment", EpochsEndWithTheSegment, _EPOCHS),
    fault("highest-offset-knows-no-epochs", HighestOfAllEpochs, _EPOCHS),
    fault("highest-offset-of-unfinished-copies", HighestOfUnfinished, _ONCE_COPIED),
    fault("highest-offset-of-nothing", HighestOfNothing, "of an unknown partition nothing is known"),
    fault("highest-offset-is-the-next-one", HighestIsTheNext, _BESIDE),
    fault("a-list-is-one-page", ListsOnePage, "many segments are noted at once"),
    fault("lists-as-they-came", ListsAsTheyCame, "lists are by start offset whatever came first"),
    fault("lists-all-epochs", ListsAllEpochs, _EPOCHS),
    fault("unfinished-copies-are-not-listed", ListsOnlyWhatIsCopied, _ONCE_COPIED),
    fault("replaced-copies-are-not-listed", ForgetsWhatIsReplaced, "both copies listed"),
    fault("partitions-share-segments", MixesPartitionsUp, "partitions know nothing of each other"),
    fault("custom-metadata-is-lost", CustomMetadataIsLost, "custom metadata is what the last update had of it"),
    fault("updates-have-no-time", UpdatesHaveNoTime, "an update says who made it and when"),
    fault("offsets-of-32-bits", SmallOffsets, "every field comes back as it was given"),
    fault("transactions-are-forgotten", TransactionsAreForgotten, "every field comes back as it was given"),
)
