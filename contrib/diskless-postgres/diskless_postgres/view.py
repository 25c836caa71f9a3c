"""What one node knows of a shard's log: its bounds, and the last entry it has seen. Finds that a log went back.

A log only grows, so whatever is asked later than something was known has to contain it. Answers may overtake each
other, so each is compared with what was known when its question was sent.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from diskless_core.plugin.coordinator_log import CoordinatorLogError, LogBounds
from diskless_core.plugin.shard import ShardId
from diskless_postgres.entries import NO_NONCE, LostTailError, lost, missing


@dataclass(frozen=True, slots=True)
class Head:
    """A row of the table of shards. `last` is the nonce of the entry before `end`."""

    start: int
    end: int
    last: uuid.UUID
    fence: int


NOTHING = Head(0, 0, NO_NONCE, 0)


class ShardView:
    """Runs on the event loop.

    Attributes:
        head: the newest that is known.
        is_known: whether the server was asked yet.
    """

    def __init__(self, shard: ShardId) -> None:
        self.shard = shard
        self.head = NOTHING
        self.is_known = False
        self.waiting = 0
        self._changed = asyncio.Event()
        self._lost: LostTailError | None = None

    @property
    def bounds(self) -> LogBounds:
        return LogBounds(self.head.start, self.head.end)

    def question(self) -> tuple[str, int]:
        """Parameters of the statement `heads` for this shard."""
        return str(self.shard), self.head.end - 1

    def require_sound(self) -> None:
        """Raises LostTailError once the log was found to have gone back."""
        if self._lost is not None:
            raise LostTailError(str(self._lost))

    def take_answer(self, known: Head, row: Sequence[Any]) -> Head:
        """Take a row of the statement `heads` that was asked when `known` was known. The head that it tells.

        Raises:
            LostTailError: committed entries are gone.
            CoordinatorLogError: the tables are damaged.
        """
        _, start, end, last, fence, nonce, is_headless = row
        if is_headless:
            raise CoordinatorLogError(f"the row of {self.shard} is missing in the table 'shards': restore it")
        head = NOTHING if end is None else Head(start, end, last, fence)
        if head.start <= known.end - 1 < head.end and nonce is None:
            raise missing(self.shard, known.end - 1)
        if known.end and head.start <= known.end - 1 and end is not None and head.end >= known.end:
            self.require_same(known, nonce)
        self.take(known, head)
        return head

    def take(self, known: Head, head: Head) -> None:
        """Take what the server said when asked with `known`."""
        if head.end < known.end or head.start < known.start:
            raise self.lose(
                f"it ends at {head.end} and starts at {head.start}, and this broker has seen it from {known.start} "
                f"to {known.end}"
            )
        self.require_sound()
        if not self.is_known or (head.end, head.start, head.fence) > (self.head.end, self.head.start, self.head.fence):
            start = max(head.start, self.head.start)
            self.head = Head(start, head.end, head.last, head.fence)
            self.is_known = True
            self.notify()

    def require_same(self, known: Head, nonce: uuid.UUID) -> None:
        """The last entry that was known has this nonce now."""
        if nonce != known.last:
            raise self.lose(f"the entry {known.end - 1} is another one than it was")

    def lose(self, what: str) -> LostTailError:
        """Stop the shard for good."""
        return self.stop_for(lost(self.shard, what))

    def stop_for(self, error: LostTailError) -> LostTailError:
        """Stop the shard for good, for what a reader has found."""
        if self._lost is None:
            self._lost = error
            self.notify()
        return self._lost

    def notify(self) -> None:
        """Wake all that wait."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self) -> None:
        """Until the head may have changed."""
        self.waiting += 1
        try:
            await self._changed.wait()
        finally:
            self.waiting -= 1
