"""The newest claims and accepted entries that a replica has taken, for other replicas to follow.

Ignored entries are not in it: an offset that no entry covers was ignored, or is control data of the log. It holds so
many bytes at most, and says of each position that it still knows what had been accepted there. It awaits nothing but
more entries. (KIP-1164, "Local state machine".)
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left

from diskless_core.coordinator.entries import Acceptance
from diskless_core.plugin.coordinator_log import LogBatch
from diskless_core.protocol.follow_shard import pack_entry

TAIL_BYTES = 4 << 20
"""Of one shard: some seconds of a busy log. A follower that was away for longer reads the log itself."""

ENTRY_BYTES = 400
"""What an entry takes beside its own bytes."""

_KEPT_SHARE = 0.75
"""Of the limit, that is left after the oldest entries went: they go many at a time."""


class TailEntry:
    """A claim or an accepted entry.

    Attributes:
        acceptance: whose entries count after it.
    """

    __slots__ = ("_packed", "acceptance", "batch")

    def __init__(self, batch: LogBatch, acceptance: Acceptance) -> None:
        self.batch = batch
        self.acceptance = acceptance
        self._packed: bytes | None = None

    @property
    def packed(self) -> bytes:
        """As a response of DisklessFollowShard has it; packed once for all followers."""
        if self._packed is None:
            batch = self.batch
            self._packed = pack_entry(batch.offset, batch.next_offset, self.acceptance.digest, batch.data)
        return self._packed


class NotInTailError(Exception):
    """The position lies before the oldest entry that is left."""


class Tail:
    """See the module.

    Args:
        max_bytes: 0 keeps nothing, where nobody can follow.

    Attributes:
        start: the tail has every claim and accepted entry from this offset on.
    """

    def __init__(self, max_bytes: int) -> None:
        self.start = 0
        self._max_bytes = max_bytes
        self._before = Acceptance()
        self._entries: list[TailEntry] = []
        self._bytes = 0
        self._waiting = 0
        self._more = asyncio.Event()

    def reset(self, next_offset: int, acceptance: Acceptance) -> None:
        """Begin anew at a position, with what had been accepted there."""
        self.start = next_offset
        self._before = acceptance
        self._entries.clear()
        self._bytes = 0

    def add(self, batch: LogBatch, acceptance: Acceptance) -> None:
        """Take the next claim or accepted entry, with whose entries count after it."""
        if not self._max_bytes:
            return
        self._entries.append(TailEntry(batch, acceptance))
        self._bytes += _size(batch)
        if self._bytes > self._max_bytes:
            self._forget_oldest()
        self.wake()

    def _forget_oldest(self) -> None:
        gone = 0
        while self._bytes > self._max_bytes * _KEPT_SHARE and gone < len(self._entries):
            self._bytes -= _size(self._entries[gone].batch)
            gone += 1
        last = self._entries[gone - 1]
        self.start, self._before = last.batch.next_offset, last.acceptance
        del self._entries[:gone]

    @property
    def last(self) -> TailEntry | None:
        """The newest entry; None where there is none since the start."""
        return self._entries[-1] if self._entries else None

    def acceptance_at(self, offset: int) -> Acceptance:
        """Whose entries count at `offset`, which is not beyond what the replica has taken.

        Raises:
            NotInTailError: it is not known any more.
        """
        return self._acceptance_before(self._first(offset))

    def digest_at(self, term: int, next_sequence: int) -> bytes | None:
        """The digest when this sequence was next in the newest term; None where that is no longer known."""
        newest = self._acceptance_before(len(self._entries))
        position = len(self._entries) - (newest.next_sequence - next_sequence)
        if not 0 <= position <= len(self._entries):
            return None
        found = self._acceptance_before(position)
        return found.digest if (found.term, found.next_sequence) == (term, next_sequence) else None

    def since(self, offset: int, max_bytes: int) -> list[TailEntry]:
        """The entries from `offset` on, as many as `max_bytes` have room for, and one at least.

        Raises:
            NotInTailError: some are not known any more.
        """
        found: list[TailEntry] = []
        left = max_bytes
        for position in range(self._first(offset), len(self._entries)):
            entry = self._entries[position]
            left -= len(entry.batch.data)
            if left < 0 and found:
                break
            found.append(entry)
        return found

    def _first(self, offset: int) -> int:
        if offset < self.start:
            raise NotInTailError(f"offset {offset} lies before {self.start}")
        return bisect_left(self._entries, offset, key=lambda entry: entry.batch.offset)

    def _acceptance_before(self, position: int) -> Acceptance:
        return self._entries[position - 1].acceptance if position else self._before

    def wake(self) -> None:
        """Let those go who wait: there is more, or there is nothing to wait for."""
        if self._waiting:
            self._more.set()
            self._more = asyncio.Event()

    async def until_more(self, seconds: float) -> None:
        """Wait until something was added, or until `wake` or the time is over."""
        self._waiting += 1
        try:
            async with asyncio.timeout(seconds):
                await self._more.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting -= 1


def _size(batch: LogBatch) -> int:
    return len(batch.data) + ENTRY_BYTES
