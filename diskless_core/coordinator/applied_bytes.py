"""How many bytes of a shard's log this process has applied, and how many of them lie beyond an offset. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import NamedTuple

MARK_BYTES = 1 << 20
MARKS = 4_096
"""They reach back 4 GiB of the log; what lies before counts as a whole."""


class _Mark(NamedTuple):
    offset: int
    total: int


class AppliedBytes:
    """Counts.

    Attributes:
        total: applied since the process follows the log.
    """

    def __init__(self) -> None:
        self.total = 0
        self._next_offset = 0
        self._marks: deque[_Mark] = deque(maxlen=MARKS)

    def add(self, offset: int, next_offset: int, size_bytes: int) -> None:
        """Count the next entry of the log."""
        if not self._marks or self.total - self._marks[-1].total >= MARK_BYTES:
            self._marks.append(_Mark(offset, self.total))
        self.total += size_bytes
        self._next_offset = next_offset

    def up_to(self, offset: int) -> int:
        """How many of them lie below an offset, about: entries of one MiB count as being of the same size.

        0 where this process began later, or long before.
        """
        if offset >= self._next_offset:
            return self.total
        position = bisect_right(self._marks, offset, key=lambda mark: mark.offset)
        if not position:
            return 0
        mark, end = self._marks[position - 1], _Mark(self._next_offset, self.total)
        after = self._marks[position] if position < len(self._marks) else end
        share = (offset - mark.offset) / (after.offset - mark.offset)
        return mark.total + int(share * (after.total - mark.total))
