"""Logs that lose, change, repeat or mix up entries and offsets, of one node."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace

from diskless_core.plugin.coordinator_log import CoordinatorLogError, EntryRefusedError, LogBatch, LogBounds
from diskless_core.protocol.record_batch import RecordData, build
from diskless_core.testing.fakes.log import FakeCoordinatorLog
from tests.kit.fault import Correct
from tests.kit.log_backends import (
    LARGEST_ENTRY_BYTES,
    NOUN,
    FileLog,
    fault,
    file_suite,
    shared_suite,
)

BLOCKED_S = 0.1


class NeverSyncs(FileLog):
    """An append is written and never synced."""

    def sync(self, fd):
        pass


class SyncsBeforeItWrites(FileLog):
    """The file is synced before the append is written to it."""

    async def write(self, fd, data):
        self.sync(fd)
        os.write(fd, data)


class SyncsLater(FileLog):
    """An append returns, and is synced with the one after the next."""

    behind = 0

    async def write(self, fd, data):
        os.write(fd, data)
        self.behind += 1
        if self.behind % 2 == 0:
            self.sync(fd)


class NeverSyncsTheFolder(FileLog):
    """The content of the new file is synced, and its name never is."""

    def sync_folder(self):
        pass


class TakesATornEntry(FileLog):
    """An entry of which only a part is there is given to readers, padded."""

    def replay(self, content):
        end = super().replay(content)
        if end < len(content):
            self._shared.state(_first_shard(self)).append(build([RecordData(None, content[end:])], timestamp_ms=0))
        return end


class AppendsBehindATornEntry(FileLog):
    """The torn end of the file stays, and what is appended behind it cannot be read."""

    def replay(self, content):
        super().replay(content)
        return len(content)


class ForgetsTheLastEntry(FileLog):
    """When it is opened, the last entry is taken for a torn one."""

    def replay(self, content):
        end = super().replay(content)
        for state in self._shared._shards.values():
            if len(state.entries) > 1:
                state.entries.pop()
                state.end = state.high_watermark = state.entries[-1].next_offset
        return end


class OffsetsBeginAnew(FileLog):
    """After a restart offsets are given out again from 0 on."""

    async def append(self, shard, batches):
        offsets = await super().append(shard, batches)
        first = self.__dict__.setdefault("firsts", {}).setdefault(shard, offsets[0] if offsets else 0)
        return [offset - first for offset in offsets]


class AcknowledgesTooEarly(FakeCoordinatorLog):
    """An append returns before what it appended is below the high watermark."""

    async def append(self, shard, batches):
        offsets = await super().append(shard, batches)
        state = self._shared.state(shard)
        if offsets:
            state.high_watermark = offsets[-1]
            asyncio.get_running_loop().call_later(0.005, _commit, state)
        return offsets


class EndIsBeyondWhatIsCommitted(FakeCoordinatorLog):
    """The end is one above the high watermark: nobody who reads ever gets there."""

    async def bounds(self, shard):
        bounds = await super().bounds(shard)
        return replace(bounds, end=bounds.end + 1 if bounds.end else 0)


class NeverWrittenHasAnEnd(FakeCoordinatorLog):
    """A log that was never written to ends at 1."""

    async def bounds(self, shard):
        bounds = await super().bounds(shard)
        return replace(bounds, end=max(1, bounds.end))


class EndLagsBehindItself(FakeCoordinatorLog):
    """The end does not have this node's last append yet."""

    async def bounds(self, shard):
        bounds = await super().bounds(shard)
        entries = [entry for entry in self._shared.state(shard).entries if entry.next_offset <= bounds.end]
        return LogBounds(bounds.start, entries[-1].offset if entries else bounds.end)


class _Appending(FakeCoordinatorLog):
    """Does something to what is appended."""

    async def append(self, shard, batches):
        return await super().append(shard, self.appended(list(batches)))

    def appended(self, batches):
        return batches


class ReversesBatches(_Appending):
    """The batches of one call are appended from the last one to the first one."""

    def appended(self, batches):
        return batches[::-1]


