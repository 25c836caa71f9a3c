"""A partition's runs by time: a tree of blocks, each with the greatest timestamp of what it spans. Pure.

A block of level 1 spans 16 runs, of level 2 16 blocks of level 1, and so on; it is written once, when it is full, so
replay needs no more than the open block of each level. What no block spans yet is looked up one level below.
(KIP-1164, DisklessListOffsets, "for specified timestamps".)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from diskless_core.diskless.commands import NO_TIMESTAMP
from diskless_core.wal.runs import Run

FAN_OUT = 16
"""Runs or blocks in a block. A lookup reads up to so many rows of each level: small blocks mean little to read."""

LEVELS = 6
"""The topmost block spans 16**6 runs, 17 million: a partition with live runs has few of them."""

_SIZES = tuple(FAN_OUT**level for level in range(1, LEVELS + 1))
_PACKED = struct.Struct(f">q{2 * LEVELS}q")


class Block(NamedTuple):
    """A full block: offsets are inclusive, and what was deleted of it still counts for its greatest timestamp."""

    base_offset: int
    last_offset: int
    max_timestamp: int


class OpenBlock(NamedTuple):
    """A block of which the end is not known yet."""

    base_offset: int = 0
    max_timestamp: int = NO_TIMESTAMP


class RunCount(NamedTuple):
    """How many runs a partition ever had, and its open block of each level, from level 1 up."""

    runs: int = 0
    open_blocks: tuple[OpenBlock, ...] = (OpenBlock(),) * LEVELS


def count(before: RunCount, appended: Sequence[Run]) -> tuple[RunCount, Sequence[tuple[int, Block]]]:
    """What `before` becomes with these runs, and the blocks that they fill, as (level, block)."""
    runs, open_blocks = before
    full: list[tuple[int, Block]] = []
    position = 0
    while position < len(appended):
        taken = appended[position : position + FAN_OUT - runs % FAN_OUT]
        if not runs % FAN_OUT:
            open_blocks = _opened(open_blocks, runs, taken[0].base_offset)
        open_blocks = _reached(open_blocks, taken)
        runs += len(taken)
        position += len(taken)
        if not runs % FAN_OUT:
            open_blocks = _filled(open_blocks, runs, taken[-1].last_offset, full)
    return RunCount(runs, open_blocks), full


def _reached(open_blocks: tuple[OpenBlock, ...], appended: Sequence[Run]) -> tuple[OpenBlock, ...]:
    """With runs that the open block of level 1 has room for."""
    latest = max([run.max_timestamp for run in appended])
    base_offset, max_timestamp = open_blocks[0]
    return open_blocks if latest <= max_timestamp else (OpenBlock(base_offset, latest), *open_blocks[1:])


def _opened(open_blocks: tuple[OpenBlock, ...], runs: int, base_offset: int) -> tuple[OpenBlock, ...]:
    opened = OpenBlock(base_offset)
    return tuple(opened if not runs % size else block for size, block in zip(_SIZES, open_blocks, strict=True))


def _filled(
    open_blocks: tuple[OpenBlock, ...], runs: int, last_offset: int, full: list[tuple[int, Block]]
) -> tuple[OpenBlock, ...]:
    """Level by level up, as far as blocks are full; the first that is not takes on the greatest timestamp."""
    blocks, below = list(open_blocks), NO_TIMESTAMP
    for index, size in enumerate(_SIZES):
        base_offset, max_timestamp = blocks[index]
        below = max(below, max_timestamp)
        blocks[index] = OpenBlock(base_offset, below)
        if runs % size:
            break
        full.append((index + 1, Block(base_offset, last_offset, below)))
    return tuple(blocks)


def pack(value: RunCount) -> bytes:
    """As a column of the store."""
    return _PACKED.pack(value.runs, *(number for block in value.open_blocks for number in block))


def unpack(column: bytes) -> RunCount:
    """The value back. A start does this for each partition."""
    if column == _EMPTY_COLUMN:
        return _EMPTY
    numbers = iter(_PACKED.unpack(column))
    return RunCount(next(numbers), tuple(map(_open_block, zip(numbers, numbers, strict=True))))


_open_block = partial(tuple.__new__, OpenBlock)
"""`OpenBlock._make`, in a quarter of its time."""

_EMPTY = RunCount()
_EMPTY_COLUMN = pack(_EMPTY)


class RunTree(Protocol):
    """One partition's runs and full blocks. What overlaps [start, end), in ascending order of offsets."""

    def blocks(self, level: int, start: int, end: int) -> Iterable[Block]: ...

    def runs(self, start: int, end: int) -> Iterable[Run]: ...


def first_at_or_after(tree: RunTree, timestamp: int, start: int, end: int, level: int = LEVELS) -> Run | None:
    """The first run in [start, end) that has a record of `timestamp` or later, or had one that was deleted.

    The latter only where it contains `start`. A block that contains it may promise what was deleted; then the search
    goes on behind it, so that each level is read twice at most.
    """
    if level == 0:
        return next((run for run in tree.runs(start, end) if run.max_timestamp >= timestamp), None)
    for block in tree.blocks(level, start, end):
        if block.max_timestamp >= timestamp:
            found = first_at_or_after(tree, timestamp, start, block.last_offset + 1, level - 1)
            if found is not None:
                return found
        start = block.last_offset + 1
    return first_at_or_after(tree, timestamp, start, end, level - 1) if start < end else None


def greatest_timestamp(tree: RunTree, start: int, end: int, level: int = LEVELS) -> int:
    """The greatest timestamp of the runs that begin in [start, end), -1 without any."""
    if level == 0:
        return max(
            (run.max_timestamp for run in tree.runs(start, end) if run.base_offset >= start), default=NO_TIMESTAMP
        )
    greatest, at = NO_TIMESTAMP, start
    for block in tree.blocks(level, start, end):
        if block.base_offset >= start:
            greatest = max(greatest, block.max_timestamp)
        else:
            greatest = greatest_timestamp(tree, start, block.last_offset + 1, level - 1)
        at = block.last_offset + 1
    return max(greatest, greatest_timestamp(tree, at, end, level - 1)) if at < end else greatest
