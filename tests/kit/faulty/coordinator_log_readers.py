"""Logs whose readers skip, repeat, wait in vain or are not told, and logs that prune wrongly."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from diskless_core.plugin.coordinator_log import CoordinatorLogError, LogOffsetPrunedError
from diskless_core.testing.fakes.log import FakeCoordinatorLog
from tests.kit.log_backends import fault

BLOCKED_S = 0.1


class SkipsTheBatchItIsIn(FakeCoordinatorLog):
    """Who reads from inside a batch gets what follows it."""

    async def _stream(self, shard, offset):
        async for entries in super()._stream(shard, offset):
            found = [entry for entry in entries if entry.offset >= offset]
            if found:
                yield found


class BeginsOneEarlier(FakeCoordinatorLog):
    """A reader gets the entry before the one that it asked for, too."""

    def read(self, shard, offset):
        return super().read(shard, max(self._shared.state(shard).start, offset - 1))


class NextOffsetIsTheOwn(FakeCoordinatorLog):
    """An entry says that the following one begins where it begins itself."""

    async def _stream(self, shard, offset):
        async for entries in super()._stream(shard, offset):
            yield [replace(entry, next_offset=entry.offset) for entry in entries]


class NextOffsetIsTooHigh(FakeCoordinatorLog):
    """An entry says that the following one begins one offset behind where it does."""

    async def _stream(self, shard, offset):
        async for entries in super()._stream(shard, offset):
            yield [replace(entry, next_offset=entry.next_offset + 1) for entry in entries]


class ReadsOnePage(FakeCoordinatorLog):
    """Of what is there when a reader begins, it gets the first page and goes on at the end."""

    async def _stream(self, shard, offset):
        is_first = True
        async for entries in super()._stream(shard, offset):
            yield entries[:25] if is_first else entries
            is_first = False


class NeverWakes(FakeCoordinatorLog):
    """A reader that waits at the end is not woken."""

    async def _stream(self, shard, offset):
        async for entries in super()._stream(shard, offset):
            yield entries
            offset = entries[-1].next_offset
            if not self._shared.state(shard).committed_from(offset):
                await asyncio.Event().wait()


class NoReaderBeforeTheFirstEntry(FakeCoordinatorLog):
    """A log that was never written to cannot be read."""

    def read(self, shard, offset):
        if not self._shared.state(shard).end:
            raise CoordinatorLogError("there is no such log")
        return super().read(shard, offset)


class AheadIsTheEnd(FakeCoordinatorLog):
    """A reader ahead of the log begins at its end."""

    def read(self, shard, offset):
        return super().read(shard, min(offset, self._shared.state(shard).high_watermark))


class Repeats(FakeCoordinatorLog):
    """A reader that catches up gets the last entry once more."""

    async def _stream(self, shard, offset):
        last = None
        async for entries in super()._stream(shard, offset):
            yield [last, *entries] if last is not None and entries[0].offset % 7 == 0 else entries
            last = entries[-1]


class Skips(FakeCoordinatorLog):
    """A reader that is behind gets the newest entries only."""

    async def _stream(self, shard, offset):
        async for entries in super()._stream(shard, offset):
            yield entries[-10:]


class SlowReadersHoldAppends(FakeCoordinatorLog):
    """Appends wait until every reader has taken what there was."""

    def __init__(self, shared, node_id):
        super().__init__(shared, node_id)
        self.busy = {}

    async def append(self, shard, batches):
        while self.busy.get(shard, 0):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        return await super().append(shard, batches)

    async def _stream(self, shard, offset):
        async for entries in super()._stream(shard, offset):
            self.busy[shard] = self.busy.get(shard, 0) + 1
            try:
                yield entries
            finally:
                self.busy[shard] -= 1


class CancelledReadersEndAll(FakeCoordinatorLog):
    """When one reader is cancelled, all readers of the log fail."""

    is_broken = False

    async def _stream(self, shard, offset):
        try:
            async for entries in super()._stream(shard, offset):
                if self.is_broken:
                    raise CoordinatorLogError("the connection was closed")
                yield entries
        except asyncio.CancelledError:
            self.is_broken = True
            raise


class PrunesOneTooMany(FakeCoordinatorLog):
    """Pruning takes the entry at the offset along."""

    async def prune(self, shard, before):
        await super().prune(shard, before + 1)


class PruningMovesTheEnd(FakeCoordinatorLog):
    """Pruning everything makes the log one that was never written to."""

    async def prune(self, shard, before):
        await super().prune(shard, before)
        state = self._shared.state(shard)
        if not state.entries:
            state.start = state.end = state.high_watermark = 0


class PruningBeyondTheEnd(FakeCoordinatorLog):
    """Pruning beyond the end moves the start there."""

    async def prune(self, shard, before):
        await super().prune(shard, before)
        state = self._shared.state(shard)
        if before > state.high_watermark:
            state.start = before


class PrunesAllShards(FakeCoordinatorLog):
    """Pruning a shard prunes all."""

    async def prune(self, shard, before):
        for each in list(self._shared._shards):
            await super().prune(each, before)


class PruningStartsALog(FakeCoordinatorLog):
    """Pruning a log that was never written to gives it a start and an end."""

    async def prune(self, shard, before):
        await super().prune(shard, before)
        state = self._shared.state(shard)
        if not state.end:
            state.start = state.end = state.high_watermark = before


class PrunesNothing(FakeCoordinatorLog):
    """Pruning does nothing, though it claims to prune."""

    async def prune(self, shard, before):
        pass


class PrunedIsTheStart(FakeCoordinatorLog):
    """Who reads below the start begins at the start without being told."""

    def read(self, shard, offset):
        return super().read(shard, max(offset, self._shared.state(shard).start))


class PrunedIsAnyError(FakeCoordinatorLog):
    """Who reads below the start is told that reading failed, and not that it is gone."""

    async def _stream(self, shard, offset):
        try:
            async for entries in super()._stream(shard, offset):
                yield entries
        except LogOffsetPrunedError as error:
            raise CoordinatorLogError(str(error)) from error


class ReadersAreNotToldOfPruning(FakeCoordinatorLog):
    """A reader that has not come so far skips what is pruned."""

    async def _stream(self, shard, offset):
        is_first = True
        while True:
            try:
                async for entries in super()._stream(shard, offset):
                    yield entries
                    offset, is_first = entries[-1].next_offset, False
            except LogOffsetPrunedError:
                if is_first:
                    raise
                offset = self._shared.state(shard).start
            else:
                return


class PrunedComesBack(FakeCoordinatorLog):
    """What was pruned is there again after a restart."""

    async def prune(self, shard, before):
        state = self._shared.state(shard)
        gone = list(state.entries)
        await super().prune(shard, before)
        state.late = [entry for entry in gone if entry not in state.entries] + state.late

    async def start(self):
        for state in self._shared._shards.values():
            if state.late:
                state.entries, state.late = state.late + state.entries, []
                state.start = state.entries[0].offset
        await super().start()


class BlocksWhenReading(FakeCoordinatorLog):
    """A reader reads its file on the event loop's thread."""

    async def _stream(self, shard, offset):
        async for entries in super()._stream(shard, offset):
            time.sleep(BLOCKED_S if offset >= 31 else 0)  # noqa: ASYNC251 - that is the fault
            await asyncio.sleep(0)
            yield entries


