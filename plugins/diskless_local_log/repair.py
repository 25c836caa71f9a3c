"""Damage in a shard's segments: where it is, what is lost with it, and what can be done. Everything here blocks.

Nothing is thrown away: what is cut off a log goes into the folder `removed` beside the shards.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from diskless_core.log.flipped_bit import FlippedBit, flipped_bit
from diskless_core.log.segment import (
    CorruptSegmentError,
    base_offset_of,
    file_name,
    intact_batches,
    intact_batches_after,
    recover_tail,
)
from diskless_core.plugin.folders import make_folder, sync_folder, write_durably
from diskless_core.plugin.shard import ShardId
from diskless_local_log.recovery import base_offsets
from diskless_local_log.recovery_points import read_recovery_points, write_recovery_points

_REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """The first place of a shard's log that is damaged.

    Attributes:
        path: the segment. It is intact up to `position`, in bytes, where the entry of `offset` should begin.
        problem: what is wrong there.
        flipped: the one bit that is wrong, where that is all.
        end: the offset after the last entry that is known of; everything from `offset` on goes when the log is cut.
        cut_bytes: how many bytes that is, in this and the following segments.
    """

    path: Path
    position: int
    offset: int
    problem: str
    flipped: FlippedBit | None
    end: int
    cut_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What is in a shard's folder.

    Attributes:
        start: the offset of its first entry.
        end: the offset after the last one that is intact, or before the damage.
        torn_bytes: left of an interrupted write; the next start cuts them.
        damage: None if there is none.
    """

    shard: ShardId
    start: int
    end: int
    torn_bytes: int
    damage: Damage | None


def examine(data_dir: Path, shard: ShardId) -> Examined | None:
    """Read a shard through; None if it has no segments."""
    folder = data_dir / str(shard)
    # Read before the files are: a running broker only ever adds to what it has synced.
    synced_offset = read_recovery_points(data_dir).get(shard, 0)
    found = base_offsets(folder)
    if not found:
        return None
    for base_offset, following in pairwise(found):
        damage = _damage_of_closed(folder, base_offset, following, synced_offset)
        if damage is not None:
            return Examined(shard=shard, start=found[0], end=damage.offset, torn_bytes=0, damage=damage)
    path = folder / file_name(found[-1])
    data = path.read_bytes()
    try:
        recovered = recover_tail(data, found[-1], synced_offset=synced_offset)
    except CorruptSegmentError as error:
        damage = _damage(path, data, error.position, error.expected_offset, synced_offset, str(error))
        return Examined(shard=shard, start=found[0], end=damage.offset, torn_bytes=0, damage=damage)
    torn_bytes = len(data) - recovered.valid_bytes
    return Examined(shard=shard, start=found[0], end=recovered.next_offset, torn_bytes=torn_bytes, damage=None)


def flip_back(flipped: FlippedBit, path: Path) -> None:
    """Correct one bit of a segment, durably. The folder has to be locked.

    Raises:
        OSError: the file cannot be written.
    """
    with path.open("r+b", buffering=0) as file:
        (byte,) = os.pread(file.fileno(), 1, flipped.position)
        os.pwrite(file.fileno(), bytes([byte ^ flipped.mask]), flipped.position)
        os.fsync(file.fileno())


def cut(data_dir: Path, shard: ShardId, damage: Damage) -> Path:
    """End the log of a shard where it is damaged, durably, and return the folder that has what was cut off.

    The folder has to be locked. When this is interrupted, the shard is damaged as before, and can be cut again.

    Raises:
        OSError: a file cannot be written.
    """
    removed = _new_folder(data_dir / _REMOVED / f"{shard}-from-{damage.offset}")
    data = damage.path.read_bytes()
    write_durably(removed / f"{damage.path.name}.from-byte-{damage.position}", data[damage.position :])
    # First, or a log that was cut would seem to lack what the checkpoint knows of.
    points = read_recovery_points(data_dir)
    write_recovery_points(data_dir, {**points, shard: min(points.get(shard, damage.offset), damage.offset)})
    # The newest first: the damage is the end of what is left, and no later segment begins behind a gap unnoticed.
    for path in reversed(list(_following(damage.path))):
        path.rename(removed / path.name)
        sync_folder(removed)
        sync_folder(path.parent)
    with damage.path.open("r+b") as file:
        file.truncate(damage.position)
        os.fsync(file.fileno())
    return removed


def _damage_of_closed(folder: Path, base_offset: int, following: int, synced_offset: int) -> Damage | None:
    path = folder / file_name(base_offset)
    data = path.read_bytes()
    position, next_offset = 0, base_offset
    for at, header in intact_batches(data, 0, base_offset, gapless=True):
        position, next_offset = at + header.size, header.last_offset + 1
    if position == len(data) and next_offset == following:
        return None
    problem = (
        f"at byte {position} there is no intact batch of offset {next_offset}; the next segment begins at {following}"
    )
    return _damage(path, data, position, next_offset, synced_offset, problem)


def _damage(path: Path, data: bytes, position: int, offset: int, synced_offset: int, problem: str) -> Damage:
    ends = [offset, synced_offset, *_ends(data, position, offset)]
    cut_bytes = len(data) - position
    for following in _following(path):
        content = following.read_bytes()
        cut_bytes += len(content)
        base_offset = base_offset_of(following.name) or 0
        ends += [base_offset, *_ends(content, 0, base_offset)]
    return Damage(
        path=path,
        position=position,
        offset=offset,
        problem=problem,
        flipped=flipped_bit(data, position, offset),
        end=max(ends),
        cut_bytes=cut_bytes,
    )


def _ends(data: bytes, position: int, offset: int) -> Iterator[int]:
    return (header.last_offset + 1 for _, header in intact_batches_after(data, position, offset))


def _following(path: Path) -> Iterator[Path]:
    first = base_offset_of(path.name) or 0
    return (path.with_name(file_name(found)) for found in base_offsets(path.parent) if found > first)


def _new_folder(wanted: Path) -> Path:
    folder, number = wanted, 1
    while folder.exists():
        number += 1
        folder = wanted.with_name(f"{wanted.name}-{number}")
    make_folder(folder)
    return folder