class LosesTheLastBatch(FakeCoordinatorLog):
    """Of several batches of a call the last one is acknowledged and not appended."""

    async def append(self, shard, batches):
        if len(batches) < 3:
            return await super().append(shard, batches)
        offsets = await super().append(shard, batches[:-1])
        return [*offsets, offsets[-1] + 1]


class AppendsTwice(_Appending):
    """A batch that is alone in its call is appended twice, as by a client that retries without being idempotent."""

    def appended(self, batches):
        return batches * 2 if len(batches) == 1 else batches


class OneOffsetForACall(FakeCoordinatorLog):
    """All batches of a call are said to have the offset of the first one."""

    async def append(self, shard, batches):
        offsets = await super().append(shard, batches)
        return [offsets[0]] * len(offsets) if offsets else offsets


class TakesDamagedBatches(FakeCoordinatorLog):
    """A batch whose checksum is wrong is taken."""

    async def append(self, shard, batches):
        try:
            return await super().append(shard, batches)
        except EntryRefusedError:
            raise
        except CoordinatorLogError:
            return [self._shared.state(shard).end for _ in batches]


class ForeignErrors(FakeCoordinatorLog):
    """What is no batch is refused with an error of Python's."""

    async def append(self, shard, batches):
        try:
            return await super().append(shard, batches)
        except EntryRefusedError:
            raise
        except CoordinatorLogError as error:
            raise ValueError(str(error)) from error


class AppendingNothingFails(FakeCoordinatorLog):
    """An append without batches is an error."""

    async def append(self, shard, batches):
        if not batches:
            raise CoordinatorLogError("nothing to append")
        return await super().append(shard, batches)


class SplitsLargeBatches(FakeCoordinatorLog):
    """Readers are given a large batch in parts."""

    def read(self, shard, offset):
        return _each(super().read(shard, offset), self.parts)

    def parts(self, entry):
        half = 500_000
        if len(entry.data) <= half or len(entry.data) > half * 2:
            return [entry]
        return [replace(entry, data=entry.data[:half]), replace(entry, data=entry.data[half:])]


class TakesWhatIsTooLarge(FakeCoordinatorLog):
    """An entry that is too large is acknowledged and thrown away."""

    async def append(self, shard, batches):
        kept = [batch for batch in batches if len(batch) <= LARGEST_ENTRY_BYTES]
        offsets = list(await super().append(shard, kept))
        return offsets + [offsets[-1] if offsets else 0] * (len(batches) - len(kept))


class TooLargeIsNoRefusal(FakeCoordinatorLog):
    """An entry that is too large ends the leader's term: the outcome is said to be unknown."""

    async def append(self, shard, batches):
        try:
            return await super().append(shard, batches)
        except EntryRefusedError as error:
            raise CoordinatorLogError(str(error)) from error


class RefusesTheWrongOne(FakeCoordinatorLog):
    """The position of a refused entry is counted from 1."""

    async def append(self, shard, batches):
        try:
            return await super().append(shard, batches)
        except EntryRefusedError as error:
            raise EntryRefusedError(str(error), position=error.position + 1) from error


class RefusesAllBefore(FakeCoordinatorLog):
    """Where one entry is too large, those before it are not appended either."""

    async def append(self, shard, batches):
        large = [at for at, batch in enumerate(batches) if len(batch) > LARGEST_ENTRY_BYTES]
        if large:
            raise EntryRefusedError("too large", position=large[0])
        return await super().append(shard, batches)


class AppendsBehindARefusal(FakeCoordinatorLog):
    """Where one entry is refused, those behind it are appended."""

    async def append(self, shard, batches):
        try:
            return await super().append(shard, batches)
        except EntryRefusedError as error:
            await super().append(shard, batches[error.position + 1 :])
            raise