class BlocksWhenPruning(FakeCoordinatorLog):
    """Files are deleted on the event loop's thread."""

    async def prune(self, shard, before):
        time.sleep(BLOCKED_S)  # noqa: ASYNC251 - that is the fault
        await asyncio.sleep(0)
        await super().prune(shard, before)


_NEXT = "an entry says where the following one may begin"
_PRUNED = "reading below the start says that it is pruned"
_ONWARDS = "readers never skip and never repeat while appends go on"

FAULTS = (
    fault("a-reader-skips-the-batch-it-is-in", SkipsTheBatchItIsIn, "inside a batch begins with that whole batch"),
    fault("a-reader-begins-one-earlier", BeginsOneEarlier, "reading from any entry gives the rest of the log"),
    fault("the-next-offset-is-the-own", NextOffsetIsTheOwn, _NEXT),
    fault("the-next-offset-is-too-high", NextOffsetIsTooHigh, _NEXT),
    fault("a-reader-gets-one-page", ReadsOnePage, "reading from any entry gives the rest of the log"),
    fault("a-reader-at-the-end-never-wakes", NeverWakes, "waits and wakes at the next append"),
    fault("no-reader-before-the-first-entry", NoReaderBeforeTheFirstEntry, "may be there before the first append"),
    fault("a-reader-ahead-begins-at-the-end", AheadIsTheEnd, "ahead of the log gets nothing below its offset"),
    fault("a-reader-repeats", Repeats, _ONWARDS),
    fault("a-reader-skips", Skips, "reading from any entry gives the rest of the log"),
    fault("slow-readers-hold-appends-up", SlowReadersHoldAppends, "a reader that takes nothing holds nobody up"),
    fault("a-cancelled-reader-ends-all", CancelledReadersEndAll, "a cancelled reader leaves the others alone"),
    fault("prunes-one-too-many", PrunesOneTooMany, "pruning never takes what is not below the offset"),
    fault("pruning-everything-moves-the-end", PruningMovesTheEnd, "pruning everything keeps the end"),
    fault("pruning-beyond-the-end-moves-the-start", PruningBeyondTheEnd, "pruning everything keeps the end"),
    fault("pruning-prunes-all-shards", PrunesAllShards, "pruning one shard leaves another"),
    fault("pruning-starts-a-log", PruningStartsALog, "pruning one shard leaves another"),
    fault("pruning-does-nothing", PrunesNothing, _PRUNED),
    fault("below-the-start-is-the-start", PrunedIsTheStart, _PRUNED),
    fault("below-the-start-is-any-error", PrunedIsAnyError, _PRUNED),
    fault("readers-are-not-told-of-pruning", ReadersAreNotToldOfPruning, "reaches a reader that had not come so far"),
    fault("what-was-pruned-comes-back", PrunedComesBack, "what is pruned stays so after a restart"),
    fault("reads-block", BlocksWhenReading, "the event loop is not blocked"),
    fault("pruning-blocks", BlocksWhenPruning, "the event loop is not blocked"),
)
