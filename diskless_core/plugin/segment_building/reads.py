"""Reads batches of WAL objects for several partitions at once, each object as seldom as memory allows.

An object has batches of many partitions, side by side. Whoever reads some of them brings along those that its
neighbours are about to ask for. What was brought along is given up when memory is needed, and then read again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from diskless_core.plugin.wal_object_store import MAX_GAP_BYTES, ObjectData, WalObjectStore
from diskless_core.wal.runs import Run


@dataclass(slots=True, eq=False)
class Piece:
    """Adjacent ranges of one partition in one object, read together.

    Attributes:
        data: its bytes, where somebody has brought them along.
        coming: done when somebody has brought them along, or has failed to.
    """

    object_key: str
    start: int
    end: int
    ranges: list[Run] = field(default_factory=list)
    data: bytearray | None = None
    coming: asyncio.Future[None] | None = None

    @property
    def size(self) -> int:
        return self.end - self.start


def pieces(ranges: Sequence[Run], max_bytes: int) -> Iterator[Piece]:
    """The ranges in their order, put together where they lie side by side, `max_bytes` at most unless one is larger."""
    piece: Piece | None = None
    for one in ranges:
        end = one.byte_offset + one.byte_size
        if piece is not None and _follows(piece, one) and end - piece.start <= max_bytes:
            piece.end = end
            piece.ranges.append(one)
            continue
        if piece is not None:
            yield piece
        piece = Piece(one.object_key, one.byte_offset, end, [one])
    if piece is not None:
        yield piece


def _follows(piece: Piece, one: Run) -> bool:
    return piece.object_key == one.object_key and piece.end == one.byte_offset


class Budget:
    """Memory that is shared out in the order in which it is asked for. What is larger than all of it gets it alone."""

    def __init__(self, max_bytes: int) -> None:
        self.used = 0
        self._max_bytes = max_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def try_take(self, size: int) -> bool:
        """Take memory if there is some and nobody waits for it."""
        if self._waiting or not self._has(size):
            return False
        self.used += size
        return True

    async def take(self, size: int) -> None:
        """Take memory as soon as there is some."""
        if self.try_take(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(size)
            else:
                self._waiting.remove((size, turn))
                self._serve()
            raise

    def give_back(self, size: int) -> None:
        """Return what was taken."""
        self.used -= size
        self._serve()

    def _has(self, size: int) -> bool:
        return self.used == 0 or self.used + size <= self._max_bytes

    def _serve(self) -> None:
        while self._waiting and self._has(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            if not turn.cancelled():
                self.used += size
                turn.set_result(None)


class SharedReads:
    """All reads of a job. Every piece is announced, then read or given up."""

    def __init__(self, objects: WalObjectStore, *, buffer_max_bytes: int, read_max_bytes: int) -> None:
        self._objects = objects
        self._read_max_bytes = read_max_bytes
        self._budget = Budget(buffer_max_bytes)
        self._announced: dict[str, list[Piece]] = {}
        self._brought: dict[Piece, None] = {}

    @property
    def used_bytes(self) -> int:
        """Memory that is taken by what was read."""
        return self._budget.used

    def announce(self, piece: Piece) -> None:
        """Say that a piece will be wanted soon."""
        self._announced.setdefault(piece.object_key, []).append(piece)

    async def read(self, piece: Piece, turn: asyncio.Lock) -> memoryview:
        """The bytes of an announced piece, writable. `release` gives their memory back.

        Args:
            turn: of whoever reads several pieces at once. They get their memory in order: with that of later ones in
                hand, it could be waited for ever for that of the first.

        Raises:
            WalObjectStoreError: it cannot be read.
        """
        async with turn:
            if piece.coming is not None:
                await asyncio.wait([piece.coming])
            self._retract(piece)
            if piece.data is not None:
                del self._brought[piece]
                data, piece.data = piece.data, None
                return memoryview(data)
            await self._take(piece.size)
        try:
            return await self._fetch(piece)
        except BaseException:
            self._budget.give_back(piece.size)
            raise

    def release(self, piece: Piece) -> None:
        """Give back the memory of a piece that was read."""
        self._budget.give_back(piece.size)

    def give_up(self, piece: Piece) -> None:
        """An announced piece is not wanted any more."""
        self._retract(piece)
        if piece in self._brought:
            self._drop(piece)

    async def _take(self, size: int) -> None:
        while not self._budget.try_take(size):
            if not self._brought:
                await self._budget.take(size)
                return
            self._drop(next(iter(self._brought)))

    def _drop(self, piece: Piece) -> None:
        del self._brought[piece]
        piece.data = None
        self._budget.give_back(piece.size)

    async def _fetch(self, piece: Piece) -> memoryview:
        companions = self._companions(piece)
        start = min([piece.start, *(one.start for one in companions)])
        end = max([piece.end, *(one.end for one in companions)])
        coming: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for one in companions:
            one.coming = coming
        try:
            data = await self._objects.get(piece.object_key, start, end)
            view = memoryview(data)
            for one in companions:
                self._keep(one, view[one.start - start : one.end - start])
        finally:
            for one in companions:
                one.coming = None
            coming.set_result(None)
        return _writable(data) if not companions else _copy(view[piece.start - start : piece.end - start])

    def _keep(self, piece: Piece, view: memoryview) -> None:
        is_wanted = piece in self._announced.get(piece.object_key, ())
        if is_wanted and len(view) == piece.size and self._budget.try_take(piece.size):
            piece.data = bytearray(view)
            self._brought[piece] = None

    def _companions(self, piece: Piece) -> Sequence[Piece]:
        """What lies beside a piece, is wanted too, and is not on its way."""
        others = sorted(
            (one for one in self._announced.get(piece.object_key, ()) if one.data is None and one.coming is None),
            key=lambda one: one.start,
        )
        found: list[Piece] = []
        start, end = piece.start, piece.end
        for one in others:
            if end <= one.start <= end + MAX_GAP_BYTES and one.end - start <= self._read_max_bytes:
                found.append(one)
                end = one.end
        for one in reversed(others):
            if start - MAX_GAP_BYTES <= one.end <= start and end - one.start <= self._read_max_bytes:
                found.append(one)
                start = one.start
        return found

    def _retract(self, piece: Piece) -> None:
        same_object = self._announced.get(piece.object_key, [])
        if piece in same_object:
            same_object.remove(piece)
            if not same_object:
                del self._announced[piece.object_key]


def _writable(data: ObjectData) -> memoryview:
    view = memoryview(data)
    return _copy(view) if view.readonly else view


def _copy(view: memoryview) -> memoryview:
    return memoryview(bytearray(view))