class RefusedEntriesLandLater(FakeCoordinatorLog):
    """An entry that was refused is appended with the next append that comes."""

    refused = ()

    async def append(self, shard, batches):
        later, self.refused = self.refused, ()
        for batch in later:
            self._shared.state(shard).append(batch)
        try:
            return await super().append(shard, batches)
        except EntryRefusedError as error:
            self.refused = batches[error.position :]
            raise


class LargestIsRefused(FakeCoordinatorLog):
    """An entry as large as the log says that it takes is refused."""

    async def append(self, shard, batches):
        for position, batch in enumerate(batches):
            if len(batch) >= LARGEST_ENTRY_BYTES:
                raise EntryRefusedError("too large", position=position)
        return await super().append(shard, batches)


class SilenceIsARefusal(FakeCoordinatorLog):
    """An append that heard nothing in time is said to be refused for good."""

    async def append(self, shard, batches):
        try:
            return await super().append(shard, batches)
        except EntryRefusedError:
            raise
        except CoordinatorLogError as error:
            if "in time" in str(error):
                raise EntryRefusedError(str(error), position=0) from error
            raise


class WaitsForEver(FakeCoordinatorLog):
    """An append waits for an answer as long as there is none."""

    async def _until_committed(self, state, offsets):
        while offsets and state.high_watermark <= offsets[-1]:
            await state.changed.wait()


class SilenceLandsTwice(FakeCoordinatorLog):
    """What was not answered in time is sent again in the background, besides."""

    async def append(self, shard, batches):
        try:
            return await super().append(shard, batches)
        except EntryRefusedError:
            raise
        except CoordinatorLogError as error:
            if "in time" in str(error):
                for batch in batches:
                    self._shared.state(shard).append(batch)
            raise


class CancelledAppendsLandLater(FakeCoordinatorLog):
    """An append that was cancelled goes on, and comes behind what is appended afterwards."""

    async def append(self, shard, batches):
        try:
            await asyncio.sleep(0)
            return await super().append(shard, batches)
        except asyncio.CancelledError:
            self.going_on = asyncio.create_task(self._append_later(shard, batches))
            raise

    async def _append_later(self, shard, batches):
        for _ in range(6):
            await asyncio.sleep(0)
        for batch in batches:
            self._shared.state(shard).append(batch)


class KindsShareALog(FakeCoordinatorLog):
    """Shards of one index share a log, whatever their topic is."""

    async def append(self, shard, batches):
        return await super().append(type(shard)("__one", shard.index), batches)

    def read(self, shard, offset):
        return super().read(type(shard)("__one", shard.index), offset)

    async def bounds(self, shard):
        return await super().bounds(type(shard)("__one", shard.index))


class ARefusalIsForAll(FakeCoordinatorLog):
    """An append that is refused fails all that are queued with it, of other shards too."""

    under_way = False

    async def append(self, shard, batches):
        if any(len(batch) < 61 for batch in batches):
            type(self).under_way = True
            await asyncio.sleep(0)
            type(self).under_way = False
        elif self.under_way:
            raise CoordinatorLogError("the group was refused")
        return await super().append(shard, batches)


class BlocksWhenAppending(FakeCoordinatorLog):
    """An append syncs its file on the event loop's thread."""

    async def append(self, shard, batches):
        time.sleep(BLOCKED_S if self._shared.state(shard).end >= 32 else 0)  # noqa: ASYNC251 - that is the fault
        await asyncio.sleep(0)
        return await super().append(shard, batches)


def _first_shard(log):
    return next(iter(log._shared._shards))


def _commit(state):
    state.high_watermark = state.end
    state.notify()


async def _each(stream, parts):
    async for entries in stream:
        yield [part for entry in entries for part in parts(entry)]


class ChangesBytes(FakeCoordinatorLog):
    """Each reader is given bytes of its own: the batch is made again when it is read."""

    reads = 0

    def read(self, shard, offset):
        type(self).reads += 1
        reads = self.reads
        return _each(super().read(shard, offset), lambda entry: [_changed(entry, reads)])


def _changed(entry: LogBatch, number: int) -> LogBatch:
    return replace(entry, data=entry.data[:30] + bytes([number % 256]) + entry.data[31:])


