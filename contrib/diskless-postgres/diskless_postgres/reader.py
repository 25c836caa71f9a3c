"""Streams of one shard's entries: a page at a time, so what a reader holds is bounded."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from diskless_core.plugin.coordinator_log import LogBatch, LogOffsetPrunedError
from diskless_postgres.entries import LostTailError, Row, as_batches, missing
from diskless_postgres.sessions import Pool
from diskless_postgres.tables import Statements
from diskless_postgres.view import NOTHING, Head, ShardView

PAGE_BYTES = 2 << 20
PAGE_ROWS = 1000


class ShardReader:
    """One stream.

    Attributes:
        offset: of the entry that comes next.
    """

    def __init__(self, view: ShardView, pool: Pool, statements: Statements, offset: int) -> None:
        self._view = view
        self._pool = pool
        self._statements = statements
        self._last: uuid.UUID | None = None
        self.offset = offset

    async def next_page(self) -> Sequence[LogBatch]:
        """The next entries; none at the end of the log.

        Raises:
            LogOffsetPrunedError: they have been pruned.
            CoordinatorLogError: they cannot be read.
        """
        view, known = self._view, self._view.head
        view.require_sound()
        if view.is_known and self.offset >= known.end:
            self._require_not_pruned(known.start)
            return []
        rows = await self._pool.rows(
            self._statements.page,
            {"shard": str(view.shard), "offset": self.offset, "rows": PAGE_ROWS, "bytes": PAGE_BYTES},
        )
        start, end = rows[0][:2] if rows else (0, 0)
        if end < known.end or start < known.start:
            view.take(known, Head(start, end, NOTHING.last, 0))  # raises
        self._require_not_pruned(start)
        found = [Row(*row[2:]) for row in rows if row[2] is not None]
        if not found and self.offset < end:
            raise missing(view.shard, self.offset)
        try:
            batches, last = as_batches(view.shard, self.offset, self._last, found)
        except LostTailError as error:
            raise view.stop_for(error) from None
        if batches:
            self.offset, self._last = batches[-1].next_offset, last
        return batches

    def _require_not_pruned(self, start: int) -> None:
        if self.offset < start:
            raise LogOffsetPrunedError(
                f"offset {self.offset} is below {start}, where the log of {self._view.shard} starts"
            )