CORRECT = (
    Correct(noun=NOUN, name="memory", suite=shared_suite()),
    Correct(noun=NOUN, name="file", suite=file_suite(FileLog)),
)

_POWER_CUT = "an entry that append returned was lost in a power cut"
_TORN = "an append that a power cut tears is there wholly or not at all"
_TOO_LARGE = "an entry that is too large is refused for good and the log goes on"
_SILENT = "an append that the backend never answers ends all the same"
_ORDER = "batches come back in order with the offsets that append returned"

FAULTS = (
    fault("never-syncs", NeverSyncs, _POWER_CUT),
    fault("syncs-before-it-writes", SyncsBeforeItWrites, _POWER_CUT),
    fault("syncs-later", SyncsLater, "an append that returned is there after a power cut"),
    fault("never-syncs-the-folder", NeverSyncsTheFolder, _POWER_CUT),
    fault("takes-a-torn-entry", TakesATornEntry, _TORN),
    fault("appends-behind-a-torn-entry", AppendsBehindATornEntry, _TORN),
    fault("forgets-the-last-entry", ForgetsTheLastEntry, "a log opened again goes on where it was"),
    fault("offsets-begin-anew", OffsetsBeginAnew, "a log opened again goes on where it was"),
    fault("acknowledges-too-early", AcknowledgesTooEarly, "acknowledged is below the high watermark at once"),
    fault("the-end-is-beyond-what-is-committed", EndIsBeyondWhatIsCommitted, "can always be reached"),
    fault("a-log-never-written-has-an-end", NeverWrittenHasAnEnd, "a log never written has both bounds at 0"),
    fault("the-end-lags-behind-its-own-append", EndLagsBehindItself, "is below the high watermark at once"),
    fault("batches-are-reversed", ReversesBatches, _ORDER),
    fault("the-last-batch-is-lost", LosesTheLastBatch, _ORDER),
    fault("batches-are-appended-twice", AppendsTwice, "readers never skip and never repeat"),
    fault("one-offset-for-a-call", OneOffsetForACall, "append returns offsets that grow"),
    fault("damaged-batches-are-taken", TakesDamagedBatches, "what is no intact batch is refused"),
    fault("foreign-errors", ForeignErrors, "a call that fails raises the interfaces error"),
    fault("appending-nothing-fails", AppendingNothingFails, "appending nothing is no error"),
    fault("large-batches-are-split", SplitsLargeBatches, "a batch of a mebibyte comes back unchanged"),
    fault("bytes-differ-from-reader-to-reader", ChangesBytes, _ORDER),
    fault("what-is-too-large-is-thrown-away", TakesWhatIsTooLarge, _TOO_LARGE),
    fault("too-large-is-no-refusal", TooLargeIsNoRefusal, _TOO_LARGE),
    fault("a-refusal-names-the-wrong-entry", RefusesTheWrongOne, _TOO_LARGE),
    fault("a-refusal-takes-those-before-along", RefusesAllBefore, _TOO_LARGE),
    fault("those-behind-a-refusal-are-appended", AppendsBehindARefusal, _TOO_LARGE),
    fault("refused-entries-land-later", RefusedEntriesLandLater, _TOO_LARGE),
    fault("the-largest-entry-is-refused", LargestIsRefused, "an entry as large as the log allows is taken"),
    fault("silence-is-a-refusal", SilenceIsARefusal, _SILENT),
    fault("an-append-waits-for-ever", WaitsForEver, _SILENT),
    fault("what-got-no-answer-lands-twice", SilenceLandsTwice, _SILENT),
    fault("cancelled-appends-land-later", CancelledAppendsLandLater, "a cancelled append takes place wholly or not"),
    fault("kinds-of-shards-share-a-log", KindsShareALog, "shards know nothing of each other"),
    fault("a-refusal-is-for-all-shards", ARefusalIsForAll, "a refused append to one shard does not disturb another"),
    fault("appends-block", BlocksWhenAppending, "the event loop is not blocked"),
)
